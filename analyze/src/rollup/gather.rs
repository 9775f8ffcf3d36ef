//! Adds up the intervals of a trace while it is read: one reader's intervals enter, sums by period and key leave.
//!
//! Holds end in the order of time, so nearly all sums are of the period of the one before: each key keeps the sums of one period at
//! hand. Nearly all intervals also have the lock and the stack of an earlier one, and are as long as many others. Each of these has a
//! short path, because a report, which a rollup is compared with, looks for one row per hold and nothing else.

use rustc_hash::FxHashMap;
use trace_format::{LockId, StackId};

use super::{
    Options,
    by_pair::ByPair,
    clock::Clock,
    counts::Counts,
    keys::{Aligns, LocalKey},
    sums::FactSums,
};
use crate::{
    engine::{Hold, HoldState, Outcome, Rules, Share, Sink, Wait},
    input::{Input, trust::TrustCounter},
    tables::{
        blame::{self, BlameKey, BlameSums, Shares},
        buckets::bucket,
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
        gather.count_times();
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

/// The sums of a key in each period, those of the last one at hand.
#[derive(Default)]
struct ByPeriod<S> {
    /// `None` before the first period.
    period: Option<i64>,
    at_hand: S,
    others: FxHashMap<i64, S>,
}

impl<S: Default> ByPeriod<S> {
    #[inline]
    fn of(&mut self, period: i64) -> &mut S {
        if self.period != Some(period) {
            self.turn_to(period);
        }
        &mut self.at_hand
    }

    #[cold]
    fn turn_to(&mut self, period: i64) {
        let next = self.others.remove(&period).unwrap_or_default();
        let last = std::mem::replace(&mut self.at_hand, next);
        if let Some(last_period) = self.period.replace(period) {
            self.others.insert(last_period, last);
        }
    }

    fn all(self) -> impl Iterator<Item = (i64, S)> {
        self.others.into_iter().chain(self.period.map(|period| (period, self.at_hand)))
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

/// A time that is not counted yet.
#[derive(Clone, Copy)]
struct Time {
    /// The index of its key.
    key: u32,
    bucket: u32,
    /// [`HOLD`] or [`WAIT`].
    of: usize,
}

/// Number of times that are counted at once. Each one's count is elsewhere in memory; a processor fetches many at a time if nothing
/// else is between them.
const AT_ONCE: usize = 1024;

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
    /// Times of the last long period.
    times: Vec<Time>,
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
            times: Vec::with_capacity(AT_ONCE),
            shares,
            trust: TrustCounter::default(),
        }
    }

    /// Returns the index of the key of an interval.
    #[inline]
    fn key(&mut self, lock: LockId, stack: Option<StackId>, subject: impl FnOnce() -> key::Subject) -> u32 {
        match self.by_pair.get(lock, stack) {
            Some(at) => at,
            None => self.new_pair(lock, stack, subject()),
        }
    }

    #[cold]
    fn new_pair(&mut self, lock: LockId, stack: Option<StackId>, subject: key::Subject) -> u32 {
        let at = self.index_of(LocalKey::of(lock, subject, &self.input.names, self.aligns));
        self.by_pair.set(lock, stack, at);
        at
    }

    /// Counts the times so far. All are of the same long period.
    fn count_times(&mut self) {
        let long_period = self.long_periods.last();
        for Time { key, bucket, of } in self.times.drain(..) {
            self.keys[key as usize].buckets.of(long_period)[of].count(bucket);
        }
    }

    fn index_of(&mut self, key: LocalKey) -> u32 {
        // There are at most as many as locks times stacks that occur, whose intervals fill the memory earlier.
        let next = self.keys.len() as u32;
        let at = *self.index.entry(key).or_insert(next);
        if at == next {
            self.keys.push(OfKey { key, facts: ByPeriod::default(), buckets: ByPeriod::default() });
        }
        at
    }
}

impl Sink for Gather<'_> {
    const SHARES: bool = true;

    fn hold(&mut self, hold: &Hold) {
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
        let period = self.periods.number(hold.end_ns);
        let periods = self.periods;
        let measured = i64::from(self.rules.measures_holds(hold.lock));
        let key = self.key(hold.lock, hold.stack, || hold.into());
        let of_key = &mut self.keys[key as usize];
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
            if self.times.len() + 2 > AT_ONCE || !self.long_periods.is_last(hold.end_ns) {
                self.count_times();
                self.long_periods.number(hold.end_ns);
            }
            if hold.state == HoldState::Complete {
                let bucket = bucket(hold.end_ns.saturating_sub(hold.start_ns));
                self.times.push(Time { key, bucket, of: HOLD });
            }
            if let Some(wait_ns) = hold.wait_ns.filter(|_| hold.contended) {
                self.times.push(Time { key, bucket: bucket(wait_ns), of: WAIT });
            }
        }
    }

    fn wait(&mut self, wait: &Wait) {
        self.shares.wait(wait);
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
        let of_key = &mut self.keys[key as usize];
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

    fn share(&mut self, wait: &Wait, share: &Share) {
        self.shares.share(wait, share);
    }
}
