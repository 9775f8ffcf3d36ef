//! The command line, exactly as it was typed: the doc comments here are the help text. Values are parsed, nothing is
//! opened and nothing decided.

#[cfg(feature = "record")]
use std::ffi::OsString;
#[cfg(feature = "analyze")]
use std::str::FromStr as _;
use std::{path::PathBuf, time::Duration};

#[cfg(feature = "analyze")]
use analyze::{
    blame::By as BlameBy,
    report::{By, Column},
};
#[cfg(feature = "record")]
use clap::builder::NonEmptyStringValueParser;
use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
#[cfg(feature = "record")]
use record::LockChoice;
use trace_format::LockKind;

/// Record every acquire, wait and release of locks, and see which lock costs what.
///
/// klock record writes a trace; klock analyze and klock plot read it, here or on another machine.
#[derive(Debug, Parser)]
#[command(name = "klock", version, max_term_width = 100, help_expected = true)]
#[command(after_help = "\
Examples:
  klock demo                                   see what klock does, on a workload of its own
  sudo klock record -- ./server --threads 8    record a program's locks into trace.parquet
  sudo klock record -a -d 10s                  record the whole machine for ten seconds
  klock analyze report                         which lock cost what
  klock analyze blame                          who made whom wait
  klock plot --lock cache_lock -o lock.svg     one lock as a picture

Exit codes: 0 done, 1 nothing found, 2 bad input or use, 3 not permitted or not supported here,
4 the trace lost too much to rank, 5 the disk failed. klock record -- COMMAND passes on COMMAND's.")]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Record lock events into a trace.
    #[cfg(feature = "record")]
    Record(Box<Record>),
    /// Tables from a trace.
    #[cfg(feature = "analyze")]
    #[command(subcommand)]
    Analyze(Analyze),
    /// One lock as a picture (SVG): who held it, who waited, how many at a time.
    #[cfg(feature = "analyze")]
    Plot(Plot),
    /// What a trace holds and how it was made.
    #[cfg(feature = "analyze")]
    Info(Info),
    /// Finish the trace of a recorder that was killed.
    Recover(Recover),
    /// What this machine can record, and what is in the way.
    #[cfg(feature = "record")]
    Check(Check),
    /// Record a workload that klock brings along, print its report and draw a picture.
    #[cfg(all(feature = "record", feature = "analyze"))]
    Demo(Demo),
    /// The workload of the demo.
    #[cfg(all(feature = "record", feature = "analyze"))]
    #[command(hide = true)]
    DemoWorkload(DemoWorkload),
}

/// Which locks to record.
#[cfg(feature = "record")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LockSource {
    /// Kernel locks: every acquisition and release, from the functions that do it; with --contended-only waits alone.
    Kernel,
    /// Waits and wakes of futexes: user locks of any language.
    Futex,
    /// Every call on a lock of the C library: mutexes, reader-writer locks, spinlocks, condition variables, barriers,
    /// semaphores. A program that klock starts records itself, running ones are probed.
    Pthread,
}

/// How calls of pthread functions are recorded.
#[cfg(feature = "record")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PthreadProbes {
    /// A program that klock starts records itself if it can load klock's library, all others are probed.
    Auto,
    /// COMMAND records itself (LD_PRELOAD): tens of nanoseconds a call, no root.
    Preload,
    /// uprobes on the process's libc: microseconds a call, as root.
    Uprobe,
}

/// How programs get onto the kernel's functions.
#[cfg(feature = "record")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum KernelProbes {
    /// fentry where the kernel does not preempt its tasks, and kprobes elsewhere: neither loses calls.
    Auto,
    /// fentry and fexit (5.5, with BTF), the cheapest way.
    Fentry,
    /// kprobes at entry and return.
    Kprobe,
}

#[cfg(feature = "record")]
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  klock record -- ./prog --its --own --options
  klock record -p 1234 -d 30s -o busy.parquet
  klock record -a -d 10s                          waits of the whole machine
  klock record -a --locks kernel -d 5s            every kernel mutex, rwsem and semaphore
  klock record -a --locks kernel --sample 100 --kind mutex,rwsem
  klock record -a --min-wait 1ms --exclude-comm collectl")]
