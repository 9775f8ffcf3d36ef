//! Fills each map of the kernel side, which is made smaller for that: rows keep what is known, unknown
//! columns are null, and counters report how often.
//!
//! needs: root, gcc

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;

use record::test_overrides::set_map_sizes;
use trace_format::{Event, EventKind, EventRow as _};

mod support;

use support::{Program, Recorded, Recording, skipped, spelt, until};

/// Records a round of the program, with maps of these sizes.
fn record(sizes: &[(&'static str, u32)], what: &str, threads: u64, calls: u64) -> Recorded {
    record_by(|program| Recording::begin(program, None), sizes, what, (threads, calls))
}

/// Records the off-CPU time of threads that sleep.
fn record_off_cpu(sizes: &[(&'static str, u32)], threads: u64, sleeps: u64) -> Recorded {
    record_by(Recording::begin_off_cpu, sizes, "sleep", (threads, sleeps))
}

fn record_by(
    begin: fn(&Program) -> Recording,
    sizes: &[(&'static str, u32)],
    what: &str,
    (threads, calls): (u64, u64),
) -> Recorded {
    until("klock reads the program's files in time", || {
        set_map_sizes(sizes);
        let mut program = Program::start(what, threads, calls);
        let recording = begin(&program);
        program.round();
        let recorded = recording.end();
        set_map_sizes(&[]);
        recorded.has_names.then_some(recorded)
    })
}

/// Threads that wait at the same time, with a slot for one of them, and waits of each, which take 2 ms.
const SLEEPERS: u64 = 4;
const WAITS: u64 = 100;

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_wait_without_a_slot_has_its_length_but_no_split() {
    if skipped() {
        return;
    }
    until("two threads wait at the same time", || {
        let recorded = record(&[("WAITING", 1)], "sleep", SLEEPERS, WAITS);
        let loss = recorded.loss();
        assert_eq!(loss.events(), 0, "{loss:?}");
        assert_eq!(recorded.rows(EventKind::Wait).count() as u64, SLEEPERS * WAITS, "{loss:?}");
        let ends: Vec<&Event> = recorded.rows(EventKind::Abandon).collect();
        assert_eq!(ends.len() as u64, SLEEPERS * WAITS, "{loss:?}");
        let mut unknown = 0;
        for end in ends {
            let wait = end.wait_ns.expect("a wait has a length");
            assert!(wait >= 2_000_000, "{end:?}");
            match (end.blocked_ns, end.runq_ns) {
                (None, None) => unknown += 1,
                (Some(blocked), Some(queued)) => {
                    assert!(blocked >= 0 && queued >= 0 && blocked + queued <= wait, "{end:?}");
                }
                _ => panic!("half of a split: {end:?}"),
            }
        }
        assert_eq!(unknown, loss.wait_states, "{loss:?}");
        assert!(unknown < SLEEPERS * WAITS, "{unknown} unknown, {loss:?}");
        (unknown > 0).then_some(())
    });
}

#[test]
#[ignore = "full: a host may hide switches, and a busy one lets a wait end before its sleep"]
fn a_wait_with_a_slot_has_the_sleep_in_it() {
    if skipped() {
        return;
    }
    // A machine may hide the switches of tasks of its own, and those to and from them. Two of three
    // recordings must have the others.
    let has_sleeps = |_: &i32| {
        let recorded = record(&[("WAITING", 1)], "sleep", SLEEPERS, WAITS);
        let sleeps: Vec<i64> = recorded.rows(EventKind::Abandon).filter_map(|end| end.blocked_ns).collect();
        let short = sleeps.iter().filter(|blocked| **blocked <= 1_000_000).count();
        println!("{short} of {} sleeps of 2 ms are short", sleeps.len());
        short <= sleeps.len().div_ceil(20)
    };
    assert!((0..3).filter(has_sleeps).count() >= 2);
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_wake_without_a_slot_is_a_row_without_its_count() {
    if skipped() {
        return;
    }
    const CALLS: u64 = 10_000;
    until("two threads are in futex calls at the same time", || {
        let recorded = record(&[("WAITING", 1)], "futex", 8, CALLS);
        let loss = recorded.loss();
        let wakes = recorded.rows(EventKind::Wake).count() as u64;
        let unknown = recorded.rows(EventKind::Wake).filter(|event| event.count.is_none()).count() as u64;
        assert_eq!(wakes + recorded.lost_in_rows(), 8 * CALLS, "{loss:?}");
        if loss.events() == 0 {
            assert_eq!(unknown, loss.wait_states, "{loss:?}");
        }
        (unknown > 0).then_some(())
    });
}

/// Counts the wakes with their own stack and those without a stack of the program. Any other stack is an
/// error.
fn stacks_right_and_absent(recorded: &Recorded) -> (u64, u64) {
    let (mut right, mut absent) = (0, 0);
    for (number, event) in recorded.rows(EventKind::Wake).enumerate() {
        match recorded.user_stack(event) {
            None => absent += 1,
            Some(stack) => {
                let spelt = spelt(stack);
                assert!(spelt == Some(number), "wake {number} has the stack of {spelt:?}: {stack:?}");
                right += 1;
            }
        }
    }
    (right, absent)
}

const STACKS: u64 = 20_000;

#[test]
#[ignore = "full: takes a quarter of a minute, and a busy machine may leave the recorder behind the program"]
fn twenty_thousand_stacks_are_complete_and_right_however_small_their_map() {
    if skipped() {
        return;
    }
    for slots in [16, 16_384] {
        // The program waits for the recorder to read its stacks, by time; a recorder that gets no processor
        // is too slow.
        let is_whole = |_| {
            let recorded = record(&[("STACKS", slots)], "slow-stacks", 1, STACKS);
            let (loss, (right, absent)) = (recorded.loss(), stacks_right_and_absent(&recorded));
            assert_eq!(right + absent, STACKS, "{loss:?}");
            (right, loss.stacks) == (STACKS, 0)
        };
        assert!((0..20).any(is_whole), "stacks were missing in twenty recordings with {slots} slots");
    }
}

#[test]
#[ignore = "full: a program that gets little of the processors does not overtake the recorder"]
fn stacks_that_overflow_their_map_are_absent_and_counted_but_never_wrong() {
    if skipped() {
        return;
    }
    until("a stack is absent", || {
        let recorded = record(&[("STACKS", 16)], "stacks", 1, STACKS);
        let (loss, (right, absent)) = (recorded.loss(), stacks_right_and_absent(&recorded));
        assert_eq!(loss.events(), 0, "{loss:?}");
        assert_eq!(right + absent, STACKS, "{loss:?}");
        // The kernel part of a stack is kept or counted separately.
        assert!(right > 0 && loss.stacks >= absent, "{right} right, {absent} absent, {loss:?}");
        (absent > 0).then_some(())
    });
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_process_without_a_slot_among_the_targets_is_counted() {
    if skipped() {
        return;
    }
    const CHILDREN: u64 = 20;
    const CALLS: u64 = 100;
    let recorded = record(&[], "children", CHILDREN, CALLS);
    assert_eq!(recorded.rows(EventKind::Wake).count() as u64, CHILDREN * CALLS, "{:?}", recorded.loss());
    assert_eq!(recorded.loss().events(), 0, "{:?}", recorded.loss());
    // Their parent has the only slot.
    let recorded = record(&[("TARGETS", 1)], "children", CHILDREN, CALLS);
    let loss = recorded.loss();
    assert_eq!(recorded.rows(EventKind::Wake).count(), 0, "{loss:?}");
    assert_eq!((loss.no_place, recorded.lost_in_rows()), (CHILDREN, CHILDREN), "{loss:?}");
}

/// The off-CPU times of all threads but the main one.
fn off_cpu(recorded: &Recorded) -> Vec<&Event> {
    let is_of_sleeper = |event: &&Event| {
        let task = recorded.task(event);
        task.tid != task.pid
    };
    recorded.rows(EventKind::OffCpu).filter(is_of_sleeper).collect()
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn an_off_cpu_task_without_a_slot_is_counted_at_each_switch() {
    if skipped() {
        return;
    }
    let recorded = record_off_cpu(&[("OFF_CPU", 2)], 4, 100);
    let loss = recorded.loss();
    let rows = recorded.rows(EventKind::OffCpu).count();
    assert!(loss.no_place > 0 && rows > 0, "{rows} rows, {loss:?}");
    assert_eq!((loss.events(), recorded.lost_in_rows()), (loss.no_place, loss.no_place), "{loss:?}");
    let of: BTreeSet<i32> = off_cpu(&recorded).into_iter().map(|event| recorded.task(event).tid).collect();
    assert!(of.len() <= 2, "two places, and rows of {of:?}");
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn stacks_of_off_cpu_time_are_complete_however_small_their_map() {
    if skipped() {
        return;
    }
    // The stacks travel inline under the number of the switch, and the stacks of wakers under the number of the
    // wake-up. A recorder without processor time lets their ring fill.
    let recorded = until("no stack is lost", || {
        let recorded = record_off_cpu(&[("STACKS", 16)], 2, 100);
        (recorded.loss().stacks == 0).then_some(recorded)
    });
    let rows = off_cpu(&recorded);
    let whole = |event: &&&Event| {
        let stack = &recorded.stacks[usize::try_from(event.stack.unwrap().0).unwrap()];
        stack.frames[0].symbol.as_deref() == Some("__schedule") && recorded.user_stack(event).is_some()
    };
    let loss = recorded.loss();
    assert_eq!(rows.iter().filter(whole).count(), rows.len(), "{loss:?}");
    let woken: Vec<&&Event> = rows.iter().filter(|event| event.waker().is_some()).collect();
    assert!(!woken.is_empty() && woken.iter().all(|event| event.peer_stack.is_some()), "{loss:?}");
    assert_eq!(loss.events(), 0, "{loss:?}");
}
