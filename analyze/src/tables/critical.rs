//! `klock analyze critical`: the locks on the critical path of a task.
//!
//! Traces enter, a path is walked in each, and rows leave, one for each lock that is on the path or was waited for. Filters choose the locks
//! that are shown and the waits that are added up beside them, never the path. `docs/causes.md` has the definitions.

mod paths;
mod root;
mod row;
#[cfg(test)]
mod tests;
mod totals;

use std::{
    borrow::Borrow,
    io::{self, Write},
};

use polars::prelude::PolarsResult;
use rustc_hash::FxHashMap;
use serde::Serialize;
use trace_format::{LockId, Trace};

pub use row::{Row, columns};
pub use totals::{Parts, Totals};

use crate::{
    TextStyle,
    critical::walk,
    engine::{Hold, Sink, Wait},
    error::AnalyzeError,
    input::{
        Detail, Input,
        filter::Filter,
        readers,
        selection::Selection,
        trust::{About, Trust, TrustCounter},
    },
    output::Column,
    tables::{
        Table,
        frame::{Lines, failed, sums, sums_of},
        key::RowKey,
        rank::{OrderBy, order_by, rank},
        row_ids::{NamedRow, RowIds},
        table,
    },
};
use paths::PathSums;

/// Options of the table.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The column that rows are sorted by; empty for the longest part of the path first.
    pub sort: String,
    /// The number of rows; `None` is all.
    pub limit: Option<usize>,
    /// The task whose path is walked and the window; the locks that are shown, and the waits for them.
    pub filter: Filter,
    /// Whether to rank a trace that lost too many events for the order of rows to mean anything.
    pub allow_loss: bool,
}

/// The table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CriticalPath {
    /// The number of traces.
    pub traces: usize,
    /// The rows, sorted by time and limited.
    pub rows: Vec<Row>,
    /// The number of rows before the limit.
    pub rows_total: usize,
    /// The sum of all paths.
    pub totals: Totals,
    /// Events and intervals that the numbers do not hold.
    pub trust: Trust,
}

sums! {
    /// The sums of a row.
    struct RowSums {
        path_ns: Sum,
        at_most_ns: Sum,
        held_ns: Sum,
        handoff_ns: Sum,
        jumps: Sum,
        waited_ns: Sum,
        rank: Sum,
    }
}

/// Walks the path of a task in each trace, and adds up its parts by lock.
///
/// # Errors
///
/// A trace cannot be read or holds no events, a filter finds nothing in any of them, or a trace lost too many events to be ranked and
/// `allow_loss` is not set.
pub fn critical(traces: &[Trace], options: &Options) -> Result<CriticalPath, AnalyzeError> {
    let order = order_by(&columns(0, false), &options.sort, &["path_ns", "waited_ns"])?;
    let mut filter = options.filter.clone();
    let task = filter.task.take();
    let inputs = Input::open_all(traces, 0, &filter)?;
    let mut waited = vec![FxHashMap::default(); inputs.len()];
    let how = (Detail::Times, readers(), options.allow_loss);
    let trust = Input::read_all(
        &inputs,
        how,
        |at| Waited::new(&inputs[at].selection),
        |at, sink| {
            // Each lock is in one sink.
            waited[at].extend(sink.by_lock);
            sink.trust
        },
    )?;
    let (mut totals, mut ids) = (Totals::new(), RowIds::apart(inputs.len()));
    let mut all = Lines::new(["lock"]);
    for (at, input) in inputs.iter().enumerate() {
        let choice = root::Choice::of(input, task.as_ref())?;
        let mut root = None;
        let choose = |seen: &_, end_ns| {
            root = choice.root(seen, end_ns);
            root.into_iter().collect()
        };
        let sums = walk(input, choose, PathSums::default())?;
        totals.add(input, root, &sums.parts)?;
        for (lock, sums) in rows_of(&sums, &waited[at], &input.selection) {
            all.push([ids.id(at, RowKey::Lock(lock), &inputs)], &sums);
        }
    }
    let (rows, rows_total) =
        ranked(all, &order, options.limit, |id| ids.name(id, &inputs)).map_err(failed)?;
    Ok(CriticalPath { traces: inputs.len(), rows, rows_total, totals, trust })
}