#[command(group(clap::ArgGroup::new("target").required(true).args(["all", "pid", "tid", "cgroup", "command"])))]
pub(crate) struct Record {
    /// Write the trace to FILE; its side tables go beside it.
    #[arg(short, long, value_name = "FILE", default_value = "trace.parquet")]
    pub(crate) output: PathBuf,
    /// Replace files that exist.
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Record every task of the machine.
    #[arg(short, long, help_heading = "Whom to record")]
    pub(crate) all: bool,
    /// Record these processes and the processes that they start.
    #[arg(short, long, value_name = "PID", value_delimiter = ',', help_heading = "Whom to record")]
    pub(crate) pid: Vec<u32>,
    /// Record these threads only.
    #[arg(short, long, value_name = "TID", value_delimiter = ',', help_heading = "Whom to record")]
    pub(crate) tid: Vec<u32>,
    /// Record the tasks of this cgroup (v2) and those below it.
    #[arg(long, value_name = "PATH", help_heading = "Whom to record")]
    pub(crate) cgroup: Option<PathBuf>,
    /// Start COMMAND, record it and the processes that it starts, end with it.
    #[arg(last = true, value_name = "COMMAND", help_heading = "Whom to record")]
    pub(crate) command: Vec<OsString>,
    /// End after this time: 500ms, 10s, 2m, or seconds without a unit.
    #[arg(short, long, value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Duration>,
    /// What to record; by default waits for kernel locks and futexes, and of chosen processes pthread calls too.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) locks: Vec<LockSource>,
    /// Of kernel locks record waits only, which costs nothing while nobody waits. The default without --locks.
    #[arg(long, help_heading = "What of kernel locks")]
    pub(crate) contended_only: bool,
    /// How to get onto the functions that take and give back kernel locks.
    #[arg(
        long,
        value_enum,
        value_name = "WAY",
        default_value = "auto",
        conflicts_with = "contended_only",
        help_heading = "What of kernel locks"
    )]
    pub(crate) kernel_probes: KernelProbes,
    /// How to record the calls of pthread functions.
    #[arg(
        long,
        value_enum,
        value_name = "WAY",
        default_value = "auto",
        help_heading = "What of pthread calls"
    )]
    pub(crate) pthread_probes: PthreadProbes,
    /// A thread of COMMAND whose ring is full waits for klock, instead of losing events: nothing is lost, and time is.
    #[arg(long, requires = "command", help_heading = "What of pthread calls")]
    pub(crate) lossless: bool,
    /// Only locks of these kinds: mutex, rtmutex, rwsem, percpu_rwsem, semaphore, spinlock, rwlock.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = kernel_kind, help_heading = "What of kernel locks")]
    pub(crate) kind: Vec<LockKind>,
    /// No locks that spin: spinlock, rwlock.
    #[arg(long, help_heading = "What of kernel locks")]
    pub(crate) no_spin: bool,
    /// One in N acquisitions of each CPU; counts are not scaled.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..), help_heading = "What of kernel locks")]
    pub(crate) sample: u32,
    /// Only these locks: an address, or the symbol of a variable of the kernel.
    #[arg(long, value_name = "ADDR|SYMBOL", value_delimiter = ',', value_parser = LockChoice::parse, help_heading = "Filters")]
    pub(crate) lock: Vec<LockChoice>,
    /// Only waits of at least this time: 100us, 2ms. Kernel locks and futexes, no holds and no pthread calls.
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "kernel_probes", help_heading = "Filters")]
    pub(crate) min_wait: Option<Duration>,
    /// Only tasks of these names, of which the kernel keeps 15 bytes.
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = NonEmptyStringValueParser::new(), help_heading = "Filters")]
    pub(crate) comm: Vec<String>,
    /// No tasks of these names: monitors, for example.
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = NonEmptyStringValueParser::new(), help_heading = "Filters")]
    pub(crate) exclude_comm: Vec<String>,
    /// Frames per stack, at most 127.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=127), help_heading = "Sizes")]
    pub(crate) max_stack: Option<u32>,
    /// Ring buffer of each CPU, and of each thread that records itself: 1M, 8M, a power of two.
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "Sizes")]
    pub(crate) ring: Option<usize>,
    /// No progress and no summary; errors only.
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

#[cfg(feature = "analyze")]
#[derive(Debug, Subcommand)]
pub(crate) enum Analyze {
    /// Which lock, or which line of code, cost what: the columns of LOCK_PROFILING(9).
    Report(Report),
    /// Who made whom wait: every nanosecond of waiting, by who held the lock meanwhile.
    Blame(Blame),
}

/// How a result is written.
#[cfg(feature = "analyze")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// RFC 4180, times in nanoseconds.
    Csv,
    /// One object, times in nanoseconds.
    Json,
}

