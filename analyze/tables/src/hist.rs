//! `klock hist`: the number of waits or holds in each bucket of times, by key.
//!
//! The table counts the waits and holds of a report: waits that ended with the lock and whose start was seen,
//! holds whose both ends were seen. So the counts of a key add up to the counts of its row there. Text has a
//! line with a bar per bucket and a block per key; each key has a scale of its own, and fine buckets are
//! merged until at most 40 lines of a key are left. Memory grows with the number of keys.

use std::{
    borrow::Borrow,
    io::{self, Write},
};

use polars::prelude::{PolarsResult, SortMultipleOptions, col, lit};
use rustc_hash::FxHashMap;
use serde::Serialize;
use trace_format::Trace;

use crate::{
    Table, buckets,
    cells::Cells,
    frame::{Count, Lines, failed, lines, sums},
    key::{self, By, Ids, Key, RowKey},
    key_columns,
    rank::{self, OrderBy, Row, Rows, order_by},
    row_ids::{NamedRow, RowIds},
    trace_column,
};
use intervals::{
    input::filter::Filter,
    input::trust::{About, Trust, TrustCounter},
    input::{Input, readers},
    items::{Columns, Hold, HoldState, Needs, Outcome, Sink, Wait},
};
use output::{
    Column, Page, choices,
    error::AnalyzeError,
    layout::{self, TextStyle, bar},
    units,
};

#[cfg(test)]
mod tests;

pub use super::buckets::{Bucket, Buckets};

choices! {
    /// The times that are counted.
    Of, "time" {
        /// Waits that ended with the lock.
        #[default]
        Wait = "wait",
        /// Holds.
        Hold = "hold",
    }
}

/// Options of the table.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The times that are counted.
    pub of: Of,
    /// The widths of the buckets.
    pub buckets: Buckets,
    /// The key of a histogram; `None` is one for all.
    pub by: Option<By>,
    /// The order of the keys: `count` or `name`; empty for the longest total time first.
    pub sort: String,
    /// The number of keys; `None` is all.
    pub limit: Option<usize>,
    /// The number of frames, with [`By::Stack`].
    pub depth: Option<usize>,
    /// The part of the traces to read.
    pub filter: Filter,
    /// Whether to rank a trace that lost too many events for the order of keys to mean anything.
    pub allow_loss: bool,
}

/// The histograms.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Histogram {
    /// The times that are counted.
    pub of: Of,
    /// The widths of the buckets.
    pub buckets: Buckets,
    /// The key of a histogram.
    pub by: Option<By>,
    /// The number of traces.
    pub traces: usize,
    /// The keys, the one with the longest total time first.
    pub keys: Vec<Counts>,
    /// The number of keys before the limit.
    pub keys_total: usize,
    /// Events and intervals that the numbers do not hold.
    pub trust: Trust,
}

/// One key: the number of its times in `count`, their sum in `total_ns`, and in `cut_by_loss` the holds and
/// waits that are left out because events were lost while they lasted.
pub type Counts = Row<HistKey>;

/// The key of a histogram, and its buckets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct HistKey {
    /// The key; `None` if there is one histogram for all.
    pub key: Option<Key>,
    /// The buckets from the shortest time to the longest. Empty ones between are listed for powers of two
    /// only.
    pub buckets: Vec<Bucket>,
    #[serde(skip)]
    row: i64,
}

/// Computes the histograms of one trace or several.
///
/// # Errors
///
/// A trace cannot be read, holds no events or lost too much, or a filter finds nothing in any of them.
pub fn histogram(traces: &[Trace], options: &Options) -> Result<Histogram, AnalyzeError> {
    let frames = options.by.map_or(0, |by| by.frames(options.depth));
    let inputs = Input::open_all(traces, frames, &options.filter)?;
    of_inputs(&inputs, options, readers())
}

