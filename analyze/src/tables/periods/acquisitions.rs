//! The acquisitions of one reader: holds, waits and failed attempts enter, the sums of each key, period and task leave.

use rustc_hash::FxHashMap;
use trace_format::{LockId, TaskId};

use crate::{
    input::{Input, names::Names, selection::Selection, trust::TrustCounter},
    items::{Columns, Hold, Item, Needs, Outcome, Sink, Wait},
    tables::{
        frame::sums,
        key::{By, RowKey, Subject},
        spans::{LastPeriod, Periods},
    },
};

sums! {
    /// The acquisitions of one task, of a key in a period.
    pub(super) struct TaskSums {
        /// 1 if it acquired.
        threads: Sum,
        count: Sum,
        wait_total_ns: Sum,
        wait_max_ns: Max,
        /// Acquisitions whose wait is unknown.
        unknown: Sum,
        abandoned: Sum,
        try_failed: Sum,
        /// The start of the period since the start of the trace.
        from_ns: Max,
    }
}

/// A task in a period of a key.
pub(super) type Cell = (RowKey, i64, TaskId);

/// Cells that are found without hashing.
const LAST: usize = 256;

/// Adds up the acquisitions of the holds that a report counts, by key, period and task.
pub(crate) struct Acquisitions<'a> {
    by: By,
    periods: LastPeriod,
    names: &'a Names,
    selection: &'a Selection,
    pub(super) found: FxHashMap<Cell, u32>,
    /// The sums of each cell in `found`.
    pub(super) sums: Vec<(Cell, TaskSums)>,
    /// The cells that some tasks last counted in, by task id modulo their number: a task mostly goes on where it was.
    last: Box<[u32; LAST]>,
    /// The starts of the periods in which open holds were acquired again.
    again: FxHashMap<(LockId, TaskId, i64), Vec<i64>>,
    pub(super) trust: TrustCounter,
}

impl<'a> Acquisitions<'a> {
    pub(super) fn new(by: By, period_ns: i64, input: &'a Input<'_>) -> Self {
        let (names, selection) = (&input.names, &input.selection);
        let (found, again) = (FxHashMap::default(), FxHashMap::default());
        let (sums, last) = (Vec::new(), Box::new([0; LAST]));
        let periods = LastPeriod::new(Periods { origin_ns: 0, length_ns: period_ns });
        Self { by, periods, names, selection, found, sums, last, again, trust: TrustCounter::default() }
    }

    /// Returns the start of the period that has this time.
    #[inline]
    fn period(&mut self, ns: i64) -> i64 {
        self.periods.start(ns)
    }

    /// Returns the sums of a subject and its task in the period with this start.
    fn sums(&mut self, subject: impl Into<Subject>, task: TaskId, start_ns: i64) -> &mut TaskSums {
        let subject = subject.into();
        let key = || RowKey::of(subject, self.by, self.names);
        let last = &mut self.last[task.0 as usize % LAST];
        // Keys take longest to make and to compare.
        let is_it = |((of_key, ns, of), _): &(Cell, TaskSums)| {
            (*of, *ns) == (task, start_ns) && (self.by == By::Host || *of_key == key())
        };
        if !self.sums.get(*last as usize).is_some_and(is_it) {
            let cell = (key(), start_ns, task);
            let next = self.sums.len() as u32;
            *last = *self.found.entry(cell).or_insert(next);
            if *last == next {
                let from_ns = start_ns.saturating_sub(self.selection.start_ns).max(0);
                self.sums.push((cell, TaskSums { from_ns, ..TaskSums::default() }));
            }
        }
        &mut self.sums[*last as usize].1
    }
}

impl Sink for Acquisitions<'_> {
    fn needs(&self) -> Needs {
        Needs { acquired: true, ..Needs::columns(Columns::Times) }
    }

    fn push(&mut self, item: Item<'_>) {
        match item {
            Item::Acquired(hold) if hold.acquisitions > 1 => {
                let start_ns = self.period(hold.end_ns);
                self.again.entry((hold.lock, hold.task, hold.start_ns)).or_default().push(start_ns);
            }
            Item::Hold(hold) => self.hold(hold),
            Item::Wait(wait) => self.wait(wait),
            Item::TryFailed(failure) if self.selection.selects_try_failure(failure) => {
                let start_ns = self.period(failure.ts_ns);
                self.sums(failure, failure.task, start_ns).try_failed += 1;
            }
            _ => {}
        }
    }
}

impl Acquisitions<'_> {
    fn hold(&mut self, hold: &Hold) {
        let again = if hold.acquisitions > 1 {
            self.again.remove(&(hold.lock, hold.task, hold.start_ns))
        } else {
            None
        };
        if !self.selection.selects_hold(hold) {
            return;
        }
        self.trust.hold(hold);
        if !hold.is_credited() {
            return;
        }
        let start_ns = self.period(hold.start_ns);
        let sums = self.sums(hold, hold.task, start_ns);
        let wait_ns = hold.wait_ns.unwrap_or(0);
        sums.threads = 1;
        sums.count += 1;
        sums.unknown += i64::from(hold.wait_ns.is_none());
        sums.wait_total_ns = sums.wait_total_ns.saturating_add(wait_ns);
        sums.wait_max_ns = sums.wait_max_ns.max(wait_ns);
        for start_ns in again.into_iter().flatten() {
            let sums = self.sums(hold, hold.task, start_ns);
            (sums.threads, sums.count) = (1, sums.count + 1);
        }
    }

    fn wait(&mut self, wait: &Wait) {
        if self.selection.selects_wait(wait) {
            self.trust.wait(wait);
            if matches!(wait.outcome, Outcome::Abandoned(_)) {
                let start_ns = self.period(wait.end_ns);
                self.sums(wait, wait.task, start_ns).abandoned += 1;
            }
        }
    }
}
