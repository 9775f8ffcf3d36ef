//! Holds to sums by key, chunk by chunk, with polars.
//!
//! Holds enter as columns of plain numbers. When a chunk is full, polars groups it by key; what leaves a chunk is one
//! row of sums, maxima and counts per key, and those of all chunks are grouped once more at the end. Every column that
//! can be combined from parts fits in: quantiles would bring a histogram per key.

use polars::{
    df,
    frame::DataFrame,
    prelude::{Expr, IntoLazy, LazyFrame, PolarsResult, UnionArgs, col, concat},
};

use crate::intervals::{Hold, HoldState};

/// Rows of sums that are kept before they are combined.
const MAX_PARTIAL_ROWS: usize = 1 << 20;

/// The sums of one row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) max_ns: i64,
    pub(super) total_ns: i64,
    pub(super) wait_max_ns: i64,
    pub(super) wait_total_ns: i64,
    /// Acquisitions.
    pub(super) count: i64,
    /// Of those: in holds whose end was seen.
    pub(super) measured: i64,
    /// Holds whose wait is known, be it 0.
    pub(super) waits_known: i64,
    pub(super) cnt_hold: i64,
    pub(super) cnt_lock: i64,
    pub(super) wait_caused_ns: i64,
    pub(super) holds_contended: i64,
    pub(super) gap_ns: i64,
    /// Holds of which is known for how much of the wait nobody is charged, be it 0.
    pub(super) gaps_known: i64,
}

impl Sums {
    pub(super) fn plus(self, other: &Self) -> Self {
        Self {
            max_ns: self.max_ns.max(other.max_ns),
            total_ns: self.total_ns.saturating_add(other.total_ns),
            wait_max_ns: self.wait_max_ns.max(other.wait_max_ns),
            wait_total_ns: self.wait_total_ns.saturating_add(other.wait_total_ns),
            count: self.count + other.count,
            measured: self.measured + other.measured,
            waits_known: self.waits_known + other.waits_known,
            cnt_hold: self.cnt_hold + other.cnt_hold,
            cnt_lock: self.cnt_lock + other.cnt_lock,
            wait_caused_ns: self.wait_caused_ns.saturating_add(other.wait_caused_ns),
            holds_contended: self.holds_contended + other.holds_contended,
            gap_ns: self.gap_ns.saturating_add(other.gap_ns),
            gaps_known: self.gaps_known + other.gaps_known,
        }
    }
}

/// Takes credited holds, one by one.
#[derive(Debug)]
pub(super) struct HoldTable {
    chunk_rows: usize,
    chunk: Chunk,
    partials: Vec<DataFrame>,
    partial_rows: usize,
    failed: PolarsResult<()>,
}

/// The columns of the holds of a chunk.
#[derive(Debug, Default)]
struct Chunk {
    key: Vec<i64>,
    hold_ns: Vec<i64>,
    wait_ns: Vec<Option<i64>>,
    count: Vec<i64>,
    measured: Vec<i64>,
    cnt_hold: Vec<i64>,
    cnt_lock: Vec<i64>,
    wait_caused_ns: Vec<i64>,
    holds_contended: Vec<i64>,
    gap_ns: Vec<Option<i64>>,
}

impl HoldTable {
    pub(super) fn new(chunk_rows: usize) -> Self {
        let chunk = Chunk::default();
        Self { chunk_rows, chunk, partials: Vec::new(), partial_rows: 0, failed: Ok(()) }
    }

    /// Adds a hold to the row `key`.
    pub(super) fn push(&mut self, key: i64, hold: &Hold) {
        let measured = hold.state == HoldState::Complete;
        let chunk = &mut self.chunk;
        chunk.key.push(key);
        chunk.hold_ns.push(hold.end_ns.saturating_sub(hold.start_ns));
        chunk.wait_ns.push(hold.wait_ns);
        chunk.count.push(hold.acquisitions);
        chunk.measured.push(if measured { hold.acquisitions } else { 0 });
        chunk.cnt_hold.push(hold.waits_begun);
        chunk.cnt_lock.push(i64::from(hold.contended));
        chunk.wait_caused_ns.push(hold.wait_caused_ns);
        chunk.holds_contended.push(i64::from(hold.waits_begun > 0));
        chunk.gap_ns.push(hold.gap_ns);
        if chunk.key.len() >= self.chunk_rows && self.failed.is_ok() {
            self.failed = self.sum_up();
        }
    }

    /// The sums by key, in the order of the keys.
    pub(super) fn finish(mut self) -> PolarsResult<Vec<(i64, Sums)>> {
        self.failed?;
        self.failed = Ok(());
        self.sum_up()?;
        self.combine()?;
        match self.partials.pop() {
            Some(frame) => rows(&frame),
            None => Ok(Vec::new()),
        }
    }

