//! locktrace: the worked example, the rules of its source, and the rows of its documentation.

use std::slice::from_ref;

use super::{HEADER, Row, histogram};
use crate::{
    export,
    export::{Format, Options, Written},
    testing::{Parts, text_of},
};
use output::AnalyzeError;

/// One futex, one thread: five calls, of which one is preempted last.
const T2: &str = "
    lock f futex name=- address=0x609388 pid=10
    task T pid=10 tid=11 comm=app
    1_000_000 T wait f LOCK<main
    1_140_000 T acquire f LOCK<main wait=140_000 blocked=130_000 runq=4_400
    2_000_000 T wait f LOCK<main
    2_000_400 T abandon f LOCK<main wait=400 blocked=0 runq=0 errno=11
    4_000_000 T wait f LOCK<main
    4_002_000 T acquire f LOCK<main wait=2_000 blocked=900 runq=0
    5_000_000 T wait f LOCK<main
    5_900_000 T abandon f LOCK<main wait=900_000 blocked=0 runq=890_000 errno=4
    6_005_999 T wake f LOCK<main wait=5_999 count=1
";

fn parts(text: &str) -> Parts {
    let mut parts = Parts::parse(text);
    for frame in parts.stacks.iter_mut().flat_map(|stack| &mut stack.frames) {
        if frame.symbol.as_deref() == Some("LOCK") {
            frame.symbol = Some("lock(int, int)".to_owned());
        }
    }
    parts
}

fn export_with(parts: &Parts, options: Options) -> (String, Result<Written, AnalyzeError>) {
    let options = Options { format: Format::Locktrace, ..options };
    let mut out = Vec::new();
    let written = export::write(from_ref(&parts.write().trace), &options, &mut out);
    (String::from_utf8(out).unwrap(), written)
}

fn export_of(text: &str) -> String {
    let (out, written) = export_with(&parts(text), Options::default());
    written.unwrap();
    out
}

/// Reads a table of klock or of the original. The stack is everything after the eleventh comma, because
/// functions contain commas.
fn rows(table: &str) -> Vec<Row> {
    let row = |line: &str| {
        let fields: Vec<&str> = line.splitn(12, ',').collect();
        let number = |at: usize| fields[at].parse::<i64>().unwrap();
        Row {
            pid: fields[0].parse().unwrap(),
            tid: fields[1].parse().unwrap(),
            addr: u64::from_str_radix(fields[2].strip_prefix("0x").unwrap(), 16).unwrap(),
            blocked_us: number(3),
            sys_us: number(4),
            max_blocked_us: number(5),
            max_sys_us: number(6),
            wait_count: number(7),
            blocked_count: number(8),
            wake_count: number(9),
            errors: number(10),
            stack: fields[11].to_owned(),
        }
    };
    assert_eq!(table.lines().next(), Some(HEADER));
    table.lines().skip(1).map(row).collect()
}

#[test]
fn the_worked_example_comes_out_byte_for_byte() {
    assert_eq!(
        export_of(T2),
        format!("{HEADER}\n10,11,0x609388,134,13,134,6,3,1,1,2,app;main;lock(int, int)\n")
    );
}

#[test]
fn a_sleep_below_a_microsecond_is_not_a_blocked_call_and_a_preempted_call_counts_for_its_error_only() {
    let alone = |call: &str| {
        let table = export_of(&format!("lock f futex address=0x60 pid=100\n{call}"));
        let row = rows(&table).remove(0);
        (row.wait_count, row.blocked_count, row.blocked_us, row.sys_us, row.errors)
    };
    assert_eq!(alone("9_000 A acquire f wait=2_000 blocked=999 runq=0"), (1, 0, 0, 2, 0));
    assert_eq!(alone("9_000 A acquire f wait=2_000 blocked=999 runq=1"), (1, 1, 1, 1, 0));
    assert_eq!(alone("9_000 A acquire f wait=2_000 blocked=0 runq=1500"), (0, 0, 0, 0, 0));
    assert_eq!(alone("9_000 A abandon f wait=2_000 blocked=0 runq=1500 errno=4"), (0, 0, 0, 0, 1));
    assert_eq!(alone("9_000 A wake f errno=14"), (0, 0, 0, 0, 1));
}

#[test]
fn rows_are_sorted_by_process_and_blocked_time_descending() {
    let table = export_of(
        "lock f futex address=0x60 pid=10\nlock g futex address=0x70 pid=20
         task A pid=10 tid=11\ntask B pid=20 tid=21\ntask C pid=20 tid=22
         9_000 A acquire f wait=9_000 blocked=9000 runq=0
         9_000 B acquire g wait=1_000 blocked=1000 runq=0
         9_000 C acquire g wait=2_000 blocked=2000 runq=0",
    );
    let order: Vec<i32> = rows(&table).iter().map(|row| row.tid).collect();
    assert_eq!(order, [22, 21, 11]);
}

#[test]
fn each_row_has_the_name_of_its_thread() {
    let table = export_of(
        "lock f futex address=0x60 pid=10\ntask A pid=10 tid=10 comm=main\ntask B pid=10 tid=11 comm=first
         5_000 A wait f\n9_000 B acquire f wait=1_000 blocked=0 runq=0\n9_500 A acquire f wait=4_500 blocked=0 runq=0",
    );
    let names = rows(&table)
        .into_iter()
        .map(|row| (row.tid, row.stack))
        .collect::<std::collections::BTreeMap<_, _>>();
    assert_eq!(names.into_values().collect::<Vec<_>>(), ["main", "first"], "{table}");
}

