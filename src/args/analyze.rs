//! The tables of `klock analyze`, as they are typed.

use std::{path::PathBuf, str::FromStr as _, time::Duration};

use analyze::{
    blame::By as BlameBy,
    by_period::Sort,
    diff::{Align, Condition, Metric},
    hist::{Buckets, Of},
    report::{By, Column},
};
use clap::{Args as ClapArgs, Subcommand};

use super::{
    common::{Filters, Keys, Output, Rows, Table},
    duration,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Analyze {
    /// Which lock, or which line of code, cost what: the columns of LOCK_PROFILING(9).
    Report(Report),
    /// Who made whom wait: every nanosecond of waiting, by who held the lock meanwhile.
    Blame(Blame),
    /// Waiting and holding through time: how much of it lies in each period.
    Timeline(Timeline),
    /// Acquisitions by period: the worst ones, how many threads used a lock in each, how its average wait went.
    Periods(Periods),
    /// One line per process: its threads and locks, how long it waited for them, and apart from that, for others.
    Processes(Processes),
    /// How long waits or holds are: how many in each power of two, or finer.
    Hist(Hist),
    /// Two recordings of one program, lock by lock: what became longer, and whether that is more than chance.
    Diff(Diff),
    /// The events as they were recorded, with names.
    #[command(after_help = RAW_HELP)]
    Events(Rows),
    /// Every wait: who, for what, from when to when, in whose hold it began.
    #[command(after_help = RAW_HELP)]
    Waits(Rows),
    /// Every hold: who, of what, from when to when, what it made others wait.
    #[command(after_help = RAW_HELP)]
    Holds(Rows),
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
A wait or hold that is longer than a period is split over those that it lies in; what happens at one moment counts where it
happens. Waits that were given up count too, and what is still open at the end counts until then.

Examples:
  klock analyze timeline
  klock analyze timeline --by site -n 5 --period 10ms --from 1s --to 2s
  klock analyze timeline --format csv > timeline.csv")]
pub(crate) struct Timeline {
    #[command(flatten)]
    pub(crate) keys: Keys,
    /// How long a period is; a round time that gives some twenty, if not given.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) period: Option<Duration>,
    #[command(flatten)]
    pub(crate) table: Table,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
An acquisition with its whole wait is in the period in which it was done; wait_avg is by all of them, not only by those that
waited. Periods begin at multiples of their length on the trace's clock.

Examples:
  klock analyze periods -n 10                              the worst averages of any lock
  klock analyze periods --by task,lock -n 10               of any thread and lock
  klock analyze periods --lock cache_lock --sort time      one lock over time, and how many threads used it
  klock analyze report -F threads,count,wait_avg -k threads    without periods: the locks of most threads")]
pub(crate) struct Periods {
    /// The trace.
    #[arg(value_name = "TRACE", default_value = "trace.parquet")]
    pub(crate) trace: PathBuf,
    /// What a row is, in each period: lock, task,lock, site, stack, class, kind, task, process, comm or cgroup.
    #[arg(long, value_name = "KEY", default_value = "lock", value_parser = By::from_str)]
    pub(crate) by: By,
    /// How long a period is.
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = duration)]
    pub(crate) period: Duration,
    /// Sort by this, largest first: wait_avg, wait_total, wait_max, count, threads; or time, upwards.
    #[arg(short = 'k', long, value_name = "ORDER", default_value = "wait_avg", value_parser = Sort::from_str)]
    pub(crate) sort: Sort,
    /// Show the first N rows.
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    #[command(flatten)]
    pub(crate) filters: Filters,
    /// Also if more than 5 % of the events were lost, and the order of rows may mean nothing.
    #[arg(long)]
    pub(crate) allow_loss: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Columns: waits for locks however they ended, and how long; asleep is the part of it that is known to be sleep; the percents are of the
time that the threads lived. errors are waits that were given up, attempts that found a lock taken, and failed wake-ups. Waits on
condition variables, semaphores and barriers are idle, and in no other column.

Examples:
  klock analyze processes -n 10
  klock analyze report --by task,lock --task 1234     inside one of them, thread by thread and lock by lock")]
pub(crate) struct Processes {
    /// The trace.
    #[arg(value_name = "TRACE", default_value = "trace.parquet")]
    pub(crate) trace: PathBuf,
    /// Show the first N rows.
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    #[command(flatten)]
    pub(crate) filters: Filters,
    /// Also if more than 5 % of the events were lost, and the order of rows may mean nothing.
    #[arg(long)]
    pub(crate) allow_loss: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  klock analyze hist                            all waits
  klock analyze hist --of hold --by lock -n 5
  klock analyze hist --lock cache_lock --buckets hdr
  klock analyze hist --lock cache_lock --by site --format csv > hist.csv")]
pub(crate) struct Hist {
    #[command(flatten)]
    pub(crate) keys: Keys,
    /// What is counted: wait (those that ended with the lock) or hold.
    #[arg(long, value_name = "TIME", default_value = "wait", value_parser = Of::from_str)]
    pub(crate) of: Of,
    /// Which times are counted together: log2 (each power of two of nanoseconds), or hdr (a 64th of those).
    #[arg(long, value_name = "KIND", default_value = "log2", value_parser = Buckets::from_str)]
    pub(crate) buckets: Buckets,
    #[command(flatten)]
    pub(crate) table: Table,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Metrics: wait_total, total (holds), count, cnt_lock, wait_caused, all per second; wait_p50, wait_p99, p50, p99 (of holds).
Each trace is cut into 40 periods, which are drawn again and again; 95 % of the changes between draws lie in the interval.

Examples:
  klock analyze diff before.parquet after.parquet
  klock analyze diff before.parquet after.parquet --by site --metric wait_p99
  klock analyze diff before.parquet after.parquet --fail-if 'wait_total > +20%'    exit code 6 if so")]
pub(crate) struct Diff {
    /// The trace to compare with.
    #[arg(value_name = "BASE")]
    pub(crate) base: PathBuf,
    /// The trace to compare.
    #[arg(value_name = "NEW")]
    pub(crate) new: PathBuf,
    /// What is the same in both: lock (by name, or the function that initialised or acquires it), init, site, stack, kind or comm.
    #[arg(long, value_name = "KEY", default_value = "lock", value_parser = Align::from_str)]
    pub(crate) by: Align,
    /// What to show, and by the difference of what to sort.
    #[arg(short = 'k', long, value_name = "METRIC", default_value = "wait_total", value_parser = Metric::from_str)]
    pub(crate) metric: Metric,
    /// End with 6 if this became of all locks that are looked at together, and is more than chance: 'wait_p99 > +10%'.
    #[arg(long, value_name = "CONDITION", value_parser = Condition::from_str)]
    pub(crate) fail_if: Vec<Condition>,
    /// Show the first N rows.
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    #[command(flatten)]
    pub(crate) filters: Filters,
    /// Also if more than 5 % of the events of one of them were lost.
    #[arg(long)]
    pub(crate) allow_loss: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// A column that rows can be sorted by.
fn sort_column(text: &str) -> Result<Column, String> {
    match text.parse() {
        Ok(column) if Column::is_part(column) => Err(format!(
            "{text} is the part of the column that is sorted by; sort by that one, and show {text} with -F"
        )),
        Ok(column) => Ok(column),
        Err(error) => Err(error.to_string()),
    }
}

const RAW_HELP: &str = "\
Text shows what fits; CSV, JSON (an object per line) and Parquet have every column, times in nanoseconds since the trace's begin.
Rows are written as the trace is read: memory does not grow with it. Waits and holds come in the order in which they end.

Examples:
  klock analyze events --lock cache_lock -n 50
  klock analyze waits --min-wait 1ms --from 2s --to 3s
  klock analyze holds --format parquet -o holds.parquet";

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Columns, credited when the lock is released, to the place that took it:
  max, wait_max      the longest hold, the longest wait
  total, wait_total  all holds, all waits
  count              acquisitions
  avg, wait_avg      total and wait_total divided by count
  cnt_hold           times that another task began to wait while the lock was held
  cnt_lock           acquisitions that had to wait
  wait_caused        how long other tasks waited while the lock was held
  holds_contended    holds in which another task began to wait; with -F
  gap                of wait_total: while nobody held the lock; with -F
  contention         cnt_lock divided by count; with -F
  owner_changes      holds before which another task had the lock; with -F
  max_waiters        the most tasks that waited at one time; with -F
  pct, cum_pct       part of the column that is sorted by: of the row, and of all rows up to it; with -F
With -F or -k, by reading the trace twice:
  min, p50, p90, p99, p999     of holds, exact; wait_min, wait_p50 ... of waits
  spin, blocked, runq          what waits were spent with
  threads                      threads that acquired
A dash stands for what the trace's sources could not measure.

Examples:
  klock analyze report -n 10
  klock analyze report busy.parquet --by site --sort total
  klock analyze report --lock 0xffff888104a3c2d8 --by task
  klock analyze report -F wait_total,gap,wait_caused,holds_contended
  klock analyze report -k total -F total,pct,cum_pct,count
  klock analyze report --format csv > report.csv
  klock analyze report --by host web-*.parquet")]
pub(crate) struct Report {
    #[command(flatten)]
    pub(crate) keys: Keys,
    /// Sort by this column, largest first; name sorts upwards.
    #[arg(short = 'k', long, value_name = "COLUMN", default_value = "wait_total", value_parser = sort_column)]
    pub(crate) sort: Column,
    /// Show these columns, in this order; CSV has all by default, JSON always.
    #[arg(short = 'F', long, value_name = "LIST", value_delimiter = ',', value_parser = Column::from_str)]
    pub(crate) columns: Vec<Column>,
    #[command(flatten)]
    pub(crate) table: Table,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Each nanosecond of a wait is charged to the oldest hold that was open then, or to nobody; the rows add up to all that was
waited, exactly. Where holds are not recorded, the owner that the lock word named is told, and marked as such.

Examples:
  klock analyze blame
  klock analyze blame --by pair -n 5 --lock cache_lock
  klock analyze blame busy.parquet --by task --format csv > blame.csv")]
pub(crate) struct Blame {
    /// What a row is: site (where the holder acquired the lock), task (the holder), pair (holder's and waiter's site), or host.
    #[arg(long, value_name = "KEY", default_value = "site", value_parser = BlameBy::from_str)]
    pub(crate) by: BlameBy,
    #[command(flatten)]
    pub(crate) table: Table,
}
