//! `klock diff`: recordings of one program before and after a change, lock by lock: what became longer, and
//! whether that is more than chance.
//!
//! Addresses and ids differ from run to run, so locks are matched by what lasts: name, site of
//! initialisation, site of acquisition. Sums are compared per run of a command, because a run that does the
//! same work more slowly has other rates; programs that run on are compared per second.
//!
//! Only several recordings show what recordings of one program differ by. With at least [`ENOUGH`] per side,
//! Welch's test tells change from chance. The intervals of all rows together miss a change with a
//! probability of 5 % (Bonferroni), the interval of `all` with 2.5 %. Of a fleet, hosts are the recordings.

use std::{
    borrow::Borrow,
    cmp::Reverse,
    io::{self, Write},
    path::Path,
};

use serde::Serialize;
use trace_format::Trace;

use crate::{
    Table, cut_column,
    table::{self, NOISE},
};
use intervals::{
    input::filter::Filter,
    input::on_all_processors,
    input::trust::{About, Trust},
};
use output::{
    Cell, Column, Format, Kind, Page, column::select, error::AnalyzeError, json, layout::TextStyle,
    write_rows,
};

mod hosts;
mod measure;
mod options;
mod recordings;
mod side;
#[cfg(test)]
mod tests;
mod text;
mod welch;

pub use hosts::is_of_hosts;
pub use measure::Change;
pub use options::{Align, Condition, DiffOptions, Metric, Per, Units};
pub use side::{goes_by_itself, label};
pub use welch::ENOUGH;

use recordings::Recordings;
use side::{Side, is_gone};
use welch::LEVEL;

impl Condition {
    /// Returns the change if its whole interval is beyond the limit. A change from nothing in any recording
    /// is beyond every limit.
    pub fn met<'a>(&self, diff: &'a Diff) -> Option<&'a Change> {
        let change = diff.all.change(self.metric);
        let is_beyond = change.interval.is_some_and(|(low, high)| match self.above {
            true => low > self.limit,
            false => high < self.limit,
        });
        (is_beyond || change.appeared && self.above).then_some(change)
    }
}

/// The comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diff {
    /// The key that is matched.
    pub by: Align,
    /// The metric by whose difference rows are sorted.
    pub metric: Metric,
    /// The number of recordings, or hosts, of each side.
    pub recordings: [usize; 2],
    /// The units of the numbers that both sides have.
    pub units: Units,
    /// The divisor of sums.
    pub per: Per,
    /// The mean length of the runs of each side, in ns. `None` if the recordings are not whole runs, or a
    /// filter selects a part of their time.
    pub run_ns: Option<[i64; 2]>,
    /// All locks together.
    pub all: DiffRow,
    /// The keys, the one with the greatest difference first.
    pub rows: Vec<DiffRow>,
    /// The number of rows before the limit.
    pub rows_total: usize,
    /// Events and intervals that the numbers of the first trace do not hold.
    pub base: Trust,
    /// Events and intervals that the numbers of the second trace do not hold.
    pub new: Trust,
}

/// One key in both traces.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiffRow {
    /// The name; safe to print.
    pub name: String,
    /// The change of every metric.
    pub changes: Vec<Change>,
    /// Holds and waits that are not counted in one of the traces, because events were lost while they lasted.
    pub cut_by_loss: u64,
}

impl DiffRow {
    /// Returns the change of a metric.
    pub fn change(&self, metric: Metric) -> &Change {
        let at = self.changes.iter().position(|change| change.metric == metric).unwrap_or(0);
        &self.changes[at]
    }
}

/// The change of one metric of a row.
#[derive(Clone, Debug)]
pub struct ChangeRow {
    /// The name of the row.
    pub name: String,
    /// The change.
    pub change: Change,
    /// Holds and waits that are left out, because events were lost while they lasted.
    pub cut_by_loss: u64,
}

impl ChangeRow {
    fn of(row: &DiffRow, change: Change) -> Self {
        Self { name: row.name.clone(), change, cut_by_loss: row.cut_by_loss }
    }
}

