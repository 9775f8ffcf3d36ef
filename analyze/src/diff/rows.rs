//! The comparison as rows: for programs one for each key and metric, for a document one for each key with the metric that was chosen.

use std::io::Write;

use super::{Change, Diff, Row};
use crate::{
    error::AnalyzeError,
    rows::{self, Cell, Field, Format, Value},
};

/// Writes it.
///
/// # Errors
///
/// [`AnalyzeError::Write`] with the cause that `out` gave.
pub fn write(diff: &Diff, format: Format, out: &mut (dyn Write + Send)) -> Result<(), AnalyzeError> {
    let of_metric = if diff.metric.is_time() { Value::Duration } else { Value::Count };
    let fields = [
        Field::text("metric").shown("metric", Value::Text, (0, 0)),
        Field::number("base").shown("base", of_metric, (0, 0)),
        Field::number("new").shown("new", of_metric, (0, 0)),
        Field::number("change_ppm").shown("change", Value::Ppm, (0, 0)),
        Field::number("low_ppm").shown("from", Value::Ppm, (0, 0)),
        Field::number("high_ppm").shown("to", Value::Ppm, (0, 0)),
        Field::text("name").shown("lock", Value::Text, (0, 0)),
        Field::number("cut_by_loss"),
    ];
    let mut out = rows::writer(format, &fields, None, out)?;
    for row in [&diff.all].into_iter().chain(&diff.rows) {
        let changes =
            row.changes.iter().filter(|change| format != Format::Md || change.metric == diff.metric);
        for change in changes {
            out.push(&cells(row, change))?;
        }
    }
    out.finish()
}

fn cells<'a>(row: &'a Row, change: &Change) -> [Cell<'a>; 8] {
    let whole = |value: Option<f64>| Cell::from(value.map(|value| value.round() as i64));
    let ppm = |part: Option<f64>| whole(part.map(|part| part * 1e6));
    [
        change.metric.as_str().into(),
        whole(change.base),
        whole(change.new),
        ppm(change.change),
        ppm(change.interval.map(|(low, _)| low)),
        ppm(change.interval.map(|(_, high)| high)),
        row.name.as_str().into(),
        i64::try_from(row.cut_by_loss).unwrap_or(i64::MAX).into(),
    ]
}
