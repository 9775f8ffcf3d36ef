//! `cargo xtask fleet`: the rollups of an invented fleet, for the example in docs/fleet.md and for benchmarks.
//!
//! Every fifth machine runs version 2 of the program, which holds one of its locks eight times as long. Every fiftieth machine lost more
//! than 5 % of its events. Of a large fleet, some machines are invented, and their rollups are copied under other names.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use crate::{
    generate::{self, Machine},
    process::{Run, root, say, scratch},
    setup,
};

/// Write the rollups of an invented fleet, for docs/fleet.md.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The built klock.
    #[arg(long, default_value = "target/release/klock")]
    klock: PathBuf,
    /// Directory of the rollups.
    #[arg(short, long)]
    output: PathBuf,
    /// Number of machines.
    #[arg(long, default_value_t = 1000)]
    hosts: u64,
    /// Number of machines that are invented; the others are copies. A multiple of 50 keeps the shares of versions and losses. 0 is all.
    #[arg(long, default_value_t = 0)]
    distinct: u64,
    /// Number of events of each machine.
    #[arg(long, default_value_t = 5_000)]
    events: u64,
    /// Number of minutes that the events are spread over; 0 for one stretch of work.
    #[arg(long, default_value_t = 0)]
    minutes: u64,
}

/// 2026-11-22 12:00 UTC.
const BEGUN_NS: i64 = 1_795_348_800_000_000_000;
/// One machine in `NEW_ONE_IN` runs version 2.
const NEW_ONE_IN: u64 = 5;
/// One machine in `LOSSY_ONE_IN` lost events.
const LOSSY_ONE_IN: u64 = 50;

/// Writes the rollups.
pub(crate) fn run(options: &Options) -> Result<()> {
    let Options { klock, output, hosts, distinct, events, minutes } = options;
    ensure!(*hosts > 0, "cannot make a fleet without hosts; use --hosts 100");
    let distinct = if *distinct == 0 { *hosts } else { *distinct.min(hosts) };
    let directory = scratch("fleet")?;
    let trace = directory.join("trace.parquet");
    for host in 0..distinct {
        let is_new = host % NEW_ONE_IN == 0;
        let machine = Machine {
            host: format!("web-{host:04}"),
            begun_ns: BEGUN_NS + i64::try_from(host)? * 1_000_000,
            lost_one_in: if host % LOSSY_ONE_IN == LOSSY_ONE_IN - 1 { 12 } else { 0 },
            holds: true,
            slow: if is_new { 8 } else { 1 },
            minutes: *minutes,
            ..Machine::default()
        };
        generate::run_on(&trace, *events, host + 1, &machine)?;
        let version = if is_new { "version=2" } else { "version=1" };
        let done =
            Run::new(klock, &["rollup", "--label", version, "-f", "-o"]).arg(output).arg(&trace).read();
        done.with_context(|| format!("cannot roll up the trace of {}", machine.host))?;
    }
    fs::remove_dir_all(&directory).ok();
    if distinct < *hosts {
        let copied =
            Run::new(setup::python(), &[]).arg(root().join("tests/python/copy_rollups.py")).arg(output);
        let copied = copied.args([distinct.to_string(), hosts.to_string()]).stream()?;
        ensure!(copied.ok, "cannot copy the rollups; run cargo xtask setup for the Python environment");
    }
    say(&format!("{hosts} hosts of {events} events each below {}", output.display()));
    Ok(())
}