/// Declares the columns. Values are shown in the unit of `metric`.
pub fn columns(metric: Metric) -> Vec<Column<ChangeRow>> {
    type Of = Column<ChangeRow>;
    fn whole(value: Option<f64>) -> Cell<'static> {
        value.map(|value| value.round() as i64).into()
    }
    fn ppm(part: Option<f64>) -> Cell<'static> {
        whole(part.map(|part| part * 1e6))
    }
    let low = |row: &ChangeRow| ppm(row.change.interval.map(|(low, _)| low));
    let high = |row: &ChangeRow| ppm(row.change.interval.map(|(_, high)| high));
    let kind = if metric.is_time() { Kind::Duration } else { Kind::Count };
    vec![
        Of::text("metric", |row| row.change.metric.as_str().into(), "The metric."),
        Of::count("base", |row| whole(row.change.base), "Its value in the first trace.").kind(kind),
        Of::count("new", |row| whole(row.change.new), "Its value in the second trace.").kind(kind),
        Of::ppm("change", |row| ppm(row.change.change), "new divided by base, less 1."),
        Of::ppm("low", low, "The lower end of the interval.").heading("from"),
        Of::ppm("high", high, "The upper end of the interval.").heading("to"),
        Of::name("lock", |row| row.name.as_str().into()),
        cut_column(|row: &ChangeRow| row.cut_by_loss),
    ]
}

/// Compares the recordings `new` with `base`, at least one each.
///
/// # Errors
///
/// A trace cannot be read, holds no events or lost too much, or a filter finds nothing in both.
pub fn diff(base: &[Trace], new: &[Trace], options: &DiffOptions) -> Result<Diff, AnalyzeError> {
    let per = Per::of(base.iter().chain(new));
    let (before, after) = match (Side::of(base, per, options), Side::of(new, per, options)) {
        // A lock or task that only one side has is new or gone.
        (Err(error), Ok(after)) if is_gone(&error) => (Side::empty(base, per), after),
        (Ok(before), Err(error)) if is_gone(&error) => (before, Side::empty(new, per)),
        // An error of the other side weighs more than a filter that finds nothing in this one.
        (Err(error), Err(other)) if is_gone(&error) && !is_gone(&other) => return Err(other),
        (before, after) => (before?, after?),
    };
    let mut diff = compare([before, after], (Units::Recordings, per), options);
    if per == Per::Run && options.filter.from_ns.is_none() && options.filter.to_ns.is_none() {
        let mean_ns = |trust: &Trust, runs: usize| trust.span_ns / runs.max(1) as i64;
        diff.run_ns = Some([mean_ns(&diff.base, base.len()), mean_ns(&diff.new, new.len())]);
    }
    Ok(diff)
}

/// Compares two groups of hosts of a fleet: the rows of `sql/fleet/cohorts.sql` of each, in a Parquet file.
///
/// # Errors
///
/// A file cannot be read, is not such a file, or has fewer than [`ENOUGH`] hosts.
pub fn diff_hosts(base: &Path, new: &Path, options: &DiffOptions) -> Result<Diff, AnalyzeError> {
    Ok(compare([hosts::read(base)?, hosts::read(new)?], (Units::Hosts, Per::Second), options))
}

