//! The acquisition point of a stack: the innermost frame that is not the lock's own machinery.
//!
//! Stacks enter, one [`Point`] per distinct place leaves. The rules are two short lists of function names, one for
//! kernel locks and one for user locks; a stack may be read in both ways, because a thread in a futex call can meet a
//! kernel lock.

use rustc_hash::FxHashMap;
use trace_format::{Frame, Stack, StackId};

use super::printable;

/// A place in the code.
///
/// Source file and line where they are known; otherwise the function and the offset in it, otherwise the module and
/// the offset in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Point {
    /// Source file.
    pub file: Option<String>,
    /// Source line.
    pub line: Option<i32>,
    /// The function.
    pub function: Option<String>,
    /// Bytes from the function's start; `None` where file and line say it better.
    pub function_offset: Option<u64>,
    /// The module's file name; `None` where file and line say it better.
    pub module: Option<String>,
    /// Offset into the module, or the address if there is no module; `None` where the function is known.
    pub offset: Option<u64>,
}

/// The acquisition points of all stacks of a trace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Points {
    /// The first is that of stacks that are missing or empty.
    all: Vec<Point>,
    /// By stack id.
    kernel: Vec<u32>,
    /// By stack id.
    user: Vec<u32>,
}

impl Points {
    pub(crate) fn of(stacks: &[Stack]) -> Self {
        let mut points = Self { all: vec![Point::default()], ..Self::default() };
        let mut known = FxHashMap::from_iter([(Point::default(), 0)]);
        let mut intern = |frame: Option<&Frame>| {
            let point = frame.map(Point::of).unwrap_or_default();
            *known.entry(point).or_insert_with_key(|point| {
                points.all.push(point.clone());
                u32::try_from(points.all.len() - 1).unwrap_or(0)
            })
        };
        for stack in stacks {
            points.kernel.push(intern(kernel_frame(&stack.frames)));
            points.user.push(intern(user_frame(&stack.frames)));
        }
        points
    }

    /// The points by stack id, for a kernel or a user lock.
    pub(crate) fn by_stack(&self, kernel: bool) -> &[u32] {
        if kernel { &self.kernel } else { &self.user }
    }

    /// The number of the point; 0 if it is not known.
    pub(crate) fn number(&self, stack: Option<StackId>, kernel: bool) -> u32 {
        let at = stack.and_then(|stack| usize::try_from(stack.0).ok());
        at.and_then(|at| self.by_stack(kernel).get(at)).copied().unwrap_or(0)
    }

    pub(crate) fn point(&self, number: u32) -> &Point {
        &self.all[number as usize]
    }
}

impl Point {
    pub(crate) fn of(frame: &Frame) -> Self {
        let function = frame.symbol.clone();
        if let Some(file) = &frame.file {
            return Self { file: Some(file.clone()), line: frame.line, function, ..Self::default() };
        }
        let module = frame.module.as_deref().map(|path| path.rsplit('/').next().unwrap_or(path).to_owned());
        if function.is_some() {
            return Self { function, function_offset: frame.symbol_offset, module, ..Self::default() };
        }
        let offset = if module.is_some() { frame.offset.or(frame.address) } else { frame.address };
        Self { module, offset, ..Self::default() }
    }

    /// `file:line`, `function+0x1f` or `module+0x1f00`; `(unknown)` if the stack was missing. Leading `../` are
    /// dropped.
    pub fn place(&self) -> String {
        printable(&self.raw_place()).into_owned()
    }

    fn raw_place(&self) -> String {
        match self {
            Self { file: Some(file), line, .. } if !file.is_empty() => match line {
                Some(line) => format!("{}:{line}", shorten(file)),
                None => shorten(file).to_owned(),
            },
            Self { function: Some(function), function_offset: Some(offset), .. } => {
                format!("{function}+{offset:#x}")
            }
            Self { function: Some(function), .. } => function.clone(),
            Self { module: Some(module), offset: Some(offset), .. } => format!("{module}+{offset:#x}"),
            Self { module: Some(module), .. } => module.clone(),
            Self { offset: Some(address), .. } => format!("{address:#x}"),
            _ => UNKNOWN.to_owned(),
        }
    }

