//! The frames of stacks by rules that are written down here.

use proptest::prelude::*;

use super::*;

const START: u64 = 0x7fff_0000;

/// A stack with these words at its top.
fn stack(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn run(bp: u64, words: &[u64], by_pointers: &[u64], code: impl FnMut(u64) -> Code) -> Frames {
    let bytes = stack(words);
    let copy = StackCopy { start: START, bytes: &bytes };
    unwind(Registers { ip: 0x100, sp: START, bp }, copy, by_pointers, code).0
}

/// The code of the tests: a leaf without a frame pointer (0x100), a function with one (0x200), a main
/// function (0x300).
fn code(address: u64) -> Code {
    match address & !0xff {
        0x100 => Code::Known(Rule::Frame(Cfa::Sp(16), SavedBp::Same)),
        0x200 => Code::Known(Rule::FRAME_POINTER),
        0x300 => Code::Known(Rule::End),
        0x400 => Code::Unknown,
        0x500 => Code::Known(Rule::Signal),
        _ => Code::Not,
    }
}

#[test]
fn the_caller_of_a_leaf_without_a_frame_pointer_is_found() {
    let words = [9, 0x210, 9, START + 48, 0x310, 9];
    assert_eq!(
        run(START + 24, &words, &[], code),
        Frames { addresses: vec![0x100, 0x210, 0x310], certain: 3 }
    );
}

#[test]
fn the_kernels_walk_continues_where_the_copy_ends() {
    let words = [9, 0x210];
    let frames = run(START + 24, &words, &[0x100, 0x210, 0x220, 0x410, 0x310], code);
    assert_eq!(frames.addresses, [0x100, 0x210, 0x220, 0x410, 0x310]);
    assert_eq!(frames.certain, 4, "code without a table may not keep the frame pointer");
    let frames = run(START + 24, &words, &[0x100, 0x230, 0x310], code);
    assert_eq!(frames.addresses, [0x100, 0x210], "they do not meet");
}

#[test]
fn the_kernels_walk_is_certain_through_code_of_a_language_that_keeps_frame_pointers() {
    let code = |address| match address & !0xff {
        0x200 => Code::Known(Rule::Frame(Cfa::Sp(64), SavedBp::AtFrame)),
        // The frame pointer may serve another purpose there.
        0x400 => Code::Known(Rule::Frame(Cfa::Sp(64), SavedBp::AtCfa(-16))),
        _ => code(address),
    };
    let frames = run(START + 24, &[9, 0x210], &[0x100, 0x210, 0x220, 0x230, 0x410, 0x310], code);
    assert_eq!((frames.addresses.len(), frames.certain), (6, 5));
}

#[test]
fn callers_of_code_without_a_table_are_uncertain() {
    let words = [9, 0x410, START + 32, 0x210, START + 48, 0x310, 0, 0];
    let frames = run(START + 16, &words, &[], code);
    assert_eq!((frames.addresses, frames.certain), (vec![0x100, 0x410, 0x210, 0x310], 2));
}

#[test]
fn a_leaf_without_a_caller_is_uncertain() {
    let frames = |code: fn(u64) -> Code| run(0, &[], &[0x100], code);
    assert_eq!(frames(code), Frames { addresses: vec![0x100], certain: 0 });
    assert_eq!(frames(|_| Code::Not), Frames { addresses: vec![0x100], certain: 0 });
    assert_eq!(frames(|_| Code::Known(Rule::End)), Frames { addresses: vec![0x100], certain: 1 });
}

#[test]
fn registers_that_a_signal_saved_are_restored() {
    let mut words = [0; 40];
    words[1] = 0x510;
    // The context begins at the 3rd word.
    (words[2 + 15], words[2 + 20], words[2 + 21]) = (START, START + 256, 0x100);
    words[33] = 0x310;
    let frames = run(0, &words, &[], code);
    assert_eq!((frames.addresses, frames.certain), (vec![0x100, 0x510, 0x100, 0x310], 4));
}

#[test]
fn a_stack_that_does_not_grow_ends() {
    let code = |_| Code::Known(Rule::Frame(Cfa::Bp(8), SavedBp::Same));
    assert_eq!(run(START, &[0x100, 0x100], &[], code).addresses, [0x100, 0x100]);
}

fn any_rule() -> impl Strategy<Value = Code> {
    let offset = || prop_oneof![-64..64_i32, any::<i32>()];
    let cfa = prop_oneof![
        offset().prop_map(Cfa::Sp),
        offset().prop_map(Cfa::Bp),
        any::<u8>().prop_map(Cfa::Plt),
        offset().prop_map(Cfa::AtSp),
        offset().prop_map(Cfa::AtBp),
    ];
    let saved = prop_oneof![
        Just(SavedBp::Same),
        Just(SavedBp::AtFrame),
        Just(SavedBp::Unknown),
        offset().prop_map(SavedBp::AtCfa),
        offset().prop_map(SavedBp::AtBp),
    ];
    prop_oneof![
        8 => (cfa, saved).prop_map(|(cfa, saved)| Code::Known(Rule::Frame(cfa, saved))),
        1 => Just(Code::Known(Rule::Signal)),
        1 => Just(Code::Known(Rule::None)),
        1 => Just(Code::Known(Rule::End)),
        1 => Just(Code::Unknown),
        1 => Just(Code::Not),
    ]
}

proptest! {
    #[test]
    fn any_stack_and_any_rules_end(
        rules in prop::collection::vec(any_rule(), 1..20),
        words in prop::collection::vec(prop_oneof![0..20_u64, START..START + 400, any::<u64>()], 0..60),
        cut in 0..8_usize,
        start in prop_oneof![Just(START), any::<u64>()],
        bp in prop_oneof![START..START + 400, any::<u64>()],
        by_pointers in prop::collection::vec(0..20_u64, 0..20),
    ) {
        let bytes = stack(&words);
        let copy = StackCopy { start, bytes: &bytes[..bytes.len().saturating_sub(cut)] };
        let code = |address: u64| rules[(address % rules.len() as u64) as usize];
        let (frames, _) = unwind(Registers { ip: 3, sp: start, bp }, copy, &by_pointers, code);
        prop_assert!(frames.addresses.len() <= MAX_FRAMES && frames.certain <= frames.addresses.len());
    }

    /// Whatever else is on the stack and in the registers, and however much of it, the words that were used
    /// decide.
    #[test]
    fn a_stack_with_the_same_words_that_were_used_has_the_same_frames(
        rules in prop::collection::vec(any_rule(), 1..20),
        words in prop::collection::vec(prop_oneof![0..20_u64, START..START + 400, any::<u64>()], 0..60),
        others in prop::collection::vec(prop_oneof![0..20_u64, START..START + 400, any::<u64>()], 60),
        (bp, other_bp) in (START..START + 400, START..START + 400),
        (pointers, other_pointers) in (prop::collection::vec(0..20_u64, 0..20), prop::collection::vec(0..20_u64, 0..20)),
        other_length in 0..480_usize,
    ) {
        let code = |address: u64| rules[(address % rules.len() as u64) as usize];
        let run = |words: &[u64], bp, pointers: &[u64]| {
            let bytes = stack(words);
            unwind(Registers { ip: 3, sp: START, bp }, StackCopy { start: START, bytes: &bytes }, pointers, code)
        };
        let (frames, used) = run(&words, bp, &pointers);
        let mut other = stack(&others);
        other.truncate(if used.has_pointers { 8 * words.len() } else { other_length.max(used.bytes as usize) });
        for &(at, word) in &used.words {
            other[at as usize..][..8].copy_from_slice(&word.to_le_bytes());
        }
        let bp = if used.has_bp { bp } else { other_bp };
        let pointers = if used.has_pointers { &pointers } else { &other_pointers };
        let copy = StackCopy { start: START, bytes: &other };
        let again = unwind(Registers { ip: 3, sp: START, bp }, copy, pointers, code);
        prop_assert_eq!(again, (frames, used));
    }
}
