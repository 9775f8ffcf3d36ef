//! One opened trace, ready to be read: its names, the selected part, the readers and the trust block.
//!
//! Traces and a filter enter. An [`Input`] leaves for each trace in which the filter finds something.

use std::ops::ControlFlow;

use trace_format::{Batch, BatchRow, Event, EventKind, LockId, TaskId, Trace, run_info::Covers};

use super::{
    busiest::WaitSums,
    filter::Filter,
    locks::{LockSelector, TaskSelector, resolve_lock, resolve_task},
    loss,
    names::{self, Names},
    reading::{ReadOutcome, Reader, in_order, readers},
    selection::Selection,
    source::EventSource,
    trust::{self, Trust, TrustCounter},
};
use crate::{
    engine::Rules,
    error::AnalyzeError,
    items::{Columns, Sink},
};

/// One opened trace and the part of it that is selected.
pub(crate) struct Input<'a> {
    pub(crate) trace: &'a Trace,
    pub(crate) names: Names,
    pub(crate) selection: Selection,
    /// The name of the trace among several: see [`labels`].
    pub(crate) label: String,
    events: &'a dyn EventSource,
}

impl<'a> Input<'a> {
    /// Opens each trace in which the filter finds something. `frames` is as in [`open`](Self::open).
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open). A trace without events, or without the lock, task or function of the filter, is skipped if there
    /// is another; if there is none, the error is that of the first.
    pub(crate) fn open_all(
        traces: impl IntoIterator<Item = &'a Trace>,
        frames: usize,
        filter: &Filter,
    ) -> Result<Vec<Self>, AnalyzeError> {
        let traces: Vec<&Trace> = traces.into_iter().collect();
        let (mut inputs, mut skipped) = (Vec::new(), None);
        for (trace, label) in traces.iter().zip(labels(&traces)) {
            match Self::open(trace, frames, filter) {
                Ok(input) => inputs.push(Self { label, ..input }),
                Err(error) if error.nothing_found() && traces.len() > 1 => skipped = skipped.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        match skipped {
            Some(error) if inputs.is_empty() => Err(error),
            _ => Ok(inputs),
        }
    }

    /// Opens one trace. Keeps the first `frames` functions of each stack, from the acquisition site outwards, for rows that show
    /// stacks.
    ///
    /// # Errors
    ///
    /// The trace cannot be read or holds no events, or the filter names a lock, a task or a function that it does not have.
    pub(crate) fn open(trace: &'a Trace, frames: usize, filter: &Filter) -> Result<Self, AnalyzeError> {
        let mut names = Names::read(trace)?;
        if frames > 0 {
            names.read_chains(trace, frames)?;
        }
        Self::new(trace, trace, names, filter).map_err(|error| with_suggestions(error, trace))
    }

    /// An input that reads `events` with the names of `trace`.
    pub(crate) fn new(
        trace: &'a Trace,
        events: &'a dyn EventSource,
        names: Names,
        filter: &Filter,
    ) -> Result<Self, AnalyzeError> {
        let selection = Selection::of(trace, &names, filter)?;
        Ok(Self { trace, names, selection, label: String::new(), events })
    }

    /// Returns the engine's rules for this trace: stacks with the same acquisition site count as one.
    pub(crate) fn rules(&self) -> Rules {
        let (kernel, user) = self.names.points_by_stack();
        Rules::new(self.trace.info(), self.names.locks()).with_points(kernel.to_vec(), user.to_vec())
    }

    /// Calls `each` with every selected event, in the order of the file.
    pub(crate) fn events(&self, mut each: impl FnMut(&Event)) -> Result<ReadOutcome, AnalyzeError> {
        self.events_until(|event| {
            each(event);
            ControlFlow::Continue(())
        })
    }

    /// Calls `each` with every selected event, in the order of the file, until it breaks.
    pub(crate) fn events_until(
        &self,
        each: impl FnMut(&Event) -> ControlFlow<()>,
    ) -> Result<ReadOutcome, AnalyzeError> {
        self.reader().events(each)
    }

    /// Calls `each` with every event in the window, selected or not, in the order of the file.
    pub(crate) fn rows(
        &self,
        columns: Columns,
        each: impl FnMut(&BatchRow<'_>),
    ) -> Result<ReadOutcome, AnalyzeError> {
        self.reader().rows(columns, each)
    }

    /// Calls `each` with every batch and the number of its rows that are in the window, in the order of the file.
    pub(crate) fn batches(
        &self,
        columns: Columns,
        each: impl FnMut(&Batch, usize),
    ) -> Result<ReadOutcome, AnalyzeError> {
        self.reader().batches(columns, each)
    }

    /// Returns the number of row groups.
    pub(crate) fn row_group_count(&self) -> usize {
        self.events.row_groups()
    }

    /// Calls `each` with the index and all rows of each of these row groups, selected or not, until it breaks.
    pub(crate) fn row_groups(
        &self,
        groups: impl Iterator<Item = usize> + Send,
        each: impl FnMut(usize, &mut [Event]) -> ControlFlow<()>,
    ) -> Result<(), AnalyzeError> {
        self.reader().row_groups(groups, each)
    }

    /// Returns the locks that a selector selects: one or more.
    ///
    /// # Errors
    ///
    /// The trace has no such lock.
    pub(crate) fn locks(&self, selector: &LockSelector) -> Result<Vec<LockId>, AnalyzeError> {
        resolve_lock(&self.names, selector).map_err(|error| with_suggestions(error, self.trace))
    }

    /// Returns the tasks that a selector selects: one or more.
    pub(crate) fn tasks(&self, selector: &TaskSelector) -> Result<Vec<TaskId>, AnalyzeError> {
        resolve_task(&self.names, selector)
    }

    /// Sends the intervals of the selected locks into `sink`, in the order of the file.
    pub(crate) fn run(&self, sink: &mut impl Sink) -> Result<ReadOutcome, AnalyzeError> {
        self.reader().run(self.rules(), sink)
    }

    /// Sends the intervals of the selected locks into `sink`, and every batch, in the window or not, with the columns of causes and intervals, to `each`
    /// until it breaks; both in the order of the file.
    pub(crate) fn run_beside(
        &self,
        sink: &mut impl Sink,
        each: impl FnMut(&Batch) -> ControlFlow<()>,
    ) -> Result<ReadOutcome, AnalyzeError> {
        self.reader().run_beside(self.rules(), sink, each)
    }

    /// Sends the intervals of the selected locks into `sink`, in the order of the file, until `to_ns` if it is given: later row groups
    /// are not read.
    pub(crate) fn run_until(
        &self,
        to_ns: Option<i64>,
        sink: &mut impl Sink,
    ) -> Result<ReadOutcome, AnalyzeError> {
        let mut selection = self.selection.clone();
        selection.window.to_ns = to_ns.or(selection.window.to_ns);
        Reader { selection: &selection, ..self.reader() }.run(self.rules(), sink)
    }

    /// Sends the intervals into `readers` sinks on as many threads. Each sink gets all intervals of some locks.
    pub(crate) fn run_apart<S: Sink + Send>(
        &self,
        readers: usize,
        sink: impl Fn() -> S,
    ) -> Result<(Vec<S>, ReadOutcome), AnalyzeError> {
        self.reader().run_apart(self.rules(), readers, sink)
    }

    /// Sends the intervals of every input into `readers` sinks of its own, and each sink to `add`, which returns what it counted for
    /// the trust block. Both get the index of the input.
    ///
    /// # Errors
    ///
    /// A trace cannot be read, or lost too many events to be ranked and `allow_loss` is not set.
    pub(crate) fn read_all<S: Sink + Send>(
        inputs: &[Self],
        (readers, allow_loss): (usize, bool),
        sink: impl Fn(usize) -> S,
        mut add: impl FnMut(usize, S) -> TrustCounter,
    ) -> Result<Trust, AnalyzeError> {
        let mut trusts = Vec::new();
        for (at, input) in inputs.iter().enumerate() {
            let (sinks, outcome) = input.run_apart(readers, || sink(at))?;
            let mut counter = TrustCounter::default();
            sinks.into_iter().for_each(|sink| counter.merge(add(at, sink)));
            trusts.push(input.trust(counter, &outcome, allow_loss)?);
        }
        Ok(Trust::merged(trusts))
    }

    /// Returns whether all off-CPU time was recorded.
    pub(crate) fn has_off_cpu(&self) -> Result<bool, AnalyzeError> {
        Ok(self.covers()? == Covers::All)
    }

    /// Returns whether the off-CPU time of tasks was recorded that hold a lock while others wait for it.
    pub(crate) fn has_holder_states(&self) -> Result<bool, AnalyzeError> {
        Ok(self.covers()? != Covers::None)
    }

    /// Returns which off-CPU times were recorded. A trace made by hand may not list its sources.
    fn covers(&self) -> Result<Covers, AnalyzeError> {
        let info = self.trace.info();
        let is_by_hand = info.sources.is_empty();
        if is_by_hand && self.trace.events_by_kind()?.iter().any(|(kind, _)| *kind == EventKind::OffCpu) {
            return Ok(Covers::All);
        }
        Ok(info.covers())
    }

    /// Returns the latest time of any event, selected or not.
    pub(crate) fn last_event_ns(&self) -> Result<i64, AnalyzeError> {
        let mut last_ns = i64::MIN;
        in_order::batches(self.events, &[], |_, batch| {
            last_ns = batch.times().iter().copied().fold(last_ns, i64::max);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(last_ns)
    }

    /// Returns what the numbers of a table of this input leave out.
    ///
    /// # Errors
    ///
    /// The trace lost too many events to be ranked, and `allow_loss` is not set.
    pub(crate) fn trust(
        &self,
        counter: TrustCounter,
        outcome: &ReadOutcome,
        allow_loss: bool,
    ) -> Result<Trust, AnalyzeError> {
        let mut trust =
            counter.block(self.trace, (&outcome.stats, &outcome.counts), &self.selection, &self.names);
        trust.deadlocks = self.describe(outcome);
        // The cycle may need locks that are not selected.
        if trust.deadlocks.is_empty() && trust.waits_open_at_end > 0 && self.selection.is_of_some_locks() {
            trust.deadlocks = self.describe(&self.all_deadlocks()?);
        }
        loss::check(self.trace, &trust, allow_loss)?;
        Ok(trust)
    }

    /// Returns the deadlocks of all locks at the end of the window, a sentence each. Reads the trace again.
    pub(crate) fn deadlocks(&self) -> Result<Vec<String>, AnalyzeError> {
        Ok(self.describe(&self.all_deadlocks()?))
    }

    /// Reads the trace again, all locks of it, for what is open at the end of the window.
    pub(crate) fn all_deadlocks(&self) -> Result<ReadOutcome, AnalyzeError> {
        let selection = self.selection.of_all_locks(self.trace, &self.names)?;
        let reader = Reader { selection: &selection, ..self.reader() };
        Ok(reader.run_apart(self.rules(), readers(), || ())?.1)
    }

    fn describe(&self, outcome: &ReadOutcome) -> Vec<String> {
        let sentence = |deadlock| trust::describe(deadlock, outcome.end_ns, &self.names);
        outcome.deadlocks.iter().map(sentence).collect()
    }

    fn reader(&self) -> Reader<'_> {
        let recorded_until_ns = self.trace.info().clocks_end.monotonic_ns;
        Reader { events: self.events, selection: &self.selection, recorded_until_ns }
    }
}

/// Adds the busiest locks of the trace to a [`LockNotFound`](AnalyzeError::LockNotFound).
pub(super) fn with_suggestions(error: AnalyzeError, trace: &Trace) -> AnalyzeError {
    match error {
        AnalyzeError::LockNotFound { wanted, near, .. } => {
            AnalyzeError::LockNotFound { wanted, near, busiest: busiest_locks(trace, None) }
        }
        error => error,
    }
}

/// Returns the labels of the busiest locks that the selector selects; of all but idle ones if there is none. Returns no labels if the
/// trace cannot be read: the caller reports a more useful error.
pub(super) fn busiest_locks(trace: &Trace, lock: Option<LockSelector>) -> Vec<String> {
    let filter = Filter { lock, ..Filter::default() };
    let labels = Input::open(trace, 0, &filter).and_then(|input| {
        let (sinks, _) = input.run_apart(readers(), || WaitSums::new(&input.selection))?;
        Ok(WaitSums::labels(sinks, &input.names))
    });
    labels.unwrap_or_default()
}

/// Returns a label for each trace: the host if hosts differ, otherwise the file name if names differ, otherwise the path.
fn labels(traces: &[&Trace]) -> Vec<String> {
    let safe = |text: &str| names::printable(text).into_owned();
    let path = |trace: &&Trace| safe(&trace.paths().events.display().to_string());
    let stem = |trace: &&Trace| {
        let stem = trace.paths().events.file_stem().unwrap_or_default();
        safe(&stem.to_string_lossy())
    };
    let host = |trace: &&Trace| safe(&trace.info().host.name);
    let are_distinct = |labels: &Vec<String>| {
        let mut sorted: Vec<&String> = labels.iter().collect();
        sorted.sort_unstable();
        sorted.windows(2).all(|pair| pair[0] != pair[1]) && labels.iter().all(|label| !label.is_empty())
    };
    let hosts: Vec<String> = traces.iter().map(host).collect();
    let stems: Vec<String> = traces.iter().map(stem).collect();
    [hosts, stems].into_iter().find(are_distinct).unwrap_or_else(|| traces.iter().map(path).collect())
}
