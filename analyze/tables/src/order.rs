//! `klock order`: locks that tasks take in opposite orders, which could deadlock in another run.
//!
//! The table has a row for each step of each cycle of lock orders. Each trace is read twice: once for the
//! trust block, and once in the order of its rows, through all locks: filters choose what is shown, never
//! what a task holds. `docs/lock-order.md` has the definitions.

use std::{
    borrow::Borrow,
    collections::HashMap,
    io::{self, Write},
    sync::Arc,
};

use rustc_hash::FxHashSet;
use serde::Serialize;
use trace_format::{EventRow as _, LockRow, Mode, Stack, StackId, Trace};

use crate::{
    Table,
    key::{self, Key, Single, folded},
    key_columns, table, trace_column,
};
use intervals::{
    input::filter::Filter,
    input::trust::{About, SelectedCounter, Trust},
    input::{Input, names, readers},
    items::Columns,
    order::{Acquisition, Collector, Cycle, CycleStep, FoundCycles, Lifetimes, Nodes, search},
};
use output::{Column, Page, column::sort_key, error::AnalyzeError, layout::TextStyle};

#[cfg(test)]
mod tests;
mod text;

pub use intervals::order::{By, CycleCounts, Verdict};
pub use text::{FailIf, Graph};

/// The number of locks in the longest cycles that are searched for, if no other is given.
pub const LENGTH: usize = 4;

/// Options of the table.
#[derive(Clone, Debug)]
pub struct OrderOptions {
    /// The locks that an order is about.
    pub by: By,
    /// The most locks of a cycle.
    pub length: usize,
    /// Whether to list the cycles that cannot deadlock, too.
    pub all: bool,
    /// The column that cycles are sorted by; empty for the shortest first.
    pub sort: String,
    /// The number of cycles; `None` is all.
    pub limit: Option<usize>,
    /// Selects attempts to take a lock. A cycle is shown if one of its attempts is selected.
    pub filter: Filter,
}

impl Default for OrderOptions {
    fn default() -> Self {
        let (by, length, filter) = (By::default(), LENGTH, Filter::default());
        Self { by, length, all: false, sort: String::new(), limit: None, filter }
    }
}

/// The table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LockOrder {
    /// The locks that an order is about.
    pub by: By,
    /// The number of traces.
    pub traces: usize,
    /// The steps of the cycles. The steps of one cycle follow each other.
    pub rows: Vec<OrderRow>,
    /// The number of rows before the limit.
    pub rows_total: usize,
    /// The number of cycles before the limit.
    pub cycles_total: usize,
    /// The numbers of cycles, also of those that are not listed.
    pub counts: CycleCounts,
    /// Whether the search ended before all cycles were found.
    pub is_cut: bool,
    /// Attempts that were left out, because there were too many distinct nestings.
    pub dropped: u64,
    /// Events and intervals that the numbers do not hold.
    pub trust: Trust,
}

/// The most threads of a step that are named.
const NAMED_THREADS: usize = 4;

/// One step of a cycle: a lock was wanted while another one was held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OrderRow {
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
    fn lock(&self) -> String {
        let mode = if self.mode == Mode::Shared { ", shared" } else { "" };
        format!("{}{mode}", self.name)
    }
}

impl OrderRow {
    /// Returns the name of the trace and a colon, if there are several traces.
    fn of_trace(&self) -> String {
        self.trace.as_ref().map_or_else(String::new, |trace| format!("{trace}: "))
    }

    /// Returns the name of the row.
    fn name(&self) -> String {
        let Self { held, taken, .. } = self;
        format!("{}{} at {} -> {} at {}", self.of_trace(), held.lock(), held.at, taken.lock(), taken.at)
    }
}

