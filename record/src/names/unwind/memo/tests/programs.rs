//! The stacks that programs recognize, while executions of programs become known late.

use super::*;
use crate::kernel::known_stacks::tests::Model;

#[derive(Clone, Debug)]
enum Step {
    /// A stack is taken: recognized, or copied and drained.
    Take((Vec<u64>, u64, i32)),
    /// The thread walks what was drained, as far as it knows the programs.
    Walk,
    /// Its answer comes, and the round ends.
    Answer,
    /// The process runs another program.
    Exec,
    Drain,
}

fn any_step() -> impl Strategy<Value = Step> {
    let word = prop_oneof![0..20_u64, (0..12_u64).prop_map(|at| SP + 8 * at)];
    let copy = (prop::collection::vec(word.clone(), 6), word, 0..3_i32);
    prop_oneof![
        12 => copy.prop_map(Step::Take),
        3 => Just(Step::Walk),
        3 => Just(Step::Answer),
        1 => Just(Step::Exec),
        2 => Just(Step::Drain),
    ]
}

proptest! {
    #[test]
    fn a_recognized_stack_has_the_frames_of_the_program_that_ran(
        pool in prop::collection::vec(any_step(), 1..6),
        picks in prop::collection::vec((0..8_usize, prop::bool::weighted(0.8), any_step()), 0..200),
    ) {
        let model = Model::new(100);
        let mut memo = Memo::new(Some(KnownStacks::new(Box::new(model.clone()), 1000, 48)));
        let mut stacks = Stacks::default();
        // The starts of programs, and how many of them are known.
        let (mut programs, mut known) = (vec![0_u64], 1);
        let (mut requests, mut answers) = (Vec::<Sample>::new(), std::collections::VecDeque::new());
        let (mut now, mut walked) = (0_u64, 0_u64);
        for (pick, again, other) in picks {
            now += 10;
            match if again { pool[pick % pool.len()].clone() } else { other } {
                Step::Take(copy) => {
                    let running = programs.len() as u32;
                    let mut copy = Sample::new(now, running, copy);
                    copy.header.incarnation.execs = running.into();
                    let WireUserStack { incarnation, ip, sp, bp, user_stack, .. } = copy.header;
                    let top = KnownStackKey { incarnation, ip, sp, variant: 0, padding: 0 };
                    let recognized = model
                        .recognize(top, bp, &copy.bytes)
                        .filter(|(_, by_pointers)| [stack::NONE, user_stack].contains(by_pointers));
                    if let Some((found, _)) = recognized {
                        let walked = stacks.announce_unwound(&copy.header, copy.walk().0);
                        prop_assert_eq!(Some(found), walked.map(|id| stack::unwound(id.0)));
                    } else if memo.find(&copy.header, &copy.bytes).is_none() {
                        requests.push(copy);
                    }
                }
                Step::Walk => {
                    // It takes a program that it does not know of for the one before.
                    let walk = |copy: Sample| {
                        let as_known = Sample { code: copy.code.min(known as u32), ..copy.clone() };
                        (as_known.walk(), copy)
                    };
                    let walks: Vec<_> = requests.drain(..).map(walk).collect();
                    answers.push_back((walked, walks));
                    walked += 1;
                }
                Step::Answer => {
                    if let Some((round, walks)) = answers.pop_front() {
                        for ((frames, used), copy) in walks {
                            let found = stacks.announce_unwound(&copy.header, frames);
                            let basis = Basis { round, changes: 0, is_known: true };
                            memo.add(&copy.header, used, basis, found);
                        }
                    }
                    memo.tell(programs.get(known).map_or(now, |since| since - 1));
                }
                Step::Exec => programs.push(now),
                Step::Drain => {
                    if let Some(&since) = programs.get(known) {
                        known += 1;
                        memo.end_incarnation(TGID, since, walked);
                    }
                }
            }
        }
    }
}

/// A copy of a stack that is walked, and then found so often that programs are told.
fn is_recognized(change: impl Fn(&mut Sample), is_known: bool) -> bool {
    let model = Model::new(8);
    let mut memo = Memo::new(Some(KnownStacks::new(Box::new(model.clone()), 8, 48)));
    let mut stacks = Stacks::default();
    let mut copy = copy(50);
    change(&mut copy);
    add(&mut memo, &mut stacks, &copy, is_known);
    for _ in 0..FINDINGS.0 {
        assert!(memo.find(&copy.header, &copy.bytes).is_some());
    }
    memo.tell(100);
    let WireUserStack { incarnation, ip, sp, bp, .. } = copy.header;
    model.recognize(KnownStackKey { incarnation, ip, sp, variant: 0, padding: 0 }, bp, &copy.bytes).is_some()
}

#[test]
fn programs_are_told_of_walks_through_known_code_of_processes_whose_start_is_known() {
    assert!(is_recognized(|_| {}, true));
    assert!(!is_recognized(|_| {}, false));
    assert!(!is_recognized(|copy| copy.header.incarnation.started_ns = 0, true));
}

#[test]
fn a_walk_to_the_end_of_a_copy_is_for_copies_of_that_length_and_numbered_stacks_by_frame_pointers() {
    // The walk ends at its first word.
    let ends = |bytes: usize, user_stack| {
        is_recognized(
            |copy| {
                (copy.header.bytes, copy.header.user_stack) = (bytes as u32, user_stack);
                copy.bytes.truncate(bytes);
            },
            true,
        )
    };
    assert!(ends(48, 3));
    assert!(!ends(8, 3), "programs copy 48 bytes, so this stack ends there");
    assert!(is_recognized(|copy| copy.header.user_stack = stack::INLINE, true), "it does not matter");
}
