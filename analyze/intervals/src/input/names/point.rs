//! The acquisition site of a stack: the innermost frame outside of lock functions.
//!
//! Each distinct site of the stacks is one [`Point`]. A stack has a site for kernel locks and one for user
//! locks, because a thread in a futex call can meet a kernel lock.

use rustc_hash::FxHashMap;
use trace_format::{Frame, Stack, StackId, text::printable};

use super::{
    distinct::{DistinctValues, Numbering},
    frames::{is_try, is_unmapped, kernel_frame, shown_frames, user_frame},
    lock_functions::is_lock_function,
};

/// An acquisition site.
///
/// Source file and line where they are known; otherwise the function and the offset in it, otherwise the
/// module and the offset in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Point {
    /// Source file.
    pub file: Option<String>,
    /// Source line.
    pub line: Option<i32>,
    /// The function.
    pub function: Option<String>,
    /// Offset into the function; `None` where file and line are known.
    pub function_offset: Option<u64>,
    /// The file name of the module; `None` where file and line are known.
    pub module: Option<String>,
    /// Offset into the module, or the address if there is no module; `None` where the function is known.
    pub offset: Option<u64>,
    /// Whether the site is a guess: its frame is one (see [`Frame::guessed`]), or it is a lock function whose
    /// caller is not known. Marked with `?`.
    pub guessed: bool,
}

/// The acquisition sites of all stacks of a trace.
#[derive(Clone, Debug, Default)]
pub(super) struct Points {
    pub(super) sites: DistinctValues<Point>,
    /// By stack id: whether it is one of a kernel lock, and of a user lock, that a function took which does
    /// not wait.
    tries: Vec<[bool; 2]>,
}

/// The acquisition sites of the stacks so far.
#[derive(Debug)]
pub(super) struct PointsSoFar {
    sites: Numbering<Point>,
    tries: Vec<[bool; 2]>,
}

impl PointsSoFar {
    pub(super) fn new() -> Self {
        Self { sites: Numbering::of_stacks(), tries: Vec::new() }
    }

    /// Adds the next stack, in the order of ids.
    pub(super) fn add(&mut self, stack: &Stack) {
        for frame in [kernel_frame(&stack.frames), user_frame(&stack.frames)] {
            self.sites.add(frame.map(Point::site).unwrap_or_default());
        }
        self.tries.push([true, false].map(|kernel| is_try(&stack.frames, kernel)));
    }

    pub(super) fn finish(self) -> Points {
        Points { sites: self.sites.finish(), tries: self.tries }
    }
}

impl Points {
    pub(super) fn of(stacks: &[Stack]) -> Self {
        let mut points = PointsSoFar::new();
        stacks.iter().for_each(|stack| points.add(stack));
        points.finish()
    }

    /// Returns whether the lock functions of a stack include one that does not wait.
    pub(super) fn is_try(&self, stack: Option<StackId>, kernel: bool) -> bool {
        let at = stack.and_then(|stack| usize::try_from(stack.0).ok());
        at.and_then(|at| self.tries.get(at)).is_some_and(|tries| tries[usize::from(!kernel)])
    }

    /// Returns the number of the function of each site; 0 if it is not known.
    pub(super) fn functions(&self) -> Vec<u32> {
        let mut known: FxHashMap<&str, u32> = FxHashMap::default();
        let mut numbers = Vec::new();
        for point in (0..).map_while(|site| self.sites.value(site)) {
            // Ids of a trace are 31 bits wide, so the number fits.
            let next = known.len() as u32 + 1;
            let number = |function| *known.entry(function).or_insert(next);
            numbers.push(point.function.as_deref().map_or(0, number));
        }
        numbers
    }

    /// Returns the number of stacks.
    pub(super) fn stacks(&self) -> usize {
        self.tries.len()
    }
}

/// Returns the chains of a stack, of a kernel lock first: its innermost `depth` functions from the
/// acquisition site outwards. Calls from different lines of the same caller make one chain; `--by site` tells
/// lines apart.
pub(super) fn chains(stack: &Stack, depth: usize) -> [Vec<String>; 2] {
    [true, false].map(|kernel| shown_frames(&stack.frames, kernel).take(depth).map(function).collect())
}

impl Point {
    /// Returns the site at a frame. A lock function is the site of a stack that ends there only, so the real
    /// one, its caller, is missing.
    fn site(frame: &Frame) -> Self {
        let point = Self::of(frame);
        Self { guessed: point.guessed || is_lock_function(frame), ..point }
    }