fn compare([before, after]: [Side; 2], (units, per): (Units, Per), options: &DiffOptions) -> Diff {
    let recordings = [&before, &after].map(|side| side.lengths.all.len());
    let none = Recordings::default();
    let mut names: Vec<&String> = before.keys.keys().chain(after.keys.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let values = |name: &String| {
        let value = |side: &Side| {
            side.keys.get(name).map_or(0.0, |key| measure::value(options.metric, (key, &side.lengths)))
        };
        (value(&before), value(&after))
    };
    let difference = |name: &String| {
        let (was, is) = values(name);
        // Positive numbers are in the order of their bits. Of equal differences, such as no difference, the
        // one of the greater values comes first.
        [(was - is).abs().to_bits(), was.max(is).to_bits()]
    };
    names.sort_by_cached_key(|name| (Reverse(difference(name)), *name));
    let rows_total = names.len();
    if options.limit.is_some() && options.filter == Filter::default() && options.metric == Metric::WaitTotal {
        let is_kernel = |name: &&String| {
            [&before, &after].iter().any(|side| side.keys.get(*name).is_some_and(|key| key.is_kernel))
        };
        let most = |name: &&String| {
            let (was, is) = values(name);
            was.max(is)
        };
        let of_programs: f64 = names.iter().filter(|name| !is_kernel(name)).map(most).sum();
        names.retain(|name| !is_kernel(name) || most(name) * NOISE as f64 >= of_programs);
    }
    names.truncate(options.limit.unwrap_or(usize::MAX));
    let row = |name: &str, was: &Recordings, is: &Recordings, level: f64| {
        let sides = [(was, &before.lengths), (is, &after.lengths)];
        let cut_by_loss = was.cut_by_loss + is.cut_by_loss;
        let changes = Metric::ALL.iter().map(|metric| Change::of(*metric, sides, level)).collect();
        DiffRow { name: name.to_owned(), changes, cut_by_loss }
    };
    let of_both = |name: &String| {
        let [was, is] = [&before, &after].map(|side| side.keys.get(name).unwrap_or(&none));
        row(name, was, is, LEVEL / 2.0 / rows_total as f64)
    };
    let rows = on_all_processors(&names, |name| of_both(name));
    let all = row("all", &before.all(), &after.all(), LEVEL / 2.0);
    let (by, metric) = (options.by, options.metric);
    let (base, new) = (before.trust, after.trust);
    Diff { by, metric, recordings, units, per, run_ns: None, all, rows, rows_total, base, new }
}

impl Table for Diff {
    type Row = ChangeRow;

    fn columns(&self) -> Vec<Column<ChangeRow>> {
        columns(self.metric)
    }

    /// Returns every metric of all locks together, then of each key.
    fn rows(&self) -> impl Iterator<Item = impl Borrow<ChangeRow>> {
        let of_row = |row: &'_ DiffRow| {
            row.changes.iter().map(|change| ChangeRow::of(row, *change)).collect::<Vec<_>>()
        };
        [&self.all].into_iter().chain(&self.rows).flat_map(of_row)
    }

    /// A key is kept by its change of the chosen metric.
    fn retain(&mut self, keep: &dyn Fn(&ChangeRow) -> bool, limit: Option<usize>) {
        let metric = self.metric;
        let keep = |row: &DiffRow| keep(&ChangeRow::of(row, *row.change(metric)));
        table::retain_first(&mut self.rows, &mut self.rows_total, keep, limit);
    }

    fn hidden_rows(&self) -> usize {
        self.rows_total - self.rows.len()
    }

    fn trust(&self) -> &Trust {
        &self.new
    }

    fn about(&self) -> About {
        About::Diff
    }

    fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn warnings(&self, _page: &Page) -> Vec<String> {
        self.trusts().into_iter().filter_map(|(_, trust)| trust.warning()).collect()
    }

    fn write_text(
        &self,
        _columns: &[Column<ChangeRow>],
        page: &Page,
        out: &mut (dyn Write + Send),
    ) -> io::Result<()> {
        self.write_changes(page.style, out)
    }

    fn write_trust(&self, style: TextStyle, out: &mut (dyn Write + Send)) -> io::Result<()> {
        self.write_trusts(style, out)
    }

    /// Markdown has the chosen metric only.
    fn write(&self, page: &Page, out: &mut (dyn Write + Send)) -> Result<(), AnalyzeError> {
        let columns = select(self.columns(), &page.columns)?;
        let is_shown = |row: &ChangeRow| page.format != Format::Md || row.change.metric == self.metric;
        match page.format {
            Format::Text => self.write_text(&columns, page, out).map_err(AnalyzeError::Write),
            Format::Json => json::write_value(self, out),
            format => write_rows(format, &columns, self.rows().filter(|row| is_shown(row.borrow())), out),
        }
    }
}
