//! The comparison as text: one metric of each lock, before and after, then both trust blocks.

use std::io::{self, Write};

use super::{Change, DRAWS, Diff, ENOUGH, PERIODS, Resampling, Row};
use crate::{
    input::trust::About,
    output::{
        layout::{self, Name, Notes, TextStyle},
        units,
    },
};

/// Writes the table and both trust blocks.
pub(super) fn write(diff: &Diff, style: TextStyle, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    for (which, trust) in diff.trusts() {
        if let Some(warning) = trust.warning() {
            style.warning(&format!("{which}: {warning}"), out)?;
        }
    }
    if diff.rows_total == 0 {
        writeln!(out, "nothing to show: no lock was acquired in what was selected\n")?;
    } else {
        let per = if diff.metric.is_rate() { " per second" } else { "" };
        let what = match diff.resampling {
            Resampling::Periods => format!(
                "{}{per}; 95 % of {DRAWS} draws of {PERIODS} periods lie between from and to, ~ may be chance",
                diff.metric
            ),
            Resampling::Recordings | Resampling::Hosts => {
                let ([base, new], drawn) = (diff.recordings, diff.resampling);
                format!(
                    "{}{per} of {base} and {new} {drawn}; from and to hold 95 % of what such {drawn} differ by, ~ may be chance",
                    diff.metric
                )
            }
        };
        style.wrapped(&what, out)?;
        writeln!(out)?;
        let rows: Vec<&Row> = [&diff.all].into_iter().chain(&diff.rows).collect();
        let cells: Vec<Vec<String>> = rows.iter().map(|row| cells(row.change(diff.metric))).collect();
        let names: Vec<String> =
            rows.iter().map(|row| layout::marked(&row.name, row.cut_by_loss > 0)).collect();
        let names: Vec<Name<'_>> = names.iter().map(|name| name.as_str().into()).collect();
        let heads = ["base", "new", "change", "from", "to", ""];
        layout::table(&heads, &cells, diff.by.as_str(), &names, style, out)?;
        layout::hidden(diff.rows_total - diff.rows.len(), "", style, out)?;
        if style.notes != Notes::None {
            writeln!(out)?;
        }
    }
    write_trust(diff, style, out)
}

/// Writes both trust blocks.
pub(super) fn write_trust(diff: &Diff, style: TextStyle, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    if style.notes == Notes::None {
        return Ok(());
    }
    if diff.resampling == Resampling::Periods {
        style.wrapped(&uncertainty(diff), out)?;
    }
    if diff.resampling == Resampling::Hosts {
        let left_out =
            "traces that lost too many events are in neither file; fleet.py ROLLUPS left_out lists them";
        style.wrapped(left_out, out)?;
    }
    diff.trusts().into_iter().try_for_each(|(which, trust)| {
        write!(out, "{which}: ")?;
        trust.write_about(About::Diff, style, out)
    })
}

/// Returns the sentence on what few recordings cannot show.
fn uncertainty(diff: &Diff) -> String {
    let few = match diff.recordings {
        [1, 1] => "one recording of each".to_owned(),
        [base, new] => format!("{base} and {new} recordings"),
    };
    format!(
        "{few}: how much recordings of the same program differ is not known, and not in from and to; compare {ENOUGH} or more of each: klock \
         analyze diff base-*.parquet -- new-*.parquet"
    )
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