    /// The place, and after it the function if the place does not name it.
    pub fn label(&self) -> String {
        match (&self.file, &self.function) {
            (Some(_), Some(function)) => format!("{} ({})", self.place(), printable(function)),
            _ => self.place(),
        }
    }
}

/// What stands for a place that is not known.
pub(crate) const UNKNOWN: &str = "(unknown)";

/// The path without its leading `../`, as FreeBSD prints it.
pub(crate) fn shorten(file: &str) -> &str {
    let mut file = file;
    while let Some(rest) = file.strip_prefix("../") {
        file = rest;
    }
    file
}

/// Of a kernel lock: the innermost kernel frame outside the lock functions. The recorder's own frames are none at all:
/// where nothing else is left of the kernel's stack, the program's tells more.
fn kernel_frame(frames: &[Frame]) -> Option<&Frame> {
    let recorder = |frame: &Frame| is_lock_function(frame, RECORDER_PREFIXES, RECORDER_NAMES);
    let mut kernel = frames.iter().filter(|frame| frame.kernel && !recorder(frame));
    let mut outside = kernel.clone().filter(|frame| !is_lock_function(frame, KERNEL_PREFIXES, KERNEL_NAMES));
    outside
        .clone()
        .find(is_known)
        .or_else(|| outside.next())
        .or_else(|| kernel.next())
        .or_else(|| user_frame(frames))
}

/// The frames from the acquisition point on outwards; all of them if they are nothing but lock functions.
pub(crate) fn from_point(frames: &[Frame], kernel: bool) -> &[Frame] {
    let point = if kernel { kernel_frame(frames) } else { user_frame(frames) };
    let at = point.and_then(|point| frames.iter().position(|frame| std::ptr::eq(frame, point)));
    &frames[at.unwrap_or(0)..]
}

/// Of a user lock: the innermost user frame outside the lock functions. Kernel frames say how it slept, not where it
/// was.
fn user_frame(frames: &[Frame]) -> Option<&Frame> {
    let mut user = frames.iter().filter(|frame| !frame.kernel);
    let mut outside = user.clone().filter(|frame| !is_lock_function(frame, USER_PREFIXES, USER_NAMES));
    outside.clone().find(is_known).or_else(|| outside.next()).or_else(|| user.next())
}

/// A frame of which only the address is known says less than any caller of it. In the kernel it may be the recorder's own
/// way in, which is gone when names are looked up.
fn is_known(frame: &&Frame) -> bool {
    frame.symbol.is_some() || frame.file.is_some() || frame.module.is_some()
}

fn is_lock_function(frame: &Frame, prefixes: &[&str], names: &[&str]) -> bool {
    let Some(symbol) = &frame.symbol else { return false };
    let name = bare(symbol);
    let template = name.split_once('<').map_or(name, |(begin, _)| begin);
    let inlined = frame.inlined && !frame.kernel && INLINED_NAMES.contains(&template);
    inlined || names.contains(&name) || prefixes.iter().any(|prefix| name.starts_with(prefix))
}

/// The name without what compilers and glibc put around it: `__GI___pthread_mutex_lock`, `down_read.isra.0`,
/// `<std::sync::MutexGuard<T> as Drop>::drop`, `pthread_mutex_lock@plt`.
fn bare(symbol: &str) -> &str {
    // Functions made from a template are told with what they return: `void std::condition_variable::wait<..>(..)`.
    let symbol = symbol.strip_prefix("void ").or_else(|| symbol.strip_prefix("bool ")).unwrap_or(symbol);
    let name = symbol.trim_start_matches(['_', '<']);
    let name = name.strip_prefix("GI_").unwrap_or(name).trim_start_matches('_');
    let name = name.split('@').next().unwrap_or(name);
    [".isra.", ".constprop.", ".part.", ".cold", ".llvm."]
        .iter()
        .filter_map(|suffix| name.find(suffix))
        .min()
        .map_or(name, |end| &name[..end])
}

