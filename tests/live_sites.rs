//! Records a program with perf and klock at the same time, and compares the call sites of its waits: perf copies more of each stack, and
//! unwinds it with code that shares nothing with klock's. `cargo xtask sites` does so with larger programs.
//!
//! needs: root, gcc, perf

#![cfg(feature = "record")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use xtask::sites::{Comparison, compare_process};

mod support;

use support::{Running, cannot_record, klock, most_of, skip};

/// Compares the call sites of `known_callers`, built with these flags.
fn compared(flags: &[&str], off_cpu: bool) -> Comparison {
    let directory = tempfile::tempdir().unwrap();
    let program = xtask::fixture::build("known_callers", directory.path(), flags).unwrap();
    let mut running = Running::start(Command::new(program).stdin(Stdio::piped()));
    let pid = running.line_after("ready ");
    let binary = klock();
    let klock = Path::new(binary.get_program());
    let compared = compare_process(klock, &pid, off_cpu, directory.path(), || running.go()).unwrap();
    drop(running.child.stdin.take());
    running.end_within(Duration::from_secs(180));
    compared
}

/// Checks that no site differs from that of perf without a mark. Marks grow with what else the processors do, so a few are not a failure;
/// without tables nearly all would be marked.
#[track_caller]
fn assert_equal(compared: &Comparison) {
    let Comparison { waits, paired, equal, wrong, .. } = compared;
    // The program waits 80 times in its main thread; a lock may be free on a busy machine.
    assert!(*paired >= 30, "{paired} of {waits} waits are paired");
    assert!(equal * 10 >= paired * 9 && *wrong == 0, "{compared:?}");
}

/// Compares the call sites of a program with frame pointers, and of one without.
#[track_caller]
fn assert_sites_are_those_of_perf(off_cpu: bool) {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    if !xtask::process::has("perf") {
        return skip("no perf here");
    }
    for flags in [&[][..], &["-O2", "-fomit-frame-pointer"]] {
        most_of(3, 1, || assert_equal(&compared(flags, off_cpu)));
    }
}

#[test]
#[ignore = "full: compares with perf, which must have the same waits"]
fn waits_for_futexes_have_the_call_sites_of_perf() {
    assert_sites_are_those_of_perf(false);
}

#[test]
#[ignore = "full: compares with perf, which must have the same waits"]
fn off_cpu_times_have_the_call_sites_of_perf() {
    assert_sites_are_those_of_perf(true);
}
