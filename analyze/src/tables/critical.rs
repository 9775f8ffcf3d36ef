//! `klock analyze critical`: the locks on the critical path of a task.
//!
//! Traces enter, a path is walked in each, and rows leave, one for each lock that is on the path or was waited for. Filters choose the locks
//! that are shown and the waits that are added up beside them, never the path. `docs/causes.md` has the definitions.

mod paths;
mod root;
mod row;
mod spans;
#[cfg(test)]
mod tests;
mod totals;
mod waited;

use std::io::{self, Write};

use polars::prelude::PolarsResult;
use rustc_hash::FxHashMap;
use serde::Serialize;
use trace_format::{LockId, Trace};

pub use row::{Row, columns};
pub use spans::{Clock, Spans};
pub use totals::{Parts, Totals};

use crate::{
    TextStyle,
    critical::walk,
    error::AnalyzeError,
    input::{
        Input,
        filter::Filter,
        selection::Selection,
        trust::{About, Trust},
    },
    output::Column,
    tables::{
        Table,
        frame::{Lines, failed, sums, sums_of},
        key::{Key, RowKey},
        rank::{OrderBy, order_by, rank},
        row_ids::{NamedRow, RowIds},
        table::rows_and_trust,
    },
};
use paths::{LockSums, OverSpans, PathSums};
use waited::Waited;

/// Options of the table.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The column that rows are sorted by; empty for the longest part of the path first.
    pub sort: String,
    /// The number of rows; `None` is all.
    pub limit: Option<usize>,
    /// The task whose path is walked and the window; the locks that are shown, and the waits for them.
    pub filter: Filter,
    /// Windows of tasks, whose paths are walked instead of that of one task.
    pub spans: Option<Spans>,
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

/// The key of a line: the index of the name of the spans, and the lock.
const KEYS: [&str; 2] = ["span", "lock"];

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
        spans: Sum,
        p50_ns: Sum,
        p99_ns: Sum,
    }
}

/// Walks the path of a task in each trace, or those of spans, and adds up its parts by lock.
///
/// # Errors
///
/// A trace cannot be read or holds no events, a filter finds nothing in any of them, or a trace lost too many events to be ranked and
/// `allow_loss` is not set.
pub fn critical(traces: &[Trace], options: &Options) -> Result<CriticalPath, AnalyzeError> {
    let order =
        order_by(&columns(0, false, options.spans.is_some()), &options.sort, &["path_ns", "waited_ns"])?;
    let mut filter = options.filter.clone();
    let task = filter.task.take();
    let inputs = Input::open_all(traces, 0, &filter)?;
    let (mut totals, mut ids, mut trusts) = (Totals::new(), RowIds::apart(inputs.len()), Vec::new());
    let mut all = Lines::new(KEYS);
    for (at, input) in inputs.iter().enumerate() {
        let mut waited = FxHashMap::default();
        let sums = walk(input, Waited::new(&input.selection), |read| {
            waited = read.sink.by_lock;
            trusts.push(input.trust(read.sink.counter.trust, &read.outcome, options.allow_loss)?);
            let Some(spans) = &options.spans else {
                let root = root::Choice::of(input, task.as_ref())?.root(&read.seen, read.end_ns);
                root.iter().for_each(|root| totals.add_task(input, *root));
                return Ok((root.into_iter().collect(), PathSums::default()));
            };
            let (roots, others) = spans.roots(input, read.end_ns);
            totals.add_spans(&roots, others);
            let (roots, groups) = roots.into_iter().unzip();
            Ok((roots, PathSums::of_spans(groups)))
        })?;
        totals.add(&sums.parts, input.has_off_cpu()?);
        for ((span, lock), sums) in rows_of(&sums, &waited, &input.selection, options.spans.is_some()) {
            all.push([span, ids.id(at, RowKey::Lock(lock), &inputs)], &sums);
        }
    }
    let span = |span: i64| Some(options.spans.as_ref()?.names().get(usize::try_from(span).ok()?)?.clone());
    let name = |[of, id]: [i64; 2]| {
        let NamedRow { key, name, trace } = ids.name(id, &inputs);
        NamedRow { key: (key, span(of)), name, trace }
    };
    let (rows, rows_total) = ranked(all, &order, options.limit, name).map_err(failed)?;
    Ok(CriticalPath { traces: inputs.len(), rows, rows_total, totals, trust: Trust::merged(trusts) })
}

