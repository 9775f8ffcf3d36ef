//! The arguments of `klock rollup`.

use std::{path::PathBuf, str::FromStr as _, time::Duration};

use analyze::rollup::Label;
use clap::Args as ClapArgs;

use super::{
    common::{Filters, Traces},
    shared::{Force, positive},
};

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Writes five tables as Parquet files, DIR/TABLE/date=DAY/HOST-TRACE.parquet: facts
(sums by period and acquisition site), buckets (counts of holds and waits by
length), blame (who made whom wait), traces and labels. Rows of many machines are
added up by any SQL engine; sql/fleet has the queries, docs/fleet.md an example.
A trace that is rolled up again replaces its own files.

Examples:
  klock rollup -o rollups
  klock rollup -o rollups --label version=2.1 --label region=eu web-*.parquet
  klock rollup -o rollups --period 10s --keys 200")]
pub(crate) struct Rollup {
    #[command(flatten)]
    pub(crate) traces: Traces,
    /// Write the tables below this directory, which is made if need be.
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: PathBuf,
    /// The length of a period of facts, on the wall clock.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = positive)]
    pub(crate) period: Duration,
    /// The length of a period of buckets and blame.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = positive)]
    pub(crate) long_period: Duration,
    /// Keep the N keys of each period that were waited for longest; all others of the period are one row,
    /// (others).
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(crate) keys: usize,
    /// Label the traces, to tell groups of machines apart. May be given several times.
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = Label::from_str)]
    pub(crate) labels: Vec<Label>,
    #[command(flatten)]
    pub(crate) force: Force,
    #[command(flatten)]
    pub(crate) filters: Filters,
}
