//! Whether a task is recorded.

use aya_ebpf::helpers::{bpf_get_current_pid_tgid, generated::bpf_get_current_ancestor_cgroup_id};

use crate::{
    config::{self, target},
    maps::TARGETS,
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
