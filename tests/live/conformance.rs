//! Records `fixtures/programs/known_locks.c`, which makes every call on every kind of lock of the C library
//! with every outcome. The program must behave as it does alone, and the trace must have exactly the rows
//! that it expects.
//!
//! needs: root, gcc

use std::{io::Write as _, process::Command, process::Stdio, time::Duration};

use trace_format::Trace;

use crate::support::{
    Running, cannot_record,
    conformance::{Expected, assert_conforms},
    fixture, klock, run, skip, until,
};

#[test]
#[ignore = "needs gcc; run by cargo xtask test"]
fn the_program_alone_prints_the_same_in_each_run() {
    let once = || run(&mut Command::new(fixture("known_locks")));
    let (first, second) = (once(), once());
    assert!(first.status.success(), "{}", first.stderr);
    assert_eq!(first.stdout, second.stdout);
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn an_attached_program_has_exactly_the_rows_that_it_expects() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let alone = run(&mut Command::new(fixture("known_locks")));
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("t.parquet");
    let expected = until("a recording without loss", || {
        let mut program = Command::new(fixture("known_locks"));
        let mut program = Running::start(program.args(["--wait", "--expected"]).stdin(Stdio::piped()));
        let pid = program.line_after("ready ");
        let mut recorder = Running::start(
            klock()
                .args(["record", "-f", "-p", &pid, "--locks", "futex,pthread", "--probes", "uprobe", "-o"])
                .arg(&path),
        );
        recorder.until_recording();
        program.child.stdin.take().expect("a pipe").write_all(b"go\n").expect("it reads");
        let program = program.end_within(Duration::from_secs(180));
        assert!(program.status.success(), "{}", program.stderr);
        let recorder = recorder.end_within(Duration::from_secs(180));
        assert!(recorder.status.success(), "{}", recorder.stderr);
        let said: Vec<&str> = program.stdout.lines().filter(|line| line.contains(": ")).collect();
        assert_eq!(said.join("\n"), alone.stdout.trim_end(), "it behaves differently when it is recorded");
        let loss = Trace::open(&path).expect("the recorder left a trace").info().loss.clone();
        (loss.events() == 0 && loss.late == 0).then(|| Expected::read(&program.stdout))
    });
    assert_conforms(&path, &expected);
}
