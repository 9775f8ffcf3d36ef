//! The recordings of docs/older-tools.csv, and what is impossible here: that is refused in one line, and no
//! file is written.

use std::{fs, path::Path};

use trace_format::Trace;

use crate::support::{Ended, Running, cannot_record, csv_rows, klock, run, skip};

/// Checks that a recording was refused because functions of the kernel cannot be probed, and left nothing.
fn assert_refused(ended: &Ended, directory: &Path) {
    assert_eq!(ended.status.code(), Some(3), "{}", ended.stderr);
    assert_eq!((ended.stdout.as_str(), ended.stderr.lines().count()), ("", 1), "{}", ended.stderr);
    assert!(ended.stderr.contains("--contended-only"), "{}", ended.stderr);
    assert_eq!(fs::read_dir(directory).unwrap().count(), 0, "nothing is written");
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn holds_of_kernel_locks_are_refused_where_functions_cannot_be_probed() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    let ended = run(klock().args(["record", "-a", "-d", "100ms", "--locks", "kernel", "-o"]).arg(&path));
    if ended.status.success() {
        return skip("needs a kernel without fentry and kprobes");
    }
    assert_refused(&ended, directory.path());
}

#[test]
#[ignore = "full: some twenty recordings take a minute"]
fn every_recording_of_the_table_of_older_tools_makes_a_trace() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let mut sleep = std::process::Command::new("sleep");
    let program = Running::start(sleep.arg("1000"));
    let pid = program.child.id().to_string();
    let table = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/older-tools.csv");
    let mut recorded = 0;
    for row in csv_rows(&fs::read_to_string(table).unwrap()) {
        let Some(options) = row["command"].strip_prefix("klock record") else { continue };
        let mut words: Vec<&str> = options.split_whitespace().collect();
        if let Some(at) = words.iter().position(|word| matches!(*word, "-p" | "-t")) {
            words[at + 1] = &pid;
        } else if words.contains(&"pthread") {
            words.extend(["--", "sleep", "0.1"]);
        } else if !words.contains(&"-a") {
            words.push("-a");
        }
        match words.iter().position(|word| *word == "-d") {
            Some(at) => words[at + 1] = "200ms",
            None => words.splice(..0, ["-d", "200ms"]).for_each(drop),
        }
        let directory = tempfile::tempdir().unwrap();
        if options.contains("fifo:requests") {
            let pipes = ["requests", "answers"].map(|name| directory.path().join(name));
            assert!(run(std::process::Command::new("mkfifo").args(pipes)).status.success());
        }
        let ended = run(klock().arg("record").args(&words).current_dir(directory.path()));
        match ended.status.code() {
            Some(3) if row["command"].contains("--locks kernel") => assert_refused(&ended, directory.path()),
            _ => {
                assert_eq!(ended.status.code(), Some(0), "{words:?}: {}", ended.stderr);
                Trace::open(&directory.path().join("trace.parquet")).unwrap();
            }
        }
        recorded += 1;
    }
    assert!(recorded > 15, "{recorded}");
}
