//! Readings that several tables share: each table gathers what it needs from the same intervals.
//!
//! A table enters as a [`Gather`], which makes a sink for each reader of each trace and adds up what the sinks found. A pair of tables
//! gathers for both, so a page or a picture reads each trace once, however many tables it is made of.

use crate::{
    engine::{Hold, Share, SimpleHold, Sink, TryFailure, Wait},
    error::AnalyzeError,
    input::{Detail, Input, ReadOutcome},
};

/// Gathers the sums of a table from the intervals of traces.
pub(crate) trait Gather {
    /// Receives the intervals of some locks of one trace.
    type Sink: Sink + Send;

    /// Returns the columns of events that the sinks need.
    fn detail(&self) -> Detail;

    /// Returns a sink for the input with this index.
    fn sink(&self, at: usize) -> Self::Sink;

    /// Adds what the sinks of an input found.
    ///
    /// # Errors
    ///
    /// The trace lost too many events to be ranked.
    fn add(&mut self, at: usize, sinks: Vec<Self::Sink>, outcome: &ReadOutcome) -> Result<(), AnalyzeError>;
}

/// Reads every input once, with this number of readers.
///
/// # Errors
///
/// A trace cannot be read, or lost too many events to be ranked.
pub(crate) fn read(
    inputs: &[Input<'_>],
    readers: usize,
    gather: &mut impl Gather,
) -> Result<(), AnalyzeError> {
    (0..inputs.len()).try_for_each(|at| read_one((inputs, at), readers, gather))
}

/// Reads one of the inputs.
///
/// # Errors
///
/// As [`read`].
pub(crate) fn read_one(
    (inputs, at): (&[Input<'_>], usize),
    readers: usize,
    gather: &mut impl Gather,
) -> Result<(), AnalyzeError> {
    let (sinks, outcome) = inputs[at].run_apart(gather.detail(), readers, || gather.sink(at))?;
    gather.add(at, sinks, &outcome)
}

/// Makes a table of what was gathered.
pub(crate) trait Finish: Gather {
    /// The table.
    type Table;

    /// Returns the table.
    ///
    /// # Errors
    ///
    /// The sums cannot be merged or ranked.
    fn finish(self) -> Result<Self::Table, AnalyzeError>;
}

/// Reads every input once, with this number of readers, and returns the table.
///
/// # Errors
///
/// As [`read`] and [`Finish::finish`].
pub(crate) fn table<G: Finish>(
    inputs: &[Input<'_>],
    readers: usize,
    mut gathered: G,
) -> Result<G::Table, AnalyzeError> {
    read(inputs, readers, &mut gathered)?;
    gathered.finish()
}

impl<A: Gather, B: Gather> Gather for (A, B) {
    type Sink = Pair<A::Sink, B::Sink>;

    fn detail(&self) -> Detail {
        self.0.detail().max(self.1.detail())
    }

    fn sink(&self, at: usize) -> Self::Sink {
        Pair(self.0.sink(at), self.1.sink(at))
    }

    fn add(&mut self, at: usize, sinks: Vec<Self::Sink>, outcome: &ReadOutcome) -> Result<(), AnalyzeError> {
        let (a, b) = sinks.into_iter().map(|Pair(a, b)| (a, b)).unzip();
        self.0.add(at, a, outcome)?;
        self.1.add(at, b, outcome)
    }
}

/// Two sinks of the same intervals.
pub(crate) struct Pair<A, B>(pub(crate) A, pub(crate) B);

impl<A: Sink, B: Sink> Sink for Pair<A, B> {
    const SHARES: bool = A::SHARES || B::SHARES;

    #[inline]
    fn acquired(&mut self, hold: &Hold) {
        self.0.acquired(hold);
        self.1.acquired(hold);
    }

    #[inline]
    fn follows_acquired(&self) -> bool {
        self.0.follows_acquired() || self.1.follows_acquired()
    }

    fn wait_begins(&mut self, wait: &Wait) {
        self.0.wait_begins(wait);
        self.1.wait_begins(wait);
    }

    #[inline]
    fn hold(&mut self, hold: &Hold) {
        self.0.hold(hold);
        self.1.hold(hold);
    }

    #[inline]
    fn simple_hold(&mut self, hold: &SimpleHold) {
        self.0.simple_hold(hold);
        self.1.simple_hold(hold);
    }

    #[inline]
    fn plain_ended(&mut self, hold: &Hold) {
        self.0.plain_ended(hold);
        self.1.plain_ended(hold);
    }

    fn plain_holds(&mut self, holds: &[Hold]) {
        self.0.plain_holds(holds);
        self.1.plain_holds(holds);
    }

    fn wait(&mut self, wait: &Wait) {
        self.0.wait(wait);
        self.1.wait(wait);
    }

    fn share(&mut self, wait: &Wait, share: &Share) {
        self.0.share(wait, share);
        self.1.share(wait, share);
    }

    fn try_failed(&mut self, failure: &TryFailure) {
        self.0.try_failed(failure);
        self.1.try_failed(failure);
    }

    fn lost(&mut self, ts_ns: i64, count: i64) {
        self.0.lost(ts_ns, count);
        self.1.lost(ts_ns, count);
    }

    fn has_enough(&self) -> bool {
        self.0.has_enough() && self.1.has_enough()
    }
}
