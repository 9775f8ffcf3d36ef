//! Hostile names: an export of a trace with such names has the same structure as with harmless names, and a
//! reader of the format accepts it.

use std::collections::HashMap;
use std::slice::from_ref;

use arrow_ipc::reader::{FileReader, StreamReader};
use proptest::{collection::vec, prelude::*, test_runner::Config};
use serde_json::Value;
use trace_format::Frame;

use super::{Format, Options, write};
use crate::testing::{Parts, TestTrace};
use intervals::{Filter, input::names::is_unsafe};

mod golden;
mod several;

/// Texts that break careless writers.
const HOSTILE: &[&str] = &[
    "a,b;c\td\"e'f",
    "two\nlines\r\n\r",
    "\u{0}\u{1b}[2J\u{1b}[31mred\u{7f}\u{9b}",
    "=cmd|' /C calc'!A0",
    "@SUM(1+1)",
    "+1-1",
    "</script><script>alert(1)</script>",
    "]]><!--&amp;{{marker.name}}{marker.data.lock}",
    "\u{202e}gnirts\u{2066}\u{200b}",
    "\u{fffd}\u{ffff}\u{10ffff}\u{1F512}",
    "../../etc/passwd",
    "%s%n{}\\",
    "--",
    "-",
    " 12 34 ",
    ";--;",
    "#!",
];

const TEXT: &str = "
    source preload kinds=pthread_mutex
    source kernel_contended kinds=rwsem holds=no
    source futex kinds=futex holds=no
    lock m pthread_mutex name=hot pid=1
    lock k rwsem name=mmap_lock
    lock f futex name=word pid=1
    task A pid=1 tid=1 comm=worker
    task B pid=1 tid=12 comm=writer
    task C pid=7 tid=13 comm=reader
    1_000_000  A acquire m a.c:1:get<a.c:9:main
    2_000_000  B wait m pthread_mutex_lock<b.c:2:put<b.c:9:main
    2_500_000  A wait k k:do_page_fault<a.c:1:get peer=B
    6_000_000  A acquire k k:do_page_fault<a.c:1:get wait=3500000 blocked=3000000 peer=C
    7_000_000  A release m
    8_000_000  B acquire m b.c:2:put<b.c:9:main wait=6000000 peer=A
    8_500_000  C wait f c.c:1:sleep
    8_600_000  C abandon f c.c:1:sleep wait=100000 errno=110
    8_700_000  A wake f a.c:4:wake count=0
    9_000_000  B release m
    9_500_000  C offcpu k:schedule<c.c:2:idle wait=400000 blocked=400000 peer=A
";

/// Returns a trace in which everything has a name by its number.
fn trace_of(name: impl Fn(usize) -> String) -> TestTrace {
    let mut parts = Parts::parse(TEXT);
    let mut number = 0;
    let mut next = || {
        number += 1;
        name(number)
    };
    for task in &mut parts.tasks {
        (task.comm, task.cgroup) = (Some(next()), Some(next()));
    }
    for lock in &mut parts.locks {
        lock.name = Some(next());
    }
    // One name for one function, wherever it is.
    let mut known: HashMap<Frame, Frame> = HashMap::new();
    for frame in parts.stacks.iter_mut().flat_map(|stack| &mut stack.frames) {
        let named = known.entry(frame.clone()).or_insert_with(|| Frame {
            symbol: Some(next()),
            file: frame.file.as_ref().map(|_| next()),
            module: Some(next()),
            build_id: Some(next()),
            offset: Some(0x40),
            ..frame.clone()
        });
        *frame = named.clone();
    }
    parts.info.host.name = next();
    parts.info.host.kernel = next();
    parts.info.target = next();
    parts.info.command_line = vec![next()];
    parts.write()
}

fn exported(test: &TestTrace, format: Format) -> Vec<u8> {
    let filter = Filter { include_idle: true, ..Filter::default() };
    let mut options = Options { format, filter, allow_loss: true, ..Options::default() };
    options.of = super::Of::Combined;
    options.unit = super::Unit::Ns;
    let mut out = Vec::new();
    let written =
        write(from_ref(&test.trace), &options, &mut out).unwrap_or_else(|error| panic!("{format}: {error}"));
    assert!(written.items > 0, "{format} is empty");
    out
}