/// Computes the histograms with this number of readers, which changes nothing in them.
pub fn of_inputs(inputs: &[Input<'_>], options: &Options, readers: usize) -> Result<Histogram, AnalyzeError> {
    let order = order_by(&columns(options.by, false), &options.sort, &["total_ns"])?;
    let mut ids = RowIds::new(inputs.len());
    let (mut sums, mut counts) = (Lines::new(["row"]), Lines::new(["row", "bucket"]));
    let sink = |at: usize| Counting {
        input: &inputs[at],
        options,
        keys: Cells::new(options.by.map_or(Ids::None, By::ids), &inputs[at].names),
        trust: TrustCounter::default(),
    };
    let how = (readers, options.allow_loss);
    let trust = Input::read_all(inputs, how, sink, |at, Counting { keys, trust, .. }| {
        for (key, counted) in keys.into_values() {
            let row = options.by.map_or(0, |_| ids.id(at, key, inputs));
            sums.push([row], &counted.sums);
            for (bucket, count) in counted.buckets {
                counts.push([row, bucket.into()], &Count { count });
            }
        }
        trust
    })?;
    let name = |[row]: [i64; 1]| match options.by {
        Some(_) => ids.name(row, inputs),
        None => NamedRow { key: Key::default(), name: "all".to_owned(), trace: None },
    };
    let Rows { mut rows, total: keys_total, .. } = ranked(sums, &order, options, name)?;
    add_buckets(&mut rows, counts, options.buckets).map_err(failed)?;
    let keys = rows;
    let Options { of, by, buckets, .. } = *options;
    Ok(Histogram { of, buckets, by, traces: inputs.len(), keys, keys_total, trust })
}

/// Merges the lines of all readers, and returns the keys that are shown, without buckets.
fn ranked(
    sums: Lines<TimeSums, 1>,
    order: &[OrderBy],
    options: &Options,
    name: impl Fn([i64; 1]) -> NamedRow,
) -> Result<Rows<HistKey>, AnalyzeError> {
    let rows = sums.merge().and_then(|sums| sums.filter(col("count").gt(lit(0))).collect());
    let named = |[row]: [i64; 1]| {
        let NamedRow { key, name, trace } = name([row]);
        let key = HistKey { key: options.by.is_some().then_some(key), buckets: Vec::new(), row };
        NamedRow { key, name, trace }
    };
    rank::rows(|name| name != "row", rows.map_err(failed)?, ["row"], order, options.limit, named)
}

/// Merges the counts of all readers into the buckets of the keys that are shown.
fn add_buckets(keys: &mut [Counts], counts: Lines<Count, 2>, buckets: Buckets) -> PolarsResult<()> {
    let counts = counts.merge()?.sort(["row", "bucket"], SortMultipleOptions::default()).collect()?;
    let mut of_row: FxHashMap<i64, Vec<(u32, u64)>> = FxHashMap::default();
    for [row, bucket, count] in lines(&counts, ["row", "bucket", "count"])? {
        of_row.entry(row).or_default().push((bucket as u32, count as u64));
    }
    for key in keys {
        // The ids of rows depend on the number of readers.
        let row = std::mem::take(&mut key.key.row);
        key.key.buckets = buckets.of(&of_row.remove(&row).unwrap_or_default());
    }
    Ok(())
}

sums! {
    /// The sums of one histogram.
    struct TimeSums {
        count: Sum,
        total_ns: Sum,
        cut_by_loss: Sum,
    }
}

#[derive(Default)]
struct Counted {
    sums: TimeSums,
    /// The count of each bucket.
    buckets: FxHashMap<u32, i64>,
}

/// Counts the times of holds, and of the waits before them.
struct Counting<'a> {
    input: &'a Input<'a>,
    options: &'a Options,
    keys: Cells<Counted>,
    trust: TrustCounter,
}

impl Counting<'_> {
    fn key(&mut self, subject: key::Subject) -> &mut Counted {
        // Without a key, all are one row.
        let by = self.options.by.unwrap_or(By::Host);
        self.keys.of(subject, |subject| RowKey::of(subject, by, &self.input.names))
    }
}

impl Sink for Counting<'_> {
    fn needs(&self) -> Needs {
        Needs::columns(Columns::Times)
    }

    fn hold(&mut self, hold: &Hold) {
        if !self.input.selection.selects_hold(hold) {
            return;
        }
        self.trust.hold(hold);
        let ns = match self.options.of {
            Of::Hold if hold.state == HoldState::Complete => hold.end_ns.saturating_sub(hold.start_ns),
            Of::Wait if hold.is_credited() && hold.contended && hold.wait_ns.is_some() => {
                hold.wait_ns.unwrap_or(0)
            }
            Of::Hold if hold.state == HoldState::CutByLoss => {
                self.key(hold.into()).sums.cut_by_loss += 1;
                return;
            }
            _ => return,
        };
        let bucket = self.options.buckets.number(ns);
        let counted = self.key(hold.into());
        counted.sums.count += 1;
        counted.sums.total_ns = counted.sums.total_ns.saturating_add(ns);
        *counted.buckets.entry(bucket).or_default() += 1;
    }

    fn wait(&mut self, wait: &Wait) {
        if self.input.selection.selects_wait(wait) {
            self.trust.wait(wait);
            if self.options.of == Of::Wait && wait.outcome == Outcome::CutByLoss {
                self.key(wait.into()).sums.cut_by_loss += 1;
            }
        }
    }
}

