//! The timeline as text: one line per period with a bar for waiting, a block per key. All bars have one scale.

use std::io::{self, Write};

use super::{Cell, Series, Timeline};
use crate::output::{
    layout::{self, TextStyle, bar},
    units,
};

/// The width without a terminal.
const WIDTH: usize = 100;

/// Columns before a bar: the time, four numbers, and the gaps.
const BEFORE: usize = 49;

/// Writes the bars of every key.
pub(super) fn write_bars(
    timeline: &Timeline,
    style: TextStyle,
    out: &mut (impl Write + ?Sized),
) -> io::Result<()> {
    let room = style.width.unwrap_or(WIDTH).saturating_sub(BEFORE);
    let most = timeline.series().flat_map(|series| series.cells.values()).map(|cell| cell.wait_ns).max();
    let most_ns = most.unwrap_or(0);
    writeln!(out, "periods of {}; bars are waiting, all to one scale", units::duration(timeline.period_ns))?;
    let names = style.names(timeline.series().map(|series| series.name.as_str()));
    for (series, name) in timeline.series().zip(names) {
        let name = match series.key {
            None => format!("{} other keys", units::exact(timeline.others_count as i64)),
            Some(_) => layout::marked(&name, series.cut_by_loss > 0),
        };
        writeln!(out, "\n{}", style.line(&name))?;
        block(timeline, series, most_ns, room, out)?;
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
