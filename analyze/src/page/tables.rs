//! Packs the rows of a computed [`Table`] as columns: numbers, and numbers of texts.

use std::borrow::Borrow as _;

use super::{
    data::{ColumnData, TableData, Verdict},
    pack::Pack,
};
use output::{Cell, Kind, Merge, Role, column::select, error::AnalyzeError};
use tables::{Table, why::Why};

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
    let columns = select(table.columns(), &[])?.into_iter().map(|column| {
        let cells = rows.iter().map(|row| match column.cell(row.borrow()) {
            Cell::Null => None,
            Cell::Int(number) => Some(number),
            Cell::Text(text) => Some(pack.string(&text)),
        });
        let cells: Vec<Option<i64>> = cells.collect();
        let is_chosen = shown.is_empty() || shown.iter().any(|word| column.is_called(word));
        ColumnData {
            is_shown: column.role != Role::Identity
                && column.field.is_shown
                && (is_chosen || column.role == Role::Name),
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

/// Returns the verdicts on each lock.
pub(super) fn verdicts(why: &Why, pack: &mut Pack) -> Vec<Verdict> {
    let verdict = |lock: &tables::why::JudgedLock| Verdict {
        lock_id: lock.lock_id,
        lock: pack.string(&lock.name),
        waited_ns: lock.parts.waited_ns,
        waiters: lock.waiters,
        findings: lock
            .findings
            .iter()
            .filter(|finding| finding.said)
            .map(|finding| {
                [finding.verdict.as_str(), &finding.evidence, &finding.advice].map(|text| pack.string(text))
            })
            .collect(),
    };
    why.locks.iter().map(verdict).collect()
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
