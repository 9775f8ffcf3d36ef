//! Tells the program its commit, if git knows it.

use std::{env, path::Path, process::Command};

fn main() {
    println!("cargo:rerun-if-env-changed=KLOCK_COMMIT");
    println!("cargo:rerun-if-changed=build.rs");
    // A package without git can set it.
    let given = env::var("KLOCK_COMMIT").ok();
    let commit = given.or_else(|| git(&["rev-parse", "--short=10", "HEAD"]));
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]).filter(|log| Path::new(log).exists()) {
        println!("cargo:rerun-if-changed={log}");
    }
    println!("cargo:rustc-env=KLOCK_COMMIT={}", commit.as_deref().unwrap_or("unknown commit"));
}

/// Returns the output of git, if this directory is a checkout of klock and not only inside of another one.
fn git(words: &[&str]) -> Option<String> {
    if !Path::new(".git").exists() {
        return None;
    }
    let output = Command::new("git").args(words).output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}
