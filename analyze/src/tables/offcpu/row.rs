//! The rows of the table: sums of off-CPU times, the tasks and stacks that they are of, the columns, and the blocks of text.

use std::io::{self, Write};

use serde::Serialize;
use trace_format::{Syscall, TaskState};

use super::options::By;
use crate::{
    TextStyle,
    input::names::UNKNOWN,
    output::{Column, Kind, layout, units},
    tables::{frame::sums, key::syscall_label, key_columns::folded, trace_column},
};

/// The name of rows without a waker.
pub(super) const NO_WAKER: &str = "(no waker: preempted, or not seen)";

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
    /// The system call in which it left the CPU.
    pub syscall: Option<Syscall>,
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

impl Key {
    /// Returns the name of a row.
    pub(super) fn label(&self) -> String {
        let waker = |side: &Side| if side.name.is_empty() { NO_WAKER.to_owned() } else { side.name.clone() };
        let of = match (&self.target, &self.waker) {
            (Some(target), Some(side)) if side.name.is_empty() => target.name.clone(),
            (Some(target), Some(side)) => format!("{} woken by {}", target.name, side.name),
            (Some(target), None) if !target.name.is_empty() => target.name.clone(),
            (Some(target), None) => match outside_scheduler(&target.stack) {
                [] => UNKNOWN.to_owned(),
                frames => frames.join(layout::STACK_SEPARATOR),
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
        By::Syscall => "system call",
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
    pub(super) fn write_block(
        &self,
        total_ns: i64,
        style: TextStyle,
        out: &mut (dyn Write + Send),
    ) -> io::Result<()> {
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
        let times = units::times(count);
        let [off, blocked, runq, max] = [off_ns, blocked_ns, runq_ns, max_ns].map(units::duration);
        frame(&format!(
            "    {off} ({percent:.1} %), {times}, at most {max}; asleep {blocked}, run queue {runq}"
        ))?;
        writeln!(out)
    }
}
