//! `klock analyze offcpu`: how long tasks were off-CPU, by pairs of a task and its waker with the stacks of both, or by stack, waker, task, state or system call.
//!
//! Off-CPU times enter, sums leave. Text shows pairs as blocks, in the manner of bcc's offwaketime, the longest first. The folded stacks are an
//! [export](crate::export::offwaketime). Memory grows with the number of distinct pairs of stacks.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use rustc_hash::FxHashMap;
use serde::Serialize;
use trace_format::{Event, EventKind, Stack, StackId, Syscall, TaskId, TaskState, Trace, run_info::Source};

use super::{
    Table,
    frame::Sums as _,
    table::{self, rows_and_trust},
};
use crate::{
    error::AnalyzeError,
    input::{
        Input,
        names::{Names, function},
        trust::{About, Trust, TrustCounter},
    },
    output::{Column, Page, column::sort_key, layout},
};

mod options;
mod row;
#[cfg(test)]
mod tests;

pub use options::{By, Options};
pub use row::{Key, OffCpuSums, Row, Side, columns};

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

/// The key of a row by the ids of one trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct IdKey {
    target: Option<TaskId>,
    stack: Option<StackId>,
    waker: Option<TaskId>,
    waker_stack: Option<StackId>,
    state: Option<TaskState>,
    syscall: Option<Syscall>,
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
                ..none
            },
            By::Stack => Self { stack: event.stack, ..none },
            By::Waker => Self { waker: event.peer_task, ..none },
            By::Task => Self { target: event.task, ..none },
            By::State => Self { state: event.state, ..none },
            By::Syscall => Self { syscall: event.syscall, ..none },
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
        sums.into_iter().map(|(key, sums)| Row { name: key.label(), key, sums }).collect();
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
            By::State | By::Syscall => (false, false),
        };
        let is_of_trace = !matches!(self.by, By::Stack | By::State | By::Syscall);
        Key {
            target: has_target.then(|| self.side(key.target, key.stack)),
            waker: has_waker.then(|| self.side(key.waker, key.waker_stack)),
            state: key.state,
            syscall: key.syscall,
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
