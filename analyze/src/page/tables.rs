//! Packs the rows of a computed [`Table`] as columns: numbers, and numbers of texts.

use std::borrow::Borrow as _;

use super::{
    data::{ColumnData, TableData, Verdict, Verdicts},
    pack::Pack,
};
use output::{Cell, Column, Kind, Merge, Role, column::select, error::AnalyzeError};
use tables::{
    Table,
    why::{Explanation, Why},
};

/// Returns the table with the columns that programs get by default.
pub(super) fn table<T: Table>(
    id: &'static str,
    title: &'static str,
    sorted_by: &str,
    table: &T,
    pack: &mut Pack,
) -> Result<TableData, AnalyzeError> {
    let rows: Vec<_> = table.rows().collect();
    let shown = table.text_columns();
    // The id of a lock leads to its row of the timeline; nobody reads ids.
    let is_used = |column: &Column<T::Row>| column.role != Role::Identity || column.field.name == "lock_id";
    let columns = select(table.columns(), &[])?.into_iter().filter(is_used).map(|column| {
        let cells = rows.iter().map(|row| match column.cell(row.borrow()) {
            Cell::Null => None,
            Cell::Int(number) => Some(number),
            Cell::Text(text) => Some(pack.label(&text)),
        });
        let cells: Vec<Option<i64>> = cells.collect();
        // Some columns are hidden unless the table has something to show in them.
        let is_chosen = if shown.is_empty() {
            column.field.is_shown
        } else {
            column.role == Role::Name || shown.iter().any(|word| column.is_called(word))
        };
        ColumnData {
            is_shown: column.role != Role::Identity && is_chosen,
            is_name: column.role == Role::Name,
            sums: column.merge == Some(Merge::Sum),
            kind: word(column.field.kind),
            doc: column.doc,
            name: column.field.name.into_owned(),
            heading: column.field.heading.into_owned(),
            values: pack.values(cells),
        }
    });
    let columns = columns.collect();
    let (rows, hidden) = (rows.len(), table.hidden_rows());
    Ok(TableData { id, title, sorted_by: sorted_by.to_owned(), columns, rows, hidden })
}

/// The share of all waiting, in percent, from which on a lock matters.
const MATTERS: i64 = 1;

/// Returns what is said of the judged locks.
pub(super) fn verdicts(why: &Why, pack: &mut Pack) -> Verdicts {
    let all_ns: i64 = why.locks.iter().map(tables::why::JudgedLock::lost_ns).sum();
    let verdict = |lock: &tables::why::JudgedLock| {
        let Explanation { cost, findings, notes } = lock.explain();
        let much = lock.lost_ns().saturating_mul(100) >= all_ns.saturating_mul(MATTERS);
        Verdict {
            lock_id: lock.lock_id,
            lock: pack.label(&lock.name),
            matters: lock.quiet().is_none() && much,
            cost: pack.label(&cost),
            findings: findings.iter().map(|texts| texts.each_ref().map(|text| pack.label(text))).collect(),
            notes: notes.iter().map(|note| pack.label(note)).collect(),
        }
    };
    let locks = why.locks.iter().map(verdict).collect();
    let answer = why.answer().lines.iter().map(|line| pack.label(line)).collect();
    Verdicts { answer, locks, hidden: why.hidden_rows() }
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Text => "text",
        Kind::Site => "site",
        Kind::Timestamp => "timestamp",
        Kind::PeriodStart => "period",
        Kind::Duration => "duration",
        Kind::Count => "count",
        Kind::Ppm => "ppm",
        Kind::Percent => "percent",
    }
}
