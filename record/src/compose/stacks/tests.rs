//! The ids of the stacks that the fields of events stand for.

use proptest::prelude::*;
use trace_format::wire::{Incarnation, MAX_FRAMES, code};

use super::*;

fn at(process: u32, kernel: i32, user: i32) -> StackRef {
    StackRef {
        process: (ProcessKey(process), 10),
        kernel,
        user,
        caller: 0,
        event: (0, 0),
        peer: false,
        copied: true,
    }
}

fn inline(cpu: u32, seq: u32, user: bool, frames: &[u64]) -> WireStack {
    let mut all = [0; MAX_FRAMES];
    all[..frames.len()].copy_from_slice(frames);
    let count = frames.len() as u8;
    WireStack {
        ts_ns: 0,
        code: code::STACK,
        user: u8::from(user),
        peer: 0,
        count,
        cpu,
        seq,
        padding: 0,
        frames: all,
    }
}

#[test]
fn the_same_user_frames_in_two_processes_are_two_stacks() {
    let mut stacks = Stacks::default();
    let here = stacks.id(&at(0, stack::NONE, 7));
    assert_eq!(here, Some(StackId(0)));
    assert_eq!(stacks.id(&at(1, stack::NONE, 7)), Some(StackId(1)));
    assert_eq!(stacks.id(&at(0, stack::NONE, 7)), here);
    assert_eq!(stacks.take_new().len(), 2);
}

#[test]
fn a_stack_of_kernel_frames_alone_is_the_same_in_every_process() {
    let mut stacks = Stacks::default();
    assert_eq!(stacks.id(&at(0, 7, stack::ABSENT)), stacks.id(&at(1, 7, stack::ABSENT)));
    assert_eq!(stacks.take_new()[0].1.process, None);
}

#[test]
fn a_stack_without_frames_or_with_lost_ones_has_no_id() {
    let mut stacks = Stacks::default();
    assert_eq!(stacks.id(&at(0, stack::NONE, stack::ABSENT)), None);
    assert_eq!(stacks.id(&at(0, stack::LOST, stack::LOST)), None);
    assert_eq!(stacks.count, 0);
}

#[test]
fn frames_that_travel_inline_join_their_event_by_cpu_and_number() {
    let mut stacks = Stacks::default();
    stacks.announce(&inline(1, 5, true, &[100, 200]));
    stacks.announce(&inline(1, 6, true, &[100, 200]));
    let of = |seq| StackRef { event: (1, seq), ..at(0, stack::NONE, stack::INLINE) };
    let first = stacks.id(&of(5));
    assert_eq!(first, Some(StackId(0)));
    assert_eq!(stacks.id(&of(6)), first, "equal frames are one stack");
    assert_eq!(stacks.id(&of(7)), None, "nothing was announced for it");
    assert_eq!(stacks.take_new()[0].1.user, Half::Inline([100, 200].into()));
}

#[test]
fn unwound_frames_replace_those_by_frame_pointers_and_equal_ones_are_one_stack() {
    let mut stacks = Stacks::default();
    let unwound = |stacks: &mut Stacks, seq, addresses: &[u64]| {
        let header = WireUserStack { cpu: 1, seq, ..Default::default() };
        stacks.announce_unwound(&header, Frames { addresses: addresses.to_vec(), certain: 1 });
    };
    unwound(&mut stacks, 5, &[100, 200]);
    unwound(&mut stacks, 6, &[100, 200]);
    let of = |seq, user| StackRef { event: (1, seq), ..at(0, stack::NONE, user) };
    let first = stacks.id(&of(5, 7));
    assert_eq!(stacks.id(&of(6, 8)), first, "whatever the frame pointers led to");
    assert_ne!(stacks.id(&of(7, 7)), first, "it was not copied");
    assert_eq!(stacks.take_new()[0].1.user, Half::Unwound([100, 200].into(), 1));
}