#[cfg(feature = "analyze")]
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
With -F or -k, by reading the trace twice:
  min, p50, p90, p99, p999     of holds, exact; wait_min, wait_p50 ... of waits
  spin, blocked, runq          what waits were spent with
A dash stands for what the trace's sources could not measure.

Examples:
  klock analyze report -n 10
  klock analyze report busy.parquet --by site --sort total
  klock analyze report --lock 0xffff888104a3c2d8 --by task
  klock analyze report -F wait_total,gap,wait_caused,holds_contended
  klock analyze report --format csv > report.csv")]
pub(crate) struct Report {
    /// The trace.
    #[arg(value_name = "TRACE", default_value = "trace.parquet")]
    pub(crate) trace: PathBuf,
    /// What a row is: lock, site (acquisition point), class (kind and name), kind, task, process or comm.
    #[arg(long, value_name = "KEY", default_value = "lock", value_parser = By::from_str)]
    pub(crate) by: By,
    /// Sort by this column, largest first; name sorts upwards.
    #[arg(short = 'k', long, value_name = "COLUMN", default_value = "wait_total", value_parser = Column::from_str)]
    pub(crate) sort: Column,
    /// Show these columns, in this order; CSV has all by default, JSON always.
    #[arg(short = 'F', long, value_name = "LIST", value_delimiter = ',', value_parser = Column::from_str)]
    pub(crate) columns: Vec<Column>,
    /// Show the first N rows.
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// Only this lock: an address, #ID, or a name.
    #[arg(long, value_name = "ADDR|#ID|NAME", help_heading = "Filters")]
    pub(crate) lock: Option<String>,
    /// Only this task: a thread or process id, or a name.
    #[arg(long, value_name = "TID|PID|COMM", help_heading = "Filters")]
    pub(crate) task: Option<String>,
    /// Only locks of these kinds: mutex, rwsem, spinlock, futex, pthread_mutex, ...
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_parser = LockKind::from_str, help_heading = "Filters")]
    pub(crate) kind: Vec<LockKind>,
    /// Include condition variables, semaphores and barriers, on which waiting is idling.
    #[arg(long, help_heading = "Filters")]
    pub(crate) idle: bool,
    /// Only what ended after this time from the trace's begin: 500ms, 1.5s.
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = "Filters")]
    pub(crate) from: Option<Duration>,
    /// Only what ended before this time from the trace's begin.
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = "Filters")]
    pub(crate) to: Option<Duration>,
    /// How to write it.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: Format,
}

#[cfg(feature = "analyze")]
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Each nanosecond of a wait is charged to the oldest hold that was open then, or to nobody; the rows add up to all that was
waited, exactly. Where holds are not recorded, the owner that the lock word named is told, and marked as such.

Examples:
  klock analyze blame
  klock analyze blame --by pair -n 5 --lock cache_lock
  klock analyze blame busy.parquet --by task --format csv > blame.csv")]
pub(crate) struct Blame {
    /// The trace.
    #[arg(value_name = "TRACE", default_value = "trace.parquet")]
    pub(crate) trace: PathBuf,
    /// What a row is: site (where the holder acquired the lock), task (the holder), or pair (holder's and waiter's site).
    #[arg(long, value_name = "KEY", default_value = "site", value_parser = BlameBy::from_str)]
    pub(crate) by: BlameBy,
    /// Show the first N rows.
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// Only this lock: an address, #ID, or a name.
    #[arg(long, value_name = "ADDR|#ID|NAME", help_heading = "Filters")]
    pub(crate) lock: Option<String>,
    /// Only locks of these kinds: mutex, rwsem, spinlock, futex, pthread_mutex, ...
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_parser = LockKind::from_str, help_heading = "Filters")]
    pub(crate) kind: Vec<LockKind>,
    /// Include condition variables, semaphores and barriers, on which waiting is idling.
    #[arg(long, help_heading = "Filters")]
    pub(crate) idle: bool,
    /// How to write it.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: Format,
}

#[cfg(feature = "analyze")]
#[derive(Debug, ClapArgs)]
pub(crate) struct Plot {
    /// The trace.
    #[arg(value_name = "TRACE", default_value = "trace.parquet")]
    pub(crate) trace: PathBuf,
    /// Which lock: an address, #ID, or a name, as the report shows them.
    #[arg(long, value_name = "ADDR|#ID|NAME")]
    pub(crate) lock: String,
    /// Write the picture to FILE; - is stdout.
    #[arg(short, long, value_name = "FILE", default_value = "lock.svg")]
    pub(crate) output: PathBuf,
    /// Replace a file that exists.
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Begin at this time from the trace's begin: 500ms, 1.5s.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) from: Option<Duration>,
    /// End at this time from the trace's begin.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) to: Option<Duration>,
    /// Width of the picture.
    #[arg(long, value_name = "PIXELS", default_value_t = 1200, value_parser = clap::value_parser!(u32).range(400..=10_000))]
    pub(crate) width: u32,
}

