//! `klock analyze diff`: recordings of one program before and after a change, lock by lock: what became longer, and whether that is more than
//! chance.
//!
//! Addresses and ids differ from run to run, so locks are matched by what lasts: name, site of initialisation, site of acquisition.
//! Sums are compared as rates, per second of the recording, because recordings differ in length.
//!
//! Resampling tells change from chance. With at least [`ENOUGH`] recordings per side, whole recordings are drawn, with repetition, so that
//! the interval holds what recordings of the same program differ by. With fewer, each recording is cut into equal periods, which are drawn: the
//! interval then holds only chance within a recording, and the output reports it. The draws are the same each time. The holds and waits are those of
//! a report. Memory grows with the keys times the periods. Of a fleet, hosts are drawn: within a host everything depends on everything else.

use std::{
    borrow::Borrow,
    io::{self, Write},
    path::Path,
    thread,
};

use trace_format::Trace;

use crate::{
    TextStyle,
    error::AnalyzeError,
    input::{
        readers,
        trust::{About, Trust},
    },
    output::{Column, Format, Page, column::select, json, write_rows},
    tables::{Table, table},
};

mod condition;
mod cut;
mod draws;
mod hosts;
mod measure;
mod metric;
mod options;
mod periods;
mod row;
mod side;
#[cfg(test)]
mod tests;
mod text;

pub use condition::Condition;
pub use draws::{DRAWS, ENOUGH, PERIODS, Resampling};
pub use measure::Change;
pub use metric::Metric;
pub use options::{Align, Options};
pub use row::{ChangeRow, Diff, Row, columns};
pub(crate) use side::{goes_by_itself, label};

use draws::Draws;
use periods::Periods;
pub(crate) use side::Side;
use side::is_gone;

/// Compares the recordings `new` with `base`, at least one each.
///
/// # Errors
///
/// A trace cannot be read, holds no events or lost too much, or a filter finds nothing in both.
pub fn diff(base: &[Trace], new: &[Trace], options: &Options) -> Result<Diff, AnalyzeError> {
    let sides = (Side::of(base, options), Side::of(new, options));
    let (before, after) = both(sides, || Side::empty(base), || Side::empty(new))?;
    Ok(compare(before, after, Resampling::of(base.len(), new.len()), options, Metric::ALL))
}

/// Returns two sides, of which one may be empty because the filter finds nothing in it.
pub(crate) fn both<T>(
    sides: (Result<T, AnalyzeError>, Result<T, AnalyzeError>),
    no_base: impl FnOnce() -> T,
    no_new: impl FnOnce() -> T,
) -> Result<(T, T), AnalyzeError> {
    match sides {
        // A lock or task that only one trace has is new or gone.
        (Err(error), Ok(after)) if is_gone(&error) => Ok((no_base(), after)),
        (Ok(before), Err(error)) if is_gone(&error) => Ok((before, no_new())),
        // An error of the other trace weighs more than a filter that finds nothing in this one.
        (Err(error), Err(other)) if is_gone(&error) => Err(if is_gone(&other) { error } else { other }),
        (before, after) => Ok((before?, after?)),
    }
}

/// Compares two groups of hosts of a fleet: the rows of `sql/fleet/cohorts.sql` of each, in a Parquet file.
///
/// # Errors
///
/// A file cannot be read, is not such a file, or has fewer than [`ENOUGH`] hosts.
pub fn diff_hosts(base: &Path, new: &Path, options: &Options) -> Result<Diff, AnalyzeError> {
    Ok(compare(hosts::read(base)?, hosts::read(new)?, Resampling::Hosts, options, Metric::ALL))
}

fn compare(before: Side, after: Side, resampling: Resampling, options: &Options, metrics: &[Metric]) -> Diff {
    let recordings = [&before, &after].map(|side| side.spans.all_ns.len());
    let none = Periods::default();
    let mut names: Vec<&String> = before.keys.keys().chain(after.keys.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let of = |name: &String| {
        let value = |side: &Side| {
            side.keys.get(name).map_or(0.0, |periods| measure::rate(options.metric, (periods, &side.spans)))
        };
        let (was, is) = (value(&before), value(&after));
        // Positive numbers are in the order of their bits. Of equal differences, such as none, that of the greater values comes first.
        [(was - is).abs().to_bits(), was.max(is).to_bits()]
    };
    names.sort_by_cached_key(|name| (std::cmp::Reverse(of(name)), *name));
    let rows_total = names.len();
    let draws = Draws::new(resampling, recordings[0], recordings[1]);
    let row = |name: &str, was: &Periods, is: &Periods| Row {
        name: name.to_owned(),
        changes: metrics
            .iter()
            .map(|metric| Change::of(*metric, (was, &before.spans), (is, &after.spans), &draws))
            .collect(),
        cut_by_loss: was.cut_by_loss + is.cut_by_loss,
    };
    names.truncate(options.limit.unwrap_or(usize::MAX));
    let row_of = |name: &String| {
        row(name, before.keys.get(name).unwrap_or(&none), after.keys.get(name).unwrap_or(&none))
    };
    let rows = on_all_processors(&names, &|name| row_of(name));
    let all = row("all", &before.all, &after.all);
    Diff {
        by: options.by,
        metric: options.metric,
        recordings,
        resampling,
        all,
        rows,
        rows_total,
        base: before.trust,
        new: after.trust,
    }
}

/// Computes a row of each name, in their order, on all processors: each row takes thousands of draws.
fn on_all_processors(names: &[&String], row: &(impl Fn(&String) -> Row + Sync)) -> Vec<Row> {
    let each = names.len().div_ceil(readers()).max(1);
    thread::scope(|scope| {
        let make = |names: &[&String]| names.iter().map(|name| row(name)).collect::<Vec<Row>>();
        let threads: Vec<_> = names.chunks(each).map(|names| scope.spawn(move || make(names))).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, Vec<Row>>| match thread.join() {
            Ok(rows) => rows,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        threads.into_iter().flat_map(join).collect()
    })
}

impl Table for Diff {
    type Row = ChangeRow;

    fn columns(&self) -> Vec<Column<ChangeRow>> {
        columns(self.metric)
    }

    /// Returns every metric of all locks together, then of each key.
    fn rows(&self) -> impl Iterator<Item = impl Borrow<ChangeRow>> {
        [&self.all].into_iter().chain(&self.rows).flat_map(|Row { name, changes, cut_by_loss }| {
            changes.iter().map(|change| ChangeRow {
                name: name.clone(),
                change: *change,
                cut_by_loss: *cut_by_loss,
            })
        })
    }

    /// A key is kept by its change of the chosen metric.
    fn retain(&mut self, keep: &dyn Fn(&ChangeRow) -> bool, limit: Option<usize>) {
        let metric = self.metric;
        let keep = |row: &Row| {
            let (name, cut_by_loss) = (row.name.clone(), row.cut_by_loss);
            keep(&ChangeRow { name, change: *row.change(metric), cut_by_loss })
        };
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

    fn warnings(&self) -> Vec<String> {
        self.trusts().into_iter().filter_map(|(_, trust)| trust.warning()).collect()
    }

    fn write_text(
        &self,
        _columns: &[Column<ChangeRow>],
        page: &Page,
        out: &mut (dyn Write + Send),
    ) -> io::Result<()> {
        text::write(self, page.style, out)
    }

    fn write_trust(&self, style: TextStyle, out: &mut (dyn Write + Send)) -> io::Result<()> {
        text::write_trust(self, style, out)
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
