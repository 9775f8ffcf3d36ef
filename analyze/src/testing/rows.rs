//! Rows for tests: those of side tables of which only a part matters, and the rows of a table, kept as text.

use trace_format::{TaskId, TaskRow};

use crate::{
    AnalyzeError,
    output::{Cell, Rows},
};

/// Returns a thread of process 1 with this start and exit.
pub(crate) fn task_row(id: i32, (start_ns, exit_ns): (Option<i64>, Option<i64>)) -> TaskRow {
    TaskRow { start_ns, exit_ns, ..TaskRow::new(TaskId(id), 1, id) }
}

/// Rows as text, kept.
#[derive(Default)]
pub(crate) struct KeptRows(pub(crate) Vec<Vec<String>>);

impl Rows for KeptRows {
    fn push(&mut self, cells: &[Cell<'_>]) -> Result<(), AnalyzeError> {
        let text = |cell: &Cell<'_>| match cell {
            Cell::Null => "-".to_owned(),
            Cell::Int(number) => number.to_string(),
            Cell::Text(text) => text.clone().into_owned(),
        };
        self.0.push(cells.iter().map(text).collect());
        Ok(())
    }

    fn finish(&mut self) -> Result<(), AnalyzeError> {
        Ok(())
    }
}
