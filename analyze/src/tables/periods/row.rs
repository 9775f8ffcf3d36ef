//! The rows of the table: the acquisitions of a key in a period, and the columns of them.

use serde::Serialize;

use crate::{
    output::{Column, Kind},
    tables::{
        key::{By, Key},
        key_columns, trace_column,
    },
};

/// One key in one period.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The start of the period, in ns since the start of the trace; 0 for the first, which may start before it.
    pub from_ns: i64,
    /// The start of the period on the trace's clock, CLOCK_MONOTONIC, in ns.
    pub start_ns: i64,
    /// Threads that acquired.
    pub threads: i64,
    /// Acquisitions.
    pub count: i64,
    /// The sum of their waits, in ns.
    pub wait_total_ns: i64,
    /// The sum divided by all acquisitions, not only those that waited, in ns.
    pub wait_avg_ns: i64,
    /// The longest wait, in ns.
    pub wait_max_ns: i64,
    /// Waits that ended without the lock.
    pub abandoned: i64,
    /// Attempts that found the lock taken and did not wait.
    pub try_failed: i64,
    /// The name; safe to print.
    pub name: String,
    /// The trace, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// The key.
    #[serde(flatten)]
    pub key: Key,
}

/// Declares the columns; rows of several traces have their trace.
pub fn columns(by: By, several: bool) -> Vec<Column<Row>> {
    type Of = Column<Row>;
    let mut columns = vec![
        Of::timestamp(
            "from",
            |row| row.from_ns,
            "Start of the period since the start of the trace, at least 0.",
        )
        .kind(Kind::PeriodStart)
        .ascending(),
        Of::timestamp("start", |row| row.start_ns, "Start of the period on CLOCK_MONOTONIC.")
            .ascending()
            .programs(),
        Of::count("threads", |row| row.threads, "Threads that acquired."),
        Of::count("count", |row| row.count, "Acquisitions.").sum(),
        Of::duration("wait_total", |row| row.wait_total_ns, "All waits.").sum(),
        Of::duration("wait_avg", |row| row.wait_avg_ns, "wait_total divided by count."),
        Of::duration("wait_max", |row| row.wait_max_ns, "The longest wait."),
        Of::count("abandoned", |row| row.abandoned, "Waits that ended without the lock, by their end.")
            .programs(),
        Of::count("try_failed", |row| row.try_failed, "Attempts that found the lock taken and did not wait.")
            .programs(),
        Of::name(by.heading(), |row| row.name.as_str().into()),
    ];
    columns.extend(key_columns(by, "", |row: &Row| Some(&row.key)));
    columns.extend(trace_column(several, |row: &Row| row.trace.as_deref()));
    columns
}
