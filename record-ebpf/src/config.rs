//! What the loader decided, as read-only globals that it sets before the verifier sees the programs. Offsets come from
//! the running kernel's BTF; an offset that it doesn't have is [`ABSENT`], and the verifier prunes what needs it.

use trace_format::kernel_functions::kinds;

/// An offset that this kernel doesn't have.
pub(crate) const ABSENT: u32 = u32::MAX;

/// Whose events are recorded; values of `KLOCK_TARGET_MODE`.
pub(crate) mod target {
    /// Everybody's.
    pub(crate) const ALL: u32 = 0;
    /// Those of the processes in the map of targets.
    pub(crate) const PROCESSES: u32 = 1;
    /// Those of the threads in the map of targets.
    pub(crate) const THREADS: u32 = 2;
    /// Those of the cgroup `KLOCK_CGROUP_ID` and the ones below it.
    pub(crate) const CGROUP: u32 = 3;
}

/// Bits of `KLOCK_COMMS`, and values in the map of names. The others mean: no task with one of these names.
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
                // SAFETY: a valid, aligned static. Volatile, because the loader changes it after compilation.
                unsafe { core::ptr::read_volatile(&raw const $symbol) }
            }
        )+
    };
}

globals! {
    /// One of [`target`].
    KLOCK_TARGET_MODE: u32 = target::ALL, target_mode;
    /// How many CPUs are possible: the rings of nested programs come after those of all CPUs.
    KLOCK_CPUS: u32 = 1, cpus;
    /// klock's own process, which is never recorded.
    KLOCK_SELF: u32 = 0, own_process;
    /// Whether processes that a target starts become targets.
    KLOCK_FOLLOW: u32 = 1, follow_children;
    /// With [`target::CGROUP`]: the cgroup's id.
    KLOCK_CGROUP_ID: u64 = 0, cgroup_id;
    /// With [`target::CGROUP`]: how deep it is below the root.
    KLOCK_CGROUP_LEVEL: u32 = 0, cgroup_level;
    /// Any of [`comms`]: whether tasks are recorded by their names, too.
    KLOCK_COMMS: u32 = 0, comms;
    /// 1: only the locks in the map of locks.
    KLOCK_LOCKS: u32 = 0, chosen_locks;
    /// Any of `trace_format::kernel_functions::kinds`: the kernel locks that are recorded.
    KLOCK_KINDS: u32 = kinds::ALL, kinds_recorded;
    /// Every how many-th acquisition of a kernel lock is recorded; 1 is each.
    KLOCK_SAMPLE: u32 = 1, sample;
    /// Waits that are shorter are not recorded; above 0, a wait has no record of its begin. In ns.
    KLOCK_MIN_WAIT: u64 = 0, min_wait_ns;
    /// Off-CPU times that are shorter are not recorded. In ns.
    KLOCK_MIN_BLOCK: u64 = 0, min_block_ns;
    /// 1: the functions that take kernel locks are probed.
    KLOCK_CALLS: u32 = 0, probes_calls;
    /// Any of `kinds`: the kernel locks of which waits begin at the entry of a slow function, and end at the return of
    /// the one that called it unless a tracepoint ended them.
    KLOCK_SLOW: u32 = 0, slow_kinds;
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
}
