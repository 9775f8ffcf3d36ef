//! `--sample`: one in N acquisitions, drawn at random, whole. Numbers drawn are allowed seven standard
//! deviations, which a correct generator exceeds less than once in 10^9 runs.

use std::{collections::BTreeMap, ops::RangeInclusive, process::Command, thread, time::Duration};

use trace_format::{EventKind, LockKind};

use super::{Program, cannot_run_stress, end, record, stress, try_record};
use crate::support::{cannot_record, fixture, skip, until};

const ROUNDS: usize = 400;
const EVERY: usize = 4;

/// The numbers to expect of `trials` draws with a probability of one in `every`.
fn expected(trials: usize, every: usize) -> RangeInclusive<usize> {
    let (trials, probability) = (trials as f64, 1.0 / every as f64);
    let (mean, sigma) = (trials * probability, (trials * probability * (1.0 - probability)).sqrt());
    (mean - 7.0 * sigma).max(0.0) as usize..=(mean + 7.0 * sigma) as usize
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn one_in_four_of_a_known_number_of_waits_is_recorded_with_its_end() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let mut program = Program::fixture("known_mutex", &[&ROUNDS.to_string()]);
    let (pid, every) = (program.pid.clone(), EVERY.to_string());
    let options =
        ["-p", &pid, "--locks", "kernel", "--contended-only", "--kind", "mutex", "--sample", &every];
    let sampled = record(&options, || {
        program.go();
        program.running.line_after(&format!("waited {ROUNDS}"));
    });
    let (_, found) = sampled.terminal_mutex(program.pid()).expect("some of its waits are recorded");
    assert!(program.end().status.success());
    sampled.assert_waits_end();
    sampled.assert_says(LockKind::Mutex, "one in 4 acquisitions");
    let expected = expected(ROUNDS, EVERY);
    assert!(expected.contains(&found), "{found} of {ROUNDS} waits, one in {EVERY}: {expected:?}");
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn locks_that_are_taken_in_turn_on_one_cpu_are_each_recorded_one_in_four_times() {
    const LOCKS: usize = 4;
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    // A counter of acquisitions would select the same lock each time.
    let mut program =
        Program::of(Command::new("taskset").args(["-c", "0"]).arg(fixture("known_mutex")).args([
            &ROUNDS.to_string(),
            "0",
            &LOCKS.to_string(),
        ]));
    let (pid, every) = (program.pid.clone(), EVERY.to_string());
    let options =
        ["-p", &pid, "--locks", "kernel", "--contended-only", "--kind", "mutex", "--sample", &every];
    let recorded = record(&options, || {
        program.go();
        program.running.line_after(&format!("waited {ROUNDS}"));
    });
    assert!(program.end().status.success());
    let mut by_lock: BTreeMap<_, usize> = BTreeMap::new();
    for event in recorded.events.iter().filter(|event| event.kind == EventKind::Wait) {
        *by_lock.entry(event.lock).or_default() += 1;
    }
    let mut counts: Vec<usize> = by_lock.into_values().collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    counts.resize(counts.len().max(LOCKS), 0);
    for count in &counts[..LOCKS] {
        assert!(expected(ROUNDS / LOCKS, EVERY).contains(count) && *count > 0, "waits by lock: {counts:?}");
    }
}

#[test]
#[ignore = "full: loads the machine"]
fn one_in_ten_acquisitions_of_a_busy_machine_is_recorded_and_every_wait_has_its_end() {
    if let Some(reason) = cannot_run_stress() {
        return skip(reason);
    }
    let options = ["-a", "--locks", "kernel", "--contended-only", "--sample", "10"];
    let recorded = until("no event is lost", || {
        let load = stress();
        let recorded = try_record(&options, || thread::sleep(Duration::from_secs(2)));
        end(load);
        recorded.ok()
    });
    recorded.assert_waits_end();
    recorded.assert_says(LockKind::Mutex, "one in 10 acquisitions");
    for row in &recorded.info.loss.by_program {
        if row.program == "contention_begin" {
            // A begin may also be filtered for another reason.
            let most = *expected((row.filtered + row.delivered) as usize, 10).end();
            assert!(row.delivered as usize <= most, "{row:?}");
        }
    }
}
