//! Copies of a process that maps files and runs other programs: a walk that is known must find the same as a
//! walk of the copy itself.

use proptest::prelude::*;

use super::{
    super::{
        table::{Cfa, Rule, SavedBp},
        walk::{Code, Registers, StackCopy, unwind},
    },
    *,
};
use crate::{compose::stacks::Stacks, names::unwind::Frames};

mod programs;

const TGID: u32 = 7;
const SP: u64 = 0x1000;

/// A copy, and the code of its process.
#[derive(Clone, Debug)]
struct Sample {
    header: WireUserStack,
    bytes: Vec<u8>,
    /// Changes of the code before it.
    code: u32,
}

impl Sample {
    fn new(ts_ns: u64, code: u32, (words, bp, user_stack): (Vec<u64>, u64, i32)) -> Self {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let header = WireUserStack {
            incarnation: Incarnation { started_ns: 1, tgid: TGID, ..Incarnation::default() },
            ts_ns,
            ip: 3,
            sp: SP,
            bp,
            user_stack,
            bytes: bytes.len() as u32,
            ..Default::default()
        };
        Self { header, bytes, code }
    }

    fn walk(&self) -> (Frames, Dependencies) {
        let WireUserStack { ip, sp, bp, user_stack, .. } = self.header;
        let pointers = [3, user_stack as u64, 5];
        let code = |address: u64| match address.wrapping_add(u64::from(self.code)) % 7 {
            0 => Code::Known(Rule::Frame(Cfa::Sp(16), SavedBp::Same)),
            1 => Code::Known(Rule::FRAME_POINTER),
            2 => Code::Known(Rule::End),
            3 => Code::Known(Rule::Frame(Cfa::Sp(24), SavedBp::AtCfa(-16))),
            4 => Code::Known(Rule::Frame(Cfa::AtSp(8), SavedBp::Unknown)),
            5 => Code::Unknown,
            _ => Code::Not,
        };
        unwind(Registers { ip, sp, bp }, StackCopy { start: sp, bytes: &self.bytes }, &pointers, code)
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// A copy is drained, this long after it was made.
    Copy((Vec<u64>, u64, i32), u64),
    /// The thread walks what was drained.
    Walk,
    Answer,
    /// The thread finds other mappings.
    Remap,
    /// The process runs another program, and this is drained.
    Exec,
}

fn any_step() -> impl Strategy<Value = Step> {
    let word = prop_oneof![0..20_u64, (0..12_u64).prop_map(|at| SP + 8 * at)];
    let copy = (prop::collection::vec(word.clone(), 6), word, 0..3_i32);
    prop_oneof![
        12 => (copy, prop_oneof![3 => Just(0), 1 => 0..30_u64]).prop_map(|(copy, late)| Step::Copy(copy, late)),
        3 => Just(Step::Walk),
        3 => Just(Step::Answer),
        1 => Just(Step::Remap),
        1 => Just(Step::Exec),
    ]
}

proptest! {
    #[test]
    fn a_known_walk_finds_what_a_walk_of_the_copy_itself_would_find(
        pool in prop::collection::vec(any_step(), 1..8),
        picks in prop::collection::vec((0..8_usize, any::<bool>(), any_step()), 0..120),
    ) {
        let (mut memo, mut stacks) = (Memo::default(), Stacks::default());
        // Programs by their start, each with the changes of its code; what the thread has to do, and its
        // answers.
        let mut programs = vec![(0_u64, 0_u32)];
        let (mut requests, mut answers) = (Vec::<Sample>::new(), std::collections::VecDeque::new());
        let (mut now, mut changes, mut walked, mut answered) = (0_u64, 0_u32, 0_u64, 0_u64);
        for (pick, again, other) in picks {
            now += 10;
            match if again { pool[pick % pool.len()].clone() } else { other } {
                Step::Copy(copy, late) => {
                    let ts_ns = now.saturating_sub(late);
                    let &(_, code) = programs.iter().rfind(|(since, _)| *since <= ts_ns).unwrap();
                    let copy = Sample::new(ts_ns, code, copy);
                    match memo.find(&copy.header, &copy.bytes) {
                        Some(found) => prop_assert_eq!(stacks.announce_unwound(&copy.header, copy.walk().0), found),
                        None => requests.push(copy),
                    }
                }
                Step::Walk => {
                    let walks: Vec<_> = requests.drain(..).map(|copy| (copy.walk(), copy, changes)).collect();
                    answers.push_back((walked, walks));
                    walked += 1;
                }
                Step::Answer => {
                    let Some((round, walks)) = answers.pop_front() else { continue };
                    for ((frames, used), copy, changes) in walks {
                        let found = stacks.announce_unwound(&copy.header, frames);
                        memo.add(&copy.header, used, Basis { round, changes, is_known: true }, found);
                    }
                    answered = round + 1;
                }
                Step::Remap => {
                    // All that was walked before is answered: what a walk finds depends on when the mappings
                    // are read.
                    if answered < walked || !requests.is_empty() {
                        continue;
                    }
                    changes += 1;
                    programs.last_mut().unwrap().1 += 1;
                    let copy = Sample::new(now, programs.last().unwrap().1, (vec![1; 6], 1, 1));
                    let (frames, used) = copy.walk();
                    let found = stacks.announce_unwound(&copy.header, frames);
                    memo.add(&copy.header, used, Basis { round: walked, changes, is_known: true }, found);
                    (walked, answered) = (walked + 1, answered + 1);
                }
                Step::Exec => {
                    let code = programs.last().unwrap().1 + 1;
                    programs.push((now, code));
                    memo.end_incarnation(TGID, now, walked);
                    changes += 1;
                }
            }
        }
        let all: usize = memo.walks.values().flatten().map(Walk::values).sum();
        prop_assert_eq!((memo.values, memo.processes.values().map(|process| process.values).sum()), (all, all));
    }
}

fn copy(ts_ns: u64) -> Sample {
    Sample::new(ts_ns, 4, (vec![9, 3, 9, 2, 9, 9], 0, 0))
}

fn add(memo: &mut Memo, stacks: &mut Stacks, copy: &Sample, is_known: bool) {
    let (frames, used) = copy.walk();
    let found = stacks.announce_unwound(&copy.header, frames);
    memo.add(&copy.header, used, Basis { round: 0, changes: 0, is_known }, found);
}

#[test]
fn a_walk_through_unknown_code_is_done_again_after_a_while() {
    let (mut memo, mut stacks) = (Memo::default(), Stacks::default());
    add(&mut memo, &mut stacks, &copy(50), false);
    let is_known = |memo: &mut Memo, ts_ns| memo.find(&copy(ts_ns).header, &copy(ts_ns).bytes).is_some();
    assert!(is_known(&mut memo, 50 + MAX_AGE_NS));
    assert!(!is_known(&mut memo, 51 + MAX_AGE_NS));
    add(&mut memo, &mut stacks, &copy(51 + MAX_AGE_NS), true);
    assert!(is_known(&mut memo, u64::MAX) && memo.walks.values().flatten().count() == 1);
}

#[test]
fn the_memory_of_walks_is_bounded() {
    let (mut memo, mut stacks) = (Memo::default(), Stacks::default());
    let most = MAX_VALUES / VALUES_OF_WALK;
    for sp in 0..most as u64 {
        let mut copy = copy(50);
        copy.header.sp = SP + 8 * sp;
        add(&mut memo, &mut stacks, &copy, true);
        assert!(memo.values <= MAX_VALUES + 100);
    }
    assert!((1..most).contains(&memo.walks.len()), "some were forgotten, and later ones are known");
    for word in 0..20 {
        let copy = Sample::new(50, 4, (vec![9, 30 + word, 9, 2, 9, 9], 0, 0));
        add(&mut memo, &mut stacks, &copy, true);
    }
    assert!(memo.walks[&Start::of(&copy(50).header)].len() <= MAX_VARIANTS);
}
