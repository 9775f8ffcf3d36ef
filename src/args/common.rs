//! What all that read a trace take: which part of it, and how and where the result is written.

use std::{path::PathBuf, str::FromStr as _, time::Duration};

use analyze::rows::Format;
use clap::Args as ClapArgs;
use trace_format::{LockKind, Mode};

use super::duration;

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
    /// How to write it: text, csv, json, md (Markdown) or parquet; but in text, times are in nanoseconds.
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = Format::from_str, help_heading = "Output")]
    pub(crate) format: Format,
    /// Write to FILE instead of stdout.
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    pub(crate) output: Option<PathBuf>,
    /// Replace a file that exists.
    #[arg(short, long, help_heading = "Output")]
    pub(crate) force: bool,
}
