//! Stacks that the BPF programs recognize: the recorder unwound a copy of one, and tells the programs by
//! which values they recognize it, so that they report its number instead of another copy. They do not become
//! part of a trace.
//!
//! Programs look up a [`KnownStackKey`], which leads to the place of a [`KnownStack`] in an array. The
//! recorder does not write to a place again as long as a program may still read it, and a program checks that
//! the place has its key: the kernel reuses the memory of a removed key at once.

use crate::wire::{Incarnation, stack};

/// Number of stacks that are told apart by their words alone.
pub const VARIANTS: u32 = 4;
/// Maximum number of words that a stack is recognized by.
pub const MAX_WORDS: usize = 48;
/// Maximum number of bytes from the stack pointer on in which they are.
pub const MAX_BYTES: usize = 2048;

/// The registers of a stack that is recognized. 48 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct KnownStackKey {
    /// The program.
    pub incarnation: Incarnation,
    /// Instruction pointer at the entry to the kernel.
    pub ip: u64,
    /// Stack pointer at the entry to the kernel.
    pub sp: u64,
    /// Below [`VARIANTS`]. A variant exists only if those before it do.
    pub variant: u32,
    /// Zero.
    pub padding: u32,
}

/// The values that a stack is recognized by, besides its key.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownStack {
    /// The key.
    pub key: KnownStackKey,
    /// Frame pointer at the entry to the kernel.
    pub bp: u64,
    /// All bits if the frame pointer is one of the values, or none.
    pub bp_mask: u64,
    /// The stack as the kernel walks it by frame pointers: an id of the stack map or one of [`stack`].
    /// [`stack::NONE`] if it does not matter.
    pub by_pointers: i32,
    /// The value of an event's stack field, of [`stack::unwound`].
    pub stack: i32,
    /// Number of bytes from the stack pointer on that must be readable. At most [`MAX_BYTES`].
    pub bytes: u32,
    /// Number of words. At most [`MAX_WORDS`].
    pub count: u32,
    /// The position of each word: its offset from the stack pointer in bytes, divided by eight.
    pub positions: [u16; MAX_WORDS],
    /// The words.
    pub words: [u64; MAX_WORDS],
}

impl KnownStackKey {
    /// Returns 0 if the keys are equal.
    #[inline(always)]
    const fn differs_from(&self, other: &Self) -> u64 {
        let (own, others) = (&self.incarnation, &other.incarnation);
        let halves = own.tgid ^ others.tgid | self.variant ^ other.variant;
        own.started_ns ^ others.started_ns
            | own.execs ^ others.execs
            | self.ip ^ other.ip
            | self.sp ^ other.sp
            | halves as u64
    }
}

impl KnownStack {
    /// A place without a stack.
    pub const EMPTY: Self = Self {
        key: KnownStackKey {
            incarnation: Incarnation { started_ns: 0, execs: 0, tgid: 0, padding: 0 },
            ip: 0,
            sp: 0,
            variant: 0,
            padding: 0,
        },
        bp: 0,
        bp_mask: 0,
        by_pointers: stack::NONE,
        stack: stack::NONE,
        bytes: 0,
        count: 0,
        positions: [0; MAX_WORDS],
        words: [0; MAX_WORDS],
    };

    /// Whether this is the stack with these registers and words. `word` reads the word at a position. The
    /// stack by frame pointers is left to the caller.
    #[inline(always)]
    pub fn fits(&self, key: &KnownStackKey, bp: u64, word: impl Fn(u16) -> u64) -> bool {
        // Without branches: the verifier follows each way through the loop.
        let mut different = self.key.differs_from(key) | (self.bp ^ bp) & self.bp_mask;
        let mut index = 0;
        while index < MAX_WORDS && index < self.count as usize {
            different |= word(self.positions[index]) ^ self.words[index];
            index += 1;
        }
        different == 0
    }
}

const _: () = {
    assert!(size_of::<KnownStackKey>() == 48);
    assert!(size_of::<KnownStack>() == 48 + 32 + 10 * MAX_WORDS);
};
