//! The columns of the report, each declared once, and the expressions that make them from the sums of a row.

use polars::prelude::{Expr, col};

use super::{
    calls, fairness,
    hold_sums::{empty, held},
    percentiles, states,
};
use crate::{
    cut_column,
    frame::{average, known, share},
    key::{By, Key},
    key_columns,
    options::TableOptions,
    rank::{Row, count, duration, measure},
    trace_column,
};
use output::{Column, Kind};

/// Columns that are computed together, on request only, because they cost a pass over the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Percentiles, and the parts of waits.
    Percentiles,
    /// The states of the holders while others waited.
    HolderStates,
    /// The states of tasks in their own holds.
    Held,
    /// Queues and fairness, for rows that hold whole locks.
    Fairness,
    /// Lifetimes, calls and idle waits, for rows of tasks.
    Calls,
}

impl Group {
    const ALL: [Self; 5] = [Self::Percentiles, Self::HolderStates, Self::Held, Self::Fairness, Self::Calls];

    pub(super) fn columns(self) -> Vec<Column<Row<Key>>> {
        match self {
            Self::Percentiles => percentiles::columns(),
            Self::HolderStates => states::columns(),
            Self::Held => states::held_columns(),
            Self::Fairness => fairness::columns(),
            Self::Calls => calls::columns(),
        }
    }

    /// Whether one of these words is a column of the group.
    pub(super) fn is_among<'w>(self, mut words: impl Iterator<Item = &'w String>) -> bool {
        let columns = self.columns();
        words.any(|word| columns.iter().any(|column| column.is_called(word)))
    }
}

/// Whether a column of this group is asked for.
pub(super) fn asks_for(options: &TableOptions<By>, group: Group) -> bool {
    let is_default = group == Group::Calls && options.by == By::Process;
    is_default || group.is_among(options.columns.iter().chain([&options.sort]))
}

/// Declares the columns; rows of several traces have their trace.
pub fn columns(by: By, several: bool) -> Vec<Column<Row<Key>>> {
    let shown = |column: Column<Row<Key>>, group: Option<Group>| match group {
        _ if text_columns(by).contains(&column.word()) => column,
        None => column.programs(),
        Some(Group::Calls) if by == By::Process => column.programs(),
        Some(_) => column.on_request(),
    };
    let shares = [
        measure(
            "pct",
            Kind::Ppm,
            "The row's share of the sort column (-k), of all rows, including those that -n leaves out.",
        ),
        measure("cum_pct", Kind::Ppm, "The share of this row and all rows before it."),
    ];
    let always = always().into_iter().chain(shares.map(Column::not_sortable));
    let mut columns: Vec<_> = always.map(|column| shown(column, None)).collect();
    for group in Group::ALL {
        columns.extend(group.columns().into_iter().map(|column| shown(column, Some(group))));
    }
    columns.push(Column::name(by.heading(), |row: &Row<Key>| row.name.as_str().into()));
    columns.extend(key_columns(by, "", |row: &Row<Key>| Some(&row.key)));
    columns.push(cut_column(|row: &Row<Key>| row["cut_by_loss"].unsigned_abs()));
    columns.extend(trace_column(several, |row: &Row<Key>| row.trace.as_deref()));
    columns
}

/// Declares the columns of LOCK_PROFILING(9), of the waits that holds cause, and of attempts that led to no
/// acquisition.
pub(super) fn always() -> Vec<Column<Row<Key>>> {
    vec![
        duration("max", "The longest hold."),
        duration("wait_max", "The longest wait that ended with the lock."),
        duration("total", "The sum of all holds.").sum(),
        duration("wait_total", "The sum of all waits that ended with the lock: its cost to its users.").sum(),
        count("count", "Acquisitions.").sum(),
        duration("avg", "`total` divided by the acquisitions whose hold was measured."),
        duration("wait_avg", "`wait_total` divided by all acquisitions, not only those that waited."),
        count("cnt_hold", "Waits of other tasks that began while the lock was held, abandoned waits included.")
            .sum(),
        count("cnt_lock", "Contended acquisitions.").sum(),
        duration(
            "wait_caused",
            "Time that other tasks waited while this was the oldest open hold, abandoned waits included.",
        )
        .sum(),
        count("holds_contended", "Holds in which another task began to wait.").sum(),
        duration(
            "gap",
            "The part of `wait_total` in which no other task held the lock; the rest is in `wait_caused` of some row.",
        )
        .sum(),
        measure("contention", Kind::Ppm, "`cnt_lock` divided by `count`. Not known where only waits are recorded."),
        count("owner_changes", "Holds before which another task had the lock.").sum(),
        count("max_waiters", "The most tasks that waited at the same time for one of its holds."),
        count(
            "attempts",
            "Acquisitions, and attempts that did not lead to one: `abandoned`, `try_failed` and `open_waits`.",
        )
        .sum(),
        count("abandoned", "Waits that ended without the lock: a timeout, a signal, a futex word that had changed.").sum(),
        duration("abandoned_wait", "The sum of these waits.").sum(),
        count("try_failed", "Attempts that found the lock taken and did not wait: trylock.").sum(),
        duration("polled", "Failed tries in a row, from the first one up to the success.").sum(),
        count("open_holds", "Holds that were open at the end, in no other column.").sum(),
        duration("open_hold", "The sum of these holds until the end: they are at least as long.").sum(),
        count("open_waits", "Waits that were open at the end, in no other column.").sum(),
        duration("open_wait", "The sum of these waits until the end: they are at least as long.").sum(),
    ]
}

/// Returns the expressions of the columns that every report has. Null is what was not measured.
pub(super) fn expressions() -> Vec<Expr> {
    // A row without an acquisition has no waits for one.
    let waited = || col("waits_known") + empty();
    let measured = |name: &str| known(col(name), held());
    let column = |name: &str| match name {
        "max_ns" | "total_ns" | "cnt_hold" | "wait_caused_ns" | "holds_contended" | "owner_changes"
        | "max_waiters" => measured(name),
        "wait_max_ns" | "wait_total_ns" => known(col(name), waited()),
        "avg_ns" => known(average("total_ns", "measured"), held()),
        "wait_avg_ns" => known(average("wait_total_ns", "count"), waited()),
        "gap_ns" => known(col(name), col("gaps_known") + empty()),
        "contention_ppm" => known(share("cnt_lock", "count"), held()),
        "attempts" => col("count") + col("abandoned") + col("try_failed") + col("open_waits"),
        name => col(name),
    };
    let names = always().into_iter().map(|declared| declared.field.name.into_owned());
    names.map(|name| column(&name).alias(&name)).collect()
}

/// Returns the default columns of text, in its order.
pub(super) const fn text_columns(by: By) -> &'static [&'static str] {
    match by {
        By::Process => &[
            "tasks",
            "locks",
            "count",
            "wait_total",
            "wait_share",
            "slept",
            "slept_share",
            "total",
            "errors",
            "wakes",
            "woken",
            "idle_waits",
            "idle_time",
        ],
        _ => &[
            "max",
            "wait_max",
            "total",
            "wait_total",
            "wait_caused",
            "count",
            "avg",
            "wait_avg",
            "cnt_hold",
            "cnt_lock",
        ],
    }
}

/// The columns of attempts that led to no acquisition, and of what was open at the end. Text shows those that
/// are not 0 if a row has no acquisition.
pub(super) const UNFINISHED: [&str; 7] =
    ["abandoned", "abandoned_wait", "try_failed", "open_holds", "open_hold", "open_waits", "open_wait"];
