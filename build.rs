//! Tells the program its commit, if git knows it, builds the workload of its demo, and has the linker make
//! the program smaller.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    build_demo();
    name_commit();
    shrink();
}

/// Folds functions of the same code into one, leaves out the tables by which a panic unwinds, as it aborts a
/// release, and packs relocations: together a fifth of the program. On x86-64, Rust's own linker is the
/// default since Rust 1.90; other linkers do not know the first option. The C library unpacks relocations
/// since glibc 2.36, and the program then starts nowhere else, which KLOCK_PORTABLE prevents.
fn shrink() {
    println!("cargo:rerun-if-env-changed=KLOCK_PORTABLE");
    let variable = |name: &str| env::var(name).unwrap_or_default();
    let version = |program: &str, argument: &str| {
        let output = Command::new(program).arg(argument).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        let mut numbers =
            text.split_whitespace().nth(1)?.split('.').map_while(|number| number.parse::<u32>().ok());
        Some((numbers.next()?, numbers.next()?))
    };
    let is_native =
        variable("HOST") == variable("TARGET") && variable("TARGET") == "x86_64-unknown-linux-gnu";
    let has_own_linker =
        ["RUSTC_LINKER", "CARGO_ENCODED_RUSTFLAGS"].iter().all(|name| variable(name).is_empty());
    if is_native && has_own_linker && version(&variable("RUSTC"), "--version") >= Some((1, 90)) {
        println!("cargo:rustc-link-arg-bins=-Wl,--icf=all");
        if variable("PROFILE") == "release" {
            let script = PathBuf::from(variable("OUT_DIR")).join("no_unwinding.ld");
            let discarded = "*(.eh_frame) *(.gcc_except_table .gcc_except_table.*)";
            let text = format!("SECTIONS {{ /DISCARD/ : {{ {discarded} }} }} INSERT AFTER .text;\n");
            fs::write(&script, text).expect("cargo's folder can be written");
            println!("cargo:rustc-link-arg-bins=-Wl,--no-eh-frame-hdr,-T,{}", script.display());
        }
        let is_portable = env::var_os("KLOCK_PORTABLE").is_some();
        if !is_portable && version("getconf", "GNU_LIBC_VERSION") >= Some((2, 36)) {
            println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
        }
    }
}

/// Builds the workload of the demo as a program. The line numbers in it are all that a report of it needs of
/// its sources. The folder in which klock was built is not in it.
fn build_demo() {
    let source = "fixtures/programs/demo.c";
    println!("cargo:rerun-if-changed={source}");
    let program = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("demo");
    let compiler = cc::Build::new().get_compiler();
    let mut command = compiler.to_command();
    let here = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    command.args(["-O1", "-g1", "-fno-omit-frame-pointer", "-pthread"]);
    command.arg(format!("-fdebug-prefix-map={here}=/klock")).arg(source).arg("-o").arg(program);
    let status = command.status();
    assert!(status.is_ok_and(|status| status.success()), "cannot build {source}: {command:?} failed");
}

fn name_commit() {
    println!("cargo:rerun-if-env-changed=KLOCK_COMMIT");
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
