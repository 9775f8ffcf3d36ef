//! `klock analyze critical`: the locks on the critical path of a task.
//!
//! Traces enter, a path is walked in each, and rows leave, one for each lock that is on the path or was waited for. Filters choose the locks
//! that are shown and the waits that are added up beside them, never the path. `docs/causes.md` has the definitions.

use std::{
    cmp::Reverse,
    io::{self, Write},
};

use rustc_hash::FxHashMap;
use serde::Serialize;
use trace_format::{LockId, Trace};

use crate::{
    Table,
    key::{By, Key, RowKey},
    key_columns,
    table::rows_and_trust,
    trace_column,
};
use intervals::{
    critical::{Root, walk},
    input::Input,
    input::filter::Filter,
    input::selection::Selection,
    input::trust::{About, SelectedCounter, Trust},
    items::{Item, Sink},
};
use output::{Column, column::sort_key, error::AnalyzeError, layout::TextStyle, units};

mod paths;
mod root;
mod spans;
#[cfg(test)]
mod tests;
mod totals;

pub use spans::{Clock, Spans};
pub use totals::{Parts, Totals};

use paths::{LockSums, PathSums};

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

/// A lock that is on the path or was waited for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The part of the path in which this lock is the last one that the task on the path acquired and still holds, in ns.
    pub path_ns: i64,
    /// `held_ns` and `handoff_ns`: the most by which the path would be shorter if holds of the lock took no time.
    pub at_most_ns: i64,
    /// The part of the path in which its task holds the lock.
    pub held_ns: i64,
    /// The part of the path from a release of the lock to the acquisition that waited for it.
    pub handoff_ns: i64,
    /// The number of times that the path goes from a task to the one that released the lock.
    pub jumps: i64,
    /// The selected waits of all tasks for the lock in the window, in ns.
    pub waited_ns: i64,
    /// The rank of the lock by `waited_ns`, from 1; `None` if no task waited for it.
    pub rank: Option<i64>,
    /// The number of spans whose path has the lock, and percentiles of `path_ns` over all spans of this name; `None` without spans.
    pub spans: Option<i64>,
    /// The median.
    pub p50_ns: Option<i64>,
    /// The 99th percentile.
    pub p99_ns: Option<i64>,
    /// The name of the spans; safe to print.
    pub span: Option<String>,
    /// The name; safe to print.
    pub name: String,
    /// The trace, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// The lock.
    pub lock: Key,
}

/// Walks the path of a task in each trace, or those of spans, and adds up its parts by lock.
///
/// # Errors
///
/// A trace cannot be read or holds no events, a filter finds nothing in any of them, or a trace lost too many events to be ranked and
/// `allow_loss` is not set.
pub fn critical(traces: &[Trace], options: &Options) -> Result<CriticalPath, AnalyzeError> {
    let columns = columns(0, false, options.spans.is_some());
    let sort = (!options.sort.is_empty()).then(|| sort_key(&columns, &options.sort)).transpose()?;
    let mut filter = options.filter.clone();
    let task = filter.task.take();
    let inputs = Input::open_all(traces, 0, &filter)?;
    let (mut totals, mut trusts, mut rows) = (Totals::new(), Vec::new(), Vec::new());
    for input in &inputs {
        let mut waited = FxHashMap::default();
        let sums = walk(input, Waited::new(&input.selection), |read| {
            waited = read.sink.by_lock;
            trusts.push(input.trust(read.sink.counter.trust, &read.outcome, options.allow_loss)?);
            let Some(spans) = &options.spans else {
                let root = root::choose(input, task.as_ref(), &read.seen, read.end_ns)?;
                root.iter().for_each(|root| totals.add_task(input, *root));
                return Ok((root.into_iter().collect(), PathSums::default()));
            };
            let (roots, others) = spans.roots(input, read.end_ns);
            totals.add_spans(&roots, others);
            let (roots, groups): (Vec<Root>, Vec<usize>) = roots.into_iter().unzip();
            Ok((roots, PathSums::of_spans(groups)))
        })?;
        totals.add(&sums.parts, input.has_off_cpu()?);
        rows.extend(rows_of(input, inputs.len() > 1, &sums, &waited, options.spans.as_ref()));
    }
    rows.sort_by(|a: &Row, b: &Row| {
        let order = |row: &Row| (Reverse((row.path_ns, row.waited_ns)), row.name.clone());
        let by_sort = sort.map_or(std::cmp::Ordering::Equal, |sort| sort.compare(a, b));
        by_sort
            .then_with(|| order(a).cmp(&order(b)))
            .then_with(|| (&a.lock, &a.span).cmp(&(&b.lock, &b.span)))
    });
    let rows_total = rows.len();
    rows.truncate(options.limit.unwrap_or(usize::MAX));
    Ok(CriticalPath { traces: inputs.len(), rows, rows_total, totals, trust: Trust::merged(trusts) })
}

