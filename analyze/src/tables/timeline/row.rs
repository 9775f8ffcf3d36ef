//! The rows of the table: a key in a period, and the columns of it.

use super::series::Cell;
use crate::{
    output::Column,
    tables::{
        key::{By, Key},
        key_columns, trace_column,
    },
};

/// A cell of a key.
#[derive(Clone, Debug)]
pub struct PeriodRow {
    /// The start of the period, in ns since the start of the trace.
    pub from_ns: i64,
    /// The end of the period.
    pub to_ns: i64,
    /// The sums.
    pub cell: Cell,
    /// The name of the key.
    pub name: String,
    /// The key; `None` for several keys.
    pub key: Option<Key>,
    /// The trace, if there are several and the key belongs to one.
    pub trace: Option<String>,
}

/// Declares the columns; rows of several traces have their trace.
pub fn columns(by: By, several: bool) -> Vec<Column<PeriodRow>> {
    type Of = Column<PeriodRow>;
    let mut columns = vec![
        Of::timestamp("from", |row| row.from_ns, "Start of the period since the start of the trace.")
            .not_sortable(),
        Of::timestamp("to", |row| row.to_ns, "End of the period.").programs().not_sortable(),
        Of::duration("wait", |row| row.cell.wait_ns, "Time that tasks waited.").sum(),
        Of::duration("hold", |row| row.cell.hold_ns, "Time that tasks held the lock.").sum(),
        Of::count("waits", |row| row.cell.waits, "Waits that started.").sum(),
        Of::count("holds", |row| row.cell.holds, "Holds that started.").sum(),
        Of::name(by.as_str(), |row| row.name.as_str().into()),
    ];
    columns.extend(key_columns(by, "", |row: &PeriodRow| row.key.as_ref()));
    columns.extend(trace_column(several, |row: &PeriodRow| row.trace.as_deref()));
    columns
}
