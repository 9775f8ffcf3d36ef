//! The arguments of `klock plot` and `klock info`.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use analyze::{
    export::folded::Of,
    plot::{DEFAULT_WIDTH, Theme, WIDTHS},
};
use clap::Args as ClapArgs;

use super::duration::duration;

#[derive(Debug, ClapArgs)]
pub(crate) struct Plot {
    /// The trace to draw.
    #[arg(value_name = "TRACE", default_value = "trace.parquet")]
    pub(crate) trace: PathBuf,
    /// Draw this lock: an address, #ID or a name, as in the report. Without it, all locks are drawn.
    #[arg(long, value_name = "ADDR|#ID|NAME")]
    pub(crate) lock: Option<String>,
    /// Draw who waits for whom: holders by their state, and the tasks and code that wait for them.
    #[arg(long, conflicts_with = "flame")]
    pub(crate) blame: bool,
    /// Draw a flame graph of stacks by this weight: wait, hold, wait_caused, combined, count, blocked, sys, wakes or errors.
    #[arg(long, value_name = "WEIGHT", num_args = 0..=1, require_equals = true, default_missing_value = "wait")]
    pub(crate) flame: Option<Of>,
    /// Write the picture to FILE (default: lock.svg, locks.svg, blame.svg or flame.svg), or to stdout if FILE is -. A name that ends with
    /// .png makes a PNG.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Use these colours: light or dark.
    #[arg(long, value_name = "THEME", default_value_t)]
    pub(crate) theme: Theme,
    /// Replace an existing file. As root, write also where other users can rename files.
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Begin at this time after the start of the trace: 500ms, 1.5s. Without --from and --to, the busiest part is drawn.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) from: Option<Duration>,
    /// End at this time after the start of the trace.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) to: Option<Duration>,
    /// Set the width of the picture.
    #[arg(long, value_name = "PIXELS", default_value_t = DEFAULT_WIDTH, value_parser = clap::value_parser!(u32).range(i64::from(*WIDTHS.start())..=i64::from(*WIDTHS.end())))]
    pub(crate) width: u32,
}

impl Plot {
    /// Returns the file of the picture.
    pub(crate) fn output(&self) -> &Path {
        let default = match self {
            Self { flame: Some(_), .. } => "flame.svg",
            Self { blame: true, .. } => "blame.svg",
            Self { lock: Some(_), .. } => "lock.svg",
            _ => "locks.svg",
        };
        self.output.as_deref().unwrap_or(Path::new(default))
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Info {
    /// Traces to describe: files, or directories of them.
    #[arg(value_name = "TRACE", default_value = "trace.parquet")]
    pub(crate) traces: Vec<PathBuf>,
    /// Print JSON: an object for each trace.
    #[arg(long)]
    pub(crate) json: bool,
}
