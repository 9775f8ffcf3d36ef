//! `cargo xtask dist`: the program as it is released. A release build goes in, whose linker folds functions of the same code into one where
//! it is known to do so; `target/dist/klock` comes out, which is smaller by its symbols, too, and has its line numbers compressed.
//!
//! Only the demo needs symbols and lines of klock itself: it records its own process. So the demo is the check.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

use crate::process::{Run, has, scratch, target};

/// The symbols that stay: functions of the demo, and the variables that are its locks.
const KEPT: [&str; 5] = ["*5klock4demo*", "convoy_log", "hot_counter", "long_held_config", "route_table_rw"];

/// Arguments for the linker. On x86-64, rustc's own is the default since Rust 1.90; the others do not know this option.
const LINK: &[&str] = if cfg!(target_arch = "x86_64") { &["--", "-Clink-arg=-Wl,--icf=all"] } else { &[] };

/// Options of the chore.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Take this program instead of building one.
    #[arg(long, value_name = "FILE")]
    klock: Option<PathBuf>,
}

/// Makes `target/dist/klock`, lets it record its demo, and prints both sizes.
pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(has("objcopy"), "cannot make the released program: it needs objcopy; install binutils");
    let klock = match &options.klock {
        Some(klock) => klock.clone(),
        None => {
            let build = ["rustc", "--release", "--locked", "-p", "klock", "--bin", "klock"];
            Run::cargo(&build).args(LINK).minutes(120).must()?;
            target().join("release/klock")
        }
    };
    let directory = target().join("dist");
    fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
    let released = directory.join("klock");
    let mut objcopy = Run::new("objcopy", &["--wildcard", "--compress-debug-sections=zlib"]);
    for symbol in KEPT {
        objcopy = objcopy.arg(format!("--strip-symbol=!{symbol}"));
    }
    objcopy.arg("--strip-symbol=*").arg(&klock).arg(&released).must()?;
    let demo = Run::new(&released, &["demo", "--duration", "500ms"]).directory(scratch("dist")?).must()?;
    for word in ["convoy_log", "demo/workload.rs:"] {
        if !demo.lines.iter().any(|line| line.contains(word)) {
            bail!("the demo of {} does not name {word}", released.display());
        }
    }
    let size = |path: &PathBuf| -> Result<f64> {
        let bytes = fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?.len();
        Ok(bytes as f64 / 1e6)
    };
    println!("{}: {:.1} MB, {:.1} MB before", released.display(), size(&released)?, size(&klock)?);
    Ok(())
}
