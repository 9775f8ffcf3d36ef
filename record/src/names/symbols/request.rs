//! Requests to the symbols thread, and its results.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering},
        mpsc::Sender,
    },
};

use trace_format::{BareStack, Frame, LockId, LockKind, SharedStack, StackId};

use crate::{
    compose::tasks::ProcessKey,
    kernel::map_records::MapsOfProcess,
    names::files::{FileOwner, SymbolFrame},
    system::clocks,
};

#[cfg(doc)]
use trace_format::LockRow;

/// The addresses of a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RawFrames {
    /// Kernel addresses, leaf first.
    pub kernel: Vec<u64>,
    /// User addresses, leaf first.
    pub user: Vec<u64>,
    /// Whether the first user address is a return address, as all others are.
    pub user_returns: bool,
    pub certain: CertainFrames,
    /// The incarnation that the user addresses belong to.
    pub incarnation: Option<Incarnation>,
}

/// The frames of a user stack that are certain. The others are guesses by frame pointers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CertainFrames {
    /// This number of frames, from the leaf on: the stack was unwound.
    Unwound(usize),
    /// This number of frames, from the leaf on, and then as many as follow code that keeps a frame pointer:
    /// the stack was walked by frame pointers.
    ByPointers(usize),
}

impl CertainFrames {
    /// Returns the number of frames that are certain without a look at their code.
    pub(crate) const fn at_least(self) -> usize {
        match self {
            Self::Unwound(count) | Self::ByPointers(count) => count,
        }
    }

    /// Returns whether the frame at a depth is certain. `follows` says whether the frame before it is
    /// certain, and its code keeps a frame pointer.
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
pub(crate) struct Incarnation {
    pub process: ProcessKey,
    pub pid: u32,
    /// The start, CLOCK_MONOTONIC in nanoseconds; 0 if it started before the recording.
    pub since_ns: i64,
}

/// A lock, as its mapping or its kernel object describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundLock {
    pub lock: LockId,
    pub name: Option<String>,
    /// Its place, if it is in memory that processes can share: see [`LockRow::shared`].
    pub shared: Option<String>,
}

/// Results of the symbols thread.
#[derive(Debug, Default)]
pub(crate) struct Resolved {
    /// Stacks, by id.
    pub stacks: Vec<SharedStack>,
    pub locks: Vec<FoundLock>,
    /// Number of stacks and locks that were not looked up, because they came faster than names are found;
    /// known at the end.
    pub unnamed: u64,
    /// Mapped files that could not be examined, in a sentence; known at the end.
    pub warning: Option<String>,
}

/// A request to the symbols thread.
#[derive(Debug)]
pub(super) enum Request {
    /// Announces mappings: look-ups of the process wait for them.
    AwaitMappings {
        pid: u32,
    },
    AwaitedMappings(UnparsedText),
    /// Passes mappings that were read while their process waited.
    Mappings(MapsText),
    /// Reports that a PID belongs to another incarnation from now on.
    IncarnationEnded {
        pid: u32,
        ts_ns: i64,
    },
    Stack(StackId, RawFrames),
    Lock {
        lock: LockId,
        incarnation: Incarnation,
        address: u64,
    },
    KernelLock {
        lock: LockId,
        address: u64,
        kind: LockKind,
    },
    /// Asks for a message after all earlier requests for mappings.
    Barrier(Sender<()>),
    /// Asks for the results since the last time.
    Results(Sender<Resolved>),
    RaisePriority,
    /// Ends the thread after all requests.
    Finish,
}

/// Maximum number of look-ups that wait, some 800 bytes each. If there are more, the later ones are not done:
/// the stacks that come often are mostly among the first.
const MAX_WAITING: usize = 1 << 15;

