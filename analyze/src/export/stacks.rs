//! Stacks for the formats that show them: the frames from the acquisition site outwards.
//!
//! The frames of lock functions and of the recorder are cut off, as in every table: they are the same for each lock.

use trace_format::{FormatError, Frame, LockId, Stack, StackId, Trace};

use intervals::input::names::{Names, shown_frames};

/// The stacks of a trace.
#[derive(Debug)]
pub(super) struct Stacks {
    all: Vec<Stack>,
}

impl Stacks {
    pub(super) fn read(trace: &Trace) -> Result<Self, FormatError> {
        Ok(Self { all: trace.stacks()? })
    }

    /// Returns the frames of a kernel lock or a user lock, leaf first. A missing stack has no frames.
    pub(super) fn frames(
        &self,
        stack: Option<StackId>,
        kernel: bool,
    ) -> impl DoubleEndedIterator<Item = &Frame> {
        let at = stack.and_then(|stack| usize::try_from(stack.0).ok());
        let stack = at.and_then(|at| self.all.get(at));
        shown_frames(stack.map_or(&[][..], |stack| &stack.frames), kernel)
    }
}

/// Whether the lock is a kernel lock.
pub(super) fn is_kernel(names: &Names, lock: LockId) -> bool {
    names.lock(lock).is_some_and(|lock| lock.kind.is_kernel())
}
