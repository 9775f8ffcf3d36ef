//! Fuzz targets: unit tests that a fuzzer gives bytes (`tests/support/fuzz.rs`), one for each folder of
//! `fixtures/fuzz`.

use std::fs;

use anyhow::{Context as _, Result, ensure};

use super::{build::Build, tally::Tally};
use crate::process::{Run, root, target};

/// Coverage for libFuzzer, as cargo-bolero asks for it.
const FLAGS: &str = "--cfg fuzzing --cfg fuzzing_libfuzzer -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Fuzzes each target for this long, with the inputs that earlier runs found. A crash is an input in
/// `target/fuzz/crashes`: mend what it shows, and add it to the target's folder.
const SECONDS: u32 = 120;

pub(super) fn run() -> Result<Tally> {
    let build = Build::of(
        Run::cargo(&["test", "--no-run", "--lib", "-p", "trace-format", "-p", "record"])
            .args(["--target", "x86_64-unknown-linux-gnu", "--config", "profile.dev.opt-level=1"])
            .arg("--target-dir")
            .arg(target().join("fuzz"))
            .env("RUSTFLAGS", FLAGS)
            .env("BOLERO_FUZZER", "libfuzzer"),
    )?;
    let crashes = target().join("fuzz/crashes");
    fs::create_dir_all(&crashes)?;
    let mut targets = Vec::new();
    for program in &build.tests {
        targets.extend(program.tests(&[])?.into_iter().map(|test| (program, test)));
    }
    let mut tally = Tally::default();
    for folder in fs::read_dir(root().join("fixtures/fuzz"))? {
        let seeds = folder?.path();
        let name = seeds.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // libFuzzer writes the inputs that it finds here. `fixtures/fuzz` has a few small inputs.
        let corpus = target().join("fuzz/corpus").join(&name);
        fs::create_dir_all(&corpus)?;
        let target = targets.iter().find(|(_, test)| test.ends_with(&format!("::{name}")));
        let (program, test) = target.with_context(|| format!("no fuzz target has the name {name}"))?;
        let arguments = format!(
            "{} {} -artifact_prefix={}/{name}- -max_total_time={SECONDS} -timeout=10 -rss_limit_mb=1024",
            corpus.display(),
            seeds.display(),
            crashes.display()
        );
        let run = program.command(&[test, "--exact", "--nocapture", "--test-threads=1"]);
        let outcome = run.env("BOLERO_LIBFUZZER_ARGS", arguments).stream()?;
        ensure!(outcome.lines.iter().any(|line| line.contains("INITED")), "{name} was not fuzzed");
        tally = tally.merge(&Tally::of_check(&outcome, &name));
    }
    Ok(tally)
}
