//! Arguments that several commands share: traces, filters and output.

use std::{
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use analyze::{
    input::names::purposes::Purpose,
    output::{Format, Having},
    tables::{blame::By as BlameBy, key::By, offcpu},
};
use clap::Args as ClapArgs;
use trace_format::{LockKind, Mode, TaskState};

use super::shared::{Force, duration};

/// Arguments of commands that show rows.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct Rows {
    /// Show the first N rows, locks or keys [default: in text as fits or 3, else all].
    #[arg(short = 'n', long, value_name = "N", allow_negative_numbers = true, value_parser = rows, conflicts_with = "all")]
    pub(crate) limit: Option<usize>,
    /// Show rows for which this holds, in report 'wait_total > 5ms', 'count >= 100', 'contention > 10%'.
    #[arg(long, value_name = "CONDITION", value_parser = Having::from_str, help_heading = "Filters")]
    pub(crate) having: Vec<Having>,
    /// Show all rows.
    #[arg(long)]
    pub(crate) all: bool,
    /// Sort by this column, the greatest first; names and times upwards.
    #[arg(short = 'k', long, alias = "metric", value_name = "COLUMN")]
    pub(crate) sort: Option<String>,
    /// Show these columns, in this order; JSON has all.
    #[arg(short = 'F', long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) columns: Vec<String>,
    #[command(flatten)]
    pub(crate) filters: Filters,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// The traces of a table.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct Traces {
    /// Traces to read: files, or directories of them. Several traces make one table.
    #[arg(value_name = "TRACE", default_value = "trace.parquet")]
    pub(crate) traces: Vec<PathBuf>,
}

/// Arguments of tables that rank rows.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct Table {
    #[command(flatten)]
    pub(crate) rows: Rows,
    #[command(flatten)]
    pub(crate) loss: Loss,
}

/// The subject of a row, a timeline or a histogram.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct Keys {
    /// Group by this key: lock, site (acquisition site), stack, class (kind and name), kind, purpose (of
    /// waits), task, process, comm, cgroup or host; or by several: task,lock is each lock of each thread
    /// [default: lock].
    #[arg(long, value_name = "KEY", value_parser = key::<By>)]
    pub(crate) by: Option<By>,
    /// With --by stack, group by N functions of the stack, from the acquisition site outwards.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = depth)]
    pub(crate) depth: Option<usize>,
}

/// Names of keys in other tools, and klock's name for each.
const OTHER_KEYS: &[(&str, &str)] = &[
    ("pid", "process"),
    ("tgid", "process"),
    ("thread", "task"),
    ("threads", "task"),
    ("tid", "task"),
    ("caller", "site"),
    ("callsite", "site"),
    ("function", "site"),
    ("symbol", "site"),
    ("callchain", "stack"),
    ("callstack", "stack"),
    ("command", "comm"),
    ("type", "kind"),
    ("addr", "lock"),
    ("address", "lock"),
    ("container", "cgroup"),
];

/// Parses the key of rows, also by the names that other tools have for it. The error names the tables that
/// have the key.
pub(super) fn key<K: FromStr<Err: std::fmt::Display>>(text: &str) -> Result<K, String> {
    let ours = OTHER_KEYS.iter().find(|(other, _)| *other == text).map_or(text, |(_, ours)| ours);
    ours.parse().map_err(|error: K::Err| {
        let commands: Vec<_> =
            tables_by(ours).iter().map(|table| format!("`klock {table} --by {ours}`")).collect();
        if commands.is_empty() {
            error.to_string()
        } else {
            format!("{error}; {} has it", commands.join(" or "))
        }
    })
}

/// Returns the tables whose rows can have a key.
fn tables_by(key: &str) -> Vec<&'static str> {
    let tables = [
        ("report", key.parse::<By>().is_ok()),
        ("blame", key.parse().is_ok_and(|by: BlameBy| by.is_of(false))),
        ("blame --chains", key.parse().is_ok_and(|by: BlameBy| by == BlameBy::Depth)),
        ("offcpu", key.parse::<offcpu::By>().is_ok()),
    ];
    tables.into_iter().filter(|(_, has)| *has).map(|(table, _)| table).collect()
}

/// Parses a number of rows.
fn rows(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .ok_or_else(|| format!("invalid number of rows '{text}': use a number such as 20, or --all"))
}

/// Parses a number of functions of a stack.
fn depth(text: &str) -> Result<usize, String> {
    let depth = text.parse().ok().filter(|&depth| depth > 0);
    depth.ok_or_else(|| format!("invalid depth '{text}': use a number of functions, 1 or more"))
}

