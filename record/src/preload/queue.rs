//! The queue of new processes to the thread that drains them, and the state that this thread shares with the others.

use std::{
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use super::{batch::ProcessImage, budget::Ledger, region::Region};

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
    pub(super) ledger: Arc<Ledger>,
    new: Mutex<Vec<NewProcess>>,
    /// The processes that joined, until they are asked for.
    joined: Mutex<Vec<u32>>,
    stop: AtomicBool,
    done: AtomicBool,
    /// At the last round, pools filled faster than they were read.
    backpressure: AtomicBool,
    /// Events of threads that found no slot.
    pub(super) unrecorded: AtomicU64,
    /// Processes that could not read the clock any more.
    pub(super) clockless: AtomicU64,
    pub(super) invalid_slots: AtomicU64,
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
        self.joined.lock().unwrap_or_else(PoisonError::into_inner).push(process.image.pid);
        self.new.lock().unwrap_or_else(PoisonError::into_inner).push(process);
    }

    /// Takes the processes that were added since the last call.
    pub(super) fn take(&self) -> Vec<NewProcess> {
        std::mem::take(&mut *self.new.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the PIDs of the processes that joined since the last call.
    pub(crate) fn take_joined(&self) -> Vec<u32> {
        std::mem::take(&mut *self.joined.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Requests the last drain: no process records anything after it.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
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

    /// Counts what the region of a process whose recording ends says about it. A process may claim any number of events.
    pub(super) fn count_lost_in(&self, region: &Region) {
        const MAX: u64 = 1 << 40;
        count(&self.unrecorded, region.unrecorded_events().min(MAX));
        count(&self.clockless, region.is_clockless().into());
    }
}

/// Adds to a counter.
pub(super) fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}
