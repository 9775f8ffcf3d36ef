//! Records programs whose waits have a known purpose: locks of Python, which are semaphores; threads of Go's
//! scheduler; mutexes of Rust; joins, condition variables and semaphores of C. Locks are in the report, idle
//! waits are left out, and the time that is left out is named.
//!
//! needs: root, python3, rustc, go, gcc

#![cfg(feature = "record")]
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
};

use trace_format::Trace;

use crate::support::{cannot_record, csv_rows, klock, most_of, record_whole, root, run, skip, until};

/// Records a command, and returns the place of the trace in `directory`.
#[track_caller]
fn recorded(locks: &str, command: &[&str], directory: &Path) -> PathBuf {
    let trace = directory.join("t.parquet");
    let mut record = klock();
    record.args(["record", "--quiet", "-f", "--locks", locks, "-o"]).arg(&trace).arg("--").args(command);
    let ended = run(&mut record);
    assert!(ended.status.success(), "{}", ended.stderr);
    trace
}

#[track_caller]
fn report(args: &[&str], trace: &Path) -> Vec<BTreeMap<String, String>> {
    let ended = run(klock().args(["analyze", "report", "--format", "csv"]).args(args).arg(trace));
    csv_rows(&ended.stdout)
}

/// Returns the time of the waits of each purpose, however they ended.
fn times(trace: &Path) -> BTreeMap<String, i64> {
    let csv = run(klock().args(["analyze", "waits", "--idle", "--format", "csv"]).arg(trace)).stdout;
    let mut times = BTreeMap::new();
    for row in csv_rows(&csv) {
        *times.entry(row["purpose"].clone()).or_default() += row["wait_ns"].parse::<i64>().unwrap();
    }
    times
}

/// Whether there are waits of all these purposes.
fn has_all(times: &BTreeMap<String, i64>, purposes: &[&str]) -> bool {
    purposes.iter().all(|purpose| times.get(*purpose).is_some_and(|ns| *ns > 0))
}

/// Whether nothing is missing in a trace.
#[track_caller]
fn is_whole(trace: &Path) -> bool {
    Trace::open(trace).unwrap().info().loss.events() == 0
}

/// Checks that the trust block names the time of all waits that are not for locks.
#[track_caller]
fn assert_left_out(trace: &Path, times: &BTreeMap<String, i64>) {
    let json = run(klock().args(["analyze", "report", "--format", "json"]).arg(trace)).stdout;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let idle: i64 = times.iter().filter(|(purpose, _)| *purpose != "lock").map(|(_, ns)| ns).sum();
    assert_eq!(json["trust"]["idle_wait_ns"], idle, "{times:?}");
}

#[test]
#[ignore = "needs python3; run by cargo xtask test"]
fn a_lock_of_python_is_in_the_report_and_a_condition_is_not() {
    let program = "import threading, time, queue, sys\n\
        guard, jobs, gate = threading.Lock(), queue.Queue(), threading.Barrier(4)\n\
        def work():\n\
        \x20   gate.wait()\n\
        \x20   for _ in range(5):\n\
        \x20       with guard: time.sleep(0.01)\n\
        def serve():\n\
        \x20   while jobs.get() is not None: pass\n\
        threads = [threading.Thread(target=work) for _ in range(4)] + [threading.Thread(target=serve)]\n\
        for thread in threads: thread.start()\n\
        for job in range(5): time.sleep(0.05); jobs.put(job)\n\
        jobs.put(None)\n\
        for thread in threads: thread.join()\n\
        print(sys.version_info < (3, 13))\n";
    let version = run(Command::new("python3").args(["-c", "import sys; print(sys.version_info < (3, 13))"]));
    if !version.stdout.contains("True") {
        return skip("since 3.13, Python brings locks of its own");
    }
    let directory = tempfile::tempdir().unwrap();
    // One of four threads has it for 10 ms, so on an idle machine three wait nearly all of 200 ms.
    until("threads wait for the lock, and the server for jobs", || {
        let trace = recorded("pthread", &["/usr/bin/env", "python3", "-c", program], directory.path());
        let rows = report(&["--by", "lock"], &trace);
        let guard = rows.iter().find(|row| row["kind"] == "user_semaphore" && row["count"] == "20");
        let guard = guard.unwrap_or_else(|| panic!("no lock was acquired 20 times: {rows:?}"));
        let waited: i64 = guard["wait_total_ns"].parse().unwrap();
        let times = times(&trace);
        assert_left_out(&trace, &times);
        let idled = times.get("semaphore").copied().unwrap_or_default();
        (waited > 10_000_000 && idled > 100_000_000).then_some(())
    });
}

