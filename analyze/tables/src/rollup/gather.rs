//! Adds up the intervals of one reader by period and key, while the trace is read.
//!
//! A hold counts in the period in which it ends. Its time is split over the periods that it spans: with
//! periods of 100 ns, a hold from 80 to 230 has its 150 ns in `total` of the period of 200, and 20, 100 and
//! 30 ns in `holding` of three periods.

use rustc_hash::FxHashMap;
use trace_format::LockId;

use super::keys::{Aligns, LocalKey};
use crate::{
    blame::{self, BlameKey, BlameSums, Shares},
    buckets::bucket,
    cells::Cells,
    frame::{Sums as _, sums},
    key::{Ids, Subject},
    report::{HoldStates, HoldSums, StateSums, read_states},
    spans::{LastPeriod, Periods},
};
use intervals::{
    engine::Rules,
    input::Input,
    input::trust::TrustCounter,
    items::{Columns, Hold, HoldState, Item, Needs, Outcome, Sink, Wait},
};
use output::error::AnalyzeError;

sums! {
    /// The times of intervals, split over the periods that they span.
    pub(super) struct SpanSums {
        waiting_ns: Sum,
        holding_ns: Sum,
        /// 1 if holds of any of the locks in these times are recorded.
        measured: Max,
    }
}

/// The sums of a key in a period: the sums of a report, and the times in the period.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FactSums {
    pub(super) holds: HoldSums,
    pub(super) spans: SpanSums,
}

impl FactSums {
    pub(super) fn merge(&mut self, other: &Self) {
        self.holds.merge(&other.holds);
        self.spans.merge(&other.spans);
    }
}

/// The sums of each key in each period.
pub(super) type Facts = FxHashMap<(i64, LocalKey), FactSums>;
/// The states of the holders of each key in each period while others waited; `None` if off-CPU times were not
/// recorded.
pub(super) type States = Option<FxHashMap<(i64, LocalKey), StateSums>>;
/// The counts of each key in each long period, by bucket: of holds and of waits.
pub(super) type Buckets = FxHashMap<(i64, LocalKey), [FxHashMap<u32, i64>; 2]>;

/// The sums of all readers.
#[derive(Default)]
pub(super) struct Gathered {
    pub(super) facts: Facts,
    pub(super) buckets: Buckets,
    pub(super) blame: Vec<(BlameKey, BlameSums)>,
}

impl Gathered {
    /// Adds the sums of a reader. Returns what it counted for the trust block.
    pub(super) fn add(&mut self, reader: Gather<'_>) -> TrustCounter {
        let Gather { keys, facts, buckets, shares, trust, .. } = reader;
        for ((period, key), sums) in facts {
            self.facts.entry((period, keys.key(key))).or_default().merge(&sums);
        }
        for ((period, key), counts) in buckets {
            let all = self.buckets.entry((period, keys.key(key))).or_default();
            for (all, counts) in all.iter_mut().zip(counts) {
                counts.into_iter().for_each(|(bucket, n)| *all.entry(bucket).or_default() += n);
            }
        }
        self.blame.extend(shares.finish().0);
        trust
    }
}

/// Reads a trace again for the states of its holders, if off-CPU times were recorded. They count where the
/// holds do.
pub(super) fn states(input: &Input<'_>, periods: Periods, aligns: &Aligns) -> Result<States, AnalyzeError> {
    if !input.has_holder_states()? {
        return Ok(None);
    }
    let row = move |hold: &Hold| {
        let counts = input.selection.selects_hold(hold) && hold.is_credited();
        counts.then(|| (periods.number(hold.end_ns), LocalKey::of(hold, &input.names, aligns)))
    };
    read_states(input, HoldStates::new(row)).map(Some)
}

/// The sums of one reader.
pub(super) struct Gather<'a> {
    input: &'a Input<'a>,
    rules: &'a Rules,
    aligns: &'a Aligns,
    /// The start and the end of what is read.
    window: (i64, i64),
    periods: LastPeriod,
    long_periods: LastPeriod,
    keys: Cells<(), LocalKey>,
    /// By period and index of the key.
    facts: FxHashMap<(i64, u32), FactSums>,
    buckets: FxHashMap<(i64, u32), [FxHashMap<u32, i64>; 2]>,
    shares: Shares<'a>,
    trust: TrustCounter,
}

