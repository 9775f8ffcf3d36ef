//! Records programs with very many threads or processes with the in-process recorder, at default sizes. Every
//! event is recorded.
//!
//! `KLOCK_THREADS` is the number of threads that run one by one (10000).
//!
//! needs: gcc

#![allow(clippy::print_stdout, reason = "the figures are worth reading")]

use std::{collections::BTreeMap, time::Duration};

use trace_format::{EventKind, LockKind, Trace};

use crate::support::{Running, most_of, place::Place};

/// Records the program. Asserts that each process has as many acquisitions and releases as it prints, that
/// nothing is lost, and that there are this many tasks with events.
#[track_caller]
fn assert_exact(options: &[&str], arguments: &[&str], tasks: usize) {
    let place = Place::new();
    let program = place.program("known_threads");
    let mut command = place.record(options, &program, arguments);
    let ended = Running::start(&mut command).end_within(Duration::from_secs(300));
    assert!(ended.status.success(), "{}", ended.stderr);
    let trace = Trace::open(&place.path("t.parquet")).unwrap();
    let loss = &trace.info().loss;
    assert_eq!(loss.events(), 0, "{loss:?}");
    let mut printed: BTreeMap<i32, u64> = BTreeMap::new();
    for line in ended.stdout.lines().filter_map(|line| line.strip_prefix("COUNT ")) {
        let (pid, count) = line.split_once(' ').unwrap();
        *printed.entry(pid.parse().unwrap()).or_default() += count.parse::<u64>().unwrap();
    }
    assert!(!printed.is_empty(), "{}", ended.stdout);
    let (locks, rows) = (trace.locks().unwrap(), trace.tasks().unwrap());
    let mut acquired: BTreeMap<i32, u64> = BTreeMap::new();
    let (mut released, mut last_ns) = (acquired.clone(), i64::MIN);
    let mut seen = vec![false; rows.len()];
    for batch in trace.events().unwrap() {
        for event in batch.unwrap().iter() {
            assert!(event.ts_ns >= last_ns, "rows are in the order of time");
            last_ns = event.ts_ns;
            let lock = event.lock.map(|lock| &locks[usize::try_from(lock.0).unwrap()]);
            let Some(pid) = lock.filter(|lock| lock.kind == LockKind::PthreadMutex).and_then(|lock| lock.pid)
            else {
                continue;
            };
            let task = event.task.expect("a thread recorded it");
            seen[usize::try_from(task.0).unwrap()] = true;
            match event.kind {
                EventKind::Acquire => *acquired.entry(pid).or_default() += 1,
                EventKind::Release => *released.entry(pid).or_default() += 1,
                _ => {}
            }
        }
    }
    assert_eq!((&acquired, &released), (&printed, &printed));
    assert_eq!(seen.iter().filter(|seen| **seen).count(), tasks);
    let memory = ended.stdout.lines().find(|line| line.starts_with("RSS ")).unwrap_or("");
    println!(
        "{arguments:?}: {} events, {memory} kB of the program, {}",
        trace.event_count(),
        ended.stderr.trim()
    );
    place.assert_nothing_is_left();
}

/// Pools of the default size have more chunks than these threads can take.
#[test]
#[ignore = "records programs; run by cargo xtask test"]
fn hundreds_of_threads_and_some_processes_are_recorded() {
    assert_exact(&[], &["at-once", "500", "10"], 500);
    assert_exact(&[], &["one-by-one", "500", "10"], 500);
    assert_exact(&[], &["processes", "20", "1000"], 40);
}

#[test]
#[ignore = "full: a machine may allow fewer threads, and klock may be too late to take chunks of idle ones"]
fn ten_thousand_threads_at_once_are_recorded() {
    most_of(3, 1, || assert_exact(&[], &["at-once", "10000", "10"], 10_000));
}

#[test]
#[ignore = "full: a busy machine takes minutes to start and join so many threads"]
fn threads_one_by_one_are_recorded() {
    let threads = std::env::var("KLOCK_THREADS").unwrap_or_else(|_| "10000".to_owned());
    most_of(3, 1, || assert_exact(&[], &["one-by-one", &threads, "10"], threads.parse().unwrap()));
}

#[test]
#[ignore = "full: a process waits for klock for three seconds, and all ask at the same time"]
fn two_hundred_processes_are_recorded() {
    most_of(3, 1, || assert_exact(&[], &["processes", "200", "1000"], 400));
}

#[test]
#[ignore = "full: threads wait for chunks for five seconds in which klock returns none"]
fn more_threads_than_chunks_are_recorded_if_they_wait() {
    most_of(3, 1, || assert_exact(&["--lossless", "--ring", "1M"], &["at-once", "1000", "100"], 1000));
}
