//! The order of a table's rows: a frame enters; the rows that are shown leave, named and in order.

use polars::{
    frame::DataFrame,
    prelude::{IntoColumn, IntoLazy, NamedFrom, PolarsResult, Series, SortMultipleOptions, col, lit},
};

use super::{
    frame::{ints, lines, values},
    row_ids::NamedRow,
};
use crate::{
    error::AnalyzeError,
    output::{Column, Order, Role, column::sort_key},
};

/// A column of a frame, and the order by it. Null comes last.
pub(crate) type OrderBy = (String, Order);

/// Returns the order by the sort key `word`, if it is not empty, and then by the columns `default`, the greatest first. Frames call
/// their columns as programs see them.
pub(crate) fn order_by<R>(
    columns: &[Column<R>],
    word: &str,
    default: &[&str],
) -> Result<Vec<OrderBy>, AnalyzeError> {
    let mut order = Vec::new();
    if !word.is_empty() {
        let column = sort_key(columns, word)?;
        let name = if column.role == Role::Name { "name" } else { &column.field.name };
        order.push((name.to_owned(), column.order.unwrap_or(Order::Descending)));
    }
    order.extend(default.iter().map(|column| descending(column)));
    Ok(order)
}

/// Returns the order by a column, the greatest first.
pub(crate) fn descending(column: &str) -> OrderBy {
    (column.to_owned(), Order::Descending)
}

/// Returns the order by a column, the smallest first.
pub(crate) fn ascending(column: &str) -> OrderBy {
    (column.to_owned(), Order::Ascending)
}

/// The rows that are shown.
pub(crate) struct Ranked<K> {
    pub(crate) frame: DataFrame,
    /// The name of each line.
    pub(crate) names: Vec<NamedRow<K>>,
    /// The sum of the first column of the order, over all rows, if it has numbers.
    pub(crate) sum: Option<i64>,
}

/// Sorts the rows by these columns, then by name and key, and keeps the first `limit`. `name` gets the columns `keys` of a row.
///
/// Only rows that can be among the first get a name: a table by site can have as many rows as locks times sites.
pub(crate) fn rank<K: Ord, const KEYS: usize>(
    mut rows: DataFrame,
    keys: [&str; KEYS],
    by: &[OrderBy],
    limit: Option<usize>,
    name: impl Fn([i64; KEYS]) -> NamedRow<K>,
) -> PolarsResult<Ranked<K>> {
    let sum = match by.first() {
        Some((first, _)) if first != "name" => {
            let values = values(&rows, first)?;
            Some(values.into_iter().flatten().fold(0, i64::saturating_add))
        }
        _ => None,
    };
    if let (Some(limit), Some((first, order))) = (limit, by.first())
        && limit < rows.height()
        && first != "name"
    {
        rows = candidates(rows, first, *order, limit)?;
    }
    let mut names: Vec<_> = lines(&rows, keys)?.into_iter().map(|key| Some(name(key))).collect();
    let texts: Vec<Option<&str>> = names.iter().map(|row| Some(row.as_ref()?.name.as_str())).collect();
    rows.with_column(Series::new("name".into(), texts).into_column())?;
    rows.with_column(ints("key_order", key_order(&names)))?;
    rows.with_column(ints("line", (0..).take(names.len()).collect()))?;
    let last = ["name", "key_order"].map(ascending);
    let (columns, descending): (Vec<&str>, Vec<bool>) =
        by.iter().chain(&last).map(|(column, order)| (column.as_str(), *order == Order::Descending)).unzip();
    let order = SortMultipleOptions::default().with_order_descending_multi(descending).with_nulls_last(true);
    let sorted = rows.lazy().sort(columns, order).collect()?;
    let frame = sorted.head(Some(limit.unwrap_or(sorted.height())));
    let lines = lines(&frame, ["line"])?.into_iter();
    let names = lines.filter_map(|[line]| names.get_mut(usize::try_from(line).ok()?)?.take()).collect();
    Ok(Ranked { frame, names, sum })
}

/// Returns the rows that can be among the first `limit`: those that come before the last of them, or equal it.
fn candidates(rows: DataFrame, first: &str, order: Order, limit: usize) -> PolarsResult<DataFrame> {
    if limit == 0 {
        return Ok(rows.head(Some(0)));
    }
    let is_descending = order == Order::Descending;
    let options = SortMultipleOptions::default().with_order_descending(is_descending).with_nulls_last(true);
    let sorted = rows.lazy().sort([first], options).collect()?;
    match values(&sorted, first)?[limit - 1] {
        None => Ok(sorted),
        Some(last) if is_descending => sorted.lazy().filter(col(first).gt_eq(lit(last))).collect(),
        Some(last) => sorted.lazy().filter(col(first).lt_eq(lit(last))).collect(),
    }
}

/// Returns the position of each row's key in the order of the keys.
fn key_order<K: Ord>(names: &[Option<NamedRow<K>>]) -> Vec<i64> {
    let mut order: Vec<usize> = (0..names.len()).collect();
    order.sort_by_key(|at| names[*at].as_ref().map(|row| &row.key));
    let mut positions = vec![0; names.len()];
    order.into_iter().zip(0..).for_each(|(at, position)| positions[at] = position);
    positions
}
