//! Builds the C programs of `fixtures/programs`, whose lock operations are known, and the programs of
//! `fixtures/attacks`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use crate::process::{Run, root};

const FLAGS: [&str; 7] = ["-Wall", "-Wextra", "-Werror", "-g", "-O1", "-fno-omit-frame-pointer", "-pthread"];

/// Builds the fixture `name` into `directory`, with more flags of gcc, and returns its path.
///
/// # Errors
/// If gcc is missing or fails.
pub fn build(name: &str, directory: &Path, flags: &[&str]) -> Result<PathBuf> {
    let program = directory.join(name);
    let sources = ["programs", "attacks"].map(|kind| root().join(format!("fixtures/{kind}/{name}.c")));
    let source = sources.iter().find(|source| source.exists()).unwrap_or(&sources[0]);
    // Renamed into place: another test may run the old one.
    let partial = directory.join(format!("{name}.{}", std::process::id()));
    let gcc = Run::new("gcc", &FLAGS).args(flags).arg(source).arg("-o").arg(&partial);
    gcc.read().with_context(|| format!("cannot build the fixture {name}"))?;
    fs::rename(&partial, &program).with_context(|| program.display().to_string())?;
    Ok(program)
}
