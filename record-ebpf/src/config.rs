//! Settings, as read-only globals that the loader writes before the programs are verified. Offsets come from
//! the running kernel's BTF. A missing offset is [`ABSENT`], and the verifier prunes the code that needs it.

use trace_format::kernel_functions::kinds;

/// An offset that this kernel does not have.
pub(crate) const ABSENT: u32 = u32::MAX;

/// Recorded tasks; values of `KLOCK_TARGET_MODE`.
pub(crate) mod target {
    /// All tasks.
    pub(crate) const ALL: u32 = 0;
    /// The processes in the map of targets.
    pub(crate) const PROCESSES: u32 = 1;
    /// The threads in the map of targets.
    pub(crate) const THREADS: u32 = 2;
    /// The cgroup `KLOCK_CGROUP_ID` and its descendants.
    pub(crate) const CGROUP: u32 = 3;
}

/// Threads whose off-CPU time is recorded; values of `KLOCK_THREADS`. Other values record all threads.
pub(crate) mod threads {
    /// Threads of programs.
    pub(crate) const USER: u32 = 1;
    /// Kernel threads.
    pub(crate) const KERNEL: u32 = 2;
}

/// Bits of `KLOCK_COMMS`, and values in the map of names. Other values exclude tasks with one of these names.
pub(crate) mod comms {
    /// Only tasks with one of these names.
    pub(crate) const ONLY: u32 = 1;
}

macro_rules! globals {
    ($($(#[$doc:meta])* $symbol:ident: $type:ty = $default:expr, $function:ident;)+) => {
        $(
            #[unsafe(no_mangle)]
            static $symbol: $type = $default;

            $(#[$doc])*
            #[inline(always)]
            pub(crate) fn $function() -> $type {
                // SAFETY: a valid, aligned static. Volatile, because the loader writes it after compilation.
                unsafe { core::ptr::read_volatile(&raw const $symbol) }
            }
        )+
    };
}

globals! {
    /// One of [`target`].
    KLOCK_TARGET_MODE: u32 = target::ALL, target_mode;
    /// Number of possible CPUs. The rings of nested programs follow those of all CPUs.
    KLOCK_CPUS: u32 = 1, cpus;
    /// klock's own process, which is never recorded.
    KLOCK_SELF: u32 = 0, own_process;
    /// Whether processes started by a target become targets.
    KLOCK_FOLLOW: u32 = 1, follow_children;
    /// Id of the cgroup, with [`target::CGROUP`].
    KLOCK_CGROUP_ID: u64 = 0, cgroup_id;
    /// Depth of the cgroup below the root, with [`target::CGROUP`].
    KLOCK_CGROUP_LEVEL: u32 = 0, cgroup_level;
    /// Any of [`comms`]. 0 if tasks are not selected by name.
    KLOCK_COMMS: u32 = 0, comms;
    /// 1 if only the locks in the map of locks are recorded.
    KLOCK_LOCKS: u32 = 0, filters_locks;
    /// Recorded kinds of kernel locks, of `trace_format::kernel_functions::kinds`.
    KLOCK_KINDS: u32 = kinds::ALL, selected_kinds;
    /// An acquisition of a kernel lock is recorded if a random number of 32 bits is below this. 0 records
    /// all.
    KLOCK_SAMPLE: u32 = 0, sample_below;
    /// Minimum duration of recorded waits, in ns. If above 0, a wait is recorded once, at its end.
    KLOCK_MIN_WAIT: u64 = 0, min_wait_ns;
    /// Minimum duration of recorded off-CPU times, in ns.
    KLOCK_MIN_BLOCK: u64 = 0, min_block_ns;
    /// Maximum duration of recorded off-CPU times, in ns.
    KLOCK_MAX_BLOCK: u64 = u64::MAX, max_block_ns;
    /// Any of [`threads`].
    KLOCK_THREADS: u32 = 0, selected_threads;
    /// 1 if the functions that acquire kernel locks are probed.
    KLOCK_CALLS: u32 = 0, probes_calls;
    /// Kinds of kernel locks whose waits begin at the entry of a slow-path function. They end at the return
    /// of its caller, unless a tracepoint ended them before.
    KLOCK_SLOW: u32 = 0, slow_path_kinds;
    /// Offset of `mutex.owner`.
    KLOCK_MUTEX_OWNER: u32 = ABSENT, mutex_owner_offset;
    /// Offset of `rw_semaphore.owner`.
    KLOCK_RWSEM_OWNER: u32 = ABSENT, rwsem_owner_offset;
    /// Offset of the owner in `rt_mutex` or its first part, `rt_mutex_base`.
    KLOCK_RTMUTEX_OWNER: u32 = ABSENT, rtmutex_owner_offset;
    /// Offset of `task_struct.pid`, the thread id.
    KLOCK_TASK_PID: u32 = ABSENT, task_pid_offset;
    /// Offset of `task_struct.tgid`, the process id.
    KLOCK_TASK_TGID: u32 = ABSENT, task_tgid_offset;
    /// Offset of `task_struct.comm`.
    KLOCK_TASK_COMM: u32 = ABSENT, task_comm_offset;
    /// Offset of `task_struct.__state` (`state` before 5.14).
    KLOCK_TASK_STATE: u32 = ABSENT, task_state_offset;
    /// Offset of `task_struct.flags`.
    KLOCK_TASK_FLAGS: u32 = ABSENT, task_flags_offset;
    /// Offset of `task_struct.stack`, the kernel stack.
    KLOCK_TASK_STACK: u32 = ABSENT, task_stack_offset;
    /// Offset of `task_struct.group_leader`, the first thread of the process.
    KLOCK_TASK_LEADER: u32 = ABSENT, task_leader_offset;
    /// Offset of `task_struct.start_time`.
    KLOCK_TASK_START: u32 = ABSENT, task_start_offset;
    /// Offset of `task_struct.self_exec_id`, the number of executed programs.
    KLOCK_TASK_EXECS: u32 = ABSENT, task_execs_offset;
    /// Offset of `task_struct.thread_info.status` (x86-64).
    KLOCK_TASK_STATUS: u32 = ABSENT, task_status_offset;
    /// Offset of the number of the system call in `struct pt_regs`. [`ABSENT`] if the kernel has no helper
    /// that finds the registers.
    KLOCK_REGISTERS_SYSCALL: u32 = ABSENT, registers_syscall_offset;
    /// Offset of the interrupted code's privileges in `struct pt_regs`: `cs` (x86-64) or `pstate` (aarch64).
    KLOCK_REGISTERS_MODE: u32 = ABSENT, registers_mode_offset;
    /// Offset of the instruction pointer in `struct pt_regs` (x86-64).
    KLOCK_REGISTERS_IP: u32 = ABSENT, registers_ip_offset;
    /// Number of bytes of user stacks that are copied for unwinding. 0 copies none.
    KLOCK_STACK_BYTES: u32 = 0, stack_bytes;
}
