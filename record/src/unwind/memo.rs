//! The stacks that were unwound before: a copy in, the number of its frames out. A program waits at the same places again and again, so
//! most copies need no walk of their own.
//!
//! A walk depends on values of the copy ([`Dependencies`]) and on the code at the addresses that it found. When a process runs another
//! program or is found to have other mappings, its walks are forgotten.

use rustc_hash::FxHashMap;
use trace_format::wire::WireUserStack;

use super::walk::{Dependencies, UnwoundId};

/// Maximum number of walks; beyond it, all are forgotten.
const MAX_WALKS: usize = 1 << 16;
/// Maximum number of walks from the same instruction and stack pointer.
const MAX_VARIANTS: usize = 8;
/// Time after which a walk through unknown code is done again. Mappings that do not cover an address are read again about as often.
const MAX_AGE_NS: u64 = 250_000_000;
/// If more processes than this are known, those without walks that ended longer ago than [`MAX_LATE_NS`] are dropped.
const MAX_PROCESSES: usize = 1 << 14;
/// No copy comes later than this after it was made.
const MAX_LATE_NS: u64 = 10_000_000_000;

/// The walks of all processes.
#[derive(Debug, Default)]
pub(super) struct Memo {
    walks: FxHashMap<Start, Vec<Walk>>,
    count: usize,
    processes: FxHashMap<u32, Process>,
}

/// The begin of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Start {
    tgid: u32,
    bytes: u32,
    ip: u64,
    sp: u64,
}

/// A walk that was done.
#[derive(Debug)]
struct Walk {
    words: Box<[(u32, u64)]>,
    bp: Option<u64>,
    user_stack: Option<i32>,
    /// The times of the copies that it is valid for.
    times_ns: std::ops::RangeInclusive<u64>,
    /// `None` if it found no frames.
    found: Option<UnwoundId>,
}

/// A PID.
#[derive(Clone, Copy, Debug, Default)]
struct Process {
    walks: usize,
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
    /// The round of its copy.
    pub(super) round: u64,
    /// The number of changes of the process's mappings so far.
    pub(super) changes: u32,
    /// Whether the code at each of its addresses is known, or known not to be code.
    pub(super) is_known: bool,
}

impl Memo {
    /// Returns what a walk of this copy would find, if it is known.
    pub(super) fn find(&self, header: &WireUserStack, bytes: &[u8]) -> Option<Option<UnwoundId>> {
        let walks = self.walks.get(&Start::of(header))?;
        walks.iter().find(|walk| walk.fits(header, bytes)).map(|walk| walk.found)
    }

    /// Adds a walk.
    pub(super) fn add(
        &mut self,
        header: &WireUserStack,
        used: Dependencies,
        basis: Basis,
        found: Option<UnwoundId>,
    ) {
        let process = self.processes.entry(header.tgid).or_default();
        if header.ts_ns < process.since_ns
            || basis.round < process.first_round
            || basis.changes < process.changes
        {
            return;
        }
        if basis.changes > process.changes {
            process.changes = basis.changes;
            self.forget(header.tgid);
        }
        if self.count >= MAX_WALKS {
            self.walks.clear();
            self.count = 0;
            self.processes.values_mut().for_each(|process| process.walks = 0);
        }
        let process = self.processes.entry(header.tgid).or_default();
        let until_ns = if basis.is_known { u64::MAX } else { header.ts_ns.saturating_add(MAX_AGE_NS) };
        let walk = Walk {
            words: used.words.into(),
            bp: used.has_bp.then_some(header.bp),
            user_stack: used.has_pointers.then_some(header.user_stack),
            times_ns: process.since_ns..=until_ns,
            found,
        };
        let walks = self.walks.entry(Start::of(header)).or_default();
        let before = walks.len();
        walks.retain(|old| *old.times_ns.end() >= header.ts_ns && !old.is_like(&walk));
        if walks.len() >= MAX_VARIANTS {
            walks.remove(0);
        }
        let removed = before - walks.len();
        walks.push(walk);
        process.walks = process.walks + 1 - removed;
        self.count = self.count + 1 - removed;
    }

    /// Notes that a PID runs another program since a time; `round` is the first one whose copies are walked knowing that. Returns whether
    /// walks of the former program were known.
    pub(super) fn end_incarnation(&mut self, tgid: u32, ts_ns: u64, round: u64) -> bool {
        if self.processes.len() >= MAX_PROCESSES {
            self.processes.retain(|_, process| {
                process.walks > 0 || process.since_ns.saturating_add(MAX_LATE_NS) > ts_ns
            });
        }
        let process = self.processes.entry(tgid).or_default();
        process.since_ns = process.since_ns.max(ts_ns);
        process.first_round = round;
        self.forget(tgid)
    }

    /// Forgets the walks of a process. Returns whether there were any.
    fn forget(&mut self, tgid: u32) -> bool {
        let Some(process) = self.processes.get_mut(&tgid).filter(|process| process.walks > 0) else {
            return false;
        };
        self.count -= std::mem::take(&mut process.walks);
        self.walks.retain(|start, _| start.tgid != tgid);
        true
    }
}

impl Start {
    fn of(header: &WireUserStack) -> Self {
        let &WireUserStack { tgid, bytes, ip, sp, .. } = header;
        Self { tgid, bytes, ip, sp }
    }
}

impl Walk {
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

    fn is_like(&self, other: &Self) -> bool {
        (&self.words, self.bp, self.user_stack) == (&other.words, other.bp, other.user_stack)
    }
}

#[cfg(test)]
mod tests;