    fn sum_up(&mut self) -> PolarsResult<()> {
        let chunk = std::mem::take(&mut self.chunk);
        if chunk.key.is_empty() {
            return Ok(());
        }
        let Chunk { key, hold_ns, wait_ns, count, measured, cnt_hold, cnt_lock, .. } = chunk;
        let frame = df!(
            "key" => key,
            "hold_ns" => hold_ns,
            "wait_ns" => wait_ns,
            "count" => count,
            "measured" => measured,
            "cnt_hold" => cnt_hold,
            "cnt_lock" => cnt_lock,
            "wait_caused_ns" => chunk.wait_caused_ns,
            "holds_contended" => chunk.holds_contended,
            "gap_ns" => chunk.gap_ns,
        )?;
        let sums = frame
            .lazy()
            .group_by([col("key")])
            .agg([
                col("hold_ns").max().alias("max_ns"),
                col("hold_ns").sum().alias("total_ns"),
                col("wait_ns").max().alias("wait_max_ns"),
                col("wait_ns").sum().alias("wait_total_ns"),
                col("count").sum(),
                col("measured").sum(),
                col("wait_ns").count().cast(polars::prelude::DataType::Int64).alias("waits_known"),
                col("cnt_hold").sum(),
                col("cnt_lock").sum(),
                col("wait_caused_ns").sum(),
                col("holds_contended").sum(),
                col("gap_ns").sum(),
                col("gap_ns").count().cast(polars::prelude::DataType::Int64).alias("gaps_known"),
            ])
            .collect()?;
        self.partial_rows += sums.height();
        self.partials.push(sums);
        if self.partial_rows > MAX_PARTIAL_ROWS {
            self.combine()?;
        }
        Ok(())
    }

    fn combine(&mut self) -> PolarsResult<()> {
        let parts: Vec<LazyFrame> = self.partials.drain(..).map(IntoLazy::lazy).collect();
        if parts.is_empty() {
            return Ok(());
        }
        let sum = |name: &str| -> Expr { col(name).sum() };
        let all = concat(parts, UnionArgs::default())?
            .group_by([col("key")])
            .agg([
                col("max_ns").max(),
                sum("total_ns"),
                col("wait_max_ns").max(),
                sum("wait_total_ns"),
                sum("count"),
                sum("measured"),
                sum("waits_known"),
                sum("cnt_hold"),
                sum("cnt_lock"),
                sum("wait_caused_ns"),
                sum("holds_contended"),
                sum("gap_ns"),
                sum("gaps_known"),
            ])
            .sort(["key"], polars::prelude::SortMultipleOptions::default())
            .collect()?;
        self.partial_rows = all.height();
        self.partials.push(all);
        Ok(())
    }
}

fn rows(frame: &DataFrame) -> PolarsResult<Vec<(i64, Sums)>> {
    let column = |name: &str| frame.column(name)?.i64();
    let [key, max, total] = [column("key")?, column("max_ns")?, column("total_ns")?];
    let [wait_max, wait_total, count] = [column("wait_max_ns")?, column("wait_total_ns")?, column("count")?];
    let [measured, waits_known] = [column("measured")?, column("waits_known")?];
    let [cnt_hold, cnt_lock] = [column("cnt_hold")?, column("cnt_lock")?];
    let [wait_caused, contended] = [column("wait_caused_ns")?, column("holds_contended")?];
    let [gap, gaps_known] = [column("gap_ns")?, column("gaps_known")?];
    let row = |at: usize| {
        let sums = Sums {
            max_ns: max.get(at).unwrap_or(0),
            total_ns: total.get(at).unwrap_or(0),
            wait_max_ns: wait_max.get(at).unwrap_or(0),
            wait_total_ns: wait_total.get(at).unwrap_or(0),
            count: count.get(at).unwrap_or(0),
            measured: measured.get(at).unwrap_or(0),
            waits_known: waits_known.get(at).unwrap_or(0),
            cnt_hold: cnt_hold.get(at).unwrap_or(0),
            cnt_lock: cnt_lock.get(at).unwrap_or(0),
            wait_caused_ns: wait_caused.get(at).unwrap_or(0),
            holds_contended: contended.get(at).unwrap_or(0),
            gap_ns: gap.get(at).unwrap_or(0),
            gaps_known: gaps_known.get(at).unwrap_or(0),
        };
        (key.get(at).unwrap_or(0), sums)
    };
    Ok((0..frame.height()).map(row).collect())
}