#[test]
#[ignore = "needs root and rustc; run by cargo xtask test"]
fn mutexes_of_rust_are_locks() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("known_rust");
    let mut compiler = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    compiler.args(["--edition", "2024", "-g", "-O", "-C", "force-frame-pointers=yes"]);
    let source = root().join("fixtures/programs/known_rust.rs");
    assert!(run(compiler.arg(source).arg("-o").arg(&program)).status.success());
    let arguments = [program.to_str().unwrap(), "4", "5000"];
    // The main thread waits in a scope for its threads.
    let (trace, times) = until("threads wait for HOT and for their ends, and nothing is lost", || {
        let trace = recorded("futex", &arguments, directory.path());
        if !is_whole(&trace) {
            return None;
        }
        let times = times(&trace);
        let locks = report(&["--by", "lock"], &trace);
        let is_hot = locks.first().is_some_and(|lock| lock["name"].contains("HOT"));
        (is_hot && has_all(&times, &["lock", "exit"])).then_some((trace, times))
    });
    let by_default = report(&["--by", "purpose"], &trace);
    assert!(by_default.iter().all(|row| row["purpose"] == "lock"), "{by_default:?}");
    assert_left_out(&trace, &times);
}

#[test]
#[ignore = "full: builds Go's standard library, and divides the time of all waits"]
fn threads_of_the_scheduler_of_go_are_idle() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("known_go");
    let source = root().join("fixtures/programs/known_go.go");
    let mut go = Command::new("go");
    go.env("HOME", directory.path()).env("GOCACHE", directory.path().join("cache")).args(["build", "-o"]);
    let Ok(built) = go.arg(&program).arg(source).output() else { return skip("no go here") };
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    most_of(3, 1, || {
        let trace = recorded("futex", &[program.to_str().unwrap(), "8", "50"], directory.path());
        let times = times(&trace);
        let all: i64 = times.values().sum();
        assert!(times["scheduler"] * 100 > all * 95, "{times:?}");
        assert_left_out(&trace, &times);
    });
}

/// Checks that a C program, built with these flags and recorded by this klock, waits for four purposes, and
/// that only its locks are in the report.
#[track_caller]
fn assert_purposes_of_c(flags: &[&str], klock: impl Fn() -> Command) {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let directory = tempfile::tempdir().unwrap();
    let program = xtask::fixture::build("known_callers", directory.path(), flags).unwrap();
    let trace = directory.path().join("t.parquet");
    let options = ["record", "--quiet", "-f", "--locks", "futex", "-o"];
    let times = until("threads wait for all four, and nothing is lost", || {
        record_whole(klock().args(options).arg(&trace).arg(&program));
        if !is_whole(&trace) {
            return None;
        }
        let times = times(&trace);
        has_all(&times, &["lock", "condvar", "exit", "semaphore"]).then_some(times)
    });
    let by_default = report(&["--by", "purpose"], &trace);
    assert!(by_default.iter().all(|row| row["purpose"] == "lock"), "{by_default:?}");
    assert_left_out(&trace, &times);
}

#[test]
#[ignore = "needs root and gcc; run by cargo xtask test"]
fn joins_condition_variables_and_semaphores_of_c_are_no_locks() {
    assert_purposes_of_c(&["-O2", "-fomit-frame-pointer"], klock);
}

#[test]
#[ignore = "needs root and gcc; run by cargo xtask test"]
fn joins_and_semaphores_have_names_without_the_debug_symbols_of_the_c_library() {
    let hide = "if [ -d /usr/lib/debug ]; then mount -t tmpfs none /usr/lib/debug; fi && exec \"$@\"";
    let hidden = || {
        let mut hidden = Command::new("unshare");
        hidden.args(["--mount", "sh", "-c", hide, "sh"]).arg(klock().get_program());
        hidden
    };
    assert_purposes_of_c(&["-O2", "-fomit-frame-pointer"], hidden);
}

#[test]
#[ignore = "needs root and gcc; run by cargo xtask test"]
fn joins_condition_variables_and_semaphores_of_a_static_program_are_no_locks() {
    assert_purposes_of_c(&["-static"], klock);
}
