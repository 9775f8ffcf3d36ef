//! Checks the file of a killed recorder: the errors of readers, and `klock recover`.

use std::fs;

use trace_format::{RunInfo, SharedStack, SideRows, Stack};

use crate::support::{Folder, Rows, begin_trace, one_wait, run_info, side_rows};

/// Returns a folder with the files of a recorder that was killed after a checkpoint.
fn killed() -> Folder {
    let folder = Folder::new();
    let mut writer = begin_trace(&folder.path("trace.parquet"), &one_wait());
    let info = RunInfo { complete: false, stop_reason: String::new(), ..run_info("ab") };
    let Rows { stacks, locks, tasks } = side_rows();
    let shared = |Stack { id, frames }: Stack| SharedStack { id, frames: vec![frames.into()] };
    let stacks = stacks.into_iter().map(shared).collect();
    writer.checkpoint(&info, &SideRows { stacks, locks, tasks, ..SideRows::default() }).unwrap();
    // Without its end: the footer and the side tables are missing.
    drop(writer);
    folder
}

#[test]
fn the_file_of_a_killed_recorder_is_refused_with_the_command_to_recover_it() {
    killed().klock(&["analyze", "report"]).fails(2, &["trace.parquet", "no Parquet footer", "klock recover"]);
}

#[test]
fn a_recovered_trace_is_read_like_any_other_and_is_marked_as_unfinished() {
    let folder = killed();
    let recovered = folder.klock(&["recover"]);
    assert!(recovered.succeeds().contains("trace.parquet: 5 events"), "{}", recovered.stdout);
    let report = folder.klock(&["analyze", "report"]);
    assert!(report.succeeds().contains("cache_lock"), "{}", report.stdout);
    assert!(report.stderr.contains("the recording was not finished"), "{}", report.stderr);
    let info = folder.klock(&["info"]);
    assert!(info.succeeds().contains("not finished, the end is missing"), "{}", info.stdout);
    assert!(!folder.path("trace.parquet.journal").exists());
    folder.klock(&["recover"]).fails(2, &["cannot recover trace.parquet", "the trace is complete"]);
}

#[test]
fn the_file_of_a_killed_recorder_is_kept_if_its_journal_is_missing() {
    let folder = killed();
    fs::remove_file(folder.path("trace.parquet.journal")).unwrap();
    let before = fs::read(folder.path("trace.parquet")).unwrap();
    folder.klock(&["recover"]).fails(2, &["trace.parquet", "trace.parquet.journal", "missing"]);
    assert_eq!(fs::read(folder.path("trace.parquet")).unwrap(), before);
    folder.klock(&["recover", "elsewhere.parquet"]).fails(2, &["elsewhere.parquet", "no such file"]);
}