/// Returns a row of each selected lock that is on the path, by the group of the spans; without spans, also of those that were waited for.
fn rows_of(
    input: &Input<'_>,
    several: bool,
    sums: &PathSums,
    waited: &FxHashMap<LockId, i64>,
    spans: Option<&Spans>,
) -> Vec<Row> {
    let mut by_wait: Vec<(LockId, i64)> =
        waited.iter().map(|(lock, ns)| (*lock, *ns)).filter(|(_, ns)| *ns > 0).collect();
    by_wait.sort_unstable_by_key(|(lock, ns)| (Reverse(*ns), *lock));
    let ranks: FxHashMap<LockId, i64> = by_wait.iter().map(|(lock, _)| *lock).zip(1..).collect();
    let mut keys: Vec<(usize, LockId)> = sums.by_lock.keys().copied().collect();
    keys.retain(|(_, lock)| input.selection.selects_lock(lock.0));
    if spans.is_none() {
        keys.extend(ranks.keys().map(|lock| (0, *lock)));
    }
    keys.sort_unstable();
    keys.dedup();
    let over_spans = sums.over_spans();
    let row = |key: &(usize, LockId)| {
        let (span, lock) = *key;
        let LockSums { path_ns, held_ns, handoff_ns, jumps } =
            sums.by_lock.get(key).copied().unwrap_or_default();
        let of_spans = spans.map(|_| over_spans.get(key).copied().unwrap_or_default());
        let name = input.names.lock_label(lock);
        Row {
            path_ns,
            at_most_ns: held_ns.saturating_add(handoff_ns),
            held_ns,
            handoff_ns,
            jumps,
            waited_ns: waited.get(&lock).copied().unwrap_or(0),
            rank: ranks.get(&lock).copied(),
            spans: of_spans.map(|over| over.spans),
            p50_ns: of_spans.map(|over| over.p50_ns),
            p99_ns: of_spans.map(|over| over.p99_ns),
            span: spans.and_then(|spans| spans.names().get(span).cloned()),
            name: if several { format!("{}: {name}", input.label) } else { name },
            trace: several.then(|| input.label.clone()),
            lock: Key::of(RowKey::Lock(lock), &input.names),
        }
    };
    keys.iter().map(row).collect()
}

/// The selected waits by lock, in ns, and the counts of the trust block.
struct Waited<'a> {
    counter: SelectedCounter<'a>,
    by_lock: FxHashMap<LockId, i64>,
}

impl<'a> Waited<'a> {
    fn new(selection: &'a Selection) -> Self {
        Self { counter: SelectedCounter::new(selection), by_lock: FxHashMap::default() }
    }
}

impl Sink for Waited<'_> {
    fn push(&mut self, item: Item<'_>) {
        self.counter.push(item);
        if let Item::Wait(wait) = item
            && self.counter.selection.selects_wait(wait)
        {
            let ns = self.by_lock.entry(wait.lock).or_default();
            *ns = ns.saturating_add(wait.wait_ns);
        }
    }
}

/// Declares the columns. Parts are of `path_ns`; rows of several traces have their trace, and those of spans their name.
pub fn columns(path_ns: i64, several: bool, has_spans: bool) -> Vec<Column<Row>> {
    type Of = Column<Row>;
    let path = "Time on the path in which this is the lock that the task on the path acquired last.";
    let at_most = "held + handoff: the path is shorter by at most that if holds of the lock take no time.";
    let held = "Time on the path in which its task holds the lock, maybe with others.";
    let handoff = "Time on the path between a release of the lock and the acquisition that waited for it.";
    let jumps = "The number of times that the path leads from a task to the one that released the lock.";
    let mut columns = vec![
        Of::duration("path", |row| row.path_ns, path).sum(),
        Of::ppm("part", move |row: &Row| units::ppm(row.path_ns, path_ns), "path divided by the whole path.")
            .heading("percent")
            .not_sortable(),
        Of::duration("at_most", |row| row.at_most_ns, at_most).sum(),
        Of::duration("held", |row| row.held_ns, held).sum().programs(),
        Of::duration("handoff", |row| row.handoff_ns, handoff).sum().programs(),
        Of::count("jumps", |row| row.jumps, jumps).sum(),
        Of::duration("waited", |row| row.waited_ns, "Time that all tasks waited for the lock.").sum(),
        Of::count("rank", |row| row.rank, "The rank of the lock by waited.").not_sortable(),
    ];
    if has_spans {
        columns.extend([
            Of::count("spans", |row| row.spans, "The number of spans whose path has the lock.").sum(),
            Of::duration("p50", |row| row.p50_ns, "The median of path over all spans of the name."),
            Of::duration("p99", |row| row.p99_ns, "The 99th percentile of it."),
            Of::text("span", |row| row.span.as_deref().into(), "The name of the spans.").identity(),
        ]);
    }
    columns.push(Of::name("lock", |row| row.name.as_str().into()));
    columns.extend(key_columns(By::Lock, "", |row: &Row| Some(&row.lock)));
    columns.extend(trace_column(several, |row: &Row| row.trace.as_deref()));
    columns
}

impl Table for CriticalPath {
    rows_and_trust!(Row);

    fn columns(&self) -> Vec<Column<Row>> {
        columns(self.totals.path_ns, self.traces > 1, self.totals.spans.is_some())
    }

    /// Says which locks are notable.
    fn below(&self, row: &Row) -> Vec<String> {
        let path_ns = self.totals.path_ns;
        let is_little = row.at_most_ns.saturating_mul(10) <= row.waited_ns;
        let is_much = path_ns > 0 && row.waited_ns >= path_ns / 10;
        let is_notable = row.span.is_none() && is_little && is_much;
        is_notable.then(|| "  much waited for, little on the path".to_owned()).into_iter().collect()
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
