//! The table for people: time with units and its part of all that was waited, the sum, then the trust block. Pairs have
//! both stacks below them, innermost function first.

use std::io::{self, Write};

use super::{Blame, By, Row, Totals};
use crate::{
    error::AnalyzeError,
    layout::{self, Look, Name},
    report::About,
    units,
};

/// Writes the table and the trust block. ///
/// # Errors
///
/// [`AnalyzeError::Write`] with the cause that `out` gave.
pub fn write(
    blame: &Blame,
    look: impl Into<Look>,
    out: &mut (impl Write + ?Sized),
) -> Result<(), AnalyzeError> {
    let look = look.into();
    let written = blame.trust.warn(out).and_then(|()| table(blame, look, out));
    written.and_then(|()| blame.trust.write_about(About::Blame, look, out)).map_err(AnalyzeError::Write)
}

fn table(blame: &Blame, look: Look, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    if blame.rows_total == 0 {
        writeln!(out, "nothing to show: nobody waited for a lock in what was selected\n")?;
        return Ok(());
    }
    let all_ns = blame.totals.waited_ns;
    let cells: Vec<Vec<String>> = blame
        .rows
        .iter()
        .map(|row| {
            let (caused, longest) = (units::duration(row.wait_caused_ns), units::duration(row.longest_ns));
            vec![caused, percent(row.wait_caused_ns, all_ns), units::count(row.shares), longest]
        })
        .collect();
    let stacks: Vec<Vec<String>> =
        blame.rows.iter().map(|row| if blame.by == By::Pair { stacks(row) } else { Vec::new() }).collect();
    let names: Vec<String> =
        blame.rows.iter().map(|row| layout::marked(&row.name, row.cut_by_loss > 0)).collect();
    let names: Vec<Name<'_>> = names.iter().zip(&stacks).map(|(name, more)| Name { name, more }).collect();
    let about = heading(blame.by);
    layout::table(&["wait_caused", "percent", "shares", "longest"], &cells, about, &names, look, out)?;
    layout::hidden(blame.rows_total - blame.rows.len(), out)?;
    let sum = sum(&blame.totals);
    let one_line = sum.join(" ");
    if look.width.is_none_or(|width| one_line.len() <= width) {
        writeln!(out, "\n{one_line}\n")
    } else {
        writeln!(out, "\n{}\n", sum.join("\n  "))
    }
}

pub(super) fn heading(by: By) -> &'static str {
    match by {
        By::Site => "held at (lock)",
        By::Task => "held by",
        By::Pair => "held at <- waited for at (lock)",
        By::Host => "host",
    }
}

fn stacks(row: &Row) -> Vec<String> {
    let line = |what: &str, frames: &[String]| {
        (!frames.is_empty()).then(|| format!("  {what:<8}{}", frames.join(" < ")))
    };
    [line("held", &row.holder_stack), line("waited", &row.waiter_stack)].into_iter().flatten().collect()
}

/// The whole and its parts; exact, so that it can be checked.
fn sum(totals: &Totals) -> Vec<String> {
    let parts = [
        (totals.hold_ns, "charged to holds"),
        (totals.gap_ns, "in no recorded hold"),
        (totals.owner_ns, "charged to the owner that the lock word named"),
        (totals.unknown_ns, "for holders that were not recorded"),
    ];
    let mut sum = vec![format!("waited {} ns", units::exact(totals.waited_ns))];
    for (ns, what) in parts.iter().filter(|(ns, _)| *ns != 0) {
        let sign = if sum.len() == 1 { '=' } else { '+' };
        sum.push(format!("{sign} {} {what}", units::exact(*ns)));
    }
    sum
}

fn percent(part: i64, all: i64) -> String {
    if all == 0 { "-".to_owned() } else { format!("{:.1} %", part as f64 * 100.0 / all as f64) }
}
