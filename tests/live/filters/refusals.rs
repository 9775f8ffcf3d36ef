//! Recordings that are impossible here are refused in one line, and no file is written.

use crate::support::{cannot_record, klock, run, skip};

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
    assert_eq!(ended.status.code(), Some(3), "{}", ended.stderr);
    assert_eq!((ended.stdout.as_str(), ended.stderr.lines().count()), ("", 1), "{}", ended.stderr);
    assert!(ended.stderr.contains("--contended-only"), "{}", ended.stderr);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is written");
}
