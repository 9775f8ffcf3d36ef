//! `klock critical`: the locks on the critical path of a task.
//!
//! A path is walked in each trace. The table has a row for each lock that is on the path or was waited for.
//! Filters choose the locks that are shown and the waits that are added up beside them, never the path.
//! `docs/internals/causes.md` has the definitions.

use std::{
    cmp::Reverse,
    collections::BTreeSet,
    io::{self, Write},
};

use polars::prelude::{IntoLazy as _, col, lit};
use rustc_hash::FxHashMap;
use serde::Serialize;
use trace_format::{LockId, Trace};

use crate::{
    Table,
    frame::{Lines, failed, known, sums},
    key::{By, Key, Single},
    key_columns,
    rank::{self, Rows, count, duration, order_by},
    row_ids::NamedRow,
    table::{noise_of, rows_and_trust},
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
use output::{Column, error::AnalyzeError, layout::TextStyle, units};

mod paths;
mod root;
mod spans;
#[cfg(test)]
mod tests;
mod totals;

pub use spans::{Clock, Spans};
pub use totals::{PathParts, PathTotals};

use paths::{LockSums, OverSpans, PathSums};

/// Options of the table.
#[derive(Clone, Debug, Default)]
pub struct CriticalOptions {
    /// The column that rows are sorted by; empty for the longest part of the path first.
    pub sort: String,
    /// The number of rows; `None` is all.
    pub limit: Option<usize>,
    /// The task whose path is walked and the window; the locks that are shown, and the waits for them.
    pub filter: Filter,
    /// Windows of tasks, whose paths are walked instead of the path of one task.
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
    pub rows: Vec<CriticalRow>,
    /// The number of rows before the limit.
    pub rows_total: usize,
    /// The sum of all paths.
    pub totals: PathTotals,
    /// Events and intervals that the numbers do not hold.
    pub trust: Trust,
}

/// A lock that is on the path or was waited for. [`columns`] describes its numbers.
pub type CriticalRow = rank::Row<CriticalKey>;

/// The key of a row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct CriticalKey {
    /// The lock.
    pub lock: Key,
    /// The name of the spans, if there are some; safe to print.
    pub span: Option<String>,
}

sums! {
    /// The numbers of a row.
    struct RowSums {
        path_ns: Sum,
        held_ns: Sum,
        handoff_ns: Sum,
        jumps: Sum,
        waited_ns: Sum,
        /// 0 if no task waited.
        rank: Sum,
        /// 1 if holds of the lock are recorded.
        measured: Max,
        spans: Sum,
        p50_ns: Sum,
        p99_ns: Sum,
    }
}

/// Walks the path of a task in each trace, or the paths of spans, and adds up the parts by lock.
///
/// # Errors
///
/// A trace cannot be read or holds no events, a filter finds nothing in any of them, or a trace lost too many
/// events to be ranked and `allow_loss` is not set.
pub fn critical(traces: &[Trace], options: &CriticalOptions) -> Result<CriticalPath, AnalyzeError> {
    let has_spans = options.spans.is_some();
    let order = order_by(&columns(0, false, has_spans), &options.sort, &["path_ns", "waited_ns"])?;
    let mut filter = options.filter.clone();
    let task = filter.task.take();
    let inputs = Input::open_all(traces, 0, &filter)?;
    let (mut totals, mut trusts) = (PathTotals::new(), Vec::new());
    let mut lines = Lines::new(["input", "group", "lock"]);
    for (at, input) in inputs.iter().enumerate() {
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
        add_lines(&mut lines, (at, input), &sums, &waited, has_spans);
    }
    let frame = lines.frame().and_then(|frame| {
        let of_spans = |column: &str| known(col(column), (col("spans") + lit(1)) * lit(i64::from(has_spans)));
        let at_most = (col("held_ns") + col("handoff_ns")).alias("at_most_ns");
        let of_holds = [col("path_ns"), col("held_ns"), at_most].map(|of| known(of, col("measured")));
        let [path, held, at_most] = of_holds;
        let rank = known(col("rank"), col("rank"));
        let columns = [path, held, at_most, rank, of_spans("spans"), of_spans("p50_ns"), of_spans("p99_ns")];
        frame.lazy().with_columns(columns).collect()
    });
    let name = |[at, group, lock]: [i64; 3]| {
        let (input, lock) = (&inputs[at as usize], LockId(lock as i32));
        let several = inputs.len() > 1;
        let label = input.names.lock_label(lock);
        let span = options.spans.as_ref().and_then(|spans| spans.names().get(group as usize).cloned());
        NamedRow {
            key: CriticalKey { lock: Key::of(Single::Lock(lock), &input.names), span },
            name: if several { format!("{}: {label}", input.label) } else { label },
            trace: several.then(|| input.label.clone()),
        }
    };
    let (is_measure, keys) = (columns(0, false, true), ["input", "group", "lock"]);
    let is_measure = |name: &str| !keys.contains(&name) && rank::declared(&is_measure)(name);
    let Rows { rows, total: rows_total, .. } =
        rank::rows(is_measure, frame.map_err(failed)?, keys, &order, options.limit, name)?;
    Ok(CriticalPath { traces: inputs.len(), rows, rows_total, totals, trust: Trust::merged(trusts) })
}

