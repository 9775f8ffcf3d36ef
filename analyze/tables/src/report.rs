//! The report: the columns of FreeBSD's LOCK_PROFILING(9) and the waits that each row caused, by lock, by
//! site, or by other keys.
//!
//! Intervals are added to sums by row (`reading`), which polars merges, completes with the columns on
//! request, sorts and limits. Memory grows with the number of rows, not with the trace. Every column is
//! credited at the release, to the site of the acquisition, as FreeBSD does it.

use std::io::{self, Write};

use polars::{
    frame::DataFrame,
    prelude::{Expr, IntoColumn, IntoLazy, LazyFrame, NamedFrom, PolarsResult, Series, col, lit, when},
};
use serde::Serialize;
use trace_format::Trace;

use super::{
    Table, TableOptions,
    frame::{failed, ints, merged, of_one, values},
    gather,
    key::{By, Key},
    rank::{self, Numbers, Rows, descending, order_by},
    row_ids::NONE,
    table::{NOISE, rows_and_trust},
};
use intervals::{
    input::filter::Filter,
    input::trust::{About, Trust},
    input::{Input, names::purposes::Purpose, readers},
};
use output::{
    Column, Role,
    column::find,
    error::AnalyzeError,
    layout::{Notes, TextStyle},
    units,
};

pub mod columns;
pub mod lockprof;

mod calls;
mod fairness;
mod hold_sums;
mod percentiles;
pub mod queueing;
mod reading;
mod states;
#[cfg(test)]
pub mod tests;

pub use columns::columns;
pub use fairness::CONVOY_MIN;
pub use hold_sums::HoldSums;
pub use reading::Found;
pub use states::{HoldStates, STATES, StateSums, StatesByRow, read as read_states};

use columns::{Group, UNFINISHED, asks_for, text_columns};
use reading::Reading;

/// The column that rows are sorted by if the options give none.
pub const SORT: &str = "wait_total";

/// Options of the report.
pub type Options = TableOptions<By>;

/// One row. Its columns are null where they were not measured, never 0 instead.
pub type Row = rank::Row<Key>;

/// The table and what is to be known about it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The key of the rows.
    pub by: By,
    /// The number of traces.
    pub traces: usize,
    /// The rows, sorted and limited.
    pub rows: Vec<Row>,
    /// The number of rows before the limit.
    pub rows_total: usize,
    /// The columns over all rows, also those beyond the limit.
    pub totals: Numbers,
    /// Whether the rows are of all locks, tasks and times.
    #[serde(skip)]
    pub is_unfiltered: bool,
    /// The number of the last rows, before the limit, that are of kernel locks which hardly anybody waited
    /// for.
    #[serde(skip)]
    noise: usize,
    /// The sum of the sort column over all rows, if it adds up.
    #[serde(skip)]
    sorted_sum: Option<i64>,
    /// Events and intervals that the numbers do not hold.
    pub trust: Trust,
}

/// Makes one report of several traces, at least one. Rows of the same site, class or name are one row.
///
/// # Errors
///
/// A trace cannot be read, lost too much, or holds no events, or a filter matches no lock or task in any of
/// them. With several traces, those in which a filter matches nothing are passed over. A filter that leaves
/// no rows is not an error: the report is empty.
pub fn report(traces: &[Trace], options: &Options) -> Result<Report, AnalyzeError> {
    let frames = options.by.frames(options.depth);
    let inputs = Input::open_all(traces, frames, &options.filter)?;
    let with_idle = Filter { include_idle: true, ..options.filter.clone() };
    let with_idle = asks_for(options, Group::Calls).then(|| Input::open_all(traces, frames, &with_idle));
    of_opened(&inputs, with_idle.transpose()?.as_deref(), options, readers())
}

