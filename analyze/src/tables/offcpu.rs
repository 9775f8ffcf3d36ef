//! `klock analyze offcpu`: how long tasks were off-CPU, by pairs of a task and its waker with the stacks of both, or by stack, waker, task or state.
//!
//! Off-CPU times enter, sums leave. Text shows pairs as blocks, in the manner of bcc's offwaketime, the longest first. The folded stacks are an
//! [export](crate::export::offwaketime). Memory grows with the number of distinct pairs of stacks.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use rustc_hash::FxHashMap;
use serde::Serialize;
use trace_format::{Event, EventKind, Stack, StackId, TaskId, TaskState, Trace, run_info::Source};

use super::{
    Table,
    frame::{Sums as _, sums},
    key_columns::folded,
    table::{self, rows_and_trust},
    trace_column,
};
use crate::{
    TextStyle,
    choices::choices,
    error::AnalyzeError,
    input::{
        Input,
        filter::Filter,
        names::{Names, UNKNOWN, function},
        trust::{About, Trust, TrustCounter},
    },
    output::{Column, Kind, Page, column::sort_key, layout, units},
};

#[cfg(test)]
mod tests;

choices! {
    /// The key of a row.
    By, "key" {
        /// One task with its stack, and its waker with its stack.
        #[default]
        Pair = "pair",
        /// One stack of tasks that left the CPU.
        Stack = "stack",
        /// One waker.
        Waker = "waker",
        /// One task that was off-CPU.
        Task = "task",
        /// One state of tasks.
        State = "state",
    }
}

/// The name of rows without a waker.
const NO_WAKER: &str = "(no waker: preempted, or not seen)";

/// Options of the table.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The key of a row.
    pub by: By,
    /// Selects off-CPU times by the state of the task; empty for all. A preempted task is `runnable`.
    pub states: Vec<TaskState>,
    /// The column that rows are sorted by; empty for the longest time first.
    pub sort: String,
    /// The number of rows; `None` is all.
    pub limit: Option<usize>,
    /// The part of the traces to read. The least wait selects off-CPU times, too.
    pub filter: Filter,
    /// Whether to rank a trace that lost too many events for the order of rows to mean anything.
    pub allow_loss: bool,
}

/// The table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OffCpu {
    /// The key of a row.
    pub by: By,
    /// The number of traces.
    #[serde(skip)]
    pub traces: usize,
    /// Whether any trace has off-CPU times.
    pub is_recorded: bool,
    /// The rows, the longest time first.
    pub rows: Vec<Row>,
    /// The number of rows before the limit.
    pub rows_total: usize,
    /// The off-CPU time of all rows, in ns.
    pub total_ns: i64,
    /// The column that rows are sorted by, if it is the off-CPU time.
    #[serde(skip)]
    sorted_sum: Option<i64>,
    /// Events that the numbers do not hold.
    pub trust: Trust,
}

sums! {
    /// The sums of a row.
    #[derive(PartialEq, Eq, Serialize)]
    pub struct OffCpuSums {
        /// The off-CPU time, in ns.
        off_ns: Sum,
        /// The part of it asleep, in ns, as far as it is known.
        blocked_ns: Sum,
        /// The part of it in the run queue, in ns, as far as it is known.
        runq_ns: Sum,
        /// The number of times.
        count: Sum,
        /// The longest time, in ns.
        max_ns: Max,
    }
}

/// A task in a row, with its stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Side {
    /// Its process; `None` if there is no task.
    pub pid: Option<i32>,
    /// Its thread id.
    pub tid: Option<i32>,
    /// Its name.
    pub comm: Option<String>,
    /// The name with its ids; safe to print.
    pub name: String,
    /// The functions of its stack, kernel frames first, leaf first; empty if the row is about more than one stack.
    pub stack: Vec<String>,
}

/// The key of a row: the parts that [`By`] selects.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Key {
    /// The task that was off-CPU.
    pub target: Option<Side>,
    /// The task whose wake-up ended it.
    pub waker: Option<Side>,
    /// Its state.
    pub state: Option<TaskState>,
    /// The trace, if there are several and the row belongs to one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
}

