//! Every export of the real traces in `fixtures/traces`, compared byte for byte with the files in
//! `fixtures/exports`.
//!
//! `KLOCK_BLESS=1 cargo test --test exports` writes those files anew; `git diff` then shows what a change did
//! to them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{fs, path::PathBuf};

mod support;

use support::{klock, root, run};

/// A file in `fixtures/exports`: the trace that it is of, and the options that make it.
type Golden = (&'static str, &'static str, &'static [&'static str]);

/// All exports except histograms, which go to a separate file.
const GOLDEN: &[Golden] = &[
    ("shop.lock-prof", "shop", &["--format", "lock-prof"]),
    ("futex.locktrace", "futex", &["--format", "locktrace"]),
    ("shop.mklockstat", "shop", &["--format", "mklockstat"]),
    ("shop.perf-lock", "shop", &["--format", "perf-lock"]),
    ("shop.perf-lock-task", "shop", &["--format", "perf-lock", "--by", "task", "-x", ","]),
    (
        "shop.perf-lock-lock",
        "shop",
        &["--format", "perf-lock", "--by", "lock", "--kind", "pthread_mutex,rwsem"],
    ),
    ("shop.perf-lock-owner", "shop", &["--format", "perf-lock", "--by", "owner", "--kind", "rwsem"]),
    ("off_cpu.offwaketime", "off_cpu", &["--format", "offwaketime"]),
    (
        "off_cpu.offwaketime-user",
        "off_cpu",
        &["--format", "offwaketime", "--stacks", "user", "--state", "interruptible"],
    ),
    ("off_cpu.offwaketime2", "off_cpu", &["--format", "offwaketime2", "--delimited", "--min-wait", "1ms"]),
    ("off_cpu.offwaketime-text", "off_cpu", &["--format", "offwaketime-text", "--delimited"]),
    ("shop.offwaketime2", "shop", &["--format", "offwaketime2", "--threads", "user"]),
    ("futex.csv", "futex", &["--format", "csv", "--idle"]),
    ("futex.jsonl", "futex", &["--format", "jsonl", "--idle"]),
    ("shop.folded", "shop", &["--format", "folded"]),
    ("shop.folded-hold", "shop", &["--format", "folded", "--of", "hold"]),
    ("shop.folded-wait_caused", "shop", &["--format", "folded", "--of", "wait_caused", "--unit", "ns"]),
    ("shop.folded-combined", "shop", &["--format", "folded", "--of", "combined"]),
    ("futex.firefox", "futex", &["--format", "firefox", "--idle"]),
    ("shop.firefox-longest", "shop", &["--format", "firefox", "-n", "5"]),
];

/// Binary exports, decoded: compared by the tests of the library, which know their messages.
const DECODED: &[&str] = &["shop.pprof.txt", "shop.perfetto.txt"];

fn trace(name: &str) -> PathBuf {
    root().join("fixtures/traces").join(format!("{name}.parquet"))
}

fn is_blessing() -> bool {
    std::env::var("KLOCK_BLESS").is_ok_and(|value| value == "1")
}

/// Compares with the file, or writes it. Says what differs.
fn compare(name: &str, found: &[u8]) -> Option<String> {
    let path = root().join("fixtures/exports").join(name);
    if is_blessing() {
        fs::write(&path, found).unwrap();
        return None;
    }
    let Ok(expected) = fs::read(&path) else {
        return Some(format!("{name} is missing; KLOCK_BLESS=1 writes it"));
    };
    if expected == found {
        return None;
    }
    let (expected, found) = (String::from_utf8_lossy(&expected), String::from_utf8_lossy(found));
    let line = expected.lines().zip(found.lines()).position(|(a, b)| a != b);
    let at = line.unwrap_or_else(|| expected.lines().count().min(found.lines().count()));
    let of = |text: &str| text.lines().nth(at).unwrap_or("(no such line)").to_owned();
    Some(format!("{name}, line {}:\n  expected {}\n  found    {}", at + 1, of(&expected), of(&found)))
}

