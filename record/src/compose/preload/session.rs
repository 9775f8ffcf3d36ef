//! A thread that records itself, and its process: facts about its calls enter; the locks that it holds, and the header of its facts, leave.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use trace_format::{StackId, TaskId, preload::Record};

use super::threads::Threads;
use crate::{
    compose::{
        header::{Header, Source, TaskKey},
        locks::Space,
        user::fact::{Action, Fact, Outcome},
    },
    preload::batch::{ProcessImage, shared},
};

/// A process that records itself.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Image {
    /// The process, with its account.
    #[serde(with = "shared")]
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
    /// It reported its start.
    pub(crate) has_started: bool,
    pub(crate) held: Held,
}

impl Session {
    /// The stack of a record.
    #[inline]
    pub(crate) fn stack(&self, record: &Record) -> Option<StackId> {
        let index = usize::from(record.stack()).checked_sub(1)?;
        self.stacks.get(index).copied()
    }
}

/// The locks that a thread holds, as far as they are recorded. It may hold fewer: another thread may have released one.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Held {
    /// Their addresses, in the order in which they were taken; one for each time.
    pub(crate) locks: Vec<u64>,
    /// It held too many to be remembered.
    pub(crate) is_unknown: bool,
}

impl Held {
    /// The maximum number of locks.
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
