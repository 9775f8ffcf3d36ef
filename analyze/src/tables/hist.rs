//! `klock analyze hist`: the number of waits or holds in each bucket of times, by key.
//!
//! The waits and holds are those of a report: waits that ended with the lock and whose start was seen, holds whose both ends were
//! seen. So the counts of a key add up to those of its row. Memory grows with the number of keys.

use std::{
    borrow::Borrow,
    io::{self, Write},
};

use polars::prelude::{PolarsResult, SortMultipleOptions, col, lit};
use rustc_hash::FxHashMap;
use trace_format::Trace;

use crate::{
    error::AnalyzeError,
    input::{
        Input, readers,
        trust::{About, Trust, TrustCounter},
    },
    items::{Columns, Hold, HoldState, Item, Needs, Outcome, Sink, Wait},
    output::{Column, Page},
    tables::{
        Table,
        frame::{Count, Lines, failed, lines, sums, sums_of},
        key::{self, By, Key, RowKey},
        key_columns,
        rank::{OrderBy, Ranked, order_by, rank},
        row_ids::{NamedRow, RowIds},
        trace_column,
    },
};

mod counts;
mod options;
#[cfg(test)]
mod tests;
mod text;

pub use counts::{Bucket, Counts, Histogram};
pub use options::{Buckets, Of, Options};

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
pub(crate) fn of_inputs(
    inputs: &[Input<'_>],
    options: &Options,
    readers: usize,
) -> Result<Histogram, AnalyzeError> {
    let order = order_by(&columns(options.by, false), &options.sort, &["total_ns"])?;
    let mut ids = RowIds::new(inputs.len());
    let (mut sums, mut counts) = (Lines::new(["row"]), Lines::new(["row", "bucket"]));
    let sink = |at: usize| Counting {
        input: &inputs[at],
        options,
        keys: FxHashMap::default(),
        trust: TrustCounter::default(),
    };
    let how = (readers, options.allow_loss);
    let trust = Input::read_all(inputs, how, sink, |at, Counting { keys, trust, .. }| {
        for (key, counted) in keys {
            let row = key.map_or(0, |key| ids.id(at, key, inputs));
            sums.push([row], &counted.sums);
            for (bucket, count) in counted.buckets {
                counts.push([row, bucket.into()], &Count { count });
            }
        }
        trust
    })?;
    let name = |[row]: [i64; 1]| match options.by {
        Some(_) => ids.name(row, inputs),
        None => NamedRow { key: Key::Host { host: None }, name: "all".to_owned(), trace: None },
    };
    let (keys, keys_total) = rank_counts(sums, counts, &order, options, name).map_err(failed)?;
    let Options { of, by, buckets, .. } = *options;
    Ok(Histogram { of, buckets, by, traces: inputs.len(), keys, keys_total, trust })
}

/// Merges the lines of all readers. Returns the histograms that are shown, and the number of all.
fn rank_counts(
    sums: Lines<TimeSums, 1>,
    counts: Lines<Count, 2>,
    order: &[OrderBy],
    options: &Options,
    name: impl Fn([i64; 1]) -> NamedRow,
) -> PolarsResult<(Vec<Counts>, usize)> {
    let rows = sums.merge()?.filter(col("count").gt(lit(0))).collect()?;
    let total = rows.height();
    let Ranked { frame, names, .. } = rank(rows, ["row"], order, options.limit, name)?;
    let counts = counts.merge()?.sort(["row", "bucket"], SortMultipleOptions::default()).collect()?;
    let mut of_row: FxHashMap<i64, Vec<(u32, u64)>> = FxHashMap::default();
    for [row, bucket, count] in lines(&counts, ["row", "bucket", "count"])? {
        of_row.entry(row).or_default().push((bucket as u32, count as u64));
    }
    let sums = lines(&frame, ["row"])?.into_iter().zip(sums_of::<TimeSums>(&frame)?);
    let counts = |(NamedRow { key, name, trace }, ([row], sums)): (_, ([i64; 1], TimeSums))| Counts {
        name,
        key: options.by.is_some().then_some(key),
        trace,
        count: sums.count as u64,
        total_ns: sums.total_ns,
        cut_by_loss: sums.cut_by_loss as u64,
        buckets: options.buckets.of(of_row.remove(&row).unwrap_or_default()),
    };
    Ok((names.into_iter().zip(sums).map(counts).collect(), total))
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
    /// By key; `None` where there is one histogram for all.
    keys: FxHashMap<Option<RowKey>, Counted>,
    trust: TrustCounter,
}

impl Counting<'_> {
    fn key(&mut self, subject: key::Subject) -> &mut Counted {
        let key = |by| RowKey::of(subject, by, &self.input.names);
        self.keys.entry(self.options.by.map(key)).or_default()
    }
}

impl Sink for Counting<'_> {
    fn needs(&self) -> Needs {
        Needs::columns(Columns::Times)
    }

    fn push(&mut self, item: Item<'_>) {
        match item {
            Item::Hold(hold) => self.hold(hold),
            Item::Wait(wait) => self.wait(wait),
            _ => {}
        }
    }
}

impl Counting<'_> {
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
#[derive(Clone, Debug)]
pub struct BucketRow {
    /// The bucket.
    pub bucket: Bucket,
    /// The name of the key.
    pub name: String,
    /// The key; `None` if there is one histogram for all.
    pub key: Option<Key>,
    /// The trace, if there are several and the key belongs to one.
    pub trace: Option<String>,
}

/// Declares the columns; rows of several traces have their trace.
pub fn columns(by: Option<By>, several: bool) -> Vec<Column<BucketRow>> {
    type Of = Column<BucketRow>;
    let mut columns = vec![
        Of::duration("from", |row| row.bucket.from_ns, "The shortest time of the bucket.").not_sortable(),
        Of::duration("to", |row| row.bucket.to_ns, "The longest time of the bucket.").not_sortable(),
        Of::count("count", |row| row.bucket.count, "The number of times in it."),
        Of::name(by.map_or("all", By::as_str), |row| row.name.as_str().into()),
    ];
    if let Some(by) = by {
        columns.extend(key_columns(by, "", |row: &BucketRow| row.key.as_ref()));
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
        self.keys.iter().flat_map(|key| {
            key.buckets.iter().map(|bucket| BucketRow {
                bucket: *bucket,
                name: key.name.clone(),
                key: key.key.clone(),
                trace: key.trace.clone(),
            })
        })
    }

    /// A key is kept by the number of all its times, from the shortest to the longest.
    fn retain(&mut self, keep: &dyn Fn(&BucketRow) -> bool, limit: Option<usize>) {
        self.keys.retain(|key| {
            let ends = (key.buckets.first(), key.buckets.last());
            let (from_ns, to_ns) = (ends.0.map_or(0, |b| b.from_ns), ends.1.map_or(0, |b| b.to_ns));
            keep(&BucketRow {
                bucket: Bucket { from_ns, to_ns, count: key.count },
                name: key.name.clone(),
                key: key.key.clone(),
                trace: key.trace.clone(),
            })
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
        text::write_bars(self, page.style, out)
    }
}
