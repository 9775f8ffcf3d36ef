//! `--kind` and `--no-spin`: beside a program that waits for futexes, and for a mutex a known number of
//! times. In full size, also under a load of the whole machine that waits for spinlocks.

use std::collections::BTreeSet;

use trace_format::LockKind;

use super::{Program, Recorded, cannot_run_stress, end, stress, try_record};
use crate::support::{cannot_record, skip, until};

const ROUNDS: usize = 100;

/// Both programs, or under load the whole machine, with these options; and the PID of the program with the
/// mutex.
fn recorded(under_load: bool, locks: &str, options: &[&str]) -> (Recorded, i32) {
    until("no event is lost", || {
        let load = under_load.then(stress);
        let mut program = Program::fixture("known_mutex", &[&ROUNDS.to_string()]);
        let mut futexes = Program::fixture("known_waits", &["5", "5"]);
        let (pid, both) = (program.pid(), format!("{},{}", program.pid, futexes.pid));
        let target = if under_load { vec!["-a"] } else { vec!["-p", &both] };
        let options = [&target[..], &["--locks", locks, "--contended-only"], options].concat();
        let recorded = try_record(&options, || {
            program.go();
            futexes.go();
            program.running.line_after(&format!("waited {ROUNDS}"));
            futexes.running.line_after("over ");
        });
        if let Some(load) = load {
            end(load);
        }
        assert!(program.end().status.success());
        Some((recorded.ok()?, pid))
    })
}

fn waits_for_the_mutex(recorded: &Recorded, pid: i32) -> usize {
    recorded.terminal_mutex(pid).map_or(0, |(_, waits)| waits)
}

fn assert_selects_kinds(under_load: bool) {
    let (recorded, pid) = recorded(under_load, "kernel", &["--kind", "mutex,rwsem"]);
    let kinds = recorded.kernel_kinds();
    assert!(kinds.is_subset(&BTreeSet::from([LockKind::Mutex, LockKind::RwSem])), "{kinds:?}");
    assert_eq!(waits_for_the_mutex(&recorded, pid), ROUNDS);
    recorded.assert_waits_end();
    recorded.assert_says(LockKind::Mutex, "only mutex, rwsem are recorded");
    assert!(recorded.info.source_of(LockKind::SpinLock).is_none(), "{:?}", recorded.info.sources);
}

fn assert_leaves_spinning_locks_out(under_load: bool) {
    let (recorded, pid) = recorded(under_load, "kernel,futex", &["--no-spin"]);
    let kinds = recorded.kinds();
    assert!(!kinds.contains(&LockKind::SpinLock) && !kinds.contains(&LockKind::RwLock), "{kinds:?}");
    assert!(kinds.contains(&LockKind::Futex), "{kinds:?}");
    assert_eq!(waits_for_the_mutex(&recorded, pid), ROUNDS);
    recorded.assert_waits_end();
    recorded.assert_says(LockKind::Mutex, "only mutex, rtmutex, rwsem, percpu_rwsem, semaphore are recorded");
}

fn assert_leaves_all_but_spinlocks_out(under_load: bool) -> Recorded {
    let (recorded, pid) = recorded(under_load, "kernel", &["--kind", "spinlock"]);
    let kinds = recorded.kernel_kinds();
    assert!(kinds.is_subset(&BTreeSet::from([LockKind::SpinLock])), "{kinds:?}");
    assert_eq!(waits_for_the_mutex(&recorded, pid), 0);
    recorded.assert_says(LockKind::SpinLock, "only spinlock are recorded");
    recorded
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn the_selected_kinds_are_complete_and_no_other_kind_is_recorded() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    assert_selects_kinds(false);
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn mutexes_and_futexes_are_recorded_without_spinning_locks() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    assert_leaves_spinning_locks_out(false);
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn mutexes_are_not_recorded_with_spinlocks() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    assert_leaves_all_but_spinlocks_out(false);
}

#[test]
#[ignore = "full: loads the machine"]
fn the_selected_kinds_are_complete_under_load_too() {
    if let Some(reason) = cannot_run_stress() {
        return skip(reason);
    }
    assert_selects_kinds(true);
    assert_leaves_spinning_locks_out(true);
}

#[test]
#[ignore = "full: loads the machine, and whether tasks wait for spinlocks is a matter of chance"]
fn spinlocks_are_recorded_without_mutexes() {
    if let Some(reason) = cannot_run_stress() {
        return skip(reason);
    }
    let (all, pid) = recorded(true, "kernel,futex", &[]);
    assert_eq!(waits_for_the_mutex(&all, pid), ROUNDS);
    if !all.kinds().contains(&LockKind::SpinLock) {
        return skip("needs a machine that shows waits for spinlocks");
    }
    let spinlocks = until("tasks wait for spinlocks", || {
        let recorded = assert_leaves_all_but_spinlocks_out(true);
        recorded.kinds().contains(&LockKind::SpinLock).then_some(recorded)
    });
    spinlocks.assert_waits_end();
}
