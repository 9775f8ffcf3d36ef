//! `cargo xtask fleet`: the rollups of an invented fleet, for the walk in docs/fleet.md and for benchmarks.
//!
//! Every fifth machine runs version 2 of the program, which holds one of its locks eight times as long. Every fiftieth machine lost more
//! than 5 % of its events.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, ensure};

use crate::{
    generate::{self, Machine},
    process::{Run, say, scratch},
};

/// 2026-11-22 12:00 UTC.
const BEGUN_NS: i64 = 1_795_348_800_000_000_000;
/// One machine in so many runs version 2.
const NEW_ONE_IN: u64 = 5;
/// One machine in so many lost events.
const LOSSY_ONE_IN: u64 = 50;

/// Writes the rollups of this number of machines below `output`, with the program `klock`.
pub(crate) fn run(klock: &Path, output: &Path, hosts: u64, events: u64) -> Result<()> {
    ensure!(hosts > 0, "cannot make a fleet without hosts; use --hosts 100");
    let directory = scratch("fleet")?;
    let trace = directory.join("trace.parquet");
    for host in 0..hosts {
        let is_new = host % NEW_ONE_IN == 0;
        let machine = Machine {
            host: format!("web-{host:04}"),
            begun_ns: BEGUN_NS + i64::try_from(host)? * 1_000_000,
            lost_one_in: if host % LOSSY_ONE_IN == LOSSY_ONE_IN - 1 { 12 } else { 0 },
            holds: true,
            slow: if is_new { 8 } else { 1 },
        };
        generate::run_on(&trace, events, host + 1, &machine)?;
        let version = if is_new { "version=2" } else { "version=1" };
        let done =
            Run::new(klock, &["rollup", "--label", version, "-f", "-o"]).arg(output).arg(&trace).read();
        done.with_context(|| format!("cannot roll up the trace of {}", machine.host))?;
    }
    fs::remove_dir_all(&directory).ok();
    say(&format!("{hosts} hosts of {events} events each below {}", output.display()));
    Ok(())
}
