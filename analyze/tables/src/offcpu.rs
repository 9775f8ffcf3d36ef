//! `klock offcpu`: how long tasks were off-CPU, by pairs of a task and its waker with the stacks of both, or
//! by stack, waker, task, state or system call.
//!
//! Each off-CPU time is a line of its key and its measures, which polars adds up. Text shows pairs as blocks,
//! in the manner of bcc's offwaketime, the longest first. The folded stacks are an export (`klock export
//! --format offwaketime`). Memory grows with the number of distinct pairs of stacks.

use std::io::{self, Write};

use polars::prelude::{IntoLazy as _, col};
use rustc_hash::FxHashMap;
use serde::Serialize;
use trace_format::{EventKind, TaskState, Trace, run_info::Source};

use super::{
    Table, TableOptions,
    frame::{Lines, Sums as _, failed, merged, sums},
    key::{folded, syscall_label},
    rank::{self, Rows, count, duration, order_by},
    row_ids::NamedRow,
    table::{self, rows_and_trust},
    trace_column,
};
use intervals::{
    input::Input,
    input::names::UNKNOWN,
    input::trust::{About, Trust, TrustCounter},
};
use output::{Column, Kind, Page, error::AnalyzeError, layout, layout::TextStyle, units};

mod keys;
#[cfg(test)]
mod tests;

pub use keys::{By, Key, Side};
use keys::{Distinct, IdKey, KeyNames, has_target, has_waker, number};

/// The name of rows without a waker.
const NO_WAKER: &str = "(no waker: preempted, or not seen)";

/// Options of the table. The least wait of the filter selects off-CPU times, too.
pub type Options = TableOptions<By>;

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

/// One row.
pub type Row = rank::Row<Key>;

sums! {
    struct OffCpuFacts {
        off_cpu_ns: Sum,
        /// The part of it asleep, and the part in the run queue. They add up to it.
        blocked_ns: Sum,
        runq_ns: Sum,
        count: Sum,
        max_ns: Max,
    }
}

/// Computes the table of one trace or several, of tasks in these states, or in all if there are none. A
/// preempted task is `runnable`. A task of one trace is not a task of another.
///
/// # Errors
///
/// A trace cannot be read, holds no events or lost too much, or a filter finds nothing in any of them.
pub fn offcpu(traces: &[Trace], states: &[TaskState], options: &Options) -> Result<OffCpu, AnalyzeError> {
    let by = options.by;
    let declared = columns(by, 0, false);
    let order = order_by(&declared, &options.sort, &["off_cpu_ns"])?;
    let inputs = Input::open_all(traces, 0, &options.filter)?;
    let (mut keys, mut key_names) = (Distinct::default(), KeyNames::default());
    let (mut trust, mut is_recorded) = (Vec::new(), false);
    let mut facts = Lines::new(["key"]);
    for (at, input) in inputs.iter().enumerate() {
        is_recorded |= input.has_off_cpu()?;
        let mut found = FxHashMap::<IdKey, OffCpuFacts>::default();
        let outcome = input.events(|event| {
            let is_selected = states.is_empty() || event.state.is_some_and(|state| states.contains(&state));
            if let (EventKind::OffCpu, Some(off_cpu_ns), true) = (event.kind, event.wait_ns, is_selected) {
                // Where the parts are not known, the state says which one all of it was.
                let asleep_ns = if event.state == Some(TaskState::Runnable) { 0 } else { off_cpu_ns };
                let blocked_ns =
                    event.blocked_ns.unwrap_or_else(|| (asleep_ns - event.runq_ns.unwrap_or(0)).max(0));
                let runq_ns = event.runq_ns.unwrap_or_else(|| off_cpu_ns.saturating_sub(blocked_ns));
                let of_event = OffCpuFacts { off_cpu_ns, blocked_ns, runq_ns, count: 1, max_ns: off_cpu_ns };
                found.entry(IdKey::of(event, by)).or_default().merge(&of_event);
            }
        })?;
        let mut of_trace = input.trust(TrustCounter::default(), &outcome, options.allow_loss)?;
        let sources = input.trace.info().sources.iter().filter(|source| Source::is_sched(source));
        of_trace.limits = sources.flat_map(|source| source.limits.iter().cloned()).collect();
        trust.push(of_trace);
        let ids = found.keys().flat_map(|key| [key.stack, key.waker_stack]).flatten();
        let mut numbers = key_names.of_trace((at, input), &ids.collect())?;
        for (key, of_key) in found {
            let key = key_names.number(key, by, &mut numbers);
            facts.push([number(&mut keys, key).into()], &of_key);
        }
    }
    let name = |[id]: [i64; 1]| {
        let key = key_names.key(keys[id as usize], &inputs);
        NamedRow { name: key.label(), trace: key.trace.clone(), key }
    };
    let merged = merged::<OffCpuFacts>();
    let all = facts.frame().and_then(|facts| {
        let average = |of: &str, name: &str| (col(of) / col("count")).alias(name);
        let averages = [average("runq_ns", "runq_avg_ns"), average("off_cpu_ns", "avg_ns")];
        facts.lazy().group_by([col("key")]).agg(merged).with_columns(averages).collect()
    });
    let all = all.map_err(failed)?;
    let total_ns = rank::total(&all, "off_cpu_ns").map_err(failed)?;
    let Rows { rows, total: rows_total, .. } =
        rank::rows(rank::declared(&declared), all, ["key"], &order, options.limit, name)?;
    let is_by_time = matches!(options.sort.as_str(), "" | "off_cpu" | "off_cpu_ns");
    let (traces, sorted_sum) = (inputs.len(), is_by_time.then_some(total_ns));
    Ok(OffCpu {
        by,
        traces,
        is_recorded,
        rows,
        rows_total,
        total_ns,
        sorted_sum,
        trust: Trust::merged(trust),
    })
}

