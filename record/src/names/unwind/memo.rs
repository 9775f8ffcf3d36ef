//! The stacks that were unwound before, by the copy of the stack. A program waits at the same places again
//! and again, so most copies need no walk of their own. The BPF programs are told of walks that are found
//! again, so that they make no more such copies. An event of stress-ng costs 878 ns with it and 1,977 ns
//! without.
//!
//! A walk depends on values of the copy ([`Dependencies`]) and on the code at the addresses that it found.
//! When a process runs another program or is found to have other mappings, its walks are forgotten.

use rustc_hash::FxHashMap;
use trace_format::{
    known_stack::{KnownStack, KnownStackKey, MAX_BYTES, MAX_WORDS},
    wire::{Incarnation, WireUserStack, stack},
};

use super::walk::{Dependencies, UnwoundId};
use crate::kernel::known_stacks::{KnownStacks, is_comparable};

/// Maximum number of values that walks depend on, of 16 bytes each; beyond it, all walks are forgotten.
const MAX_VALUES: usize = 1 << 20;
/// Values that a walk takes besides the words of the stack.
const VALUES_OF_WALK: usize = 12;
/// Maximum number of walks from the same instruction and stack pointer.
const MAX_VARIANTS: usize = 8;
/// Time after which a walk through unknown code is done again. Mappings that do not cover an address are read
/// again about as often.
const MAX_AGE_NS: u64 = 250_000_000;
/// If more processes than this are known, those without walks that ended longer ago than [`MAX_LATE_NS`] are
/// dropped.
const MAX_PROCESSES: usize = 1 << 14;
/// Copies that find a walk, before the programs are told of it, and again before they are told once more:
/// until they know, some more copies are on their way, and they may not have had room for it.
const FINDINGS: (u32, u32) = (2, 256);
/// No copy comes later than this after it was made.
const MAX_LATE_NS: u64 = 10_000_000_000;

/// The walks of all processes.
#[derive(Debug, Default)]
pub(super) struct Memo {
    walks: FxHashMap<Start, Vec<Walk>>,
    /// Values of all walks.
    values: usize,
    processes: FxHashMap<u32, Process>,
    /// The stacks that the BPF programs recognize, if they can.
    programs: Option<KnownStacks>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Start {
    incarnation: Incarnation,
    bytes: u32,
    ip: u64,
    sp: u64,
}

#[derive(Debug)]
struct Walk {
    copied_ns: u64,
    /// By offset, each once.
    words: Box<[(u32, u64)]>,
    /// Number of bytes that the copy must have at least.
    needed: u32,
    bp: Option<u64>,
    user_stack: Option<i32>,
    /// The times of the copies that it is valid for.
    times_ns: std::ops::RangeInclusive<u64>,
    /// `None` if it found no frames.
    found: Option<UnwoundId>,
    /// Number of other copies that it was found for.
    findings: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Process {
    /// Values of its walks.
    values: usize,
    /// The start of its present program.
    since_ns: u64,
    /// The first round of copies that were walked knowing that.
    first_round: u64,
    /// The number of changes of its mappings that the walks are based on.
    changes: u32,
}

/// The circumstances of a walk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Basis {
    pub(super) round: u64,
    /// The number of changes of the process's mappings so far.
    pub(super) changes: u32,
    /// Whether the code at each of its addresses is known, or known not to be code.
    pub(super) is_known: bool,
}

impl Memo {
    /// Starts without walks. `programs` are told of those that are found again.
    pub(super) fn new(programs: Option<KnownStacks>) -> Self {
        Self { programs, ..Self::default() }
    }

    /// Returns what a walk of this copy would find, if it is known.
    pub(super) fn find(&mut self, header: &WireUserStack, bytes: &[u8]) -> Option<Option<UnwoundId>> {
        let start = Start::of(header);
        let walks = self.walks.get_mut(&start)?;
        let walk = walks.iter_mut().find(|walk| walk.fits(header, bytes))?;
        walk.findings = walk.findings.wrapping_add(1);
        let (first, again) = FINDINGS;
        if (walk.findings == first || walk.findings.is_multiple_of(again))
            && let Some(programs) = &mut self.programs
            && let Some(stack) = walk.known_stack(&start, programs.copied)
        {
            programs.add(walk.copied_ns, Box::new(stack));
        }
        Some(walk.found)
    }

    /// Lets the programs recognize no stack until its walk is found again.
    pub(super) fn forget_known(&mut self) {
        if let Some(programs) = &mut self.programs {
            programs.forget_all();
        }
    }

    /// Tells the programs of the walks whose copies are not after `complete_ns`: all records up to then were
    /// drained.
    pub(super) fn tell(&mut self, complete_ns: u64) {
        if let Some(programs) = &mut self.programs {
            programs.flush(complete_ns);
        }
    }

