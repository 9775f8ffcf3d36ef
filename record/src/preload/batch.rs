//! The output of one drain: which processes and threads recorded what, as far as it was copied out of the
//! chunks.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

use super::{budget::Account, clock::Reading, records::Unit};
use crate::compose::tasks::Known;

/// A process while it runs one program.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ProcessImage {
    /// Its number: dense from 0.
    pub id: u32,
    /// The process, as klock sees it.
    pub pid: u32,
    /// It runs a new program; otherwise it is a child that continues its parent's.
    pub new_program: bool,
    /// The time at which it asked to be recorded, CLOCK_MONOTONIC in ns.
    pub ts_ns: u64,
    /// How far its CLOCK_MONOTONIC is ahead of the machine's.
    pub clock_ahead_ns: i64,
    /// The same of the clock that its records have.
    pub ticks_ahead: u64,
    /// Its facts from `/proc` at that time.
    pub known: Option<Known>,
    /// The costs that the process may cause.
    #[serde(skip, default = "Account::unlimited")]
    pub account: Account,
}

impl ProcessImage {
    /// Returns a time of the process on the clock of the trace; 0 stands for an unknown time.
    pub(crate) fn time_ns(&self, own_ns: u64) -> u64 {
        if own_ns == 0 { 0 } else { shifted(own_ns, self.clock_ahead_ns) }
    }
}

/// Returns a time of a process whose clock is ahead, on the clock of the trace.
pub(super) fn shifted(own_ns: u64, ahead_ns: i64) -> u64 {
    own_ns.saturating_add_signed(ahead_ns.saturating_neg())
}

/// A thread while it has its slot.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ThreadSession {
    pub image: Arc<ProcessImage>,
    /// The thread, as klock sees it; the process's first thread if it is not one of the process.
    pub tid: u32,
    /// The process had this thread when it was drained first. Otherwise the thread exited before, or does not
    /// exist.
    pub is_seen: bool,
    /// The thread, as its process sees it.
    pub own_tid: u32,
    /// The time from which it is recorded, CLOCK_MONOTONIC in ns.
    pub start_ns: u64,
    pub comm: [u8; 16],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ThreadExit {
    /// Its time, CLOCK_MONOTONIC in ns; 0 if unknown.
    pub exit_ns: u64,
    /// The thread's last name.
    pub comm: [u8; 16],
    /// The number of records that found no room in the whole session.
    pub lost: u64,
    /// Those of them that came while another record of the thread was being written.
    pub nested: u64,
}

/// A piece of a thread session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Chunk {
    Start(ThreadSession),
    /// Whole records.
    Units(Vec<Unit>),
    /// All records of later chunks were written after this time, CLOCK_MONOTONIC in ns.
    WrittenAfter(u64),
    Exit(ThreadExit),
}

/// The output of one drain.
#[derive(Clone, Debug, Default)]
pub(crate) struct Batch {
    /// Everything that was recorded up to this time is in this batch or an earlier one, except for what busy
    /// threads have not published yet. CLOCK_MONOTONIC in ns.
    pub settled_ns: u64,
    /// The clocks, read after everything in the batch.
    pub reading: Option<Reading>,
    /// Chunks with the numbers of their sessions, in the order in which they happened.
    pub chunks: Vec<(u32, Chunk)>,
    /// Sessions whose threads were in the middle of a record.
    pub busy: Vec<u32>,
}

impl Batch {
    pub(crate) fn units(&self) -> usize {
        let units = |chunk: &Chunk| if let Chunk::Units(units) = chunk { units.len() } else { 0 };
        self.chunks.iter().map(|(_, chunk)| units(chunk)).sum()
    }
}
