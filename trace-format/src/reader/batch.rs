//! Some thousands of events as they lie in memory: column by column. A row is looked at where it lies, through [`RowOf`]; nobody copies
//! what nobody asks for.

use arrow_array::{Array as _, Int32Array, Int64Array};

use crate::event::{Event, EventKind, EventRow, LockId, Mode, StackId, TaskId, TaskState};

/// Some thousands of events, column by column. A column that was not asked for is `None`.
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
}

impl Batch {
    /// How many events it holds.
    pub fn len(&self) -> usize {
        self.kind.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.kind.is_empty()
    }

    /// When each was, in ns.
    pub fn times(&self) -> &[i64] {
        self.ts.values()
    }

    /// What each was.
    pub fn kinds(&self) -> &[EventKind] {
        &self.kind
    }

    /// The row at `index`, where it lies; `index` must be less than [`len`](Self::len).
    #[inline]
    pub fn row(&self, index: usize) -> RowOf<'_> {
        RowOf { batch: self, index }
    }

    /// The event at `index`, which must be less than [`len`](Self::len).
    pub fn event(&self, index: usize) -> Event {
        self.row(index).to_event()
    }

    /// The events in order.
    pub fn iter(&self) -> impl Iterator<Item = Event> + '_ {
        (0..self.len()).map(|index| self.event(index))
    }
}

/// One row of a batch.
#[derive(Clone, Copy, Debug)]
pub struct RowOf<'a> {
    batch: &'a Batch,
    index: usize,
}

impl RowOf<'_> {
    #[inline]
    fn int32(&self, column: &Option<Int32Array>) -> Option<i32> {
        column.as_ref().filter(|column| column.is_valid(self.index)).map(|column| column.value(self.index))
    }

    #[inline]
    fn int64(&self, column: &Option<Int64Array>) -> Option<i64> {
        column.as_ref().filter(|column| column.is_valid(self.index)).map(|column| column.value(self.index))
    }
}

impl EventRow for RowOf<'_> {
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
}
