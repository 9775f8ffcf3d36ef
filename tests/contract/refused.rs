//! Files that are not traces, or damaged ones: each is refused with the file, the reason and the next step.

use std::{fs, path::PathBuf, sync::Arc};

use arrow_array::{ArrayRef, Int32Array, Int64Array, StringArray};
use trace_format::{RunInfo, TraceWriter, run_info::SidecarInfo};

use super::{
    assert_error, error_line, event_at_extremes, read_all, small_trace, some_info, write, write_events,
    write_parquet,
};

#[test]
fn an_unfinished_trace_is_not_read_as_a_complete_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    let mut writer = TraceWriter::create(&path, false).unwrap();
    writer.push(&event_at_extremes(0)).unwrap();
    writer.end_row_group().unwrap();
    drop(writer);
    assert_error(&path, &path, &["no Parquet footer", "copy"]);
}

#[test]
fn a_missing_file_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    assert_error(&path, &path, &["no such file"]);
}

#[test]
fn a_directory_is_not_a_trace() {
    let directory = tempfile::tempdir().unwrap();
    assert_error(directory.path(), directory.path(), &["is a directory"]);
}

#[test]
fn an_empty_file_is_not_parquet() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    fs::write(&path, "").unwrap();
    assert_error(&path, &path, &["not a Parquet file", "it is empty", "klock record"]);
}

#[test]
fn text_is_not_parquet() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    for text in ["P", "PAR", "ts_ns,event\n1,acquire\n"] {
        fs::write(&path, text).unwrap();
        assert_error(&path, &path, &["not a Parquet file", "klock record"]);
    }
}

#[test]
fn a_truncated_trace_is_an_error_that_names_the_file() {
    let (_directory, paths) = small_trace();
    for file in paths.all() {
        let whole = fs::read(file).unwrap();
        for length in (0..whole.len()).step_by(97).chain([whole.len() - 1, whole.len() - 4]) {
            fs::write(file, &whole[..length]).unwrap();
            let line = error_line(&read_all(&paths.events).expect_err("a truncated file is not a trace"));
            let named = format!("cannot read {}: ", file.display());
            assert!(line.starts_with(&named), "cut at {length}: {line}");
        }
        fs::write(file, whole).unwrap();
    }
    read_all(&paths.events).unwrap();
}

#[test]
fn a_damaged_footer_is_an_error_and_not_a_panic() {
    let (_directory, paths) = small_trace();
    for file in paths.all() {
        let whole = fs::read(file).unwrap();
        let footer = u32::from_le_bytes(whole[whole.len() - 8..whole.len() - 4].try_into().unwrap());
        let start = whole.len() - 8 - usize::try_from(footer).unwrap();
        for at in (start..whole.len()).step_by(7) {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x2a;
            fs::write(file, damaged).unwrap();
            // The reader does not need all bytes, so some damage is not detected. An error must name the
            // file.
            if let Err(error) = read_all(&paths.events) {
                assert!(error_line(&error).contains(".parquet: "), "byte {at}: {}", error_line(&error));
            }
        }
        fs::write(file, whole).unwrap();
    }
}

#[test]
fn a_foreign_parquet_file_is_not_a_trace() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    write_parquet(&path, vec![("a", Arc::new(Int64Array::from(vec![1])))], None);
    assert_error(&path, &path, &["not a klock trace", "`klock record`"]);
    write_parquet(&path, vec![("a", Arc::new(Int64Array::from(vec![1])))], Some("{\"format\":".to_owned()));
    assert_error(&path, &path, &["the `klock` entry of its footer is invalid"]);
}

#[test]
fn a_missing_side_table_is_named_with_the_file_to_copy() {
    let (_directory, paths) = small_trace();
    for file in &paths.all()[1..] {
        let whole = fs::read(file).unwrap();
        fs::remove_file(file).unwrap();
        assert_error(
            &paths.events,
            file,
            &["missing", "t.parquet", "copy the .stacks, .locks and .tasks files"],
        );
        fs::write(file, whole).unwrap();
    }
}

