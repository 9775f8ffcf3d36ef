//! Fills each map of the kernel side, which is made smaller for that: rows keep what is known, unknown columns are null,
//! and counters report how often.
//!
//! needs: root, gcc

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use record::test_overrides::set_map_sizes;
use trace_format::{Event, EventKind};

mod support;

use support::{Program, Recorded, Recording, skipped, spelt};

fn record(sizes: &[(&'static str, u32)], what: &str, threads: u64, calls: u64) -> Recorded {
    set_map_sizes(sizes);
    let mut program = Program::start(what, threads, calls);
    let recording = Recording::begin(&program, None);
    program.round();
    let recorded = recording.end();
    set_map_sizes(&[]);
    recorded
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_wait_without_a_slot_has_its_length_but_no_split() {
    if skipped() {
        return;
    }
    const THREADS: u64 = 4;
    const WAITS: u64 = 100;
    let recorded = record(&[("WAITING", 1)], "sleep", THREADS, WAITS);
    let loss = recorded.loss();
    assert_eq!(recorded.rows(EventKind::Wait).count() as u64, THREADS * WAITS, "{loss:?}");
    let ends: Vec<&Event> = recorded.rows(EventKind::Abandon).collect();
    assert_eq!(ends.len() as u64, THREADS * WAITS, "{loss:?}");
    let (mut unknown, mut hidden) = (0, 0);
    for end in ends {
        assert!(end.wait_ns.is_some_and(|wait| wait >= 2_000_000), "{end:?}");
        match (end.blocked_ns, end.runq_ns) {
            (None, None) => unknown += 1,
            // Without its switch, a wait looks like one on the CPU.
            (Some(0), Some(0)) => hidden += 1,
            (Some(blocked), Some(_)) => assert!(blocked > 1_000_000, "it slept for 2 ms: {end:?}"),
            _ => panic!("half of a split: {end:?}"),
        }
    }
    assert!(loss.wait_states > 0 && unknown < THREADS * WAITS, "{unknown} unknown, {loss:?}");
    assert_eq!(unknown, loss.wait_states, "{loss:?}");
    // A machine may hide the switches of tasks of its own, and those to and from them.
    assert!(hidden <= (THREADS * WAITS).div_ceil(20), "{hidden} switches are missing, {loss:?}");
    assert_eq!(loss.events(), 0, "{loss:?}");
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_wake_without_a_slot_is_a_row_without_its_count() {
    if skipped() {
        return;
    }
    const CALLS: u64 = 50_000;
    let recorded = record(&[("WAITING", 1)], "futex", 8, CALLS);
    let loss = recorded.loss();
    let wakes = recorded.rows(EventKind::Wake).count() as u64;
    let unknown = recorded.rows(EventKind::Wake).filter(|event| event.count.is_none()).count() as u64;
    assert_eq!(wakes + recorded.lost_in_rows(), 8 * CALLS, "{loss:?}");
    assert!(unknown > 0, "two CPUs and one slot: {loss:?}");
    if loss.events() == 0 {
        assert_eq!(unknown, loss.wait_states, "{loss:?}");
    }
}

/// Counts the wakes with their own stack and those without a stack of the program. Any other stack is an error.
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
#[ignore = "needs root; run by cargo xtask test"]
fn twenty_thousand_stacks_are_complete_and_right_however_small_their_map() {
    if skipped() {
        return;
    }
    for slots in [16, 16_384] {
        // The program waits for the recorder to read its stacks, by time; a recorder that gets no processor is too slow.
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
#[ignore = "needs root; run by cargo xtask test"]
fn stacks_that_overflow_their_map_are_absent_and_counted_but_never_wrong() {
    if skipped() {
        return;
    }
    // A program that gets little of the processors does not overtake the recorder.
    let overflows = |_| {
        let recorded = record(&[("STACKS", 16)], "stacks", 1, STACKS);
        let (loss, (right, absent)) = (recorded.loss(), stacks_right_and_absent(&recorded));
        assert_eq!(loss.events(), 0, "{loss:?}");
        assert_eq!(right + absent, STACKS, "{loss:?}");
        // The kernel part of a stack is kept or counted separately.
        assert!(right > 0 && loss.stacks >= absent, "{right} right, {absent} absent, {loss:?}");
        absent > 0
    };
    assert!((0..20).any(overflows), "no stack was absent in twenty recordings");
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

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn an_off_cpu_task_without_a_slot_is_counted_at_each_switch() {
    if skipped() {
        return;
    }
    const THREADS: u64 = 4;
    const SLEEPS: u64 = 100;
    set_map_sizes(&[("OFF_CPU", 2)]);
    let mut program = Program::start("sleep", THREADS, SLEEPS);
    let recording = Recording::begin_off_cpu(&program);
    program.round();
    let recorded = recording.end();
    set_map_sizes(&[]);
    let loss = recorded.loss();
    let rows = recorded.rows(EventKind::OffCpu).count() as u64;
    assert!(loss.no_place > 0 && rows > 0, "{rows} rows, {loss:?}");
    assert_eq!((loss.events(), recorded.lost_in_rows()), (loss.no_place, loss.no_place), "{loss:?}");
    let of: Vec<u32> =
        program.threads.iter().copied().filter(|tid| recorded.rows_of(EventKind::OffCpu, *tid) > 0).collect();
    assert!(of.len() <= 2, "two places, and rows of {of:?}");
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn stacks_of_off_cpu_time_are_complete_however_small_their_map() {
    if skipped() {
        return;
    }
    set_map_sizes(&[("STACKS", 16)]);
    let mut program = Program::start("sleep", 2, 100);
    let recording = Recording::begin_off_cpu(&program);
    program.round();
    let recorded = recording.end();
    set_map_sizes(&[]);
    let loss = recorded.loss();
    let threads = |event: &&Event| program.threads.contains(&recorded.task(event).tid.cast_unsigned());
    let rows: Vec<&Event> = recorded.rows(EventKind::OffCpu).filter(threads).collect();
    // They travel inline under the number of the switch, and their wakers' under that of the wake-up.
    let whole = |event: &&&Event| {
        let stack = &recorded.stacks[usize::try_from(event.stack.unwrap().0).unwrap()];
        stack.frames[0].symbol.as_deref() == Some("__schedule") && recorded.user_stack(event).is_some()
    };
    assert_eq!(rows.iter().filter(whole).count(), rows.len(), "{loss:?}");
    let woken: Vec<&&Event> = rows.iter().filter(|event| event.peer_task.is_some()).collect();
    assert!(!woken.is_empty() && woken.iter().all(|event| event.peer_stack.is_some()), "{loss:?}");
    assert_eq!((loss.stacks, loss.events()), (0, 0), "{loss:?}");
}
