//! The queues of the thread that drains: new processes to it, with the state that it shares with the others,
//! and batches from it.

use std::{
    collections::{BTreeMap, VecDeque},
    fs,
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use trace_format::preload::Unrecorded;

use super::{
    batch::{Batch, ProcessImage},
    budget::Ledger,
    records::Unit,
    region::Region,
};
use crate::{compose::tasks::ProcessExit, system::lock};

/// A process that asked for its region.
#[derive(Debug)]
pub(crate) struct NewProcess {
    pub region: Region,
    pub image: Arc<ProcessImage>,
    /// Becomes readable when the process exits; `None` if that cannot be known.
    pub exit: Option<OwnedFd>,
    /// It sees the same thread ids as klock.
    pub same_ids: bool,
}

impl Drop for NewProcess {
    fn drop(&mut self) {
        self.image.account.close();
    }
}

/// The state that the thread shares with the others.
#[derive(Debug, Default)]
pub(crate) struct DrainQueue {
    /// The budgets of the processes.
    pub(crate) ledger: Arc<Ledger>,
    new: Mutex<Vec<NewProcess>>,
    /// The processes that joined, until they are asked for.
    joined: Mutex<Vec<u32>>,
    /// Processes that are about to exit, by the time at which they said so.
    exits: Mutex<BTreeMap<u32, ProcessExit>>,
    stop: AtomicBool,
    /// No process records for a while.
    paused: AtomicBool,
    /// No process records now.
    is_paused_now: AtomicBool,
    done: AtomicBool,
    /// At the last round, pools filled faster than they were read.
    backpressure: AtomicBool,
    /// Events of threads that found no slot.
    pub(super) unrecorded: AtomicU64,
    /// Processes that could not read the clock any more.
    pub(super) clockless: AtomicU64,
    pub(super) invalid_slots: AtomicU64,
    /// The number of programs that the recorded processes started.
    pub(super) started: AtomicU64,
    /// The number of programs that got a region.
    pub(super) joined_programs: AtomicU64,
    /// Of the started programs, those that cannot record themselves, by reason.
    pub(super) unrecorded_programs: [AtomicU64; Unrecorded::ALL.len()],
    /// Connections that could not be accepted, because klock had too many files open.
    pub(super) not_accepted: AtomicU64,
    /// Processes whose time namespace is not known.
    pub(super) unknown_clocks: AtomicU64,
    /// Requests without the secret.
    pub(super) refused: AtomicU64,
    /// Threads that claimed the id of another process's thread.
    pub(super) foreign: AtomicU64,
}

impl DrainQueue {
    pub(crate) fn new(ledger: Ledger) -> Self {
        Self { ledger: Arc::new(ledger), ..Self::default() }
    }

    /// Adds a process, which is drained from now on. To be called before it gets its region.
    pub(crate) fn add(&self, process: NewProcess) {
        lock(&self.joined).push(process.image.pid);
        lock(&self.new).push(process);
    }

    /// Takes the processes that were added since the last call.
    pub(super) fn take(&self) -> Vec<NewProcess> {
        std::mem::take(&mut *lock(&self.new))
    }

    /// Takes the PIDs of the processes that joined since the last call.
    pub(crate) fn take_joined(&self) -> Vec<u32> {
        std::mem::take(&mut *lock(&self.joined))
    }

    /// Adds a process that is about to exit. The last time counts.
    pub(super) fn add_exit(&self, pid: u32, exit: ProcessExit) {
        lock(&self.exits).insert(pid, exit);
    }

    /// Returns the processes that have exited by themselves.
    pub(crate) fn exits(&self) -> BTreeMap<u32, ProcessExit> {
        lock(&self.exits).clone()
    }

    /// Requests the last drain: no process records anything after it.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    /// Pauses or resumes the recording in all processes: soon in those that record, and at once in those that
    /// ask for a region.
    pub(crate) fn pause(&self, pauses: bool) {
        self.paused.store(pauses, Ordering::Release);
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Acquire)
    }

    pub(super) fn set_paused_now(&self, is_paused: bool) {
        self.is_paused_now.store(is_paused, Ordering::Release);
    }

    /// Whether the last [`pause`](Self::pause) is done.
    pub(crate) fn has_paused(&self) -> bool {
        self.is_paused_now.load(Ordering::Acquire) == self.is_paused()
    }

    /// Whether the last drain is done and its batch is in the spool.
    pub(crate) fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// Whether pools fill, so that other threads should leave the processors to the one that reads them.
    pub(crate) fn has_backpressure(&self) -> bool {
        self.backpressure.load(Ordering::Relaxed)
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    pub(super) fn set_done(&self) {
        self.done.store(true, Ordering::Release);
    }

    pub(super) fn set_backpressure(&self, backpressure: bool) {
        self.backpressure.store(backpressure, Ordering::Relaxed);
    }

    /// Counts what the region of a process whose recording ends says about it. A process may claim any number
    /// of events.
    pub(super) fn count_lost_in(&self, region: &Region) {
        const MAX: u64 = 1 << 40;
        const MAX_PROGRAMS: u32 = 1 << 20;
        count(&self.started, region.programs().min(MAX_PROGRAMS).into());
        for (counter, programs) in self.unrecorded_programs.iter().zip(region.unrecorded_programs()) {
            count(counter, programs.min(MAX_PROGRAMS).into());
        }
        count(&self.unrecorded, region.unrecorded_events().min(MAX));
        count(&self.clockless, region.is_clockless().into());
    }
}

/// Adds to a counter.
pub(super) fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

// The queue of drained batches between the thread that reads the chunks, which must not wait, and the
// recording, which may. When it is full, the chunks are not read: the pools fill, and each thread counts the
// records that find no room.

#[derive(Debug)]
pub(crate) struct Spool {
    inner: Mutex<Inner>,
    limit: usize,
}

#[derive(Debug, Default)]
struct Inner {
    batches: VecDeque<Batch>,
    units: usize,
    /// Units of all batches that were ever added.
    added: u64,
    /// Buffers to be used again.
    free: Vec<Vec<Unit>>,
}

const MAX_BYTES: usize = 1 << 30;
/// Maximum fraction of the machine's memory in the queue.
const MEMORY_FRACTION: usize = 8;
/// Maximum number and size of free buffers: the queue's limit counts units, not buffers.
const MAX_FREE: usize = 64;
const MAX_FREE_UNITS: usize = 1 << 16;

impl Spool {
    /// Creates a queue with as much room as this machine can spare.
    pub(crate) fn new() -> Self {
        Self::with_room(units_in_memory(MEMORY_FRACTION, MAX_BYTES))
    }

    /// Creates a queue with room for `limit` units.
    pub(crate) fn with_room(limit: usize) -> Self {
        Self { inner: Mutex::default(), limit }
    }

    /// Whether nothing more should be drained.
    pub(crate) fn is_full(&self) -> bool {
        self.lock().units >= self.limit
    }

    /// Whether it is so full that it must be emptied even if there is backpressure.
    pub(crate) fn is_half_full(&self) -> bool {
        self.lock().units >= self.limit / 2
    }

    /// Returns the number of units that were ever added.
    pub(crate) fn added(&self) -> u64 {
        self.lock().added
    }

    pub(crate) fn push(&self, batch: Batch) {
        let units = batch.units();
        let mut inner = self.lock();
        inner.units += units;
        inner.added += units as u64;
        inner.batches.push_back(batch);
    }

    /// Takes the oldest batch, and returns free buffers to the queue.
    pub(crate) fn pop(&self, free: Vec<Vec<Unit>>) -> Option<Batch> {
        let mut inner = self.lock();
        let room = MAX_FREE.saturating_sub(inner.free.len());
        let small = free.into_iter().filter(|buffer| buffer.capacity() <= MAX_FREE_UNITS);
        inner.free.extend(small.take(room));
        let batch = inner.batches.pop_front()?;
        inner.units -= batch.units();
        Some(batch)
    }

    /// Whether no batch is in the queue.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().batches.is_empty()
    }

    pub(crate) fn buffer(&self) -> Vec<Unit> {
        let mut buffer = self.lock().free.pop().unwrap_or_default();
        buffer.clear();
        buffer
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }
}