#[test]
fn kernel_frames_do_not_separate_rows_and_a_missing_stack_is_the_name_only() {
    let table = export_of(
        "lock f futex address=0x60 pid=100\ntask A comm=a
         1_000 A acquire f k:one<work<main wait=1_000 blocked=0 runq=0
         2_000 A acquire f k:two<work<main wait=1_000 blocked=0 runq=0
         3_000 A acquire f wait=1_000 blocked=0 runq=0",
    );
    let stacks: Vec<(String, i64)> =
        rows(&table).into_iter().map(|row| (row.stack, row.wait_count)).collect();
    assert_eq!(stacks, [("a".to_owned(), 1), ("a;main;work".to_owned(), 2)]);
}

#[test]
fn a_lost_stack_makes_a_warning_instead_of_a_row() {
    let mut parts = parts(T2);
    parts.stacks.clear();
    let (out, written) = export_with(&parts, Options::default());
    assert_eq!(out, format!("{HEADER}\n"));
    let notes = written.unwrap().notes.join("\n");
    assert!(notes.contains("Total records: 1"), "{notes}");
    assert!(notes.contains("WARNING: 1 stack traces could not be displayed."), "{notes}");
}

#[test]
fn a_trace_with_calls_on_locks_of_the_c_library_alone_is_refused() {
    let text = "9_000 A acquire m work<main wait=2_500\n9_900 A acquire m wait=0
        12_000 A abandon m work<main wait=1_000 errno=110\n13_000 A try_fail m work<main errno=16";
    let (_, refused) = export_with(&parts(text), Options::default());
    let words = refused.unwrap_err().to_string();
    assert!(words.contains("--locks futex") && words.contains("2 waits"), "{words}");
}

#[test]
fn notes_report_unknown_times() {
    let (out, written) = export_with(
        &parts(
            "lock f futex address=0x60 pid=100\n9_000 A acquire f wait=2_000\n9_100 A wake f count=0\n9_200 A acquire m wait=5",
        ),
        Options::default(),
    );
    assert_eq!(
        rows(&out)[0],
        Row {
            pid: 100,
            tid: 101,
            addr: 0x60,
            wait_count: 1,
            wake_count: 1,
            stack: "A".to_owned(),
            ..Row::default()
        }
    );
    let notes = written.unwrap().notes;
    assert!(notes[0].starts_with("1 wait for locks of the C library left out"), "{notes:?}");
    assert!(notes[1].starts_with("1 waiting call with unknown times counted"), "{notes:?}");
    assert!(notes[2].starts_with("1 waking call with unknown times counted"), "{notes:?}");
}

#[test]
fn rows_of_the_documentation_are_read_and_written_back_byte_for_byte() {
    let sample = include_str!("sample.csv");
    let read = rows(sample);
    assert_eq!(read.len(), 3);
    assert_eq!((read[0].wait_count, read[0].errors, read[0].addr), (17_990, 17_191, 0x0060_9388));
    assert!(read[0].stack.contains("finish_work(int, int);"), "a function's commas are its own");
    let mut written = Vec::new();
    super::write_rows(&read, &mut written).unwrap();
    assert_eq!(String::from_utf8(written).unwrap(), sample);
}

#[test]
fn no_name_ends_a_row_or_forges_a_frame() {
    let mut parts = parts(T2);
    parts.tasks[0].comm = Some("=cmd\n\u{1b};x".to_owned());
    parts.stacks[0].frames[0].symbol = Some(format!("a;b\r\n{}", "n".repeat(65536)));
    let (out, written) = export_with(&parts, Options::default());
    written.unwrap();
    let row = rows(&out).remove(0);
    assert!(row.stack.starts_with("'=cmd\\u{a}\\u{1b}:x;main;a:b\\u{d}\\u{a}nnn"), "{}", &row.stack[..60]);
    assert_eq!((out.lines().count(), row.stack.matches(';').count()), (2, 2));
}

/// Slots of the times {0, 1, 2, 3, 4, 134} µs.
const SLOTS: [u64; 8] = [2, 2, 1, 0, 0, 0, 0, 1];

#[test]
fn histograms_have_true_bounds() {
    let text = text_of(|out| histogram(&SLOTS, out).map_err(AnalyzeError::Write));
    assert_eq!(
        text,
        "     usecs               : count     distribution
         0 -> 1          : 2        |****************************************|
         2 -> 3          : 2        |****************************************|
         4 -> 7          : 1        |********************                    |
         8 -> 15         : 0        |                                        |
        16 -> 31         : 0        |                                        |
        32 -> 63         : 0        |                                        |
        64 -> 127        : 0        |                                        |
       128 -> 255        : 1        |********************                    |
"
    );
}

#[test]
fn times_above_an_hour_widen_the_histogram() {
    let mut slots = [0; 34];
    slots[33] = 1;
    let text = text_of(|out| histogram(&slots, out).map_err(AnalyzeError::Write));
    assert_eq!(
        text,
        "               usecs                         : count     distribution
          8589934592 -> 17179869183          : 1        |********************|
"
    );
}

#[test]
fn empty_lines_separate_sections_and_wakes_are_counted() {
    let parts = parts(
        "lock f futex address=0x60 pid=100\nlock g futex address=0x70 pid=100
         9_000 A acquire f wait=5_000 blocked=4000 runq=0\n9_100 A wake g count=1",
    );
    let trace = parts.write();
    let hist = |options: &Options| {
        text_of(|out| export::write_locktrace_histograms(from_ref(&trace.trace), options, out))
    };
    let bar = "*".repeat(40);
    let head = "     usecs               : count     distribution";
    assert_eq!(
        hist(&Options::default()),
        format!(
            "PID 100, LOCK 0x60{head}\n         4 -> 7          : 1        |{bar}|\n\nPID 100, LOCK 0x70{head}\n         0 -> 1          : 1        |{bar}|\n"
        )
    );
}
