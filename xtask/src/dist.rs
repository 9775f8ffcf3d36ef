//! `cargo xtask dist`: the program as it is released, `target/dist/klock`. The profile `dist` optimizes
//! crates together for size, which takes many minutes. The demo is the check that the program runs.

use std::fs;

use anyhow::{Context as _, Result, ensure};

use crate::process::{Run, scratch, target};

/// Builds the program, lets it record its demo, and prints its size.
pub(crate) fn run() -> Result<()> {
    let build = Run::cargo(&["build", "--profile", "dist", "--locked", "-p", "klock"]);
    // It runs on machines with an older C library than this one has.
    build.env("KLOCK_PORTABLE", "1").must()?;
    let klock = target().join("dist/klock");
    let demo = Run::new(&klock, &["demo"]).directory(scratch("dist")?).must()?;
    for word in ["journal_lock", "demo.c:"] {
        let is_named = demo.lines.iter().any(|line| line.contains(word));
        ensure!(is_named, "the demo of {} does not name {word}", klock.display());
    }
    let bytes = fs::metadata(&klock).with_context(|| format!("cannot read {}", klock.display()))?.len();
    println!("{}: {:.1} MB", klock.display(), bytes as f64 / 1e6);
    Ok(())
}
