//! Records one cgroup or one thread while others lock as well: the trace must have no events of the others.
//!
//! needs: root, gcc

use std::{
    collections::BTreeSet,
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use trace_format::Trace;

use crate::support::{Running, cannot_record, fixture, klock, skip};

/// Starts a program that waits for a line before it locks. Returns it and its process ID.
fn waiting_program() -> (Running, String) {
    let mut command = Command::new(fixture("known_counts"));
    let program = Running::start(command.args(["--wait", "3", "3000", "4"]).stdin(Stdio::piped()));
    let pid = program.line_after("ready ");
    (program, pid)
}

fn go(program: &mut Running) {
    program.child.stdin.take().unwrap().write_all(b"go\n").unwrap();
}

/// Returns the processes and threads that have events in the trace.
fn recorded(path: &Path) -> (BTreeSet<i32>, BTreeSet<i32>) {
    let trace = Trace::open(path).expect("the recorder left a trace");
    let tasks = trace.tasks().unwrap();
    let mut found = (BTreeSet::new(), BTreeSet::new());
    for batch in trace.events().unwrap() {
        for task in batch.unwrap().iter().filter_map(|event| event.task) {
            let task = &tasks[usize::try_from(task.0).unwrap()];
            found.0.insert(task.pid);
            found.1.insert(task.tid);
        }
    }
    found
}

/// A cgroup below another one. Dropping it removes both.
struct Cgroup(PathBuf);

impl Cgroup {
    fn new() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        let root = mounts.lines().find_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let (place, kind) = (fields.next()?, fields.next()?);
            (kind == "cgroup2").then(|| PathBuf::from(place))
        })?;
        let outer = root.join(format!("klock-test-{}", std::process::id()));
        fs::create_dir_all(outer.join("inner")).ok()?;
        Some(Self(outer))
    }

    fn admit(&self, pid: &str) {
        fs::write(self.0.join("inner/cgroup.procs"), pid).unwrap();
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // A group that still has a task stays; the next run uses another name.
        drop(fs::remove_dir(self.0.join("inner")));
        drop(fs::remove_dir(&self.0));
    }
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_cgroup_is_recorded_with_the_groups_below_it_and_no_other_process() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let Some(cgroup) = Cgroup::new() else {
        return skip("needs a mounted cgroup v2 hierarchy");
    };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    let ((mut inside, pid), (mut outside, _)) = (waiting_program(), waiting_program());
    cgroup.admit(&pid);
    let mut recorder =
        Running::start(klock().args(["record", "--cgroup"]).arg(&cgroup.0).arg("-o").arg(&path));
    recorder.until_recording();
    go(&mut inside);
    go(&mut outside);
    inside.end_within(Duration::from_secs(180));
    outside.end_within(Duration::from_secs(180));
    recorder.signal("INT");
    let recorder = recorder.end_within(Duration::from_secs(180));
    assert!(recorder.status.success(), "{}", recorder.stderr);
    assert_eq!(recorded(&path).0, BTreeSet::from([pid.parse().unwrap()]));
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_thread_is_recorded_without_the_other_threads_of_its_process() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    let (mut program, pid) = waiting_program();
    let mut recorder = Running::start(klock().args(["record", "-t", &pid, "-o"]).arg(&path));
    recorder.until_recording();
    go(&mut program);
    program.end_within(Duration::from_secs(180));
    recorder.signal("INT");
    let recorder = recorder.end_within(Duration::from_secs(180));
    assert!(recorder.status.success(), "{}", recorder.stderr);
    assert_eq!(
        recorded(&path).1,
        BTreeSet::from([pid.parse().unwrap()]),
        "the first thread has the PID as its id"
    );
}
