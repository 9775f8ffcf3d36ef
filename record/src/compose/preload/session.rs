//! A thread that records itself, and its process. The thread knows its stacks and the locks that it holds.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use trace_format::{
    EventKind, LockKind, StackId, TaskId,
    preload::{Record, call, op},
    wire::api,
};

use crate::{
    compose::{
        header::{Context, Header, Source, TaskKey},
        locks::Space,
        user::fact::{Action, Begin, Fact, Outcome, mode_of},
    },
    preload::{batch::ProcessImage, records::Unit},
};

/// A process that records itself.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Image {
    /// The process, with its account.
    pub(crate) process: Arc<ProcessImage>,
    pub(crate) space: Space,
    /// Its threads by the thread ids that the process sees: a lock names its owner by these.
    pub(crate) tasks: FxHashMap<u32, TaskId>,
    /// Creations and starts of its threads.
    pub(crate) threads: Threads,
    /// It exceeded a budget.
    pub(crate) is_over: bool,
}

/// A thread that records itself.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Session {
    pub(crate) image: u32,
    pub(crate) tid: u32,
    /// The thread id that its process sees.
    pub(crate) own_tid: u32,
    pub(crate) task: TaskId,
    /// Its stacks, in the order in which it reported them.
    pub(crate) stacks: Vec<StackId>,
    /// The filters select its name.
    pub(crate) is_selected: bool,
    pub(crate) has_started: bool,
    pub(crate) held: Held,
}

impl Session {
    #[inline]
    pub(crate) fn stack(&self, record: &Record) -> Option<StackId> {
        let index = usize::from(record.stack()).checked_sub(1)?;
        self.stacks.get(index).copied()
    }
}

/// The locks that a thread holds, as far as they are recorded. It may hold fewer: another thread may have
/// released one.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Held {
    /// Their addresses, in the order in which they were taken; one for each time.
    pub(crate) locks: Vec<u64>,
    /// It held too many to be remembered.
    pub(crate) is_unknown: bool,
}

impl Held {
    const MAX: usize = 64;

    /// Follows what a fact says of a lock.
    pub(crate) fn add(&mut self, fact: &Fact) {
        match fact.action {
            Action::Returned(_, Outcome::Acquired(_)) | Action::ConditionReturned(..)
                if fact.mode().is_some() =>
            {
                self.take(fact.address);
            }
            Action::Released { .. } | Action::ConditionWait(_) => self.release(fact.address),
            Action::Destroyed => self.locks.retain(|&lock| lock != fact.address),
            _ => {}
        }
    }

    #[inline]
    pub(crate) fn take(&mut self, address: u64) {
        if self.locks.len() == Self::MAX {
            self.is_unknown = true;
        } else {
            self.locks.push(address);
        }
    }

    #[inline]
    pub(crate) fn release(&mut self, address: u64) {
        if let Some(at) = self.locks.iter().rposition(|&lock| lock == address) {
            self.locks.swap_remove(at);
        }
    }

    pub(crate) fn has_any(&self) -> bool {
        self.is_unknown || !self.locks.is_empty()
    }
}

/// The fields of a record that do not depend on its kind.
pub(crate) fn header(ts_ns: i64, record: &Record, session: &Session, image: &Image) -> Header {
    Header {
        ts_ns,
        cpu: None,
        source: Source::Library,
        key: TaskKey::of_thread(session.tid),
        task: session.task,
        space: image.space,
        stack: session.stack(record),
        waker: None,
        owner: None,
        times: None,
    }
}

// The fact that a record of klock's library reports: its fields enter, a [`Fact`] leaves. Pure functions.

/// The fact that a record reports, given the unit behind it.
pub(crate) fn fact(record: &Record, rest: Unit, task: impl Fn(u32) -> Option<TaskId>) -> Option<Fact> {
    const DEAD: Option<i32> = Some(libc::EOWNERDEAD);
    let returned = |begin, outcome| Action::Returned(begin, outcome);
    let action = match record.op() {
        op::ACQUIRED => returned(Begin::NotReported, Outcome::Acquired(None)),
        op::ACQUIRED_OWNER_DIED => returned(Begin::NotReported, Outcome::Acquired(DEAD)),
        op::WAIT => Action::Waits { owner: u32::try_from(rest[0]).ok().and_then(task) },
        op::WAITED => returned(Begin::Reported, Outcome::Acquired(None)),
        op::WAITED_OWNER_DIED => returned(Begin::Reported, Outcome::Acquired(DEAD)),
        op::FAILED => returned(Begin::ReportedIfContended, Outcome::Failed(errno(rest[0]))),
        op::CONDITION_WAIT => Action::ConditionWait(rest[0]),
        op::CONDITION_WAITED => Action::ConditionReturned(Some(rest[0]), errno(rest[1])),
        op::RELEASED => Action::Released { mode: mode_of(record.api()), only_owner: None },
        op::INIT => Action::Initialised,
        op::DESTROY => Action::Destroyed,
        op::POSTED => Action::Posted,
        _ => return None,
    };
    let variant = match record.call() {
        call::TRY => api::TRY,
        call::TIMED => api::TIMED,
        _ => api::NONE,
    };
    Some(Fact { function: api::pack(record.api(), variant), address: record.address(), action })
}

/// A positive errno; `None` if the word cannot be one.
fn errno(word: u64) -> Option<i32> {
    const LAST: u64 = 4095;
    (1..=LAST).contains(&word).then_some(word as i32)
}

// Creations of threads: which task created a thread, by its `pthread_t`, which the C library uses again after
// the thread's end.

/// The threads of a process whose creations and starts are told apart from the creations and starts of
/// earlier threads.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Threads {
    /// The creator and the time of the creation of threads that have not started to record themselves.
    created: FxHashMap<u64, (TaskId, i64)>,
    /// Threads that record themselves, of which the creator has not recorded the creation yet. One for each
    /// session at most.
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

    pub(crate) fn joined(&mut self, thread: u64) {
        self.created.remove(&thread);
        self.started.remove(&thread);
        self.last.remove(&thread);
    }
}
