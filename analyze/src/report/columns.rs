//! The columns of a report: their words, their values, and the values as FreeBSD prints them.

use std::{fmt, str::FromStr};

use serde::Serialize;

use super::table::Sums;
use crate::{choices::choices, error::AnalyzeError};

choices! {
    /// A column of the report.
    Column, "column" {
        /// Longest hold.
        Max = "max",
        /// Longest wait.
        WaitMax = "wait_max",
        /// Sum of holds.
        Total = "total",
        /// Sum of waits.
        #[default]
        WaitTotal = "wait_total",
        /// Acquisitions.
        Count = "count",
        /// Average hold.
        Avg = "avg",
        /// Average wait.
        WaitAvg = "wait_avg",
        /// Waits that began while it was held.
        CntHold = "cnt_hold",
        /// Acquisitions that had to wait.
        CntLock = "cnt_lock",
        /// Time that others waited for its holds.
        WaitCaused = "wait_caused",
        /// Holds in which somebody began to wait.
        HoldsContended = "holds_contended",
        /// Of the waits: while nobody held the lock.
        Gap = "gap",
        /// Acquisitions that had to wait, by all.
        Contention = "contention",
        /// Holds that came after one of another task.
        OwnerChanges = "owner_changes",
        /// Most tasks that waited for a hold at one time.
        MaxWaiters = "max_waiters",
        /// Of the column that is sorted by: the row's part of all rows.
        Pct = "pct",
        /// The same of this row and all before it.
        CumPct = "cum_pct",
        /// Shortest hold.
        Min = "min",
        /// Median of the holds.
        P50 = "p50",
        /// 90 % of the holds are no longer.
        P90 = "p90",
        /// 99 % of the holds are no longer.
        P99 = "p99",
        /// 99.9 % of the holds are no longer.
        P999 = "p999",
        /// Shortest wait.
        WaitMin = "wait_min",
        /// Median of the waits.
        WaitP50 = "wait_p50",
        /// 90 % of the waits are no longer.
        WaitP90 = "wait_p90",
        /// 99 % of the waits are no longer.
        WaitP99 = "wait_p99",
        /// 99.9 % of the waits are no longer.
        WaitP999 = "wait_p999",
        /// Of the waits: spinning.
        Spin = "spin",
        /// Of the waits: asleep.
        Blocked = "blocked",
        /// Of the waits: ready to run, and without a CPU.
        Runq = "runq",
        /// Threads that acquired.
        Threads = "threads",
        /// The row's name, ascending.
        Name = "name",
    }
}

/// The columns of LOCK_PROFILING(9), and three that say who made others wait. Times are in nanoseconds; what was not
/// measured is `None`, never 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Columns {
    /// Longest hold.
    pub max_ns: Option<i64>,
    /// Longest wait that ended in a hold.
    pub wait_max_ns: Option<i64>,
    /// Sum of holds.
    pub total_ns: Option<i64>,
    /// Sum of waits.
    pub wait_total_ns: Option<i64>,
    /// Acquisitions.
    pub count: i64,
    /// `total_ns` by the acquisitions whose hold was measured; 0 if there are none.
    pub avg_ns: Option<i64>,
    /// `wait_total_ns` by all acquisitions, not only those that waited; 0 if there are none.
    pub wait_avg_ns: Option<i64>,
    /// Waits of others that began while it was held, abandoned ones too.
    pub cnt_hold: Option<i64>,
    /// Acquisitions that had to wait.
    pub cnt_lock: i64,
    /// How long others waited while this was the oldest hold, abandoned waits too.
    pub wait_caused_ns: Option<i64>,
    /// Holds in which at least one wait of another task began.
    pub holds_contended: Option<i64>,
    /// Of `wait_total_ns`: while no other task's hold was open. The rest is in somebody's `wait_caused_ns`.
    pub gap_ns: Option<i64>,
    /// Holds before which another task had the lock.
    pub owner_changes: Option<i64>,
    /// The most tasks that waited for one of its holds at one time.
    pub max_waiters: Option<i64>,
    /// Those that were asked for: they cost a second reading of the trace.
    #[serde(flatten)]
    pub extra: Option<Extra>,
}

