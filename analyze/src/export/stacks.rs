//! Waits and holds by stack, for the formats that show stacks.
//!
//! The frames of lock functions and of the recorder are cut off, as in every table: they are the same for
//! each lock.

use std::{hash::Hash, iter};

use rustc_hash::FxHashMap;
use trace_format::{FormatError, Frame, LockId, StackId, TaskId, Trace};

use crate::charges::{Payee, add};
use intervals::{
    input::names::{Names, UNKNOWN, shown_frames},
    items::{Payer, Wait},
    shares::{Account, ShareSums, WaitShares},
};

/// The stacks of a trace, with each frame and each chain of callers once: a long recording has millions of
/// stacks that differ in few frames.
#[derive(Debug, Default)]
pub(super) struct Stacks {
    frames: Vec<Frame>,
    calls: Vec<Call>,
    /// The innermost call of each stack, by its id.
    leaves: Vec<Option<CallId>>,
}

/// A frame and the call it was called from, by their numbers; the outermost frame has none.
type Call = (u32, Option<CallId>);

/// The number of a call. Stacks with the same callers have the same numbers for them.
pub(super) type CallId = u32;

impl Stacks {
    pub(super) fn read(trace: &Trace) -> Result<Self, FormatError> {
        let (mut stacks, mut numbers) = (Self::default(), FxHashMap::<Frame, u32>::default());
        let mut known = FxHashMap::<Call, CallId>::default();
        trace.each_stack(|stack| {
            let mut call = None;
            for frame in stack.frames.into_iter().rev() {
                let next = numbers.len() as u32;
                let key = (*numbers.entry(frame).or_insert(next), call);
                let calls = &mut stacks.calls;
                call = Some(*known.entry(key).or_insert_with(|| {
                    calls.push(key);
                    (calls.len() - 1) as u32
                }));
            }
            stacks.leaves.push(call);
        })?;
        let mut frames: Vec<(Frame, u32)> = numbers.into_iter().collect();
        frames.sort_unstable_by_key(|(_, number)| *number);
        stacks.frames = frames.into_iter().map(|(frame, _)| frame).collect();
        Ok(stacks)
    }

    /// Returns the innermost call of a stack, which an empty stack does not have; `None` if the trace does
    /// not have the stack.
    pub(super) fn leaf(&self, stack: StackId) -> Option<Option<CallId>> {
        usize::try_from(stack.0).ok().and_then(|at| self.leaves.get(at)).copied()
    }

    /// Returns a call and its callers, with their frames.
    pub(super) fn calls(&self, leaf: Option<CallId>) -> impl Iterator<Item = (CallId, &Frame)> {
        iter::successors(leaf, |call| self.calls[*call as usize].1)
            .map(|call| (call, &self.frames[self.calls[call as usize].0 as usize]))
    }

    /// Returns all frames of a stack, leaf first. A missing stack has no frames.
    pub(super) fn all_frames(&self, stack: Option<StackId>) -> Vec<&Frame> {
        let leaf = stack.and_then(|stack| self.leaf(stack)).flatten();
        self.calls(leaf).map(|(_, frame)| frame).collect()
    }

    /// Returns the shown frames of a kernel lock or a user lock, leaf first.
    pub(super) fn frames(&self, stack: Option<StackId>, kernel: bool) -> Vec<&Frame> {
        shown_frames(&self.all_frames(stack), kernel).copied().collect()
    }
}

/// Waits or holds that look the same, as ids of one trace. `C` says which code acquired the lock that they
/// waited for.
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
    /// Returns the key of a wait or a hold, without a holder.
    pub(super) fn new(names: &Names, (lock, task): (LockId, TaskId), stack: Option<StackId>) -> Self {
        let (class, comm) = (names.class_number(lock), names.comm_number(task));
        Self { stack, kernel: names.is_kernel(lock), class, comm, holder: None }
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

/// The waits by stack and holder.
pub(super) struct Charges<'a, C> {
    names: &'a Names,
    code: fn(&Names, LockId, Option<StackId>) -> C,
    /// For each stack: the number of waits, and the ns waited for all holders. A wait for several holders
    /// counts once, for the first one.
    pub(super) sums: FxHashMap<StackKey<C>, (i64, i64)>,
}

impl<'a, C: Copy + Eq + Hash> Charges<'a, C> {
    pub(super) fn new(names: &'a Names, code: fn(&Names, LockId, Option<StackId>) -> C) -> WaitShares<Self> {
        WaitShares::new(Self { names, code, sums: FxHashMap::default() })
    }

    /// Adds a wait that ended.
    pub(super) fn end(of: &mut WaitShares<Self>, wait: &Wait, is_selected: bool) {
        let names = of.account.names;
        let waiter = is_selected.then(|| StackKey::new(names, (wait.lock, wait.task), wait.stack));
        let first = of.end(wait, waiter);
        let Some(waiter) = waiter else { return };
        let (payer, ns) = match wait.owner {
            // A wait that ended where it began has no shares.
            _ if wait.gap_ns.is_some() => (Payer::Gap, 0),
            Some(owner) => (Payer::Owner(owner), wait.wait_ns),
            None => (Payer::Unknown, wait.wait_ns),
        };
        let holder = Some(first.unwrap_or_else(|| of.account.payer(wait.lock, payer)));
        let (waits, sum) = of.account.sums.entry(StackKey { holder, ..waiter }).or_default();
        *waits += 1;
        add(sum, ns);
    }
}

impl<C: Copy + Eq + Hash> Account for Charges<'_, C> {
    type Waiter = StackKey<C>;
    type Payer = Payee<C, Option<u32>>;

    fn payer(&self, lock: LockId, payer: Payer) -> Self::Payer {
        let (names, code) = (self.names, self.code);
        Payee::from(payer).map(|stack| code(names, lock, stack), |task| names.comm_number(task))
    }

    fn add(&mut self, _: LockId, waiter: StackKey<C>, holder: Self::Payer, shares: ShareSums) {
        let (_, sum) = self.sums.entry(StackKey { holder: Some(holder), ..waiter }).or_default();
        add(sum, shares.ns);
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