/// Returns the structure of an export without its names: an element per row, sample, slice or line.
fn structure(format: Format, bytes: &[u8]) -> Vec<String> {
    let text = || {
        let text = std::str::from_utf8(bytes).expect("text");
        let is_bad = |c: char| is_unsafe(c) && !matches!(c, '\n' | '\r' | '\t');
        assert!(!text.contains(is_bad), "{format} has a character that could control a terminal: {text:?}");
        text
    };
    let mut found = match format {
        Format::Csv => {
            let mut reader = csv::Reader::from_reader(text().as_bytes());
            let head = reader.headers().unwrap().clone();
            let at = head.iter().position(|name| name == "time_ns").unwrap();
            let row = |record: csv::StringRecord| format!("{} cells at {}", record.len(), &record[at]);
            reader.records().map(|record| row(record.unwrap())).collect()
        }
        Format::Jsonl => {
            let row = |line: &str| {
                let Value::Object(row) = serde_json::from_str(line).unwrap() else { panic!("{line}") };
                format!("{} at {}", row.keys().cloned().collect::<Vec<_>>().join(","), row["time_ns"])
            };
            text().lines().map(row).collect()
        }
        Format::Folded | Format::Offwaketime | Format::Offwaketime2 => {
            let line = |line: &str| {
                let (stack, weight) = line.rsplit_once(' ').unwrap();
                let frames: Vec<&str> = stack.split(';').collect();
                let dashes = frames.iter().filter(|frame| **frame == "--").count();
                format!("{} frames, {dashes} dashes, {}", frames.len(), weight.parse::<u64>().unwrap())
            };
            text().lines().map(line).collect()
        }
        Format::Pprof => super::pprof::tests::structure(bytes),
        Format::Perfetto => super::perfetto::tests::structure(bytes),
        Format::Firefox => {
            let profile: Value = serde_json::from_str(text()).unwrap();
            let thread = |thread: &Value| {
                let length = |table: &str| thread[table]["length"].as_u64().unwrap();
                format!("{} samples {} markers", length("samples"), length("markers"))
            };
            profile["threads"].as_array().unwrap().iter().map(thread).collect()
        }
        Format::Arrow => {
            let batches = FileReader::try_new(std::io::Cursor::new(bytes), None).unwrap();
            let of =
                |batch: arrow_array::RecordBatch| format!("{}x{}", batch.num_rows(), batch.num_columns());
            batches.map(|batch| of(batch.unwrap())).collect()
        }
        Format::Arrows => {
            let batches = StreamReader::try_new(std::io::Cursor::new(bytes), None).unwrap();
            batches
                .map(|batch| batch.unwrap())
                .map(|batch| format!("{}x{}", batch.num_rows(), batch.num_columns()))
                .collect()
        }
        Format::Locktrace => {
            let row = |line: &str| {
                let fields: Vec<&str> = line.splitn(12, ',').collect();
                format!("{} {} {}", fields[1], fields[7], fields[10])
            };
            text().lines().skip(1).map(row).collect()
        }
        // The number of lines.
        Format::LockProf
        | Format::Mklockstat
        | Format::OffwaketimeText
        | Format::PerfLock
        | Format::Openmetrics
        | Format::Prometheus => text().lines().map(|_| String::new()).collect(),
    };
    found.sort();
    found
}

fn check(name: impl Fn(usize) -> String) -> Result<(), TestCaseError> {
    let harmless = trace_of(|at| format!("name{at}x"));
    let hostile = trace_of(name);
    for format in Format::ALL {
        let expected = structure(*format, &exported(&harmless, *format));
        let found = structure(*format, &exported(&hostile, *format));
        prop_assert_eq!(found, expected, "{}", format);
    }
    Ok(())
}

#[test]
fn names_that_are_code_markup_or_control_characters_break_no_format() {
    for hostile in HOSTILE {
        check(|at| format!("{hostile}{at}x")).unwrap();
        check(|at| format!("n{at}x{hostile}")).unwrap();
    }
}

#[test]
fn names_of_64_kib_break_no_format() {
    check(|at| format!("{at}{}", "n".repeat(64 * 1024))).unwrap();
    check(|at| format!("{at}{}", "\u{202e}".repeat(20 * 1024))).unwrap();
}

#[test]
fn no_cell_of_a_table_is_a_formula() {
    let test = trace_of(|at| format!("=cmd|' /C calc'!A{at}"));
    let text = String::from_utf8(exported(&test, Format::Csv)).unwrap();
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    for record in reader.records() {
        assert!(record.unwrap().iter().all(|cell| !cell.starts_with(['=', '+', '@'])), "{text}");
    }
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(crate::testing::cases(12)) })]

    #[test]
    fn no_name_breaks_a_format(names in vec(any::<String>(), 64)) {
        check(|at| format!("{}{at}x", names[at % names.len()]))?;
    }
}