/// Columns that are made only if they are asked for. Holds are those of which both ends were seen, waits those that ended in a
/// hold and whose begin was seen. A percentile is the smallest time that so many of them do not exceed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Extra {
    /// Shortest hold.
    pub min_ns: Option<i64>,
    /// Median of the holds.
    pub p50_ns: Option<i64>,
    /// 90th percentile of the holds.
    pub p90_ns: Option<i64>,
    /// 99th percentile of the holds.
    pub p99_ns: Option<i64>,
    /// 99.9th percentile of the holds.
    pub p999_ns: Option<i64>,
    /// Shortest wait.
    pub wait_min_ns: Option<i64>,
    /// Median of the waits.
    pub wait_p50_ns: Option<i64>,
    /// 90th percentile of the waits.
    pub wait_p90_ns: Option<i64>,
    /// 99th percentile of the waits.
    pub wait_p99_ns: Option<i64>,
    /// 99.9th percentile of the waits.
    pub wait_p999_ns: Option<i64>,
    /// Of the waits whose states were recorded: neither asleep nor in the run queue.
    pub spin_ns: Option<i64>,
    /// Of the same: asleep.
    pub blocked_ns: Option<i64>,
    /// Of the same: ready to run, and without a CPU.
    pub runq_ns: Option<i64>,
    /// Threads that acquired.
    pub threads: Option<i64>,
}

/// The columns as FreeBSD prints them: whole microseconds, truncated, nothing missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freebsd {
    /// Longest hold, µs.
    pub max: i64,
    /// Longest wait, µs.
    pub wait_max: i64,
    /// Sum of holds, µs.
    pub total: i64,
    /// Sum of waits, µs.
    pub wait_total: i64,
    /// Acquisitions.
    pub count: i64,
    /// Average hold, µs.
    pub avg: i64,
    /// Average wait, µs.
    pub wait_avg: i64,
    /// Waits that began while it was held.
    pub cnt_hold: i64,
    /// Acquisitions that had to wait.
    pub cnt_lock: i64,
}

impl Columns {
    pub(super) fn of(sums: &Sums) -> Self {
        let measured = sums.measured > 0;
        let waits_known = sums.waits_known > 0 || sums.count == 0;
        Self {
            max_ns: measured.then_some(sums.max_ns),
            wait_max_ns: waits_known.then_some(sums.wait_max_ns),
            total_ns: measured.then_some(sums.total_ns),
            wait_total_ns: waits_known.then_some(sums.wait_total_ns),
            count: sums.count,
            avg_ns: measured.then(|| divide(sums.total_ns, sums.measured)),
            wait_avg_ns: waits_known.then(|| divide(sums.wait_total_ns, sums.count)),
            cnt_hold: measured.then_some(sums.cnt_hold),
            cnt_lock: sums.cnt_lock,
            wait_caused_ns: measured.then_some(sums.wait_caused_ns),
            holds_contended: measured.then_some(sums.holds_contended),
            gap_ns: (sums.gaps_known > 0 || sums.count == 0).then_some(sums.gap_ns),
            owner_changes: measured.then_some(sums.owner_changes),
            max_waiters: measured.then_some(sums.max_waiters),
            extra: None,
        }
    }

    /// The columns as FreeBSD prints them. What was not measured is 0 there, because its format knows no other word.
    pub fn freebsd(&self) -> Freebsd {
        let us = |ns: Option<i64>| ns.unwrap_or(0) / 1000;
        Freebsd {
            max: us(self.max_ns),
            wait_max: us(self.wait_max_ns),
            total: us(self.total_ns),
            wait_total: us(self.wait_total_ns),
            count: self.count,
            // floor(floor(t / n) / 1000) = floor(t / (1000 n)), so the averages are FreeBSD's own.
            avg: us(self.avg_ns),
            wait_avg: us(self.wait_avg_ns),
            cnt_hold: self.cnt_hold.unwrap_or(0),
            cnt_lock: self.cnt_lock,
        }
    }

