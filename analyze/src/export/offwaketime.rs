//! The stacks of offwaketime (`iovisor/bcc tools/offwaketime.py`), folded (`-f`) or a line per function: the
//! stacks of a task off-CPU and of its waker, and the sum of the times in microseconds. The bytes are as its
//! first version or its present version writes them.
//!
//! A trace without off-CPU times has waits for locks instead; then the waker is the task that ended the wait.
//! Lines are sorted by value, ascending. [`mod@line`] composes a line; this module selects and adds up.
//!
//! A stack that was stored by a probe on `finish_task_switch`, as offwaketime's own, begins with that
//! function. Then the first frame of each of the four stacks is dropped, as offwaketime does, even user
//! frames (bcc #1704). The stacks of klock begin where the task was, and lose no frame.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};
use trace_format::{EventKind, EventRow as _, LockId, StackId, TaskId, Trace};

use super::{
    options::{Format, Options, Space},
    read::{Out, Written, open, read, read_events},
    stacks::Stacks,
};
use intervals::{
    input::Input,
    input::trust::Trust,
    items::{Item, Needs, Outcome},
};
use output::error::AnalyzeError;

mod line;
#[cfg(test)]
mod tests;

use line::Lines;

/// The notes on a trace without off-CPU times.
const NO_OFF_CPU: &str = "the trace has no off-CPU times, so waits for locks are written; record with --off-cpu for all off-CPU times";
const NO_STATES: &str = "--state selects off-CPU times, and waits for locks have no state: nothing is left";

/// The subject of a sum: a task off-CPU and its waker, as ids of one trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Way {
    task: TaskId,
    stack: Option<StackId>,
    waker: Option<TaskId>,
    waker_stack: Option<StackId>,
}

/// Times in µs by subject.
type Times = FxHashMap<Way, u64>;

/// Writes a line for each subject.
pub(super) fn write(traces: &[Trace], options: &Options, out: Out<'_>) -> Result<Written, AnalyzeError> {
    let (mut lines, mut trusts) = (BTreeMap::<String, u64>::new(), Vec::new());
    let mut missed = 0;
    let mut has_all_off_cpu = true;
    for input in &open(traces, &options.filter)? {
        let (mut times, reads_events) = (Times::default(), input.has_off_cpu()?);
        has_all_off_cpu &= reads_events;
        let add_up = if reads_events { add_up_off_cpu } else { add_up_waits };
        trusts.push(add_up(input, options, &mut times)?);
        missed += add_lines(input, options, &times, &mut lines)?;
    }
    let mut sorted: Vec<(&String, u64)> = lines.iter().map(|(line, us)| (line, *us)).collect();
    sorted.sort_by_key(|(_, us)| *us);
    for (line, us) in &sorted {
        match options.format {
            Format::OffwaketimeText => writeln!(out, "{line}        {us}\n"),
            _ => writeln!(out, "{line} {us}"),
        }
        .map_err(AnalyzeError::Write)?;
    }
    let notes = [(!has_all_off_cpu, NO_OFF_CPU), (!has_all_off_cpu && !options.states.is_empty(), NO_STATES)];
    let notes = notes.into_iter().filter(|(is_true, _)| *is_true).map(|(_, note)| note.to_owned());
    let warning = (missed > 0).then(|| format!("WARNING: {missed} stack traces could not be displayed."));
    let notes = warning.into_iter().chain(notes);
    Ok(Written::new(sorted.len(), trusts, notes.collect()))
}

fn add_up_off_cpu(input: &Input<'_>, options: &Options, times: &mut Times) -> Result<Trust, AnalyzeError> {
    let states = &options.states;
    read_events(input, options.allow_loss, |event| {
        if let (EventKind::OffCpu, Some(task), Some(ns)) = (event.kind, event.task, event.wait_ns)
            && (states.is_empty() || event.state.is_some_and(|state| states.contains(&state)))
        {
            let (waker, waker_stack) = (event.waker(), event.peer_stack);
            add(times, Way { task, stack: event.stack, waker, waker_stack }, ns, options);
        }
    })
}

/// Adds the waits for locks of a trace. The task that released the lock stands in where the scheduler names
/// no waker.
fn add_up_waits(input: &Input<'_>, options: &Options, times: &mut Times) -> Result<Trust, AnalyzeError> {
    // By lock: the task that released it last, and the time of that.
    let mut released: FxHashMap<LockId, (TaskId, i64)> = FxHashMap::default();
    read(input, Needs::default(), options.allow_loss, |item, is_selected| match item {
        Item::Hold(hold) => {
            released.insert(hold.lock, (hold.released_by.unwrap_or(hold.task), hold.end_ns));
        }
        Item::Wait(wait) if is_selected && options.states.is_empty() => {
            let releaser = match wait.outcome {
                Outcome::Acquired => released.get(&wait.lock),
                Outcome::Abandoned(_) => None,
                Outcome::OpenAtEnd | Outcome::CutByLoss => return,
            };
            let ended_it = |&&(task, end_ns): &&(TaskId, i64)| task != wait.task && end_ns >= wait.start_ns;
            let waker = wait.waker.or(releaser.filter(ended_it).map(|(task, _)| *task));
            let (task, stack, waker_stack) = (wait.task, wait.stack, wait.waker_stack);
            add(times, Way { task, stack, waker, waker_stack }, wait.wait_ns, options);
        }
        _ => {}
    })
}

/// Adds a time in whole microseconds, as offwaketime measures it.
fn add(times: &mut Times, way: Way, ns: i64, options: &Options) {
    let us = u64::try_from(ns / 1000).unwrap_or(0);
    if us > 0 && options.max_wait_ns.is_none_or(|most| ns / 1000 <= most / 1000) {
        let sum = times.entry(way).or_default();
        *sum = sum.saturating_add(us);
    }
}

/// Adds the lines of a trace. Returns the number of stacks in them that the trace lost.
fn add_lines(
    input: &Input<'_>,
    options: &Options,
    times: &Times,
    lines: &mut BTreeMap<String, u64>,
) -> Result<usize, AnalyzeError> {
    let stacks = Stacks::read(input.trace)?;
    let sides = times.keys().flat_map(|way| [(Some(way.task), way.stack), (way.waker, way.waker_stack)]);
    let programs: FxHashSet<TaskId> = sides
        .filter(|(_, id)| stacks.all_frames(*id).iter().any(|frame| !frame.kernel))
        .filter_map(|(task, _)| task)
        .collect();
    let marks_missed = input.trace.info().loss.stacks > 0;
    let composer = Lines { names: &input.names, options, stacks: &stacks, programs, marks_missed };
    let is_selected = |task: &TaskId| match options.threads {
        None => true,
        Some(Space::User) => composer.programs.contains(task),
        Some(Space::Kernel) => !composer.programs.contains(task),
    };
    let mut missed = 0;
    for (way, us) in times.iter().filter(|(way, _)| is_selected(&way.task)) {
        let lost = [way.stack.is_none(), way.waker.is_some() && way.waker_stack.is_none()];
        missed += lost.into_iter().filter(|is_lost| *is_lost && marks_missed).count();
        let line = composer.line((Some(way.task), way.stack), (way.waker, way.waker_stack));
        let sum = lines.entry(line).or_default();
        *sum = sum.saturating_add(*us);
    }
    Ok(missed)
}