#[cfg(feature = "analyze")]
#[derive(Debug, ClapArgs)]
pub(crate) struct Info {
    /// The trace.
    #[arg(value_name = "TRACE", default_value = "trace.parquet")]
    pub(crate) trace: PathBuf,
    /// As JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
A recorder keeps a journal beside the trace (trace.parquet.journal) while it runs. From both, klock recover makes a
trace of everything up to less than a second before the recorder was killed.")]
pub(crate) struct Recover {
    /// The trace.
    #[arg(value_name = "TRACE", default_value = "trace.parquet")]
    pub(crate) trace: PathBuf,
}

#[cfg(feature = "record")]
#[derive(Debug, ClapArgs)]
pub(crate) struct Check {}

#[cfg(all(feature = "record", feature = "analyze"))]
#[derive(Debug, ClapArgs)]
pub(crate) struct Demo {
    /// Write demo.parquet and demo.svg into this directory.
    #[arg(short, long, value_name = "DIR", default_value = ".")]
    pub(crate) output: PathBuf,
    /// How long the workload runs.
    #[arg(short, long, value_name = "TIME", value_parser = duration, default_value = "2s")]
    pub(crate) duration: Duration,
}

#[cfg(all(feature = "record", feature = "analyze"))]
#[derive(Debug, ClapArgs)]
pub(crate) struct DemoWorkload {
    /// How long it runs.
    #[arg(value_parser = duration)]
    pub(crate) duration: Duration,
}

/// `500ms`, `10s`, `1.5s`, `2m`, `1h`; a bare number is seconds.
fn duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("'{text}' is no time; write 500ms, 10s or 2m");
    let split = text.find(|c: char| c.is_ascii_alphabetic() || c == 'µ').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: f64 = number.parse().ok().ok_or_else(bad)?;
    let scale = match unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(bad()),
    };
    Duration::try_from_secs_f64(number * scale).ok().ok_or_else(bad)
}

/// A kind of kernel lock.
#[cfg(feature = "record")]
fn kernel_kind(text: &str) -> Result<LockKind, String> {
    let kernel: Vec<&str> =
        LockKind::ALL.iter().filter(|kind| kind.is_kernel()).map(|kind| kind.as_str()).collect();
    let bad = || format!("'{text}' is no kind of kernel lock; choose from {}", kernel.join(", "));
    text.parse().ok().filter(|kind: &LockKind| kind.is_kernel()).ok_or_else(bad)
}

/// `8M`, `64k`, `65536`: a power of two of at least a page.
#[cfg(feature = "record")]
fn size(text: &str) -> Result<usize, String> {
    let bad = || format!("'{text}' is no size; write a power of two such as 64k, 1M or 8M");
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let scale: usize = match unit {
        "" => 1,
        "k" | "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => return Err(bad()),
    };
    let number: usize = number.parse().ok().ok_or_else(bad)?;
    let size = number.checked_mul(scale).ok_or_else(bad)?;
    if size.is_power_of_two() && (4096..=1 << 30).contains(&size) { Ok(size) } else { Err(bad()) }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_option_has_a_help_text_and_no_two_clash() {
        Args::command().debug_assert();
    }

    #[test]
    fn times_take_a_unit_and_default_to_seconds() {
        let read = |text| duration(text).map(|d| d.as_nanos());
        assert_eq!(read("500ms"), Ok(500_000_000));
        assert_eq!(read("1.5s"), Ok(1_500_000_000));
        assert_eq!(read("2"), Ok(2_000_000_000));
        assert_eq!(read("2m"), Ok(120_000_000_000));
        assert!(read("-1s").is_err() && read("soon").is_err() && read("1y").is_err() && read("").is_err());
    }

    #[cfg(feature = "record")]
    #[test]
    fn sizes_are_powers_of_two() {
        assert_eq!(size("8M"), Ok(8 << 20));
        assert_eq!(size("65536"), Ok(65536));
        assert!(size("10M").is_err() && size("1k").is_err() && size("M").is_err());
    }
}
