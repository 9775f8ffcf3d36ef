//! Creations of threads: which task created a thread, by its `pthread_t`, which the C library uses again after the thread's end.

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use trace_format::{EventKind, LockKind, TaskId};

use crate::compose::{context::Context, header::Header};

/// The threads of a process whose creations and starts are told apart from those of earlier threads.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Threads {
    /// The creator and the time of the creation of threads that have not started to record themselves.
    created: FxHashMap<u64, (TaskId, i64)>,
    /// Threads that record themselves, of which the creator has not recorded the creation yet. One for each session at most.
    started: FxHashMap<u64, TaskId>,
    /// The last thread that started at each address.
    last: FxHashMap<u64, TaskId>,
}

impl Threads {
    /// Adds a creation, and its row. A thread may start, and even end, before its creator has recorded it.
    pub(crate) fn created(&mut self, at: &Header, thread: u64, context: &mut Context<'_>) {
        let lock = match self.started.remove(&thread) {
            Some(task) => {
                context.tasks.set_creator(task, at.task, at.ts_ns);
                context.locks.started(at.space, thread, LockKind::Thread, at.ts_ns, at.stack)
            }
            None => {
                self.created.insert(thread, (at.task, at.ts_ns));
                context.locks.start(at.space, thread, LockKind::Thread, at.ts_ns, at.stack)
            }
        };
        context.out.push(at.row(EventKind::Init, lock));
    }

    /// Adds the start of a thread that records itself.
    pub(crate) fn started(&mut self, at: &Header, thread: u64, context: &mut Context<'_>) {
        // A thread may have more than one session.
        if self.last.insert(thread, at.task) == Some(at.task) {
            return;
        }
        match self.created.remove(&thread) {
            Some((creator, ts_ns)) => context.tasks.set_creator(at.task, creator, ts_ns),
            None => {
                // The last thread of this address has ended, whether that was seen or not.
                context.locks.end(at.space, thread, LockKind::Thread);
                self.started.insert(thread, at.task);
            }
        }
    }

    /// Forgets a thread that was joined.
    pub(crate) fn joined(&mut self, thread: u64) {
        self.created.remove(&thread);
        self.started.remove(&thread);
        self.last.remove(&thread);
    }
}
