//! Spark as a cluster: the driver, and two executors that are processes of their own, one of which may be
//! killed.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command, time::Duration};

use super::{
    invented::{CLUSTER, Fleet, QUERIES, spark},
    support::{Running, klock, python, root, skip, soon},
};

/// Returns whether Spark can run.
fn has_java() -> bool {
    Command::new("java").arg("-version").output().is_ok()
}

#[test]
#[ignore = "full: compares with Spark and DuckDB"]
fn spark_as_a_cluster_gives_the_rows_of_duckdb() {
    let Some(python) = python() else { return skip("needs the python engines") };
    if !has_java() {
        return skip("needs java");
    }
    let fleet = Fleet::invented();
    assert_eq!(fleet.tables(&python, "spark", &QUERIES), fleet.tables(&python, "duckdb", &QUERIES));
}

/// Returns the parent of a process and the name of its program.
fn parent_and_name(pid: u32) -> (u32, String) {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
    let (name, rest) = stat.split_once('(').and_then(|(_, rest)| rest.rsplit_once(')')).expect("a name");
    (rest.split_whitespace().nth(1).and_then(|pid| pid.parse().ok()).expect("a parent"), name.to_owned())
}

/// Returns the executor below which a process runs: the nearest Java above it.
fn executor_of(mut pid: u32) -> u32 {
    loop {
        let (parent, name) = parent_and_name(pid);
        if name == "java" {
            return pid;
        }
        pid = parent;
    }
}

/// Writes a program that stands for klock: the first one tells its process and waits for its end, all others
/// are klock.
fn klock_that_stops(directory: &Path) -> std::path::PathBuf {
    let (path, stopped) = (directory.join("klock"), directory.join("stopped"));
    let program = klock().get_program().to_string_lossy().into_owned();
    let script = format!(
        "#!/bin/sh\nif mkdir {0} 2>/dev/null; then\n  echo $$ > {0}/new && mv {0}/new {0}/pid\n  exec sleep 600\nfi\nexec {program} \"$@\"\n",
        stopped.display()
    );
    fs::write(&path, script).expect("a program");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("permissions");
    path
}

#[test]
#[ignore = "full: runs a Spark cluster"]
fn rollups_made_by_a_cluster_are_klocks_own_although_a_worker_is_killed() {
    let Some(python) = python() else { return skip("needs the python engines") };
    if !has_java() {
        return skip("needs java");
    }
    let mut fleet = Fleet::invented();
    let own = fleet.tables(&python, "duckdb", &["report", "blame", "percentiles", "timeline", "coverage"]);
    let by_cluster = fleet.directory().join("by-cluster");
    let mut command = Command::new(&python);
    spark(&mut command, &python, CLUSTER).arg(root().join("sql/fleet/spark_rollup.py"));
    command.arg("--klock").arg(klock_that_stops(fleet.directory())).arg("-o").arg(&by_cluster);
    command.args(&fleet.traces).args(["--", "--period", "1ms"]);
    let mut rollup = Running::start(&mut command);
    let pid = fleet.directory().join("stopped/pid");
    soon(Duration::from_secs(300), "an executor starts klock", || {
        assert!(!rollup.ends_within(Duration::from_millis(20)), "{}", rollup.printed("stderr"));
        pid.exists()
    });
    let stopped: u32 = fs::read_to_string(pid).expect("a file").trim().parse().expect("a process");
    let executor = executor_of(stopped);
    assert_ne!(executor, rollup.pid(), "the driver is another process");
    for pid in [executor, stopped] {
        super::support::kill(pid.cast_signed());
    }
    let ended = rollup.end_within(Duration::from_secs(600));
    assert!(ended.status.success(), "{}", ended.stderr);
    assert!(ended.stdout.contains("8 of 8 traces rolled up"), "{}", ended.stdout);
    assert!(!Path::new(&format!("/proc/{executor}")).exists(), "the executor was killed");
    fleet.rollups = by_cluster;
    let queries: Vec<&str> = own.keys().map(String::as_str).collect();
    assert_eq!(fleet.tables(&python, "duckdb", &queries), own);
}