/// The numbers that the thread and its users see without a message.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// All requests about times up to this one were sent.
    pub(super) watermark_ns: AtomicI64,
    /// Number of stacks whose functions were looked up.
    pub(super) named: AtomicU64,
    /// Number of look-ups that were sent and not done, and of those that were not sent.
    pub(super) waiting: AtomicUsize,
    pub(super) unsent: AtomicU64,
    /// Number of stacks and locks that can be requested as results.
    pub(super) found: AtomicU64,
}

impl Shared {
    /// Returns whether another look-up may wait.
    pub(super) fn has_room(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) < MAX_WAITING
    }
}

// The text of a process's mappings, from its reading to its parsing.

/// The text of a process's mappings, until it is parsed.
#[derive(Clone, Debug)]
pub(crate) struct MapsText {
    pub(crate) owner: FileOwner,
    pub(crate) taken_ns: i64,
    pub(crate) bytes: Vec<u8>,
}

impl MapsText {
    /// Reads the text, and the user of the process. Both may be gone soon.
    pub(crate) fn read(pid: u32, read: impl FnOnce(u32) -> io::Result<Vec<u8>>) -> Self {
        let taken_ns = clocks::monotonic_ns();
        Self { owner: FileOwner::of(pid), taken_ns, bytes: read(pid).unwrap_or_default() }
    }
}

impl MapsText {
    /// Returns the text of mappings that the kernel has reported. The process may have ended, and its user
    /// may not be known.
    pub(crate) fn of_records(MapsOfProcess { pid, taken_ns, text }: MapsOfProcess) -> Self {
        Self { owner: FileOwner::of(pid), taken_ns, bytes: text }
    }
}

/// A text that counts as unparsed until it is dropped.
#[derive(Debug)]
pub(crate) struct UnparsedText {
    pub(crate) text: MapsText,
    unparsed: Arc<AtomicUsize>,
}

impl UnparsedText {
    pub(crate) fn new(text: MapsText, unparsed: &Arc<AtomicUsize>) -> Self {
        unparsed.fetch_add(text.bytes.len(), Ordering::Relaxed);
        Self { text, unparsed: Arc::clone(unparsed) }
    }
}

impl Drop for UnparsedText {
    fn drop(&mut self) {
        self.unparsed.fetch_sub(self.text.bytes.len(), Ordering::Relaxed);
    }
}

// Building blocks of stacks: frames from symbols, and the frames that belong to the recording itself.

/// Returns the number of frames at the leaf that belong to the recording: the kernel's path from a tracepoint
/// to klock's program.
pub(super) fn recording_frames(frames: &[Arc<[Frame]>]) -> usize {
    const PREFIXES: [&str; 8] = [
        "bpf_prog_",
        "bpf_trace_run",
        "__bpf_trace_",
        "__traceiter_",
        "trace_call_bpf",
        "perf_syscall_",
        "syscall_trace_enter",
        "syscall_exit_work",
    ];
    let is_recording = |frame: &Arc<[Frame]>| {
        let symbol = frame.last().and_then(|frame| frame.symbol.as_deref());
        symbol.is_some_and(|symbol| PREFIXES.iter().any(|prefix| symbol.starts_with(prefix)))
    };
    // An unloaded program has no name any more, so the last known name decides.
    let near = frames.len().min(8);
    frames[..near].iter().rposition(is_recording).map_or(0, |last| last + 1)
}

/// Returns the frames of an address: its functions, innermost first, on top of what is known without symbols.
/// Without functions, there is only that. The address is `before` bytes behind the one that was looked up.
pub(super) fn named(bare: &Frame, functions: Vec<SymbolFrame>, before: u64) -> Vec<Frame> {
    if functions.is_empty() {
        return vec![bare.clone()];
    }
    let frame = |function: SymbolFrame| Frame {
        symbol: Some(function.name),
        symbol_offset: function.offset.map(|offset| offset.saturating_add(before)),
        file: function.file,
        line: function.line.map(|line| line as i32),
        inlined: function.offset.is_none(),
        ..bare.clone()
    };
    functions.into_iter().map(frame).collect()
}