/// The selected part of a trace.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct Filters {
    /// Select locks: an address, #ID or a name; '*' stands for any text.
    #[arg(long, value_name = "ADDR|#ID|NAME", help_heading = "Filters")]
    pub(crate) lock: Option<String>,
    /// Select tasks: a thread id, a process id, or names; '*' stands for any text: 1234, 'worker-*',
    /// 'reader,writer-*'.
    #[arg(long, value_name = "TID|PID|COMM", value_delimiter = ',', help_heading = "Filters")]
    pub(crate) task: Vec<String>,
    /// Select stacks with a function whose name contains NAME.
    #[arg(long, value_name = "NAME", help_heading = "Filters")]
    pub(crate) symbol: Option<String>,
    /// Select locks by kind: mutex, rwsem, spinlock, futex, pthread_mutex, ...
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_parser = LockKind::from_str, help_heading = "Filters")]
    pub(crate) kind: Vec<LockKind>,
    /// Include idle waits: for condition variables, semaphores, barriers, ends of threads, parked threads and
    /// idle schedulers.
    #[arg(long, alias = "all-waits", help_heading = "Filters")]
    pub(crate) idle: bool,
    /// Select waits by purpose: lock, condvar, exit (of a thread), park, scheduler, semaphore, barrier,
    /// undecided.
    #[arg(long, value_name = "PURPOSE", value_delimiter = ',', value_parser = Purpose::from_str, help_heading = "Filters")]
    pub(crate) purpose: Vec<Purpose>,
    /// Select exclusive or shared holds and waits.
    #[arg(long, value_name = "MODE", value_parser = Mode::from_str, help_heading = "Filters")]
    pub(crate) mode: Option<Mode>,
    /// Select waits of at least this length, and the holds that followed them: 100us, 2ms.
    #[arg(long, allow_hyphen_values = true, value_name = "TIME", value_parser = duration, help_heading = "Filters")]
    pub(crate) min_wait: Option<Duration>,
    #[command(flatten)]
    pub(crate) window: Window,
}

/// A part of a trace.
#[derive(Clone, Copy, Debug, ClapArgs)]
pub(crate) struct Window {
    /// Select what ended at or after this time since the start of the trace: 500ms, 1.5s.
    #[arg(long, allow_hyphen_values = true, value_name = "TIME", value_parser = duration, help_heading = "Filters")]
    pub(crate) from: Option<Duration>,
    /// Select what ended before this time since the start of the trace.
    #[arg(long, allow_hyphen_values = true, value_name = "TIME", value_parser = duration, help_heading = "Filters")]
    pub(crate) to: Option<Duration>,
}

/// The format and the destination of a result.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct Output {
    /// Write this format: text, csv, json, md (Markdown), parquet, arrow or arrows (an Arrow stream, for a
    /// pipe). All but text and md have times in nanoseconds.
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = Format::from_str, help_heading = "Output")]
    pub(crate) format: Format,
    /// Show all notes below the rows, and not only their number. Notes of text in a pipe or file go to
    /// stderr.
    #[arg(long, help_heading = "Output")]
    pub(crate) notes: bool,
    /// Show full names in text, and on a terminal all columns. By default, template arguments and hashes are
    /// left out, long names are cut in the middle, and columns for which a terminal has no room are left out.
    #[arg(long, help_heading = "Output")]
    pub(crate) full: bool,
    #[command(flatten)]
    pub(crate) file: OutputFile,
}

/// The file of a result.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct OutputFile {
    /// Write to FILE, or to stdout if FILE is -.
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) force: Force,
}

impl OutputFile {
    /// Returns the file; `None` for the standard output. Without an option it is `default`.
    pub(crate) fn path<'a>(&'a self, default: Option<&'a str>) -> Option<&'a Path> {
        self.output.as_deref().or(default.map(Path::new)).filter(|path| *path != Path::new("-"))
    }
}

/// Whether to rank what is left of a trace that lost much.
#[derive(Clone, Copy, Debug, ClapArgs)]
pub(crate) struct Loss {
    /// Rank rows even if more than 5 % of the events were lost.
    #[arg(long)]
    pub(crate) allow_loss: bool,
}

/// The conditions on which a script fails.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct FailIf {
    /// Exit with 6 if this holds of a row, which is shown: 'contention > 10%'.
    #[arg(long = "fail-if", value_name = "CONDITION")]
    pub(crate) conditions: Vec<String>,
}

impl FailIf {
    /// Parses the conditions of one command.
    pub(crate) fn parsed<C: FromStr>(&self) -> Result<Vec<C>, C::Err> {
        self.conditions.iter().map(|text| text.parse()).collect()
    }
}

/// A filter of off-CPU times.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct States {
    /// Select off-CPU times of tasks in these states: runnable (preempted), interruptible, uninterruptible,
    /// idle, stopped, traced, parked.
    #[arg(long, value_name = "STATES", value_delimiter = ',', value_parser = TaskState::from_str, help_heading = "Filters")]
    pub(crate) state: Vec<TaskState>,
}
