//! The table `blame`: the waits that one site caused at another, in a long period.

use std::{cmp::Reverse, collections::BTreeMap};

use super::keys;
use crate::{
    input::names::Names,
    output::{Column, Merge},
    tables::{
        blame::{BlameKey, BlameSums, By, Charged, parties},
        frame::Sums as _,
        key::{By as KeyBy, Key},
        key_columns,
        spans::Periods,
    },
};

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

/// The parties of a row; none for what `--keys` cuts off.
type Parties = Option<(Charged, Option<Key>, Option<Key>)>;

/// Names and cuts the sums.
pub(super) fn rows(
    found: Vec<(BlameKey, BlameSums)>,
    periods: Periods,
    names: &Names,
    limit: Option<usize>,
) -> Vec<BlameRow> {
    let mut named: BTreeMap<(i64, Parties), BlameSums> = BTreeMap::new();
    for (key, sums) in found {
        let [holder, waiter] = parties(By::Pair, key, names).map(|key| key.map(|key| Key::of(key, names)));
        named.entry((key.period, Some((key.charged, holder, waiter)))).or_default().merge(&sums);
    }
    let weight = |sums: &BlameSums| (sums.wait_caused_ns, sums.shares);
    let cut = keys::cut(named, (limit, None), weight, |all, sums| all.merge(&sums));
    let mut rows: Vec<((i64, Parties), BlameSums)> = cut.into_iter().collect();
    // In each period, the rows with the most waiting come first, and the row of all that were cut off comes last.
    rows.sort_by_key(|((period, parties), sums)| (*period, parties.is_none(), Reverse(weight(sums))));
    let row = |((period, parties), sums): ((i64, Parties), BlameSums)| {
        let (charged_to, holder, waiter) = match parties {
            Some((charged, holder, waiter)) => (Some(charged), holder, waiter),
            None => (None, None, None),
        };
        BlameRow { period_ns: periods.offset_ns(period), charged_to, holder, waiter, sums }
    };
    rows.into_iter().map(row).collect()
}

/// Declares the columns.
pub(super) fn columns() -> Vec<Column<BlameRow>> {
    type Of = Column<BlameRow>;
    let charged_to = |row: &BlameRow| row.charged_to.map_or("(others)", Charged::as_str);
    let mut columns = vec![
        Of::timestamp("period", |row| row.period_ns, "Start of the period, in ns since 1970 (UTC)."),
        Of::text("charged_to", move |row| charged_to(row).into(), "hold, gap, owner, unknown or (others)."),
        Of::duration("wait_caused", |row| row.sums.wait_caused_ns, "Time that others waited.").sum(),
        Of::count("shares", |row| row.sums.shares, "Shares of waits.").sum(),
        Of::duration("longest", |row| row.sums.longest_ns, "The longest share.").merge(Merge::Max),
        Of::count(
            "cut_by_loss",
            |row| row.sums.cut_by_loss,
            "Shares of waits that lasted while events were lost.",
        )
        .sum(),
    ];
    columns.extend(key_columns(KeyBy::Site, "holder_", |row: &BlameRow| row.holder.as_ref()));
    columns.extend(key_columns(KeyBy::Site, "waiter_", |row: &BlameRow| row.waiter.as_ref()));
    columns
}
