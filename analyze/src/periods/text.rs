//! The timeline for people: a block per key, in it a line per period with a bar for the waiting, then the trust block.
//!
//! All bars are to one scale, so that keys can be compared.

use std::io::{self, Write};

use super::{Cell, Series, Timeline};
use crate::{
    error::AnalyzeError,
    layout::{self, Look, bar},
    report::About,
    units,
};

/// How wide all is where there is no terminal.
const WIDTH: usize = 100;

/// What comes before a bar: time, four numbers, and the gaps.
const BEFORE: usize = 49;

/// Writes the timeline and the trust block. ///
/// # Errors
///
/// [`AnalyzeError::Write`] with the cause that `out` gave.
pub fn write(
    timeline: &Timeline,
    look: impl Into<Look>,
    out: &mut (impl Write + ?Sized),
) -> Result<(), AnalyzeError> {
    let look = look.into();
    let written = timeline.trust.warn(out).and_then(|()| blocks(timeline, look, out));
    written.and_then(|()| timeline.trust.write_about(About::Timeline, look, out)).map_err(AnalyzeError::Write)
}

fn blocks(timeline: &Timeline, look: Look, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    if timeline.keys.is_empty() {
        return writeln!(out, "nothing to show: no lock was held or waited for in what was selected\n");
    }
    let room = look.width.unwrap_or(WIDTH).saturating_sub(BEFORE);
    let most = timeline.series().flat_map(|series| series.cells.values()).map(|cell| cell.wait_ns).max();
    let most_ns = most.unwrap_or(0);
    writeln!(
        out,
        "periods of {}; bars are waiting, all to one scale\n",
        units::duration(timeline.period_ns)
    )?;
    let names = look.names(timeline.series().map(|series| series.name.as_str()));
    for (series, name) in timeline.series().zip(names) {
        let name = match series.key {
            None => format!("{} other keys", units::exact(timeline.others_count as i64)),
            Some(_) => layout::marked(&name, series.cut_by_loss > 0),
        };
        writeln!(out, "{}", look.line(&name))?;
        block(timeline, series, most_ns, room, out)?;
        writeln!(out)?;
    }
    Ok(())
}

fn block(
    timeline: &Timeline,
    series: &Series,
    most_ns: i64,
    room: usize,
    out: &mut (impl Write + ?Sized),
) -> io::Result<()> {
    writeln!(out, "{:>9}  {:>8}  {:>8}  {:>7}  {:>7}", "from", "wait", "hold", "waits", "holds")?;
    let none = Cell::default();
    let mut quiet = 0;
    for number in 0..timeline.periods() {
        let cell = series.cells.get(&number).unwrap_or(&none);
        if cell.is_empty() {
            quiet += 1;
            continue;
        }
        skipped(&mut quiet, out)?;
        let from = units::duration(timeline.period(number).0);
        let bar = bar(cell.wait_ns, most_ns, room);
        writeln!(out, "{}", format!("{from:>9}  {}  {bar}", numbers(cell)).trim_end())?;
    }
    skipped(&mut quiet, out)?;
    writeln!(out, "{:>9}  {}", "all", numbers(&series.total))
}

fn skipped(quiet: &mut i64, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    match std::mem::take(quiet) {
        0 => Ok(()),
        1 => writeln!(out, "{:>9}", "-"),
        periods => writeln!(out, "{:>9}  nothing in {} periods", "-", units::exact(periods)),
    }
}

fn numbers(cell: &Cell) -> String {
    let wait = units::duration(cell.wait_ns);
    let hold = cell.hold_ns.map_or_else(|| "-".to_owned(), units::duration);
    format!("{wait:>8}  {hold:>8}  {:>7}  {:>7}", units::count(cell.waits), units::count(cell.holds))
}
