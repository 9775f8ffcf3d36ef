//! Whether a task and a lock are recorded.

use aya_ebpf::helpers::{
    bpf_get_current_comm, bpf_get_current_pid_tgid, generated::bpf_get_current_ancestor_cgroup_id,
};
use trace_format::kernel_functions;

use crate::{
    config::{self, comms, target},
    maps::{COMMS, LOCKS, TARGETS},
};

/// A task by its ids in the first PID namespace.
#[derive(Clone, Copy)]
pub(crate) struct Task {
    /// The process.
    pub(crate) tgid: u32,
    /// The thread; 0 is the idle task of its CPU.
    pub(crate) tid: u32,
}

impl Task {
    /// The task that runs on this CPU.
    #[inline(always)]
    pub(crate) fn current() -> Self {
        let both = bpf_get_current_pid_tgid();
        Self { tgid: (both >> 32) as u32, tid: both as u32 }
    }

    /// Whether the current task is recorded; `self` has to be the current one.
    #[inline(always)]
    pub(crate) fn is_recorded(self) -> bool {
        self.is_followed() && has_wanted_name()
    }

    /// Whether the current task's life is followed, whatever its name is now: it may take one that is recorded, or start
    /// a process that has one.
    #[inline(always)]
    pub(crate) fn is_followed(self) -> bool {
        if self.tgid == config::own_process() {
            return false;
        }
        match config::target_mode() {
            target::ALL => true,
            target::PROCESSES => TARGETS.get_ptr(self.tgid).is_some(),
            target::THREADS => TARGETS.get_ptr(self.tid).is_some(),
            target::CGROUP => {
                let level = config::cgroup_level() as i32;
                // SAFETY: the helper takes any level, and answers 0 for one that the task's cgroup is not below.
                unsafe { bpf_get_current_ancestor_cgroup_id(level) == config::cgroup_id() }
            }
            _ => false,
        }
    }
}

/// Whether the current task's name is one that is recorded.
#[inline(always)]
fn has_wanted_name() -> bool {
    let mode = config::comms();
    if mode == 0 {
        return true;
    }
    let Ok(comm) = bpf_get_current_comm() else { return false };
    // SAFETY: only the host writes the value, before anything is recorded.
    match COMMS.get_ptr(comm).map(|listed| u32::from(unsafe { *listed })) {
        Some(listed) => listed == comms::ONLY,
        None => mode & comms::ONLY == 0,
    }
}

/// Whether a lock at this address is recorded.
#[inline(always)]
pub(crate) fn wants_lock(address: u64) -> bool {
    config::chosen_locks() == 0 || LOCKS.get_ptr(address).is_some()
}

/// Whether kernel locks of this kind are recorded; `flags` are those of `contention_begin`.
#[inline(always)]
pub(crate) fn wants_kind(flags: u32) -> bool {
    let wanted = config::kinds_recorded();
    wanted == kernel_functions::kinds::ALL || wanted & kernel_functions::kind(flags as u8) != 0
}
