//! Records a program with perf and klock at the same time, and compares the call sites of its waits: perf
//! copies more of each stack, and unwinds it with code that shares nothing with klock's. klock must name
//! perf's site, or mark its own as a guess.
//!
//! needs: root, gcc, perf
//! full needs: memcached, rustc, go, redis-server, mariadbd, pg_lsclusters

#![cfg(feature = "record")]
use std::{
    fs,
    process::{Command, Stdio},
    time::Duration,
};

mod compare;
mod recorders;
use crate::support::{Running, cannot_record, most_of, place::Place, root, skip, soon};
use compare::{Comparison, compare};
use recorders::{Recorders, Waits};

/// How perf unwinds a program that has unwind tables.
const DWARF: &str = "dwarf,8192";
/// Bound on a load, with the time that its program needs to start.
const LOAD: Duration = Duration::from_secs(180);

/// Compares the call sites of `known_callers`, built with these flags.
fn compared(flags: &[&str], waits: Waits) -> Comparison {
    let directory = tempfile::tempdir().unwrap();
    let program = xtask::fixture::build("known_callers", directory.path(), flags).unwrap();
    let mut running = Running::start(Command::new(program).stdin(Stdio::piped()));
    let pid = running.line_after("ready ");
    let recorders = Recorders::start(&pid, waits, DWARF, directory.path()).unwrap();
    running.go();
    let (perf, klock) = recorders.finish().unwrap();
    drop(running.child.stdin.take());
    running.end_within(LOAD);
    compare(&perf, &klock)
}

/// Checks that no site differs from perf's without a mark. Marks grow with what else the processors do,
/// so a few are not a failure; without tables nearly all would be marked.
#[track_caller]
fn assert_equal(compared: &Comparison) {
    let Comparison { waits, paired, equal, renamed, wrong, .. } = compared;
    // The program waits 80 times in its main thread; a lock may be free on a busy machine.
    assert!(*paired >= 30, "{paired} of {waits} waits are paired");
    assert!(equal * 10 >= paired * 9 && *wrong == 0 && *renamed == 0, "{compared:?}");
}

/// Compares the call sites of a program with frame pointers, and of one without.
#[track_caller]
fn assert_sites_are_those_of_perf(waits: Waits) {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    if !xtask::process::has("perf") {
        return skip("no perf here");
    }
    for flags in [&[][..], &["-O2", "-fomit-frame-pointer"]] {
        most_of(3, 1, || assert_equal(&compared(flags, waits)));
    }
}

#[test]
#[ignore = "full: compares with perf, which must have the same waits"]
fn waits_for_futexes_have_the_call_sites_of_perf() {
    assert_sites_are_those_of_perf(Waits::Futex);
}

#[test]
#[ignore = "full: compares with perf, which must have the same waits"]
fn off_cpu_times_have_the_call_sites_of_perf() {
    assert_sites_are_those_of_perf(Waits::OffCpu);
}

/// The loads of `fixtures/loads`, each with whether it runs as root and how perf unwinds it.
const LOADS: [(&str, bool, &str); 6] = [
    ("memcached", false, DWARF),
    ("rust", true, DWARF),
    // Go writes no `.eh_frame`, and keeps frame pointers.
    ("go", true, "fp"),
    ("redis-threads", false, DWARF),
    ("postgresql", false, DWARF),
    ("mariadb", false, DWARF),
];

/// Runs a load once with both recorders on its program. Returns `None` if the program is missing.
fn compared_load(name: &str, as_root: bool, waits: Waits, stacks: &str) -> Option<Comparison> {
    /// The exit code of a load whose program is missing.
    const MISSING: i32 = 77;
    let place = Place::new();
    for folder in ["loads", "programs"] {
        place.directory(folder);
        for file in fs::read_dir(root().join("fixtures").join(folder)).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), place.path(folder).join(file.file_name())).unwrap();
        }
    }
    let work = place.directory("work");
    let mut command = if as_root { Command::new("bash") } else { place.command("bash") };
    command.arg(place.path("loads").join(format!("{name}.sh"))).current_dir(&work);
    command.env("FIXTURES", place.path("programs")).env("READY", place.path("loads/ready"));
    // klock keeps the copies of at most some 10,000 stacks until it has parsed the files of a program, and
    // marks what comes after them. A load of 2,000 queries waits 5,000 times, however long klock parses.
    command.env("QUERIES", "2000");
    let mut load = Running::start(&mut command);
    let pid = || fs::read_to_string(work.join("pid")).ok()?.strip_suffix('\n').map(str::to_owned);
    soon(LOAD, name, || pid().is_some() || load.child.try_wait().unwrap().is_some());
    let Some(pid) = pid() else {
        let ended = load.end_within(LOAD);
        assert_eq!(ended.status.code(), Some(MISSING), "{name} did not call $READY: {}", ended.stderr);
        skip(&format!("no {} here; cargo xtask setup installs it", ended.stdout.trim()));
        return None;
    };
    let directory = tempfile::tempdir().unwrap();
    let recorders = Recorders::start(&pid, waits, stacks, directory.path());
    // The program also continues, and its load ends, if a recorder fails.
    fs::write(work.join("go"), "").unwrap();
    let ended = load.end_within(LOAD);
    assert!(ended.status.success(), "{name}: {}", ended.stderr);
    let (perf, klock) = recorders.unwrap().finish().unwrap();
    Some(compare(&perf, &klock))
}

/// Compares the call sites of each load.
#[track_caller]
fn assert_sites_of_loads_are_those_of_perf(waits: Waits) {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    for (name, as_root, stacks) in LOADS {
        most_of(3, 1, || {
            let Some(compared) = compared_load(name, as_root, waits, stacks) else { return };
            let Comparison { waits: all, paired, equal, renamed, marked, short, wrong, cut, described } =
                compared;
            let right = 100.0 * equal as f64 / paired as f64;
            let figures = format!(
                "{name}, {waits:?}: {all} waits, {paired} paired, {equal} equal, {renamed} with another name, {marked} marked, {short} too short, {wrong} wrong, {cut} cut, {right:.2} %"
            );
            assert!(
                right >= 99.0 && wrong == 0 && renamed * 1_000 <= paired,
                "{figures}\n{}",
                described.join("\n")
            );
        });
    }
}

#[test]
#[ignore = "full: compares with perf, which must have the same waits"]
fn waits_of_real_programs_for_futexes_have_the_call_sites_of_perf() {
    assert_sites_of_loads_are_those_of_perf(Waits::Futex);
}

#[test]
#[ignore = "full: compares with perf, which must have the same waits"]
fn off_cpu_times_of_real_programs_have_the_call_sites_of_perf() {
    assert_sites_of_loads_are_those_of_perf(Waits::OffCpu);
}
