//! The BPF programs, as indices into the counters. Both sides rely on the order; the names appear in the
//! footer's loss table.

/// `lock:contention_begin`
pub const CONTENTION_BEGIN: u32 = 0;
/// `lock:contention_end`
pub const CONTENTION_END: u32 = 1;
/// Entry of `futex` and of the futex2 calls.
pub const FUTEX_ENTER: u32 = 2;
/// Exit of `futex` and of the futex2 calls.
pub const FUTEX_EXIT: u32 = 3;
/// `sched:sched_switch`
pub const SCHED_SWITCH: u32 = 4;
/// `sched:sched_waking`
pub const SCHED_WAKING: u32 = 5;
/// `sched:sched_wakeup`
pub const SCHED_WAKEUP: u32 = 6;
/// Entry of a user lock function.
pub const PTHREAD_CALL: u32 = 7;
/// Return of a user lock function.
pub const PTHREAD_RETURN: u32 = 8;
/// `sched:sched_process_fork`, `sched_process_exec`, `sched_process_exit`, `task:task_rename`
pub const TASK: u32 = 9;
/// Return of a kernel function that acquires a lock.
pub const LOCK_TAKEN: u32 = 10;
/// Entry of a kernel function that releases a lock.
pub const LOCK_RELEASED: u32 = 11;
/// Entry of a kernel function that acquires a lock, if the lock cannot be read at its return.
pub const LOCK_ENTERED: u32 = 12;
/// Entry of a slow-path function of the kernel, if there are no contention tracepoints.
pub const LOCK_SLOW: u32 = 13;
/// `sched:sched_switch` for the task that leaves the CPU, when recording off-CPU time.
pub const OFF_CPU_OUT: u32 = 14;
/// `sched:sched_switch` for the task that enters the CPU, when recording off-CPU time.
pub const OFF_CPU_IN: u32 = 15;
/// `sched:sched_waking`, when recording off-CPU time.
pub const OFF_CPU_WAKING: u32 = 16;
/// `sched:sched_wakeup`, when recording off-CPU time.
pub const OFF_CPU_WAKEUP: u32 = 17;
/// `sched:sched_switch` for both of its tasks, when recording off-CPU time without stacks.
pub const SWITCH: u32 = 18;
/// Number of programs.
pub const COUNT: usize = 19;
/// Names, by index.
pub const NAMES: [&str; COUNT] = [
    "contention_begin",
    "contention_end",
    "futex_enter",
    "futex_exit",
    "sched_switch",
    "sched_waking",
    "sched_wakeup",
    "pthread_call",
    "pthread_return",
    "task",
    "lock_taken",
    "lock_released",
    "lock_entered",
    "lock_slow",
    "off_cpu_out",
    "off_cpu_in",
    "off_cpu_waking",
    "off_cpu_wakeup",
    "switch",
];