#[test]
fn a_side_table_of_another_recording_is_refused() {
    let (_directory, paths) = small_trace();
    let (_other_directory, _) = small_trace();
    let other = paths.events.with_file_name("other.parquet");
    let info = RunInfo { trace_id: "ffffffffffffffffffffffffffffffff".to_owned(), ..some_info() };
    let other = write(&other, &info, &[]);
    for (own, foreign) in paths.all().into_iter().zip(other.all()).skip(1) {
        let whole = fs::read(own).unwrap();
        fs::copy(foreign, own).unwrap();
        assert_error(&paths.events, own, &["ffffffffffffffffffffffffffffffff", "same recording"]);
        fs::write(own, whole).unwrap();
    }
    // The same recording, but another table.
    fs::copy(&paths.stacks, &paths.locks).unwrap();
    assert_error(&paths.events, &paths.locks, &["(stacks)"]);
}

#[test]
fn a_side_table_given_as_events_is_an_error_that_names_the_events() {
    let (_directory, paths) = small_trace();
    for (file, table) in paths.all().into_iter().zip(["", "stacks", "locks", "tasks"]).skip(1) {
        let events = paths.events.display().to_string();
        assert_error(file, file, &[&format!("the {table} table"), &format!("use {events}")]);
    }
}

#[test]
fn a_missing_column_and_a_column_of_another_type_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    for column in trace_format::schema::EVENTS {
        write_events(&path, |name, array| (name != column.name).then_some(array));
        assert_error(&path, &path, &[&format!("column {}", column.name), "found nothing"]);
    }
    write_events(&path, |name, array| {
        Some(if name == "wait_ns" { Arc::new(StringArray::from(vec!["7"])) as ArrayRef } else { array })
    });
    assert_error(&path, &path, &["column wait_ns", "expected int64", "found Utf8"]);
}

#[test]
fn an_unknown_word_and_a_forbidden_null_are_errors_with_their_row() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    let replaced = |column: &'static str, with: ArrayRef| {
        move |name: &str, array: ArrayRef| Some(if name == column { Arc::clone(&with) } else { array })
    };
    write_events(&path, replaced("event", Arc::new(StringArray::from(vec!["borrow"]))));
    assert_error(&path, &path, &["row group 0, row 0, column event", "invalid event 'borrow'", "acquire"]);
    write_events(&path, replaced("ts_ns", Arc::new(Int64Array::from(vec![None::<i64>]))));
    assert_error(&path, &path, &["row group 0, row 0, column ts_ns", "null"]);
}

#[test]
fn ids_that_are_not_dense_are_an_error_with_their_row() {
    let (_directory, paths) = small_trace();
    let info =
        SidecarInfo { table: "tasks".to_owned(), trace_id: some_info().trace_id, ..SidecarInfo::default() };
    let int = |values: Vec<i32>| Arc::new(Int32Array::from(values)) as ArrayRef;
    let long = || Arc::new(Int64Array::from(vec![None::<i64>; 2])) as ArrayRef;
    let text = || Arc::new(StringArray::from(vec![None::<&str>; 2])) as ArrayRef;
    let columns = vec![
        ("task_id", int(vec![0, 5])),
        ("pid", int(vec![1, 1])),
        ("tid", int(vec![1, 2])),
        ("comm", text()),
        ("start_ns", long()),
        ("exit_ns", long()),
        ("cgroup", text()),
        ("parent_task_id", Arc::new(Int32Array::from(vec![None::<i32>; 2]))),
        ("process_cpu_ns", long()),
        ("throttled_periods", long()),
        ("throttled_ns", long()),
    ];
    // Columns of nulls only are written as nullable, so the schema accepts them.
    write_parquet(&paths.tasks, columns, Some(serde_json::to_string(&info).unwrap()));
    assert_error(&paths.events, &paths.tasks, &["row 1, column task_id", "id 5 in row 1"]);
}

#[test]
fn a_failing_disk_is_distinguished_from_an_invalid_file() {
    let directory = tempfile::tempdir().unwrap();
    let missing = read_all(&directory.path().join("no.parquet")).unwrap_err();
    assert!(!missing.is_disk_failure());
    let full: PathBuf = "/dev/full".into();
    if full.exists() {
        // The header fits into the buffer: writing the row group or the footer fails.
        let mut writer = TraceWriter::create(&full, true).unwrap();
        writer.push(&event_at_extremes(0)).unwrap();
        let error = match writer.end_row_group() {
            Err(error) => error,
            Ok(()) => writer.finish(&some_info(), &[], &[], &[]).unwrap_err(),
        };
        assert!(error.is_disk_failure(), "{}", error_line(&error));
        assert!(error_line(&error).contains("no space left"), "{}", error_line(&error));
    }
}
