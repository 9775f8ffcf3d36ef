//! offwaketime's folded output: for each way of being off the CPU, the stacks of who slept and of who woke it, and the sum of the
//! time in microseconds. `iovisor/bcc tools/offwaketime.py -f`, in the bytes of its first version and of its present one.
//!
//! Off-CPU time enters, of a trace that has it; of one that has not, waits for locks, whose waker is who ended them. Lines leave,
//! by their value, ascending. What a line is made of is in [`line`]; here is what is in it and what is not.
//!
//! A stack that was stored by a probe on `finish_task_switch`, as offwaketime's own, begins with that function. Then the first
//! frame of each of the four stacks is dropped, as offwaketime does, user frames too (bcc #1704). What klock records begins where
//! the task was, and loses nothing.

use std::{collections::BTreeMap, fmt, io::Write, ops::ControlFlow, str::FromStr};

use rustc_hash::{FxHashMap, FxHashSet};
use trace_format::{Event, EventKind, LockId, Stack, StackId, TaskId, TaskState, Trace, run_info::OFF_CPU};

use super::{Options as All, Written};
use crate::{
    choices::choices,
    error::AnalyzeError,
    intervals::{Counts, Hold, Outcome, Sink, Wait},
    loss,
    names::Names,
    pass::{Detail, Pass, Walk},
    report::trust::Watch,
    scope::Chosen,
    source,
};

mod line;
#[cfg(test)]
mod tests;

use line::{Lines, Side};

choices! {
    /// What becomes of the first frame of each stack.
    DropLeaf, "way with leaves" {
        /// It is dropped where the stack was stored with the probe's own function, as offwaketime does.
        #[default]
        Compat = "compat",
        /// It stays.
        None = "none",
    }
}

choices! {
    /// In which bytes.
    Grammar, "grammar" {
        /// Those of 2016: empty elements between a side's two stacks.
        #[default]
        Seed = "seed",
        /// Those of bcc 0.30: no empty elements, and words for stacks that were lost.
        Modern = "modern",
    }
}

/// Of which space the stacks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// The programs'.
    User,
    /// The kernel's.
    Kernel,
}

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// `-` between the two stacks of a side.
    pub delimited: bool,
    /// Only the stacks of one space (`-U`, `-K`).
    pub stacks: Option<Space>,
    /// Only threads of programs, or only those of the kernel (`-u`, `-k`). A thread without a single user frame in the trace is the
    /// kernel's.
    pub threads: Option<Space>,
    /// Only times of at least this, in whole microseconds (`-m`).
    pub min_block_us: u64,
    /// Only times of at most this, in whole microseconds (`-M`).
    pub max_block_us: u64,
    /// Only off-CPU times of tasks that left in one of these states; empty is all. Preemption is `runnable`.
    pub states: Vec<TaskState>,
    /// What becomes of first frames.
    pub drop_leaf: DropLeaf,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            delimited: false,
            stacks: None,
            threads: None,
            min_block_us: 1,
            max_block_us: u64::MAX,
            states: Vec::new(),
            drop_leaf: DropLeaf::default(),
        }
    }
}

/// Writes the lines.
///
/// # Errors
///
/// The trace can't be read or holds no events, a filter means nothing in it, it lost too much to be ranked, or what `out` says.
pub(super) fn write(
    trace: &Trace,
    options: &All,
    grammar: Grammar,
    out: &mut (dyn Write + Send),
) -> Result<Written, AnalyzeError> {
    let own = &options.offwaketime;
    let names = Names::read(trace)?;
    let chosen = Chosen::of(trace, &names, &options.filter)?;
    let mut sums = Sums { options: own, times: FxHashMap::default() };
    let mut watch = Watch::default();
    let mut notes = Vec::new();
    let (walk, counts) = if has_off_cpu(trace)? {
        (off_cpu(trace, &chosen, &mut sums)?, Counts::default())
    } else {
        notes.push(
            "this trace has no off-CPU time, so waits for locks are written; record with --off-cpu for all else"
                .to_owned(),
        );
        if !own.states.is_empty() {
            notes
                .push("--state chooses among off-CPU times: of waits for locks it leaves nothing".to_owned());
        }
        let mut sink =
            Waits { sums: &mut sums, chosen: &chosen, watch: &mut watch, released: FxHashMap::default() };
        Pass { trace, names: &names, chosen: &chosen, detail: Detail::All }.run(&mut sink)?
    };
    let trust = watch.block(trace, (&walk, &counts), &chosen, &names);
    loss::check(trace, &trust, options.allow_loss)?;
    let stacks = trace.stacks()?;
    let lines = Lines { names: &names, grammar, options: own, marks_missed: trace.info().loss.stacks > 0 };
    let items = sums.write(&lines, &stacks, out)?;
    Ok(Written { items, trust, notes })
}

/// Whether off-CPU time was recorded. A trace made by hand may say nothing of its sources.
fn has_off_cpu(trace: &Trace) -> Result<bool, AnalyzeError> {
    let sources = &trace.info().sources;
    if sources.is_empty() {
        return Ok(trace.events_by_kind()?.iter().any(|(kind, _)| *kind == EventKind::OffCpu));
    }
    Ok(sources.iter().any(|source| source.name == OFF_CPU))
}