impl<'a> Gather<'a> {
    pub(super) fn new(
        input: &'a Input<'a>,
        rules: &'a Rules,
        aligns: &'a Aligns,
        window: (i64, i64),
        [periods, long_periods]: [Periods; 2],
    ) -> Self {
        Self {
            input,
            rules,
            aligns,
            window,
            periods: LastPeriod::new(periods),
            long_periods: LastPeriod::new(long_periods),
            keys: Cells::new(Ids::LockAndStack, &input.names),
            facts: FxHashMap::default(),
            buckets: FxHashMap::default(),
            shares: Shares::new(blame::By::Pair, input).by_period(long_periods),
            trust: TrustCounter::default(),
        }
    }

    /// Returns the index of the key of an interval.
    #[inline]
    fn key(&mut self, subject: Subject) -> u32 {
        self.keys.index(subject, |subject| LocalKey::of(subject, &self.input.names, self.aligns))
    }

    /// Returns the parts of an interval in the window, by period.
    fn parts(&self, start_ns: i64, end_ns: i64) -> impl Iterator<Item = (i64, i64)> + use<> {
        let (from_ns, to_ns) = self.window;
        self.periods.parts(start_ns.max(from_ns), end_ns.min(to_ns))
    }

    fn facts(&mut self, period: i64, key: u32) -> &mut FactSums {
        self.facts.entry((period, key)).or_default()
    }

    fn measured(&self, lock: LockId) -> i64 {
        i64::from(self.rules.measures_holds(lock))
    }
}

impl Sink for Gather<'_> {
    fn needs(&self) -> Needs {
        Needs { shares: true, ..Needs::columns(Columns::Peers) }
    }

    fn push(&mut self, item: Item<'_>) {
        match item {
            Item::Hold(hold) => self.hold(hold),
            Item::Wait(wait) => {
                self.shares.push(item);
                self.wait(wait);
            }
            _ => self.shares.push(item),
        }
    }
}

impl Gather<'_> {
    fn hold(&mut self, hold: &Hold) {
        let selection = &self.input.selection;
        if !selection.selects_hold_any_time(hold) {
            return;
        }
        let is_selected = selection.window.contains(hold.end_ns);
        if is_selected {
            self.trust.hold(hold);
        }
        let is_cut = hold.state == HoldState::CutByLoss;
        let is_split =
            matches!(hold.state, HoldState::Complete | HoldState::AcquisitionOnly | HoldState::OpenAtEnd);
        if !is_split && !(is_selected && (is_cut || hold.is_credited())) {
            return;
        }
        let (period, measured, key) =
            (self.periods.number(hold.end_ns), self.measured(hold.lock), self.key(hold.into()));
        if is_split {
            for (period, ns) in self.parts(hold.start_ns, hold.end_ns) {
                let spans = &mut self.facts(period, key).spans;
                spans.holding_ns = spans.holding_ns.saturating_add(ns);
                spans.measured |= measured;
            }
        }
        if is_selected && is_cut {
            self.facts(period, key).holds.cut_by_loss += 1;
        }
        if is_selected && hold.is_credited() {
            self.facts(period, key).holds.add(hold);
            let [holds, waits] =
                self.buckets.entry((self.long_periods.number(hold.end_ns), key)).or_default();
            if hold.state == HoldState::Complete {
                *holds.entry(bucket(hold.end_ns.saturating_sub(hold.start_ns))).or_default() += 1;
            }
            if let Some(wait_ns) = hold.wait_ns.filter(|_| hold.contended) {
                *waits.entry(bucket(wait_ns)).or_default() += 1;
            }
        }
    }

    fn wait(&mut self, wait: &Wait) {
        let selection = &self.input.selection;
        if !selection.selects_wait_any_time(wait) {
            return;
        }
        let is_selected = selection.window.contains(wait.end_ns);
        if is_selected {
            self.trust.wait(wait);
        }
        let (period, measured, key) =
            (self.periods.number(wait.end_ns), self.measured(wait.lock), self.key(wait.into()));
        // Waits that are open at the end have no column.
        if is_selected && matches!(wait.outcome, Outcome::Abandoned(_) | Outcome::CutByLoss) {
            self.facts(period, key).holds.add_wait(wait);
        }
        if wait.outcome == Outcome::CutByLoss {
            return;
        }
        for (period, ns) in self.parts(wait.start_ns, wait.start_ns.saturating_add(wait.wait_ns)) {
            let spans = &mut self.facts(period, key).spans;
            spans.waiting_ns = spans.waiting_ns.saturating_add(ns);
            spans.measured |= measured;
        }
    }
}
