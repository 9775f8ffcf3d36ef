//! A recorder that was killed, seen from the command line: what readers say of its file, and what `klock recover` makes of it.

use std::fs;

use trace_format::RunInfo;

use crate::support::{Folder, begin_trace, one_wait, run_info, side_rows};

/// A recorder that was killed after a checkpoint.
fn killed() -> Folder {
    let folder = Folder::new();
    let mut writer = begin_trace(&folder.path("trace.parquet"), &one_wait());
    let info = RunInfo { complete: false, stop_reason: String::new(), ..run_info("ab") };
    writer.checkpoint(&info, &side_rows()).unwrap();
    // Nothing that a destructor would do is done.
    std::mem::forget(writer);
    folder
}

#[test]
fn the_file_of_a_killed_recorder_is_refused_with_the_way_to_finish_it() {
    killed().klock(&["analyze", "report"]).fails(2, &["trace.parquet", "no Parquet footer", "klock recover"]);
}

#[test]
fn a_recovered_trace_is_read_like_any_other_and_says_that_it_was_not_finished() {
    let folder = killed();
    let said = folder.klock(&["recover"]);
    assert!(said.succeeds().contains("trace.parquet: 5 events"), "{}", said.stdout);
    let report = folder.klock(&["analyze", "report"]);
    let report = report.succeeds();
    assert!(report.contains("cache_lock") && report.contains("the recording was not finished"), "{report}");
    let info = folder.klock(&["info"]);
    assert!(info.succeeds().contains("not finished, the end is missing"), "{}", info.stdout);
    assert!(!folder.path("trace.parquet.journal").exists());
    folder.klock(&["recover"]).fails(2, &["trace.parquet", "nothing to recover"]);
}

#[test]
fn without_its_journal_a_killed_recorders_file_can_not_be_finished_and_is_kept() {
    let folder = killed();
    fs::remove_file(folder.path("trace.parquet.journal")).unwrap();
    let before = fs::read(folder.path("trace.parquet")).unwrap();
    folder.klock(&["recover"]).fails(2, &["trace.parquet", "trace.parquet.journal", "missing"]);
    assert_eq!(fs::read(folder.path("trace.parquet")).unwrap(), before);
    folder.klock(&["recover", "elsewhere.parquet"]).fails(2, &["elsewhere.parquet", "no such file"]);
}
