//! A batch of decoded events, stored column by column. [`BatchRow`] reads single fields of a row without copying the others.

use arrow_array::{Array as _, Int32Array, Int64Array};

use super::shared::SharedLocks;
use crate::{
    event::{CallKind, Event, EventKind, EventRow, LockId, Mode, StackId, TaskId, TaskState},
    syscall::Syscall,
};

/// A batch of events, stored column by column. A column that was not requested is `None`.
#[derive(Clone, Debug)]
pub struct Batch {
    pub(super) ts: Int64Array,
    pub(super) kind: Vec<EventKind>,
    pub(super) mode: Option<Vec<Option<Mode>>>,
    pub(super) lock: Option<Int32Array>,
    pub(super) task: Option<Int32Array>,
    pub(super) cpu: Option<Int32Array>,
    pub(super) stack: Option<Int32Array>,
    pub(super) wait: Option<Int64Array>,
    pub(super) blocked: Option<Int64Array>,
    pub(super) runq: Option<Int64Array>,
    pub(super) peer_task: Option<Int32Array>,
    pub(super) peer_stack: Option<Int32Array>,
    pub(super) errno: Option<Int32Array>,
    pub(super) count: Option<Int64Array>,
    pub(super) state: Option<Vec<Option<TaskState>>>,
    pub(super) call: Option<Vec<Option<CallKind>>>,
    pub(super) syscall: Option<Vec<Option<Syscall>>>,
}

impl Batch {
    /// Replaces the ids of rows of the locks table by those of the locks that they stand for.
    pub(super) fn with_lock_ids(self, shared: &SharedLocks) -> Self {
        if shared.is_empty() {
            return self;
        }
        let lock = self.lock.map(|ids| ids.unary(|id| shared.id(id)));
        Self { lock, ..self }
    }

    /// Returns the number of events.
    pub fn len(&self) -> usize {
        self.kind.len()
    }

    /// Whether the batch is empty.
    pub fn is_empty(&self) -> bool {
        self.kind.is_empty()
    }

    /// Returns the times of the events, in ns.
    pub fn times(&self) -> &[i64] {
        self.ts.values()
    }

    /// Returns the kinds of the events.
    pub fn kinds(&self) -> &[EventKind] {
        &self.kind
    }

    /// Returns the locks of the events; `None` if an event has none, or if the column was not requested.
    pub fn lock_ids(&self) -> Option<&[i32]> {
        self.lock.as_ref().filter(|ids| ids.null_count() == 0).map(|ids| &ids.values()[..])
    }

    /// Returns the row and the length of each wait, or call that woke others, that took any time.
    pub fn waits(&self) -> impl Iterator<Item = (usize, i64)> + '_ {
        let lengths = self.wait.iter().flat_map(|column| column.values().iter().enumerate());
        // Most rows waited for nothing, so the length is compared first.
        let is_known = |row: usize| self.wait.as_ref().is_some_and(|column| column.is_valid(row));
        lengths.filter(move |(row, ns)| **ns > 0 && is_known(*row)).map(|(row, ns)| (row, *ns))
    }

    /// Returns the row at `index`, which must be less than [`len`](Self::len).
    #[inline]
    pub fn row(&self, index: usize) -> BatchRow<'_> {
        BatchRow { batch: self, index }
    }

    /// Copies the event at `index`, which must be less than [`len`](Self::len).
    pub fn event(&self, index: usize) -> Event {
        self.row(index).to_event()
    }

    /// Returns an iterator over copies of the events.
    pub fn iter(&self) -> impl Iterator<Item = Event> + '_ {
        (0..self.len()).map(|index| self.event(index))
    }
}

