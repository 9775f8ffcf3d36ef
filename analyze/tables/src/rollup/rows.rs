//! The tables `facts`, `buckets` and `blame`: their columns, and their rows, which are sums by key with the
//! names of the keys.
//!
//! Values that were not measured are null, so every average has a denominator of its own. Buckets are the
//! buckets of `hist --buckets hdr`, so percentiles over a fleet are found by adding up counts.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use rustc_hash::FxHashMap;

use super::{
    gather::{Buckets, FactSums, Facts, States},
    keys::{self, Aligns, FactKey},
};
use crate::{
    blame::{BlameKey, BlameSums, By, Charged, parties},
    buckets::bucket_end,
    frame::Sums as _,
    hist::Of as Times,
    key::{By as KeyBy, Key},
    key_columns,
    report::{self, HoldSums, StateSums},
    spans::Periods,
};
use intervals::input::names::Names;
use output::{Column, Merge};

/// A key in a period.
#[derive(Clone, Debug)]
pub struct FactRow {
    /// The start of the period, in ns since 1970.
    pub period_ns: i64,
    /// The key.
    pub key: FactKey,
    pub(super) sums: FactSums,
    /// `None` if off-CPU times were not recorded.
    states: Option<StateSums>,
}

/// The times of one bucket of a key in a long period.
#[derive(Clone, Debug)]
pub struct BucketRow {
    /// The start of the period, in ns since 1970.
    pub period_ns: i64,
    /// The key, which many rows share.
    pub key: Arc<FactKey>,
    /// Holds or waits.
    pub of: Times,
    /// The longest time of the bucket, in ns.
    pub le_ns: i64,
    /// The number of holds or waits.
    pub n: i64,
}

/// A holder and a waiter in a long period.
#[derive(Clone, Debug)]
pub struct BlameRow {
    /// The start of the period in which the waits ended, in ns since 1970.
    pub period_ns: i64,
    /// The party that the time is charged to; `None` for what `--keys` cuts off.
    pub charged_to: Option<Charged>,
    /// The site at which the holder acquired the lock; without a hold, the class of the lock alone.
    pub holder: Option<Key>,
    /// The site at which the others waited.
    pub waiter: Option<Key>,
    sums: BlameSums,
}

/// Names keys, and merges those that `--keys` cuts off.
pub(super) struct Naming<'a> {
    pub(super) names: &'a Names,
    pub(super) aligns: &'a Aligns,
    /// The number of keys in each period.
    pub(super) keys: Option<usize>,
}

