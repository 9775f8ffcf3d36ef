//! The engine: passes each event to the state of its lock.
//!
//! Locks are independent, except that a `lost` event ends everything that is open. A late event of a lock
//! counts as if it had the time of the event before it.

use std::sync::Arc;

use trace_format::{EventKind, EventRow, LockId, LockRow, Mode, RunInfo};

use super::{
    charge::LockPayers,
    counts::Counts,
    deadlock::OpenLocks,
    ends::History,
    lock_state::{LockState, Step},
    rules::Rules,
    slots::Slots,
    tries::Tries,
};
use crate::items::{HoldState, Item, Outcome, Sink, TryFailure};

/// Turns events into holds and waits.
#[derive(Debug)]
pub struct Engine {
    rules: Arc<Rules>,
    slots: Slots,
    /// States of locks on which something is open, and free ones.
    states: Vec<LockState>,
    free: Vec<u32>,
    last_loss_ns: Option<i64>,
    counts: Counts,
    tries: Tries,
    /// The ends of threads and the signals of condition variables that were seen.
    history: History,
}

impl Engine {
    /// Returns an engine for a whole trace.
    pub fn new(rules: impl Into<Arc<Rules>>) -> Self {
        Self::of_shard(rules, 0)
    }

    /// Returns an engine for the locks whose ids are equal in this many low bits. It must see all losses.
    pub fn of_shard(rules: impl Into<Arc<Rules>>, shard_bits: u32) -> Self {
        let rules = rules.into();
        let slots = Slots::new(rules.locks(), shard_bits);
        let (states, free, history) = (Vec::new(), Vec::new(), History::default());
        let (counts, tries) = (Counts::default(), Tries::default());
        Self { rules, slots, states, free, last_loss_ns: None, counts, tries, history }
    }

    /// Adds the next lock of a recording that goes on, before its first event.
    pub fn add_lock(&mut self, info: &RunInfo, lock: &LockRow) {
        let rules = Arc::make_mut(&mut self.rules);
        rules.add_lock(info, lock);
        self.slots.set_locks(rules.locks());
    }

    /// Adds the next event of the trace.
    pub fn push(&mut self, event: &impl EventRow, sink: &mut impl Sink) {
        let (kind, ts_ns) = (event.kind(), event.ts_ns());
        if kind == EventKind::Lost {
            return self.lost(ts_ns, event.count().unwrap_or(0), sink);
        }
        let Some(lock) = event.lock() else { return };
        if let (EventKind::Wake | EventKind::Init, Some(task), Some(ends_by)) =
            (kind, event.task(), self.rules.of(lock).ends_by)
        {
            self.history.add(kind, ends_by, (lock, task, ts_ns));
        }
        let slot = self.slots.of(lock);
        if kind == EventKind::TryFail || !self.tries.is_empty() {
            // A task that has a semaphore asks with a try whether it has it, as Python does.
            let has_it = |at: u32| self.states[at as usize].has_hold_of(event.task());
            let is_question = kind == EventKind::TryFail && self.rules.of(lock).is_semaphore;
            if !is_question || !slot.open.is_some_and(has_it) {
                self.tries.push(event, lock, sink);
            }
        }
        let state = match slot.open {
            Some(open) => open,
            None => {
                slot.idle.now_ns = slot.idle.now_ns.max(ts_ns);
                match kind {
                    EventKind::Init => return slot.idle.complete = true,
                    // Nothing is open that these events could end.
                    EventKind::Destroy | EventKind::Wake | EventKind::OffCpu | EventKind::Lost => return,
                    _ if event.task().is_none() => return,
                    EventKind::TryFail => return try_failed(event, &mut self.counts, sink),
                    EventKind::Release => {
                        let mode = event.mode().unwrap_or(Mode::Exclusive);
                        self.counts.unpaired_releases += u64::from(self.rules.of(lock).measures(mode));
                        return;
                    }
                    EventKind::Wait | EventKind::Acquire | EventKind::Abandon => {}
                }
                let open = self.free.pop().unwrap_or_else(|| {
                    self.states.push(LockState::default());
                    // Ids are 31 bits wide, and there are no more states than ids.
                    (self.states.len() - 1) as u32
                });
                self.states[open as usize].begin(lock, slot.idle, &self.rules);
                slot.open = Some(open);
                open
            }
        };
        let open = &mut self.states[state as usize];
        if !open.simple.is_some_and(|simple| open.end_simple(lock, simple, event, sink)) {
            open.unfold_simple();
            open.advance(ts_ns, &mut self.counts, sink);
            match (kind, event.task()) {
                (EventKind::Destroy, _) => open.destroy(ts_ns, &mut self.counts, sink),
                (EventKind::Init, _) => open.init(),
                (_, Some(task)) => {
                    let (rules, last_loss_ns) = (&*self.rules, self.last_loss_ns);
                    let mut step =
                        Step { lock, task, event, rules, last_loss_ns, counts: &mut self.counts, sink };
                    match kind {
                        EventKind::Wait => open.wait(&mut step),
                        EventKind::Acquire => open.acquire(&mut step),
                        EventKind::Abandon => open.abandon(&mut step),
                        EventKind::TryFail => try_failed(event, step.counts, step.sink),
                        EventKind::Release => open.release(&mut step),
                        _ => {}
                    }
                }
                (_, None) => {}
            }
        }
        if let Some(idle) = open.idle() {
            (slot.idle, slot.open) = (idle, None);
            self.free.push(state);
        }
    }