impl Key {
    /// Returns the name of a row.
    fn label(&self) -> String {
        let waker = |side: &Side| if side.name.is_empty() { NO_WAKER.to_owned() } else { side.name.clone() };
        let of = match (&self.target, &self.waker) {
            (Some(target), Some(side)) if side.name.is_empty() => target.name.clone(),
            (Some(target), Some(side)) => format!("{} woken by {}", target.name, side.name),
            (Some(target), None) if !target.name.is_empty() => target.name.clone(),
            (Some(target), None) => match outside_scheduler(&target.stack) {
                [] => UNKNOWN.to_owned(),
                frames => joined(frames),
            },
            (None, Some(side)) => waker(side),
            (None, None) => match (self.state, self.syscall) {
                (Some(state), _) => state.to_string(),
                (None, Some(call)) => syscall_label(call, &[]),
                (None, None) => UNKNOWN.to_owned(),
            },
        };
        self.trace.as_ref().map_or_else(|| of.clone(), |trace| format!("{trace}: {of}"))
    }
}

/// Returns the frames of a stack without the frames of the switch itself, which all stacks share.
fn outside_scheduler(stack: &[String]) -> &[String] {
    let is_switch = |frame: &&String| matches!(frame.as_str(), "__schedule" | "schedule");
    let switch = stack.iter().take_while(is_switch).count();
    if switch == stack.len() { stack } else { &stack[switch..] }
}

/// Joins frames. Equal frames that follow each other, as in a recursion, are one with their number.
fn joined(frames: &[String]) -> String {
    let run = |run: &[String]| match run {
        [frame, _, ..] => format!("{frame} ({} times)", run.len()),
        run => run.concat(),
    };
    frames.chunk_by(|a, b| a == b).map(run).collect::<Vec<_>>().join(layout::STACK_SEPARATOR)
}

