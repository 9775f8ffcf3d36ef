//! The functions that are not acquisition sites: lock functions of the kernel and of programs, and the recorder.
//!
//! A frame enters, whether it belongs to one of the lists leaves.

use trace_format::Frame;

/// Whether a frame belongs to the recorder: the entries of kprobes and BPF programs.
pub(super) fn is_recorder_function(frame: &Frame) -> bool {
    is_listed(frame, RECORDER_PREFIXES, RECORDER_NAMES)
}

/// Whether a frame is a lock function of the kernel.
pub(super) fn is_kernel_lock_function(frame: &Frame) -> bool {
    is_listed(frame, KERNEL_PREFIXES, KERNEL_NAMES)
}

/// Whether a frame is a lock function of a program or its libraries.
pub(super) fn is_user_lock_function(frame: &Frame) -> bool {
    is_listed(frame, USER_PREFIXES, USER_NAMES)
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

fn is_listed(frame: &Frame, prefixes: &[&str], names: &[&str]) -> bool {
    let Some(symbol) = &frame.symbol else { return false };
    let name = bare(symbol);
    let template = name.split_once('<').map_or(name, |(begin, _)| begin);
    let inlined = frame.inlined && !frame.kernel && INLINED_NAMES.contains(&template);
    inlined || names.contains(&name) || prefixes.iter().any(|prefix| name.starts_with(prefix))
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

/// Prefixes of functions that run the recorder itself, without leading underscores.
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

/// Names of functions that run the recorder itself: the entries of kprobes and BPF programs.
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

/// Prefixes of kernel lock functions, without leading underscores.
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

/// Names of kernel lock functions, without leading underscores.
const KERNEL_NAMES: &[&str] = &["down", "lock_acquire", "lock_contended", "atomic_dec_and_mutex_lock"];

/// Prefixes of user lock functions, without leading underscores.
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
    "std::thread::join",
    "std::thread::_M_start_thread",
    // Rust
    "std::sync::",
    "std::sys::sync::",
    "std::sys::pal::unix::futex::",
    "std::sys::pal::unix::sync::",
    "std::sys::unix::futex::",
    "std::sys::unix::locks::",
    "std::sys::pal::unix::thread::Thread::join",
    "std::thread::Join",
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

/// Parts of the names of lock functions that do not wait.
const TRY_PARTS: &[&str] =
    &["trylock", "try_lock", "tryrdlock", "trywrlock", "trywait", "try_read", "try_write"];

/// Parts of the names of lock functions that wait for a time: `try_lock_for`, `try_lock_until`.
const TIMED_PARTS: &[&str] = &["_for", "_until"];