/// Finds the lock orders of one trace or several. A lock of one trace is not a lock of another.
///
/// # Errors
///
/// A trace cannot be read or holds no events, a filter finds nothing in any of them, or no releases of the
/// selected locks were recorded.
pub fn order(traces: &[Trace], options: &OrderOptions) -> Result<LockOrder, AnalyzeError> {
    let columns = columns(options.by, false);
    let sort = (!options.sort.is_empty()).then(|| sort_key(&columns, &options.sort)).transpose()?;
    let inputs = Input::open_all(traces, 0, &options.filter)?;
    if let Some(input) = inputs.first().filter(|_| !inputs.iter().any(has_releases)) {
        return Err(AnalyzeError::NoReleases { path: input.trace.paths().events.clone() });
    }
    // Nothing is ranked, so no loss is too much.
    let how = (readers(), true);
    let sink = |at: usize| SelectedCounter::new(&inputs[at].selection);
    let trust = Input::read_all(&inputs, how, sink, |_, counter| counter.trust)?;
    let (mut cycles, mut counts, mut is_cut, mut dropped) = (Vec::new(), CycleCounts::default(), false, 0);
    for input in &inputs {
        let (found, dropped_here) = found_in(input, options)?;
        counts.merge(found.counts);
        is_cut |= found.is_cut;
        dropped += dropped_here;
        let shown: Vec<_> =
            found.cycles.into_iter().filter(|cycle| options.all || cycle.verdict.is_inversion()).collect();
        let stacks = stacks_of(input, &shown)?;
        let naming = Naming { by: options.by, input, stacks, several: inputs.len() > 1 };
        for cycle in &shown {
            let row = |step| naming.row(cycles.len() + 1, cycle, step);
            let rows: Vec<OrderRow> = cycle.steps.iter().map(row).collect();
            cycles.push(rows);
        }
    }
    if let Some(sort) = sort {
        let first = |rows: &[OrderRow]| rows.iter().min_by(|a, b| sort.compare(a, b)).cloned();
        let mut keyed: Vec<(OrderRow, Vec<OrderRow>)> =
            cycles.into_iter().filter_map(|rows| Some((first(&rows)?, rows))).collect();
        keyed.sort_by(|(a, _), (b, _)| sort.compare(a, b));
        cycles = keyed.into_iter().map(|(_, rows)| rows).collect();
    }
    let (rows_total, cycles_total) = (cycles.iter().map(Vec::len).sum(), cycles.len());
    let rows = cycles.into_iter().take(options.limit.unwrap_or(usize::MAX)).flatten().collect();
    let (by, traces) = (options.by, inputs.len());
    Ok(LockOrder { by, traces, rows, rows_total, cycles_total, counts, is_cut, dropped, trust })
}

/// Returns whether releases of a selected lock were recorded.
fn has_releases(input: &Input<'_>) -> bool {
    let rules = input.rules();
    let is_recorded =
        |lock: &LockRow| input.selection.selects_lock(lock.id.0) && rules.measures_holds(lock.id);
    input.names.locks().iter().any(is_recorded)
}

/// Returns the cycles of one trace, and the number of attempts that were left out.
fn found_in(input: &Input<'_>, options: &OrderOptions) -> Result<(FoundCycles, u64), AnalyzeError> {
    let rules = Arc::new(input.rules());
    let nodes = Nodes::new(options.by, &input.names, &rules);
    let selects = |row: &trace_format::Event| input.selection.selects_event(row);
    let mut collector = Collector::new(&input.names, &nodes, Arc::clone(&rules), selects);
    input.rows(Columns::Times, |row| collector.push(&row.to_event()))?;
    let collected = collector.finish();
    let lifetimes = Lifetimes::of(input.names.tasks());
    Ok((search(&collected, &nodes, &lifetimes, options.length), collected.dropped))
}

/// Reads the stacks of these cycles.
fn stacks_of(input: &Input<'_>, cycles: &[Cycle]) -> Result<HashMap<StackId, Stack>, AnalyzeError> {
    let steps = cycles.iter().flat_map(|cycle| &cycle.steps);
    let wanted: FxHashSet<StackId> =
        steps.flat_map(|step| [step.held_stack, step.wanted_stack]).flatten().collect();
    if wanted.is_empty() {
        return Ok(HashMap::new());
    }
    Ok(input.trace.stacks_of(|stack| wanted.contains(&stack))?)
}

/// Names the rows of one trace.
struct Naming<'a> {
    by: By,
    input: &'a Input<'a>,
    stacks: HashMap<StackId, Stack>,
    several: bool,
}

impl Naming<'_> {
    fn row(&self, number: usize, cycle: &Cycle, step: &CycleStep) -> OrderRow {
        let task = |task| self.input.names.task_label(task);
        OrderRow {
            cycle: number,
            verdict: cycle.verdict,
            length: cycle.steps.len(),
            has_deadlocked: cycle.has_deadlocked,
            count: step.count,
            threads: step.tasks.len(),
            by: step.tasks.iter().copied().take(NAMED_THREADS).map(task).collect(),
            held: self.taking(step.held, step.held_stack),
            taken: self.taking(step.wanted, step.wanted_stack),
            trace: self.several.then(|| self.input.label.clone()),
        }
    }

    fn taking(&self, Acquisition { node, mode, site }: Acquisition, stack: Option<StackId>) -> Taking {
        let (names, lock) = (&self.input.names, node.lock());
        let key = match self.by {
            By::Lock => Single::Lock(lock),
            By::Class => Single::Class(names.class_number(lock)),
        };
        let frames = stack.and_then(|stack| self.stacks.get(&stack)).map_or(&[][..], |stack| &stack.frames);
        Taking {
            name: node.label(names),
            mode,
            at: names.point_of_number(site).label(),
            stack: names::shown_frames(frames, names.is_kernel(lock)).map(names::function).collect(),
            key: Key::of(key, names),
        }
    }
}