#[test]
fn stacks_whose_copy_did_not_come_are_counted() {
    let mut stacks = Stacks { unwinds: true, ..Stacks::default() };
    let header = WireUserStack { cpu: 1, seq: 5, ..Default::default() };
    stacks.announce_unwound(&header, Frames { addresses: vec![100, 200], certain: 2 });
    let of = |seq, user, copied| StackRef { event: (1, seq), copied, ..at(0, stack::NONE, user) };
    stacks.id(&of(5, 7, true));
    assert_eq!(stacks.not_unwound, 0);
    stacks.id(&of(6, stack::ABSENT, true));
    stacks.id(&of(7, 7, false));
    assert_eq!(stacks.not_unwound, 0, "there is no user stack, or it is never copied");
    stacks.id(&of(8, 7, true));
    assert_eq!(stacks.not_unwound, 1);
    stacks.unwinds = false;
    stacks.id(&of(9, 7, true));
    assert_eq!(stacks.not_unwound, 1, "nothing is unwound");
}

#[test]
fn frames_whose_event_never_came_are_forgotten_and_those_that_wait_for_theirs_are_not() {
    let mut stacks = Stacks::default();
    let announce = |stacks: &mut Stacks, ts_ns, seq| {
        stacks.announce(&WireStack { ts_ns, ..inline(0, seq, true, &[100]) });
    };
    for seq in 0..MAX_ANNOUNCED as u32 {
        announce(&mut stacks, 0, seq);
    }
    announce(&mut stacks, MAX_AGE_NS, u32::MAX - 1);
    announce(&mut stacks, MAX_AGE_NS, u32::MAX);
    assert_eq!(stacks.announced.len(), 2);
    let at = StackRef { event: (0, u32::MAX - 1), ..at(0, stack::NONE, stack::INLINE) };
    assert!(stacks.id(&at).is_some());
}

#[test]
fn the_same_calls_are_one_stack_in_a_process_and_another_one_in_the_next() {
    let mut stacks = Stacks::default();
    let mut id = |process, frames: &[u64]| stacks.id_of_calls((ProcessKey(process), 10), frames.into());
    assert_eq!(id(0, &[7, 8]), id(0, &[7, 8]));
    assert_ne!(id(0, &[7, 8]), id(1, &[7, 8]));
    assert_ne!(id(0, &[7, 8]), id(0, &[7]));
    assert_eq!(stacks.take_new().len(), 3);
}

#[test]
fn the_caller_that_the_frame_pointers_miss_stands_after_the_leaf() {
    let raw = RawStack { process: None, kernel: Half::Absent, user: Half::Map(1), caller: 20 };
    assert_eq!(raw.with_caller(vec![10, 30]), [10, 20, 30]);
    assert_eq!(raw.with_caller(vec![10, 20, 30]), [10, 20, 30]);
    assert_eq!(raw.with_caller(vec![10]), [10, 20]);
    assert_eq!(RawStack { caller: 0, ..raw }.with_caller(vec![10, 30]), [10, 30]);
}

#[test]
fn a_stack_that_is_known_by_its_number_is_the_same_as_one_that_was_walked() {
    let mut stacks = Stacks::default();
    let header = |seq, tgid, ts_ns| WireUserStack {
        cpu: 1,
        seq,
        incarnation: Incarnation { tgid, ..Incarnation::default() },
        ts_ns,
        ..WireUserStack::default()
    };
    let frames = Frames { addresses: vec![100, 200], certain: 1 };
    let known = stacks.announce_unwound(&header(5, 10, 50), frames.clone());
    stacks.announce_known(&header(6, 10, 60), known);
    stacks.announce_known(&header(7, 10, 70), None);
    let of = |seq| StackRef { event: (1, seq), ..at(0, 3, 8) };
    let first = stacks.id(&of(5));
    assert_eq!(stacks.id(&of(6)), first);
    assert_ne!(stacks.id(&of(7)), first, "it has no frames but those by frame pointers");

    stacks.announce_known(&header(8, 10, 80), known);
    stacks.announce_known(&header(9, 10, 90), known);
    stacks.announce_known(&header(10, 11, 90), known);
    stacks.announce_unwound(&header(11, 10, 90), frames);
    stacks.forget_known_since(10, 85);
    let unwound = [8, 9, 10, 11].map(|seq| stacks.id(&of(seq)) == first);
    assert_eq!(unwound, [true, false, true, true]);
}

