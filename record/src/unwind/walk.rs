//! Unwinds a copy of the top of a stack. In: registers, bytes of the stack, and the rule for each address. Out: return addresses,
//! leaf first, and how many of them are certain. No input or output.

use super::table::{Cfa, Rule, SavedBp};

/// Maximum number of frames.
const MAX_FRAMES: usize = trace_format::wire::MAX_FRAMES;

/// The registers that unwinding needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Registers {
    pub(super) ip: u64,
    pub(super) sp: u64,
    pub(super) bp: u64,
}

/// A copy of the top of a stack.
#[derive(Clone, Copy, Debug)]
pub(super) struct StackCopy<'a> {
    /// The address of the first byte.
    pub(super) start: u64,
    pub(super) bytes: &'a [u8],
}

impl StackCopy<'_> {
    fn read(&self, address: u64) -> Option<u64> {
        let at = usize::try_from(address.checked_sub(self.start)?).ok()?;
        let bytes = self.bytes.get(at..at.checked_add(8)?)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }
}

/// The knowledge about the code at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    /// A file with unwind tables.
    Known(Rule),
    /// Code without unwind tables.
    Unknown,
    /// The address is not one of code.
    Not,
}

/// An unwound stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Frames {
    /// Addresses, leaf first.
    pub(crate) addresses: Vec<u64>,
    /// Number of frames from the leaf on that are certain. The others are guesses by frame pointers. A leaf whose caller is
    /// missing is not certain: whoever looks for the site would take it.
    pub(crate) certain: usize,
}

/// Unwinds a stack. `by_pointers` is the same stack as the kernel walks it by frame pointers, which continues where the copy
/// ends. `code` is asked with the address of an instruction: that of the call in a caller.
pub(super) fn unwind(
    registers: Registers,
    stack: StackCopy<'_>,
    by_pointers: &[u64],
    mut code: impl FnMut(u64) -> Code,
) -> Frames {
    let mut frames = walk(registers, stack, by_pointers, &mut code);
    if frames.addresses.len() == 1 && code(registers.ip) != Code::Known(Rule::End) {
        frames.certain = 0;
    }
    frames
}

fn walk(
    registers: Registers,
    stack: StackCopy<'_>,
    by_pointers: &[u64],
    code: &mut impl FnMut(u64) -> Code,
) -> Frames {
    let mut at = registers;
    let mut frames = Frames::default();
    // The address of the leaf, and of code that a signal interrupted, is that of an instruction.
    let mut is_exact = true;
    let mut is_certain = true;
    while frames.addresses.len() < MAX_FRAMES {
        let found = code(at.ip.wrapping_sub(u64::from(!is_exact)));
        if at.ip == 0 || found == Code::Not && !(is_exact && frames.addresses.is_empty()) {
            return frames;
        }
        frames.addresses.push(at.ip);
        frames.certain += usize::from(is_certain);
        let rule = match found {
            Code::Known(Rule::End) => return frames,
            Code::Known(Rule::None) | Code::Unknown | Code::Not => {
                is_certain = false;
                Rule::FRAME_POINTER
            }
            Code::Known(rule) => rule,
        };
        let Some(caller) = caller(at, rule, &stack) else {
            if by_pointers.len() > 1 {
                join(&mut frames, by_pointers, is_certain, code);
            }
            return frames;
        };
        // Stacks grow downwards.
        if caller.sp <= at.sp && rule != Rule::Signal {
            return frames;
        }
        at = caller;
        is_exact = rule == Rule::Signal;
    }
    frames
}

/// Returns the registers of the caller; `None` if they are not in the copy.
fn caller(at: Registers, rule: Rule, stack: &StackCopy<'_>) -> Option<Registers> {
    let plus = |base: u64, offset: i32| base.wrapping_add_signed(i64::from(offset));
    let (cfa, saved) = match rule {
        Rule::Signal => {
            // `struct ucontext` (`arch/x86/include/uapi/asm/sigcontext.h`).
            let [bp, sp, ip] = [120, 160, 168].map(|offset| stack.read(plus(at.sp, offset)));
            return Some(Registers { ip: ip?, sp: sp?, bp: bp? });
        }
        Rule::Frame(cfa, saved) => (cfa, saved),
        Rule::None | Rule::End => return None,
    };
    let cfa = match cfa {
        Cfa::Sp(offset) => plus(at.sp, offset),
        Cfa::Bp(offset) => plus(at.bp, offset),
        Cfa::Plt(from) => plus(at.sp, if at.ip & 15 >= u64::from(from) { 16 } else { 8 }),
        Cfa::AtSp(offset) => stack.read(plus(at.sp, offset))?,
        Cfa::AtBp(offset) => stack.read(plus(at.bp, offset))?,
    };
    let ip = stack.read(cfa.wrapping_sub(8))?;
    let bp = match saved {
        SavedBp::Same | SavedBp::Unknown => at.bp,
        SavedBp::AtCfa(offset) => stack.read(plus(cfa, offset))?,
        SavedBp::AtFrame => stack.read(plus(cfa, -16))?,
        SavedBp::AtBp(offset) => stack.read(plus(at.bp, offset))?,
    };
    Some(Registers { ip, sp: cfa, bp })
}

/// Continues with the frames that the kernel found by frame pointers, from the last unwound frame on. They are certain as long
/// as each function keeps a frame pointer.
fn join(frames: &mut Frames, by_pointers: &[u64], mut is_certain: bool, code: &mut impl FnMut(u64) -> Code) {
    let Some(&last) = frames.addresses.last() else { return };
    // A recursive function occurs several times: the one whose callees agree most is the same frame.
    let agreeing = |&at: &usize| {
        let (unwound, walked) = (frames.addresses.iter().rev(), by_pointers[..=at].iter().rev());
        unwound.zip(walked).take_while(|(a, b)| a == b).count()
    };
    let meets = (0..by_pointers.len()).filter(|&at| by_pointers[at] == last);
    let Some(meeting) = meets.rev().max_by_key(agreeing) else { return };
    let mut callee = last;
    let mut is_leaf = frames.addresses.len() == 1;
    for &address in &by_pointers[meeting + 1..] {
        if frames.addresses.len() >= MAX_FRAMES {
            return;
        }
        let found = code(callee.wrapping_sub(u64::from(!is_leaf)));
        is_certain &= matches!(found, Code::Known(rule) if rule.keeps_frame_pointer());
        if code(address.wrapping_sub(1)) == Code::Not {
            return;
        }
        frames.addresses.push(address);
        frames.certain += usize::from(is_certain);
        (callee, is_leaf) = (address, false);
    }
}

#[cfg(test)]
mod tests {
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
        unwind(Registers { ip: 0x100, sp: START, bp }, copy, by_pointers, code)
    }

    /// The code of the tests: a leaf without a frame pointer (0x100), a function with one (0x200), a main function (0x300).
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
            let frames = unwind(Registers { ip: 3, sp: start, bp }, copy, &by_pointers, code);
            prop_assert!(frames.addresses.len() <= MAX_FRAMES && frames.certain <= frames.addresses.len());
        }
    }
}
