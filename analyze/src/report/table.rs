//! Holds to sums by key.
//!
//! Each hold is added to the sums of its key as it comes. Keys that are many leave as a frame of partial sums, one chunk
//! after the other; polars groups those by key, and gives the table in the order of the keys. Every column that can be
//! combined from parts fits in: percentiles can't, and are in `spread`.

use polars::{
    df,
    frame::DataFrame,
    prelude::{Expr, IntoLazy, LazyFrame, PolarsResult, UnionArgs, col, concat},
};
use rustc_hash::FxHashMap;

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
    pub(super) owner_changes: i64,
    pub(super) max_waiters: i64,
}

impl Sums {
    /// Adds one hold. Most of them nobody waited for, and that takes no more than it must.
    #[inline]
    pub(super) fn take(&mut self, hold: &Hold) {
        let hold_ns = hold.end_ns.saturating_sub(hold.start_ns);
        self.max_ns = self.max_ns.max(hold_ns);
        self.total_ns = self.total_ns.saturating_add(hold_ns);
        self.count += hold.acquisitions;
        if hold.state == HoldState::Complete {
            self.measured += hold.acquisitions;
        }
        if let Some(wait_ns) = hold.wait_ns {
            self.waits_known += 1;
            self.wait_max_ns = self.wait_max_ns.max(wait_ns);
            self.wait_total_ns = self.wait_total_ns.saturating_add(wait_ns);
        }
        if let Some(gap_ns) = hold.gap_ns {
            self.gaps_known += 1;
            self.gap_ns = self.gap_ns.saturating_add(gap_ns);
        }
        self.cnt_lock += i64::from(hold.contended);
        self.owner_changes += i64::from(hold.owner_changed);
        // A hold that is charged for no wait began none, and nobody waited at a time.
        if hold.waits_begun > 0 || hold.max_waiters > 0 || hold.wait_caused_ns != 0 {
            self.cnt_hold += hold.waits_begun;
            self.holds_contended += i64::from(hold.waits_begun > 0);
            self.wait_caused_ns = self.wait_caused_ns.saturating_add(hold.wait_caused_ns);
            self.max_waiters = self.max_waiters.max(hold.max_waiters);
        }
    }

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
            owner_changes: self.owner_changes + other.owner_changes,
            max_waiters: self.max_waiters.max(other.max_waiters),
        }
    }
}

/// Takes credited holds, one by one.
#[derive(Debug)]
pub(super) struct HoldTable {
    chunk_keys: usize,
    chunk: FxHashMap<i64, Sums>,
    partials: Vec<DataFrame>,
    partial_rows: usize,
    failed: PolarsResult<()>,
}

impl HoldTable {
    /// A table that keeps so many keys before they leave as a frame.
    pub(super) fn new(chunk_keys: usize) -> Self {
        let chunk = FxHashMap::default();
        Self { chunk_keys, chunk, partials: Vec::new(), partial_rows: 0, failed: Ok(()) }
    }

    /// Adds a hold to the row `key`.
    pub(super) fn push(&mut self, key: i64, hold: &Hold) {
        self.chunk.entry(key).or_default().take(hold);
        self.leave();
    }

    /// Adds sums to the row `key`.
    pub(super) fn add(&mut self, key: i64, more: &Sums) {
        let sums = self.chunk.entry(key).or_default();
        *sums = sums.plus(more);
        self.leave();
    }

    /// Sets the keys aside if they are too many.
    fn leave(&mut self) {
        if self.chunk.len() >= self.chunk_keys && self.failed.is_ok() {
            self.failed = self.end_chunk();
        }
    }

    /// The sums by key, in the order of the keys.
    pub(super) fn finish(mut self) -> PolarsResult<Vec<(i64, Sums)>> {
        self.failed?;
        self.failed = Ok(());
        if self.partials.is_empty() {
            let mut rows: Vec<(i64, Sums)> = self.chunk.into_iter().collect();
            rows.sort_unstable_by_key(|(key, _)| *key);
            return Ok(rows);
        }
        self.end_chunk()?;
        self.combine()?;
        match self.partials.pop() {
            Some(frame) => rows(&frame),
            None => Ok(Vec::new()),
        }
    }

    fn end_chunk(&mut self) -> PolarsResult<()> {
        if self.chunk.is_empty() {
            return Ok(());
        }
        let chunk: Vec<(i64, Sums)> = self.chunk.drain().collect();
        let column =
            |value: fn(&Sums) -> i64| chunk.iter().map(|(_, sums)| value(sums)).collect::<Vec<i64>>();
        let frame = df!(
            "key" => chunk.iter().map(|(key, _)| *key).collect::<Vec<i64>>(),
            "max_ns" => column(|sums| sums.max_ns),
            "total_ns" => column(|sums| sums.total_ns),
            "wait_max_ns" => column(|sums| sums.wait_max_ns),
            "wait_total_ns" => column(|sums| sums.wait_total_ns),
            "count" => column(|sums| sums.count),
            "measured" => column(|sums| sums.measured),
            "waits_known" => column(|sums| sums.waits_known),
            "cnt_hold" => column(|sums| sums.cnt_hold),
            "cnt_lock" => column(|sums| sums.cnt_lock),
            "wait_caused_ns" => column(|sums| sums.wait_caused_ns),
            "holds_contended" => column(|sums| sums.holds_contended),
            "gap_ns" => column(|sums| sums.gap_ns),
            "gaps_known" => column(|sums| sums.gaps_known),
            "owner_changes" => column(|sums| sums.owner_changes),
            "max_waiters" => column(|sums| sums.max_waiters),
        )?;
        self.partial_rows += frame.height();
        self.partials.push(frame);
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
                sum("owner_changes"),
                col("max_waiters").max(),
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
    let [owner_changes, max_waiters] = [column("owner_changes")?, column("max_waiters")?];
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
            owner_changes: owner_changes.get(at).unwrap_or(0),
            max_waiters: max_waiters.get(at).unwrap_or(0),
        };
        (key.get(at).unwrap_or(0), sums)
    };
    Ok((0..frame.height()).map(row).collect())
}
