//! The fields that every record has, in the ids of the trace, and the rows that are made from them.

use serde::{Deserialize, Serialize};
use trace_format::{Event, EventColumns, EventKind, LockId, StackId, TaskId};

use super::{locks::Locks, stacks::Stacks, tasks::Tasks};
use crate::compose::locks::Space;

/// A task as records name it: its thread id, or the CPU whose idle task it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct TaskKey(u64);

impl TaskKey {
    /// The key of a thread other than the idle task.
    pub(crate) fn of_thread(tid: u32) -> Self {
        Self(u64::from(tid))
    }

    /// The key of a thread; thread 0 is the idle task of `cpu`.
    pub(crate) fn new(tid: u32, cpu: u32) -> Self {
        if tid == 0 { Self(1 << 32 | u64::from(cpu)) } else { Self::of_thread(tid) }
    }
}

/// The recorder that wrote a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Source {
    /// The kernel side. It sees entries and returns of functions, so whether a call waits is inferred.
    Kernel,
    /// The library in a process that records itself. It knows whether a call waited.
    Library,
}

/// The fields that every record has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub(crate) ts_ns: i64,
    /// `None` for records of the library.
    pub(crate) cpu: Option<i32>,
    pub(crate) source: Source,
    pub(crate) key: TaskKey,
    pub(crate) task: TaskId,
    /// The address space of the task's process.
    pub(crate) space: Space,
    pub(crate) stack: Option<StackId>,
    /// The task that ended the wait, and its stack, if the record names them.
    pub(crate) waker: Option<(TaskId, Option<StackId>)>,
    /// The owner of the lock when the wait began, if the record names it.
    pub(crate) owner: Option<TaskId>,
    pub(crate) times: Option<OffCpuTimes>,
}

/// The time that a task has slept and stood in a run queue since some point in the past.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OffCpuTimes {
    pub(crate) blocked_ns: i64,
    pub(crate) runq_ns: i64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenWait {
    pub(crate) lock: LockId,
    pub(crate) ts_ns: i64,
    pub(crate) stack: Option<StackId>,
    pub(crate) times: Option<OffCpuTimes>,
}

impl Header {
    /// A row of this record's task about `lock`.
    #[inline]
    pub(crate) fn row(&self, kind: EventKind, lock: LockId) -> Event {
        Event {
            lock: Some(lock),
            task: Some(self.task),
            stack: self.stack,
            cpu: self.cpu,
            ..Event::new(self.ts_ns, kind, 0)
        }
    }

    /// The row that ends `wait` now, with the lock or with `errno`.
    pub(crate) fn end_of(&self, wait: &OpenWait, errno: Option<i32>) -> Event {
        let times = OffCpuTimes::between(wait.times, self.times);
        Event {
            stack: wait.stack,
            wait_ns: Some((self.ts_ns - wait.ts_ns).max(0)),
            blocked_ns: times.map(|times| times.blocked_ns),
            runq_ns: times.map(|times| times.runq_ns),
            ..self.end_of_unknown(wait.lock, errno)
        }
    }

    /// The row that ends a wait whose begin is missing: its length and site are unknown.
    pub(crate) fn end_of_unknown(&self, lock: LockId, errno: Option<i32>) -> Event {
        let kind = if errno.is_some() { EventKind::Abandon } else { EventKind::Acquire };
        let peer = self.waker.filter(|_| errno.is_none());
        Event {
            stack: None,
            errno,
            peer_task: peer.map(|(task, _)| task),
            peer_stack: peer.and_then(|(_, stack)| stack),
            ..self.row(kind, lock)
        }
    }
}

impl OffCpuTimes {
    /// The time between two readings; `None` if one is missing or they do not belong together.
    pub(crate) fn between(begin: Option<Self>, end: Option<Self>) -> Option<Self> {
        let (begin, end) = (begin?, end?);
        let added = Self {
            blocked_ns: end.blocked_ns.checked_sub(begin.blocked_ns)?,
            runq_ns: end.runq_ns.checked_sub(begin.runq_ns)?,
        };
        (added.blocked_ns >= 0 && added.runq_ns >= 0).then_some(added)
    }
}

/// The failure that a system call or a kernel function returned, as a positive errno.
pub(crate) fn errno_of(value: i64) -> Option<i32> {
    /// Codes from 512 on make the kernel restart the call after a signal; its caller sees `EINTR` at most.
    const FIRST_RESTART: i64 = 512;
    match value.checked_neg()? {
        errno if errno <= 0 => None,
        errno if errno >= FIRST_RESTART => Some(libc::EINTR),
        errno => Some(errno as i32),
    }
}

// The tables in which a record's ids are looked up, and the output of its rows.

/// The tables of a trace while one record is composed.
pub(crate) struct Context<'a> {
    pub(crate) tasks: &'a mut Tasks,
    pub(crate) locks: &'a mut Locks,
    pub(crate) stacks: &'a mut Stacks,
    /// Begins without an end and ends without a begin.
    pub(crate) unpaired: &'a mut u64,
    pub(crate) out: &'a mut EventColumns,
}