    pub fn of(frame: &Frame) -> Self {
        let (function, guessed) = (frame.symbol.clone(), frame.guessed);
        if let Some(file) = &frame.file {
            return Self { file: Some(file.clone()), line: frame.line, function, guessed, ..Self::default() };
        }
        let module = frame.module.as_deref().map(|path| path.rsplit('/').next().unwrap_or(path).to_owned());
        if function.is_some() {
            return Self {
                function,
                function_offset: frame.symbol_offset,
                module,
                guessed,
                ..Self::default()
            };
        }
        let offset = if module.is_some() { frame.offset.or(frame.address) } else { frame.address };
        Self { module, offset, guessed, ..Self::default() }
    }

    /// Returns `file:line`, `function+0x1f` or `module+0x1f00`, or `(unknown)` for a missing stack. Drops
    /// leading `../`. `?` follows a guess.
    pub fn place(&self) -> String {
        let mut place = printable(&self.raw_place()).into_owned();
        place.extend(self.guessed.then_some('?'));
        place
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

    /// Returns the location, followed by the function if the location does not name it.
    pub fn label(&self) -> String {
        match (&self.file, &self.function) {
            (Some(_), Some(function)) => format!("{} ({})", self.place(), printable(function)),
            _ => self.place(),
        }
    }
}

/// The label of an unknown site.
pub const UNKNOWN: &str = "(unknown)";

/// The function of a frame outside of every mapping, as perf calls it.
const UNMAPPED: &str = "[unknown]";

/// Returns the path without leading `../`, as FreeBSD prints it.
pub fn shorten(file: &str) -> &str {
    let mut file = file;
    while let Some(rest) = file.strip_prefix("../") {
        file = rest;
    }
    file
}

/// Returns the function of a frame, or its location; safe to print.
pub fn function(frame: &Frame) -> String {
    match &frame.symbol {
        Some(symbol) => printable(symbol).into_owned(),
        // The address differs from event to event, and would split one call path over many rows.
        None if is_unmapped(frame) => UNMAPPED.to_owned(),
        None => Point { guessed: false, ..Point::of(frame) }.place(),
    }
}

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
        let place = |kernel| {
            let number = points.sites.of_stack(Some(StackId(0)), kernel);
            points.sites.value(number).unwrap().place()
        };
        (place(true), place(false))
    }

    #[test]
    fn the_point_of_a_user_lock_is_the_innermost_user_frame_outside_of_lock_functions() {
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
    fn the_point_of_a_kernel_lock_is_the_innermost_kernel_frame_outside_of_lock_functions() {
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
    fn the_frames_of_the_recorder_are_skipped() {
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
    fn a_stack_through_the_futex_code_has_a_kernel_point_and_a_user_point() {
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
    fn the_lock_functions_of_a_runtime_are_skipped() {
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
    fn a_stack_of_lock_functions_only_has_its_leaf_as_the_point_with_a_mark() {
        assert_eq!(points(vec![user("pthread_mutex_lock")]).1, "pthread_mutex_lock?");
        assert_eq!(points(vec![user("pthread_mutex_lock"), user("uv_mutex_lock")]).1, "pthread_mutex_lock?");
        assert_eq!(points(vec![kernel("mutex_lock")]).0, "mutex_lock?");
        assert_eq!(points(vec![]), (UNKNOWN.into(), UNKNOWN.into()));
    }

    #[test]
    fn an_inlined_wrapper_is_skipped_but_a_function_called_lock_is_a_point() {
        let inlined = Frame { inlined: true, ..user("lock") };
        let frames = vec![user("pthread_mutex_lock"), inlined, user("log_line")];
        assert_eq!(points(frames).1, "log_line");
        assert_eq!(points(vec![user("pthread_mutex_lock"), user("lock"), user("main")]).1, "lock");
        let wait = Frame { inlined: true, ..user("wait<consume(int)::<lambda()> >") };
        assert_eq!(points(vec![user("pthread_cond_wait"), wait, user("consume(int)")]).1, "consume(int)");
    }

    #[test]
    fn templates_and_wrappers_of_the_cpp_library_are_skipped() {
        for wrapper in [
            "__glibcxx_rwlock_wrlock",
            "void std::condition_variable::wait<main::{lambda()#1}>(std::unique_lock<std::mutex>&, main::{lambda()#1})",
        ] {
            assert_eq!(points(vec![user(wrapper), user("work")]).1, "work");
        }
    }

    #[test]
    fn a_function_that_does_not_wait_makes_a_try_and_one_that_waits_for_a_time_does_not() {
        let is_try = |frames: Vec<Frame>, kernel| {
            Points::of(&[Stack { id: StackId(0), frames }]).is_try(Some(StackId(0)), kernel)
        };
        for name in ["__pthread_mutex_trylock", "std::mutex::try_lock()", "pthread_rwlock_tryrdlock"] {
            assert!(is_try(vec![user(name), user("work")], false), "{name}");
            assert!(!is_try(vec![user(name), user("work")], true), "{name}");
        }
        // std::lock takes the first lock, and tries for the others.
        assert!(is_try(vec![user("std::mutex::try_lock()"), user("std::lock<..>"), user("work")], false));
        for name in ["pthread_mutex_lock", "bool std::timed_mutex::try_lock_for<..>(..)", "retry_work"] {
            assert!(!is_try(vec![user(name), user("work")], false), "{name}");
        }
        assert!(!is_try(vec![user("work"), user("try_lock")], false));
        let frames =
            vec![kernel("bpf_trampoline_1"), kernel("down_read_trylock"), kernel("do_user_addr_fault")];
        assert!(is_try(frames.clone(), true) && !is_try(frames, false));
    }

    #[test]
    fn a_caller_with_a_name_precedes_a_leaf_without_one() {
        let bare = Frame { address: Some(0x7f00_1234), ..Frame::default() };
        assert_eq!(points(vec![bare.clone(), user("work")]).1, "work");
        assert_eq!(points(vec![bare]).1, "0x7f001234");
    }

    #[test]
    fn a_run_of_frames_outside_every_mapping_is_shown_as_one() {
        let junk = |address| Frame { address: Some(address), ..Frame::default() };
        let shown = |frames: &[Frame]| shown_frames(frames, false).map(function).collect::<Vec<_>>();
        let one = [user("work"), junk(0x8_0000_0000), user("main")];
        let two = [user("work"), kernel("x"), junk(0x8_0000_0010), junk(1), user("main")];
        assert_eq!(shown(&one), ["work", "[unknown]", "main"]);
        assert_eq!(shown(&two), shown(&one));
        let generated = Frame { module: Some("[anon]".into()), offset: Some(0x10), ..junk(0x7f00_0010) };
        assert_eq!(shown(&[user("work"), generated]), ["work", "[anon]+0x10"]);
    }

    #[test]
    fn a_function_whose_name_resembles_a_lock_function_is_a_point() {
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
        assert_eq!(Point::of(&Frame { guessed: true, ..offset.clone() }).label(), "f+0x1f?");
        assert_eq!(Point::of(&Frame { guessed: true, ..line.clone() }).label(), "sys/x.c:7? (f)");
        assert_eq!(Point::of(&module).label(), "libx.so+0x100");
    }

    #[test]
    fn stacks_through_the_same_line_have_the_same_point() {
        let leaf = |offset| Frame {
            file: Some("a.c".into()),
            line: Some(1),
            symbol_offset: Some(offset),
            ..user("f")
        };
        let stack = |id, offset| Stack { id: StackId(id), frames: vec![leaf(offset)] };
        let points = Points::of(&[stack(0, 1), stack(1, 9)]);
        let number = |id| points.sites.of_stack(Some(StackId(id)), false);
        assert_eq!(number(0), number(1));
        assert_eq!(number(77), 0);
    }

    #[test]
    fn stacks_that_differ_beyond_the_depth_are_one_chain() {
        let stack = |id, symbols: &[&str]| {
            let frames = symbols.iter().map(|symbol| user(symbol)).collect();
            Stack { id: StackId(id), frames }
        };
        let stacks = [
            stack(0, &["pthread_mutex_lock", "put", "store", "main"]),
            stack(1, &["put", "store", "worker"]),
            stack(2, &["put", "evict", "worker"]),
        ];
        let of_all = |depth| {
            let mut all = Numbering::of_stacks();
            stacks.iter().flat_map(|stack| chains(stack, depth)).for_each(|chain| all.add(chain));
            all.finish()
        };
        let numbers = |depth| {
            let chains = of_all(depth);
            [0, 1, 2].map(|id| chains.of_stack(Some(StackId(id)), false))
        };
        assert_eq!(numbers(1), [1, 1, 1]);
        assert_eq!(numbers(2), [1, 1, 2]);
        assert_eq!(numbers(usize::MAX), [1, 2, 3]);
        assert_eq!(of_all(2).value(1).unwrap(), &["put", "store"]);
        assert_eq!(of_all(2).of_stack(Some(StackId(9)), false), 0);
    }
}
