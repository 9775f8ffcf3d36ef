//! The rows of the critical path: their columns.

use serde::Serialize;

use crate::{
    output::{Column, units},
    tables::{
        key::{By, Key},
        key_columns, trace_column,
    },
};

/// A lock that is on the path or was waited for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The part of the path in which this lock is the last one that the task on the path acquired and still holds, in ns.
    pub path_ns: i64,
    /// `held_ns` and `handoff_ns`: the most by which the path would be shorter if holds of the lock took no time.
    pub at_most_ns: i64,
    /// The part of the path in which its task holds the lock.
    pub held_ns: i64,
    /// The part of the path from a release of the lock to the acquisition that waited for it.
    pub handoff_ns: i64,
    /// The number of times that the path goes from a task to the one that released the lock.
    pub jumps: i64,
    /// The selected waits of all tasks for the lock in the window, in ns.
    pub waited_ns: i64,
    /// The rank of the lock by `waited_ns`, from 1; `None` if no task waited for it.
    pub rank: Option<i64>,
    /// The number of spans whose path has the lock, and percentiles of `path_ns` over all spans of this name; `None` without spans.
    pub spans: Option<i64>,
    /// The median.
    pub p50_ns: Option<i64>,
    /// The 99th percentile.
    pub p99_ns: Option<i64>,
    /// The name of the spans; safe to print.
    pub span: Option<String>,
    /// The name; safe to print.
    pub name: String,
    /// The trace, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// The lock.
    pub lock: Key,
}

impl Row {
    /// Returns what is notable about a lock, given the length of the path.
    pub(super) fn remark(&self, path_ns: i64) -> Option<&'static str> {
        let is_little = self.at_most_ns.saturating_mul(10) <= self.waited_ns;
        let is_much = path_ns > 0 && self.waited_ns >= path_ns / 10;
        (self.span.is_none() && is_little && is_much).then_some("much waited for, little on the path")
    }
}

/// Declares the columns. Parts are of `path_ns`; rows of several traces have their trace, and those of spans their name.
pub fn columns(path_ns: i64, several: bool, has_spans: bool) -> Vec<Column<Row>> {
    type Of = Column<Row>;
    let mut columns = vec![
        Of::duration(
            "path",
            |row| row.path_ns,
            "Time on the path in which this is the lock that the task on the path acquired last.",
        )
        .sum(),
        Of::ppm("part", move |row: &Row| units::ppm(row.path_ns, path_ns), "path divided by the whole path.")
            .heading("percent")
            .not_sortable(),
        Of::duration(
            "at_most",
            |row| row.at_most_ns,
            "held + handoff: the path is shorter by at most that if holds of the lock take no time.",
        )
        .sum(),
        Of::duration(
            "held",
            |row| row.held_ns,
            "Time on the path in which its task holds the lock, maybe with others.",
        )
        .sum()
        .programs(),
        Of::duration(
            "handoff",
            |row| row.handoff_ns,
            "Time on the path between a release of the lock and the acquisition that waited for it.",
        )
        .sum()
        .programs(),
        Of::count(
            "jumps",
            |row| row.jumps,
            "The number of times that the path leads from a task to the one that released the lock.",
        )
        .sum(),
        Of::duration("waited", |row| row.waited_ns, "Time that all tasks waited for the lock.").sum(),
        Of::count("rank", |row| row.rank, "The rank of the lock by waited.").not_sortable(),
    ];
    if has_spans {
        columns.extend([
            Of::count("spans", |row| row.spans, "The number of spans whose path has the lock.").sum(),
            Of::duration("p50", |row| row.p50_ns, "The median of path over all spans of the name."),
            Of::duration("p99", |row| row.p99_ns, "The 99th percentile of it."),
            Of::text("span", |row| row.span.as_deref().into(), "The name of the spans.").identity(),
        ]);
    }
    columns.push(Of::name("lock", |row| row.name.as_str().into()));
    columns.extend(key_columns(By::Lock, "", |row: &Row| Some(&row.lock)));
    columns.extend(trace_column(several, |row: &Row| row.trace.as_deref()));
    columns
}
