//! `--kind` and `--no-spin`: under a load that waits for spinlocks, beside programs that wait for futexes, and for a mutex a
//! known number of times.

use std::collections::BTreeSet;

use trace_format::LockKind;

use super::{Program, Recorded, cannot_run_stress, end, record, stress, support::skip};

const ROUNDS: usize = 300;

/// The whole machine under load, with these options; and the PID of the program with the mutex.
fn under_load(locks: &str, options: &[&str]) -> (Recorded, i32) {
    let load = stress();
    let mut program = Program::fixture("known_mutex", &[&ROUNDS.to_string()]);
    let mut futexes = Program::fixture("known_waits", &["5", "5"]);
    let pid = program.pid();
    let options = [&["-a", "--locks", locks, "--contended-only"], options].concat();
    let recorded = record(&options, || {
        program.go();
        futexes.go();
        program.running.line_after(&format!("waited {ROUNDS}"));
        futexes.running.line_after("over ");
    });
    end(load);
    assert!(program.end().status.success());
    (recorded, pid)
}

fn waits_for_the_mutex(recorded: &Recorded, pid: i32) -> usize {
    recorded.terminal_mutex(pid).map_or(0, |(_, waits)| waits)
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn the_selected_kinds_are_complete_and_no_other_kind_is_recorded() {
    if let Some(reason) = cannot_run_stress() {
        return skip(reason);
    }
    let (recorded, pid) = under_load("kernel", &["--kind", "mutex,rwsem"]);
    let kinds = recorded.kernel_kinds();
    assert!(kinds.is_subset(&BTreeSet::from([LockKind::Mutex, LockKind::RwSem])), "{kinds:?}");
    assert_eq!(waits_for_the_mutex(&recorded, pid), ROUNDS);
    recorded.assert_waits_end();
    recorded.assert_says(LockKind::Mutex, "only mutex, rwsem are recorded");
    assert!(recorded.info.source_of(LockKind::SpinLock).is_none(), "{:?}", recorded.info.sources);
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn mutexes_and_futexes_are_recorded_without_spinning_locks() {
    if let Some(reason) = cannot_run_stress() {
        return skip(reason);
    }
    let (recorded, pid) = under_load("kernel,futex", &["--no-spin"]);
    let kinds = recorded.kinds();
    assert!(!kinds.contains(&LockKind::SpinLock) && !kinds.contains(&LockKind::RwLock), "{kinds:?}");
    assert!(kinds.contains(&LockKind::Futex), "{kinds:?}");
    assert_eq!(waits_for_the_mutex(&recorded, pid), ROUNDS);
    recorded.assert_waits_end();
    recorded.assert_says(LockKind::Mutex, "only mutex, rtmutex, rwsem, percpu_rwsem, semaphore are recorded");
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn spinlocks_are_recorded_without_mutexes() {
    if let Some(reason) = cannot_run_stress() {
        return skip(reason);
    }
    let (all, pid) = under_load("kernel,futex", &[]);
    assert_eq!(waits_for_the_mutex(&all, pid), ROUNDS);
    if !all.kinds().contains(&LockKind::SpinLock) {
        return skip("needs a machine that shows waits for spinlocks");
    }
    let (recorded, pid) = under_load("kernel", &["--kind", "spinlock"]);
    assert_eq!(recorded.kernel_kinds(), BTreeSet::from([LockKind::SpinLock]));
    assert_eq!(waits_for_the_mutex(&recorded, pid), 0);
    recorded.assert_waits_end();
    recorded.assert_says(LockKind::SpinLock, "only spinlock are recorded");
}