#[test]
fn exports_of_real_traces_equal_the_fixtures_byte_for_byte() {
    let mut wrong = Vec::new();
    for (name, of, options) in GOLDEN {
        let directory = tempfile::tempdir().unwrap();
        let out = directory.path().join("out");
        let ended = run(klock().arg("export").args(*options).arg(trace(of)).arg("-o").arg(&out));
        assert!(ended.status.success(), "{name}: {}", ended.stderr);
        wrong.extend(compare(name, &fs::read(&out).unwrap()));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn histograms_of_locktrace_equal_the_fixtures_byte_for_byte() {
    let directory = tempfile::tempdir().unwrap();
    let hist = directory.path().join("hist");
    let ended =
        run(klock().args(["export", "--format", "locktrace", "--hist"]).arg(&hist).arg(trace("futex")));
    assert!(ended.status.success(), "{}", ended.stderr);
    assert_eq!(compare("futex.locktrace-hist", &fs::read(&hist).unwrap()), None);
}

#[test]
fn locktrace_of_the_real_trace_has_the_counts_that_its_program_printed() {
    let said = fs::read_to_string(root().join("fixtures/traces/futex.txt")).unwrap();
    let table = fs::read_to_string(root().join("fixtures/exports/futex.locktrace")).unwrap();
    let rows: Vec<Vec<&str>> = table.lines().skip(1).map(|line| line.splitn(12, ',').collect()).collect();
    for line in said.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let ["FUTEX", name, address, tid, waits, wakes, _, errors] = words[..] else {
            panic!("what is {line}?")
        };
        let own = |column: usize| {
            let of = rows.iter().filter(|row| row[2] == address && row[1] == tid);
            of.map(|row| row[column].parse::<i64>().unwrap()).sum::<i64>()
        };
        // wait_count, wake_count, errors
        let found = [7, 9, 10].map(own);
        assert_eq!(found.map(|n| n.to_string()), [waits, wakes, errors], "{name}");
    }
}

#[test]
fn an_option_of_offwaketime_is_refused_with_another_format_and_the_error_names_its_format() {
    for option in [
        &["--delimited"][..],
        &["--stacks", "user"],
        &["--threads", "kernel"],
        &["--max-wait", "1ms"],
        &["--state", "runnable"],
    ] {
        let of = |format: &str| {
            run(klock().args(["export", "--format", format]).args(option).arg(trace("off_cpu")))
        };
        let refused = of("csv");
        assert_eq!((refused.status.code(), refused.stdout.as_str()), (Some(2), ""), "{option:?}");
        assert!(
            refused
                .stderr
                .contains("of --format offwaketime and offwaketime2 and offwaketime-text, not of csv"),
            "{refused:?}"
        );
        for format in ["offwaketime", "offwaketime2", "offwaketime-text"] {
            let ended = of(format);
            let code = ended.status.code();
            assert!(code == Some(0) || code == Some(1) && ended.stdout.is_empty(), "{option:?}: {ended:?}");
        }
    }
}

#[test]
fn off_cpu_time_has_no_table_of_locks_and_waits_have_one_of_offwaketime_with_a_note() {
    let report = run(klock().args(["analyze", "report"]).arg(trace("off_cpu")));
    assert_eq!(report.status.code(), Some(1), "{}", report.stdout);
    assert!(report.stdout.contains("no lock was acquired"), "{}", report.stdout);
    let own = run(klock().args(["export", "--format", "offwaketime"]).arg(trace("off_cpu")));
    assert_eq!(own.stderr, "");
    let of_locks = run(klock().args(["export", "--format", "offwaketime"]).arg(trace("shop")));
    assert!(of_locks.stderr.contains("record with --off-cpu"), "{}", of_locks.stderr);
}

#[test]
fn every_file_among_the_exports_is_compared() {
    let known: Vec<&str> = GOLDEN.iter().map(|(name, ..)| *name).collect();
    let files = fs::read_dir(root().join("fixtures/exports")).unwrap();
    for file in files {
        let name = file.unwrap().file_name().into_string().unwrap();
        let is_known = known.contains(&name.as_str())
            || DECODED.contains(&name.as_str())
            || name == "README.md"
            || name == "futex.locktrace-hist";
        assert!(is_known, "fixtures/exports/{name} is of no export that is compared");
    }
}
