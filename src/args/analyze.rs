//! Arguments of the tables of `klock analyze`.

use std::{path::PathBuf, str::FromStr as _, time::Duration};

use analyze::{
    output::{self, help},
    tables::{
        blame::{self, By as BlameBy},
        critical,
        diff::{self, Align, Metric},
        hist::{self, Buckets, Of},
        intervals::{self, RowKind},
        key::By,
        offcpu, order, report, timeline, why,
    },
};
use clap::{Args as ClapArgs, Subcommand};

use super::{
    common::{FailIf, Keys, Rows, States, Table, Traces, key},
    shared::positive,
    whatif::WhatIf,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Analyze {
    /// Which lock, which line of code or which task cost what.
    Report(Report),
    /// Why the worst locks are waited for, and what would help.
    Why(Why),
    /// Who made others wait, and for how long, to the nanosecond.
    Blame(Blame),
    /// The locks on which the length of the run depends.
    Critical(Critical),
    /// The gain of a change, such as a shorter hold.
    #[command(name = "whatif", alias = "what-if")]
    WhatIf(WhatIf),
    /// Waiting and holding over time, period by period.
    Timeline(Timeline),
    /// Why tasks were off-CPU, and which task woke them.
    #[command(name = "offcpu", alias = "off-cpu")]
    OffCpu(OffCpu),
    /// Locks taken in opposite orders: what could deadlock in another run.
    Order(Order),
    /// Histograms of waits or holds, by powers of two or finer.
    Hist(Hist),
    /// Compare two recordings, lock by lock; tells a change from chance.
    Diff(Diff),
    /// The events as they were recorded, with names.
    #[command(after_help = rows_help(RowKind::Events))]
    Events(Intervals),
    /// Every wait: the task, the lock, its start and end.
    #[command(after_help = rows_help(RowKind::Waits))]
    Waits(Intervals),
    /// Every hold: the task, the lock, its start and end.
    #[command(after_help = rows_help(RowKind::Holds))]
    Holds(Intervals),
}

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct Intervals {
    #[command(flatten)]
    pub(crate) traces: Traces,
    #[command(flatten)]
    pub(crate) rows: Rows,
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = with_columns(&timeline::columns(By::Lock, false), &timeline_help()))]
pub(crate) struct Timeline {
    #[command(flatten)]
    pub(crate) keys: Keys,
    /// The length of a period; by default a round time that gives some twenty periods, with --worst 50ms.
    #[arg(long, value_name = "TIME", value_parser = positive)]
    pub(crate) period: Option<Duration>,
    /// Show the acquisitions of each key in each period, the worst average wait first.
    #[arg(long)]
    pub(crate) worst: bool,
    #[command(flatten)]
    pub(crate) traces: Traces,
    #[command(flatten)]
    pub(crate) table: Table,
}

/// Returns the columns with `--worst`, and the examples.
fn timeline_help() -> String {
    let columns = help(&timeline::worst_columns(By::Lock, false), true);
    format!("{}\n{TIMELINE_HELP}", columns.replacen("Columns:", "Columns with --worst:", 1))
}

const TIMELINE_HELP: &str = "\
A wait or hold that is longer than a period is split over the periods that it
spans; its start counts in one period. Abandoned waits count too, and intervals
that are open at the end count until then.

With --worst, an acquisition and its whole wait count in the period of the
acquisition; wait_avg is divided by all acquisitions, not only those that waited;
rows are sorted by it, or with -k time upwards by period. Periods start at
multiples of their length on the trace's clock.

