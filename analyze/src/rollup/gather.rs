//! Adds up the intervals of a trace while it is read: one reader's intervals enter, sums by period and key leave.
//!
//! Holds end in the order of time, so nearly all sums are of the period of the one before: each key keeps the sums of one period at
//! hand. Nearly all intervals also have the lock and the stack of an earlier one, and nearly all holds are [plain](super::plain). Each
//! of these has a short path, because a report, which a rollup is compared with, looks for one row per hold and nothing else.

use std::mem;

use rustc_hash::FxHashMap;
use trace_format::{LockId, StackId};

use super::{
    Options,
    by_period::ByPeriod,
    clock::Clock,
    counts::Counts,
    keys::{Aligns, LocalKey},
    plain::{Recent, Span},
    sums::FactSums,
};
use crate::{
    engine::Rules,
    input::{Input, trust::TrustCounter},
    items::{Columns, Hold, HoldState, Item, Needs, Outcome, Sink, Wait},
    tables::{
        blame::{self, BlameKey, BlameSums, Shares},
        buckets::bucket,
        by_pair::ByPair,
        key,
        spans::LastPeriod,
    },
};

/// The sums of each key in each period.
pub(super) type FactsOf = FxHashMap<(i64, LocalKey), FactSums>;
/// The counts of each key in each long period, by bucket: of holds and of waits.
pub(super) type BucketsOf = FxHashMap<(i64, LocalKey), [Counts; 2]>;

const HOLD: usize = 0;
const WAIT: usize = 1;

/// The sums of all readers.
#[derive(Default)]
pub(super) struct Gathered {
    pub(super) facts: FactsOf,
    pub(super) buckets: BucketsOf,
    pub(super) blame: Vec<(BlameKey, BlameSums)>,
}

impl Gathered {
    /// Adds the sums of a reader. Returns what it counted for the trust block.
    pub(super) fn add(&mut self, mut gather: Gather<'_>) -> TrustCounter {
        (0..gather.keys.len()).for_each(|key| gather.turn(key, None));
        for OfKey { key, facts, buckets } in gather.keys {
            for (period, sums) in facts.all() {
                self.facts.entry((period, key)).or_default().merge(&sums);
            }
            for (period, counts) in buckets.all() {
                let all = self.buckets.entry((period, key)).or_default();
                all.iter_mut().zip(&counts).for_each(|(all, counts)| all.merge(counts));
            }
        }
        self.blame.extend(gather.shares.sums);
        gather.trust
    }
}

/// The sums of one key.
struct OfKey {
    key: LocalKey,
    facts: ByPeriod<FactSums>,
    buckets: ByPeriod<[Counts; 2]>,
}

impl OfKey {
    /// Adds the parts of a hold to their periods, but for the part in `last`, which is returned.
    #[cold]
    fn hold_in_parts(
        &mut self,
        parts: impl Iterator<Item = (i64, i64)>,
        last: i64,
        measured: i64,
    ) -> Option<i64> {
        let mut last_ns = None;
        for (period, ns) in parts {
            if period == last {
                last_ns = Some(ns);
            } else {
                self.facts.of(period).more.hold_for(ns, measured);
            }
        }
        last_ns
    }
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
    /// Indices of keys.
    index: FxHashMap<LocalKey, u32>,
    /// The same by lock and stack: nearly every interval has those of an earlier one.
    by_pair: ByPair,
    keys: Vec<OfKey>,
    /// The plain holds of each key in a span that are not in its sums yet.
    recent: Vec<Recent>,
    /// The span of the last hold.
    span: Span,
    shares: Shares<'a>,
    trust: TrustCounter,
}

impl<'a> Gather<'a> {
    pub(super) fn new(
        input: &'a Input<'a>,
        rules: &'a Rules,
        aligns: &'a Aligns,
        window: (i64, i64),
        clock: Clock,
        options: &Options,
    ) -> Self {
        let long_periods = clock.periods(options.long_period_ns);
        let shares = Shares::new(blame::By::Pair, &input.names, &input.selection).by_period(long_periods);
        Self {
            input,
            rules,
            aligns,
            window,
            periods: LastPeriod::new(clock.periods(options.period_ns)),
            long_periods: LastPeriod::new(long_periods),
            index: FxHashMap::default(),
            by_pair: ByPair::new(&input.names),
            keys: Vec::new(),
            recent: Vec::new(),
            span: Span::EMPTY,
            shares,
            trust: TrustCounter::default(),
        }
    }

    /// Returns the index of the key of an interval.
    #[inline]
    fn key(&mut self, lock: LockId, stack: Option<StackId>, subject: impl FnOnce() -> key::Subject) -> usize {
        match self.by_pair.get(lock, stack) {
            Some(at) => at as usize,
            None => self.new_pair(lock, stack, subject()),
        }
    }

    #[cold]
    fn new_pair(&mut self, lock: LockId, stack: Option<StackId>, subject: key::Subject) -> usize {
        let at = self.index_of(LocalKey::of(lock, subject, &self.input.names, self.aligns));
        self.by_pair.set(lock, stack, at);
        at as usize
    }

    /// Adds a plain hold of the span.
    #[inline]
    fn plain_hold(&mut self, hold: &Hold) {
        let key = self.key(hold.lock, hold.stack, || hold.into());
        if !self.recent[key].is_of(&self.span) {
            self.turn(key, Some(self.span));
        }
        self.recent[key].add(hold);
    }

