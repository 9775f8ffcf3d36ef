//! Requests to the symbols thread, and its results.

use std::sync::{
    atomic::{AtomicI64, AtomicU64},
    mpsc::Sender,
};

#[cfg(doc)]
use trace_format::LockRow;
use trace_format::{BareStack, LockId, LockKind, SharedStack, StackId};

use super::maps_text::{MapsText, UnparsedText};
use crate::compose::tasks::ProcessKey;

/// The addresses of a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawFrames {
    /// Kernel addresses, leaf first.
    pub kernel: Vec<u64>,
    /// User addresses, leaf first.
    pub user: Vec<u64>,
    /// Whether the first user address is a return address, as all others are.
    pub user_returns: bool,
    /// The user frames that are certain.
    pub certain: CertainFrames,
    /// The incarnation that the user addresses belong to.
    pub incarnation: Option<Incarnation>,
}

/// The frames of a user stack that are certain. The others are guesses by frame pointers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertainFrames {
    /// This number of frames, from the leaf on: the stack was unwound.
    Unwound(usize),
    /// This number of frames, from the leaf on, and then as many as follow code that keeps a frame pointer: the stack was walked by
    /// frame pointers.
    ByPointers(usize),
}

impl CertainFrames {
    /// Returns the number of frames that are certain without a look at their code.
    pub(crate) const fn at_least(self) -> usize {
        match self {
            Self::Unwound(count) | Self::ByPointers(count) => count,
        }
    }

    /// Returns whether the frame at a depth is certain. `follows` says whether the frame before it is certain, and its code keeps a frame
    /// pointer.
    pub(super) const fn contains(self, depth: usize, follows: bool) -> bool {
        depth < self.at_least() || matches!(self, Self::ByPointers(_)) && follows
    }
}

impl Default for CertainFrames {
    fn default() -> Self {
        Self::Unwound(usize::MAX)
    }
}

impl RawFrames {
    /// Returns the stack with addresses only.
    pub(crate) fn without_names(&self, id: StackId) -> BareStack {
        let certain = self.certain.at_least();
        BareStack { id, kernel: self.kernel.clone(), user: self.user.clone(), certain }
    }
}

/// An incarnation of a process: the time in which its mappings are valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incarnation {
    /// The key of the incarnation.
    pub process: ProcessKey,
    /// The PID.
    pub pid: u32,
    /// The start, CLOCK_MONOTONIC in nanoseconds; 0 if it started before the recording.
    pub since_ns: i64,
}

/// A lock, as its mapping or its kernel object describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundLock {
    /// Its row.
    pub lock: LockId,
    /// Its name.
    pub name: Option<String>,
    /// Its place, if it is in memory that processes can share: see [`LockRow::shared`].
    pub shared: Option<String>,
}

/// Results of the symbols thread.
#[derive(Debug, Default)]
pub struct Resolved {
    /// Stacks with names; sorted by id at the end.
    pub stacks: Vec<SharedStack>,
    /// Locks of which anything was found.
    pub locks: Vec<FoundLock>,
    /// Mapped files that could not be examined, in a sentence; known at the end.
    pub warning: Option<String>,
}

/// A request to the symbols thread.
#[derive(Debug)]
pub(super) enum Request {
    /// Announces mappings: look-ups of the process wait for them.
    AwaitMappings { pid: u32 },
    /// Passes the mappings that were announced.
    AwaitedMappings(UnparsedText),
    /// Passes mappings that were read while their process waited.
    Mappings(MapsText),
    /// Reports that a PID belongs to another incarnation from now on.
    IncarnationEnded { pid: u32, ts_ns: i64 },
    /// Names the frames of a stack.
    Stack(StackId, RawFrames),
    /// Names a lock in a process.
    Lock { lock: LockId, incarnation: Incarnation, address: u64 },
    /// Names a lock in the kernel.
    KernelLock { lock: LockId, address: u64, kind: LockKind },
    /// Asks for a message after all earlier requests for mappings.
    Barrier(Sender<()>),
    /// Asks for the results since the last time.
    Results(Sender<Resolved>),
    /// Raises the priority of the thread.
    RaisePriority,
    /// Ends the thread after all requests.
    Finish,
}

/// The numbers that the thread and its users see without a message.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// All requests about times up to this one were sent.
    pub(super) watermark_ns: AtomicI64,
    /// Number of stacks whose functions were looked up.
    pub(super) named: AtomicU64,
    /// Number of stacks and locks that can be requested as results.
    pub(super) found: AtomicU64,
}
