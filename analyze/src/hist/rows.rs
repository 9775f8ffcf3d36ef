//! The histograms as rows: one for each bucket of each key.

use std::io::Write;

use super::Histogram;
use crate::{
    error::AnalyzeError,
    report::{
        Key,
        rows::{key_cells, key_field},
    },
    rows::{self, Cell, Field, Format, Value},
};

/// Writes them.
///
/// # Errors
///
/// [`AnalyzeError::Write`] with the cause that `out` gave.
pub fn write(
    histogram: &Histogram,
    format: Format,
    out: &mut (dyn Write + Send),
) -> Result<(), AnalyzeError> {
    let mut fields = vec![
        Field::number("from_ns").shown("from", Value::Duration, (0, 0)),
        Field::number("to_ns").shown("to", Value::Duration, (0, 0)),
        Field::number("count").shown("count", Value::Count, (0, 0)),
        Field::text("name").shown(histogram.by.map_or("all", |by| by.as_str()), Value::Text, (0, 0)),
    ];
    let names = histogram.by.map_or(&[][..], Key::column_names);
    fields.extend(names.iter().map(|name| key_field(name)));
    if histogram.traces > 1 {
        fields.push(Field::text("trace"));
    }
    let mut out = rows::writer(format, &fields, None, out)?;
    for key in &histogram.keys {
        for bucket in &key.buckets {
            let mut cells: Vec<Cell<'_>> = vec![
                bucket.from_ns.into(),
                bucket.to_ns.into(),
                i64::try_from(bucket.count).unwrap_or(i64::MAX).into(),
                key.name.as_str().into(),
            ];
            if let Some(by) = histogram.by {
                cells.extend(key_cells(key.key.as_ref(), by));
            }
            if histogram.traces > 1 {
                cells.push(key.trace.as_deref().into());
            }
            out.push(&cells)?;
        }
    }
    out.finish()
}