    /// Moves the plain holds of a key to its sums, and begins another span, if there is one.
    #[cold]
    fn turn(&mut self, key: usize, span: Option<Span>) {
        let (recent, of_key) = (&mut self.recent[key], &mut self.keys[key]);
        let (last_ns, sums) = recent.turn_to(span.unwrap_or(Span::EMPTY));
        if sums.count > 0 {
            of_key.facts.of(self.periods.all().number(last_ns)).add_plain(&sums);
        }
        let long_periods = self.long_periods.all();
        let long_period = long_periods.number(last_ns);
        if span.is_none_or(|span| long_periods.number(span.id_ns) != long_period) {
            of_key.buckets.of(long_period)[HOLD].merge(&mem::take(&mut recent.lengths));
        }
    }

    /// Turns to the span that has this time.
    #[cold]
    fn turn_to(&mut self, ns: i64) {
        self.span = Span::of(ns, [self.periods.all(), self.long_periods.all()], self.window);
    }

    /// Adds a hold of any kind.
    fn any_hold(&mut self, hold: &Hold) {
        let selection = &self.input.selection;
        if !selection.selects_hold_any_time(hold) {
            return;
        }
        let is_selected = selection.window.contains(hold.end_ns);
        if is_selected {
            self.trust.hold(hold);
        }
        let (from_ns, to_ns) = self.window;
        let credited = is_selected && hold.is_credited();
        let is_split =
            matches!(hold.state, HoldState::Complete | HoldState::AcquisitionOnly | HoldState::OpenAtEnd);
        let is_cut = is_selected && hold.state == HoldState::CutByLoss;
        if !credited && !is_split && !is_cut {
            return;
        }
        if !self.span.has(hold.end_ns) {
            self.turn_to(hold.end_ns);
        }
        let period = self.periods.number(hold.end_ns);
        let periods = self.periods;
        let measured = i64::from(self.rules.measures_holds(hold.lock));
        let key = self.key(hold.lock, hold.stack, || hold.into());
        let of_key = &mut self.keys[key];
        let (start_ns, end_ns) = (hold.start_ns.max(from_ns), hold.end_ns.min(to_ns));
        let mut here_ns = periods.inside(start_ns, end_ns).filter(|_| is_split);
        if is_split && here_ns.is_none() {
            here_ns = of_key.hold_in_parts(periods.parts(start_ns, end_ns), period, measured);
        }
        if here_ns.is_some() || is_cut || credited {
            // Nearly all holds have one period: it is looked for once.
            let facts = of_key.facts.of(period);
            if let Some(ns) = here_ns {
                facts.more.hold_for(ns, measured);
            }
            facts.holds.cut_by_loss += i64::from(is_cut);
            if credited {
                facts.hold(hold);
            }
        }
        if credited {
            let lengths = of_key.buckets.of(self.long_periods.number(hold.end_ns));
            if hold.state == HoldState::Complete {
                lengths[HOLD].count(bucket(hold.end_ns.saturating_sub(hold.start_ns)));
            }
            if let Some(wait_ns) = hold.wait_ns.filter(|_| hold.contended) {
                lengths[WAIT].count(bucket(wait_ns));
            }
        }
    }

    fn index_of(&mut self, key: LocalKey) -> u32 {
        // There are at most as many as locks times stacks that occur, whose intervals fill the memory earlier.
        let next = self.keys.len() as u32;
        let at = *self.index.entry(key).or_insert(next);
        if at == next {
            self.keys.push(OfKey { key, facts: ByPeriod::default(), buckets: ByPeriod::default() });
            self.recent.push(Recent::default());
        }
        at
    }
}

impl Sink for Gather<'_> {
    fn needs(&self) -> Needs {
        Needs { shares: true, ..Needs::columns(Columns::Peers) }
    }

    #[inline]
    fn push(&mut self, item: Item<'_>) {
        match item {
            Item::Hold(hold) => self.hold(hold),
            Item::Wait(wait) => {
                self.shares.push(item);
                self.wait(wait);
            }
            Item::Share(..) => self.shares.push(item),
            _ => {}
        }
    }
}

impl Gather<'_> {
    fn hold(&mut self, hold: &Hold) {
        // The trust block counts no plain holds.
        if hold.is_plain() && self.span.has_all(hold) {
            if self.input.selection.selects_hold(hold) {
                self.plain_hold(hold);
            }
        } else {
            self.any_hold(hold);
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
        let (from_ns, to_ns) = self.window;
        let period = self.periods.number(wait.end_ns);
        let end_ns = wait.start_ns.saturating_add(wait.wait_ns);
        let parts = self.periods.parts(wait.start_ns.max(from_ns), end_ns.min(to_ns));
        let measured = i64::from(self.rules.measures_holds(wait.lock));
        let key = self.key(wait.lock, wait.stack, || wait.into());
        let of_key = &mut self.keys[key];
        match wait.outcome {
            Outcome::CutByLoss if is_selected => of_key.facts.of(period).holds.cut_by_loss += 1,
            Outcome::CutByLoss => return,
            Outcome::Abandoned(_) if is_selected => of_key.facts.of(period).more.abandoned += 1,
            _ => {}
        }
        if wait.outcome != Outcome::CutByLoss {
            for (period, ns) in parts {
                of_key.facts.of(period).more.wait_for(ns, measured);
            }
        }
    }
}
