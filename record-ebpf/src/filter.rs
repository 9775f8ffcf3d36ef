//! Selection of the recorded tasks and locks.

use aya_ebpf::{
    bindings::BPF_ANY,
    btf_maps::HashMap,
    helpers::{
        bpf_get_current_comm, bpf_get_current_pid_tgid, generated::bpf_get_current_ancestor_cgroup_id,
    },
    macros::btf_map,
};
use trace_format::kernel_functions;

use crate::{
    config::{self, comms, target},
    memory::task_field,
};

/// Recorded processes or threads.
#[btf_map]
static TARGETS: HashMap<u32, u8, 65536> = HashMap::new();

/// Names of selected or excluded tasks; values are as of [`comms`].
#[btf_map]
static COMMS: HashMap<[u8; 16], u8, 64> = HashMap::new();

/// Recorded locks, if not all are.
#[btf_map]
static LOCKS: HashMap<u64, u8, 4096> = HashMap::new();

/// A task, by its ids in the initial PID namespace.
#[derive(Clone, Copy)]
pub(crate) struct Task {
    /// The process.
    pub(crate) tgid: u32,
    /// The thread; 0 is the idle task of its CPU.
    pub(crate) tid: u32,
}

impl Task {
    /// Returns the task that runs on this CPU.
    #[inline(always)]
    pub(crate) fn current() -> Self {
        let both = bpf_get_current_pid_tgid();
        Self { tgid: (both >> 32) as u32, tid: both as u32 }
    }

    /// Reads the ids of the `task_struct` at this address.
    #[inline(always)]
    pub(crate) fn at(address: u64) -> Option<Self> {
        let tgid = task_field(address, config::task_tgid_offset())?;
        let tid = task_field(address, config::task_pid_offset())?;
        Some(Self { tgid, tid })
    }

    /// Whether the task is recorded. It must be the current task.
    #[inline(always)]
    pub(crate) fn is_recorded(self) -> bool {
        self.is_followed() && has_selected_name()
    }

    /// Whether the task is recorded apart from its name. Its fork, exec and rename are recorded under any
    /// name, because it may take a selected name later, or start a process that has one. It must be the
    /// current task.
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
                // SAFETY: the helper accepts any level, and returns 0 if the task's cgroup has no ancestor
                // there.
                unsafe { bpf_get_current_ancestor_cgroup_id(level) == config::cgroup_id() }
            }
            _ => false,
        }
    }
}

/// Updates the targets for a new task: a process started by a followed one becomes a target, and a reused id
/// is not a target any more. Returns false if the map is full.
#[inline(always)]
pub(crate) fn inherit_target(parent: Task, child: Task, followed: bool) -> bool {
    let by_process = config::target_mode() == target::PROCESSES;
    if by_process && child.tgid == parent.tgid {
        return true;
    }
    if by_process && followed && config::follow_children() == 1 {
        return TARGETS.insert(child.tgid, 1, BPF_ANY as u64).is_ok();
    }
    // The previous owner of the id has exited, since the id was free.
    let id = if by_process { child.tgid } else { child.tid };
    if TARGETS.get_ptr(id).is_some() {
        let _ = TARGETS.remove(id);
    }
    true
}

/// Whether the current task's name is selected.
#[inline(always)]
fn has_selected_name() -> bool {
    let mode = config::comms();
    if mode == 0 {
        return true;
    }
    let Ok(comm) = bpf_get_current_comm() else { return false };
    // SAFETY: only the recorder writes the value, before recording starts.
    match COMMS.get_ptr(comm).map(|listed| u32::from(unsafe { *listed })) {
        Some(listed) => listed == comms::ONLY,
        None => mode & comms::ONLY == 0,
    }
}

/// Whether the lock at this address is recorded.
#[inline(always)]
pub(crate) fn selects_lock(address: u64) -> bool {
    config::filters_locks() == 0 || LOCKS.get_ptr(address).is_some()
}

/// Whether kernel locks of this kind are recorded; `contention_begin` gives the `flags`.
#[inline(always)]
pub(crate) fn selects_kind(flags: u32) -> bool {
    let selected = config::selected_kinds();
    selected == kernel_functions::kinds::ALL || selected & kernel_functions::kind(flags as u8) != 0
}
