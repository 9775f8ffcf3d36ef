//! Opens traces: makes an [`Input`] of each trace in which a filter finds something. Also the trust block of
//! what was read of it, and errors with the busiest locks as suggestions.

use rustc_hash::FxHashMap;
use trace_format::{EventKind, LockId, TaskId, Trace, run_info::Covers};

use super::{
    filter::{Filter, LockSelector, TaskSelector, resolve_lock, resolve_task},
    names::{self, Names},
    reading::{Input, ReadOutcome, readers},
    selection::Selection,
    trust::{self, Trust, TrustCounter},
};
use crate::items::{Columns, Item, Needs, Sink};
use output::error::AnalyzeError;

impl<'a> Input<'a> {
    /// Opens each trace in which the filter finds something. `frames` is as in [`open`](Self::open).
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open). A trace without events, or without the lock, task or function of the filter,
    /// is skipped if there is another; if there is none, the error of the first trace is returned.
    pub fn open_all(
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

    /// Opens one trace. Keeps the first `frames` functions of each stack, from the acquisition site outwards,
    /// for rows that show stacks.
    ///
    /// # Errors
    ///
    /// The trace cannot be read or holds no events, or the filter names a lock, a task or a function that it
    /// does not have.
    pub fn open(trace: &'a Trace, frames: usize, filter: &Filter) -> Result<Self, AnalyzeError> {
        let mut names = Names::read(trace)?;
        if frames > 0 {
            names.read_chains(trace, frames)?;
        }
        Self::new(trace, trace, names, filter).map_err(|error| with_suggestions(error, trace))
    }

    /// Returns the locks that a selector selects: one or more.
    ///
    /// # Errors
    ///
    /// The trace has no such lock.
    pub fn locks(&self, selector: &LockSelector) -> Result<Vec<LockId>, AnalyzeError> {
        resolve_lock(&self.names, selector).map_err(|error| with_suggestions(error, self.trace))
    }

    /// Returns the tasks that a selector selects: one or more.
    pub fn tasks(&self, selector: &TaskSelector) -> Result<Vec<TaskId>, AnalyzeError> {
        resolve_task(&self.names, selector)
    }

    /// Sends the intervals of every input into `readers` sinks of its own, and each sink to `add`, which
    /// returns what it counted for the trust block. Both get the index of the input.
    ///
    /// # Errors
    ///
    /// A trace cannot be read, or lost too many events to be ranked and `allow_loss` is not set.
    pub fn read_all<S: Sink + Send>(
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
    pub fn has_off_cpu(&self) -> Result<bool, AnalyzeError> {
        Ok(self.covers()? == Covers::All)
    }

    /// Returns whether the off-CPU time of tasks was recorded that hold a lock while others wait for it.
    pub fn has_holder_states(&self) -> Result<bool, AnalyzeError> {
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

    /// Returns what the numbers of a table of this input leave out.
    ///
    /// # Errors
    ///
    /// The trace lost too many events to be ranked, and `allow_loss` is not set.
    pub fn trust(
        &self,
        counter: TrustCounter,
        outcome: &ReadOutcome,
        allow_loss: bool,
    ) -> Result<Trust, AnalyzeError> {
        let mut trust =
            counter.block(self.trace, (&outcome.stats, &outcome.counts), &self.selection, &self.names);
        trust.deadlocks = self.describe(outcome);
        // The cycle may need locks that are not selected, such as condition variables.
        let is_long = trust.longest_open_wait_ns.is_some_and(|ns| ns >= LONG_WAIT_NS);
        if trust.deadlocks.is_empty()
            && (is_long
                || self.may_hang(outcome)
                || trust.waits_open_at_end > 0 && self.selection.is_of_some_locks())
        {
            trust.deadlocks = self.describe(&self.all_deadlocks()?);
        }
        trust::check(self.trace, &trust, allow_loss)?;
        Ok(trust)
    }

    /// Returns whether the first thread of a process that started in the recording waits at its end: no
    /// thread of it may be left that could act.
    fn may_hang(&self, outcome: &ReadOutcome) -> bool {
        let start_ns = self.trace.info().clocks_start.monotonic_ns;
        let mut first = self.names.tasks().iter().filter(|row| row.tid == row.pid);
        first.any(|row| row.start_ns >= Some(start_ns) && outcome.stats.left_out.waits_at_end(row.id))
    }

    /// Returns the deadlocks of all locks at the end of the window, a sentence each. Reads the trace again.
    pub fn deadlocks(&self) -> Result<Vec<String>, AnalyzeError> {
        Ok(self.describe(&self.all_deadlocks()?))
    }

    /// Reads the trace again, all locks of it, for what is open at the end of the window.
    pub fn all_deadlocks(&self) -> Result<ReadOutcome, AnalyzeError> {
        let selection = self.selection.of_all_locks(self.trace, &self.names)?;
        Ok(self.run_apart_selected(&selection, readers(), || ())?.1)
    }

    fn describe(&self, outcome: &ReadOutcome) -> Vec<String> {
        let sentence = |deadlock| trust::describe(deadlock, outcome.end_ns, &self.names);
        outcome.deadlocks.iter().map(sentence).collect()
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

/// Returns a label for each trace: the host if hosts differ, otherwise the file name if names differ,
/// otherwise the path.
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

/// The length of an open wait from which a deadlock through idle waits is looked for.
const LONG_WAIT_NS: i64 = 100_000_000;

/// Locks that an error suggests.
const MAX_SUGGESTIONS: usize = 5;

/// Returns the labels of the busiest locks that the selector selects, most waiting first: `#3 hot_mutex
/// (pthread_mutex)`; of all but idle ones if there is none. Returns no labels if the trace cannot be read:
/// the caller reports a more useful error.
pub(super) fn busiest_locks(trace: &Trace, lock: Option<LockSelector>) -> Vec<String> {
    let filter = Filter { lock, ..Filter::default() };
    let labels = Input::open(trace, 0, &filter).and_then(|input| {
        let sums = || WaitSums { selection: &input.selection, by_lock: FxHashMap::default() };
        let (sinks, _) = input.run_apart(readers(), sums)?;
        let label = |(lock, wait_ns)| (wait_ns, input.names.lock_label(lock), lock);
        let mut sums: Vec<_> = sinks.into_iter().flat_map(|sink| sink.by_lock).map(label).collect();
        sums.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| (&a.1, a.2).cmp(&(&b.1, b.2))));
        Ok(sums.into_iter().take(MAX_SUGGESTIONS).map(|(_, label, _)| label).collect())
    });
    labels.unwrap_or_default()
}

/// The waiting before credited holds by lock, in ns; `None` if it is not known of any of them.
struct WaitSums<'a> {
    selection: &'a Selection,
    by_lock: FxHashMap<LockId, Option<i64>>,
}

impl Sink for WaitSums<'_> {
    fn needs(&self) -> Needs {
        Needs::columns(Columns::Times)
    }

    fn push(&mut self, item: Item<'_>) {
        if let Item::Hold(hold) = item
            && self.selection.selects_hold(hold)
            && hold.is_credited()
        {
            let sum = self.by_lock.entry(hold.lock).or_default();
            *sum = hold.wait_ns.map_or(*sum, |ns| Some(sum.unwrap_or(0).saturating_add(ns)));
        }
    }
}