impl Naming<'_> {
    pub(super) fn facts(&self, facts: Facts, states: States, periods: Periods) -> Vec<FactRow> {
        let has_states = states.is_some();
        let states = states.into_iter().flatten().map(|(key, states)| (key, (FactSums::default(), states)));
        let facts = facts.into_iter().map(|(key, sums)| (key, (sums, StateSums::default())));
        let named = |((period, key), sums)| ((period, self.aligns.name(key, self.names)), sums);
        let weight = |(FactSums { holds, spans }, _): &(FactSums, StateSums)| {
            (holds.wait_total_ns, spans.waiting_ns, holds.total_ns, holds.count)
        };
        let merge = |(all, all_states): &mut (FactSums, StateSums), (sums, states): (FactSums, StateSums)| {
            all.merge(&sums);
            all_states.merge(&states);
        };
        let rows = facts.chain(states).map(named);
        let rows = keys::cut(rows, merge, weight, self.keys, FactKey::others());
        let row = |((period, key), (sums, states))| {
            let states = has_states.then_some(states);
            FactRow { period_ns: periods.offset_ns(period), key, sums, states }
        };
        rows.into_iter().map(row).collect()
    }

    pub(super) fn buckets(&self, buckets: Buckets, periods: Periods) -> Vec<BucketRow> {
        type Counts = BTreeMap<(Times, u32), i64>;
        let named = |((period, key), [holds, waits]): (_, [FxHashMap<u32, i64>; 2])| {
            let holds = holds.into_iter().map(|(bucket, n)| ((Times::Hold, bucket), n));
            let waits = waits.into_iter().map(|(bucket, n)| ((Times::Wait, bucket), n));
            let counts: Counts = holds.chain(waits).collect();
            ((period, self.aligns.name(key, self.names)), counts)
        };
        let weight = |counts: &Counts| {
            let all = |of| counts.iter().filter(|((times, _), _)| *times == of).map(|(_, n)| n).sum::<i64>();
            (all(Times::Wait), all(Times::Hold))
        };
        let merge = |all: &mut Counts, other: Counts| {
            other.into_iter().for_each(|(bucket, n)| *all.entry(bucket).or_default() += n);
        };
        let rows = buckets.into_iter().map(named);
        let rows = keys::cut(rows, merge, weight, self.keys, FactKey::others());
        let row = |((period, key), counts): ((i64, FactKey), Counts)| {
            let (period_ns, key) = (periods.offset_ns(period), Arc::new(key));
            counts.into_iter().map(move |((of, bucket), n)| {
                let le_ns = bucket_end(bucket);
                BucketRow { period_ns, key: Arc::clone(&key), of, le_ns, n }
            })
        };
        rows.into_iter().flat_map(row).collect()
    }

    pub(super) fn blame(&self, found: Vec<(BlameKey, BlameSums)>, periods: Periods) -> Vec<BlameRow> {
        /// The parties of a row; none for what is cut off.
        type Parties = Option<(Charged, Option<Key>, Option<Key>)>;
        let named = |(key, sums): (BlameKey, BlameSums)| {
            let [holder, waiter] =
                parties(By::Pair, key, self.names).map(|key| key.map(|key| Key::of(key, self.names)));
            ((key.period, Some((key.charged, holder, waiter))), sums)
        };
        let weight = |sums: &BlameSums| (sums.wait_caused_ns, sums.shares);
        let found = found.into_iter().map(named);
        let cut = keys::cut(found, |all: &mut BlameSums, sums| all.merge(&sums), weight, self.keys, None);
        let mut rows: Vec<((i64, Parties), BlameSums)> = cut.into_iter().collect();
        // In each period, the rows with the most waiting come first, and the row of all that were cut off
        // comes last.
        rows.sort_by_key(|((period, parties), sums)| (*period, parties.is_none(), Reverse(weight(sums))));
        let row = |((period, parties), sums): ((i64, Parties), BlameSums)| {
            let period_ns = periods.offset_ns(period);
            let (charged_to, holder, waiter) = match parties {
                Some((charged, holder, waiter)) => (Some(charged), holder, waiter),
                None => (None, None, None),
            };
            BlameRow { period_ns, charged_to, holder, waiter, sums }
        };
        rows.into_iter().map(row).collect()
    }
}

/// A value of a row of `facts`: one of all acquisitions, or null where holds, waits or their parts were not
/// measured.
impl FactRow {
    fn held(&self, of: impl Fn(&HoldSums) -> i64) -> Option<i64> {
        (self.sums.holds.measured > 0).then(|| of(&self.sums.holds))
    }

    fn waited(&self, of: impl Fn(&HoldSums) -> i64) -> Option<i64> {
        (self.sums.holds.waits_known > 0).then(|| of(&self.sums.holds))
    }

    fn parted(&self, of: impl Fn(&HoldSums) -> i64) -> Option<i64> {
        (self.sums.holds.parted > 0).then(|| of(&self.sums.holds))
    }
}

const PERIOD: &str = "Start of the period, in ns since 1970 (UTC).";

