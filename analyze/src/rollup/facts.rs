//! The table `facts`: the sums of a key in a period.
//!
//! An acquisition counts in the period of its release, as in a report; `waiting` and `holding` are split over the periods that they
//! span, as in a timeline. Values that were not measured are null, so every average has a denominator of its own.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::{
    clock::Clock,
    gather::FactsOf,
    keys::{self, Aligns, FactKey, LocalKey},
    sums::{FactSums, MoreSums},
};
use crate::{
    engine::Hold,
    error::AnalyzeError,
    input::{Input, names::Names},
    output::{Column, Merge},
    tables::{
        frame::Sums as _,
        report::{self, HoldSums, StateSums, by_state},
        spans::Periods,
    },
};

/// The states of the holders of each key in each period while others waited; `None` if off-CPU times were not recorded.
pub(super) type StatesOf = Option<FxHashMap<(i64, LocalKey), StateSums>>;

/// Reads a trace again for the states of its holders, if off-CPU times were recorded. They count where the holds do.
pub(super) fn states(
    input: &Input<'_>,
    clock: Clock,
    period_ns: i64,
    aligns: &Aligns,
) -> Result<StatesOf, AnalyzeError> {
    if !input.has_holder_states()? {
        return Ok(None);
    }
    let periods = clock.periods(period_ns);
    by_state(input, |hold: &Hold| {
        let counts = input.selection.selects_hold(hold) && hold.is_credited();
        counts.then(|| (periods.number(hold.end_ns), LocalKey::of(hold.lock, hold, &input.names, aligns)))
    })
    .map(Some)
}

/// A key in a period.
#[derive(Clone, Debug)]
pub struct FactRow {
    /// The start of the period, in ns since 1970.
    pub period_ns: i64,
    /// The key.
    pub key: FactKey,
    sums: FactSums,
    /// `None` if off-CPU times were not recorded.
    states: Option<StateSums>,
}

impl FactRow {
    #[cfg(test)]
    pub(super) fn sums(&self) -> &FactSums {
        &self.sums
    }

    fn held(&self, of: impl Fn(&HoldSums) -> i64) -> Option<i64> {
        (self.sums.holds.measured > 0).then(|| of(&self.sums.holds))
    }

    fn waited(&self, of: impl Fn(&HoldSums) -> i64) -> Option<i64> {
        (self.sums.holds.waits_known > 0).then(|| of(&self.sums.holds))
    }

    /// Returns the waiting time during one state of the holders, by index.
    fn state(&self, state: usize) -> Option<i64> {
        self.states.as_ref().filter(|_| self.sums.holds.measured > 0).map(|states| states.get(state))
    }

    fn known(&self, of: impl Fn(&MoreSums) -> i64) -> Option<i64> {
        (self.sums.more.known_waits > 0).then(|| of(&self.sums.more))
    }
}

/// Names and cuts the sums.
pub(super) fn rows(
    (facts, states): (FactsOf, StatesOf),
    periods: Periods,
    aligns: &Aligns,
    names: &Names,
    limit: Option<usize>,
) -> Vec<FactRow> {
    let mut named: BTreeMap<(i64, FactKey), (FactSums, StateSums)> = BTreeMap::new();
    for ((period, key), sums) in facts {
        named.entry((period, key.named(names, aligns))).or_default().0.merge(&sums);
    }
    let has_states = states.is_some();
    for ((period, key), states) in states.into_iter().flatten() {
        named.entry((period, key.named(names, aligns))).or_default().1.merge(&states);
    }
    let weight = |(FactSums { holds, more }, _): &(FactSums, StateSums)| {
        (holds.wait_total_ns, more.waiting_ns, holds.total_ns, holds.count)
    };
    let merge = |(all, all_states): &mut (FactSums, StateSums), (sums, states): (FactSums, StateSums)| {
        all.merge(&sums);
        all_states.merge(&states);
    };
    let rows = keys::cut(named, (limit, FactKey::others()), weight, merge);
    let row = |((period, key), (sums, states))| {
        let states = has_states.then_some(states);
        FactRow { period_ns: periods.offset_ns(period), key, sums, states }
    };
    rows.into_iter().map(row).collect()
}