/// Returns the number of units in a fraction of the machine's memory, or in `max_bytes` if that is less.
pub(crate) fn units_in_memory(fraction: usize, max_bytes: usize) -> usize {
    memory_bytes().map_or(max_bytes, |all| (all / fraction).min(max_bytes)) / size_of::<Unit>()
}

/// The size of the machine's memory.
pub(crate) fn memory_bytes() -> Option<usize> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix(" kB")?.parse::<usize>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::{super::batch::Chunk, *};

    fn batch(units: usize) -> Batch {
        Batch { chunks: vec![(0, Chunk::Units(vec![[0, 0]; units]))], ..Batch::default() }
    }

    #[test]
    fn the_queue_fills_by_units_and_empties_in_order() {
        let spool = Spool::with_room(10);
        spool.push(batch(4));
        assert!(!spool.is_full() && !spool.is_half_full());
        spool.push(batch(6));
        assert!(spool.is_full() && spool.is_half_full());
        assert_eq!(spool.pop(vec![Vec::with_capacity(7)]).unwrap().units(), 4);
        assert!(!spool.is_full());
        assert_eq!(spool.buffer().capacity(), 7);
        assert_eq!(spool.pop(vec![]).unwrap().units(), 6);
        assert!(spool.pop(vec![]).is_none() && spool.is_empty());
        assert_eq!(spool.added(), 10);
    }

    #[test]
    fn this_machine_has_memory() {
        assert!(memory_bytes().unwrap() > 16 << 20);
    }
}
