//! `klock export`, as it is typed.

use std::{path::PathBuf, str::FromStr as _};

use analyze::export::Format;
use clap::Args as ClapArgs;

use super::common::Filters;

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Formats:
  csv    the events, RFC 4180, times in nanoseconds
  jsonl  the events, one JSON object per line

Examples:
  klock export --format csv -o events.csv")]
pub(crate) struct Export {
    /// The trace.
    #[arg(value_name = "TRACE", default_value = "trace.parquet")]
    pub(crate) trace: PathBuf,
    /// Which format.
    #[arg(long, value_name = "FORMAT", value_parser = Format::from_str)]
    pub(crate) format: Format,
    /// Write to FILE instead of stdout.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace a file that exists.
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Also if more than 5 % of the events were lost, and an order of rows may mean nothing.
    #[arg(long)]
    pub(crate) allow_loss: bool,
    #[command(flatten)]
    pub(crate) filters: Filters,
}
