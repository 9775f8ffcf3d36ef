//! The pass over the events: each goes to the state of its lock, and what ends there leaves.
//!
//! Nothing that happens to one lock touches another, but for lost events, which end all that is open. Time is that of
//! the trace; of the events of a lock, one that comes late counts as of the time of the one before it.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use trace_format::{EventKind, EventRow, LockId};

use super::{
    Counts, HoldState, Outcome, Rules, Sink,
    lock_state::{At, LockState, Rest},
};

/// Turns events into holds and waits.
#[derive(Debug)]
pub struct Engine {
    rules: Arc<Rules>,
    slots: Slots,
    /// Of locks on which something is open, and of none: those are used again.
    states: Vec<LockState>,
    unused: Vec<u32>,
    last_loss_ns: Option<i64>,
    counts: Counts,
}

impl Engine {
    /// An engine at the begin of a trace.
    pub fn new(rules: impl Into<Arc<Rules>>) -> Self {
        Self::of_shard(rules, 1)
    }

    /// An engine that will see only locks whose ids are the same modulo `shards`, and losses.
    pub(crate) fn of_shard(rules: impl Into<Arc<Rules>>, shards: usize) -> Self {
        let rules = rules.into();
        let slots = Slots::new(rules.locks.len(), shards);
        let (states, unused) = (Vec::new(), Vec::new());
        Self { rules, slots, states, unused, last_loss_ns: None, counts: Counts::default() }
    }

    /// Takes the next event of the trace.
    pub fn push(&mut self, event: &impl EventRow, sink: &mut impl Sink) {
        let (kind, ts_ns) = (event.kind(), event.ts_ns());
        if kind == EventKind::Lost {
            return self.lost(ts_ns, sink);
        }
        let Some(lock) = event.lock() else { return };
        let slot = self.slots.of(lock);
        let state = match slot.live {
            Some(live) => live,
            None => {
                slot.rest.now_ns = slot.rest.now_ns.max(ts_ns);
                match kind {
                    EventKind::Init => return slot.rest.whole = true,
                    // Nothing is open that these could end.
                    EventKind::Destroy | EventKind::Wake | EventKind::OffCpu | EventKind::Lost => return,
                    _ if event.task().is_none() => return,
                    EventKind::TryFail => return self.counts.try_failures += 1,
                    EventKind::Release => {
                        let mode = event.mode().unwrap_or(trace_format::Mode::Exclusive);
                        self.counts.unpaired_releases += u64::from(self.rules.measures(lock, mode));
                        return;
                    }
                    EventKind::Wait | EventKind::Acquire | EventKind::Abandon => {}
                }
                let live = self.unused.pop().unwrap_or_else(|| {
                    self.states.push(LockState::default());
                    // Ids are 31 bits wide, and there are no more states than ids.
                    (self.states.len() - 1) as u32
                });
                self.states[live as usize].begin(lock, slot.rest, self.rules.measures_holds(lock));
                slot.live = Some(live);
                live
            }
        };
        let open = &mut self.states[state as usize];
        open.advance(ts_ns, &mut self.counts, sink);
        match (kind, event.task()) {
            (EventKind::Destroy, _) => open.destroy(ts_ns, &mut self.counts, sink),
            (EventKind::Init, _) => open.init(),
            (_, Some(task)) => {
                let (rules, last_loss_ns) = (&*self.rules, self.last_loss_ns);
                let mut at = At { lock, task, event, rules, last_loss_ns, counts: &mut self.counts, sink };
                match kind {
                    EventKind::Wait => open.wait(&mut at),
                    EventKind::Acquire => open.acquire(&mut at),
                    EventKind::Abandon => open.abandon(&mut at),
                    EventKind::TryFail => at.counts.try_failures += 1,
                    EventKind::Release => open.release(&mut at),
                    _ => {}
                }
            }
            (_, None) => {}
        }
        if let Some(rest) = open.rest() {
            *slot = Slot { rest, live: None, ..*slot };
            self.unused.push(state);
        }
    }

    /// Ends the trace at `end_ns`: what is still open leaves as such.
    pub fn finish(mut self, end_ns: i64, sink: &mut impl Sink) -> Counts {
        self.cut(end_ns, HoldState::OpenAtEnd, Outcome::OpenAtEnd, sink);
        self.counts
    }

    fn lost(&mut self, ts_ns: i64, sink: &mut impl Sink) {
        self.counts.losses += 1;
        self.last_loss_ns = Some(ts_ns);
        self.cut(ts_ns, HoldState::CutByLoss, Outcome::CutByLoss, sink);
    }

    /// Ends what is open, in the order of the locks, and forgets what was known of all.
    fn cut(&mut self, end_ns: i64, hold_state: HoldState, outcome: Outcome, sink: &mut impl Sink) {
        self.slots.forget();
        self.unused.clear();
        let mut open = std::mem::take(&mut self.states);
        open.retain(|state| state.rest().is_none());
        open.sort_unstable_by_key(|state| state.lock);
        for mut state in open {
            state.cut(end_ns, hold_state, outcome, &mut self.counts, sink);
        }
    }
}

/// What is known of each lock, by id. Most of the time nothing is open on most locks, so this is small.
#[derive(Debug)]
struct Slots {
    /// Of the locks that the trace has, every so many.
    stride: Stride,
    locks: u32,
    dense: Vec<Slot>,
    /// Of locks that the side table does not have.
    others: FxHashMap<LockId, Slot>,
    /// How often all was forgotten.
    age: u32,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    rest: Rest,
    /// Where its state is, if anything is open.
    live: Option<u32>,
    age: u32,
}

impl Slots {
    fn new(locks: usize, stride: usize) -> Self {
        let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let (stride, locks) = (Stride::of(small(stride).max(1)), small(locks));
        Self { stride, locks, dense: Vec::new(), others: FxHashMap::default(), age: 0 }
    }

    #[inline]
    fn of(&mut self, lock: LockId) -> &mut Slot {
        let age = self.age;
        let unseen =
            Slot { rest: Rest { now_ns: i64::MIN, last_owner: None, whole: false }, live: None, age };
        let slot = match u32::try_from(lock.0) {
            Ok(id) if id < self.locks => {
                let at = self.stride.quotient(id) as usize;
                if at >= self.dense.len() {
                    self.dense.resize(at + 1, unseen);
                }
                &mut self.dense[at]
            }
            _ => self.others.entry(lock).or_insert(unseen),
        };
        if slot.age != age {
            *slot = unseen;
        }
        slot
    }

    fn forget(&mut self) {
        self.others.clear();
        self.age = self.age.wrapping_add(1);
        if self.age == 0 {
            self.dense.clear();
        }
    }
}

/// A divisor of lock ids. Every event has one, and a division takes as long as all else that is done to find its lock.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stride {
    /// A power of two.
    Shift(u32),
    /// Any other.
    By(u32),
}

impl Stride {
    /// `by` must not be 0.
    pub(crate) fn of(by: u32) -> Self {
        if by.is_power_of_two() { Self::Shift(by.trailing_zeros()) } else { Self::By(by) }
    }

    #[inline]
    fn quotient(self, id: u32) -> u32 {
        match self {
            Self::Shift(shift) => id >> shift,
            Self::By(by) => id / by,
        }
    }

    #[inline]
    pub(crate) fn remainder(self, id: u32) -> u32 {
        match self {
            Self::Shift(shift) => id & ((1 << shift) - 1),
            Self::By(by) => id % by,
        }
    }
}
