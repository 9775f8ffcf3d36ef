//! The use of every lock, in sums of its holds and waits.
//!
//! The locks that a screen has room for are chosen by these sums, and most rules need no more than them.

use rustc_hash::FxHashMap;
use trace_format::{LockId, Mode, TaskId};

use crate::{
    cells::Cells,
    key::Ids,
    report::{CONVOY_MIN, queueing::LockQueue},
};
use intervals::{
    input::Input,
    input::selection::Selection,
    input::trust::TrustCounter,
    items::{Columns, Hold, HoldId, Item, Needs, Outcome, Polling, Sink, Wait},
};

/// The use of one lock. Holds without waits change the first fields alone, which are together: every hold of
/// a trace comes here.
#[derive(Debug)]
#[repr(C)]
pub(super) struct LockUse {
    /// Acquisitions, and how many of them shared the lock.
    pub(super) acquisitions: i64,
    pub(super) shared: i64,
    /// Acquisitions that waited.
    pub(super) contended: i64,
    /// Time with an open hold.
    pub(super) held_ns: i64,
    open_holds: i64,
    held_since_ns: i64,
    /// Convoys and overtaking.
    pub(super) queue: LockQueue,
    /// The selected waits, however they ended, in ns.
    pub(super) waited_ns: i64,
    /// The part of it in which the waiters were ready to run, without a CPU.
    pub(super) runq_ns: i64,
    /// The waits by task.
    pub(super) waiters: FxHashMap<TaskId, i64>,
    /// Time of exclusive waits charged to shared holds, and the other way round.
    pub(super) exclusive_by_shared_ns: i64,
    pub(super) shared_by_exclusive_ns: i64,
    /// Failed tries of tasks that polled for it, and the time in which they did, by task.
    pub(super) tries: i64,
    pub(super) polled: FxHashMap<TaskId, i64>,
    /// Hold time by task, once all holds are added.
    pub(super) held: FxHashMap<TaskId, i64>,
}

impl Default for LockUse {
    fn default() -> Self {
        Self {
            acquisitions: 0,
            shared: 0,
            contended: 0,
            held_ns: 0,
            open_holds: 0,
            held_since_ns: 0,
            queue: LockQueue::new(CONVOY_MIN.into()),
            waited_ns: 0,
            runq_ns: 0,
            waiters: FxHashMap::default(),
            exclusive_by_shared_ns: 0,
            shared_by_exclusive_ns: 0,
            tries: 0,
            polled: FxHashMap::default(),
            held: FxHashMap::default(),
        }
    }
}

impl LockUse {
    fn acquired(&mut self, hold: &Hold) {
        self.queue.acquired(hold);
        if hold.acquisitions > 1 {
            return;
        }
        if self.open_holds == 0 {
            self.held_since_ns = hold.start_ns;
        }
        self.open_holds += 1;
    }

    fn hold(&mut self, hold: &Hold) {
        self.queue.hold(hold);
        self.acquisitions += hold.acquisitions;
        self.shared += if hold.mode == Mode::Shared { hold.acquisitions } else { 0 };
        self.contended += i64::from(hold.contended);
        self.open_holds -= 1;
        if self.open_holds == 0 {
            let ns = hold.end_ns.saturating_sub(self.held_since_ns).max(0);
            self.held_ns = self.held_ns.saturating_add(ns);
        }
    }

    fn polled(&mut self, polling: &Polling) {
        self.tries += polling.tries;
        let ns = self.polled.entry(polling.task).or_default();
        *ns = ns.saturating_add(polling.end_ns.saturating_sub(polling.start_ns));
    }

    /// Returns the time of polling of all tasks.
    pub(super) fn polled_ns(&self) -> i64 {
        self.polled.values().copied().fold(0, i64::saturating_add)
    }

    /// Adds time of this many waits, each of this length.
    fn charge(&mut self, payer: Option<HoldId>, ns: i64, exclusive: i64, shared: i64) {
        let (sum, waits) = match payer {
            Some(payer) if payer.mode == Mode::Shared => (&mut self.exclusive_by_shared_ns, exclusive),
            Some(_) => (&mut self.shared_by_exclusive_ns, shared),
            None => return,
        };
        *sum = sum.saturating_add(ns.saturating_mul(waits));
    }
}

/// The locks of one reader.
pub struct Usage<'a> {
    selection: &'a Selection,
    by_lock: Cells<LockUse, LockId>,
    /// Hold time by lock and task.
    held: Cells<i64, (LockId, TaskId)>,
    pub(super) trust: TrustCounter,
}

impl<'a> Usage<'a> {
    pub(super) fn new(input: &'a Input<'_>) -> Self {
        let by_lock = Cells::new(Ids::Lock, &input.names);
        let held = Cells::new(Ids::TaskAndLock, &input.names);
        Self { selection: &input.selection, by_lock, held, trust: TrustCounter::default() }
    }

    /// Returns the locks that were used.
    pub(super) fn into_locks(self) -> Vec<(LockId, LockUse)> {
        let Self { mut by_lock, held, .. } = self;
        for ((lock, task), ns) in held.into_values() {
            by_lock.of(lock, |subject| subject.lock).held.insert(task, ns);
        }
        by_lock.into_values()
    }

    #[inline]
    fn of(&mut self, lock: LockId) -> &mut LockUse {
        self.by_lock.of(lock, |subject| subject.lock)
    }
}

impl Sink for Usage<'_> {
    fn needs(&self) -> Needs {
        Needs { acquired: true, shares: true, ..Needs::columns(Columns::Peers) }
    }

    fn push(&mut self, item: Item<'_>) {
        match item {
            Item::Acquired(hold) => self.of(hold.lock).acquired(hold),
            Item::WaitBegins(wait) => self.of(wait.lock).queue.wait_begins(wait),
            Item::Hold(hold) => self.hold(hold),
            Item::Wait(wait) => self.wait(wait),
            Item::Stretch(of) => {
                self.of(of.lock).charge(of.payer, of.ns, of.waits - of.shared_waits, of.shared_waits);
            }
            Item::Share(wait, share) => {
                let shared = i64::from(wait.mode == Mode::Shared);
                self.of(wait.lock).charge(share.payer, share.ns, 1 - shared, shared);
            }
            Item::Polled(polling) if self.selection.selects_polling(polling) => {
                self.of(polling.lock).polled(polling);
            }
            _ => {}
        }
    }
}

impl Usage<'_> {
    fn hold(&mut self, hold: &Hold) {
        if self.selection.selects_hold(hold) {
            self.trust.hold(hold);
        }
        let ns = self.held.of(hold, |subject| (subject.lock, subject.task));
        *ns = ns.saturating_add(hold.end_ns.saturating_sub(hold.start_ns));
        self.of(hold.lock).hold(hold);
    }

    fn wait(&mut self, wait: &Wait) {
        let is_selected = self.selection.selects_wait(wait);
        if is_selected {
            self.trust.wait(wait);
        }
        // Of a wait whose begin was not seen the length is not known.
        let is_whole = wait.gap_ns.is_some() || wait.outcome != Outcome::Acquired || wait.wait_ns > 0;
        let of_lock = self.of(wait.lock);
        of_lock.queue.wait(wait);
        if is_selected && is_whole {
            of_lock.waited_ns = of_lock.waited_ns.saturating_add(wait.wait_ns);
            of_lock.runq_ns = of_lock.runq_ns.saturating_add(wait.runq_ns.unwrap_or(0));
            let of_task = of_lock.waiters.entry(wait.task).or_default();
            *of_task = of_task.saturating_add(wait.wait_ns);
        }
    }
}