/// A batch with all columns.
impl FromIterator<Event> for Batch {
    fn from_iter<I: IntoIterator<Item = Event>>(events: I) -> Self {
        let events: Vec<Event> = events.into_iter().collect();
        fn column<T, A: FromIterator<Option<T>>>(
            events: &[Event],
            value: impl Fn(&Event) -> Option<T>,
        ) -> Option<A> {
            Some(events.iter().map(value).collect())
        }
        Self {
            ts: events.iter().map(|event| Some(event.ts_ns)).collect(),
            kind: events.iter().map(|event| event.kind).collect(),
            mode: column(&events, |event| event.mode),
            lock: column(&events, |event| event.lock.map(|id| id.0)),
            task: column(&events, |event| event.task.map(|id| id.0)),
            cpu: column(&events, |event| event.cpu),
            stack: column(&events, |event| event.stack.map(|id| id.0)),
            wait: column(&events, |event| event.wait_ns),
            blocked: column(&events, |event| event.blocked_ns),
            runq: column(&events, |event| event.runq_ns),
            peer_task: column(&events, |event| event.peer_task.map(|id| id.0)),
            peer_stack: column(&events, |event| event.peer_stack.map(|id| id.0)),
            errno: column(&events, |event| event.errno),
            count: column(&events, |event| event.count),
            state: column(&events, |event| event.state),
            call: column(&events, |event| event.call),
            syscall: column(&events, |event| event.syscall),
        }
    }
}

/// A row of a batch.
#[derive(Clone, Copy, Debug)]
pub struct BatchRow<'a> {
    batch: &'a Batch,
    index: usize,
}

impl BatchRow<'_> {
    #[inline]
    fn int32(&self, column: &Option<Int32Array>) -> Option<i32> {
        column.as_ref().and_then(|column| int32(column, self.index))
    }

    #[inline]
    fn int64(&self, column: &Option<Int64Array>) -> Option<i64> {
        column.as_ref().and_then(|column| int64(column, self.index))
    }
}

impl EventRow for BatchRow<'_> {
    #[inline]
    fn ts_ns(&self) -> i64 {
        self.batch.ts.value(self.index)
    }

    #[inline]
    fn kind(&self) -> EventKind {
        self.batch.kind[self.index]
    }

    #[inline]
    fn mode(&self) -> Option<Mode> {
        self.batch.mode.as_ref().and_then(|mode| mode[self.index])
    }

    #[inline]
    fn lock(&self) -> Option<LockId> {
        self.int32(&self.batch.lock).map(LockId)
    }

    #[inline]
    fn task(&self) -> Option<TaskId> {
        self.int32(&self.batch.task).map(TaskId)
    }

    #[inline]
    fn cpu(&self) -> Option<i32> {
        self.int32(&self.batch.cpu)
    }

    #[inline]
    fn stack(&self) -> Option<StackId> {
        self.int32(&self.batch.stack).map(StackId)
    }

    #[inline]
    fn wait_ns(&self) -> Option<i64> {
        self.int64(&self.batch.wait)
    }

    #[inline]
    fn blocked_ns(&self) -> Option<i64> {
        self.int64(&self.batch.blocked)
    }

    #[inline]
    fn runq_ns(&self) -> Option<i64> {
        self.int64(&self.batch.runq)
    }

    #[inline]
    fn peer_task(&self) -> Option<TaskId> {
        self.int32(&self.batch.peer_task).map(TaskId)
    }

    #[inline]
    fn peer_stack(&self) -> Option<StackId> {
        self.int32(&self.batch.peer_stack).map(StackId)
    }

    #[inline]
    fn errno(&self) -> Option<i32> {
        self.int32(&self.batch.errno)
    }

    #[inline]
    fn count(&self) -> Option<i64> {
        self.int64(&self.batch.count)
    }

    fn state(&self) -> Option<TaskState> {
        self.batch.state.as_ref().and_then(|state| state[self.index])
    }

    fn call(&self) -> Option<CallKind> {
        self.batch.call.as_ref().and_then(|call| call[self.index])
    }

    fn syscall(&self) -> Option<Syscall> {
        self.batch.syscall.as_ref().and_then(|syscall| syscall[self.index])
    }
}

/// Returns the value, unless it is null.
#[inline]
pub(super) fn int32(column: &Int32Array, row: usize) -> Option<i32> {
    column.is_valid(row).then(|| column.value(row))
}

/// Returns the value, unless it is null.
#[inline]
pub(super) fn int64(column: &Int64Array, row: usize) -> Option<i64> {
    column.is_valid(row).then(|| column.value(row))
}