    /// The value of a column; `None` where it was not measured, for the name, and for what depends on other rows.
    pub fn get(&self, column: Column) -> Option<i64> {
        let extra = |value: fn(&Extra) -> Option<i64>| self.extra.as_ref().and_then(value);
        match column {
            Column::Max => self.max_ns,
            Column::WaitMax => self.wait_max_ns,
            Column::Total => self.total_ns,
            Column::WaitTotal => self.wait_total_ns,
            Column::Count => Some(self.count),
            Column::Avg => self.avg_ns,
            Column::WaitAvg => self.wait_avg_ns,
            Column::CntHold => self.cnt_hold,
            Column::CntLock => Some(self.cnt_lock),
            Column::WaitCaused => self.wait_caused_ns,
            Column::HoldsContended => self.holds_contended,
            Column::Gap => self.gap_ns,
            Column::Contention => {
                (self.count > 0).then(|| self.cnt_lock.saturating_mul(1_000_000) / self.count)
            }
            Column::OwnerChanges => self.owner_changes,
            Column::MaxWaiters => self.max_waiters,
            Column::Min => extra(|extra| extra.min_ns),
            Column::P50 => extra(|extra| extra.p50_ns),
            Column::P90 => extra(|extra| extra.p90_ns),
            Column::P99 => extra(|extra| extra.p99_ns),
            Column::P999 => extra(|extra| extra.p999_ns),
            Column::WaitMin => extra(|extra| extra.wait_min_ns),
            Column::WaitP50 => extra(|extra| extra.wait_p50_ns),
            Column::WaitP90 => extra(|extra| extra.wait_p90_ns),
            Column::WaitP99 => extra(|extra| extra.wait_p99_ns),
            Column::WaitP999 => extra(|extra| extra.wait_p999_ns),
            Column::Spin => extra(|extra| extra.spin_ns),
            Column::Blocked => extra(|extra| extra.blocked_ns),
            Column::Runq => extra(|extra| extra.runq_ns),
            Column::Threads => extra(|extra| extra.threads),
            Column::Name | Column::Pct | Column::CumPct => None,
        }
    }
}

/// What the value of a column is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds.
    Ns,
    /// A number of things.
    Count,
    /// Millionths of a whole.
    Ppm,
    /// No number.
    Text,
}

impl Column {
    /// What its value is.
    pub const fn unit(self) -> Unit {
        match self {
            Self::Count
            | Self::CntHold
            | Self::CntLock
            | Self::HoldsContended
            | Self::OwnerChanges
            | Self::MaxWaiters
            | Self::Threads => Unit::Count,
            Self::Contention | Self::Pct | Self::CumPct => Unit::Ppm,
            Self::Name => Unit::Text,
            _ => Unit::Ns,
        }
    }

    /// Whether the values of all rows add up to something, so that one can be a part of it.
    pub const fn adds_up(self) -> bool {
        matches!(
            self,
            Self::Total
                | Self::WaitTotal
                | Self::Count
                | Self::CntHold
                | Self::CntLock
                | Self::WaitCaused
                | Self::HoldsContended
                | Self::Gap
                | Self::OwnerChanges
                | Self::Spin
                | Self::Blocked
                | Self::Runq
        )
    }

    /// Whether it says what another column is of all rows, so that nothing can be sorted by it.
    pub const fn is_part(self) -> bool {
        matches!(self, Self::Pct | Self::CumPct)
    }

    /// Whether it is made only if it is asked for.
    pub const fn is_extra(self) -> bool {
        matches!(
            self,
            Self::Min
                | Self::P50
                | Self::P90
                | Self::P99
                | Self::P999
                | Self::WaitMin
                | Self::WaitP50
                | Self::WaitP90
                | Self::WaitP99
                | Self::WaitP999
                | Self::Spin
                | Self::Blocked
                | Self::Runq
                | Self::Threads
        )
    }
}

fn divide(sum: i64, count: i64) -> i64 {
    if count == 0 { 0 } else { sum / count }
}
