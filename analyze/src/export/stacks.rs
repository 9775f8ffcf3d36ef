//! Stacks for the formats that show whole ones: the frames from the acquisition point outwards, as the viewers name them.
//!
//! The stacks of a trace enter and stay; what leaves are slices of them. Lock functions and what the recorder itself ran are cut off, as
//! in every table: they are the same below each lock.

use trace_format::{FormatError, Frame, LockId, Stack, StackId, Trace};

use crate::names::{Names, from_point};

/// All stacks of a trace.
#[derive(Debug)]
pub(super) struct Stacks {
    all: Vec<Stack>,
}

impl Stacks {
    pub(super) fn read(trace: &Trace) -> Result<Self, FormatError> {
        Ok(Self { all: trace.stacks()? })
    }

    /// The frames, leaf first, read as those of a kernel or a user lock; none if the stack is missing.
    pub(super) fn frames(
        &self,
        stack: Option<StackId>,
        kernel: bool,
    ) -> impl DoubleEndedIterator<Item = &Frame> {
        let at = stack.and_then(|stack| usize::try_from(stack.0).ok());
        let stack = at.and_then(|at| self.all.get(at));
        let frames = stack.map_or(&[][..], |stack| from_point(&stack.frames, kernel));
        frames.iter().filter(move |frame| kernel || !frame.kernel)
    }
}

/// Whether the stacks of this lock are to be read as those of a kernel lock.
pub(super) fn is_kernel(names: &Names, lock: LockId) -> bool {
    names.lock(lock).is_some_and(|lock| lock.kind.is_kernel())
}
