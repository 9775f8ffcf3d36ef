//! The timeline as rows: one for each period and key in which something happened, by period, in it by waiting.

use std::io::Write;

use super::Timeline;
use crate::{
    error::AnalyzeError,
    report::{
        Key,
        rows::{key_cells, key_field},
    },
    rows::{self, Cell, Field, Format, Value},
};

/// Writes it.
///
/// # Errors
///
/// [`AnalyzeError::Write`] with the cause that `out` gave.
pub fn write(timeline: &Timeline, format: Format, out: &mut (dyn Write + Send)) -> Result<(), AnalyzeError> {
    let mut fields = vec![
        Field::number("from_ns").shown("from", Value::Moment, (0, 0)),
        Field::number("to_ns"),
        Field::number("wait_ns").shown("wait", Value::Duration, (0, 0)),
        Field::number("hold_ns").shown("hold", Value::Duration, (0, 0)),
        Field::number("waits").shown("waits", Value::Count, (0, 0)),
        Field::number("holds").shown("holds", Value::Count, (0, 0)),
        Field::text("name").shown(timeline.by.as_str(), Value::Text, (0, 0)),
    ];
    fields.extend(Key::column_names(timeline.by).iter().map(|name| key_field(name)));
    if timeline.traces > 1 {
        fields.push(Field::text("trace"));
    }
    let mut out = rows::writer(format, &fields, None, out)?;
    for period in 0..timeline.periods() {
        let (from_ns, to_ns) = timeline.period(period);
        let mut here: Vec<_> =
            timeline.series().filter_map(|series| Some((series.cells.get(&period)?, series))).collect();
        here.sort_by_key(|(cell, _)| std::cmp::Reverse((cell.wait_ns, cell.hold_ns)));
        for (cell, series) in here {
            let mut cells: Vec<Cell<'_>> = vec![
                from_ns.into(),
                to_ns.into(),
                cell.wait_ns.into(),
                cell.hold_ns.into(),
                cell.waits.into(),
                cell.holds.into(),
                series.name.as_str().into(),
            ];
            cells.extend(key_cells(series.key.as_ref(), timeline.by));
            if timeline.traces > 1 {
                cells.push(series.trace.as_deref().into());
            }
            out.push(&cells)?;
        }
    }
    out.finish()
}