/// One row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The key.
    #[serde(flatten)]
    pub key: Key,
    /// The name; safe to print.
    pub name: String,
    /// The sums.
    #[serde(flatten)]
    pub sums: OffCpuSums,
}

/// The key of a row by the ids of one trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct IdKey {
    target: Option<TaskId>,
    stack: Option<StackId>,
    waker: Option<TaskId>,
    waker_stack: Option<StackId>,
    state: Option<TaskState>,
}

impl IdKey {
    fn of(event: &Event, by: By) -> Self {
        let none = Self::default();
        match by {
            By::Pair => Self {
                target: event.task,
                stack: event.stack,
                waker: event.peer_task,
                waker_stack: event.peer_stack,
                state: None,
            },
            By::Stack => Self { stack: event.stack, ..none },
            By::Waker => Self { waker: event.peer_task, ..none },
            By::Task => Self { target: event.task, ..none },
            By::State => Self { state: event.state, ..none },
        }
    }
}

/// Computes the table of one trace or several. A task of one trace is not a task of another.
///
/// # Errors
///
/// A trace cannot be read, holds no events or lost too much, or a filter finds nothing in any of them.
pub fn offcpu(traces: &[Trace], options: &Options) -> Result<OffCpu, AnalyzeError> {
    let columns = columns(options.by, 0, false);
    let sort = sort_key(&columns, if options.sort.is_empty() { "off_cpu" } else { &options.sort })?;
    let inputs = Input::open_all(traces, 0, &options.filter)?;
    let (mut sums, mut trust, mut is_recorded) = (BTreeMap::<Key, OffCpuSums>::new(), Vec::new(), false);
    for input in &inputs {
        is_recorded |= input.has_off_cpu()?;
        let mut found = FxHashMap::<IdKey, OffCpuSums>::default();
        let outcome = input.events(|event| {
            let is_selected =
                options.states.is_empty() || event.state.is_some_and(|state| options.states.contains(&state));
            if let (EventKind::OffCpu, Some(off_ns), true) = (event.kind, event.wait_ns, is_selected) {
                let (blocked_ns, runq_ns) = (event.blocked_ns.unwrap_or(0), event.runq_ns.unwrap_or(0));
                let of_event = OffCpuSums { off_ns, blocked_ns, runq_ns, count: 1, max_ns: off_ns };
                found.entry(IdKey::of(event, options.by)).or_default().merge(&of_event);
            }
        })?;
        let mut of_trace = input.trust(TrustCounter::default(), &outcome, options.allow_loss)?;
        let sources = input.trace.info().sources.iter().filter(|source| Source::is_sched(source));
        of_trace.limits = sources.flat_map(|source| source.limits.iter().cloned()).collect();
        trust.push(of_trace);
        let naming =
            Naming { by: options.by, input, stacks: input.trace.stacks()?, several: inputs.len() > 1 };
        for (key, of_key) in found {
            sums.entry(naming.key(key)).or_default().merge(&of_key);
        }
    }
    let mut rows: Vec<Row> =
        sums.into_iter().map(|(key, sums)| Row { name: name(&key), key, sums }).collect();
    rows.sort_by(|a, b| sort.compare(a, b));
    let total_ns = rows.iter().fold(0, |sum: i64, row| sum.saturating_add(row.sums.off_ns));
    let rows_total = rows.len();
    rows.truncate(options.limit.unwrap_or(usize::MAX));
    let sorted_sum = sort.is_called("off_cpu").then_some(total_ns);
    let (by, traces, trust) = (options.by, inputs.len(), Trust::merged(trust));
    Ok(OffCpu { by, traces, is_recorded, rows, rows_total, total_ns, sorted_sum, trust })
}

/// Names the keys of one trace.
struct Naming<'a> {
    by: By,
    input: &'a Input<'a>,
    stacks: Vec<Stack>,
    several: bool,
}

