//! The sleep inside a call: its futex waits, added up.

use serde::{Deserialize, Serialize};
use trace_format::{Event, StackId, TaskId};

use crate::compose::header::{Header, OffCpuTimes};

/// The futex waits of a call.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Sleep {
    times: Option<OffCpuTimes>,
    /// The last task that woke the call, and its stack.
    waker: Option<(TaskId, Option<StackId>)>,
    /// The errno of the last futex wait, if it failed.
    pub(crate) errno: Option<i32>,
}

impl Sleep {
    /// No futex wait.
    pub(crate) const NONE: Self =
        Self { times: Some(OffCpuTimes { blocked_ns: 0, runq_ns: 0 }), waker: None, errno: None };
    /// Futex waits are not recorded.
    pub(crate) const UNKNOWN: Self = Self { times: None, ..Self::NONE };

    /// Whether futex waits are recorded.
    pub(crate) fn is_known(&self) -> bool {
        self.times.is_some()
    }

    /// Adds a futex wait that ended with this record.
    pub(crate) fn merge(&mut self, at: &Header, times: Option<OffCpuTimes>, errno: Option<i32>) {
        self.times = match (self.times, times) {
            (Some(a), Some(b)) => {
                Some(OffCpuTimes { blocked_ns: a.blocked_ns + b.blocked_ns, runq_ns: a.runq_ns + b.runq_ns })
            }
            _ => None,
        };
        self.waker = at.waker.or(self.waker);
        self.errno = errno;
    }

    /// `row`, which ends a wait of this length, with its sleep.
    #[inline]
    pub(crate) fn add_to(&self, wait_ns: i64, row: Event) -> Event {
        Event {
            wait_ns: Some(wait_ns.max(0)),
            blocked_ns: self.times.map(|times| times.blocked_ns),
            runq_ns: self.times.map(|times| times.runq_ns),
            peer_task: self.waker.map(|(task, _)| task),
            peer_stack: self.waker.and_then(|(_, stack)| stack),
            ..row
        }
    }
}
