//! The table as rows: integers with the unit in the column's name, then the name, what identifies holder and waiter, and their stacks,
//! frames apart by semicolons. For programs and documents; the trust block is not in it.

use std::io::Write;

use super::{Blame, By};
use crate::{
    error::AnalyzeError,
    report::{
        self, Key,
        rows::{key_cells, key_field},
    },
    rows::{self, Cell, Field, Format, Value},
};

/// Writes the table.
///
/// # Errors
///
/// [`AnalyzeError::Write`] with the cause that `out` gave.
pub fn write(blame: &Blame, format: Format, out: &mut (dyn Write + Send)) -> Result<(), AnalyzeError> {
    let holder_by = match blame.by {
        By::Task => report::By::Task,
        By::Host => report::By::Host,
        By::Site | By::Pair => report::By::Site,
    };
    let has_places = matches!(blame.by, By::Site | By::Pair);
    let mut fields = vec![
        Field::text("charged_to"),
        Field::number("wait_caused_ns").shown("wait_caused", Value::Duration, (0, 0)),
        Field::number("part_ppm").shown("percent", Value::Ppm, (0, 0)),
        Field::number("shares").shown("shares", Value::Count, (0, 0)),
        Field::number("longest_ns").shown("longest", Value::Duration, (0, 0)),
        Field::number("cut_by_loss"),
        Field::text("name").shown(super::text::heading(blame.by), Value::Text, (0, 0)),
    ];
    let of = |who: &str, by| -> Vec<Field> {
        Key::column_names(by).iter().map(|name| key_field(&format!("{who}_{name}"))).collect()
    };
    fields.extend(of("holder", holder_by));
    if blame.by == By::Pair {
        fields.extend(of("waiter", report::By::Site));
    }
    if has_places {
        fields.push(Field::text("holder_stack"));
    }
    if blame.by == By::Pair {
        fields.push(Field::text("waiter_stack"));
    }
    if blame.traces > 1 {
        fields.push(Field::text("trace"));
    }
    let mut out = rows::writer(format, &fields, None, out)?;
    let all_ns = i128::from(blame.totals.waited_ns);
    for row in &blame.rows {
        let part = (i128::from(row.wait_caused_ns) * 1_000_000).checked_div(all_ns);
        let mut cells: Vec<Cell<'_>> = vec![
            row.charged_to.as_str().into(),
            row.wait_caused_ns.into(),
            part.and_then(|ppm| i64::try_from(ppm).ok()).into(),
            row.shares.into(),
            row.longest_ns.into(),
            row.cut_by_loss.into(),
            row.name.as_str().into(),
        ];
        cells.extend(key_cells(row.holder.as_ref(), holder_by));
        if blame.by == By::Pair {
            cells.extend(key_cells(row.waiter.as_ref(), report::By::Site));
        }
        if has_places {
            cells.push(stack(&row.holder_stack));
        }
        if blame.by == By::Pair {
            cells.push(stack(&row.waiter_stack));
        }
        if blame.traces > 1 {
            cells.push(row.trace.as_deref().into());
        }
        out.push(&cells)?;
    }
    out.finish()
}

/// A semicolon in a symbol would be another frame.
fn stack(frames: &[String]) -> Cell<'static> {
    if frames.is_empty() {
        return Cell::Null;
    }
    frames.iter().map(|frame| frame.replace(';', ":")).collect::<Vec<_>>().join(";").into()
}
