//! The evidence of one group, from its rows in the order of the trace. State is kept for tasks, open waits
//! and the last two batches.

use std::collections::{BTreeSet, VecDeque};

use rustc_hash::FxHashMap;
use trace_format::TaskId;

use super::{BATCH_NS, Evidence, VAIN_NS};

/// The rows of a group so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    tasks: FxHashMap<TaskId, TaskRole>,
    /// Waits whose end may turn out to be vain, oldest end first.
    ended: VecDeque<Ended>,
    /// The tasks whose wait ended while others waited, by its end, until a wake is called.
    entered: BTreeSet<(i64, TaskId)>,
    /// The tasks that wait, by the begin of their wait.
    open: BTreeSet<(i64, TaskId)>,
    now_ns: i64,
    /// By number of open waits: the time with so many.
    open_ns: Vec<i64>,
    batch: Option<Batch>,
    before: Option<Batch>,
    /// The number of batches by size.
    batches: FxHashMap<usize, u64>,
    counts: Evidence,
}

/// A task of a group.
#[derive(Clone, Copy, Debug, Default)]
struct TaskRole {
    /// The begin of its open wait.
    begin_ns: Option<i64>,
    /// The end of its wait, if it entered.
    entered_ns: Option<i64>,
    /// Whether it waited at all.
    has_waited: bool,
    /// Whether it woke a task since its last wait ended.
    has_woken: bool,
    /// When it entered its last call that wakes others.
    called_ns: Option<i64>,
    /// Waits with a known waker.
    waits: u64,
    /// Waits of others that it ended.
    wakes: u64,
    /// Whether it ended any, in vain or not.
    passes_on: bool,
}

#[derive(Clone, Copy, Debug)]
struct Ended {
    task: TaskId,
    begin_ns: i64,
    end_ns: i64,
    waker: Option<TaskId>,
    /// When the waker entered its last call that had returned by the end.
    called_ns: Option<i64>,
}

/// Waits that one task ended together.
#[derive(Clone, Debug)]
struct Batch {
    waker: TaskId,
    tasks: Vec<TaskId>,
    first_ns: i64,
    last_ns: i64,
}

impl Group {
    /// A task begins to wait.
    pub(crate) fn begin(&mut self, task: TaskId, ts_ns: i64) {
        self.advance(ts_ns);
        let of_task = self.tasks.entry(task).or_default();
        if of_task.begin_ns.is_some() {
            return;
        }
        if let Some(end_ns) = of_task.entered_ns.take() {
            self.entered.remove(&(end_ns, task));
        }
        let last = self.ended.iter().rposition(|ended| ended.task == task);
        let vain = last.filter(|_| !of_task.has_woken);
        let joined = vain.and_then(|at| self.ended.remove(at));
        let begin_ns = joined.map_or(ts_ns, |ended| ended.begin_ns);
        of_task.begin_ns = Some(begin_ns);
        of_task.has_waited = true;
        self.open.insert((begin_ns, task));
    }

    /// A task enters a call that wakes others, or finds nobody.
    pub(crate) fn call(&mut self, task: TaskId, ts_ns: i64) {
        let of_task = self.tasks.entry(task).or_default();
        (of_task.has_woken, of_task.called_ns) = (true, Some(ts_ns));
        let first_ns = self.open.first().map(|(begin_ns, _)| *begin_ns);
        while let Some((end_ns, entered)) = self.entered.first().copied()
            && end_ns <= ts_ns
        {
            self.entered.pop_first();
            self.tasks.entry(entered).or_default().entered_ns = None;
            let is_behind = first_ns.is_some_and(|begin_ns| begin_ns < end_ns);
            self.counts.entered += u64::from(is_behind);
            self.counts.left += u64::from(is_behind && entered == task);
        }
    }

    pub(crate) fn wake(&mut self, task: TaskId) {
        self.tasks.entry(task).or_default().has_woken = true;
    }

