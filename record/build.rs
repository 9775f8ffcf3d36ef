//! Builds the library that recorded programs load (`record-preload`), so that klock can embed it.
//!
//! It is a separate build, because it is a shared library with a profile of its own.

use std::{env, fs, path::PathBuf, process::Command};

/// The sources of the library.
const SOURCES: [&str; 7] = [
    "record-preload/Cargo.toml",
    "record-preload/src",
    "record-preload/build.rs",
    "trace-format/Cargo.toml",
    "trace-format/src/preload.rs",
    "trace-format/src/preload",
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
        // Lints and instrumentation of this crate must not apply to the library.
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        // So that stacks can be walked and unwound through the library.
        .env("RUSTFLAGS", "-C force-frame-pointers=yes -C force-unwind-tables=yes")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .status();
    assert!(status.is_ok_and(|status| status.success()), "record-preload could not be built");
    let built = folder.join(&target).join("preload/librecord_preload.so");
    fs::copy(&built, out.join("libklock_preload.so")).expect("the library was built");
}
