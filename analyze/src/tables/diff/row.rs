//! The comparison, its rows and their columns.

use serde::Serialize;

use super::{Align, Change, Metric, Resampling};
use crate::{
    input::trust::Trust,
    output::{Cell, Column, Kind},
    tables::cut_column,
};

/// The comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diff {
    /// The key that is matched.
    pub by: Align,
    /// The metric by whose difference rows are sorted.
    pub metric: Metric,
    /// The number of recordings, or hosts, of each side.
    pub recordings: [usize; 2],
    /// The units that were drawn for the intervals.
    pub resampling: Resampling,
    /// All locks together.
    pub all: Row,
    /// The keys, the one with the greatest difference first.
    pub rows: Vec<Row>,
    /// The number of rows before the limit.
    pub rows_total: usize,
    /// Events and intervals that the numbers of the first trace do not hold.
    pub base: Trust,
    /// Events and intervals that the numbers of the second trace do not hold.
    pub new: Trust,
}

impl Diff {
    /// Returns the trust blocks and the names of their sides. Files of hosts have none: traces that lost too much are not in them.
    pub(super) fn trusts(&self) -> Vec<(&'static str, &Trust)> {
        match self.resampling {
            Resampling::Hosts => Vec::new(),
            Resampling::Periods | Resampling::Recordings => vec![("base", &self.base), ("new", &self.new)],
        }
    }
}

/// One key in both traces.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The name; safe to print.
    pub name: String,
    /// The change of every metric that was compared.
    pub changes: Vec<Change>,
    /// Holds and waits that are not counted in one of the traces, because events were lost while they lasted.
    pub cut_by_loss: u64,
}

impl Row {
    /// Returns the change of a metric; of the first one if this one was not compared.
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

/// Declares the columns. Values are shown as those of `metric`.
pub fn columns(metric: Metric) -> Vec<Column<ChangeRow>> {
    type Of = Column<ChangeRow>;
    fn whole(value: Option<f64>) -> Cell<'static> {
        value.map(|value| value.round() as i64).into()
    }
    fn ppm(part: Option<f64>) -> Cell<'static> {
        whole(part.map(|part| part * 1e6))
    }
    let kind = if metric.is_time() { Kind::Duration } else { Kind::Count };
    vec![
        Of::text("metric", |row| row.change.metric.as_str().into(), "The metric."),
        Of::count("base", |row| whole(row.change.base), "Its value in the first trace.").kind(kind),
        Of::count("new", |row| whole(row.change.new), "Its value in the second trace.").kind(kind),
        Of::ppm("change", |row| ppm(row.change.change), "new divided by base, less 1."),
        Of::ppm("low", |row| ppm(row.change.interval.map(|(low, _)| low)), "The lower end of the interval.")
            .heading("from"),
        Of::ppm(
            "high",
            |row| ppm(row.change.interval.map(|(_, high)| high)),
            "The upper end of the interval.",
        )
        .heading("to"),
        Of::name("lock", |row| row.name.as_str().into()),
        cut_column(|row: &ChangeRow| row.cut_by_loss),
    ]
}
