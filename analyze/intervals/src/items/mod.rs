//! Items: the stream that the engine and the pass over causes make of a trace, and the sinks that receive it.
//!
//! ```text
//! task 1 acquires lock 7 at 10 ns    Acquired(hold of task 1)
//! task 2 waits for it at 20 ns       WaitBegins(wait of task 2)
//! task 1 releases it at 50 ns        Stretch(1 wait, 30 ns, hold of task 1), Hold(10 to 50 ns, 1 wait begun, 30 ns of waits caused)
//! task 2 acquires it at 52 ns        Stretch(1 wait, 2 ns, lock free), Wait(20 to 52 ns), Acquired(hold of task 2)
//! ```
//!
//! A consumer is a [`Sink`]: it names the items and columns that it needs in one [`Needs`], and receives
//! items one by one.

mod cause;
mod interval;

use trace_format::{EventRow, LockId};

pub use cause::{ByState, Caused, Detail, Passed, Payer, State, Waiters};
pub use interval::{
    Charge, Hold, HoldId, HoldState, Outcome, Polling, Share, Stretch, TryFailure, Wait, started,
};

/// Something that was found in a trace.
#[derive(Clone, Copy)]
pub enum Item<'a> {
    /// The next row of any lock, before its effect on holds and waits.
    Row(&'a dyn EventRow),
    /// A hold began, with the facts that are known so far. A further acquisition within a shared hold is
    /// reported the same way, with that hold, whose end is then the time of that acquisition.
    Acquired(&'a Hold),
    /// A hold ended.
    Hold(&'a Hold),
    /// A wait began; it ends in [`Wait`](Self::Wait). Not sent for waits that are known only from their end.
    WaitBegins(&'a Wait),
    /// A wait ended.
    Wait(&'a Wait),
    /// The next stretch of all open waits of a lock that have no shares of their own.
    Stretch(&'a Stretch),
    /// A share of a wait, which may not have ended. Only of a wait whose task had the hold that others waited
    /// for: from its first share on, which is empty, stretches are not of this wait. It may begin where the
    /// wait began.
    Share(&'a Wait, &'a Share),
    /// An attempt found the lock taken and did not wait.
    TryFailed(&'a TryFailure),
    /// A task polled for a lock with failed tries.
    Polled(&'a Polling),
    /// `count` events are missing before `ts_ns`; 0 if the count was not read. Every sink of a parallel
    /// reading receives it.
    Lost {
        /// The time of the loss.
        ts_ns: i64,
        /// The number of events.
        count: i64,
    },
    /// Waiting time with its payer or, if chains are needed, with the root of its chain. The time that a hold
    /// causes may arrive after the end of the hold, at the next row of its task. Only from a pass over
    /// causes, as the items below.
    Caused(&'a Caused),
    /// A hold with the time that its task was in each state, which add up to its length. Arrives after its
    /// [`Hold`](Self::Hold): if another task ended the hold, at the next row of its own task.
    Held(&'a Hold, &'a ByState),
    /// Waiting time with its payer, beside the roots of chains.
    Direct(&'a Caused),
    /// Waiting time that a payer passes on in a chain.
    Passed(&'a Passed),
    /// Waiting time in ns inside other waits of the same task, in no chain.
    Nested(i64),
}

impl Item<'_> {
    /// Returns the lock that a hold, a wait or an attempt is of.
    #[inline]
    pub fn lock(&self) -> Option<LockId> {
        match self {
            Self::Acquired(hold) | Self::Hold(hold) | Self::Held(hold, _) => Some(hold.lock),
            Self::WaitBegins(wait) | Self::Wait(wait) | Self::Share(wait, _) => Some(wait.lock),
            Self::Stretch(stretch) => Some(stretch.lock),
            Self::TryFailed(failure) => Some(failure.lock),
            Self::Polled(polling) => Some(polling.lock),
            _ => None,
        }
    }
}

/// The items that a sink receives only on request, because making them costs time at every event, and the
/// columns of events that it needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// [`Item::Row`].
    pub rows: bool,
    /// [`Item::Acquired`].
    pub acquired: bool,
    /// [`Item::Stretch`] and [`Item::Share`]. The sums in holds and waits do not need them.
    pub shares: bool,
    /// The roots of chains in [`Item::Caused`], with [`Item::Passed`] and [`Item::Nested`].
    pub chains: bool,
    /// [`Item::Direct`].
    pub direct: bool,
    /// [`Item::Held`].
    pub held: bool,
    /// The columns of events.
    pub columns: Columns,
}

impl Needs {
    /// The default items, made of these columns.
    pub const fn columns(columns: Columns) -> Self {
        Self {
            rows: false,
            acquired: false,
            shares: false,
            chains: false,
            direct: false,
            held: false,
            columns,
        }
    }

    /// Returns what two sinks of the same items need.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        Self {
            rows: self.rows || other.rows,
            acquired: self.acquired || other.acquired,
            shares: self.shares || other.shares,
            chains: self.chains || other.chains,
            direct: self.direct || other.direct,
            held: self.held || other.held,
            columns: self.columns.max(other.columns),
        }
    }
}

/// The columns of events that a sink needs. `States` adds columns to `Times`, `Peers` to `States`, `All` to
/// `Peers`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Columns {
    /// Time, lock, task, stack and length of the wait.
    Times,
    /// Also the time that a waiter was blocked or in a run queue.
    States,
    /// Also the owner or waker of a waiter, which charges need.
    Peers,
    /// All columns.
    #[default]
    All,
    /// The columns by which the payer of a wait is followed. Only for readings of rows.
    Causes,
    /// These, and all columns that intervals are made of or paths are followed by. Only for readings of rows.
    CausesAndPeers,
    /// The length of the wait alone. Only for readings of rows.
    Lengths,
}

impl Columns {
    /// Returns the names of the columns.
    pub fn names(self) -> &'static [&'static str] {
        /// In an order in which the columns of each value are next to each other.
        const NAMES: [&str; 14] = [
            "syscall",
            "state",
            "count",
            "peer_task_id",
            "blocked_ns",
            "mode",
            "lock_id",
            "task_id",
            "stack_id",
            "call",
            "wait_ns",
            "runq_ns",
            "peer_stack_id",
            "errno",
        ];
        match self {
            Self::Times => &NAMES[5..11],
            Self::States => &NAMES[4..12],
            Self::Peers => &NAMES[3..13],
            Self::All => &NAMES[2..],
            Self::Causes => &NAMES[..11],
            Self::CausesAndPeers => &NAMES[..13],
            Self::Lengths => &NAMES[10..11],
        }
    }
}

/// Receives the items of a trace.
pub trait Sink {
    /// Returns what it needs beside the default items. It stays the same.
    fn needs(&self) -> Needs {
        Needs::default()
    }

    /// Receives the next item: unless it says otherwise, holds and waits.
    fn push(&mut self, item: Item<'_>) {
        match item {
            Item::Hold(hold) => self.hold(hold),
            Item::Wait(wait) => self.wait(wait),
            _ => {}
        }
    }

    fn hold(&mut self, _hold: &Hold) {}

    fn wait(&mut self, _wait: &Wait) {}

    /// Whether the rest of the trace need not be read.
    fn is_full(&self) -> bool {
        false
    }
}

impl<S: Sink> Sink for &mut S {
    #[inline]
    fn needs(&self) -> Needs {
        S::needs(self)
    }

    #[inline]
    fn push(&mut self, item: Item<'_>) {
        S::push(self, item);
    }

    fn is_full(&self) -> bool {
        S::is_full(self)
    }
}

/// Two sinks of the same items.
impl<A: Sink, B: Sink> Sink for (A, B) {
    #[inline]
    fn needs(&self) -> Needs {
        self.0.needs().merge(self.1.needs())
    }

    #[inline]
    fn push(&mut self, item: Item<'_>) {
        self.0.push(item);
        self.1.push(item);
    }

    fn is_full(&self) -> bool {
        self.0.is_full() && self.1.is_full()
    }
}

/// Ignores all items.
impl Sink for () {
    fn needs(&self) -> Needs {
        Needs::columns(Columns::Times)
    }

    fn push(&mut self, _: Item<'_>) {}
}
