//! `klock analyze order`: locks that tasks take in opposite orders, which could deadlock in another run.
//!
//! Traces enter, a row for each step of each cycle of lock orders leaves. Each trace is read twice: once for the trust block, and once in
//! the order of its rows, through all locks: filters choose what is shown, never what a task holds. `docs/lock-order.md` has the
//! definitions.

use std::{
    borrow::Borrow,
    io::{self, Write},
    sync::Arc,
};

use serde::Serialize;
use trace_format::{EventRow as _, LockRow, Trace};

use crate::{
    engine::Rules,
    error::AnalyzeError,
    input::{
        Input,
        filter::Filter,
        readers,
        trust::{About, SelectedCounter, Trust},
    },
    items::Columns,
    order::{Collector, Found, Lifetimes, Nodes, search},
    output::{Column, Page, column::sort_key},
    tables::{Table, table},
};

mod dot;
mod row;
#[cfg(test)]
mod tests;
mod text;

pub use crate::order::{By, CycleCounts, Verdict};
pub use dot::Graph;
pub use row::{Row, Taking, columns};
pub use text::FailIf;

use row::Naming;

/// The number of locks in the longest cycles that are searched for, if no other is given.
pub const LENGTH: usize = 4;

/// Options of the table.
#[derive(Clone, Debug)]
pub struct Options {
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

impl Default for Options {
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
    /// The steps of the cycles, those of one cycle together.
    pub rows: Vec<Row>,
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

/// Finds the lock orders of one trace or several. A lock of one trace is not a lock of another.
///
/// # Errors
///
/// A trace cannot be read or holds no events, a filter finds nothing in any of them, or no releases of the selected locks were recorded.
pub fn order(traces: &[Trace], options: &Options) -> Result<LockOrder, AnalyzeError> {
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
        let naming = Naming::new(options.by, input, inputs.len() > 1, &shown)?;
        for cycle in &shown {
            cycles.push(naming.rows(cycles.len() + 1, cycle));
        }
    }
    if let Some(sort) = sort {
        let first = |rows: &Vec<Row>| rows.iter().min_by(|a, b| sort.compare(a, b)).cloned();
        let mut keyed: Vec<(Option<Row>, Vec<Row>)> =
            cycles.into_iter().map(|rows| (first(&rows), rows)).collect();
        keyed.sort_by(|(a, _), (b, _)| match (a, b) {
            (Some(a), Some(b)) => sort.compare(a, b),
            _ => a.is_some().cmp(&b.is_some()),
        });
        cycles = keyed.into_iter().map(|(_, rows)| rows).collect();
    }
    let (rows_total, cycles_total) = (cycles.iter().map(Vec::len).sum(), cycles.len());
    let rows = cycles.into_iter().take(options.limit.unwrap_or(usize::MAX)).flatten().collect();
    let (by, traces) = (options.by, inputs.len());
    Ok(LockOrder { by, traces, rows, rows_total, cycles_total, counts, is_cut, dropped, trust })
}

/// Returns whether releases of a selected lock were recorded.
fn has_releases(input: &Input<'_>) -> bool {
    let rules = Rules::new(input.trace.info(), input.names.locks());
    let is_recorded =
        |lock: &LockRow| input.selection.selects_lock(lock.id.0) && rules.measures_holds(lock.id);
    input.names.locks().iter().any(is_recorded)
}

/// Returns the cycles of one trace, and the number of attempts that were left out.
fn found_in(input: &Input<'_>, options: &Options) -> Result<(Found, u64), AnalyzeError> {
    let rules = Arc::new(input.rules());
    let nodes = Nodes::new(options.by, &input.names, &rules);
    let selects = |row: &trace_format::Event| input.selection.selects_event(row);
    let mut collector = Collector::new(&input.names, &nodes, Arc::clone(&rules), selects);
    input.rows(Columns::Times, |row| collector.push(&row.to_event()))?;
    let collected = collector.finish();
    let lifetimes = Lifetimes::of(input.names.tasks());
    Ok((search(&collected, &nodes, &lifetimes, options.length), collected.dropped))
}

impl LockOrder {
    /// Returns the rows of each cycle.
    fn cycles(&self) -> impl Iterator<Item = &[Row]> {
        self.rows.chunk_by(|a, b| a.cycle == b.cycle)
    }
}

impl Table for LockOrder {
    type Row = Row;

    fn columns(&self) -> Vec<Column<Row>> {
        columns(self.by, self.traces > 1)
    }

    fn rows(&self) -> impl Iterator<Item = impl Borrow<Row>> {
        self.rows.iter()
    }

    /// Keeps the cycles of which `keep` selects a step.
    fn retain(&mut self, keep: &dyn Fn(&Row) -> bool, limit: Option<usize>) {
        let kept: Vec<&[Row]> = self.cycles().filter(|rows| rows.iter().any(keep)).collect();
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
        columns: &[Column<Row>],
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

    fn write_totals(&self, style: crate::TextStyle, out: &mut (dyn Write + Send)) -> io::Result<()> {
        self.write_counts(style, out)
    }
}
