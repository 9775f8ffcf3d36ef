//! The arguments of `klock plot` and `klock info`.

use std::path::Path;

use analyze::{
    export::Of,
    plot::{DEFAULT_WIDTH, Theme, WIDTHS},
};
use clap::Args as ClapArgs;

use super::{
    common::{OutputFile, Traces, Window},
    shared::OneTrace,
};

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
The picture is written to lock.svg, locks.svg, blame.svg or flame.svg, or to the
file of -o; a name that ends with .png makes a PNG. Without --from and --to, the
busiest part of a lock is drawn.

Examples:
  klock plot                                   all locks
  klock plot --lock cache_lock -o cache.png    one lock
  klock plot --blame                           who waits for whom
  klock plot --flame=hold                      a flame graph of holds")]
pub(crate) struct Plot {
    #[command(flatten)]
    pub(crate) trace: OneTrace,
    /// Draw this lock: an address, #ID or a name, as in the report. Without it, all locks are drawn.
    #[arg(long, value_name = "ADDR|#ID|NAME")]
    pub(crate) lock: Option<String>,
    /// Draw who waits for whom: holders by their state, and the tasks and code that wait for them.
    #[arg(long, conflicts_with = "flame")]
    pub(crate) blame: bool,
    /// Draw a flame graph of stacks by this weight: wait, hold, wait_caused, combined, count, blocked, sys,
    /// wakes, errors or offcpu. A trace without locks has offcpu alone.
    #[arg(long, value_name = "WEIGHT", num_args = 0..=1, require_equals = true, default_missing_value = "wait")]
    pub(crate) flame: Option<Of>,
    /// Use these colours: light or dark.
    #[arg(long, value_name = "THEME", default_value_t)]
    pub(crate) theme: Theme,
    #[command(flatten)]
    pub(crate) window: Window,
    #[command(flatten)]
    pub(crate) file: OutputFile,
    /// Set the width of the picture.
    #[arg(long, value_name = "PIXELS", default_value_t = DEFAULT_WIDTH, value_parser = clap::value_parser!(u32).range(i64::from(*WIDTHS.start())..=i64::from(*WIDTHS.end())))]
    pub(crate) width: u32,
}

impl Plot {
    /// Returns the file of the picture; `None` for the standard output.
    pub(crate) fn output(&self) -> Option<&Path> {
        let default = match self {
            Self { flame: Some(_), .. } => "flame.svg",
            Self { blame: true, .. } => "blame.svg",
            Self { lock: Some(_), .. } => "lock.svg",
            _ => "locks.svg",
        };
        self.file.path(Some(default))
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Info {
    #[command(flatten)]
    pub(crate) traces: Traces,
    /// Print JSON: an object for each trace.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the size of each column, too.
    #[arg(long)]
    pub(crate) full: bool,
}