/// Returns the sums of each selected lock that is on the path or was waited for, in the order of their ids.
fn rows_of(
    sums: &PathSums,
    waited: &FxHashMap<LockId, i64>,
    selection: &Selection,
) -> impl Iterator<Item = (LockId, RowSums)> {
    let mut by_wait: Vec<(LockId, i64)> =
        waited.iter().map(|(lock, ns)| (*lock, *ns)).filter(|(_, ns)| *ns > 0).collect();
    by_wait.sort_unstable_by_key(|(lock, ns)| (-ns, *lock));
    let mut rows: FxHashMap<LockId, RowSums> = FxHashMap::default();
    for ((lock, waited_ns), rank) in by_wait.into_iter().zip(1..) {
        rows.insert(lock, RowSums { waited_ns, rank, ..RowSums::default() });
    }
    for (lock, of_lock) in &sums.by_lock {
        if selection.selects_lock(lock.0) {
            let row = rows.entry(*lock).or_default();
            (row.path_ns, row.held_ns) = (of_lock.path_ns, of_lock.held_ns);
            (row.handoff_ns, row.jumps) = (of_lock.handoff_ns, of_lock.jumps);
            row.at_most_ns = of_lock.held_ns.saturating_add(of_lock.handoff_ns);
        }
    }
    let mut rows: Vec<_> = rows.into_iter().collect();
    rows.sort_unstable_by_key(|(lock, _)| *lock);
    rows.into_iter()
}

/// Returns the rows that are shown, and the number of all rows.
fn ranked(
    all: Lines<RowSums, 1>,
    order: &[OrderBy],
    limit: Option<usize>,
    name: impl Fn(i64) -> NamedRow,
) -> PolarsResult<(Vec<Row>, usize)> {
    let rows = all.frame()?;
    let rows_total = rows.height();
    let ranked = rank(rows, ["lock"], order, limit, |[id]| name(id))?;
    let row = |(NamedRow { key, name, trace }, sums): (NamedRow, RowSums)| {
        let RowSums { path_ns, at_most_ns, held_ns, handoff_ns, jumps, waited_ns, rank } = sums;
        let rank = (rank > 0).then_some(rank);
        Row { path_ns, at_most_ns, held_ns, handoff_ns, jumps, waited_ns, rank, name, trace, lock: key }
    };
    let sums = sums_of::<RowSums>(&ranked.frame)?;
    Ok((ranked.names.into_iter().zip(sums).map(row).collect(), rows_total))
}

/// Adds up the selected waits by lock, and counts for the trust block.
struct Waited<'a> {
    selection: &'a Selection,
    by_lock: FxHashMap<LockId, i64>,
    trust: TrustCounter,
}

impl<'a> Waited<'a> {
    fn new(selection: &'a Selection) -> Self {
        Self { selection, by_lock: FxHashMap::default(), trust: TrustCounter::default() }
    }
}

impl Sink for Waited<'_> {
    fn hold(&mut self, hold: &Hold) {
        if self.selection.selects_hold(hold) {
            self.trust.hold(hold);
        }
    }

    fn wait(&mut self, wait: &Wait) {
        if self.selection.selects_wait(wait) {
            self.trust.wait(wait);
            let ns = self.by_lock.entry(wait.lock).or_default();
            *ns = ns.saturating_add(wait.wait_ns);
        }
    }
}

impl Table for CriticalPath {
    type Row = Row;

    fn columns(&self) -> Vec<Column<Row>> {
        columns(self.totals.path_ns, self.traces > 1)
    }

    fn rows(&self) -> impl Iterator<Item = impl Borrow<Row>> {
        self.rows.iter()
    }

    fn below(&self, row: &Row) -> Vec<String> {
        row.remark(self.totals.path_ns).map(|remark| format!("  {remark}")).into_iter().collect()
    }

    fn retain(&mut self, keep: &dyn Fn(&Row) -> bool, limit: Option<usize>) {
        table::retain_first(&mut self.rows, &mut self.rows_total, keep, limit);
    }

    fn hidden_rows(&self) -> usize {
        self.rows_total - self.rows.len()
    }

    fn trust(&self) -> &Trust {
        &self.trust
    }

    fn about(&self) -> About {
        About::CriticalPath
    }

    fn is_empty(&self) -> bool {
        self.totals.path_ns == 0
    }

    fn nothing(&self) -> Option<String> {
        self.is_empty().then(Totals::nothing)
    }

    fn write_totals(&self, style: TextStyle, out: &mut (dyn Write + Send)) -> io::Result<()> {
        self.totals.write(style, out)
    }
}
