//! The sum of a path, and what its text says of it.

use std::io::{self, Write};

use serde::Serialize;

use crate::{
    blame::write_sum,
    frame::{Sums as _, sums},
};
use intervals::{critical::Root, input::Input};
use output::{layout::TextStyle, units};

sums! {
    /// The length of a path by kind of step, in ns.
    #[derive(PartialEq, Eq, Serialize)]
    pub struct PathParts {
        /// The task on the path holds a lock.
        in_locks_ns: Sum,
        /// A lock was released, and the task that waited for it does not run yet.
        handoff_ns: Sum,
        /// A task was woken from an idle wait, and does not run yet.
        wake_up_ns: Sum,
        /// The task on the path holds no lock, and runs or is off the CPU without a record.
        no_lock_ns: Sum,
        /// It holds no lock, and is preempted or waits for a CPU.
        off_cpu_ns: Sum,
        /// It holds no lock, and sleeps or is stopped; no task that was recorded woke it.
        asleep_ns: Sum,
        /// It waits for a lock, and the release was not recorded.
        waiting_ns: Sum,
        /// It waits idly, and the wake-up was not recorded.
        idle_ns: Sum,
        /// Before the start of the task on the path, or before its first event: the creator of a task is not
        /// recorded.
        before_ns: Sum,
        /// Before events that were lost.
        lost_ns: Sum,
    }
}

/// The sum of the paths of all traces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PathTotals {
    /// The task, and in each trace: its name, safe to print.
    pub tasks: Vec<String>,
    /// The number of spans, if there is a path for each.
    pub spans: Option<usize>,
    /// The spans without a path: outside of the window, or of no task of the trace.
    pub spans_left_out: usize,
    /// The length of the path: exactly the sum of its parts.
    pub path_ns: i64,
    /// The parts.
    #[serde(flatten)]
    pub parts: PathParts,
    /// Whether off-CPU times were recorded in every trace.
    pub has_states: bool,
}

impl PathTotals {
    pub(super) fn new() -> Self {
        Self { has_states: true, ..Self::default() }
    }

    /// Adds the path of a task.
    pub(super) fn add_task(&mut self, input: &Input<'_>, root: Root) {
        self.tasks.push(input.names.task_label(root.task));
        self.path_ns = self.path_ns.saturating_add(root.to_ns.saturating_sub(root.from_ns));
    }

    /// Adds the paths of spans, and a number of spans without one.
    pub(super) fn add_spans(&mut self, paths: &[(Root, usize)], others: usize) {
        self.spans = Some(self.spans.unwrap_or_default() + paths.len());
        self.spans_left_out += others;
        let lengths = paths.iter().map(|(root, _)| root.to_ns.saturating_sub(root.from_ns));
        self.path_ns = lengths.fold(self.path_ns, i64::saturating_add);
    }

    pub(super) fn add(&mut self, parts: &PathParts, has_states: bool) {
        self.has_states &= has_states;
        self.parts.merge(parts);
    }

    /// Writes the sum and its parts, exact, so that it can be checked; and what the trace lacks.
    pub(super) fn write(&self, style: TextStyle, out: &mut (dyn Write + Send)) -> io::Result<()> {
        let of = match (self.spans, self.tasks.as_slice()) {
            (Some(spans), _) => units::counted(spans, "span"),
            (None, [task]) => task.clone(),
            (None, tasks) => format!("{} tasks", tasks.len()),
        };
        let sum = format!("path of {of}: {} ns", units::exact(self.path_ns));
        write_sum(&sum, &self.parts.all(), style, out)?;
        if self.spans_left_out > 0 {
            let text = "spans are outside of the window, or of no task of the trace";
            style.wrapped(&format!("{} {text}", self.spans_left_out), out)?;
        }
        if !self.has_states && self.parts.no_lock_ns > 0 {
            let text =
                "the time of a task without a lock may be sleep that was not recorded: record with --off-cpu";
            style.wrapped(text, out)?;
        }
        if self.parts.before_ns > self.path_ns / 10 {
            style.wrapped(
                "which task created a thread is not recorded: the path ends at the start of a thread; another --task has another path",
                out,
            )?;
        }
        Ok(())
    }

    /// Returns the sentence that stands for a table without a path.
    pub(super) fn nothing(&self) -> String {
        if self.spans.is_some() {
            return "no span is in the window and of a task of the trace; `klock report --by task` shows the threads, and --spans-clock sets the clock of the spans".to_owned();
        }
        "the task did not live in the window; `klock report --by task` shows the tasks, and --from and --to set the window".to_owned()
    }
}

impl PathParts {
    /// Returns the parts, with the words for each.
    fn all(&self) -> [(i64, &'static str); 10] {
        [
            (self.in_locks_ns, "in locks"),
            (self.handoff_ns, "in hand-offs"),
            (self.wake_up_ns, "in wake-ups"),
            (self.no_lock_ns, "without a lock"),
            (self.off_cpu_ns, "without a CPU"),
            (self.asleep_ns, "asleep"),
            (self.waiting_ns, "in waits for locks whose release was not recorded"),
            (self.idle_ns, "in idle waits whose wake-up was not recorded"),
            (self.before_ns, "before the first event or the start of a task"),
            (self.lost_ns, "before a loss"),
        ]
    }
}
