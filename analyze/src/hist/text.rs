//! The histograms for people: a block per key with a bar per bucket, then the trust block.
//!
//! A bucket is written by the time that its times are shorter than. The bars of each key are to a scale of their own.

use std::io::{self, Write};

use super::{Bucket, Counts, Histogram};
use crate::{
    error::AnalyzeError,
    layout::{self, bar},
    units,
};

/// How wide all is where there is no terminal.
const WIDTH: usize = 100;

/// What comes before a bar: the bucket, two numbers, and the gaps.
const BEFORE: usize = 42;

/// Writes the histograms and the trust block. `width` is that of the terminal, `None` if there is none.
///
/// # Errors
///
/// [`AnalyzeError::Write`] with the cause that `out` gave.
pub fn write(
    histogram: &Histogram,
    width: Option<usize>,
    out: &mut (impl Write + ?Sized),
) -> Result<(), AnalyzeError> {
    let written = histogram.trust.warn(out).and_then(|()| blocks(histogram, width, out));
    written.and_then(|()| histogram.trust.write(out)).map_err(AnalyzeError::Write)
}

fn blocks(histogram: &Histogram, width: Option<usize>, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    if histogram.keys.is_empty() {
        return writeln!(out, "nothing to show: no {} that is known from begin to end\n", histogram.of);
    }
    let room = width.unwrap_or(WIDTH).saturating_sub(BEFORE);
    for key in &histogram.keys {
        let name = layout::marked(&key.name, key.cut_by_loss > 0);
        let count = units::exact(i64::try_from(key.count).unwrap_or(i64::MAX));
        let plural = if key.count == 1 { "" } else { "s" };
        writeln!(out, "{}", layout::cut(&name, width.unwrap_or(usize::MAX)))?;
        writeln!(out, "{count} {}{plural}, {} together", histogram.of, units::duration(key.total_ns))?;
        block(key, room, out)?;
        writeln!(out)?;
    }
    let hidden = histogram.keys_total - histogram.keys.len();
    layout::more(hidden, "key", out)?;
    if hidden > 0 { writeln!(out) } else { Ok(()) }
}

fn block(key: &Counts, room: usize, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let most = key.buckets.iter().map(|bucket| bucket.count).max().unwrap_or(0);
    let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    for Bucket { from_ns, to_ns, count } in &key.buckets {
        let (from, below) = (units::duration(*from_ns), units::duration(to_ns.saturating_add(1)));
        let percent = *count as f64 * 100.0 / key.count as f64;
        let bar = bar(number(*count), number(most), room);
        let count = units::count(number(*count));
        writeln!(
            out,
            "{}",
            format!("{from:>8} .. {below:>8}  {count:>8}  {percent:>5.1} %  {bar}").trim_end()
        )?;
    }
    Ok(())
}
