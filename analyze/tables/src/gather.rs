//! Readings that several tables share: each table gathers what it needs from the same intervals.
//!
//! Each table has a [`Gather`], which makes a sink for each reader of each trace and adds up what the sinks
//! found. A pair of tables gathers for both, so a page or a picture reads each trace once, however many
//! tables it is made of.

use intervals::{
    input::{Input, ReadOutcome},
    items::Sink,
};
use output::error::AnalyzeError;

/// Gathers the sums of a table from the intervals of traces.
pub trait Gather {
    /// Receives the intervals of some locks of one trace.
    type Sink: Sink + Send;

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
pub fn read(inputs: &[Input<'_>], readers: usize, gather: &mut impl Gather) -> Result<(), AnalyzeError> {
    (0..inputs.len()).try_for_each(|at| read_one((inputs, at), readers, gather))
}

/// Reads one of the inputs.
///
/// # Errors
///
/// As [`read`].
pub fn read_one(
    (inputs, at): (&[Input<'_>], usize),
    readers: usize,
    gather: &mut impl Gather,
) -> Result<(), AnalyzeError> {
    let (sinks, outcome) = inputs[at].run_apart(readers, || gather.sink(at))?;
    gather.add(at, sinks, &outcome)
}

impl<A: Gather, B: Gather> Gather for (A, B) {
    type Sink = (A::Sink, B::Sink);

    fn sink(&self, at: usize) -> Self::Sink {
        (self.0.sink(at), self.1.sink(at))
    }

    fn add(&mut self, at: usize, sinks: Vec<Self::Sink>, outcome: &ReadOutcome) -> Result<(), AnalyzeError> {
        let (a, b) = sinks.into_iter().unzip();
        self.0.add(at, a, outcome)?;
        self.1.add(at, b, outcome)
    }
}
