//! Turns switches of tasks that the kernel reports to any user into rows of off-CPU time. The system call in
//! which a task left, and whether it is stopped, are asked for only while others wait for it.
//!
//! The rows tell the states of holders, so a thread that records itself and holds no lock as it returns has
//! none. It cannot have taken or released a lock meanwhile. With a kernel side, which may know of other
//! holds, every return is a row.

use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};
use trace_format::{Event, EventKind, Syscall, TaskState};

use crate::compose::preload::Sessions;
use crate::{
    compose::{locks::Space, tasks::Tasks},
    setup::filters::{Filters, ThreadSpace},
    sources::switches::records::{Switch, SwitchAction},
};

/// The tasks that are off-CPU.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Switches {
    /// By thread id.
    left: FxHashMap<u32, Left>,
    keeps_all: bool,
    min_ns: i64,
    max_ns: i64,
}

/// The way in which a task left its CPU.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Left {
    ts_ns: i64,
    is_runnable: bool,
    /// Whether its system call was asked for.
    is_asked: bool,
    read: Option<Reading>,
}

/// A sleeping thread, as `/proc` described it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Reading {
    /// The time of the reading, CLOCK_MONOTONIC in ns.
    pub(crate) ts_ns: i64,
    /// The system call in which the thread was.
    pub(crate) call: Option<Syscall>,
    /// The state, if the thread was stopped.
    pub(crate) stopped: Option<TaskState>,
}

/// A thread that is asleep with a lock for which others wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sleeper {
    /// The process, as klock sees it.
    pub(crate) pid: u32,
    /// The thread, as klock sees it.
    pub(crate) tid: u32,
}

impl Switches {
    /// Starts without tasks. `keeps_all` means that rows are not restricted to the holders that the library
    /// knows.
    pub(crate) fn new(keeps_all: bool, filters: &Filters) -> Self {
        let ns = |ns: u64| i64::try_from(ns).unwrap_or(i64::MAX);
        let max_ns = match filters.threads {
            // The threads of a command are none of the kernel's.
            Some(ThreadSpace::Kernel) => -1,
            _ => ns(filters.max_block_ns),
        };
        Self { left: FxHashMap::default(), keeps_all, min_ns: ns(filters.min_block_ns), max_ns }
    }

    /// Adds the next switch in the order of time. Returns the row of a return.
    pub(crate) fn add(&mut self, switch: &Switch, sessions: &Sessions, tasks: &mut Tasks) -> Option<Event> {
        let ts_ns = switch.ts_ns as i64;
        match switch.action {
            SwitchAction::Left { is_runnable } => {
                self.left.insert(switch.tid, Left { ts_ns, is_runnable, is_asked: false, read: None });
                None
            }
            SwitchAction::Returned => {
                let Left { ts_ns: left_ns, is_runnable, read, .. } = self.left.remove(&switch.tid)?;
                // Later, the task may have slept again.
                let read = read.filter(|read| read.ts_ns <= ts_ns);
                let off_ns = (ts_ns - left_ns).max(0);
                if off_ns < self.min_ns || off_ns > self.max_ns {
                    return None;
                }
                let holder = sessions.holder(switch.tid);
                let every = || self.keeps_all.then(|| tasks.id(switch.tgid, switch.tid, switch.cpu));
                let task = holder.or_else(every)?;
                let asleep = read.and_then(|read| read.stopped).unwrap_or(TaskState::Asleep);
                let state = if is_runnable { TaskState::Runnable } else { asleep };
                Some(Event {
                    task: Some(task),
                    cpu: Some(switch.cpu as i32),
                    wait_ns: Some(off_ns),
                    blocked_ns: is_runnable.then_some(0),
                    runq_ns: is_runnable.then_some(off_ns),
                    state: Some(state),
                    syscall: read.and_then(|read| read.call),
                    ..Event::new(ts_ns, EventKind::OffCpu, 0)
                })
            }
            SwitchAction::Exited => {
                self.left.remove(&switch.tid);
                None
            }
            SwitchAction::Born { .. } | SwitchAction::Lost(_) => None,
        }
    }

    /// Returns the threads that have slept since `before_ns` with a lock of `awaited`, each once in a sleep.
    pub(crate) fn sleepers(
        &mut self,
        before_ns: i64,
        awaited: &FxHashSet<(Space, u64)>,
        sessions: &Sessions,
    ) -> Vec<Sleeper> {
        let asleep = self
            .left
            .iter_mut()
            .filter(|(_, left)| !left.is_runnable && !left.is_asked && left.ts_ns <= before_ns);
        let mut found = Vec::new();
        for (&tid, left) in asleep {
            if let Some(pid) = sessions.process_of_holder(tid, awaited) {
                left.is_asked = true;
                found.push(Sleeper { pid, tid });
            }
        }
        found
    }

    /// Adds what was read of a thread, if it still slept.
    pub(crate) fn add_reading(&mut self, tid: u32, read: Reading) {
        if let Some(left) = self.left.get_mut(&tid) {
            left.read = Some(read);
        }
    }

    /// Switches are missing: a task that left may have returned and left again.
    pub(crate) fn lost(&mut self) {
        self.left.clear();
    }
}

#[cfg(test)]
mod tests;
