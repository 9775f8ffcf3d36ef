//! The folded stacks of offwaketime (`iovisor/bcc tools/offwaketime.py -f`): the stacks of a task off-CPU and of its waker, and the
//! sum of the times in microseconds. The bytes are those of its first version or of its present one.
//!
//! Off-CPU times go in, or waits for locks if the trace has none; then the waker is the task that ended the wait. Lines come out, by
//! value, ascending. [`line`] composes a line; this module selects and adds up.
//!
//! A stack that was stored by a probe on `finish_task_switch`, as offwaketime's own, begins with that function. Then the first
//! frame of each of the four stacks is dropped, as offwaketime does, even user frames (bcc #1704). The stacks of klock begin where
//! the task was, and lose no frame.

use std::{collections::BTreeMap, io::Write};

use rustc_hash::{FxHashMap, FxHashSet};
use trace_format::{Event, EventKind, LockId, StackId, TaskId};

use super::{
    options::{Grammar, Options, Space},
    run::Exporter,
};
use intervals::{
    input::Input,
    input::trust::Trust,
    items::{Item, Needs, Outcome, Wait},
};
use output::error::AnalyzeError;

mod line;
#[cfg(test)]
mod tests;

use line::{Lines, Side};

/// Adds up off-CPU times and writes lines.
pub(super) struct OffWakeTime<'a> {
    grammar: Grammar,
    options: &'a Options,
    out: &'a mut (dyn Write + Send),
    /// Times in µs, of the trace that is being read.
    times: FxHashMap<Way, u64>,
    /// By lock: the task that released it last, and the time of that.
    released: FxHashMap<LockId, (TaskId, i64)>,
    /// Lines of all traces without their values, and the values.
    lines: BTreeMap<String, u64>,
    notes: Vec<String>,
    /// Whether the trace that is being read has off-CPU times.
    reads_rows: bool,
}

/// The subject of a sum: a task off-CPU and its waker, as ids of one trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Way {
    task: TaskId,
    stack: Option<StackId>,
    waker: Option<TaskId>,
    waker_stack: Option<StackId>,
}

impl<'a> OffWakeTime<'a> {
    pub(super) fn new(grammar: Grammar, options: &'a Options, out: &'a mut (dyn Write + Send)) -> Self {
        Self {
            grammar,
            options,
            out,
            times: FxHashMap::default(),
            released: FxHashMap::default(),
            lines: BTreeMap::new(),
            notes: Vec::new(),
            reads_rows: false,
        }
    }

    fn note(&mut self, note: &str) {
        if !self.notes.iter().any(|known| known == note) {
            self.notes.push(note.to_owned());
        }
    }

    /// Adds a time in whole microseconds, as offwaketime measures it.
    fn add(&mut self, way: Way, ns: i64) {
        let us = u64::try_from(ns / 1000).unwrap_or(0);
        if us > 0 && ns / 1000 <= self.options.max_wait_ns / 1000 {
            let sum = self.times.entry(way).or_default();
            *sum = sum.saturating_add(us);
        }
    }

    /// Returns the task whose release ended the wait.
    fn releaser(&self, wait: &Wait) -> Option<TaskId> {
        let (task, end_ns) = *self.released.get(&wait.lock)?;
        let ended_it = wait.outcome == Outcome::Acquired && task != wait.task && end_ns >= wait.start_ns;
        ended_it.then_some(task)
    }
}

impl Exporter for OffWakeTime<'_> {
    const RANKS: bool = true;

    fn begin(&mut self, input: &Input<'_>) -> Result<(), AnalyzeError> {
        self.reads_rows = input.has_off_cpu()?;
        if self.reads_rows {
            return Ok(());
        }
        self.note("the trace has no off-CPU times, so waits for locks are written; record with --off-cpu for all off-CPU times");
        if !self.options.states.is_empty() {
            self.note("--state selects off-CPU times, and waits for locks have no state: nothing is left");
        }
        Ok(())
    }

    fn needs(&self) -> Needs {
        Needs { rows: self.reads_rows, ..Needs::default() }
    }

    fn push(&mut self, item: Item<'_>, _: &Input<'_>, is_selected: bool) {
        match item {
            Item::Row(row) => self.event(&row.to_event()),
            Item::Hold(hold) => {
                let releaser = hold.released_by.unwrap_or(hold.task);
                self.released.insert(hold.lock, (releaser, hold.end_ns));
            }
            Item::Wait(wait) if is_selected => self.wait(wait),
            _ => {}
        }
    }

    fn end(&mut self, input: &Input<'_>) -> Result<(), AnalyzeError> {
        let stacks = input.trace.stacks()?;
        let stack = |id: Option<StackId>| {
            let at = id.and_then(|id| usize::try_from(id.0).ok());
            at.and_then(|at| stacks.get(at)).map_or(&[][..], |stack| &stack.frames)
        };
        let times = std::mem::take(&mut self.times);
        let sides = times.keys().flat_map(|way| [(Some(way.task), way.stack), (way.waker, way.waker_stack)]);
        let programs: FxHashSet<TaskId> = sides
            .filter(|(_, id)| stack(*id).iter().any(|frame| !frame.kernel))
            .filter_map(|(task, _)| task)
            .collect();
        let is_selected = |task: &TaskId| match self.options.threads {
            None => true,
            Some(Space::User) => programs.contains(task),
            Some(Space::Kernel) => !programs.contains(task),
        };
        let marks_missed = input.trace.info().loss.stacks > 0;
        let lines = Lines { names: &input.names, grammar: self.grammar, options: self.options, marks_missed };
        for (way, us) in times.iter().filter(|(way, _)| is_selected(&way.task)) {
            let side = |task: Option<TaskId>, id| {
                let of_program = task.is_some_and(|task| programs.contains(&task));
                Side { task, frames: stack(id), of_program }
            };
            let line = lines.line(&side(Some(way.task), way.stack), &side(way.waker, way.waker_stack));
            let sum = self.lines.entry(line).or_default();
            *sum = sum.saturating_add(*us);
        }
        self.released.clear();
        Ok(())
    }

    fn finish(self, _trust: &Trust) -> Result<(u64, Vec<String>), AnalyzeError> {
        let mut sorted: Vec<(&String, u64)> = self.lines.iter().map(|(line, us)| (line, *us)).collect();
        sorted.sort_by_key(|(_, us)| *us);
        for (line, us) in &sorted {
            writeln!(self.out, "{line} {us}").map_err(AnalyzeError::Write)?;
        }
        Ok((sorted.len() as u64, self.notes))
    }
}

impl OffWakeTime<'_> {
    fn event(&mut self, event: &Event) {
        let states = &self.options.states;
        let (EventKind::OffCpu, Some(task), Some(ns)) = (event.kind, event.task, event.wait_ns) else {
            return;
        };
        if states.is_empty() || event.state.is_some_and(|state| states.contains(&state)) {
            let (waker, waker_stack) = (event.peer_task, event.peer_stack);
            self.add(Way { task, stack: event.stack, waker, waker_stack }, ns);
        }
    }

    fn wait(&mut self, wait: &Wait) {
        let has_ended = matches!(wait.outcome, Outcome::Acquired | Outcome::Abandoned(_));
        if has_ended && self.options.states.is_empty() {
            // The releaser stands in where the scheduler names no waker.
            let waker = wait.waker.or_else(|| self.releaser(wait));
            let (task, stack, waker_stack) = (wait.task, wait.stack, wait.waker_stack);
            self.add(Way { task, stack, waker, waker_stack }, wait.wait_ns);
        }
    }
}