impl Naming<'_> {
    fn key(&self, key: IdKey) -> Key {
        let (has_target, has_waker) = match self.by {
            By::Pair => (true, true),
            By::Stack | By::Task => (true, false),
            By::Waker => (false, true),
            By::State => (false, false),
        };
        let is_of_trace = !matches!(self.by, By::Stack | By::State);
        Key {
            target: has_target.then(|| self.side(key.target, key.stack)),
            waker: has_waker.then(|| self.side(key.waker, key.waker_stack)),
            state: key.state,
            trace: (self.several && is_of_trace).then(|| self.input.label.clone()),
        }
    }

    fn side(&self, task: Option<TaskId>, stack: Option<StackId>) -> Side {
        let names: &Names = &self.input.names;
        let row = task.and_then(|task| names.task(task));
        let stack = stack.and_then(|stack| self.stacks.get(usize::try_from(stack.0).ok()?));
        Side {
            pid: row.map(|row| row.pid),
            tid: row.map(|row| row.tid),
            comm: row.and_then(|row| row.comm.clone()),
            name: task.map_or_else(String::new, |task| names.task_label(task)),
            stack: stack.map_or_else(Vec::new, |stack| stack.frames.iter().map(function).collect()),
        }
    }
}

/// Returns the name of a row.
fn name(key: &Key) -> String {
    let waker = |side: &Side| if side.name.is_empty() { NO_WAKER.to_owned() } else { side.name.clone() };
    let of = match (&key.target, &key.waker) {
        (Some(target), Some(side)) if side.name.is_empty() => target.name.clone(),
        (Some(target), Some(side)) => format!("{} woken by {}", target.name, side.name),
        (Some(target), None) if !target.name.is_empty() => target.name.clone(),
        (Some(target), None) => match outside_scheduler(&target.stack) {
            [] => UNKNOWN.to_owned(),
            frames => frames.join(layout::STACK_SEPARATOR),
        },
        (None, Some(side)) => waker(side),
        (None, None) => key.state.map_or(UNKNOWN, TaskState::as_str).to_owned(),
    };
    key.trace.as_ref().map_or_else(|| of.clone(), |trace| format!("{trace}: {of}"))
}

/// Returns the frames of a stack without those of the switch itself, which all stacks share.
fn outside_scheduler(stack: &[String]) -> &[String] {
    let is_switch = |frame: &&String| matches!(frame.as_str(), "__schedule" | "schedule");
    let switch = stack.iter().take_while(is_switch).count();
    if switch == stack.len() { stack } else { &stack[switch..] }
}

/// Declares the columns. Shares are of `total_ns`; rows of several traces have their trace.
pub fn columns(by: By, total_ns: i64, several: bool) -> Vec<Column<Row>> {
    type Of = Column<Row>;
    let share = move |row: &Row| units::ppm(row.sums.off_ns, total_ns);
    let heading = match by {
        By::Pair => "task woken by waker",
        By::Stack => "left the CPU in < called by",
        By::Waker => "waker",
        By::Task => "task",
        By::State => "state",
    };
    let mut columns = vec![
        Of::duration("off_cpu", |row| row.sums.off_ns, "Time off-CPU: asleep and in the run queue.").sum(),
        Of::ppm("share", share, "off_cpu divided by that of all rows.").not_sortable().programs(),
        Of::duration("blocked", |row| row.sums.blocked_ns, "The part of it asleep.").sum().heading("asleep"),
        Of::duration("runq", |row| row.sums.runq_ns, "The part of it in the run queue.").sum(),
        Of::duration("runq_avg", |row| row.sums.runq_ns / row.sums.count.max(1), "runq divided by count.")
            .programs(),
        Of::count("count", |row| row.sums.count, "The number of times.").sum(),
        Of::duration("avg", |row| row.sums.off_ns / row.sums.count.max(1), "off_cpu divided by count."),
        Of::duration("max", |row| row.sums.max_ns, "The longest time."),
        Of::name(heading, |row| row.name.as_str().into()),
    ];
    type Get = fn(&Row) -> Option<&Side>;
    let sides: [(&str, bool, Get); 2] = [
        ("", matches!(by, By::Pair | By::Stack | By::Task), |row| row.key.target.as_ref()),
        ("waker_", matches!(by, By::Pair | By::Waker), |row| row.key.waker.as_ref()),
    ];
    for (prefix, _, side) in sides.into_iter().filter(|(_, is_there, _)| *is_there) {
        if by != By::Stack {
            let number = |word: &str, get: fn(&Side) -> Option<i32>| {
                let word = format!("{prefix}{word}");
                Of::new(word, Kind::Count, move |row| side(row).and_then(get).into(), "").identity()
            };
            columns.push(number("pid", |side| side.pid));
            columns.push(number("tid", |side| side.tid));
            let comm = format!("{prefix}comm");
            columns.push(
                Of::text(comm, move |row| side(row).and_then(|side| side.comm.as_deref()).into(), "")
                    .identity(),
            );
        }
        if matches!(by, By::Pair | By::Stack) {
            let stack = format!("{prefix}stack");
            columns.push(
                Of::text(stack, move |row| folded(side(row).map_or(&[], |side| &side.stack)), "").identity(),
            );
        }
    }
    columns.extend(trace_column(several, |row: &Row| row.key.trace.as_deref()));
    columns
}

