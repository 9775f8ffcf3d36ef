//! Adds up the intervals of a trace while it is read: one reader's intervals enter, sums by period and key leave.
//!
//! Holds end in the order of time, so nearly all sums are of the period before the last one: each key keeps the sums of one period at
//! hand, and looks for a table only when the period changes.

use rustc_hash::FxHashMap;
use trace_format::{LockId, StackId};

use super::{
    Options,
    clock::Clock,
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
    pub(super) fn add(&mut self, gather: Gather<'_>) -> TrustCounter {
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

/// Counts by bucket, in as few bytes as possible: every hold counts in another one, and those of all keys are to stay in the cache.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    /// The lowest 8 bits of each count.
    low: Vec<u8>,
    /// The rest of the counts that exceed these.
    high: FxHashMap<u32, i64>,
}

impl Counts {
    /// Counts a time in its bucket.
    #[inline]
    fn count(&mut self, ns: i64) {
        self.add(bucket(ns), 1);
    }

    #[inline]
    fn add(&mut self, bucket: u32, n: u8) {
        let at = bucket as usize;
        if self.low.len() <= at {
            self.low.resize(at + 1, 0);
        }
        let (sum, is_over) = self.low[at].overflowing_add(n);
        self.low[at] = sum;
        if is_over {
            *self.high.entry(bucket).or_default() += 1 << u8::BITS;
        }
    }

    fn merge(&mut self, other: &Self) {
        (0..).zip(&other.low).filter(|(_, n)| **n > 0).for_each(|(bucket, n)| self.add(bucket, *n));
        other.high.iter().for_each(|(bucket, n)| *self.high.entry(*bucket).or_default() += n);
    }

    /// Returns the counts above 0, with their buckets in order.
    pub(super) fn all(&self) -> impl Iterator<Item = (u32, i64)> {
        let count = |(bucket, low): (u32, &u8)| {
            (bucket, i64::from(*low) + self.high.get(&bucket).copied().unwrap_or(0))
        };
        (0..).zip(&self.low).map(count).filter(|(_, n)| *n > 0)
    }
}

/// The sums of a key in each period, those of the last one at hand.
#[derive(Default)]
struct ByPeriod<S> {
    period: i64,
    /// `None` before the first period.
    at_hand: Option<S>,
    others: FxHashMap<i64, S>,
}

impl<S: Default> ByPeriod<S> {
    #[inline]
    fn of(&mut self, period: i64) -> &mut S {
        if self.period != period {
            if let Some(sums) = self.at_hand.take() {
                self.others.insert(self.period, sums);
            }
            self.at_hand = self.others.remove(&period);
            self.period = period;
        }
        self.at_hand.get_or_insert_default()
    }

    fn all(self) -> impl Iterator<Item = (i64, S)> {
        let at_hand = self.at_hand.map(|sums| (self.period, sums));
        self.others.into_iter().chain(at_hand)
    }
}

/// The sums of one key.
struct OfKey {
    key: LocalKey,
    facts: ByPeriod<FactSums>,
    buckets: ByPeriod<[Counts; 2]>,
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
    /// The same by lock and stack, packed: nearly every interval has those of an earlier one.
    by_ids: FxHashMap<u64, u32>,
    keys: Vec<OfKey>,
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
            by_ids: FxHashMap::default(),
            keys: Vec::new(),
            shares,
            trust: TrustCounter::default(),
        }
    }

    #[inline]
    fn key(&mut self, lock: LockId, stack: Option<StackId>, subject: key::Subject) -> &mut OfKey {
        let stack = stack.map_or(u32::MAX, |stack| stack.0.cast_unsigned());
        let ids = u64::from(lock.0.cast_unsigned()) << 32 | u64::from(stack);
        let at = match self.by_ids.get(&ids) {
            Some(at) => *at,
            None => {
                let at = self.index_of(LocalKey::of(lock, subject, &self.input.names, self.aligns));
                *self.by_ids.entry(ids).or_insert(at)
            }
        };
        &mut self.keys[at as usize]
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
        let measured = i64::from(self.rules.measures_holds(hold.lock));
        let credited = is_selected && hold.is_credited();
        let is_split =
            matches!(hold.state, HoldState::Complete | HoldState::AcquisitionOnly | HoldState::OpenAtEnd);
        let is_cut = is_selected && hold.state == HoldState::CutByLoss;
        if !credited && !is_split && !is_cut {
            return;
        }
        let period = self.periods.number(hold.end_ns);
        let long_period = self.long_periods.number(hold.end_ns);
        let periods = self.periods;
        let of_key = self.key(hold.lock, hold.stack, hold.into());
        let (start_ns, end_ns) = (hold.start_ns.max(from_ns), hold.end_ns.min(to_ns));
        let mut here_ns = periods.inside(start_ns, end_ns).filter(|_| is_split);
        if is_split && here_ns.is_none() {
            for (part, ns) in periods.parts(start_ns, end_ns) {
                if part == period {
                    here_ns = Some(ns);
                } else {
                    of_key.facts.of(part).more.hold_for(ns, measured);
                }
            }
        }
        if here_ns.is_some() || is_cut || credited {
            // Nearly all holds have one period: it is looked for once.
            let facts = of_key.facts.of(period);
            here_ns.into_iter().for_each(|ns| facts.more.hold_for(ns, measured));
            facts.holds.cut_by_loss += i64::from(is_cut);
            if credited {
                facts.hold(hold);
            }
        }
        if credited {
            let counts = of_key.buckets.of(long_period);
            if hold.state == HoldState::Complete {
                counts[HOLD].count(hold.end_ns.saturating_sub(hold.start_ns));
            }
            if let Some(wait_ns) = hold.wait_ns.filter(|_| hold.contended) {
                counts[WAIT].count(wait_ns);
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
        let measured = i64::from(self.rules.measures_holds(wait.lock));
        let period = self.periods.number(wait.end_ns);
        let end_ns = wait.start_ns.saturating_add(wait.wait_ns);
        let parts = self.periods.parts(wait.start_ns.max(from_ns), end_ns.min(to_ns));
        let of_key = self.key(wait.lock, wait.stack, wait.into());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_beyond_8_bits_are_exact() {
        let mut counts = [Counts::default(), Counts::default()];
        for n in 0..200_000 {
            counts[n % 2].count(700);
            counts[0].count(if n % 3 == 0 { 5 } else { 1 << 40 });
        }
        let [mut all, other] = counts;
        all.merge(&other);
        let expected = [(bucket(5), 66_667), (bucket(700), 200_000), (bucket(1 << 40), 133_333)];
        assert_eq!(all.all().collect::<Vec<_>>(), expected);
    }
}
