//! Records programs that another library interposes as well (`fixtures/programs/counting_interposer.c`): in
//! front of klock's library and behind it, it sees the calls that it sees without klock, and klock records
//! the rows that it records alone.
//!
//! needs: gcc

use std::{fs, path::Path, process::Command, time::Duration};

use crate::support::{
    Running,
    conformance::{Expected, assert_conforms},
    place::Place,
};

/// The libraries before and behind klock's, as a shell reads them.
const BEFORE: &str = "$OTHER:$LD_PRELOAD";
const BEHIND: &str = "$LD_PRELOAD:$OTHER";

/// Starts the program of the first argument with these libraries. The shell that does it is not interposed.
fn script(libraries: &str) -> String {
    format!("LD_PRELOAD=\"{libraries}\" exec \"$0\" \"$@\"")
}

/// Returns the counts of a run, and removes them.
fn counts(path: &Path) -> String {
    let counts = fs::read_to_string(path).unwrap();
    fs::remove_file(path).unwrap();
    counts
}

#[test]
#[ignore = "records a program; run by cargo xtask test"]
fn an_interposer_sees_the_same_calls_before_and_behind_klock_as_without() {
    let place = Place::new();
    let other =
        xtask::fixture::build("counting_interposer", &place.directory("built"), &["-shared", "-fPIC"]);
    let (other, program) = (place.copy(&other.unwrap()), place.program("known_locks"));
    let path = place.path("calls");
    let with_other = |command: &mut Command| -> String {
        let ended = Running::start(command.env("OTHER", &other).env("CALLS", &path));
        let ended = ended.end_within(Duration::from_secs(180));
        assert!(ended.status.success(), "{}", ended.stderr);
        ended.stdout
    };
    let mut alone = place.command("sh");
    let printed = with_other(alone.args(["-c", &script("$OTHER")]).arg(&program).arg("--expected"));
    let expected_counts = counts(&path);
    assert!(expected_counts.lines().all(|line| !line.ends_with(" 0")), "{expected_counts}");
    for libraries in [BEFORE, BEHIND] {
        let arguments = ["-c", &script(libraries), &program.to_string_lossy(), "--expected"];
        let recorded = with_other(&mut place.record(&[], Path::new("/bin/sh"), &arguments));
        assert_eq!(counts(&path), expected_counts, "{libraries}");
        assert_eq!(without_addresses(&recorded), without_addresses(&printed), "{libraries}");
        assert_conforms(&place.path("t.parquet"), &Expected::read(&recorded));
    }
}

/// Returns the results of the calls.
fn without_addresses(printed: &str) -> Vec<&str> {
    printed.lines().filter(|line| line.contains(": ")).collect()
}
