//! The rows of the table: steps of cycles by the ids of their trace enter, rows with names leave.

use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;
use trace_format::{Mode, Stack, StackId};

use super::{By, Verdict};
use crate::{
    error::AnalyzeError,
    input::{Input, names},
    order::{Acquisition, Cycle, Node, Step},
    output::Column,
    tables::{
        key::{self, Key, RowKey},
        key_columns,
        key_columns::folded,
        trace_column,
    },
};

/// The most threads of a step that are named.
const NAMED_THREADS: usize = 4;

/// One step of a cycle: a lock was wanted while another one was held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The number of the cycle.
    pub cycle: usize,
    /// Whether it can deadlock.
    pub verdict: Verdict,
    /// The number of its locks, and of its steps.
    pub length: usize,
    /// Whether tasks were in this deadlock when the trace ended.
    pub has_deadlocked: bool,
    /// The number of times that a task wanted the one lock while it held the other.
    pub count: u64,
    /// The number of threads that did.
    pub threads: usize,
    /// The names of the first of them; safe to print.
    pub by: Vec<String>,
    /// The lock that they held.
    pub held: Taking,
    /// The lock that they wanted.
    pub taken: Taking,
    /// The trace, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
}

/// A lock or a class of locks, and the call that took it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Taking {
    /// The name of the lock; safe to print.
    pub name: String,
    /// Exclusive or shared.
    pub mode: Mode,
    /// The site of the call; safe to print.
    pub at: String,
    /// The functions of the stack from the site outwards, of the first time.
    pub stack: Vec<String>,
    /// The key of the lock or class.
    #[serde(flatten)]
    pub key: Key,
}

impl Taking {
    /// Returns `#0 cache_lock (pthread_mutex), shared`.
    pub(super) fn lock(&self) -> String {
        let mode = if self.mode == Mode::Shared { ", shared" } else { "" };
        format!("{}{mode}", self.name)
    }

    fn label(&self) -> String {
        format!("{} at {}", self.lock(), self.at)
    }
}

impl Row {
    /// Returns the name of the row.
    fn name(&self) -> String {
        let trace = self.trace.as_ref().map_or_else(String::new, |trace| format!("{trace}: "));
        format!("{trace}{} -> {}", self.held.label(), self.taken.label())
    }
}

/// Names the cycles of one trace.
pub(super) struct Naming<'a> {
    by: By,
    input: &'a Input<'a>,
    several: bool,
    /// The stacks of the cycles.
    stacks: FxHashMap<StackId, Stack>,
}

impl<'a> Naming<'a> {
    /// Reads the stacks of these cycles.
    pub(super) fn new(
        by: By,
        input: &'a Input<'a>,
        several: bool,
        cycles: &[Cycle],
    ) -> Result<Self, AnalyzeError> {
        let steps = cycles.iter().flat_map(|cycle| &cycle.steps);
        let wanted: FxHashSet<StackId> =
            steps.flat_map(|step| [step.held_stack, step.wanted_stack]).flatten().collect();
        let mut stacks = FxHashMap::default();
        if !wanted.is_empty() {
            let all = input.trace.stacks()?.into_iter().filter(|stack| wanted.contains(&stack.id));
            stacks.extend(all.map(|stack| (stack.id, stack)));
        }
        Ok(Self { by, input, several, stacks })
    }

    /// Returns the rows of a cycle.
    pub(super) fn rows(&self, number: usize, cycle: &Cycle) -> Vec<Row> {
        let row = |step: &Step| Row {
            cycle: number,
            verdict: cycle.verdict,
            length: cycle.steps.len(),
            has_deadlocked: cycle.has_deadlocked,
            count: step.count,
            threads: step.tasks.len(),
            by: step
                .tasks
                .iter()
                .take(NAMED_THREADS)
                .map(|task| self.input.names.task_label(*task))
                .collect(),
            held: self.taking(step.held, step.held_stack),
            taken: self.taking(step.wanted, step.wanted_stack),
            trace: self.several.then(|| self.input.label.clone()),
        };
        cycle.steps.iter().map(row).collect()
    }

    fn taking(&self, acquisition: Acquisition, stack: Option<StackId>) -> Taking {
        let Acquisition { node, mode, site } = acquisition;
        let (names, lock) = (&self.input.names, node.lock());
        let key = match self.by {
            By::Lock => RowKey::Lock(lock),
            By::Class => RowKey::Class(names.class_number(lock)),
        };
        let stack = stack.and_then(|stack| self.stacks.get(&stack)).map_or(&[][..], |stack| &stack.frames);
        let shown = names::shown_frames(stack, names.is_kernel(lock)).map(names::function);
        Taking {
            name: Node::label(node, names),
            mode,
            at: names.point_of_number(site).label(),
            stack: shown.collect(),
            key: Key::of(key, names),
        }
    }
}

/// Declares the columns; rows of several traces have their trace.
pub fn columns(by: By, several: bool) -> Vec<Column<Row>> {
    type Of = Column<Row>;
    let number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    let key = match by {
        By::Lock => key::By::Lock,
        By::Class => key::By::Class,
    };
    let mut columns = vec![
        Of::count(
            "cycle",
            move |row| number(row.cycle),
            "The number of the cycle that the row is a step of.",
        )
        .ascending(),
        Of::text(
            "verdict",
            |row| row.verdict.as_str().into(),
            "inversion, needs_writer; with --all also shared, gated, one_thread, never_together.",
        ),
        Of::count("length", move |row| number(row.length), "The number of locks of the cycle.").ascending(),
        Of::count("deadlocked", |row| row.has_deadlocked, "1 if the recording ended in this deadlock.")
            .programs(),
        Of::count(
            "count",
            |row| row.count,
            "How often a task took, or waited for, the lock while it held the other.",
        )
        .heading("times"),
        Of::count("threads", move |row| number(row.threads), "Threads that did."),
        Of::text("by", |row| row.by.join("; ").into(), "The names of up to four of them.").programs(),
        Of::text("held_at", |row| row.held.at.as_str().into(), "The site at which they took the held lock.")
            .programs(),
        Of::text("held_mode", |row| row.held.mode.as_str().into(), "exclusive or shared.").programs(),
        Of::text(
            "taken_at",
            |row| row.taken.at.as_str().into(),
            "The site at which they took the other lock.",
        )
        .programs(),
        Of::text("taken_mode", |row| row.taken.mode.as_str().into(), "exclusive or shared.").programs(),
        Of::new("name", crate::output::Kind::Text, |row| row.name().into(), "The name of the row.")
            .row_name()
            .heading("held -> taken"),
    ];
    for (prefix, of) in [("held_", held as fn(&Row) -> &Taking), ("taken_", taken)] {
        let lock = Of::text(format!("{prefix}lock"), move |row| of(row).name.as_str().into(), "").identity();
        columns.push(lock);
        columns.extend(key_columns(key, prefix, move |row: &Row| Some(&of(row).key)));
        let stack = Of::text(format!("{prefix}stack"), move |row| folded(&of(row).stack), "").identity();
        columns.push(stack);
    }
    columns.extend(trace_column(several, |row: &Row| row.trace.as_deref()));
    columns
}

fn held(row: &Row) -> &Taking {
    &row.held
}

fn taken(row: &Row) -> &Taking {
    &row.taken
}
