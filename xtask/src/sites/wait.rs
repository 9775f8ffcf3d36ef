//! A wait as a recorder saw it, whichever recorder that was.

/// A wait that a recorder saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    /// The thread.
    pub(super) tid: i32,
    /// The begin, CLOCK_MONOTONIC.
    pub(super) ts_ns: i64,
    /// User frames, leaf first.
    pub(super) frames: Vec<Frame>,
}

/// A frame of a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// The mapped file.
    pub(super) module: String,
    /// Offset of the instruction in the file; in a caller, of the last byte of the call.
    pub(super) offset: u64,
    /// Function names, innermost first: inlined functions, then the function itself.
    pub(super) functions: Vec<String>,
    /// Whether the recorder marks the frame as a guess.
    pub(super) marked: bool,
}