/// What runs the recorder itself, without leading underscores, by its begin.
const RECORDER_PREFIXES: &[&str] = &[
    "bpf_",
    "kprobe_",
    "kretprobe_",
    "rethook_",
    "arch_rethook_",
    "traceiter_contention_",
    "trace_contention_",
    "perf_trace_contention_",
];

/// The same by its whole name: how kprobes and BPF programs are entered.
const RECORDER_NAMES: &[&str] = &[
    "ftrace_trampoline",
    "ftrace_caller",
    "ftrace_call",
    "ftrace_regs_caller",
    "ftrace_regs_call",
    "ftrace_ops_assist_func",
    "arch_ftrace_ops_list_func",
    "optimized_callback",
    "trace_call_bpf",
    "trampoline_handler",
];

/// Kernel lock functions, without leading underscores, by their begin.
const KERNEL_PREFIXES: &[&str] = &[
    // kernel/locking/mutex.c, ww_mutex.h, osq_lock.c
    "mutex_lock",
    "mutex_trylock",
    "mutex_optimistic_spin",
    "ww_mutex_",
    "osq_",
    // rtmutex.c, rtmutex_api.c, spinlock_rt.c
    "rt_mutex_",
    "rtlock_",
    "rt_spin_",
    "rt_read_",
    "rt_write_",
    "rwbase_",
    // rwsem.c, percpu-rwsem.c, semaphore.c
    "down_read",
    "down_write",
    "down_interruptible",
    "down_killable",
    "down_timeout",
    "down_trylock",
    "down_common",
    "rwsem_",
    "percpu_down_",
    "percpu_rwsem_",
    "downgrade_write",
    // spinlock.c, qspinlock.c, qrwlock.c
    "raw_spin_",
    "raw_read_",
    "raw_write_",
    "do_raw_",
    "spin_lock",
    "spin_trylock",
    "read_lock",
    "write_lock",
    "queued_",
    "native_queued_",
    "pv_queued_",
    "pv_wait",
    "virt_spin_lock",
    "resilient_queued_",
];

/// Kernel lock functions, without leading underscores, by their whole name.
const KERNEL_NAMES: &[&str] = &["down", "lock_acquire", "lock_contended", "atomic_dec_and_mutex_lock"];

/// User lock functions, without leading underscores, by their begin.
const USER_PREFIXES: &[&str] = &[
    // glibc and musl
    "pthread_mutex_",
    "pthread_rwlock_",
    "pthread_spin_",
    "pthread_cond_",
    "pthread_barrier_",
    "lll_",
    "futex_",
    "sem_wait",
    "sem_trywait",
    "sem_post",
    "sem_timedwait",
    "sem_clockwait",
    "new_sem_",
    "mtx_",
    "cnd_",
    "timedwait",
    // the C++ library
    "gthread_",
    "gthrw_",
    "glibcxx_rwlock_",
    "std::mutex::",
    "std::timed_mutex::",
    "std::recursive_",
    "std::shared_mutex::",
    "std::shared_timed_mutex::",
    "std::shared_mutex_",
    "std::__shared_mutex",
    "std::lock_guard<",
    "std::unique_lock<",
    "std::shared_lock<",
    "std::scoped_lock<",
    "std::lock<",
    "std::condition_variable",
    "std::_V2::condition_variable",
    // Rust
    "std::sync::",
    "std::sys::sync::",
    "std::sys::pal::unix::futex::",
    "std::sys::pal::unix::sync::",
    "std::sys::unix::futex::",
    "std::sys::unix::locks::",
    "parking_lot::",
    "parking_lot_core::",
    "lock_api::",
    // Go
    "sync.(*Mutex).",
    "sync.(*RWMutex).",
    "internal/sync.(*Mutex).",
    "sync.runtime_Semacquire",
    "internal/sync.runtime_Semacquire",
    "runtime.semacquire",
    "runtime.futex",
    "runtime.lock",
    // libuv
    "uv_mutex_",
    "uv_rwlock_",
    "uv_cond_",
    "uv_barrier_",
    "uv_sem_",
    "uv__sem_",
    // HotSpot
    "Mutex::",
    "Monitor::wait",
    "Monitor::Monitor",
    "os::PlatformMutex::",
    "os::PlatformMonitor::",
    "PosixSemaphore::",
    // CPython
    "PyThread_acquire_lock",
    "PyThread_allocate_lock",
    // OpenSSL
    "CRYPTO_THREAD_read_lock",
    "CRYPTO_THREAD_write_lock",
    "CRYPTO_THREAD_lock_new",
    // PostgreSQL
    "LWLockAcquire",
    "LWLockWaitForVar",
    "PGSemaphoreLock",
];

