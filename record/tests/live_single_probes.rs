//! Uses a probe of its own at the entry and the return of each function, as on kernels before 6.10. The
//! program of all locks (`fixtures/programs/known_locks.c`) must give the same rows.
//!
//! needs: root, gcc

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc,
};

use record::{Options, PthreadMethod, Stop, Target, test_overrides};

#[path = "../../tests/support/conformance.rs"]
mod conformance;
mod support;

use conformance::{Expected, assert_conforms};

fn known_locks() -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/programs/known_locks.c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("known_locks");
    let flags = ["-Wall", "-Wextra", "-Werror", "-g", "-O1", "-fno-omit-frame-pointer", "-pthread"];
    let built = Command::new("gcc").args(flags).arg(source).arg("-o").arg(&program).status();
    assert!(built.expect("gcc is installed").success(), "gcc could not build known_locks");
    program
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn every_lock_has_the_expected_rows_with_a_probe_for_each_function() {
    if support::skipped() {
        return;
    }
    test_overrides::set_single_probes();
    let mut program = Command::new(known_locks());
    let mut program =
        program.args(["--wait", "--expected"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap());
    let mut said = String::new();
    lines.read_line(&mut said).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("t.parquet");
    let options = Options {
        output: output.clone(),
        target: Target::Processes(vec![program.id()]),
        pthread_method: PthreadMethod::Uprobe,
        ..Options::default()
    };
    let (began, begun) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        record::record(&options, &Stop::new(), &mut |_| {
            began.send(()).ok();
        })
    });
    begun.recv_timeout(support::LIMIT).expect("it began to record");
    program.stdin.take().unwrap().write_all(b"go\n").unwrap();
    lines.read_to_string(&mut said).unwrap();
    assert!(program.wait().unwrap().success(), "{said}");
    let summary = thread.join().unwrap().unwrap();
    // No names are compared, and on a busy machine klock may not read each file in time.
    let warnings = summary.warnings.iter().filter(|warning| !warning.contains("could not be examined"));
    assert_eq!(warnings.collect::<Vec<_>>(), [] as [&String; 0]);
    assert_conforms(&output, &Expected::read(&said));
}
