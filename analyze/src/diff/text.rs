//! The comparison for people: one metric of each lock, before and after, then both trust blocks.

use std::io::{self, Write};

use super::{Change, DRAWS, Diff, PERIODS, Row};
use crate::{
    error::AnalyzeError,
    layout::{self, Look, Name},
    report::About,
    units,
};

/// Writes the table and the trust blocks. ///
/// # Errors
///
/// [`AnalyzeError::Write`] with the cause that `out` gave.
pub fn write(
    diff: &Diff,
    look: impl Into<Look>,
    out: &mut (impl Write + ?Sized),
) -> Result<(), AnalyzeError> {
    let look = look.into();
    table(diff, look, out).map_err(AnalyzeError::Write)
}

fn table(diff: &Diff, look: Look, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    for (which, trust) in [("base", &diff.base), ("new", &diff.new)] {
        if let Some(warning) = trust.warning() {
            writeln!(out, "{which}: {warning}\n")?;
        }
    }
    if diff.rows_total == 0 {
        writeln!(out, "nothing to show: no lock was acquired in what was selected\n")?;
    } else {
        let per = if diff.metric.is_rate() { " per second" } else { "" };
        let what = format!(
            "{}{per}; 95 % of {DRAWS} draws of {PERIODS} periods lie between from and to, ~ may be chance",
            diff.metric
        );
        look.wrapped(&what, out)?;
        writeln!(out)?;
        let rows: Vec<&Row> = [&diff.all].into_iter().chain(&diff.rows).collect();
        let cells: Vec<Vec<String>> = rows.iter().map(|row| cells(row.change(diff.metric))).collect();
        let names: Vec<String> =
            rows.iter().map(|row| layout::marked(&row.name, row.cut_by_loss > 0)).collect();
        let names: Vec<Name<'_>> = names.iter().map(|name| name.as_str().into()).collect();
        let heads = ["base", "new", "change", "from", "to", ""];
        layout::table(&heads, &cells, diff.by.as_str(), &names, look, out)?;
        layout::hidden(diff.rows_total - diff.rows.len(), out)?;
        writeln!(out)?;
    }
    write!(out, "base: ")?;
    diff.base.write_about(About::Diff, look, out)?;
    write!(out, "new: ")?;
    diff.new.write_about(About::Diff, look, out)
}

fn cells(change: &Change) -> Vec<String> {
    let value = |value: Option<f64>| match value {
        None => "-".to_owned(),
        Some(value) if change.metric.is_time() => units::duration(value.round() as i64),
        Some(value) => units::count(value.round() as i64),
    };
    let has_come = change.base.unwrap_or(0.0) == 0.0 && change.new.unwrap_or(0.0) > 0.0;
    let by = match change.change {
        Some(by) => percent(by),
        None if has_come => "new".to_owned(),
        None if change.base.is_some_and(|base| base > 0.0) => "gone".to_owned(),
        None => "-".to_owned(),
    };
    let (low, high) =
        change.interval.map_or(("-".to_owned(), "-".to_owned()), |(l, h)| (percent(l), percent(h)));
    let doubt = if change.interval.is_some() && !change.is_certain() { "~" } else { "" };
    vec![value(change.base), value(change.new), by, low, high, doubt.to_owned()]
}

fn percent(part: f64) -> String {
    let percent = part * 100.0;
    if percent.abs() < 99.95 { format!("{percent:+.1} %") } else { format!("{percent:+.0} %") }
}