/// Adds the off-CPU times of the trace up.
fn off_cpu(trace: &Trace, chosen: &Chosen, sums: &mut Sums<'_>) -> Result<Walk, AnalyzeError> {
    let mut walk = Walk::default();
    let to_ns = chosen.window.to_ns;
    source::for_each(trace, |event| {
        if to_ns.is_some_and(|to_ns| event.ts_ns >= to_ns) {
            return ControlFlow::Break(());
        }
        walk.see(&[event.ts_ns]);
        walk.lose(event);
        if event.kind == EventKind::OffCpu && chosen.wants_event(event) {
            sums.add_off_cpu(event);
        }
        ControlFlow::Continue(())
    })?;
    Ok(walk)
}

/// What one sum is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Way {
    task: TaskId,
    stack: Option<StackId>,
    waker: Option<TaskId>,
    waker_stack: Option<StackId>,
}

/// The times so far, in microseconds.
struct Sums<'a> {
    options: &'a Options,
    times: FxHashMap<Way, u64>,
}

impl Sums<'_> {
    fn add_off_cpu(&mut self, event: &Event) {
        let states = &self.options.states;
        let (Some(task), Some(ns)) = (event.task, event.wait_ns) else { return };
        if states.is_empty() || event.state.is_some_and(|state| states.contains(&state)) {
            let (waker, waker_stack) = (event.peer_task, event.peer_stack);
            self.add(Way { task, stack: event.stack, waker, waker_stack }, ns);
        }
    }

    /// Each time counts in whole microseconds, as offwaketime measures it.
    fn add(&mut self, way: Way, ns: i64) {
        let us = u64::try_from(ns / 1000).unwrap_or(0);
        if (self.options.min_block_us..=self.options.max_block_us).contains(&us) {
            let sum = self.times.entry(way).or_default();
            *sum = sum.saturating_add(us);
        }
    }

    /// Writes a line for each text, and says how many. What differs in ids alone is one line.
    fn write(
        &self,
        lines: &Lines<'_>,
        stacks: &[Stack],
        out: &mut (dyn Write + Send),
    ) -> Result<u64, AnalyzeError> {
        let stack = |id: Option<StackId>| {
            let at = id.and_then(|id| usize::try_from(id.0).ok());
            at.and_then(|at| stacks.get(at)).map_or(&[][..], |stack| &stack.frames)
        };
        let mut programs: FxHashSet<TaskId> = FxHashSet::default();
        for way in self.times.keys() {
            for (task, id) in [(Some(way.task), way.stack), (way.waker, way.waker_stack)] {
                if stack(id).iter().any(|frame| !frame.kernel) {
                    programs.extend(task);
                }
            }
        }
        let wanted = |task: &TaskId| match self.options.threads {
            None => true,
            Some(Space::User) => programs.contains(task),
            Some(Space::Kernel) => !programs.contains(task),
        };
        let mut texts: BTreeMap<String, u64> = BTreeMap::new();
        for (way, us) in self.times.iter().filter(|(way, _)| wanted(&way.task)) {
            let side = |task: Option<TaskId>, id| {
                let of_program = task.is_some_and(|task| programs.contains(&task));
                Side { task, frames: stack(id), of_program }
            };
            let text = lines.line(&side(Some(way.task), way.stack), &side(way.waker, way.waker_stack));
            let sum = texts.entry(text).or_default();
            *sum = sum.saturating_add(*us);
        }
        let mut sorted: Vec<(&String, u64)> = texts.iter().map(|(text, us)| (text, *us)).collect();
        sorted.sort_by_key(|(_, us)| *us);
        for (text, us) in &sorted {
            writeln!(out, "{text} {us}").map_err(AnalyzeError::Write)?;
        }
        Ok(sorted.len() as u64)
    }
}

/// Takes waits that ended.
struct Waits<'a, 'b> {
    sums: &'a mut Sums<'b>,
    chosen: &'a Chosen,
    watch: &'a mut Watch,
    /// Who gave each lock back last, and when: the waker of a wait of which the scheduler tells none.
    released: FxHashMap<LockId, (TaskId, i64)>,
}

impl Sink for Waits<'_, '_> {
    fn hold(&mut self, hold: &Hold) {
        self.released.insert(hold.lock, (hold.released_by.unwrap_or(hold.task), hold.end_ns));
        if self.chosen.wants_hold(hold) {
            self.watch.hold(hold);
        }
    }

    fn wait(&mut self, wait: &Wait) {
        if !self.chosen.wants_wait(wait) {
            return;
        }
        self.watch.wait(wait);
        if matches!(wait.outcome, Outcome::Acquired | Outcome::Abandoned(_))
            && self.sums.options.states.is_empty()
        {
            let waker = wait.waker.or_else(|| self.releaser(wait));
            let (task, stack, waker_stack) = (wait.task, wait.stack, wait.waker_stack);
            self.sums.add(Way { task, stack, waker, waker_stack }, wait.wait_ns);
        }
    }
}

impl Waits<'_, '_> {
    /// The one whose release let the wait end.
    fn releaser(&self, wait: &Wait) -> Option<TaskId> {
        let (task, end_ns) = *self.released.get(&wait.lock)?;
        let ended_it = wait.outcome == Outcome::Acquired && task != wait.task && end_ns >= wait.start_ns;
        ended_it.then_some(task)
    }
}