/// Declares the columns of `facts`.
pub(super) fn fact_columns() -> Vec<Column<FactRow>> {
    type Of = Column<FactRow>;
    type Get = fn(&FactRow) -> Option<i64>;
    const COUNTS: [(&str, Get, &str); 9] = [
        ("count", |row| Some(row.sums.holds.count), "Acquisitions."),
        ("hold_count", |row| Some(row.sums.holds.measured), "Measured holds: the denominator of total."),
        ("wait_count", |row| Some(row.sums.holds.waits_known), "Holds whose wait is known, even if it is 0."),
        ("cnt_lock", |row| Some(row.sums.holds.cnt_lock), "Contended acquisitions."),
        ("cnt_hold", |row| row.held(|s| s.cnt_hold), "Waits of others that began during a hold."),
        (
            "holds_contended",
            |row| row.held(|s| s.holds_contended),
            "Holds in which another task began to wait.",
        ),
        (
            "owner_changes",
            |row| row.held(|s| s.owner_changes),
            "Holds before which another task had the lock.",
        ),
        ("abandoned", |row| Some(row.sums.holds.abandoned), "Waits that ended without the lock."),
        (
            "cut_by_loss",
            |row| Some(row.sums.holds.cut_by_loss),
            "Holds and waits in no other column, as events were lost.",
        ),
    ];
    const TIMES: [(&str, Get, &str); 9] = [
        ("total", |row| row.held(|s| s.total_ns), "All holds."),
        ("wait_total", |row| row.waited(|s| s.wait_total_ns), "All waits that ended with the lock."),
        ("wait_caused", |row| row.held(|s| s.wait_caused_ns), "Waits of others that holds are charged."),
        ("gap", gap, "The part of wait_total in which no other task held the lock."),
        (
            "spin",
            |row| row.parted(|s| s.parted_wait_ns - s.parted_blocked_ns - s.parted_runq_ns),
            "Waits spent on a CPU.",
        ),
        ("blocked", |row| row.parted(|s| s.parted_blocked_ns), "Waits spent asleep."),
        ("runq", |row| row.parted(|s| s.parted_runq_ns), "Waits spent ready to run, without a CPU."),
        (
            "waiting",
            |row| Some(row.sums.spans.waiting_ns),
            "Time that tasks waited in the period, however waits end.",
        ),
        ("holding", holding, "Time that tasks held the lock in the period."),
    ];
    fn gap(row: &FactRow) -> Option<i64> {
        (row.sums.holds.gaps_known > 0).then_some(row.sums.holds.gap_ns)
    }
    fn holding(row: &FactRow) -> Option<i64> {
        (row.sums.spans.measured > 0).then_some(row.sums.spans.holding_ns)
    }
    let mut columns = vec![Of::timestamp("period", |row| row.period_ns, PERIOD)];
    columns.extend(keys::columns(|row: &FactRow| &row.key));
    columns.extend(COUNTS.map(|(word, get, doc)| Of::count(word, get, doc).sum()));
    columns.extend(TIMES.map(|(word, get, doc)| Of::duration(word, get, doc).sum()));
    let maxima = [
        Of::duration("max", |row| row.held(|s| s.max_ns), "The longest hold."),
        Of::duration(
            "wait_max",
            |row| row.waited(|s| s.wait_max_ns),
            "The longest wait that ended with the lock.",
        ),
        Of::count(
            "max_waiters",
            |row| row.held(|s| s.max_waiters),
            "The most tasks that waited at one time for a hold.",
        ),
    ];
    columns.extend(maxima.map(|column| column.merge(Merge::Max)));
    // The report has the same columns.
    columns.extend(report::STATES.into_iter().enumerate().map(|(at, (word, doc))| {
        let get = move |row: &FactRow| row.held(|_| 0).and(row.states.as_ref()).map(|states| states.get(at));
        Of::duration(word, get, doc).sum()
    }));
    columns
}

/// Declares the columns of `buckets`.
pub(super) fn bucket_columns() -> Vec<Column<BucketRow>> {
    type Of = Column<BucketRow>;
    let mut columns = vec![Of::timestamp("period", |row| row.period_ns, PERIOD)];
    columns.extend(keys::columns(|row: &BucketRow| &row.key));
    columns.extend([
        Of::text("of", |row| row.of.as_str().into(), "hold or wait."),
        Of::duration("le", |row| row.le_ns, "The longest time of the bucket."),
        Of::count("n", |row| row.n, "The number of holds or waits in it.").sum(),
    ]);
    columns
}

/// Declares the columns of `blame`.
pub(super) fn blame_columns() -> Vec<Column<BlameRow>> {
    type Of = Column<BlameRow>;
    let charged_to = |row: &BlameRow| row.charged_to.map_or("(others)", Charged::as_str);
    let cut = "Shares of waits that lasted while events were lost.";
    let mut columns = vec![
        Of::timestamp("period", |row| row.period_ns, PERIOD),
        Of::text("charged_to", move |row| charged_to(row).into(), "hold, gap, owner, unknown or (others)."),
        Of::duration("wait_caused", |row| row.sums.wait_caused_ns, "Time that others waited.").sum(),
        Of::count("shares", |row| row.sums.shares, "Shares of waits.").sum(),
        Of::duration("longest", |row| row.sums.longest_ns, "The longest share.").merge(Merge::Max),
        Of::count("cut_by_loss", |row| row.sums.cut_by_loss, cut).sum(),
    ];
    columns.extend(key_columns(KeyBy::Site, "holder_", |row: &BlameRow| row.holder.as_ref()));
    columns.extend(key_columns(KeyBy::Site, "waiter_", |row: &BlameRow| row.waiter.as_ref()));
    columns
}
