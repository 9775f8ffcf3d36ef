//! `--lock`: futexes and mutexes by the addresses that a program prints, and a kernel mutex by the one of an
//! earlier trace.

use std::collections::BTreeSet;

use trace_format::{EventKind, LockKind};

use super::{Program, Recorded, record};
use crate::support::{cannot_record, skip};

const ROUNDS: usize = 20;

/// The process with these options and the addresses of these locks chosen.
fn chosen(names: &[&str], options: &[&str]) -> (Recorded, Vec<String>) {
    let mut program = Program::fixture("known_waits", &[&ROUNDS.to_string(), "5"]);
    let addresses: Vec<String> = names.iter().map(|name| program.address(name)).collect();
    let pid = program.pid.clone();
    let list = addresses.join(",");
    let recorded = record(&[&["-p", &pid, "--lock", &list], options].concat(), || {
        program.go();
        program.running.line_after("over ");
    });
    (recorded, addresses)
}

fn addresses(recorded: &Recorded) -> BTreeSet<String> {
    recorded.events.iter().map(|event| recorded.address(event)).collect()
}

fn count(recorded: &Recorded, kind: EventKind) -> usize {
    recorded.events.iter().filter(|event| event.kind == kind).count()
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn all_waits_on_the_selected_words_are_recorded_and_no_others() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let (recorded, words) = chosen(&["short", "long"], &["--locks", "futex"]);
    assert_eq!(addresses(&recorded), words.iter().cloned().collect());
    assert_eq!(
        (count(&recorded, EventKind::Wait), count(&recorded, EventKind::Abandon)),
        (2 * ROUNDS, 2 * ROUNDS)
    );
    assert_eq!(recorded.info.loss.unpaired, 0);
    recorded.assert_says(LockKind::Futex, &format!("only these locks are recorded: {}", words.join(", ")));
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn all_calls_on_the_selected_mutex_are_recorded_and_returns_of_others_are_not() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let (recorded, mutexes) = chosen(&["chosen"], &["--locks", "pthread"]);
    assert_eq!(addresses(&recorded), mutexes.iter().cloned().collect());
    assert_eq!(recorded.kinds(), BTreeSet::from([LockKind::PthreadMutex]));
    // Main and the worker.
    assert_eq!(
        (count(&recorded, EventKind::Acquire), count(&recorded, EventKind::Release)),
        (2 * ROUNDS, 2 * ROUNDS)
    );
    assert_eq!(recorded.info.loss.unpaired, 0);
    recorded.assert_says(LockKind::PthreadMutex, &format!("only these locks are recorded: {}", mutexes[0]));
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_kernel_mutex_is_selected_by_its_address_in_an_earlier_trace() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let rounds = 50;
    let mut program = Program::fixture("known_mutex", &[&rounds.to_string()]);
    let pid = program.pid.clone();
    let whole = ["-p", &pid, "--locks", "kernel", "--contended-only", "--kernel-addresses"];
    let all = record(&whole, || {
        program.go();
        program.running.line_after(&format!("waited {rounds}"));
    });
    let (mutex, waits) = all.terminal_mutex(program.pid()).expect("the program waited");
    assert_eq!(waits, rounds);
    let recorded = record(&[&whole[..], &["--lock", &mutex]].concat(), || {
        program.go();
        program.running.line_after(&format!("waited {}", 2 * rounds));
    });
    assert_eq!(addresses(&recorded), BTreeSet::from([mutex]));
    assert_eq!((count(&recorded, EventKind::Wait), count(&recorded, EventKind::Acquire)), (rounds, rounds));
    recorded.assert_waits_end();
}