/// Returns the sums of each selected lock that is on the path, by the group of the spans; without spans, also of those that were waited for.
fn rows_of(
    sums: &PathSums,
    waited: &FxHashMap<LockId, i64>,
    selection: &Selection,
    has_spans: bool,
) -> Vec<((i64, LockId), RowSums)> {
    let mut by_wait: Vec<(LockId, i64)> =
        waited.iter().map(|(lock, ns)| (*lock, *ns)).filter(|(_, ns)| *ns > 0).collect();
    by_wait.sort_unstable_by_key(|(lock, ns)| (-ns, *lock));
    let of_waits = |((lock, waited_ns), rank)| (lock, RowSums { waited_ns, rank, ..RowSums::default() });
    let waits: FxHashMap<LockId, RowSums> = by_wait.into_iter().zip(1..).map(of_waits).collect();
    let mut rows: FxHashMap<(i64, LockId), RowSums> = FxHashMap::default();
    if !has_spans {
        rows.extend(waits.iter().map(|(lock, sums)| ((0, *lock), *sums)));
    }
    let over_spans = sums.over_spans();
    for (key @ (span, lock), of_lock) in &sums.by_lock {
        if selection.selects_lock(lock.0) {
            let LockSums { path_ns, held_ns, handoff_ns, jumps } = *of_lock;
            let OverSpans { spans, p50_ns, p99_ns } = over_spans.get(key).copied().unwrap_or_default();
            let RowSums { waited_ns, rank, .. } = waits.get(lock).copied().unwrap_or_default();
            let at_most_ns = held_ns.saturating_add(handoff_ns);
            let row = RowSums {
                path_ns,
                at_most_ns,
                held_ns,
                handoff_ns,
                jumps,
                waited_ns,
                rank,
                spans,
                p50_ns,
                p99_ns,
            };
            rows.insert((*span as i64, *lock), row);
        }
    }
    let mut rows: Vec<_> = rows.into_iter().collect();
    rows.sort_unstable_by_key(|(key, _)| *key);
    rows
}

/// Returns the rows that are shown, and the number of all rows.
fn ranked(
    all: Lines<RowSums, { KEYS.len() }>,
    order: &[OrderBy],
    limit: Option<usize>,
    name: impl Fn([i64; 2]) -> NamedRow<(Key, Option<String>)>,
) -> PolarsResult<(Vec<Row>, usize)> {
    let rows = all.frame()?;
    let rows_total = rows.height();
    let ranked = rank(rows, KEYS, order, limit, name)?;
    let row =
        |(NamedRow { key: (lock, span), name, trace }, sums): (NamedRow<(Key, Option<String>)>, RowSums)| {
            let RowSums { path_ns, at_most_ns, held_ns, handoff_ns, jumps, waited_ns, .. } = sums;
            let rank = (sums.rank > 0).then_some(sums.rank);
            let of_spans = |value: i64| span.is_some().then_some(value);
            let (spans, p50_ns, p99_ns) =
                (of_spans(sums.spans), of_spans(sums.p50_ns), of_spans(sums.p99_ns));
            Row {
                path_ns,
                at_most_ns,
                held_ns,
                handoff_ns,
                jumps,
                waited_ns,
                rank,
                spans,
                p50_ns,
                p99_ns,
                span,
                name,
                trace,
                lock,
            }
        };
    let sums = sums_of::<RowSums>(&ranked.frame)?;
    Ok((ranked.names.into_iter().zip(sums).map(row).collect(), rows_total))
}

impl Table for CriticalPath {
    rows_and_trust!(Row);

    fn columns(&self) -> Vec<Column<Row>> {
        columns(self.totals.path_ns, self.traces > 1, self.totals.spans.is_some())
    }

    fn below(&self, row: &Row) -> Vec<String> {
        row.remark(self.totals.path_ns).map(|remark| format!("  {remark}")).into_iter().collect()
    }

    fn about(&self) -> About {
        About::CriticalPath
    }

    fn is_empty(&self) -> bool {
        self.totals.path_ns == 0
    }

    fn nothing(&self) -> Option<String> {
        self.is_empty().then(|| self.totals.nothing())
    }

    fn write_totals(&self, style: TextStyle, out: &mut (dyn Write + Send)) -> io::Result<()> {
        self.totals.write(style, out)
    }
}