/// Makes the report with this number of readers, which changes nothing in it.
#[cfg(test)]
pub fn of_inputs(inputs: &[Input<'_>], options: &Options, readers: usize) -> Result<Report, AnalyzeError> {
    of_opened(inputs, None, options, readers)
}

/// Makes the report of inputs, with the columns of calls if there are the same inputs `with_idle` waits.
fn of_opened(
    inputs: &[Input<'_>],
    with_idle: Option<&[Input<'_>]>,
    options: &Options,
    readers: usize,
) -> Result<Report, AnalyzeError> {
    let mut found = Found::new(Reading::new(options, asks_for(options, Group::Percentiles)), inputs);
    gather::read(inputs, readers, &mut found)?;
    let with_idle = with_idle.filter(|_| calls::has_columns(options.by));
    let calls = with_idle.map(|inputs| calls::read(options.by, inputs, &mut found)).transpose()?;
    let (mut rows, totals) = found.merge(calls.is_some()).map_err(failed)?;
    if let Some(calls) = calls {
        rows = rows.left_join(calls, col("row"), col("row"));
    }
    if found.reading.has_percentiles {
        let spent = percentiles::with_spent(rows);
        let percentiles = std::mem::take(&mut found.percentiles);
        rows = percentiles.join(spent, (options.by, readers), inputs, &found.ids)?;
    }
    if let Some(states) = found.read_states(options)? {
        rows = states::join(rows, states, &found.ids).map_err(failed)?;
    }
    if asks_for(options, Group::Held) {
        rows = states::join(rows, found.read_held()?, &found.ids).map_err(failed)?;
    }
    if asks_for(options, Group::Fairness) {
        rows = fairness::join(rows, (options.by, readers), inputs, &found.ids)?;
    }
    found.ranked(rows, totals, options)
}

/// Gathers the rows of reports without columns on request, and what waits were spent with.
pub fn gather<'a>(inputs: &'a [Input<'a>], options: &Options) -> Found<'a> {
    Found::new(Reading { has_parts: true, ..Reading::new(options, false) }, inputs)
}

impl Found<'_> {
    /// Reads every trace again for the states of the holders, if the options ask for them.
    pub fn read_states(&self, options: &Options) -> Result<Option<Vec<StatesByRow>>, AnalyzeError> {
        asks_for(options, Group::HolderStates).then(|| self.states_by_row()).transpose()
    }

    /// Returns the report of what was gathered, which can be ranked more than once. With `spent`, it has
    /// those columns on request that say what waits were spent with, and with `states` what the holders did.
    pub fn report(
        &self,
        options: &Options,
        spent: bool,
        states: Option<Vec<StatesByRow>>,
    ) -> Result<Report, AnalyzeError> {
        let (mut rows, totals) = self.merge(false).map_err(failed)?;
        if spent {
            rows = percentiles::with_spent(rows);
        }
        if let Some(states) = states {
            rows = states::join(rows, states, &self.ids).map_err(failed)?;
        }
        self.ranked(rows, totals, options)
    }

    /// Returns the rows with the columns of every report, also those without any attempt to get a lock if
    /// `keeps_all`, and the columns over all rows, which are computed like another row.
    fn merge(&self, keeps_all: bool) -> PolarsResult<(LazyFrame, Numbers)> {
        // Other rows hold nothing but what loss kept out of them.
        let attempts = ["abandoned", "try_failed", "polled_ns", "open_holds", "open_waits"];
        let attempts = attempts.into_iter().fold(col("count"), |sum, name| sum + col(name));
        let rows = self.sums.clone().merge()?.filter(attempts.gt(lit(0)).or(lit(keeps_all))).collect()?;
        let all = merged::<HoldSums>().into_iter().map(|sum| sum.fill_null(lit(0)));
        let mut all = rows.clone().lazy().select(all.collect::<Vec<_>>()).collect()?;
        all.insert_column(0, ints("row", vec![NONE]))?;
        // A frame of one line alone takes polars 0.55 longer than a small report: it fills 8 MiB with zeroes
        // to compare with a number.
        let frame = rows.vstack(&all)?.lazy().with_columns(columns::expressions()).collect()?;
        let totals = Numbers::of_lines(&frame.tail(Some(1)), rank::declared(&columns::always()))?;
        Ok((frame.head(Some(rows.height())).lazy(), totals.into_iter().next().unwrap_or_default()))
    }

    /// Sorts, names and limits the rows.
    fn ranked(&self, rows: LazyFrame, totals: Numbers, options: &Options) -> Result<Report, AnalyzeError> {
        let declared = columns(options.by, false);
        let sort = if options.sort.is_empty() { SORT } else { &options.sort };
        let sorted = order_by(&declared, sort, &[])?;
        let order = if options.sort.is_empty() { vec![descending("lost_ns")] } else { sorted.clone() };
        let adds_up = find(&declared, sort)?.merge.is_some();
        let name = |[row]: [i64; 1]| self.ids.name(row, self.inputs);
        let is_unfiltered = options.filter == Filter::default();
        let mut noise = 0;
        let ranked = rows.with_column(lost().alias("lost_ns")).collect().and_then(|mut rows| {
            if is_unfiltered && options.sort.is_empty() && options.limit.is_some() {
                noise = self.put_noise_last(&mut rows)?;
            }
            let of = sorted[0].0.as_str();
            let sum = if adds_up { Some(rank::total(&rows, of)?) } else { None };
            let mut ranked = rank::rank(rows, ["row"], &order, options.limit, name)?;
            ranked.sum = sum;
            let (of, sum) = sum.map_or(("row", 0), |sum| (of, sum));
            let share = |of: Expr, name: &str| of_one(of, move |value| units::ppm(value, sum)).alias(name);
            let shares = [share(col(of), "pct_ppm"), share(col(of).cum_sum(false), "cum_pct_ppm")];
            ranked.frame = ranked.frame.lazy().with_columns(shares).collect()?;
            ranked.rows(rank::declared(&declared))
        });
        let Rows { rows, total: rows_total, sum: sorted_sum } = ranked.map_err(failed)?;
        let (by, traces, trust) = (options.by, self.inputs.len(), self.trust());
        Ok(Report { by, traces, rows, rows_total, totals, is_unfiltered, noise, sorted_sum, trust })
    }

    /// Puts the kernel locks last that hardly anybody waited for, compared with the program's locks, and
    /// returns their number.
    fn put_noise_last(&self, rows: &mut DataFrame) -> PolarsResult<usize> {
        let (ids, mut lost) = (values(rows, "row")?, values(rows, "lost_ns")?);
        let is_kernel = |row: Option<i64>| {
            let key = row.and_then(|row| self.ids.key_of(row));
            key.is_some_and(|(trace, key)| key.is_kernel(&self.inputs[trace].names))
        };
        let (kernel, programs): (Vec<usize>, Vec<usize>) = (0..ids.len()).partition(|at| is_kernel(ids[*at]));
        let waited =
            |at: usize| lost[at].map_or(0, |ns| if ns >= IN_DEADLOCK { ns - IN_DEADLOCK } else { ns });
        let of_programs = programs.into_iter().map(waited).fold(0, i64::saturating_add);
        let is_noise = |at: &usize| lost[*at].unwrap_or(0).saturating_mul(NOISE) < of_programs;
        let noise: Vec<usize> = kernel.into_iter().filter(is_noise).collect();
        noise.iter().for_each(|at| lost[*at] = Some(-1));
        rows.with_column(Series::new("lost_ns".into(), lost).into_column())?;
        Ok(noise.len())
    }
}

/// The time that rows of a deadlock have more than others in the order of rows.
const IN_DEADLOCK: i64 = i64::MAX / 2;

/// Returns the expression of what rows are sorted by without `-k`: the waits that ended with the lock; with
/// those in vain, where these are longer; more than any other number in a deadlock.
fn lost() -> Expr {
    let in_vain = || col("abandoned_wait_ns") + col("open_wait_ns");
    let waited = || col("wait_total_ns").fill_null(lit(0));
    let lost = when(in_vain().gt(waited())).then(waited() + in_vain()).otherwise(col("wait_total_ns"));
    when(col("deadlocked").gt(lit(0))).then(in_vain() + lit(IN_DEADLOCK)).otherwise(lost)
}

impl Table for Report {
    rows_and_trust!(Row);

    fn columns(&self) -> Vec<Column<Row>> {
        columns(self.by, self.traces > 1)
    }

    /// Adds the column of polling where it is not 0, and the columns of attempts and of what was open at the
    /// end, if a row has no acquisition, or waited longer in vain than with success.
    fn text_columns(&self) -> Vec<String> {
        let in_vain = |row: &Row| {
            let of = |column| row.get(column).unwrap_or(0);
            row["count"] == 0 || of("abandoned_wait_ns") + of("open_wait_ns") > of("wait_total_ns")
        };
        let has_none = self.by != By::Process && self.rows.iter().any(in_vain);
        let is_used =
            |column: &Column<Row>| self.rows.iter().any(|row| row.get(&column.field.name) > Some(0));
        let declared = self.columns();
        let unfinished = declared.iter().filter(|column| UNFINISHED.contains(&column.word()));
        let unfinished = unfinished.filter(|column| has_none && is_used(column)).map(Column::word);
        let polled = declared.iter().filter(|column| column.word() == "polled" && is_used(column));
        let more = unfinished.chain(polled.map(Column::word));
        text_columns(self.by).iter().copied().chain(more).map(str::to_owned).collect()
    }

    /// Adds the column that rows are sorted by.
    fn terminal_columns(&self, sorted_by: &str) -> Vec<String> {
        let declared = self.columns();
        let sorted = find(&declared, sorted_by).ok().filter(|column| column.role == Role::Value);
        let shown = self.text_columns();
        let more = sorted.map(|column| column.word().to_owned()).filter(|word| !shown.contains(word));
        more.into_iter().chain(shown).collect()
    }

    fn sorted_sum(&self) -> Option<i64> {
        self.sorted_sum
    }

    fn noise(&self) -> usize {
        self.noise
    }

    /// Waits in vain count, too, if they are longer.
    fn is_last(&self, row: &Row) -> bool {
        ["abandoned_wait_ns", "open_wait_ns"].iter().all(|column| row.get(column).unwrap_or(0) == 0)
    }

    fn dispensable(&self) -> &'static [&'static str] {
        &[
            "woken",
            "wakes",
            "errors",
            "slept_share",
            "locks",
            "idle_waits",
            "idle_time",
            "cnt_hold",
            "wait_avg",
            "avg",
            "cnt_lock",
            "max",
            "total",
            "count",
            "try_failed",
            "open_hold",
            "open_holds",
            "wait_max",
            "abandoned",
            "open_waits",
            "wait_caused",
        ]
    }

    fn about(&self) -> About {
        About::Report
    }

    fn nothing(&self) -> Option<String> {
        let nothing = "no lock was acquired, waited for or tried in what was selected; `klock info` shows what was recorded";
        self.rows.is_empty().then(|| nothing.to_owned())
    }

    /// Says what the times of open waits are, and where to look for a deadlock, or that locks are not the
    /// cause.
    fn write_totals(&self, style: TextStyle, out: &mut (dyn Write + Send)) -> io::Result<()> {
        if let Some(verdict) = verdict(self).filter(|_| style.notes != Notes::None) {
            writeln!(out)?;
            return style.wrapped(&verdict, out);
        }
        let waits = self.rows.iter().map(|row| row["open_waits"]).sum::<i64>();
        if waits == 0 {
            return Ok(());
        }
        let were = if waits == 1 { "was" } else { "were" };
        let line = format!(
            "{} {were} open at the end: `klock why` says what for, `klock blame --chains` who is at the end if the holders wait themselves, and \
             `klock report -F open_waits,open_wait` for how long so far",
            units::counted(waits, "wait")
        );
        writeln!(out)?;
        style.wrapped(&line, out)
    }
}

/// The least part of the recording, in per cent, that waits have to take to be worth looking at.
const LEAST_PERCENT: i64 = 1;

/// Returns the sentence if all waits together, of all threads, took less than [`LEAST_PERCENT`] of the time
/// that was recorded: then no thread waited longer. It is certain only if nothing was lost or filtered out,
/// no wait is open at the end, no wait that may be for a lock is left out. Polling for a lock counts as a
/// wait.
fn verdict(report: &Report) -> Option<String> {
    let trust = &report.trust;
    let is_whole =
        report.is_unfiltered && report.traces == 1 && trust.lost == 0 && trust.waits_open_at_end == 0;
    let waited_ns = report.totals.get("wait_total_ns")?.checked_add(trust.abandoned_wait_ns)?;
    let waited_ns = waited_ns.checked_add(report.totals.get("polled_ns")?)?;
    let waited_ns = waited_ns.checked_add(trust.left_out_ns(Purpose::Undecided))?;
    let is_little = waited_ns.checked_mul(100)? < trust.span_ns.checked_mul(LEAST_PERCENT)?;
    (is_whole && is_little && !report.rows.is_empty()).then(|| {
        format!(
            "All waits together took {} of {}: no thread was slowed down by more than {LEAST_PERCENT} % by the locks that were recorded. \
             `perf record` shows where a program runs, `klock record --off-cpu` where it sleeps",
            units::duration(waited_ns),
            units::duration(trust.span_ns),
        )
    })
}
