//! The order of the keys: the lines of all readers and traces enter, the series of each key leave, and all beyond the limit as one.

use std::collections::BTreeMap;

use polars::{
    frame::DataFrame,
    prelude::{IntoLazy, PolarsResult, SortMultipleOptions, col, lit},
};
use rustc_hash::FxHashMap;

use super::{
    filling::{CellSums, KeySums},
    series::{Cell, Series},
};
use crate::tables::{
    frame::{Lines, lines, masked, merged, values},
    rank::{OrderBy, Ranked, rank},
    row_ids::NamedRow,
};

/// The keys that are shown, and the others as one.
pub(super) struct Ranking {
    pub(super) keys: Vec<Series>,
    pub(super) others: Option<Series>,
    pub(super) others_count: usize,
}

impl Ranking {
    /// Keeps the first keys, and merges the others into one.
    pub(super) fn of(mut keys: Vec<Series>, limit: Option<usize>) -> Self {
        let others = keys.split_off(limit.unwrap_or(usize::MAX).min(keys.len()));
        Self { others_count: others.len(), others: others.into_iter().reduce(merge), keys }
    }
}

/// Merges the lines of all readers and traces, and sorts the keys.
pub(super) fn rank_series(
    sums: Lines<KeySums, 1>,
    cells: Lines<CellSums, 2>,
    order: &[OrderBy],
    limit: Option<usize>,
    name: impl Fn([i64; 1]) -> NamedRow,
) -> PolarsResult<Ranking> {
    // Where holds are recorded and there is none, the time is 0; where they are not, it is null.
    let measured = || masked(col("hold_ns"), col("measured").gt(lit(0)));
    let cells = cells
        .merge()?
        .inner_join(sums.merge()?, col("row"), col("row"))
        .with_columns([measured()])
        .sort(["row", "period"], SortMultipleOptions::default())
        .collect()?;
    let totals = [merged::<CellSums>(), vec![col("cut_by_loss").first(), col("measured").first()]].concat();
    let rows =
        cells.clone().lazy().group_by([col("row")]).agg(totals).with_columns([measured()]).collect()?;
    let Ranked { frame: rows, names, .. } = rank(rows, ["row"], order, None, name)?;
    let mut of_row: FxHashMap<i64, BTreeMap<i64, Cell>> = FxHashMap::default();
    for ([row, period], cell) in lines(&cells, ["row", "period"])?.into_iter().zip(cells_of(&cells)?) {
        of_row.entry(row).or_default().insert(period, cell);
    }
    let totals = lines(&rows, ["row", "cut_by_loss"])?.into_iter().zip(cells_of(&rows)?);
    let series = |(NamedRow { key, name, trace }, ([row, cut], total)): (_, ([i64; 2], _))| Series {
        name,
        key: Some(key),
        trace,
        total,
        cut_by_loss: cut.unsigned_abs(),
        cells: of_row.remove(&row).unwrap_or_default(),
    };
    Ok(Ranking::of(names.into_iter().zip(totals).map(series).collect(), limit))
}

/// Returns the cell of each line of a frame.
fn cells_of(frame: &DataFrame) -> PolarsResult<Vec<Cell>> {
    let cell = |([wait_ns, waits, holds], hold_ns): ([i64; 3], _)| Cell { wait_ns, hold_ns, waits, holds };
    let cells = lines(frame, ["wait_ns", "waits", "holds"])?.into_iter().zip(values(frame, "hold_ns")?);
    Ok(cells.map(cell).collect())
}

/// Merges two keys into one.
fn merge(mut all: Series, other: Series) -> Series {
    for (period, cell) in other.cells {
        let sum = all.cells.entry(period).or_default();
        *sum = sum.merge(cell);
    }
    let total = all.total.merge(other.total);
    let cut_by_loss = all.cut_by_loss + other.cut_by_loss;
    Series { name: "(others)".to_owned(), key: None, trace: None, total, cut_by_loss, cells: all.cells }
}
