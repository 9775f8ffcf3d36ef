//! Waits and holds by stack, for the formats that show stacks.
//!
//! The frames of lock functions and of the recorder are cut off, as in every table: they are the same for each lock.

use trace_format::{FormatError, Frame, LockId, Stack, StackId, TaskId, Trace};

use crate::charges::Payee;
use intervals::input::names::{Names, UNKNOWN, shown_frames};

/// The stacks of a trace.
#[derive(Debug)]
pub(super) struct Stacks(Vec<Stack>);

impl Stacks {
    pub(super) fn read(trace: &Trace) -> Result<Self, FormatError> {
        Ok(Self(trace.stacks()?))
    }

    /// Returns all frames of a stack, leaf first. A missing stack has no frames.
    pub(super) fn all_frames(&self, stack: Option<StackId>) -> &[Frame] {
        let at = stack.and_then(|stack| usize::try_from(stack.0).ok());
        at.and_then(|at| self.0.get(at)).map_or(&[][..], |stack| &stack.frames)
    }

    /// Returns the shown frames of a kernel lock or a user lock, leaf first.
    pub(super) fn frames(
        &self,
        stack: Option<StackId>,
        kernel: bool,
    ) -> impl DoubleEndedIterator<Item = &Frame> {
        shown_frames(self.all_frames(stack), kernel)
    }
}

/// Waits or holds that look the same, as ids of one trace. `C` says which code acquired the lock that they waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct StackKey<C> {
    pub(super) stack: Option<StackId>,
    pub(super) kernel: bool,
    class: Option<u32>,
    comm: Option<u32>,
    /// The party that is charged, if the format shows it.
    pub(super) holder: Option<Payee<C, Option<u32>>>,
}

impl<C> StackKey<C> {
    pub(super) fn new(
        names: &Names,
        (lock, task): (LockId, TaskId),
        stack: Option<StackId>,
        holder: Option<Payee<C, TaskId>>,
    ) -> Self {
        let holder = holder.map(|holder| holder.map(|code| code, |task| names.comm_number(task)));
        let (class, comm) = (names.class_number(lock), names.comm_number(task));
        Self { stack, kernel: names.is_kernel(lock), class, comm, holder }
    }

    /// Returns the class of the lock.
    pub(super) fn lock(&self, names: &Names) -> String {
        class(names, self.class)
    }

    /// Returns the name of the thread.
    pub(super) fn comm<'n>(&self, names: &'n Names) -> &'n str {
        comm(names, self.comm)
    }
}

/// Returns the name of a thread by its number.
pub(super) fn comm(names: &Names, number: Option<u32>) -> &str {
    number.and_then(|number| names.comm_of_number(number)).unwrap_or(UNKNOWN)
}

/// Returns the name of a class of locks by its number.
pub(super) fn class(names: &Names, number: Option<u32>) -> String {
    number.and_then(|number| names.class(number)).map_or_else(|| UNKNOWN.to_owned(), |class| class.label())
}