Examples:
  klock timeline
  klock timeline --by site -n 5 --period 10ms --from 1s --to 2s
  klock timeline --format csv > timeline.csv
  klock timeline --worst -n 10                     the worst averages of any lock
  klock timeline --worst --by task,lock -n 10      of any thread and lock
  klock timeline --worst --lock cache_lock -k time     one lock over time, and how many threads used it
  klock report -F threads,count,wait_avg -k threads    without periods: the locks of most threads";

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = with_columns(&offcpu::columns(offcpu::By::Pair, 0, false), "\
Text shows a block per pair: the waker, its stack from the root, the stack of the
task from where it left the CPU, and the task. With -F, and in all other formats,
pairs are rows.

Examples:
  klock record -p 1234 --off-cpu -d 10s && klock offcpu -n 5
  klock offcpu --by waker
  klock offcpu --by stack --state uninterruptible     I/O and the like
  klock export --format offwaketime                           folded stacks, for flame graphs"))]
pub(crate) struct OffCpu {
    /// The key of a row: pair (task and waker with their stacks), stack, waker, task, state or syscall.
    #[arg(long, value_name = "KEY", default_value_t, value_parser = key::<offcpu::By>)]
    pub(crate) by: offcpu::By,
    #[command(flatten)]
    pub(crate) states: States,
    #[command(flatten)]
    pub(crate) traces: Traces,
    #[command(flatten)]
    pub(crate) table: Table,
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = with_columns(&order::columns(order::By::Lock, false), "\
Text shows a block per cycle: for each step the threads, the lock that they hold
and the lock that they take or wait for meanwhile. With -F, and in all other
formats, steps are rows. -n counts cycles. --all also lists the cycles that cannot
deadlock: gated (two threads hold one further lock), one_thread, never_together
and shared. Filters select attempts to take a lock; a cycle is shown if one of its
attempts is selected. Releases must be recorded: record a command, or with --locks
kernel or --locks pthread; without them the exit code is 3.

Examples:
  klock order
  klock order --by class --lock cache_lock
  klock order --graph dot | dot -Tsvg -o order.svg
  klock order --fail-if inversion         exit code 6 if there is one"))]
#[command(mut_arg("conditions", |arg| arg.help("Exit with 6 if there is an inversion: inversion")))]
pub(crate) struct Order {
    /// The locks that an order is about: lock (each one), or class (all of one kind and name, or of one place
    /// of initialisation).
    #[arg(long, value_name = "KEY", default_value_t, value_parser = key::<order::By>)]
    pub(crate) by: order::By,
    /// Search for cycles of at most N locks, 2 to 8.
    #[arg(long, value_name = "N", default_value_t = order::LENGTH, value_parser = length)]
    pub(crate) length: usize,
    /// Write the cycles as a graph, in this language: dot (Graphviz).
    #[arg(long, value_name = "LANGUAGE", value_parser = order::Graph::from_str, conflicts_with = "format")]
    pub(crate) graph: Option<order::Graph>,
    #[command(flatten)]
    pub(crate) fail_if: FailIf,
    #[command(flatten)]
    pub(crate) traces: Traces,
    #[command(flatten)]
    pub(crate) rows: Rows,
}

/// Parses a number of locks in a cycle.
fn length(text: &str) -> Result<usize, String> {
    let length = text.parse().ok().filter(|length| (2..=8).contains(length));
    length.ok_or_else(|| format!("invalid length '{text}': use a number of locks from 2 to 8"))
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = with_columns(&hist::columns(None, false), "\
Examples:
  klock hist                            all waits
  klock hist --of hold --by lock -n 5
  klock hist --lock cache_lock --buckets hdr
  klock hist --lock cache_lock --by site --format csv > hist.csv"))]
#[command(mut_arg("by", |arg| arg.help("Make a histogram for each KEY, as in `klock report` [default: one of all]")))]
pub(crate) struct Hist {
    #[command(flatten)]
    pub(crate) keys: Keys,
    /// The times to count: wait (waits that ended with the lock) or hold.
    #[arg(long, value_name = "TIME", default_value_t, value_parser = Of::from_str)]
    pub(crate) of: Of,
    /// The buckets: log2 (one per power of two of nanoseconds) or hdr (64 per power of two).
    #[arg(long, value_name = "KIND", default_value_t, value_parser = Buckets::from_str)]
    pub(crate) buckets: Buckets,
    #[command(flatten)]
    pub(crate) traces: Traces,
    #[command(flatten)]
    pub(crate) table: Table,
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = with_columns(&diff::columns(Metric::default()), "\
The metric (-k) is shown, and rows are sorted by its difference. Metrics:
wait_total, total (holds), count, cnt_lock, wait_caused, all per run of a command,
or per second if a recorded program ran on; wait_avg, avg, per acquisition;
wait_p50, wait_p99, p50, p99 (of holds). With 3 or more traces on each side,
changes have intervals by what recordings of one program differ by. Fewer cannot
say whether a change is chance, and --fail-if then ends with 3.

Examples:
  klock diff before.parquet after.parquet
  klock diff base-*.parquet -- new-*.parquet       several recordings of each
  klock diff before.parquet after.parquet --by site -k wait_p99
  klock diff base-*.parquet --fail-if 'wait_total > +20%' -- new-*.parquet    exit code 6 if so
  klock diff version=1.parquet version=2.parquet   two groups of hosts of a fleet"))]
#[command(mut_arg("conditions", |arg| arg.help(
    "Exit with 6 if this holds of all selected locks together, with the whole interval: 'wait_total > +20%'"
)))]
pub(crate) struct Diff {
    /// The trace to compare with and the trace to compare; or several to compare with, then -- and those to
    /// compare. Two files of fleet.py --cohort compare two groups of hosts: whole hosts are drawn.
    #[arg(value_name = "BASE", required = true)]
    pub(crate) base: Vec<PathBuf>,
    /// The traces to compare, if there are several on a side.
    #[arg(value_name = "NEW", last = true)]
    pub(crate) new: Vec<PathBuf>,
    /// The key that both traces share: lock (by name, or the function that initialised or acquires it), init,
    /// site, stack, kind or comm.
    #[arg(long, value_name = "KEY", default_value_t, value_parser = key::<Align>)]
    pub(crate) by: Align,
    #[command(flatten)]
    pub(crate) fail_if: FailIf,
    #[command(flatten)]
    pub(crate) table: Table,
}

/// Returns the help text below the options: the columns, then `more`.
fn with_columns<R>(columns: &[output::Column<R>], more: &str) -> String {
    format!("{}\n{more}", help(columns, true))
}

fn rows_help(what: RowKind) -> String {
    format!("{}\n{ROWS_HELP}", intervals::help(what))
}

const ROWS_HELP: &str = "\
Text shows the columns that fit; CSV, JSON (one object per line) and Parquet
have every column, times in nanoseconds since the start of the trace. Rows are
written as the trace is read: memory does not grow with it. Waits and holds come
in the order in which they end.

Examples:
  klock events --lock cache_lock -n 50
  klock waits --min-wait 1ms --from 2s --to 3s
  klock holds --format parquet -o holds.parquet";

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = with_columns(&report::columns(By::Lock, false), "\
A dash stands for what the trace's sources could not measure.

Examples:
  klock report -n 10
  klock report busy.parquet --by site --sort total
  klock report --lock 0xffff888104a3c2d8 --by task
  klock report -F wait_total,gap,wait_caused,holds_contended
  klock report -k total -F total,pct,cum_pct,count
  klock report -F wait_caused,caused_running
  klock report -F convoys,overtaken_max,jain,hog
  klock report --by process -k waited       threads, waits, wake-ups, and idle waits apart
  klock report --format csv > report.csv
  klock report --by host web-*.parquet
  klock report --fail-if 'contention > 10%' --having 'count > 99'   exit code 6 if so
  klock report --by process --fail-if 'wait_share > 20%'"))]
pub(crate) struct Report {
    #[command(flatten)]
    pub(crate) keys: Keys,
    #[command(flatten)]
    pub(crate) fail_if: FailIf,
    #[command(flatten)]
    pub(crate) traces: Traces,
    #[command(flatten)]
    pub(crate) table: Table,
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = with_columns(&why::columns(false), "\
Text says the verdicts whose rule holds, for the 3 locks that were waited for
longest (-n); all other formats have every verdict, with the value and the limit
of its rule. docs/verdicts.md has the rules.

Examples:
  klock why
  klock why --lock cache_lock
  klock why --format csv -n 20"))]
pub(crate) struct Why {
    #[command(flatten)]
    pub(crate) traces: Traces,
    #[command(flatten)]
    pub(crate) table: Table,
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = with_columns(&blame::columns(BlameBy::Site, false, 0, false), &blame_help()))]
pub(crate) struct Blame {
    /// The key of a row: site (where the holder acquired the lock), task (the holder), pair (holder's and
    /// waiter's site), state (the holder's site, and whether it ran, slept or waited), host; with --chains
    /// also lock, or depth (the number of locks in the chain) [default: site; with --chains: state].
    #[arg(long, value_name = "KEY", value_parser = key::<BlameBy>)]
    pub(crate) by: Option<BlameBy>,
    /// Charge waits to the holds at the ends of their chains: a holder may wait for another lock itself.
    #[arg(long)]
    pub(crate) chains: bool,
    #[command(flatten)]
    pub(crate) traces: Traces,
    #[command(flatten)]
    pub(crate) table: Table,
}

/// Returns the columns of the tables of chains, and the examples.
fn blame_help() -> String {
    let columns = |by, of: &str| {
        let columns = help(&blame::columns(by, true, 0, false), true);
        columns.replacen("Columns:", &format!("Columns with --chains{of}:"), 1)
    };
    let (ends, holders) =
        (columns(BlameBy::State, ""), columns(BlameBy::Lock, " and --by lock, site or task"));
    format!("{ends}\n{holders}\n{BLAME_HELP}")
}

const BLAME_HELP: &str = "\
Each nanosecond of a wait is charged to the oldest hold that was open then, or
to no task; the rows add up to all waits exactly. Where holds are not recorded,
the owner that the lock word named is charged, and marked as such. With --chains,
it is charged to the hold at the end of the chain of waits: who holds a lock that
others wait for may itself wait for another lock. Deadlocks come first.

Examples:
  klock blame
  klock blame --by pair -n 5 --lock cache_lock
  klock blame --by state                  what the holders did meanwhile (record with --off-cpu)
  klock blame busy.parquet --by task --format csv > blame.csv
  klock blame --chains                    the holds at the ends of chains
  klock blame --chains --by lock          what each lock keeps, passes on and receives
  klock blame --chains --by depth         how long the chains are";

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = with_columns(&critical::columns(0, false, true), "\
The path is walked back from the end of a task: from each wait on to the task that
ended it. Its parts add up to the length of the run exactly; a lock that is not on
it does not limit the run, however long others wait for it. --task names the task
whose path it is [default: the first thread that lived longest]; --from and --to set
the window. All other filters select locks, and waits for the column waited.

Examples:
  klock critical
  klock critical --task worker-3 --from 2s --to 3s
  klock critical -F path,at_most,held,handoff,jumps
  klock critical --spans requests.csv            of each request in a file"))]
pub(crate) struct Critical {
    /// Walk the path of each span of FILE, a CSV file of tid,begin_ns,end_ns[,name], and add them up by name.
    #[arg(long, value_name = "FILE", conflicts_with = "task")]
    pub(crate) spans: Option<PathBuf>,
    /// The clock of the spans: monotonic (CLOCK_MONOTONIC), realtime (as OpenTelemetry), or trace (since its
    /// start).
    #[arg(long, value_name = "CLOCK", default_value_t, value_parser = critical::Clock::from_str, requires = "spans")]
    pub(crate) spans_clock: critical::Clock,
    #[command(flatten)]
    pub(crate) traces: Traces,
    #[command(flatten)]
    pub(crate) table: Table,
}