    /// Returns the payers of a lock's waits from its last event on, after all events of that nanosecond.
    /// `None` for an idle lock.
    pub fn payers(&mut self, lock: LockId, sink: &mut impl Sink) -> Option<LockPayers> {
        let open = self.slots.of(lock).open?;
        let state = &mut self.states[open as usize];
        state.unfold_simple();
        state.settle(&mut self.counts, sink);
        Some(state.payers())
    }

    /// Returns what is open now, in the order of the locks.
    pub fn open_locks(&self) -> OpenLocks {
        let mut states: Vec<&LockState> = self.states.iter().filter(|state| state.idle().is_none()).collect();
        states.sort_unstable_by_key(|state| state.lock);
        let mut open = OpenLocks::default();
        states.into_iter().for_each(|state| state.add_open(&mut open, &self.history));
        open.ended.clone_from(&self.history.ended);
        open.created.clone_from(&self.history.created);
        open.children = Arc::clone(self.rules.children());
        open
    }

    /// Ends the trace at `end_ns`: emits what is still open.
    pub fn finish(mut self, end_ns: i64, sink: &mut impl Sink) -> Counts {
        self.tries.end_all(sink);
        self.cut(end_ns, HoldState::OpenAtEnd, Outcome::OpenAtEnd, sink);
        self.counts
    }

    fn lost(&mut self, ts_ns: i64, count: i64, sink: &mut impl Sink) {
        self.counts.losses += 1;
        self.last_loss_ns = Some(ts_ns);
        sink.push(Item::Lost { ts_ns, count });
        self.tries.end_all(sink);
        self.cut(ts_ns, HoldState::CutByLoss, Outcome::CutByLoss, sink);
    }

    /// Ends everything that is open, in the order of the locks, and forgets all locks.
    fn cut(&mut self, end_ns: i64, hold_state: HoldState, outcome: Outcome, sink: &mut impl Sink) {
        self.slots.clear();
        self.free.clear();
        let mut open = std::mem::take(&mut self.states);
        open.retain(|state| state.idle().is_none());
        open.sort_unstable_by_key(|state| state.lock);
        for mut state in open {
            state.cut(end_ns, hold_state, outcome, &mut self.counts, sink);
        }
    }
}

/// Reports an attempt that failed.
fn try_failed(event: &impl EventRow, counts: &mut Counts, sink: &mut impl Sink) {
    counts.try_failures += 1;
    if let (Some(lock), Some(task)) = (event.lock(), event.task()) {
        let (mode, ts_ns, stack) = (event.mode().unwrap_or(Mode::Exclusive), event.ts_ns(), event.stack());
        sink.push(Item::TryFailed(&TryFailure { lock, task, mode, ts_ns, stack }));
    }
}
