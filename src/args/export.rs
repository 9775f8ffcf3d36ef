//! `klock export`, as it is typed.

use std::{path::PathBuf, str::FromStr as _};

use analyze::export::{Format, folded};
use clap::Args as ClapArgs;

use super::common::Filters;

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Formats:
  csv     the events, RFC 4180, times in nanoseconds
  jsonl   the events, one JSON object per line
  folded  stacks by how long they waited, for flamegraph.pl, inferno and speedscope
  pprof   contentions and delay by stack, for go tool pprof, Pyroscope and Parca

Examples:
  klock export --format csv -o events.csv
  klock export --format folded --of combined | flamegraph.pl --color=chain --countname=us > waits.svg")]
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
    /// What the weight of a stack is: wait, hold, wait_caused (how long others waited for what was acquired there), or combined (the
    /// stack of who waited, --, the stack of who held the lock meanwhile).
    #[arg(long, value_name = "WHAT", value_parser = folded::Of::from_str, help_heading = "folded")]
    pub(crate) of: Option<folded::Of>,
    /// The unit of the weights: us or ns [default: us].
    #[arg(long, value_name = "UNIT", value_parser = folded::Unit::from_str, help_heading = "folded")]
    pub(crate) unit: Option<folded::Unit>,
}

impl Export {
    /// Options that only some formats know: their name, whether they were given, and the formats.
    pub(crate) fn own_options(&self) -> Vec<(&'static str, bool, &'static [Format])> {
        vec![
            ("--of", self.of.is_some(), &[Format::Folded]),
            ("--unit", self.unit.is_some(), &[Format::Folded]),
        ]
    }

    /// With [`Format::Folded`].
    pub(crate) fn folded(&self) -> folded::Options {
        folded::Options { of: self.of.unwrap_or_default(), unit: self.unit.unwrap_or_default() }
    }
}
