//! Stacks that recur are recognized by the BPF programs: events go on as before, each with its stack, but the
//! rings receive no more copies of these.
//!
//! needs: root, gcc

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{collections::BTreeMap, os::fd::AsFd as _, thread, time::Duration};

use aya::maps::{MapInfo, MapType, loaded_maps};
use record::test_overrides::set_map_sizes;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use trace_format::EventKind;

mod support;

use support::{Program, Recording, skipped, spelt, until};

/// Calls of a thread in a round, whose copies fit into the ring of descriptors.
const CALLS: u64 = 50;

/// The numbers of bytes of klock's rings that were ever read and written, by the ids of the rings: the kernel
/// has them in the first and the second page of a ring (`kernel/bpf/ringbuf.c`, 5.8).
fn positions() -> BTreeMap<u32, (u64, u64)> {
    let ring = |info: &MapInfo| {
        info.name_as_str() == Some("klock_ring") && matches!(info.map_type(), Ok(MapType::RingBuf))
    };
    let positions = loaded_maps().filter_map(Result::ok).filter(ring).filter_map(|info| {
        // It may belong to a recording that has just ended.
        let fd = info.fd().ok()?;
        let page = rustix::param::page_size();
        // SAFETY: a new mapping, of one page that outlives the read of its first word.
        let word = |number: u64| unsafe {
            let place = number * page as u64;
            let start =
                mmap(std::ptr::null_mut(), page, ProtFlags::READ, MapFlags::SHARED, fd.as_fd(), place);
            let start = start.unwrap();
            let word = start.cast::<u64>().read_volatile();
            munmap(start, page).unwrap();
            word
        };
        Some((info.id(), (word(0), word(1))))
    });
    positions.collect()
}

/// Waits until klock has read all rings, and returns how much was written to each.
fn written() -> BTreeMap<u32, u64> {
    let positions = until("klock reads all rings", || {
        thread::sleep(Duration::from_millis(5));
        let positions = positions();
        positions.values().all(|(read, written)| read == written).then_some(positions)
    });
    positions.into_iter().map(|(ring, (_, written))| (ring, written)).collect()
}

/// Runs the program until a round of its calls writes fewer bytes than this for each call. Returns the number
/// of rounds; `None` if it is more than `most`.
fn rounds_until(program: &mut Program, calls: u64, bytes: u64, most: u64) -> Option<u64> {
    (1..=most).find(|_| {
        let before = written();
        program.round();
        let added = written().iter().map(|(ring, bytes)| bytes - before.get(ring).unwrap_or(&0)).sum::<u64>();
        added < calls * bytes
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
    const MORE: u64 = 20;
    let (rounds, recorded) = until("klock reads the program's files in time", || {
        let mut program = Program::start("futex", THREADS, CALLS);
        let recording = Recording::begin(&program, None);
        let rounds = rounds_until(&mut program, THREADS * CALLS, BYTES, 10_000);
        (0..MORE).for_each(|_| program.round());
        let recorded = recording.end();
        recorded.has_names.then(|| (rounds.expect("they are recognized at last"), recorded))
    });
    let loss = recorded.loss();
    assert_eq!(recorded.rows(EventKind::Wake).count() as u64, (rounds + MORE) * THREADS * CALLS, "{loss:?}");
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
    const ROUNDS: u64 = 100;
    set_map_sizes(&[("KNOWN_STACKS", 1)]);
    let mut program = Program::start("futex", 1, CALLS);
    let recording = Recording::begin(&program, None);
    assert_eq!(rounds_until(&mut program, CALLS, BYTES, ROUNDS), None);
    let recorded = recording.end();
    set_map_sizes(&[]);
    assert_eq!(recorded.rows(EventKind::Wake).count() as u64, ROUNDS * CALLS, "{:?}", recorded.loss());
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
    let recorded = until("klock reads the program's files in time", || {
        let mut program = Program::start("few-stacks", 1, STACKS);
        let recording = Recording::begin(&program, None);
        for _ in 0..ROUNDS {
            program.round();
            thread::sleep(Duration::from_millis(5));
        }
        let recorded = recording.end();
        recorded.has_names.then_some(recorded)
    });
    let loss = recorded.loss();
    let found: Vec<_> =
        recorded.rows(EventKind::Wake).map(|event| spelt(recorded.user_stack(event).unwrap())).collect();
    assert_eq!((found.len() as u64, loss.events()), (ROUNDS * STACKS, 0), "{loss:?}");
    for (number, spelt) in found.into_iter().enumerate() {
        assert_eq!(spelt, Some(number % STACKS as usize), "call {number}, {loss:?}");
    }
}
