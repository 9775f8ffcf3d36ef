//! The limits of a group of processes, the items that are charged against them, and the reasons for ending a recording.

use std::fmt;

use crate::preload::region::BadChunks;

/// The limits of a group of processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Recorded processes at once.
    pub processes: u64,
    /// Used slots of all processes: each is read at every drain.
    pub slots: u64,
    /// Units of all processes that are drained and not composed yet.
    pub queued_units: u64,
    /// Bytes of memory for all processes, estimated from what was charged.
    pub bytes: u64,
    pub process_bytes: u64,
    /// Thread sessions of one process.
    pub sessions: u64,
    /// Different stacks of one process.
    pub stacks: u64,
    pub locks: u64,
    /// Units of one process in which no record begins.
    pub invalid_units: u64,
    /// Work of one process on losses: entries that were examined to forget what it held.
    pub loss_work: u64,
}

impl Limits {
    pub(crate) const NONE: Self = Self {
        processes: u64::MAX,
        slots: u64::MAX,
        queued_units: u64::MAX,
        bytes: u64::MAX,
        process_bytes: u64::MAX,
        sessions: u64::MAX,
        stacks: u64::MAX,
        locks: u64::MAX,
        invalid_units: u64::MAX,
        loss_work: u64::MAX,
    };

    /// The limits of processes of klock's own user, given the machine's memory and the number of descriptors.
    pub(crate) fn of_own(memory: u64, descriptors: u64) -> Self {
        let bytes = (memory / 4).max(256 << 20);
        Self {
            processes: (descriptors.saturating_sub(256) / DESCRIPTORS_PER_PROCESS).max(16),
            bytes,
            process_bytes: bytes,
            invalid_units: 1 << 20,
            ..Self::NONE
        }
    }

    /// The limits of processes of all other users.
    pub(crate) fn of_others(memory: u64, descriptors: u64) -> Self {
        let bytes = (160 << 20).min(memory / 16);
        Self {
            processes: 1024.min(descriptors / DESCRIPTORS_PER_PROCESS / 4).max(16),
            slots: 16_384,
            queued_units: 1 << 19,
            bytes,
            process_bytes: bytes / 2,
            sessions: 32_768,
            stacks: 16_384,
            locks: 65_536,
            invalid_units: 1024,
            loss_work: 1 << 26,
        }
    }
}

/// The memory of a region and the descriptor of its process.
const DESCRIPTORS_PER_PROCESS: u64 = 2;

/// Something that a process makes klock remember or do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// The mappings of a new image, whose text has this many bytes.
    Mappings(u64),
    Session,
    /// A new stack of this many frames.
    Stack(u64),
    Locks(u64),
    /// A unit in which no record begins.
    InvalidUnit,
    /// A loss, for which this many entries were examined.
    Loss(u64),
}

impl Item {
    /// The estimated memory that an item takes, rather too much than too little. A frame takes 200 bytes, and some times as much while
    /// the trace is finished.
    pub(super) const fn bytes(self) -> u64 {
        match self {
            Self::Mappings(text) => text,
            Self::Session => 640,
            Self::Stack(frames) => 512 + 1000 * frames,
            Self::Locks(count) => 448 * count,
            Self::InvalidUnit | Self::Loss(_) => 0,
        }
    }
}

/// The reason why the recording of a process ended before the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Excess {
    /// More than this number of thread sessions.
    Sessions(u64),
    Stacks(u64),
    Locks(u64),
    /// More than this number of units in which no record begins.
    InvalidUnits(u64),
    /// Too many losses.
    Losses,
    ProcessBytes(u64),
    /// More than this number of bytes for all processes of the group.
    Bytes(u64),
    /// More than this number of used slots in all processes of the group.
    Slots(u64),
    /// A chunk that is not there, or that another thread has.
    Chunks,
    /// More stacks in a thread session than its records can name.
    SessionStacks,
    /// More records than could be drained in time.
    Backlog,
}

impl From<BadChunks> for Excess {
    fn from(BadChunks: BadChunks) -> Self {
        Self::Chunks
    }
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MIB: u64 = 1 << 20;
        match self {
            Self::Sessions(limit) => write!(f, "more than {limit} threads"),
            Self::Stacks(limit) => write!(f, "more than {limit} stacks"),
            Self::Locks(limit) => write!(f, "more than {limit} locks"),
            Self::InvalidUnits(limit) => write!(f, "more than {limit} invalid records"),
            Self::Losses => f.write_str("too many losses"),
            Self::ProcessBytes(limit) => {
                write!(f, "more than {} MiB of threads, stacks and locks", limit / MIB)
            }
            Self::Bytes(limit) => {
                write!(f, "more than {} MiB of threads, stacks and locks in all processes", limit / MIB)
            }
            Self::Slots(limit) => write!(f, "more than {limit} threads at once in all processes"),
            Self::Chunks => f.write_str("an invalid chunk"),
            Self::Backlog => f.write_str("more records than could be read in time"),
            Self::SessionStacks => f.write_str("more stacks of a thread than it can number"),
        }
    }
}
