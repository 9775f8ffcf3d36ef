//! Writes rows as CSV.

use std::io::{self, Write};

use super::safe::cell;
use super::{Cell, Field, Rows};
use crate::error::AnalyzeError;

pub(super) struct CsvRows<'w> {
    csv: csv::Writer<&'w mut (dyn Write + Send)>,
}

impl<'w> CsvRows<'w> {
    pub(super) fn new(fields: &[Field], out: &'w mut (dyn Write + Send)) -> Result<Self, AnalyzeError> {
        let mut csv = csv::Writer::from_writer(out);
        csv.write_record(fields.iter().map(|field| field.name.as_bytes())).map_err(cause)?;
        Ok(Self { csv })
    }
}

impl Rows for CsvRows<'_> {
    fn push(&mut self, cells: &[Cell<'_>]) -> Result<(), AnalyzeError> {
        for value in cells {
            match value {
                Cell::Null => self.csv.write_field(""),
                Cell::Int(number) => self.csv.write_field(number.to_string()),
                // Text is safe to print, but a spreadsheet would run a formula.
                Cell::Text(text) => self.csv.write_field(cell(text).as_bytes()),
            }
            .map_err(cause)?;
        }
        self.csv.write_record(None::<&[u8]>).map_err(cause)
    }

    fn finish(&mut self) -> Result<(), AnalyzeError> {
        self.csv.flush().map_err(AnalyzeError::Write)
    }
}

fn cause(error: csv::Error) -> AnalyzeError {
    AnalyzeError::Write(match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    })
}
