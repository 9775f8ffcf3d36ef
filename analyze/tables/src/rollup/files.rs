//! The files of a rollup: one of each table and day, below `TABLE/date=2026-11-22/`.
//!
//! Their names come from the host and the id of the trace, so writing a trace again replaces its own files.
//! Host and id are also the first columns of every row: a directory's name would be read as a number where it
//! looks like one.

use std::{collections::BTreeMap, io::Write, path::PathBuf, rc::Rc};

use super::{Rollup, TraceRow, rows, traces};
use output::{Cell, Column, Field, Format, error::AnalyzeError, units::date, writer};

/// Writes the rows of a file.
type WriteRows<'a> = dyn Fn(&mut (dyn Write + Send)) -> Result<(), AnalyzeError> + 'a;

/// A file to write.
pub struct File<'a> {
    /// Its path below the directory of the rollup.
    pub path: PathBuf,
    /// The number of rows.
    pub rows: usize,
    write: Box<WriteRows<'a>>,
}

impl std::fmt::Debug for File<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("File").field("path", &self.path).field("rows", &self.rows).finish_non_exhaustive()
    }
}

impl File<'_> {
    /// Writes the file as Parquet.
    ///
    /// # Errors
    ///
    /// [`AnalyzeError::Write`] with the error of `out`.
    pub fn write(&self, out: &mut (dyn Write + Send)) -> Result<(), AnalyzeError> {
        (self.write)(out)
    }
}

impl Rollup {
    /// Returns the files of all tables. Each table has at least one, so that a query finds all tables.
    pub fn files(&self) -> Vec<File<'_>> {
        let from_ns = self.trace.from_ns;
        let mut files = self.table("facts", &self.facts, rows::fact_columns(), |row| row.period_ns);
        files.extend(self.table("buckets", &self.buckets, rows::bucket_columns(), |row| row.period_ns));
        files.extend(self.table("blame", &self.blame, rows::blame_columns(), |row| row.period_ns));
        let trace = std::slice::from_ref(&self.trace);
        files.extend(self.table("traces", trace, traces::columns(), move |_| from_ns));
        files.extend(self.table("labels", &self.labels, traces::label_columns(), move |_| from_ns));
        files
    }

    /// Returns a file for each day of a table.
    fn table<'a, R: 'a>(
        &'a self,
        table: &str,
        rows: &'a [R],
        columns: Vec<Column<R>>,
        time_ns: impl Fn(&R) -> i64,
    ) -> Vec<File<'a>> {
        let columns: Rc<[Column<R>]> = columns.into();
        let mut days: BTreeMap<String, Vec<&'a R>> = BTreeMap::new();
        // Rows are in the order of their periods.
        for rows in rows.chunk_by(|row, next| time_ns(row) == time_ns(next)) {
            days.entry(date(time_ns(&rows[0]))).or_default().extend(rows);
        }
        if days.is_empty() {
            days.insert(date(self.trace.from_ns), Vec::new());
        }
        let name = format!("{}-{}.parquet", file_name(&self.trace.host), file_name(&self.trace.trace_id));
        let file = |(day, rows): (String, Vec<&'a R>)| {
            let columns = Rc::clone(&columns);
            let path = PathBuf::from(table).join(format!("date={day}")).join(&name);
            let height = rows.len();
            let write = move |out: &mut (dyn Write + Send)| self.write(&columns, &rows, out);
            File { path, rows: height, write: Box::new(write) }
        };
        days.into_iter().map(file).collect()
    }

    /// Writes rows that begin with the host and the id of the trace.
    fn write<R>(
        &self,
        columns: &[Column<R>],
        rows: &[&R],
        out: &mut (dyn Write + Send),
    ) -> Result<(), AnalyzeError> {
        let of_trace = Self::of_trace();
        let fields =
            of_trace.iter().map(|column| &column.field).chain(columns.iter().map(|column| &column.field));
        let fields: Vec<Field> = fields.cloned().collect();
        let mut writer = writer(Format::Parquet, &fields, None, out)?;
        let host_and_trace = of_trace.map(|column| column.cell(&self.trace));
        for row in rows {
            let cells = columns.iter().map(|column| column.cell(*row));
            let cells: Vec<Cell<'_>> = host_and_trace.iter().cloned().chain(cells).collect();
            writer.push(&cells)?;
        }
        writer.finish()
    }

    /// Declares the columns that every row begins with.
    fn of_trace() -> [Column<TraceRow>; 2] {
        [
            Column::text("host", |trace: &TraceRow| (&trace.host).into(), "The name of the machine."),
            Column::text("trace_id", |trace: &TraceRow| (&trace.trace_id).into(), "The id of the trace."),
        ]
    }
}

/// Returns a part of a file's name: letters, digits, dots and dashes stay, other bytes become `%2F`.
fn file_name(text: &str) -> String {
    let mut name = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'_' => name.push(byte.into()),
            _ => name += &format!("%{byte:02X}"),
        }
    }
    name
}
