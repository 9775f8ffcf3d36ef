//! The functions that are not acquisition sites: lock functions of the kernel and of programs, and the
//! recorder.

use std::sync::LazyLock;

use trace_format::Frame;

/// Whether a frame belongs to the recorder: the entries of kprobes and BPF programs.
pub(super) fn is_recorder_function(frame: &Frame) -> bool {
    RECORDER.has(frame)
}

pub(super) fn is_kernel_lock_function(frame: &Frame) -> bool {
    KERNEL.has(frame)
}

/// Whether a frame is a lock function of a program or its libraries.
pub(super) fn is_user_lock_function(frame: &Frame) -> bool {
    USER.has(frame)
}

/// Whether a frame is a lock function, of the kernel or of a program.
pub(super) fn is_lock_function(frame: &Frame) -> bool {
    if frame.kernel { is_kernel_lock_function(frame) } else { is_user_lock_function(frame) }
}

/// Whether a frame is a lock function that does not wait. One that tries for a time does.
pub(super) fn is_try_function(frame: &Frame) -> bool {
    let Some(symbol) = &frame.symbol else { return false };
    let has_one = |parts: &[&str]| parts.iter().any(|part| symbol.contains(part));
    is_lock_function(frame) && has_one(TRY_PARTS) && !has_one(TIMED_PARTS)
}

/// A list of functions, without leading underscores: whole names, and beginnings that end in `*`.
struct Functions {
    names: Vec<&'static str>,
    beginnings: Vec<&'static str>,
}

impl Functions {
    /// Reads a list. A line that begins with `#` says where the functions below it are from.
    fn new(list: &'static str) -> Self {
        let lines = list.lines().filter(|line| !line.trim_start().starts_with('#'));
        let (beginnings, names): (Vec<&str>, Vec<&str>) =
            lines.flat_map(str::split_whitespace).partition(|word| word.ends_with('*'));
        let beginnings = beginnings.into_iter().map(|word| word.trim_end_matches('*')).collect();
        Self { names, beginnings }
    }

    fn has(&self, frame: &Frame) -> bool {
        let Some(symbol) = &frame.symbol else { return false };
        let name = bare(symbol);
        let template = name.split_once('<').map_or(name, |(begin, _)| begin);
        let is_inlined = frame.inlined && !frame.kernel && INLINED.names.contains(&template);
        is_inlined
            || self.names.contains(&name)
            || self.beginnings.iter().any(|beginning| name.starts_with(beginning))
    }
}

/// Strips the additions of compilers and glibc from a name: `__GI___pthread_mutex_lock`, `down_read.isra.0`,
/// `<std::sync::MutexGuard<T> as Drop>::drop`, `pthread_mutex_lock@plt`.
pub(super) fn bare(symbol: &str) -> &str {
    // Demangled template functions include their return type: `void std::condition_variable::wait<..>(..)`.
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

/// Functions that run the recorder itself.
static RECORDER: LazyLock<Functions> = LazyLock::new(|| {
    Functions::new(
        "
    # entries of kprobes and BPF programs
    ftrace_trampoline ftrace_caller ftrace_call ftrace_regs_caller ftrace_regs_call ftrace_ops_assist_func
    arch_ftrace_ops_list_func optimized_callback trace_call_bpf trampoline_handler
    bpf_* kprobe_* kretprobe_* rethook_* arch_rethook_* traceiter_contention_* trace_contention_*
    perf_trace_contention_*
        ",
    )
});

static KERNEL: LazyLock<Functions> = LazyLock::new(|| {
    Functions::new(
        "
    # whole names
    down lock_acquire lock_contended atomic_dec_and_mutex_lock
    # kernel/locking/mutex.c, ww_mutex.h, osq_lock.c
    mutex_lock* mutex_trylock* mutex_optimistic_spin* ww_mutex_* osq_*
    # rtmutex.c, rtmutex_api.c, spinlock_rt.c
    rt_mutex_* rtlock_* rt_spin_* rt_read_* rt_write_* rwbase_*
    # rwsem.c, percpu-rwsem.c, semaphore.c
    down_read* down_write* down_interruptible* down_killable* down_timeout* down_trylock* down_common*
    rwsem_* percpu_down_* percpu_rwsem_* downgrade_write*
    # spinlock.c, qspinlock.c, qrwlock.c
    raw_spin_* raw_read_* raw_write_* do_raw_* spin_lock* spin_trylock* read_lock* write_lock* queued_*
    native_queued_* pv_queued_* pv_wait* virt_spin_lock* resilient_queued_*
        ",
    )
});

/// Lock functions of programs and their libraries.
static USER: LazyLock<Functions> = LazyLock::new(|| {
    Functions::new(
        "
    # system calls
    syscall futex libc_futex syscall_cancel syscall_cancel_arch
    # glibc and musl
    pthread_mutex_* pthread_rwlock_* pthread_spin_* pthread_cond_* pthread_barrier_* lll_* futex_*
    sem_wait* sem_trywait* sem_post* sem_timedwait* sem_clockwait* new_sem_* mtx_* cnd_* timedwait*
    # the C++ library
    gthread_* gthrw_* glibcxx_rwlock_* std::mutex::* std::timed_mutex::* std::recursive_*
    std::shared_mutex::* std::shared_timed_mutex::* std::shared_mutex_* std::__shared_mutex*
    std::lock_guard<* std::unique_lock<* std::shared_lock<* std::scoped_lock<* std::lock<*
    std::condition_variable* std::_V2::condition_variable* std::thread::join*
    std::thread::_M_start_thread* std::__detail::* std::__atomic_* std::__atomic_base<* std::atomic<*
    std::counting_semaphore<* std::latch::*
    # Rust
    std::sync::* std::sys::sync::* std::sys::pal::unix::futex::* std::sys::pal::unix::sync::*
    std::sys::unix::futex::* std::sys::unix::locks::* std::sys::pal::unix::thread::Thread::join*
    std::thread::Join* parking_lot::* parking_lot_core::* lock_api::*
    # Go
    sync.(*Mutex).* sync.(*RWMutex).* internal/sync.(*Mutex).* sync.runtime_Semacquire*
    internal/sync.runtime_Semacquire* runtime.semacquire* runtime.futex* runtime.lock*
    # libuv
    uv_mutex_* uv_rwlock_* uv_cond_* uv_barrier_* uv_sem_* uv__sem_*
    # HotSpot
    Mutex::* Monitor::wait* Monitor::Monitor* os::PlatformMutex::* os::PlatformMonitor::*
    PosixSemaphore::*
    # CPython
    PyThread_acquire_lock* PyThread_allocate_lock* PyCOND_*
    # OpenSSL
    CRYPTO_THREAD_read_lock* CRYPTO_THREAD_write_lock* CRYPTO_THREAD_lock_new*
    # PostgreSQL
    LWLockAcquire* LWLockWaitForVar* PGSemaphoreLock*
        ",
    )
});

/// Wrappers that were inlined: debug information gives their name without the type that they belong to.
static INLINED: LazyLock<Functions> = LazyLock::new(|| {
    Functions::new(
        "
    lock lock_contended lock_exclusive lock_shared lock_slow try_lock try_lock_for try_lock_until wait
    wait_for wait_until
        ",
    )
});

/// Parts of the names of lock functions that do not wait.
const TRY_PARTS: &[&str] =
    &["trylock", "try_lock", "tryrdlock", "trywrlock", "trywait", "try_read", "try_write"];

/// Parts of the names of lock functions that wait for a time: `try_lock_for`, `try_lock_until`.
const TIMED_PARTS: &[&str] = &["_for", "_until"];