#[test]
fn a_stack_that_a_program_recognized_is_the_same_as_one_that_was_walked() {
    let mut stacks = Stacks::default();
    let header = WireUserStack { cpu: 1, seq: 5, ..WireUserStack::default() };
    let frames = Frames { addresses: vec![100, 200], certain: 1 };
    let UnwoundId(number) = stacks.announce_unwound(&header, frames).unwrap();
    let of = |seq, user| StackRef { event: (1, seq), ..at(0, 3, user) };
    let first = stacks.id(&of(5, 8));
    assert_eq!(stacks.id(&of(6, stack::unwound(number))), first);
    assert_eq!(stacks.id(&of(7, stack::unwound(number))), first, "each event has its number, not a copy");
    let without = stacks.id(&of(8, stack::ABSENT));
    assert_eq!(stacks.id(&of(9, stack::unwound(number + 1))), without, "no stack has this number");
    assert_eq!(stacks.id(&of(9, i32::MIN)), without);
}

#[test]
fn a_stack_whose_frames_are_forgotten_is_counted_and_walked_again() {
    let mut stacks = Stacks { unwinds: true, ..Stacks::default() };
    let header = |seq| WireUserStack { cpu: 1, seq, ..WireUserStack::default() };
    let frames = |number| Frames { addresses: vec![number, 200], certain: 1 };
    let first = stacks.announce_unwound(&header(0), frames(0)).unwrap();
    assert!(stacks.announce_known(&header(1), Some(first)));
    for number in 1..=2 * MAX_UNWOUND as u32 {
        stacks.announce_unwound(&header(number), frames(number.into()));
    }
    assert!(!stacks.announce_known(&header(1), Some(first)), "it is to be walked again");
    let of = |seq, user| StackRef { event: (2, seq), ..at(0, 3, user) };
    let without = stacks.id(&of(2, stack::ABSENT));
    assert!(!stacks.take_misses());
    assert_eq!(stacks.id(&of(2, stack::unwound(first.0))), without, "the kernel half is known");
    assert_eq!((stacks.not_unwound, stacks.take_misses(), stacks.take_misses()), (1, true, false));
    let again = stacks.announce_unwound(&header(3), frames(0)).unwrap();
    assert_ne!(stacks.id(&of(3, stack::unwound(again.0))), without);
}

#[test]
fn inline_frames_that_find_no_room_are_counted_until_older_ones_are_dropped() {
    let mut stacks = Stacks::default();
    for seq in 0..MAX_ANNOUNCED as u32 + 3 {
        stacks.announce(&inline(0, seq, true, &[1]));
    }
    assert_eq!((stacks.announced.len(), stacks.not_announced), (MAX_ANNOUNCED, 3));
    stacks.announce(&WireStack { ts_ns: MAX_AGE_NS, ..inline(1, 0, true, &[2]) });
    assert_eq!((stacks.announced.len(), stacks.not_announced), (1, 3));
}

proptest! {
    #[test]
    fn the_value_for_an_unwound_stack_leads_back_to_its_number_and_is_none_of_the_others(number: u32) {
        let value = stack::unwound(number);
        prop_assert_eq!(stack::unwound_number(value), (value != stack::LOST).then_some(number));
        prop_assert!(number > 1 << 30 || value != stack::LOST);
        for other in [0, 1, i32::MAX, stack::NONE, stack::ABSENT, stack::INLINE, stack::LOST] {
            prop_assert_eq!(stack::unwound_number(other), None);
        }
    }
}