/// Adds a line for each selected lock that is on the path, by the group of the spans; without spans, also for
/// those that were waited for.
fn add_lines(
    lines: &mut Lines<RowSums, 3>,
    (at, input): (usize, &Input<'_>),
    sums: &PathSums,
    waited: &FxHashMap<LockId, i64>,
    has_spans: bool,
) {
    let mut by_wait: Vec<(LockId, i64)> =
        waited.iter().map(|(lock, ns)| (*lock, *ns)).filter(|(_, ns)| *ns > 0).collect();
    by_wait.sort_unstable_by_key(|(lock, ns)| (Reverse(*ns), *lock));
    let ranks: FxHashMap<LockId, i64> = by_wait.iter().map(|(lock, _)| *lock).zip(1..).collect();
    let of_paths = sums.by_lock.keys().copied().filter(|(_, lock)| input.selection.selects_lock(lock.0));
    let of_waits = ranks.keys().filter(|_| !has_spans).map(|lock| (0, *lock));
    let keys: BTreeSet<(usize, LockId)> = of_paths.chain(of_waits).collect();
    let (over_spans, rules) = (sums.over_spans(), input.rules());
    for key in keys {
        let LockSums { path_ns, held_ns, handoff_ns, jumps } =
            sums.by_lock.get(&key).copied().unwrap_or_default();
        let OverSpans { spans, p50_ns, p99_ns } = over_spans.get(&key).copied().unwrap_or_default();
        let (group, lock) = key;
        let waited_ns = waited.get(&lock).copied().unwrap_or(0);
        let rank = ranks.get(&lock).copied().unwrap_or(0);
        let measured = i64::from(rules.measures_holds(lock));
        let line =
            RowSums { path_ns, held_ns, handoff_ns, jumps, waited_ns, rank, measured, spans, p50_ns, p99_ns };
        lines.push([at as i64, group as i64, i64::from(lock.0)], &line);
    }
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

/// Declares the columns. Parts are of `path_ns`; rows of several traces have their trace, and rows of spans
/// the span's name.
pub fn columns(path_ns: i64, several: bool, has_spans: bool) -> Vec<Column<CriticalRow>> {
    type Of = Column<CriticalRow>;
    let part = move |row: &CriticalRow| row.get("path_ns").and_then(|ns| units::ppm(ns, path_ns));
    let mut columns = vec![
        duration(
            "path",
            "Time on the path in which this is the lock that the task on the path acquired last.",
        )
        .sum(),
        Of::ppm("part", part, "path divided by the whole path.").heading("percent").not_sortable(),
        duration(
            "at_most",
            "held + handoff: the path is shorter by at most that if holds of the lock take no time.",
        )
        .sum(),
        duration("held", "Time on the path in which its task holds the lock, maybe with others.")
            .sum()
            .programs(),
        duration(
            "handoff",
            "Time on the path between a release of the lock and the acquisition that waited for it.",
        )
        .sum()
        .programs(),
        count(
            "jumps",
            "The number of times that the path leads from a task to the one that released the lock.",
        )
        .sum(),
        duration("waited", "Time that all tasks waited for the lock.").sum(),
        count("rank", "The rank of the lock by waited.").not_sortable(),
    ];
    if has_spans {
        columns.extend([
            count("spans", "The number of spans whose path has the lock.").sum(),
            duration("p50", "The median of path over all spans of the name."),
            duration("p99", "The 99th percentile of it."),
            Of::text("span", |row| row.key.span.as_deref().into(), "The name of the spans.").identity(),
        ]);
    }
    columns.push(Of::name("lock", |row| row.name.as_str().into()));
    columns.extend(key_columns(By::Lock, "", |row: &CriticalRow| Some(&row.key.lock)));
    columns.extend(trace_column(several, |row: &CriticalRow| row.trace.as_deref()));
    columns
}

impl Table for CriticalPath {
    rows_and_trust!(CriticalRow);

    fn columns(&self) -> Vec<Column<CriticalRow>> {
        columns(self.totals.path_ns, self.traces > 1, self.totals.spans.is_some())
    }

    /// Says which locks are notable.
    fn below(&self, row: &CriticalRow) -> Vec<String> {
        let path_ns = self.totals.path_ns;
        let is_much = row.key.span.is_none() && path_ns > 0 && row["waited_ns"] >= path_ns / 10;
        let note = match row.get("at_most_ns") {
            Some(ns) if ns.saturating_mul(10) <= row["waited_ns"] => "little on the path",
            Some(_) => return Vec::new(),
            None => "its holds were not recorded",
        };
        is_much.then(|| format!("  much waited for, {note}")).into_iter().collect()
    }

    fn noise(&self) -> usize {
        let time = |row: &CriticalRow| row["waited_ns"].max(row.get("path_ns").unwrap_or(0));
        noise_of(self, &self.rows, |row| (row.key.lock.kind(), time(row)))
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