/// Declares the columns.
pub(super) fn columns() -> Vec<Column<FactRow>> {
    type Of = Column<FactRow>;
    let mut columns =
        vec![Of::timestamp("period", |row| row.period_ns, "Start of the period, in ns since 1970 (UTC).")];
    columns.extend(keys::columns(|row: &FactRow| &row.key));
    columns.extend([
        Of::count("count", |row| row.sums.holds.count, "Acquisitions.").sum(),
        Of::count(
            "hold_count",
            |row| row.sums.holds.measured,
            "Acquisitions whose hold was measured: the denominator of total.",
        )
        .sum(),
        Of::count(
            "wait_count",
            |row| row.sums.holds.waits_known,
            "Holds whose wait is known, even if it is 0.",
        )
        .sum(),
        Of::count("cnt_lock", |row| row.sums.holds.cnt_lock, "Contended acquisitions.").sum(),
        Of::count(
            "cnt_hold",
            |row| row.held(|sums| sums.cnt_hold),
            "Waits of others that began during a hold.",
        )
        .sum(),
        Of::count(
            "holds_contended",
            |row| row.held(|sums| sums.holds_contended),
            "Holds in which another task began to wait.",
        )
        .sum(),
        Of::count(
            "owner_changes",
            |row| row.held(|sums| sums.owner_changes),
            "Holds before which another task had the lock.",
        )
        .sum(),
        Of::count("abandoned", |row| row.sums.more.abandoned, "Waits that ended without the lock.").sum(),
        Of::count(
            "cut_by_loss",
            |row| row.sums.holds.cut_by_loss,
            "Holds and waits in no other column, because events were lost.",
        )
        .sum(),
        Of::duration("total", |row| row.held(|sums| sums.total_ns), "All holds.").sum(),
        Of::duration(
            "wait_total",
            |row| row.waited(|sums| sums.wait_total_ns),
            "All waits that ended with the lock.",
        )
        .sum(),
        Of::duration(
            "wait_caused",
            |row| row.held(|sums| sums.wait_caused_ns),
            "Waits of others that holds are charged.",
        )
        .sum(),
        Of::duration(
            "gap",
            |row| (row.sums.holds.gaps_known > 0).then_some(row.sums.holds.gap_ns),
            "The part of wait_total in which no other task held the lock.",
        )
        .sum(),
        Of::duration(
            "spin",
            |row| row.known(|sums| sums.known_wait_ns - sums.blocked_ns - sums.runq_ns),
            "The part of the waits spent on a CPU.",
        )
        .sum(),
        Of::duration(
            "blocked",
            |row| row.known(|sums| sums.blocked_ns),
            "The part of the waits spent asleep.",
        )
        .sum(),
        Of::duration(
            "runq",
            |row| row.known(|sums| sums.runq_ns),
            "The part of the waits spent ready to run, without a CPU.",
        )
        .sum(),
        Of::duration(
            "waiting",
            |row| row.sums.more.waiting_ns,
            "Time that tasks waited in the period, however the waits end.",
        )
        .sum(),
        Of::duration(
            "holding",
            |row| (row.sums.more.measured > 0).then_some(row.sums.more.holding_ns),
            "Time that tasks held the lock in the period.",
        )
        .sum(),
        Of::duration("max", |row| row.held(|sums| sums.max_ns), "The longest hold.").merge(Merge::Max),
        Of::duration(
            "wait_max",
            |row| row.waited(|sums| sums.wait_max_ns),
            "The longest wait that ended with the lock.",
        )
        .merge(Merge::Max),
        Of::count(
            "max_waiters",
            |row| row.held(|sums| sums.max_waiters),
            "The most tasks that waited at the same time for a hold.",
        )
        .merge(Merge::Max),
    ]);
    columns.extend(StateSums::FIELDS.iter().enumerate().map(|(at, (word, _))| {
        // The report describes the same columns.
        let doc = word.parse().map_or("", report::Column::doc).trim();
        Of::duration(word, move |row| row.state(at), doc).sum()
    }));
    columns
}