    /// The wait of a task ends; without a waker, it was given up, or the waker is not known.
    pub(crate) fn end(&mut self, task: TaskId, ts_ns: i64, waker: Option<TaskId>) {
        self.advance(ts_ns);
        let of_task = self.tasks.entry(task).or_default();
        let Some(begin_ns) = of_task.begin_ns.take() else { return };
        of_task.has_woken = false;
        self.open.remove(&(begin_ns, task));
        let waker = waker.filter(|waker| *waker != task);
        if waker.is_some() && !self.open.is_empty() {
            of_task.entered_ns = Some(ts_ns);
            self.entered.insert((ts_ns, task));
        }
        let called_ns = waker.and_then(|waker| self.tasks.get(&waker)?.called_ns);
        self.ended.push_back(Ended { task, begin_ns, end_ns: ts_ns, waker, called_ns });
        if let Some(waker) = waker {
            self.wake(waker);
            self.tasks.entry(waker).or_default().passes_on = true;
        }
    }

    /// Whether a task ended a wait of another one.
    pub(crate) fn passes_on(&self, task: TaskId) -> bool {
        self.tasks.get(&task).is_some_and(|of_task| of_task.passes_on)
    }

    /// Ends all waits: what follows is not known.
    pub(crate) fn lose(&mut self, ts_ns: i64) {
        self.advance(ts_ns);
        self.tasks.values_mut().for_each(|task| (task.begin_ns, task.entered_ns) = (None, None));
        self.open.clear();
        self.entered.clear();
        while let Some(ended) = self.ended.pop_front() {
            self.count(ended);
        }
        self.close_batch();
        self.before = None;
    }

    /// Returns the evidence at the end of the trace.
    pub(crate) fn evidence(mut self, end_ns: i64) -> Evidence {
        self.lose(end_ns);
        let waited = self.tasks.values().filter(|task| task.has_waited).count();
        let size = |least: usize| move |(size, _): &(&usize, &u64)| **size >= least;
        let sum = |least: usize| self.batches.iter().filter(size(least));
        Evidence {
            tasks: waited as u64,
            both: self.tasks.values().map(|task| task.waits.min(task.wakes)).sum(),
            some_ns: self.open_ns.iter().skip(1).sum(),
            all_ns: self.open_ns.get(waited).copied().filter(|_| waited > 0).unwrap_or(0),
            batched: sum(2).map(|(size, batches)| *size as u64 * batches).sum(),
            batches: sum(1).map(|(_, batches)| batches).sum(),
            ..self.counts
        }
    }

    fn advance(&mut self, ts_ns: i64) {
        let open = self.open.len();
        if self.open_ns.len() <= open {
            self.open_ns.resize(open + 1, 0);
        }
        self.open_ns[open] += ts_ns.saturating_sub(self.now_ns).max(0);
        self.now_ns = self.now_ns.max(ts_ns);
        while let Some(ended) = self.ended.front().copied()
            && self.now_ns.saturating_sub(ended.end_ns) > VAIN_NS
        {
            self.ended.pop_front();
            self.count(ended);
        }
    }

    /// Counts a wait whose end was not vain.
    fn count(&mut self, ended: Ended) {
        let Ended { task, begin_ns, end_ns, waker, called_ns } = ended;
        let Some(waker) = waker else {
            self.close_batch();
            self.before = None;
            return;
        };
        self.counts.waits += 1;
        self.tasks.entry(task).or_default().waits += 1;
        self.tasks.entry(waker).or_default().wakes += 1;
        let joins = |batch: &Batch| {
            let is_one_call = called_ns.is_some_and(|called_ns| called_ns <= batch.first_ns);
            let is_soon = end_ns.saturating_sub(batch.last_ns) <= BATCH_NS;
            batch.waker == waker && !batch.tasks.contains(&task) && (is_one_call || is_soon)
        };
        match self.batch.as_mut().filter(|batch| joins(batch)) {
            Some(batch) => {
                batch.tasks.push(task);
                batch.last_ns = end_ns;
            }
            None => {
                self.close_batch();
                self.batch = Some(Batch { waker, tasks: vec![task], first_ns: end_ns, last_ns: end_ns });
            }
        }
        if let Some(before) = &self.before
            && begin_ns < before.first_ns
            && !before.tasks.contains(&task)
        {
            self.counts.queued += 1;
            self.counts.relayed += u64::from(before.tasks.contains(&waker));
        }
    }

    fn close_batch(&mut self) {
        if let Some(batch) = self.batch.take() {
            *self.batches.entry(batch.tasks.len()).or_default() += 1;
            self.before = Some(batch);
        }
    }
}