    pub(super) fn add(
        &mut self,
        header: &WireUserStack,
        mut used: Dependencies,
        basis: Basis,
        found: Option<UnwoundId>,
    ) {
        let tgid = header.incarnation.tgid;
        let process = self.processes.entry(tgid).or_default();
        if header.ts_ns < process.since_ns
            || basis.round < process.first_round
            || basis.changes < process.changes
        {
            return;
        }
        if basis.changes > process.changes {
            process.changes = basis.changes;
            self.forget(tgid);
        }
        if self.values >= MAX_VALUES {
            (self.walks, self.values) = (FxHashMap::default(), 0);
            self.processes.values_mut().for_each(|process| process.values = 0);
        }
        let process = self.processes.entry(tgid).or_default();
        let until_ns = if basis.is_known { u64::MAX } else { header.ts_ns.saturating_add(MAX_AGE_NS) };
        used.words.sort_unstable();
        used.words.dedup();
        let walk = Walk {
            copied_ns: header.ts_ns,
            words: used.words.into(),
            needed: used.bytes,
            bp: used.has_bp.then_some(header.bp),
            user_stack: used.has_pointers.then_some(header.user_stack),
            times_ns: process.since_ns..=until_ns,
            found,
            findings: 0,
        };
        // Most starts have one walk, and a walk is large.
        let walks = self.walks.entry(Start::of(header)).or_insert_with(|| Vec::with_capacity(1));
        let sum = |walks: &[Walk]| walks.iter().map(Walk::values).sum::<usize>();
        let before = sum(walks);
        walks.retain(|old| *old.times_ns.end() >= header.ts_ns && !old.is_like(&walk));
        if walks.len() >= MAX_VARIANTS {
            walks.remove(0);
        }
        walks.push(walk);
        let after = sum(walks);
        process.values = process.values + after - before;
        self.values = self.values + after - before;
    }

    /// Notes that a PID runs another program since a time; `round` is the first one whose copies are walked
    /// knowing that. Returns whether walks of the former program were known.
    pub(super) fn end_incarnation(&mut self, tgid: u32, ts_ns: u64, round: u64) -> bool {
        if self.processes.len() >= MAX_PROCESSES {
            self.processes.retain(|_, process| {
                process.values > 0 || process.since_ns.saturating_add(MAX_LATE_NS) > ts_ns
            });
        }
        let process = self.processes.entry(tgid).or_default();
        process.since_ns = process.since_ns.max(ts_ns);
        process.first_round = round;
        self.forget(tgid)
    }

    /// Forgets the walks of a process. Returns whether there were any.
    fn forget(&mut self, tgid: u32) -> bool {
        if let Some(programs) = &mut self.programs {
            programs.forget(tgid);
        }
        let Some(process) = self.processes.get_mut(&tgid).filter(|process| process.values > 0) else {
            return false;
        };
        self.values -= std::mem::take(&mut process.values);
        self.walks.retain(|start, _| start.incarnation.tgid != tgid);
        true
    }
}

impl Start {
    fn of(header: &WireUserStack) -> Self {
        let &WireUserStack { incarnation, bytes, ip, sp, .. } = header;
        Self { incarnation, bytes, ip, sp }
    }
}

impl Walk {
    /// Returns the memory that it takes.
    fn values(&self) -> usize {
        self.words.len() + VALUES_OF_WALK
    }

    fn fits(&self, header: &WireUserStack, bytes: &[u8]) -> bool {
        let has = |&(at, word): &(u32, u64)| {
            bytes.get(at as usize..).and_then(<[u8]>::first_chunk).map(|bytes| u64::from_le_bytes(*bytes))
                == Some(word)
        };
        self.bp.is_none_or(|bp| bp == header.bp)
            && self.user_stack.is_none_or(|stack| stack == header.user_stack)
            && self.times_ns.contains(&header.ts_ns)
            && self.words.iter().all(has)
    }

    /// Returns the stack by which programs recognize it, if they can; they copy `copied` bytes of a stack.
    fn known_stack(&self, start: &Start, copied: u32) -> Option<KnownStack> {
        let &Start { incarnation, bytes, ip, sp } = start;
        let is_forever = *self.times_ns.end() == u64::MAX;
        // A walk that came to the end of the copy depends on its length.
        let is_whole =
            self.user_stack.is_none_or(|by_pointers| bytes == copied && is_comparable(by_pointers));
        let needed = if self.user_stack.is_some() { bytes } else { self.needed };
        let is_small = needed as usize <= MAX_BYTES && self.words.len() <= MAX_WORDS;
        let is_aligned = self.words.iter().all(|(at, _)| at % 8 == 0);
        if incarnation.started_ns == 0 || !(is_forever && is_whole && is_small && is_aligned) {
            return None;
        }
        let mut known = KnownStack {
            key: KnownStackKey { incarnation, ip, sp, variant: 0, padding: 0 },
            bp: self.bp.unwrap_or(0),
            bp_mask: if self.bp.is_some() { u64::MAX } else { 0 },
            by_pointers: self.user_stack.unwrap_or(stack::NONE),
            stack: stack::unwound(self.found?.0),
            bytes: needed,
            count: self.words.len() as u32,
            ..KnownStack::EMPTY
        };
        for ((position, word), &(at, value)) in
            known.positions.iter_mut().zip(&mut known.words).zip(&self.words)
        {
            (*position, *word) = ((at / 8) as u16, value);
        }
        stack::unwound_number(known.stack).is_some().then_some(known)
    }

    fn is_like(&self, other: &Self) -> bool {
        (&self.words, self.bp, self.user_stack) == (&other.words, other.bp, other.user_stack)
    }
}

#[cfg(test)]
mod tests;
