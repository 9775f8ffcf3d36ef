//! Builds the library that recorded programs load (`record-preload`), so that it can be embedded: a build of its own, because
//! it is a shared library with a profile of its own, and whoever gets klock gets it along.

use std::{env, fs, path::PathBuf, process::Command};

/// What the library is made of; everything else does not change it.
const SOURCES: [&str; 6] = [
    "record-preload/Cargo.toml",
    "record-preload/src",
    "record-preload/build.rs",
    "trace-format/Cargo.toml",
    "trace-format/src/preload.rs",
    "Cargo.lock",
];

fn main() {
    let variable = |name: &str| env::var_os(name).unwrap_or_else(|| panic!("cargo sets {name}"));
    let workspace = PathBuf::from(variable("CARGO_MANIFEST_DIR")).join("..");
    for source in SOURCES.map(|source| workspace.join(source)) {
        if source.exists() {
            println!("cargo::rerun-if-changed={}", source.display());
        }
    }
    let out = PathBuf::from(variable("OUT_DIR"));
    let (folder, target) = (out.join("preload"), variable("TARGET"));
    let status = Command::new(variable("CARGO"))
        .args(["build", "--profile", "preload", "--locked", "--quiet", "--manifest-path"])
        .arg(workspace.join("record-preload/Cargo.toml"))
        .arg("--target-dir")
        .arg(&folder)
        .arg("--target")
        .arg(&target)
        // What checks this crate, or instruments it, is not for the library.
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .status();
    assert!(status.is_ok_and(|status| status.success()), "record-preload could not be built");
    let built = folder.join(&target).join("preload/librecord_preload.so");
    fs::copy(&built, out.join("libklock_preload.so")).expect("the library was built");
}
