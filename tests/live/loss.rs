//! Checks that loss adds up: a program that makes a known number of calls (`fixtures/programs/known_calls.c`)
//! is recorded through small rings and while the recorder is stopped; in full size through rings of three
//! sizes, stopped for 0, 1 and 5 seconds. The rows of the trace and its reported loss must add up to the
//! number of calls, and the gaps must be where calls are missing.
//!
//! needs: root, gcc

#![allow(clippy::print_stdout, reason = "what was lost in each case is worth reading")]

use std::{
    collections::BTreeMap,
    io::Write as _,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use trace_format::{Event, EventKind, LockRow, Trace, run_info::Loss};

use crate::support::{Running, cannot_record, events, fixture, klock, skip};

const RINGS: [&str; 3] = ["4k", "64k", "8M"];
const STOPS: [Duration; 3] = [Duration::ZERO, Duration::from_secs(1), Duration::from_secs(5)];
/// The cases of the small size.
const QUICK: [(&str, Duration); 2] = [("4k", Duration::ZERO), ("64k", Duration::from_millis(100))];
/// Number of words that the program cycles through, and the size of one.
const WORDS: u64 = 1024;
const WORD_BYTES: u64 = 4;

/// A recording of three rounds of calls. The recorder is stopped during the second.
struct Recorded {
    trace: Trace,
    events: Vec<Event>,
    locks: Vec<LockRow>,
    /// Calls of all threads.
    calls: u64,
}

fn record(what: &str, threads: u64, calls: u64, ring: &str, stop: Duration) -> Recorded {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    let mut program = Command::new(fixture("known_calls"));
    program.args([what, &threads.to_string(), &calls.to_string()]).stdin(Stdio::piped());
    let mut program = Running::start(&mut program);
    let pid = program.line_after("ready ");
    let locks: &[&str] = if what == "mutex" { &["pthread", "--probes", "uprobe"] } else { &["futex"] };
    let options = ["record", "-p", &pid, "--ring", ring, "--locks"];
    let mut recorder = Running::start(klock().args(options).args(locks).arg("-o").arg(&path));
    recorder.until_recording();
    let mut round = |number: u64| {
        program.child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        program.line_after(&format!("called {}", number * threads * calls));
    };
    round(1);
    if !stop.is_zero() {
        recorder.signal("STOP");
    }
    round(2);
    thread::sleep(stop);
    if !stop.is_zero() {
        recorder.signal("CONT");
    }
    round(3);
    recorder.signal("INT");
    let recorder = recorder.end_within(Duration::from_secs(180));
    assert!(recorder.status.success(), "{}", recorder.stderr);
    let trace = Trace::open(&path).expect("the recorder left a trace");
    let events = events(&trace);
    let locks = trace.locks().unwrap();
    Recorded { trace, events, locks, calls: 3 * threads * calls }
}

impl Recorded {
    fn loss(&self) -> &Loss {
        &self.trace.info().loss
    }

    fn rows(&self, kind: EventKind) -> u64 {
        self.events.iter().filter(|event| event.kind == kind).count() as u64
    }

    /// Adds up the loss that the rows report, by CPU.
    fn lost_in_rows(&self) -> BTreeMap<Option<u32>, u64> {
        let mut lost = BTreeMap::new();
        for event in self.events.iter().filter(|event| event.kind == EventKind::Lost) {
            let count = event.count.expect("a loss has a count").cast_unsigned();
            *lost.entry(event.cpu.map(i32::cast_unsigned)).or_default() += count;
        }
        lost
    }

    /// Adds up the loss that the footer reports, by CPU.
    fn lost_in_footer(&self) -> BTreeMap<Option<u32>, u64> {
        let mut lost = BTreeMap::new();
        for row in &self.loss().by_program {
            *lost.entry(row.cpu).or_default() += row.ring_full + row.guard + row.no_place;
        }
        lost.retain(|_, count| *count > 0);
        lost
    }

    /// Counts the records that a program made, delivered or lost.
    fn attempts(&self, program: &str) -> u64 {
        let rows = self.loss().by_program.iter().filter(|row| row.program == program);
        rows.map(|row| row.delivered + row.ring_full + row.guard + row.no_place).sum()
    }

    /// Returns the index of a row's word in the thread's page.
    fn word(&self, event: &Event) -> u64 {
        let lock = event.lock.expect("a wake is about a lock");
        let address = self.locks[usize::try_from(lock.0).unwrap()].address.expect("a futex has an address");
        address % (WORDS * WORD_BYTES) / WORD_BYTES
    }

    /// Checks, with at most one thread on each CPU, that every wake is for the next word and that a loss
    /// skips as many words as it reports.
    fn assert_gaps_stand_where_calls_are_missing(&self) {
        let mut next: BTreeMap<Option<i32>, u64> = BTreeMap::new();
        for (row, event) in self.events.iter().enumerate() {
            let next = next.entry(event.cpu).or_default();
            match event.kind {
                EventKind::Lost => *next += event.count.unwrap().cast_unsigned(),
                EventKind::Wake => {
                    assert_eq!(self.word(event), *next % WORDS, "row {row}: {event:?}");
                    *next += 1;
                }
                other => panic!("row {row}: {other}, but the program makes only wakes"),
            }
        }
        assert_eq!(next.values().sum::<u64>(), self.calls, "{next:?}");
    }

    fn assert_rows_and_footer_agree(&self) {
        assert_eq!(self.loss().undecodable, 0);
        assert_eq!(self.lost_in_rows(), self.lost_in_footer(), "{:?}", self.loss());
        let backwards = self.events.windows(2).filter(|pair| pair[1].ts_ns < pair[0].ts_ns).count() as u64;
        assert!(backwards <= self.loss().late, "{backwards} steps back, {} late", self.loss().late);
    }
}

/// Runs a test for each ring and each stop.
fn in_every_case(test: impl Fn(&str, Duration)) {
    for ring in RINGS {
        for stop in STOPS {
            test(ring, stop);
        }
    }
}

fn print(what: &str, ring: &str, stop: Duration, recorded: &Recorded) {
    let loss = recorded.loss();
    println!(
        "{what}, ring {ring}, stopped {} s: {} calls, ring full {}, guard {}, recursion {}, late {}",
        stop.as_secs(),
        recorded.calls,
        loss.ring_full,
        loss.guard,
        loss.recursion_misses,
        loss.late
    );
}

fn futex_case(threads: u64, calls: u64, ring: &str, stop: Duration) -> Recorded {
    let recorded = record("futex", threads, calls, ring, stop);
    print("futex", ring, stop, &recorded);
    recorded.assert_rows_and_footer_agree();
    let loss = recorded.loss();
    assert_eq!(recorded.attempts("futex_exit") + loss.recursion_misses, recorded.calls, "{loss:?}");
    assert_eq!(recorded.rows(EventKind::Wake) + loss.events(), recorded.calls, "{loss:?}");
    if ring == "4k" {
        assert!(loss.ring_full > 0, "a ring of 4 kB held {} calls", recorded.calls);
    }
    recorded
}

fn assert_wakes_are_accounted_for(calls: u64, ring: &str, stop: Duration) {
    let threads = thread::available_parallelism().unwrap().get().min(2) as u64;
    futex_case(threads, calls, ring, stop).assert_gaps_stand_where_calls_are_missing();
}

fn assert_probed_calls_are_accounted_for(ring: &str, stop: Duration) {
    let recorded = record("mutex", 8, 2_000, ring, stop);
    print("mutex", ring, stop, &recorded);
    recorded.assert_rows_and_footer_agree();
    let loss = recorded.loss();
    // A lock is a call and a return, an unlock is a call.
    assert_eq!(recorded.attempts("pthread_call"), 2 * recorded.calls, "{loss:?}");
    assert_eq!(recorded.attempts("pthread_return"), recorded.calls, "{loss:?}");
    let rows = recorded.rows(EventKind::Acquire) + recorded.rows(EventKind::Release);
    if loss.events() == 0 {
        assert_eq!(rows, 2 * recorded.calls, "{loss:?}");
    }
    assert!(rows <= 2 * recorded.calls && rows + 2 * loss.events() >= 2 * recorded.calls, "{rows}: {loss:?}");
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn every_wake_call_is_a_row_or_is_counted_as_lost_where_it_is_missing() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    for (ring, stop) in QUICK {
        assert_wakes_are_accounted_for(10_000, ring, stop);
    }
}

#[test]
#[ignore = "full: takes a minute"]
fn wake_calls_are_accounted_for_through_rings_of_all_sizes() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    in_every_case(|ring, stop| {
        // More than fit into the largest ring while the recorder is stopped.
        assert_wakes_are_accounted_for(if ring == "8M" { 100_000 } else { 30_000 }, ring, stop);
    });
}

#[test]
#[ignore = "full: takes half a minute"]
fn millions_of_wake_calls_of_eight_threads_are_all_accounted_for() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    for ring in RINGS {
        futex_case(8, 40_000, ring, Duration::from_secs(1));
    }
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn every_call_of_a_probed_function_is_delivered_or_counted_as_lost() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    for (ring, stop) in QUICK {
        assert_probed_calls_are_accounted_for(ring, stop);
    }
}

#[test]
#[ignore = "full: takes half a minute"]
fn calls_of_probed_functions_are_accounted_for_through_rings_of_all_sizes() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    in_every_case(assert_probed_calls_are_accounted_for);
}
