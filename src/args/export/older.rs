//! Options of the formats of older tools, with the names of those tools where they have one.

use std::{path::PathBuf, str::FromStr as _, time::Duration};

use analyze::{
    export::{
        mklockstat::PeriodMode,
        perf_lock::{Aggregate, Field},
    },
    tables::report::{Column, lockprof::Compat},
};
use clap::Args as ClapArgs;

use crate::args::duration::duration;

#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "lock-prof")]
pub(crate) struct LockProf {
    /// Write the table of this release: 7 (with cnt_hold), 8+ (cnt_hold is 0), 7.0 (without wait_max) [default: 7].
    #[arg(long, value_name = "RELEASE", value_parser = Compat::from_str)]
    pub(crate) freebsd_compat: Option<Compat>,
    /// Count one in N acquisitions, as debug.lock.prof.skipcount. Counts are not scaled.
    #[arg(long, value_name = "N")]
    pub(crate) skipcount: Option<u32>,
    /// Leave out spinning locks if N is 1, as debug.lock.prof.skipspin.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) skipspin: Option<i64>,
    /// Count only contended acquisitions, as debug.lock.prof.contested_only.
    #[arg(long)]
    pub(crate) contested_only: bool,
    /// Sort by this column, largest first [default: wait_total].
    #[arg(long, value_name = "COLUMN", value_parser = Column::from_str)]
    pub(crate) sort: Option<Column>,
}

#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "locktrace")]
pub(crate) struct Locktrace {
    /// Write a histogram of the blocked times of each futex to FILE.
    #[arg(long, value_name = "FILE")]
    pub(crate) hist: Option<PathBuf>,
    /// Print histograms as locktrace does: with half the true bounds, and without times of less than 2 µs.
    #[arg(long, requires = "hist")]
    pub(crate) hist_compat: bool,
    /// Take waits for locks of the C library for futex calls that were not recorded.
    #[arg(long)]
    pub(crate) approx: bool,
}

#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "mklockstat")]
pub(crate) struct Mklockstat {
    /// Set the length of a period: 50ms, 1s, or milliseconds without a unit [default: 50].
    #[arg(long, value_name = "TIME", value_parser = milliseconds)]
    pub(crate) period: Option<Duration>,
    /// Charge a wait to a period: exact (the one in which the lock was acquired) or compat (the one that milli-klockstat charges)
    /// [default: exact].
    #[arg(long, value_name = "MODE", value_parser = PeriodMode::from_str)]
    pub(crate) period_mode: Option<PeriodMode>,
    /// Spread a wait over the periods in which it lasted. Some lines then have 0 acquisitions.
    #[arg(long)]
    pub(crate) split: bool,
    /// Print the thread after P and the process after T, as milli-klockstat does.
    #[arg(long)]
    pub(crate) swap_pt: bool,
    /// Include the threads of collect, collectl and tcplife-bpfcc.
    #[arg(long)]
    pub(crate) no_filter_monitors: bool,
}

#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "perf-lock")]
pub(crate) struct PerfLock {
    /// Make a row for each caller, task, lock or owner [default: caller].
    #[arg(long, value_name = "WHAT", value_parser = Aggregate::from_str)]
    pub(crate) aggr: Option<Aggregate>,
    /// Separate values by SEP and print nanoseconds. SEP cannot contain : + or . because names contain them.
    #[arg(short = 'x', long, value_name = "SEP", value_parser = separator)]
    pub(crate) field_separator: Option<String>,
    /// Show these columns: contended, wait_total, wait_max, wait_min, avg_wait.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = Field::from_str)]
    pub(crate) fields: Vec<Field>,
    /// Sort by this column, largest first [default: wait_total].
    #[arg(long, value_name = "COLUMN", value_parser = Field::from_str)]
    pub(crate) key: Option<Field>,
    /// Show the first N rows.
    #[arg(long, value_name = "N")]
    pub(crate) entries: Option<usize>,
}

/// Parses a separator that perf accepts.
fn separator(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains([':', '+', '.', '\n', '\r']) {
        return Err(format!("invalid separator '{text}': use characters other than : + . and line ends"));
    }
    Ok(text.to_owned())
}

/// Parses a period, which is longer than 0. A bare number is milliseconds, as in the original.
fn milliseconds(text: &str) -> Result<Duration, String> {
    let time = match text.parse::<u64>() {
        Ok(ms) => Ok(Duration::from_millis(ms)),
        Err(_) => duration(text),
    };
    time.and_then(|time| {
        if time.is_zero() {
            Err(format!("invalid period '{text}': use a time longer than 0"))
        } else {
            Ok(time)
        }
    })
}