/// A bucket of a key.
pub type BucketRow = Row<BucketKey>;

/// The key and the bucket of a row.
#[derive(Clone, Debug)]
pub struct BucketKey {
    /// The bucket.
    pub bucket: Bucket,
    /// The key; `None` if there is one histogram for all.
    pub key: Option<Key>,
}

/// Declares the columns; rows of several traces have their trace.
pub fn columns(by: Option<By>, several: bool) -> Vec<Column<BucketRow>> {
    type Of = Column<BucketRow>;
    let mut columns = vec![
        Of::duration("from", |row| row.key.bucket.from_ns, "The shortest time of the bucket.").not_sortable(),
        Of::duration("to", |row| row.key.bucket.to_ns, "The longest time of the bucket.").not_sortable(),
        Of::count("count", |row| row.key.bucket.count, "The number of times in it."),
        Of::name(by.map_or_else(|| "all".to_owned(), |by| by.to_string()), |row| row.name.as_str().into()),
    ];
    if let Some(by) = by {
        columns.extend(key_columns(by, "", |row: &BucketRow| row.key.key.as_ref()));
    }
    columns.extend(trace_column(several, |row: &BucketRow| row.trace.as_deref()));
    columns
}

impl Table for Histogram {
    type Row = BucketRow;

    fn columns(&self) -> Vec<Column<BucketRow>> {
        columns(self.by, self.traces > 1)
    }

    fn rows(&self) -> impl Iterator<Item = impl Borrow<BucketRow>> {
        self.keys.iter().flat_map(|counts| {
            let HistKey { key, buckets, .. } = &counts.key;
            buckets.iter().map(|bucket| counts.with_key(BucketKey { bucket: *bucket, key: key.clone() }))
        })
    }

    /// A key is kept by the number of all its times, from the shortest to the longest.
    fn retain(&mut self, keep: &dyn Fn(&BucketRow) -> bool, limit: Option<usize>) {
        self.keys.retain(|counts| {
            let HistKey { key, buckets, .. } = &counts.key;
            let (from_ns, to_ns) =
                (buckets.first().map_or(0, |b| b.from_ns), buckets.last().map_or(0, |b| b.to_ns));
            let bucket = Bucket { from_ns, to_ns, count: counts["count"] as u64 };
            keep(&counts.with_key(BucketKey { bucket, key: key.clone() }))
        });
        self.keys_total = self.keys.len();
        self.keys.truncate(limit.unwrap_or(usize::MAX));
    }

    fn hidden_rows(&self) -> usize {
        self.keys_total - self.keys.len()
    }

    fn trust(&self) -> &Trust {
        &self.trust
    }

    fn about(&self) -> About {
        match self.of {
            Of::Wait => About::WaitHist,
            Of::Hold => About::HoldHist,
        }
    }

    fn nothing(&self) -> Option<String> {
        self.keys.is_empty().then(|| format!("no {} that is known from begin to end", self.of))
    }

    fn write_rows(
        &self,
        _columns: &[Column<BucketRow>],
        page: &Page,
        out: &mut (dyn Write + Send),
    ) -> io::Result<()> {
        write_bars(self, page.style, out)
    }
}

/// The width without a terminal.
const WIDTH: usize = 100;

/// Columns before a bar: the bucket, two numbers, and the gaps.
const BEFORE: usize = 42;

/// The most lines of a key.
const LINES: usize = 40;

/// Writes the bars of every key.
fn write_bars(histogram: &Histogram, style: TextStyle, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let room = style.width.unwrap_or(WIDTH).saturating_sub(BEFORE);
    let names = style.names(histogram.keys.iter().map(|key| key.name.as_str()));
    for (at, (key, name)) in histogram.keys.iter().zip(names).enumerate() {
        if at > 0 {
            writeln!(out)?;
        }
        let name = layout::marked(&name, key["cut_by_loss"] > 0);
        writeln!(out, "{}", style.line(&name))?;
        let buckets = match histogram.buckets {
            Buckets::Log2 => key.key.buckets.clone(),
            Buckets::Hdr => buckets::few(&key.key.buckets, LINES),
        };
        let total = units::duration(key["total_ns"]);
        let count = units::counted(key["count"], histogram.of.as_str());
        writeln!(out, "{count}, {total} together{}", width_of(&buckets, histogram))?;
        block(key, &buckets, room, out)?;
    }
    let hidden = histogram.keys_total - histogram.keys.len();
    if hidden > 0 {
        writeln!(out)?;
    }
    layout::more(hidden, "key", "", style, out)
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
        let percent = *count as f64 * 100.0 / key["count"] as f64;
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
