//! What all that read a trace take: which part of it, and how and where the result is written.

use std::{path::PathBuf, str::FromStr as _, time::Duration};

use analyze::{report::By, rows::Format};
use clap::Args as ClapArgs;
use trace_format::{LockKind, Mode};

use super::duration;

/// What all that show rows of traces take.
#[derive(Debug, ClapArgs)]
pub(crate) struct Rows {
    /// The trace, or several as one: files, directories of them.
    #[arg(value_name = "TRACE", default_value = "trace.parquet")]
    pub(crate) traces: Vec<PathBuf>,
    /// Show the first N rows, of timeline and hist keys: those with the longest time, in text 3 if not given.
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    #[command(flatten)]
    pub(crate) filters: Filters,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// What all tables take whose rows have an order by cost.
#[derive(Debug, ClapArgs)]
pub(crate) struct Table {
    #[command(flatten)]
    pub(crate) rows: Rows,
    /// Also if more than 5 % of the events were lost, and the order of rows may mean nothing.
    #[arg(long)]
    pub(crate) allow_loss: bool,
}

/// What a row, a timeline or a histogram is of.
#[derive(Debug, ClapArgs)]
pub(crate) struct Keys {
    /// What there is one of: lock, site (acquisition point), stack, class (kind and name), kind, task, task,lock (each lock of each
    /// thread), process, comm, cgroup or host. If not given, lock; of histograms, one for all.
    #[arg(long, value_name = "KEY", value_parser = By::from_str)]
    pub(crate) by: Option<By>,
    /// With --by stack: so many functions of it, from the acquisition point outwards.
    #[arg(long, value_name = "N")]
    pub(crate) depth: Option<usize>,
}

/// What of a trace a table is about.
#[derive(Debug, ClapArgs)]
pub(crate) struct Filters {
    /// Only this lock: an address, #ID, or a name.
    #[arg(long, value_name = "ADDR|#ID|NAME", help_heading = "Filters")]
    pub(crate) lock: Option<String>,
    /// Only this task: a thread or process id, or a name.
    #[arg(long, value_name = "TID|PID|COMM", help_heading = "Filters")]
    pub(crate) task: Option<String>,
    /// Only threads of these names.
    #[arg(long, value_name = "NAME", value_delimiter = ',', help_heading = "Filters")]
    pub(crate) comm: Vec<String>,
    /// Only where a function of the stack has this in its name.
    #[arg(long, value_name = "NAME", help_heading = "Filters")]
    pub(crate) symbol: Option<String>,
    /// Only locks of these kinds: mutex, rwsem, spinlock, futex, pthread_mutex, ...
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_parser = LockKind::from_str, help_heading = "Filters")]
    pub(crate) kind: Vec<LockKind>,
    /// Include condition variables, semaphores and barriers, on which waiting is idling.
    #[arg(long, help_heading = "Filters")]
    pub(crate) idle: bool,
    /// Only exclusive or only shared holds and waits.
    #[arg(long, value_name = "MODE", value_parser = Mode::from_str, help_heading = "Filters")]
    pub(crate) mode: Option<Mode>,
    /// Only waits of at least this time, and what was acquired by them: 100us, 2ms.
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = "Filters")]
    pub(crate) min_wait: Option<Duration>,
    /// Only what ended after this time from the trace's begin: 500ms, 1.5s.
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = "Filters")]
    pub(crate) from: Option<Duration>,
    /// Only what ended before this time from the trace's begin.
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = "Filters")]
    pub(crate) to: Option<Duration>,
}

/// How and where a result is written.
#[derive(Debug, ClapArgs)]
pub(crate) struct Output {
    /// How to write it: text, csv, json, md (Markdown), parquet or arrow; but in text, times are in nanoseconds.
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = Format::from_str, help_heading = "Output")]
    pub(crate) format: Format,
    /// In text: names in full. Without, template arguments and hashes are left out, and what is too wide loses its middle.
    #[arg(long, help_heading = "Output")]
    pub(crate) full: bool,
    /// Write to FILE instead of stdout.
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    pub(crate) output: Option<PathBuf>,
    /// Replace a file that exists.
    #[arg(short, long, help_heading = "Output")]
    pub(crate) force: bool,
}
