//! `klock plot` and `klock info`, as they are typed.

use std::{path::PathBuf, time::Duration};

use clap::Args as ClapArgs;

use super::duration;

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

#[derive(Debug, ClapArgs)]
pub(crate) struct Info {
    /// The trace.
    #[arg(value_name = "TRACE", default_value = "trace.parquet")]
    pub(crate) trace: PathBuf,
    /// As JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
