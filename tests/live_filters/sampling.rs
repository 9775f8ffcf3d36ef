//! `--sample`: one in N acquisitions of each CPU, whole.

use std::{thread, time::Duration};

use trace_format::{EventKind, LockKind};

use super::{
    Program, cannot_run_stress, end, record, stress,
    support::{cannot_record, skip},
};

const ROUNDS: usize = 2000;
const EVERY: usize = 20;

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn one_in_twenty_of_a_known_number_of_waits_is_recorded_with_its_end() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let mut program = Program::fixture("known_mutex", &[&ROUNDS.to_string()]);
    let pid = program.pid.clone();
    let whole = ["-p", &pid, "--locks", "kernel", "--contended-only", "--kind", "mutex"];
    let all = record(&whole, || {
        program.go();
        program.running.line_after(&format!("waited {ROUNDS}"));
    });
    let waits = |recorded: &super::Recorded| {
        recorded.events.iter().filter(|event| event.kind == EventKind::Wait).count()
    };
    let all = waits(&all);
    assert!((ROUNDS..ROUNDS + ROUNDS / 10).contains(&all), "{all} waits for mutexes, {ROUNDS} were planned");
    let every = EVERY.to_string();
    let sampled = record(&[&whole[..], &["--sample", &every]].concat(), || {
        program.go();
        program.running.line_after(&format!("waited {}", 2 * ROUNDS));
    });
    assert!(program.end().status.success());
    sampled.assert_waits_end();
    sampled.assert_says(LockKind::Mutex, "one in 20 acquisitions");
    // Each CPU counts for itself; what is left over on it is not recorded.
    let cpus = thread::available_parallelism().unwrap().get();
    let (least, most) = (ROUNDS / EVERY - cpus, (ROUNDS + ROUNDS / 10) / EVERY);
    let found = waits(&sampled);
    assert!((least..=most).contains(&found), "{found} of {ROUNDS} waits, one in {EVERY}");
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn of_a_busy_machine_no_more_than_one_in_ten_is_recorded_and_every_wait_has_its_end() {
    if let Some(reason) = cannot_run_stress() {
        return skip(reason);
    }
    let load = stress();
    let options = ["-a", "--locks", "kernel", "--contended-only", "--sample", "10"];
    let recorded = record(&options, || thread::sleep(Duration::from_secs(2)));
    end(load);
    recorded.assert_waits_end();
    recorded.assert_says(LockKind::Mutex, "one in 10 acquisitions");
    for row in &recorded.info.loss.by_program {
        if row.program == "contention_begin" {
            assert!(row.delivered * 10 <= row.filtered + row.delivered, "{row:?}");
        }
    }
}
