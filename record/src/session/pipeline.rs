//! The pipeline from ordered records to rows: merges kernel records with the records of self-recording
//! processes, and hands rows to the sink.

use trace_format::{EventColumns, LockRow};

use crate::{
    compose::{Composer, compose_ordered},
    kernel::order::Orderer,
    preload::Preload,
    write::sink::Sink,
};

/// Number of rows that are handed to the sink at once.
const CHUNK_ROWS: usize = 1 << 14;
/// A record adds a few rows at most, so columns of this capacity do not move.
const CAPACITY: usize = CHUNK_ROWS + 64;

/// Records that are not composed yet, the composer, and rows that are not written yet.
#[derive(Debug)]
pub(super) struct Pipeline {
    pub(super) orderer: Orderer,
    pub(super) composer: Composer,
    pub(super) rows: EventColumns,
    /// Number of rows handed to the sink.
    pub(super) events: u64,
    /// Everything up to this time is composed.
    pub(super) composed_ns: u64,
    /// Number of locks handed to an observer.
    known_locks: usize,
}

impl Pipeline {
    /// Starts with these rows.
    pub(super) fn new(composer: Composer, rows: EventColumns) -> Self {
        Self { orderer: Orderer::default(), composer, rows, events: 0, composed_ns: 0, known_locks: 0 }
    }

    /// Composes the records of both sides as [`compose_ordered`] does, and hands rows to the sink. Returns
    /// `false` if the trace cannot be written.
    pub(super) fn compose(
        &mut self,
        preload: Option<&mut Preload>,
        kernel_ns: u64,
        budget: &mut usize,
        sink: &Sink,
    ) -> bool {
        let Self { orderer, composer, rows, events, composed_ns, known_locks } = self;
        let mut written = true;
        let push_chunk = |rows: &mut EventColumns, composer: &Composer| {
            if rows.len() >= CHUNK_ROWS {
                *events += rows.len() as u64;
                let chunk = std::mem::replace(rows, sink.free_columns(CAPACITY));
                written &= sink.push(chunk, new_locks(composer, known_locks, sink));
            }
        };
        let merger = preload.map(|preload| &mut preload.merger);
        let reached_ns = compose_ordered((orderer, merger), kernel_ns, budget, composer, rows, push_chunk);
        *composed_ns = (*composed_ns).max(reached_ns);
        written
    }

    /// Hands all rows to the sink. Returns `false` if the trace cannot be written.
    pub(super) fn flush(&mut self, sink: &Sink) -> bool {
        self.events += self.rows.len() as u64;
        let locks = new_locks(&self.composer, &mut self.known_locks, sink);
        if self.rows.is_empty() && locks.is_empty() {
            return true;
        }
        sink.push(std::mem::replace(&mut self.rows, sink.free_columns(CAPACITY)), locks)
    }
}

/// Returns the locks that an observer does not know yet.
fn new_locks(composer: &Composer, known: &mut usize, sink: &Sink) -> Vec<LockRow> {
    if !sink.is_observed() {
        return Vec::new();
    }
    let locks = composer.locks.rows();
    let new = locks.get(*known..).unwrap_or_default().to_vec();
    *known = locks.len();
    new
}
