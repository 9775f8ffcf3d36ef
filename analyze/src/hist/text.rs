//! The histograms for people: a block per key with a bar per bucket, then the trust block.
//!
//! A bucket is written by the time that its times are shorter than. The bars of each key are to a scale of their own. Fine buckets are
//! put together until there are few enough to look at, of each key as many as it takes.

use std::io::{self, Write};

use super::{Bucket, Buckets, Counts, Histogram};
use crate::{
    error::AnalyzeError,
    layout::{self, Look, bar},
    report::{About, spread},
    units,
};

/// How wide all is where there is no terminal.
const WIDTH: usize = 100;

/// What comes before a bar: the bucket, two numbers, and the gaps.
const BEFORE: usize = 42;

/// How many fine buckets of a key may be shown.
const LINES: usize = 40;

/// Writes the histograms and the trust block. ///
/// # Errors
///
/// [`AnalyzeError::Write`] with the cause that `out` gave.
pub fn write(
    histogram: &Histogram,
    look: impl Into<Look>,
    out: &mut (impl Write + ?Sized),
) -> Result<(), AnalyzeError> {
    let look = look.into();
    let written = histogram.trust.warn(out).and_then(|()| blocks(histogram, look, out));
    written
        .and_then(|()| histogram.trust.write_about(About::Hist(histogram.of), look, out))
        .map_err(AnalyzeError::Write)
}

fn blocks(histogram: &Histogram, look: Look, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    if histogram.keys.is_empty() {
        return writeln!(out, "nothing to show: no {} that is known from begin to end\n", histogram.of);
    }
    let room = look.width.unwrap_or(WIDTH).saturating_sub(BEFORE);
    let names = look.names(histogram.keys.iter().map(|key| key.name.as_str()));
    for (key, name) in histogram.keys.iter().zip(names) {
        let name = layout::marked(&name, key.cut_by_loss > 0);
        let count = units::exact(i64::try_from(key.count).unwrap_or(i64::MAX));
        let plural = if key.count == 1 { "" } else { "s" };
        writeln!(out, "{}", look.line(&name))?;
        let buckets = match histogram.buckets {
            Buckets::Log2 => key.buckets.clone(),
            Buckets::Hdr => few(&key.buckets),
        };
        let total = units::duration(key.total_ns);
        writeln!(out, "{count} {}{plural}, {total} together{}", histogram.of, width_of(&buckets, histogram))?;
        block(key, &buckets, room, out)?;
        writeln!(out)?;
    }
    let hidden = histogram.keys_total - histogram.keys.len();
    layout::more(hidden, "key", out)?;
    if hidden > 0 { writeln!(out) } else { Ok(()) }
}

/// So many neighbours as one that few are left.
fn few(buckets: &[Bucket]) -> Vec<Bucket> {
    let together = |bits: u32| {
        let mut few: Vec<Bucket> = Vec::new();
        for bucket in buckets {
            let group = spread::bucket(bucket.from_ns) >> bits;
            let from_ns = (group << bits).checked_sub(1).map_or(0, |before| spread::bucket_end(before) + 1);
            match few.last_mut() {
                Some(last) if last.from_ns == from_ns => last.count += bucket.count,
                _ => {
                    let to_ns = spread::bucket_end((group << bits) + (1 << bits) - 1);
                    few.push(Bucket { from_ns, to_ns, count: bucket.count });
                }
            }
        }
        few
    };
    let small_enough = (0..spread::BITS).map(together).find(|few| few.len() <= LINES);
    small_enough.unwrap_or_else(|| together(spread::BITS))
}

/// How wide the lines are, if they are not powers of two.
fn width_of(buckets: &[Bucket], histogram: &Histogram) -> String {
    let wide = |bucket: &Bucket| (bucket.to_ns - bucket.from_ns) as f64 / bucket.from_ns as f64 * 100.0;
    let widest = buckets.iter().filter(|bucket| bucket.from_ns > 0).map(wide).fold(0.0, f64::max);
    match histogram.buckets {
        Buckets::Log2 => String::new(),
        Buckets::Hdr => format!("; a line is at most {widest:.1} % wide"),
    }
}

fn block(key: &Counts, buckets: &[Bucket], room: usize, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let most = buckets.iter().map(|bucket| bucket.count).max().unwrap_or(0);
    let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let mut next_ns = None;
    for Bucket { from_ns, to_ns, count } in buckets {
        if next_ns.is_some_and(|next_ns| next_ns != *from_ns) {
            writeln!(out, "{:>8}", "-")?;
        }
        next_ns = to_ns.checked_add(1);
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
