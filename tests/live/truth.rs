//! Records programs whose truth is known by construction, and compares what klock says of them with it:
//! names, classes, counts.
//!
//! needs: root, gcc

#![cfg(feature = "record")]
use std::{collections::BTreeMap, path::Path, process::Command};

use crate::support::{cannot_record, csv_rows, fixture, klock, run, skip, until};

/// Records these locks of a program, and returns the place of the trace in `directory`.
#[track_caller]
fn recorded(locks: &str, program: &Path, args: &[&str], directory: &Path) -> std::path::PathBuf {
    let trace = directory.join("t.parquet");
    let mut record: Command = klock();
    record.args(["record", "-f", "--locks", locks, "-o"]).arg(&trace).arg("--").arg(program).args(args);
    let ended = run(&mut record);
    assert!(ended.status.success(), "{}", ended.stderr);
    trace
}

/// Returns what `klock analyze` prints.
#[track_caller]
fn analyzed(args: &[&str], trace: &Path) -> String {
    let ended = run(klock().arg("analyze").args(args).arg(trace));
    assert!(ended.status.success(), "{}", ended.stderr);
    ended.stdout
}

#[test]
#[ignore = "builds and records a program; run by cargo xtask test"]
fn functions_of_c_keep_their_names_though_they_encode_types() {
    let directory = tempfile::tempdir().unwrap();
    let trace = recorded("pthread", &fixture("truth_names"), &[], directory.path());
    let csv = analyzed(&["report", "--by", "site", "--lock", "names_lock", "--format", "csv"], &trace);
    let mut found: Vec<String> = csv_rows(&csv).into_iter().map(|row| row["function"].clone()).collect();
    found.sort();
    assert_eq!(found, ["Pc", "b", "d", "f", "i", "v", "w"]);
}

#[test]
#[ignore = "builds and records a program; run by cargo xtask test"]
fn a_lock_in_memory_that_processes_share_is_one_lock() {
    const PROCESSES: usize = 20;
    const ROUNDS: usize = 50;
    let directory = tempfile::tempdir().unwrap();
    let args = [PROCESSES.to_string(), ROUNDS.to_string()];
    let args = args.each_ref().map(String::as_str);
    // Waits for a shared lock are charged to the holder in another process.
    until("a process waits for the holder of a lock", || {
        let trace = recorded("pthread", &fixture("shared_lock"), &args, directory.path());
        let csv = analyzed(&["report", "--by", "lock", "--all", "--idle", "--format", "csv"], &trace);
        let rows = csv_rows(&csv);
        let counts = |kind: &str, is_shared: bool| {
            let is_wanted = |row: &&BTreeMap<String, String>| {
                row["kind"] == kind && row["name"].contains(", shared)") == is_shared
            };
            rows.iter().filter(is_wanted).map(|row| row["count"].parse().unwrap()).collect::<Vec<usize>>()
        };
        assert_eq!(counts("pthread_mutex", true), [PROCESSES * ROUNDS; 2], "{csv}");
        assert_eq!(counts("user_semaphore", true), [PROCESSES * ROUNDS], "{csv}");
        assert_eq!(counts("pthread_mutex", false), [ROUNDS; PROCESSES], "{csv}");
        let blame = analyzed(&["blame", "--by", "site", "--format", "csv"], &trace);
        let charged = csv_rows(&blame).into_iter().filter(|row| row["charged_to"] == "hold");
        let caused_ns: i64 = charged.map(|row| row["wait_caused_ns"].parse::<i64>().unwrap()).sum();
        (caused_ns > 0).then_some(())
    });
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_futex_in_memory_that_processes_share_is_one_lock() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let directory = tempfile::tempdir().unwrap();
    let columns = ["--by", "lock", "--all", "--idle", "-F", "count,threads,name", "--format", "csv"];
    until("threads of several processes wait for one lock", || {
        let trace = recorded("futex", &fixture("shared_lock"), &["20", "200"], directory.path());
        let rows = csv_rows(&analyzed(&[&["report"][..], &columns].concat(), &trace));
        let private = rows.iter().find(|row| row["name"].contains("private_lock"));
        assert!(private.is_none(), "it is never waited for: {rows:?}");
        // The two mutexes and the semaphore, as far as a process waited for them.
        let shared: Vec<_> = rows.iter().filter(|row| row["name"].contains(", shared)")).collect();
        assert!(shared.len() <= 3, "{rows:?}");
        let threads = shared.iter().map(|row| row["threads"].parse::<usize>().unwrap()).max();
        (threads > Some(1)).then_some(())
    });
}
