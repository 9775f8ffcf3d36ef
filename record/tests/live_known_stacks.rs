//! Stacks that recur are recognized by the BPF programs: events go on as before, each with its stack, but the rings receive no more
//! copies of these.
//!
//! needs: root, gcc

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::os::fd::AsFd as _;

use aya::maps::{MapInfo, MapType, loaded_maps};
use record::test_overrides::set_map_sizes;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use trace_format::EventKind;

mod support;

use support::{Program, Recording, skipped, spelt};

const CALLS: u64 = 5_000;

/// Returns the number of bytes that were ever written to klock's rings: the kernel counts them in the second page of a ring
/// (`kernel/bpf/ringbuf.c`, 5.8).
fn written() -> u64 {
    let ring = |info: &MapInfo| {
        info.name_as_str() == Some("klock_ring") && matches!(info.map_type(), Ok(MapType::RingBuf))
    };
    let bytes = loaded_maps().filter_map(Result::ok).filter(ring).filter_map(|info| {
        // It may belong to a recording that has just ended.
        let fd = info.fd().ok()?;
        let page = rustix::param::page_size();
        // SAFETY: a new mapping, of one page that outlives the read of its first word.
        unsafe {
            let start =
                mmap(std::ptr::null_mut(), page, ProtFlags::READ, MapFlags::SHARED, fd.as_fd(), page as u64);
            let start = start.unwrap();
            let written = start.cast::<u64>().read_volatile();
            munmap(start, page).unwrap();
            Some(written)
        }
    });
    bytes.sum()
}

/// Runs the program until a round of its calls writes fewer bytes than this for each call. Returns the number of rounds.
fn rounds_until(program: &mut Program, calls: u64, bytes: u64) -> Option<u64> {
    (1..=100).find(|_| {
        let before = written();
        program.round();
        std::thread::sleep(std::time::Duration::from_millis(50));
        written() - before < calls * bytes
    })
}

/// More than an event, and less than a copy of the default size.
const BYTES: u64 = 300;

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn stacks_that_recur_are_not_copied_and_each_event_has_its_own() {
    if skipped() {
        return;
    }
    const THREADS: u64 = 2;
    let mut program = Program::start("futex", THREADS, CALLS);
    let recording = Recording::begin(&program, None);
    let rounds = rounds_until(&mut program, THREADS * CALLS, BYTES).expect("they are recognized at last");
    program.round();
    let recorded = recording.end();
    let loss = recorded.loss();
    assert_eq!(recorded.rows(EventKind::Wake).count() as u64, (rounds + 1) * THREADS * CALLS, "{loss:?}");
    let mut unwound = 0;
    for event in recorded.rows(EventKind::Wake) {
        let stack = recorded.user_stack(event).unwrap();
        let names: Vec<_> = stack.frames.iter().filter_map(|frame| frame.symbol.as_deref()).collect();
        assert!(names.contains(&"wake_words"), "{names:?}");
        unwound += u64::from(!stack.frames.iter().any(|frame| frame.guessed));
    }
    let others = recorded.rows(EventKind::Wake).count() as u64 - unwound;
    assert!(others <= loss.stacks_not_unwound, "{others} by frame pointers, {loss:?}");
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn without_room_for_known_stacks_all_are_copied() {
    if skipped() {
        return;
    }
    set_map_sizes(&[("KNOWN_STACKS", 1)]);
    let mut program = Program::start("futex", 1, 100);
    let recording = Recording::begin(&program, None);
    assert_eq!(rounds_until(&mut program, 100, BYTES), None);
    let recorded = recording.end();
    set_map_sizes(&[]);
    assert_eq!(recorded.rows(EventKind::Wake).count() as u64, 100 * 100, "{:?}", recorded.loss());
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn stacks_that_differ_in_one_caller_are_told_apart() {
    if skipped() {
        return;
    }
    // Each stack has the same registers. They recur in each round, so that some of them are recognized.
    const STACKS: u64 = 6;
    const ROUNDS: u64 = 200;
    let mut program = Program::start("few-stacks", 1, STACKS);
    let recording = Recording::begin(&program, None);
    for _ in 0..ROUNDS {
        program.round();
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let recorded = recording.end();
    let loss = recorded.loss();
    let found: Vec<_> =
        recorded.rows(EventKind::Wake).map(|event| spelt(recorded.user_stack(event).unwrap())).collect();
    assert_eq!((found.len() as u64, loss.events()), (ROUNDS * STACKS, 0), "{loss:?}");
    for (number, spelt) in found.into_iter().enumerate() {
        assert_eq!(spelt, Some(number % STACKS as usize), "call {number}, {loss:?}");
    }
}
