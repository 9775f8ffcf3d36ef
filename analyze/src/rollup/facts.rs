//! The table `facts`: the sums of a key in a period.
//!
//! An acquisition counts in the period of its release, as in a report; `waiting` and `holding` are split over the periods that they
//! span, as in a timeline. Values that were not measured are null, so every average has a denominator of its own.

use std::collections::BTreeMap;

use super::{
    gather::FactsOf,
    keys::{self, Aligns, FactKey},
    sums::{FactSums, MoreSums},
};
use crate::{
    input::names::Names,
    output::{Column, Merge},
    tables::{report::HoldSums, spans::Periods},
};

/// A key in a period.
#[derive(Clone, Debug)]
pub struct FactRow {
    /// The start of the period, in ns since 1970.
    pub period_ns: i64,
    /// The key.
    pub key: FactKey,
    sums: FactSums,
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

    fn known(&self, of: impl Fn(&MoreSums) -> i64) -> Option<i64> {
        (self.sums.more.known_waits > 0).then(|| of(&self.sums.more))
    }
}

/// Names and cuts the sums.
pub(super) fn rows(
    facts: FactsOf,
    periods: Periods,
    aligns: &Aligns,
    names: &Names,
    limit: Option<usize>,
) -> Vec<FactRow> {
    let mut named: BTreeMap<(i64, FactKey), FactSums> = BTreeMap::new();
    for ((period, key), sums) in facts {
        named.entry((period, key.named(names, aligns))).or_default().merge(&sums);
    }
    let weight = |sums: &FactSums| {
        let FactSums { holds, more } = sums;
        (holds.wait_total_ns, more.waiting_ns, holds.total_ns, holds.count)
    };
    let rows = keys::cut(named, (limit, FactKey::others()), weight, |all, sums| all.merge(&sums));
    let row = |((period, key), sums)| FactRow { period_ns: periods.offset_ns(period), key, sums };
    rows.into_iter().map(row).collect()
}

/// Declares the columns.
pub(super) fn columns() -> Vec<Column<FactRow>> {
    type Of = Column<FactRow>;
    let mut columns =
        vec![Of::moment("period", |row| row.period_ns, "Start of the period, in ns since 1970 (UTC).")];
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
    columns
}
