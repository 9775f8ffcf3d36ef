//! Unwinds a copy of the top of a stack, by the rule for the code at each address: finds the return
//! addresses, leaf first, how many of them are certain, and the values that decided that. No input or output.

use super::table::{Cfa, Rule, SavedBp};

const MAX_FRAMES: usize = trace_format::wire::MAX_FRAMES;

/// The registers that unwinding needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Registers {
    pub(super) ip: u64,
    pub(super) sp: u64,
    pub(super) bp: u64,
}

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

    /// Returns the offset of a word that was read.
    fn offset(&self, address: u64) -> u32 {
        address.wrapping_sub(self.start) as u32
    }
}

/// The knowledge about the code at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    /// A file with unwind tables.
    Known(Rule),
    /// Code without unwind tables.
    Unknown,
    Not,
}

/// An unwound stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Frames {
    /// Addresses, leaf first.
    pub(crate) addresses: Vec<u64>,
    /// Number of frames from the leaf on that are certain. The others are guesses by frame pointers. A leaf
    /// whose caller is missing is not certain: whoever looks for the site would take it.
    pub(crate) certain: usize,
}

/// The number of the frames of a stack: equal frames have the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct UnwoundId(pub(crate) u32);

/// The values that decided the frames of a stack, besides its instruction and stack pointer, its length, and
/// the code at its addresses: a stack that has the same ones has the same frames. If `has_pointers` is false,
/// any length from `bytes` on will do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Dependencies {
    /// Words of the copy, by offset.
    pub(super) words: Vec<(u32, u64)>,
    /// Whether the frame pointer in its register is one of them.
    pub(super) has_bp: bool,
    /// Whether the frames by frame pointers are, and the length of the copy, because the walk came to its
    /// end.
    pub(super) has_pointers: bool,
    /// Number of bytes of the copy up to the last word that was read.
    pub(super) bytes: u32,
}

/// The registers of a frame. The frame pointer counts as used once something is found by it: code without
/// frame pointers keeps anything in that register.
#[derive(Clone, Copy, Debug)]
struct Frame {
    ip: u64,
    sp: u64,
    bp: u64,
    /// The address of the word that the frame pointer was read from; `None` if it is in its register.
    bp_word: Option<u64>,
}

impl Frame {
    fn use_bp(&self, stack: &StackCopy<'_>, used: &mut Dependencies) -> u64 {
        match self.bp_word {
            Some(address) => used.words.push((stack.offset(address), self.bp)),
            None => used.has_bp = true,
        }
        self.bp
    }
}

/// Unwinds a stack. `by_pointers` is the same stack as the kernel walks it by frame pointers, which continues
/// where the copy ends. `code` is asked with the address of an instruction: in a caller, the address of the
/// call.
pub(super) fn unwind(
    registers: Registers,
    stack: StackCopy<'_>,
    by_pointers: &[u64],
    mut code: impl FnMut(u64) -> Code,
) -> (Frames, Dependencies) {
    let mut used = Dependencies::default();
    let mut frames = walk(registers, stack, by_pointers, &mut code, &mut used);
    if frames.addresses.len() == 1 && code(registers.ip) != Code::Known(Rule::End) {
        frames.certain = 0;
    }
    (frames, used)
}

fn walk(
    Registers { ip, sp, bp }: Registers,
    stack: StackCopy<'_>,
    by_pointers: &[u64],
    code: &mut impl FnMut(u64) -> Code,
    used: &mut Dependencies,
) -> Frames {
    let mut at = Frame { ip, sp, bp, bp_word: None };
    let mut frames = Frames::default();
    // The address of the leaf, and of code that a signal interrupted, is the address of an instruction.
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
        let Some(caller) = caller(&at, rule, &stack, used) else {
            used.has_pointers = true;
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
fn caller(at: &Frame, rule: Rule, stack: &StackCopy<'_>, used: &mut Dependencies) -> Option<Frame> {
    let plus = |base: u64, offset: i32| base.wrapping_add_signed(i64::from(offset));
    // The frame pointer of a caller is decisive only if it is used later, but it must be there.
    let restore = |address: u64, used: &mut Dependencies| {
        let word = stack.read(address)?;
        used.bytes = used.bytes.max(stack.offset(address) + 8);
        Some(word)
    };
    let read = |address: u64, used: &mut Dependencies| {
        let word = restore(address, used)?;
        used.words.push((stack.offset(address), word));
        Some(word)
    };
    let (cfa, saved) = match rule {
        Rule::Signal => {
            // `struct ucontext` (`arch/x86/include/uapi/asm/sigcontext.h`).
            let [bp_word, sp, ip] = [120, 160, 168].map(|offset| plus(at.sp, offset));
            let (ip, sp) = (read(ip, used)?, read(sp, used)?);
            return Some(Frame { ip, sp, bp: restore(bp_word, used)?, bp_word: Some(bp_word) });
        }
        Rule::Frame(cfa, saved) => (cfa, saved),
        Rule::None | Rule::End => return None,
    };
    let cfa = match cfa {
        Cfa::Sp(offset) => plus(at.sp, offset),
        Cfa::Bp(offset) => plus(at.use_bp(stack, used), offset),
        Cfa::Plt(from) => plus(at.sp, if at.ip & 15 >= u64::from(from) { 16 } else { 8 }),
        Cfa::AtSp(offset) => read(plus(at.sp, offset), used)?,
        Cfa::AtBp(offset) => read(plus(at.use_bp(stack, used), offset), used)?,
    };
    let ip = read(cfa.wrapping_sub(8), used)?;
    let bp_word = match saved {
        SavedBp::Same | SavedBp::Unknown => return Some(Frame { ip, sp: cfa, ..*at }),
        SavedBp::AtCfa(offset) => plus(cfa, offset),
        SavedBp::AtFrame => plus(cfa, -16),
        SavedBp::AtBp(offset) => plus(at.use_bp(stack, used), offset),
    };
    Some(Frame { ip, sp: cfa, bp: restore(bp_word, used)?, bp_word: Some(bp_word) })
}

/// Continues with the frames that the kernel found by frame pointers, from the last unwound frame on. They
/// are certain as long as each function keeps a frame pointer.
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
mod tests;
