//! Checks that invalid input gives one line with the file, the location and the next step, and the right exit
//! code.

use std::fs;

use crate::support::{Folder, one_wait, write_trace};

#[test]
fn a_missing_trace_is_named() {
    let folder = Folder::new();
    for args in [&["analyze", "report"][..], &["info"], &["plot", "--lock", "#0"]] {
        folder.klock(args).fails(2, &["trace.parquet", "no such file", "klock record"]);
    }
}

#[test]
fn a_directory_an_empty_file_and_text_are_not_traces() {
    let folder = Folder::new();
    fs::create_dir(folder.path("folder")).unwrap();
    folder.klock(&["info", "folder"]).fails(2, &["folder", "directory"]);
    fs::write(folder.path("empty"), "").unwrap();
    folder.klock(&["info", "empty"]).fails(2, &["empty", "not a Parquet file"]);
    fs::write(folder.path("notes.txt"), "buy milk, then measure").unwrap();
    folder
        .klock(&["analyze", "report", "notes.txt"])
        .fails(2, &["notes.txt", "not a Parquet file", "klock record"]);
}

#[test]
fn a_truncated_trace_is_never_read_as_a_complete_one() {
    let folder = Folder::new().with_trace(&one_wait());
    let whole = fs::read(folder.path("trace.parquet")).unwrap();
    fs::write(folder.path("trace.parquet"), &whole[..whole.len() / 2]).unwrap();
    folder.klock(&["analyze", "report"]).fails(2, &["trace.parquet", "no Parquet footer", "copy it again"]);
}

#[test]
fn a_side_table_is_distinguished_from_the_events() {
    let folder = Folder::new().with_trace(&one_wait());
    folder.klock(&["info", "trace.locks.parquet"]).fails(2, &["locks table", "use trace.parquet"]);
    fs::rename(folder.path("trace.locks.parquet"), folder.path("renamed.parquet")).unwrap();
    folder
        .klock(&["info", "renamed.parquet"])
        .fails(2, &["cannot read renamed.parquet: it is the locks table", "TRACE.parquet"]);
}

#[test]
fn a_missing_or_foreign_side_table_is_named() {
    let folder = Folder::new().with_trace(&one_wait());
    write_trace(&folder.path("other.parquet"), "ffffffffffffffffffffffffffffffff", &one_wait());
    fs::copy(folder.path("other.stacks.parquet"), folder.path("trace.stacks.parquet")).unwrap();
    folder.klock(&["analyze", "report"]).fails(2, &["trace.stacks.parquet", "belongs to trace ffff"]);
    fs::remove_file(folder.path("trace.stacks.parquet")).unwrap();
    folder.klock(&["analyze", "report"]).fails(2, &["trace.stacks.parquet", "missing", "copy"]);
}

#[test]
fn a_trace_of_a_newer_format_asks_for_a_newer_klock() {
    let folder = Folder::new().with_trace(&one_wait());
    let path = folder.path("trace.parquet");
    let mut newer = fs::read(&path).unwrap();
    // The entry of checksums gets another name: the checksums are of the unchanged bytes.
    for (known, changed) in [(&b"\"major\":1"[..], b'9'), (b"klock.digest", b'x')] {
        let at = newer.windows(known.len()).position(|window| window == known).unwrap();
        newer[at + known.len() - 1] = changed;
    }
    fs::write(&path, newer).unwrap();
    folder.klock(&["info"]).fails(2, &["trace.parquet", "format 9", "newer klock"]);
}

#[test]
fn an_empty_trace_has_nothing_to_report() {
    let folder = Folder::new().with_trace(&[]);
    folder.klock(&["analyze", "report"]).fails(1, &["trace.parquet", "no event"]);
}

#[test]
fn an_unknown_lock_is_answered_with_the_busiest_ones() {
    let folder = Folder::new().with_trace(&one_wait());
    folder.klock(&["plot", "--lock", "no_such_lock"]).fails(1, &["no_such_lock", "cache_lock"]);
    folder.klock(&["analyze", "report", "--lock", "0x1234"]).fails(1, &["0x1234", "cache_lock"]);
    assert!(!folder.path("lock.svg").exists());
}

#[test]
fn an_unknown_column_or_kind_is_answered_with_the_known_ones() {
    let folder = Folder::new().with_trace(&one_wait());
    for (option, value, known) in [("--sort", "speed", "wait_total"), ("--kind", "padlock", "pthread_mutex")]
    {
        let outcome = folder.klock(&["analyze", "report", option, value]);
        assert_eq!(outcome.code, Some(2));
        assert!(outcome.stderr.contains(value) && outcome.stderr.contains(known), "{}", outcome.stderr);
    }
}

#[test]
fn an_existing_file_is_kept_under_another_name_unless_it_may_be_replaced() {
    for (command, file, old) in [
        (&["plot", "--lock", "cache_lock"][..], "lock.svg", "lock.old.svg"),
        (&["html"], "report.html", "report.old.html"),
        (&["report", "-o", "table"], "table", "table.old"),
        (&["export", "--format", "csv", "-o", "a.csv"], "a.csv", "a.old.csv"),
    ] {
        let folder = Folder::new().with_trace(&one_wait());
        fs::write(folder.path(file), "precious").unwrap();
        let first = folder.klock(command);
        first.succeeds();
        assert!(first.stderr.contains(&format!("kept the earlier file as {old}\n")), "{}", first.stderr);
        assert_eq!(fs::read_to_string(folder.path(old)).unwrap(), "precious");
        let written = fs::read(folder.path(file)).unwrap();
        folder.klock(&[command, &["-f"]].concat()).succeeds();
        assert_eq!(fs::read_to_string(folder.path(old)).unwrap(), "precious");
        folder.klock(command).succeeds();
        assert!(fs::read(folder.path(old)).unwrap() == written, "{old} is the file before the last one");
    }
}

#[test]
fn nothing_but_a_recording_takes_the_place_of_a_trace() {
    let folder = Folder::new().with_trace(&one_wait());
    let before = fs::read(folder.path("trace.parquet")).unwrap();
    for command in [["holds", "-o"], ["order", "-o"], ["html", "-o"]] {
        folder
            .klock(&[&command[..], &["trace.parquet"]].concat())
            .fails(2, &["trace.parquet", "exists", "-f"]);
    }
    assert!(fs::read(folder.path("trace.parquet")).unwrap() == before);
}

#[test]
fn an_output_in_a_missing_directory_is_named() {
    let folder = Folder::new().with_trace(&one_wait());
    folder.klock(&["plot", "--lock", "cache_lock", "-o", "none/lock.svg"]).fails(2, &["none/lock.svg"]);
}

#[test]
fn a_damaged_footer_is_one_line_and_never_a_panic() {
    let folder = Folder::new().with_trace(&one_wait());
    let path = folder.path("trace.parquet");
    let whole = fs::read(&path).unwrap();
    let footer = whole.len() - 2_000..whole.len() - 8;
    for at in footer.step_by(31) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x55;
        fs::write(&path, damaged).unwrap();
        let outcome = folder.klock(&["analyze", "report"]);
        assert!(matches!(outcome.code, Some(0..=2)), "byte {at}: {}", outcome.stderr);
        // Without its name, the mark of a finished recording is missing: then the trust line has a note of
        // that.
        let unfinished = "  the recording was not finished";
        let lines = outcome.stderr.lines().filter(|line| !line.starts_with(unfinished)).count();
        assert!(lines <= 1, "byte {at}: {}", outcome.stderr);
    }
}
