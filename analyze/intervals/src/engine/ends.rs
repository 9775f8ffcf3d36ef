//! The acts that end waits for locks without holds: signals of condition variables, and ends of threads. A
//! search for deadlocks asks who could act.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;
use trace_format::{EventKind, LockId, TaskId};

use super::rules::EndsBy;

/// The rows of locks without holds that a search for deadlocks needs.
#[derive(Debug, Default)]
pub(super) struct History {
    /// The tasks that signalled each condition variable.
    pub(super) signallers: FxHashMap<LockId, BTreeSet<TaskId>>,
    /// The creator of each thread, and the time of its creation.
    pub(super) created: BTreeSet<(TaskId, i64, LockId)>,
    /// Threads that ended before their process.
    pub(super) ended: BTreeSet<TaskId>,
}

impl History {
    /// Adds a row of a lock whose waits end by an act.
    pub(super) fn add(
        &mut self,
        kind: EventKind,
        ends_by: EndsBy,
        (lock, task, ts_ns): (LockId, TaskId, i64),
    ) {
        match (ends_by, kind) {
            (EndsBy::Signal, EventKind::Wake) => {
                self.signallers.entry(lock).or_default().insert(task);
            }
            (EndsBy::Exit, EventKind::Wake) => {
                self.ended.insert(task);
            }
            (EndsBy::Exit, EventKind::Init) => {
                self.created.insert((task, ts_ns, lock));
            }
            _ => {}
        }
    }
}