/// Declares the columns; rows of several traces have their trace.
pub fn columns(by: By, several: bool) -> Vec<Column<OrderRow>> {
    type Of = Column<OrderRow>;
    let key = match by {
        By::Lock => key::By::Lock,
        By::Class => key::By::Class,
    };
    let verdict = "inversion, needs_writer; with --all also shared, gated, one_thread, never_together.";
    let times = "How often a task took, or waited for, the lock while it held the other.";
    let held_at = "The site at which they took the held lock.";
    let taken_at = "The site at which they took the other lock.";
    let mut columns = vec![
        Of::count("cycle", |row| row.cycle as i64, "The number of the cycle that the row is a step of.")
            .ascending(),
        Of::text("verdict", |row| row.verdict.as_str().into(), verdict),
        Of::count("length", |row| row.length as i64, "The number of locks of the cycle.").ascending(),
        Of::count("deadlocked", |row| row.has_deadlocked, "1 if the recording ended in this deadlock.")
            .programs(),
        Of::count("count", |row| row.count, times).heading("times"),
        Of::count("threads", |row| row.threads as i64, "Threads that did."),
        Of::text("by", |row| row.by.join("; ").into(), "The names of up to four of them.").programs(),
        Of::text("held_at", |row| row.held.at.as_str().into(), held_at).programs(),
        Of::text("held_mode", |row| row.held.mode.as_str().into(), "exclusive or shared.").programs(),
        Of::text("taken_at", |row| row.taken.at.as_str().into(), taken_at).programs(),
        Of::text("taken_mode", |row| row.taken.mode.as_str().into(), "exclusive or shared.").programs(),
        Of::text("name", |row| row.name().into(), "The name of the row.").row_name().heading("held -> taken"),
    ];
    let held: fn(&OrderRow) -> &Taking = |row| &row.held;
    let taken: fn(&OrderRow) -> &Taking = |row| &row.taken;
    for (prefix, of) in [("held_", held), ("taken_", taken)] {
        let lock = Of::text(format!("{prefix}lock"), move |row| of(row).name.as_str().into(), "").identity();
        columns.push(lock);
        columns.extend(key_columns(key, prefix, move |row: &OrderRow| Some(&of(row).key)));
        let stack = Of::text(format!("{prefix}stack"), move |row| folded(&of(row).stack), "").identity();
        columns.push(stack);
    }
    columns.extend(trace_column(several, |row: &OrderRow| row.trace.as_deref()));
    columns
}

impl LockOrder {
    /// Returns the rows of each cycle.
    fn cycles(&self) -> impl Iterator<Item = &[OrderRow]> {
        self.rows.chunk_by(|a, b| a.cycle == b.cycle)
    }
}

impl Table for LockOrder {
    type Row = OrderRow;

    fn columns(&self) -> Vec<Column<OrderRow>> {
        columns(self.by, self.traces > 1)
    }

    fn rows(&self) -> impl Iterator<Item = impl Borrow<OrderRow>> {
        self.rows.iter()
    }

    /// Keeps the cycles of which `keep` selects a step.
    fn retain(&mut self, keep: &dyn Fn(&OrderRow) -> bool, limit: Option<usize>) {
        let kept: Vec<&[OrderRow]> = self.cycles().filter(|rows| rows.iter().any(keep)).collect();
        let (rows_total, cycles_total) = (kept.iter().map(|rows| rows.len()).sum(), kept.len());
        let kept = kept.into_iter().take(limit.unwrap_or(usize::MAX)).flatten().cloned().collect();
        (self.rows, self.rows_total, self.cycles_total) = (kept, rows_total, cycles_total);
    }

    fn hidden_rows(&self) -> usize {
        self.rows_total - self.rows.len()
    }

    fn trust(&self) -> &Trust {
        &self.trust
    }

    fn about(&self) -> About {
        About::LockOrder
    }

    fn nothing(&self) -> Option<String> {
        self.rows.is_empty().then(|| {
            let remarks = self.remarks();
            let nothing = "no locks were taken in opposite orders in what was selected".to_owned();
            if remarks.is_empty() { nothing } else { format!("{nothing}; {}", remarks.join("; ")) }
        })
    }

    fn write_rows(
        &self,
        columns: &[Column<OrderRow>],
        page: &Page,
        out: &mut (dyn Write + Send),
    ) -> io::Result<()> {
        if page.columns.is_empty() {
            self.write_blocks(page.style, out)?;
        } else {
            table::write_table(self, columns, page, out)?;
        }
        self.write_totals(page.style, out)
    }

    fn write_totals(&self, style: TextStyle, out: &mut (dyn Write + Send)) -> io::Result<()> {
        writeln!(out)?;
        style.wrapped(&self.summary(), out)
    }
}
