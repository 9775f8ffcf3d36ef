//! The pass over the events: each goes to the state of its lock, and what ends there leaves.
//!
//! Nothing that happens to one lock touches another, but for lost events, which end all that is open. Time is that of
//! the trace; of the events of a lock, one that comes late counts as of the time of the one before it.

use rustc_hash::FxHashMap;
use trace_format::{Event, EventKind, LockId};

use super::{
    Counts, HoldState, Outcome, Rules, Sink,
    lock_state::{At, LockState},
};

/// Turns events into holds and waits.
#[derive(Debug)]
pub struct Engine {
    rules: Rules,
    locks: FxHashMap<LockId, LockState>,
    last_loss_ns: Option<i64>,
    counts: Counts,
}

impl Engine {
    /// An engine at the begin of a trace.
    pub fn new(rules: Rules) -> Self {
        Self { rules, locks: FxHashMap::default(), last_loss_ns: None, counts: Counts::default() }
    }

    /// Takes the next event of the trace.
    pub fn push(&mut self, event: &Event, sink: &mut impl Sink) {
        if event.kind == EventKind::Lost {
            return self.lost(event.ts_ns, sink);
        }
        let Some(lock) = event.lock else { return };
        let state = self
            .locks
            .entry(lock)
            .or_insert_with(|| LockState::new(event.ts_ns, self.rules.measures_holds(lock)));
        state.advance(event.ts_ns, &mut self.counts, sink);
        match event.kind {
            EventKind::Destroy => return state.destroy(event.ts_ns, &mut self.counts, sink),
            EventKind::Init => return state.init(),
            _ => {}
        }
        let Some(task) = event.task else { return };
        let mut at = At {
            lock,
            task,
            event,
            rules: &self.rules,
            last_loss_ns: self.last_loss_ns,
            counts: &mut self.counts,
            sink,
        };
        match event.kind {
            EventKind::Wait => state.wait(&mut at),
            EventKind::Acquire => state.acquire(&mut at),
            EventKind::Abandon => state.abandon(&mut at),
            EventKind::TryFail => at.counts.try_failures += 1,
            EventKind::Release => state.release(&mut at),
            EventKind::Wake | EventKind::Init | EventKind::Destroy | EventKind::OffCpu | EventKind::Lost => {}
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

    fn cut(&mut self, end_ns: i64, hold_state: HoldState, outcome: Outcome, sink: &mut impl Sink) {
        let mut open: Vec<(LockId, LockState)> = self.locks.drain().collect();
        open.sort_unstable_by_key(|(lock, _)| *lock);
        for (_, state) in open {
            state.cut(end_ns, hold_state, outcome, &mut self.counts, sink);
        }
    }
}
