//! A batch of decoded events, stored column by column. [`BatchRow`] reads single fields of a row without
//! copying the others.

use std::path::Path;

use arrow_array::Array as _;

use super::shared::SharedLocks;
use crate::{
    event::{
        Batch, CallKind, Event, EventKind, EventRow, LockId, MAX_TIME_NS, Mode, StackId, TaskId, TaskState,
        with_events_table,
    },
    field::{Field, Source, TableRow as _},
    schema,
    syscall::Syscall,
};

impl Batch {
    /// Replaces the ids of rows of the locks table by the ids of the locks that they stand for.
    pub(super) fn with_lock_ids(self, shared: &SharedLocks) -> Self {
        if shared.is_empty() {
            return self;
        }
        let lock = self.lock.map(|ids| ids.unary(|id| shared.id(id)));
        Self { lock, ..self }
    }

    /// Returns the first time or length that is further from 0 than [`MAX_TIME_NS`]: its column, its row and
    /// its value.
    pub(super) fn invalid_time(&self) -> Option<(&'static str, usize, i64)> {
        let lengths =
            [("wait_ns", &self.wait_ns), ("blocked_ns", &self.blocked_ns), ("runq_ns", &self.runq_ns)];
        let lengths = lengths.into_iter().filter_map(|(name, column)| Some((name, column.as_ref()?)));
        std::iter::once(("ts_ns", &self.ts_ns)).chain(lengths).find_map(|(name, column)| {
            let mut values = column.values().iter().enumerate();
            let (row, ns) = values
                .find(|(row, ns)| ns.unsigned_abs() > MAX_TIME_NS.unsigned_abs() && column.is_valid(*row))?;
            Some((name, row, *ns))
        })
    }

    /// Replaces the kinds and locks of the events by what `of` returns for their rows.
    #[must_use]
    pub fn with_kinds_and_locks(self, of: impl Fn(&BatchRow<'_>) -> (EventKind, Option<LockId>)) -> Self {
        let (kind, ids) = (0..self.len()).map(|index| of(&self.row(index))).unzip::<_, _, Vec<_>, Vec<_>>();
        let ids = ids.into_iter().map(|lock| lock.map(|lock| lock.0)).collect();
        Self { kind, lock: self.lock.is_some().then_some(ids), ..self }
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
        self.ts_ns.values()
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
        let lengths = self.wait_ns.iter().flat_map(|column| column.values().iter().enumerate());
        // Most rows waited for nothing, so the length is compared first.
        let is_known = |row: usize| self.wait_ns.as_ref().is_some_and(|column| column.is_valid(row));
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
        let batch = schema::record_batch(schema::EVENTS, Event::encode(events.iter()));
        let source = Source { path: Path::new(""), row_group: 0, first_row: 0, batch: &batch };
        Event::decode(&source).expect("events have every field")
    }
}

/// A row of a batch.
#[derive(Clone, Copy, Debug)]
pub struct BatchRow<'a> {
    batch: &'a Batch,
    index: usize,
}

/// Declares the access to the fields of a row.
macro_rules! batch_rows {
    ($table:literal, $(#[$doc:meta])* $columns:ident, $(#[$row_doc:meta])* $row:ident, $(#[$arrays_doc:meta])* $vis:vis $arrays:ident {
        $($field:ident $name:literal $(since $minor:literal)?: $type:ty = $description:literal;)+
    }) => {
        impl EventRow for BatchRow<'_> {
            $(#[inline] fn $field(&self) -> $type { Field::get(&self.batch.$field, self.index) })+
        }
    };
}

with_events_table!(batch_rows);