/// Declares the columns. Shares are of `total_ns`; rows of several traces have their trace.
pub fn columns(by: By, total_ns: i64, several: bool) -> Vec<Column<Row>> {
    type Of = Column<Row>;
    let share = move |row: &Row| units::ppm(row["off_cpu_ns"], total_ns);
    let heading = match by {
        By::Pair => "task woken by waker",
        By::Stack => "left the CPU in < called by",
        By::Waker => "waker",
        By::Task => "task",
        By::State => "state",
        By::Syscall => "system call",
    };
    let mut columns = vec![
        duration("off_cpu", "Time off-CPU: asleep and in the run queue.").sum(),
        Of::ppm("share", share, "off_cpu divided by that of all rows.").not_sortable().programs(),
        duration("blocked", "The part of it asleep.").sum().heading("asleep"),
        duration("runq", "The part of it in the run queue.").sum(),
        duration("runq_avg", "runq divided by count.").programs(),
        count("count", "The number of times.").sum(),
        duration("avg", "off_cpu divided by count."),
        duration("max", "The longest time."),
        Of::name(heading, |row| row.name.as_str().into()),
    ];
    type Get = fn(&Row) -> Option<&Side>;
    let sides: [(&str, bool, Get); 2] = [
        ("", has_target(by), |row| row.key.target.as_ref()),
        ("waker_", has_waker(by), |row| row.key.waker.as_ref()),
    ];
    for (prefix, _, side) in sides.into_iter().filter(|(_, is_there, _)| *is_there) {
        if by != By::Stack {
            let number = |word: &str, get: fn(&Side) -> Option<i32>| {
                Of::new(format!("{prefix}{word}"), Kind::Count, move |row| side(row).and_then(get).into(), "")
            };
            columns.push(number("pid", |side| side.pid).identity());
            columns.push(number("tid", |side| side.tid).identity());
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
    columns.extend(trace_column(several, |row: &Row| row.trace.as_deref()));
    columns
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
        let total = units::duration(self.total_ns);
        let head = format!(
            "{total} off the CPU; each block: who woke, its stack, --, the stack that slept, its times"
        );
        page.style.labelled("", &head, out)?;
        writeln!(out)?;
        self.rows.iter().try_for_each(|row| write_block(row, self.total_ns, page.style, out))?;
        layout::more(self.hidden_rows(), "pair", "", page.style, out)
    }
}

/// Writes a row as offwaketime does: the waker, its stack root first, the stack of the task leaf first, and
/// the task.
fn write_block(row: &Row, total_ns: i64, style: TextStyle, out: &mut (dyn Write + Send)) -> io::Result<()> {
    let mut frame = |text: &str| writeln!(out, "{}", style.line(&format!("    {text}")));
    if let Some(trace) = &row.trace {
        frame(&format!("{:<16} {trace}", "trace:"))?;
    }
    if let Some(waker) = &row.key.waker {
        let name = if waker.name.is_empty() { NO_WAKER } else { &waker.name };
        frame(&format!("{:<16} {name}", "waker:"))?;
        let outermost_first: Vec<&str> = waker.stack.iter().rev().map(String::as_str).collect();
        shortened(&outermost_first, style).iter().try_for_each(|function| frame(function))?;
    }
    frame(&format!("{:<16} --", "--"))?;
    if let Some(target) = &row.key.target {
        let innermost_first: Vec<&str> = target.stack.iter().map(String::as_str).collect();
        shortened(&innermost_first, style).iter().try_for_each(|function| frame(function))?;
        frame(&format!("{:<16} {}", "target:", target.name))?;
    }
    let percent = row["off_cpu_ns"] as f64 * 100.0 / total_ns.max(1) as f64;
    let times = units::times(row["count"]);
    let [off, blocked, runq, max] =
        ["off_cpu_ns", "blocked_ns", "runq_ns", "max_ns"].map(|column| units::duration(row[column]));
    let sums = format!("{off} ({percent:.1} %), {times}, at most {max}; asleep {blocked}, run queue {runq}");
    style.labelled("        ", &sums, out)?;
    writeln!(out)
}

/// The frames at each end of a stack that a terminal shows.
const FRAMES_AT_ENDS: usize = 4;

/// Returns the lines of a stack. A terminal has the ends of a long one, unless everything is asked for.
fn shortened(stack: &[&str], style: TextStyle) -> Vec<String> {
    let whole = || stack.iter().map(|function| (*function).to_owned());
    let left_out = stack.len().saturating_sub(2 * FRAMES_AT_ENDS);
    if !style.is_terminal || style.full || left_out < 2 {
        return whole().collect();
    }
    let more = std::iter::once(format!("... {left_out} more frames; --full shows them"));
    whole().take(FRAMES_AT_ENDS).chain(more).chain(whole().skip(FRAMES_AT_ENDS + left_out)).collect()
}
