//! The options of the formats of older tools, by the names that they have there where they have one. All are optional, so that one that
//! was given can be told from one that was not.

use std::{path::PathBuf, str::FromStr as _, time::Duration};

use analyze::{
    export::{
        mklockstat::PeriodMode,
        perf_lock::{Aggregate, Field},
    },
    report::{Column, lockprof::Compat},
};
use clap::Args as ClapArgs;

use super::{super::duration, first_given};

#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "lock-prof")]
pub(crate) struct LockProf {
    /// Whose table: 7 (with cnt_hold), 8+ (cnt_hold is 0), 7.0 (without wait_max) [default: 7].
    #[arg(long, value_name = "RELEASE", value_parser = Compat::from_str)]
    pub(crate) freebsd_compat: Option<Compat>,
    /// One in N acquisitions, as debug.lock.prof.skipcount; nothing is scaled.
    #[arg(long, value_name = "N")]
    pub(crate) skipcount: Option<u32>,
    /// 1 leaves spinning locks out, as debug.lock.prof.skipspin; other numbers do nothing.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) skipspin: Option<i64>,
    /// Only holds whose owner found the lock taken, as debug.lock.prof.contested_only.
    #[arg(long)]
    pub(crate) contested_only: bool,
    /// Descending by this column [default: wait_total].
    #[arg(long, value_name = "COLUMN", value_parser = Column::from_str)]
    pub(crate) sort: Option<Column>,
}

impl LockProf {
    pub(super) fn given(&self) -> Option<&'static str> {
        first_given(&[
            ("--freebsd-compat", self.freebsd_compat.is_some()),
            ("--skipcount", self.skipcount.is_some()),
            ("--skipspin", self.skipspin.is_some()),
            ("--contested-only", self.contested_only),
            ("--sort", self.sort.is_some()),
        ])
    }
}

#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "locktrace")]
pub(crate) struct Locktrace {
    /// Write histograms of the blocked time of each futex to FILE.
    #[arg(long, value_name = "FILE")]
    pub(crate) hist: Option<PathBuf>,
    /// Histograms as locktrace prints them: with half the true bounds, and without what took less than 2 µs.
    #[arg(long, requires = "hist")]
    pub(crate) hist_compat: bool,
    /// Take waits for locks of the C library for the futex calls that were not recorded.
    #[arg(long)]
    pub(crate) approx: bool,
}

impl Locktrace {
    pub(super) fn given(&self) -> Option<&'static str> {
        first_given(&[
            ("--hist", self.hist.is_some()),
            ("--hist-compat", self.hist_compat),
            ("--approx", self.approx),
        ])
    }
}

#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "mklockstat")]
pub(crate) struct Mklockstat {
    /// How long a period is: 50ms, 1s, or milliseconds without a unit [default: 50].
    #[arg(long, value_name = "TIME", value_parser = milliseconds)]
    pub(crate) period: Option<Duration>,
    /// Which period a wait belongs to: exact, that in which the lock was acquired; compat, as milli-klockstat charges it [default: exact].
    #[arg(long, value_name = "MODE", value_parser = PeriodMode::from_str)]
    pub(crate) period_mode: Option<PeriodMode>,
    /// Spread a wait over the periods that it lasted in; there are lines with 0 acquisitions then.
    #[arg(long)]
    pub(crate) split: bool,
    /// Print P with the thread and T with the process, as milli-klockstat does.
    #[arg(long)]
    pub(crate) swap_pt: bool,
    /// Include collect, collectl and tcplife-bpfcc.
    #[arg(long)]
    pub(crate) no_filter_monitors: bool,
}

impl Mklockstat {
    pub(super) fn given(&self) -> Option<&'static str> {
        first_given(&[
            ("--period", self.period.is_some()),
            ("--period-mode", self.period_mode.is_some()),
            ("--split", self.split),
            ("--swap-pt", self.swap_pt),
            ("--no-filter-monitors", self.no_filter_monitors),
        ])
    }
}

#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "perf-lock")]
pub(crate) struct PerfLock {
    /// What a row is: caller, task, lock, owner [default: caller].
    #[arg(long, value_name = "WHAT", value_parser = Aggregate::from_str)]
    pub(crate) aggr: Option<Aggregate>,
    /// Values between SEP, in nanoseconds, instead of the table. Not : + or a dot, which are in names.
    #[arg(short = 'x', long, value_name = "SEP", value_parser = separator)]
    pub(crate) field_separator: Option<String>,
    /// Which columns: contended, wait_total, wait_max, wait_min, avg_wait.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = Field::from_str)]
    pub(crate) fields: Vec<Field>,
    /// Descending by this column [default: wait_total].
    #[arg(long, value_name = "COLUMN", value_parser = Field::from_str)]
    pub(crate) key: Option<Field>,
    /// At most N rows.
    #[arg(long, value_name = "N")]
    pub(crate) entries: Option<usize>,
}

impl PerfLock {
    pub(super) fn given(&self) -> Option<&'static str> {
        first_given(&[
            ("--aggr", self.aggr.is_some()),
            ("-x", self.field_separator.is_some()),
            ("--fields", !self.fields.is_empty()),
            ("--key", self.key.is_some()),
            ("--entries", self.entries.is_some()),
        ])
    }
}

/// What perf takes as a separator.
fn separator(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains([':', '+', '.', '\n', '\r']) {
        return Err("give a separator that is in no value: not a colon, a plus, a dot or the end of a line"
            .to_owned());
    }
    Ok(text.to_owned())
}

/// A time; a bare number is milliseconds, as in the original. Not 0.
fn milliseconds(text: &str) -> Result<Duration, String> {
    let time = match text.parse::<u64>() {
        Ok(ms) => Ok(Duration::from_millis(ms)),
        Err(_) => duration(text),
    };
    time.and_then(
        |time| if time.is_zero() { Err("a period of nothing has no end".to_owned()) } else { Ok(time) },
    )
}