/// User lock functions, without leading underscores, by their whole name.
const USER_NAMES: &[&str] = &["syscall", "futex", "libc_futex", "syscall_cancel", "syscall_cancel_arch"];

/// Wrappers that were inlined, by their whole name: debug information gives it without the type that they belong to.
const INLINED_NAMES: &[&str] = &[
    "lock",
    "lock_contended",
    "lock_exclusive",
    "lock_shared",
    "lock_slow",
    "try_lock",
    "try_lock_for",
    "try_lock_until",
    "wait",
    "wait_for",
    "wait_until",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn user(symbol: &str) -> Frame {
        Frame { symbol: Some(symbol.to_owned()), ..Frame::default() }
    }

    fn kernel(symbol: &str) -> Frame {
        Frame { kernel: true, ..user(symbol) }
    }

    fn points(frames: Vec<Frame>) -> (String, String) {
        let points = Points::of(&[Stack { id: StackId(0), frames }]);
        let place = |kernel| points.point(points.number(Some(StackId(0)), kernel)).place();
        (place(true), place(false))
    }

    #[test]
    fn the_point_of_a_user_lock_is_the_first_user_frame_that_is_no_lock_function() {
        let frames = vec![
            kernel("futex_wait_queue"),
            kernel("do_syscall_64"),
            user("__GI___lll_lock_wait"),
            user("___pthread_mutex_lock"),
            user("std::mutex::lock()"),
            user("work"),
            user("main"),
        ];
        assert_eq!(points(frames).1, "work");
    }

    #[test]
    fn the_point_of_a_kernel_lock_is_the_first_kernel_frame_that_is_no_lock_function() {
        let frames = vec![
            kernel("__traceiter_contention_begin"),
            kernel("rwsem_down_read_slowpath"),
            kernel("down_read.isra.0"),
            kernel("do_user_addr_fault"),
            user("main"),
        ];
        assert_eq!(points(frames).0, "do_user_addr_fault");
    }

    #[test]
    fn the_way_by_which_the_recorder_got_in_is_no_place_of_a_kernel_lock() {
        let gone = Frame { kernel: true, address: Some(0xffff_ffff_c060_00da), ..Frame::default() };
        let frames = |way| vec![way, kernel("mutex_lock"), kernel("ksys_lseek"), user("lseek")];
        assert_eq!(points(frames(kernel("bpf_trampoline_6442458768"))).0, "ksys_lseek");
        assert_eq!(points(frames(gone)).0, "ksys_lseek");
        for way in
            ["arch_rethook_trampoline", "kretprobe_trampoline", "__kretprobe_trampoline", "ftrace_trampoline"]
        {
            assert_eq!(points(frames(kernel(way))).0, "ksys_lseek");
            assert_eq!(points(vec![kernel(way), user("lseek"), user("main")]).0, "lseek");
            assert_eq!(points(vec![kernel(way)]).0, UNKNOWN);
        }
    }

    #[test]
    fn the_lock_in_the_futex_code_is_the_kernels_and_the_futex_is_the_programs() {
        let frames = vec![
            kernel("native_queued_spin_lock_slowpath"),
            kernel("_raw_spin_lock"),
            kernel("futex_q_lock"),
            user("syscall"),
            user("std::sys::pal::unix::futex::futex_wait"),
            user("app::work"),
        ];
        assert_eq!(points(frames), ("futex_q_lock".into(), "app::work".into()));
    }

    #[test]
    fn what_a_runtime_wraps_around_a_lock_is_no_point_of_it() {
        for wrapper in [
            "uv_mutex_lock",
            "Mutex::lock_without_safepoint_check()",
            "os::PlatformMonitor::wait(long)",
            "PyThread_acquire_lock_timed",
            "CRYPTO_THREAD_write_lock",
            "LWLockAcquire",
        ] {
            assert_eq!(points(vec![user(wrapper), user("work")]).1, "work");
        }
        assert_eq!(points(vec![user("MutexPool::get"), user("main")]).1, "MutexPool::get");
    }

    #[test]
    fn a_stack_of_lock_functions_only_is_named_by_its_leaf() {
        assert_eq!(points(vec![user("pthread_mutex_lock")]).1, "pthread_mutex_lock");
        assert_eq!(points(vec![]), (UNKNOWN.into(), UNKNOWN.into()));
    }

    #[test]
    fn a_wrapper_that_was_inlined_is_no_point_and_a_function_called_lock_is_one() {
        let inlined = Frame { inlined: true, ..user("lock") };
        let frames = vec![user("pthread_mutex_lock"), inlined, user("log_line")];
        assert_eq!(points(frames).1, "log_line");
        assert_eq!(points(vec![user("pthread_mutex_lock"), user("lock"), user("main")]).1, "lock");
        let wait = Frame { inlined: true, ..user("wait<consume(int)::<lambda()> >") };
        assert_eq!(points(vec![user("pthread_cond_wait"), wait, user("consume(int)")]).1, "consume(int)");
    }

    #[test]
    fn the_cpp_librarys_templates_and_wrappers_are_no_points() {
        for wrapper in [
            "__glibcxx_rwlock_wrlock",
            "void std::condition_variable::wait<main::{lambda()#1}>(std::unique_lock<std::mutex>&, main::{lambda()#1})",
        ] {
            assert_eq!(points(vec![user(wrapper), user("work")]).1, "work");
        }
    }

    #[test]
    fn a_leaf_without_a_name_gives_way_to_a_caller_with_one() {
        let bare = Frame { address: Some(0x7f00_1234), ..Frame::default() };
        assert_eq!(points(vec![bare.clone(), user("work")]).1, "work");
        assert_eq!(points(vec![bare]).1, "0x7f001234");
    }

    #[test]
    fn a_function_that_only_looks_like_a_lock_is_a_point() {
        assert_eq!(points(vec![kernel("download")]).0, "download");
        assert_eq!(points(vec![user("std::syncopate")]).1, "std::syncopate");
    }

    #[test]
    fn a_point_is_a_line_or_an_offset_in_a_function_or_an_offset_in_a_module() {
        let line = Frame { file: Some("../../sys/x.c".into()), line: Some(7), ..user("f") };
        let offset = Frame { symbol_offset: Some(0x1f), ..user("f") };
        let module = Frame { module: Some("/lib/libx.so".into()), offset: Some(0x100), ..Frame::default() };
        assert_eq!(Point::of(&line).label(), "sys/x.c:7 (f)");
        assert_eq!(Point::of(&offset).label(), "f+0x1f");
        assert_eq!(Point::of(&module).label(), "libx.so+0x100");
    }

    #[test]
    fn two_stacks_through_one_line_are_one_point() {
        let leaf = |offset| Frame {
            file: Some("a.c".into()),
            line: Some(1),
            symbol_offset: Some(offset),
            ..user("f")
        };
        let stack = |id, offset| Stack { id: StackId(id), frames: vec![leaf(offset)] };
        let points = Points::of(&[stack(0, 1), stack(1, 9)]);
        assert_eq!(points.number(Some(StackId(0)), false), points.number(Some(StackId(1)), false));
        assert_eq!(points.number(Some(StackId(77)), false), 0);
    }
}
