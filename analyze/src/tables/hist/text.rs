//! Histograms as text: one line with a bar per bucket, a block per key.
//!
//! A bucket is written as the times from its shortest to below the next bucket. Each key has a scale of its own. Fine buckets are
//! merged until at most 40 lines of a key are left.

use std::io::{self, Write};

use super::{Bucket, Buckets, Counts, Histogram};
use crate::{
    output::{
        layout::{self, TextStyle, bar},
        units,
    },
    tables::buckets,
};

/// The width without a terminal.
const WIDTH: usize = 100;

/// Columns before a bar: the bucket, two numbers, and the gaps.
const BEFORE: usize = 42;

/// The most lines of a key.
const LINES: usize = 40;

/// Writes the bars of every key.
pub(super) fn write_bars(
    histogram: &Histogram,
    style: TextStyle,
    out: &mut (impl Write + ?Sized),
) -> io::Result<()> {
    let room = style.width.unwrap_or(WIDTH).saturating_sub(BEFORE);
    let names = style.names(histogram.keys.iter().map(|key| key.name.as_str()));
    for (at, (key, name)) in histogram.keys.iter().zip(names).enumerate() {
        if at > 0 {
            writeln!(out)?;
        }
        let name = layout::marked(&name, key.cut_by_loss > 0);
        writeln!(out, "{}", style.line(&name))?;
        let buckets = match histogram.buckets {
            Buckets::Log2 => key.buckets.clone(),
            Buckets::Hdr => few(&key.buckets),
        };
        let total = units::duration(key.total_ns);
        let count = units::counted(key.count, histogram.of.as_str());
        writeln!(out, "{count}, {total} together{}", width_of(&buckets, histogram))?;
        block(key, &buckets, room, out)?;
    }
    let hidden = histogram.keys_total - histogram.keys.len();
    if hidden > 0 {
        writeln!(out)?;
    }
    layout::more(hidden, "key", "", style, out)
}

/// Merges neighbouring buckets until few are left.
fn few(buckets: &[Bucket]) -> Vec<Bucket> {
    let merged = |bits: u32| {
        let mut few: Vec<Bucket> = Vec::new();
        for bucket in buckets {
            let group = buckets::bucket(bucket.from_ns) >> bits;
            let from_ns = (group << bits).checked_sub(1).map_or(0, |before| buckets::bucket_end(before) + 1);
            match few.last_mut() {
                Some(last) if last.from_ns == from_ns => last.count += bucket.count,
                _ => {
                    let to_ns = buckets::bucket_end((group << bits) + (1 << bits) - 1);
                    few.push(Bucket { from_ns, to_ns, count: bucket.count });
                }
            }
        }
        few
    };
    let small_enough = (0..buckets::BITS).map(merged).find(|few| few.len() <= LINES);
    small_enough.unwrap_or_else(|| merged(buckets::BITS))
}

/// Returns a note on the width of the lines, unless they are powers of two.
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