impl Row {
    /// Writes a block as offwaketime does: the waker, its stack root first, the stack of the task leaf first, and the task.
    fn write_block(&self, total_ns: i64, style: TextStyle, out: &mut (dyn Write + Send)) -> io::Result<()> {
        let mut frame = |text: &str| writeln!(out, "{}", style.line(&format!("    {text}")));
        if let Some(trace) = &self.key.trace {
            frame(&format!("{:<16} {trace}", "trace:"))?;
        }
        if let Some(waker) = &self.key.waker {
            let name = if waker.name.is_empty() { NO_WAKER } else { &waker.name };
            frame(&format!("{:<16} {name}", "waker:"))?;
            waker.stack.iter().rev().try_for_each(|function| frame(function))?;
        }
        frame(&format!("{:<16} --", "--"))?;
        if let Some(target) = &self.key.target {
            target.stack.iter().try_for_each(|function| frame(function))?;
            frame(&format!("{:<16} {}", "target:", target.name))?;
        }
        let OffCpuSums { off_ns, blocked_ns, runq_ns, count, max_ns } = self.sums;
        let percent = off_ns as f64 * 100.0 / total_ns.max(1) as f64;
        let times = if count == 1 { "once".to_owned() } else { format!("{} times", units::exact(count)) };
        let [off, blocked, runq, max] = [off_ns, blocked_ns, runq_ns, max_ns].map(units::duration);
        frame(&format!(
            "    {off} ({percent:.1} %), {times}, at most {max}; asleep {blocked}, run queue {runq}"
        ))?;
        writeln!(out)
    }
}

impl Table for OffCpu {
    rows_and_trust!(Row);

    fn columns(&self) -> Vec<Column<Row>> {
        columns(self.by, self.total_ns, self.traces > 1)
    }

    fn dispensable(&self) -> &'static [&'static str] {
        &["avg", "max", "runq", "asleep"]
    }

    fn sorted_sum(&self) -> Option<i64> {
        self.sorted_sum
    }

    fn about(&self) -> About {
        About::OffCpu
    }

    fn nothing(&self) -> Option<String> {
        let nothing = if self.is_recorded {
            "no task was off-CPU in what was selected"
        } else {
            "off-CPU times were not recorded; record them with --off-cpu"
        };
        self.rows.is_empty().then(|| nothing.to_owned())
    }

    fn write_rows(
        &self,
        columns: &[Column<Row>],
        page: &Page,
        out: &mut (dyn Write + Send),
    ) -> io::Result<()> {
        if self.by != By::Pair || !page.columns.is_empty() {
            return table::write_table(self, columns, page, out);
        }
        self.rows.iter().try_for_each(|row| row.write_block(self.total_ns, page.style, out))?;
        layout::more(self.hidden_rows(), "pair", "", page.style, out)
    }
}
