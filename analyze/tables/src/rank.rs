//! The rows of a table: takes from the sums by key the rows that are shown, names them and sorts them.
//!
//! A [`Row`] has the numbers of its frame under the names of their columns, so a table declares each of its
//! numbers once, as a [`measure`].

use std::{ops::Index, sync::Arc};

use polars::{
    frame::DataFrame,
    prelude::{IntoColumn, IntoLazy, NamedFrom, PolarsResult, Series, SortMultipleOptions, col, lit},
};
use serde::{Serialize, Serializer};

use super::{
    frame::{failed, ints, lines, values},
    row_ids::NamedRow,
};
use output::{Column, Kind, Order, Role, column::sort_key, error::AnalyzeError};

/// A row of a table whose key is `K`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row<K> {
    #[serde(flatten)]
    numbers: Numbers,
    /// The name; safe to print.
    pub name: String,
    /// The trace, if there are several and the row belongs to one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// The parts of the key.
    #[serde(flatten)]
    pub key: K,
}

/// Numbers under the names of their columns, as programs see them: `wait_total_ns`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Numbers {
    names: Arc<[String]>,
    values: Vec<Option<i64>>,
}

impl Serialize for Numbers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.names.iter().zip(&self.values))
    }
}

impl Numbers {
    /// Returns the numbers of each line of a frame in the columns that are measures.
    pub(crate) fn of_lines(frame: &DataFrame, is_measure: impl Fn(&str) -> bool) -> PolarsResult<Vec<Self>> {
        let names = frame.get_column_names().into_iter().map(|name| name.as_str());
        let names: Arc<[String]> = names.filter(|name| is_measure(name)).map(str::to_owned).collect();
        let columns = names.iter().map(|name| values(frame, name)).collect::<PolarsResult<Vec<_>>>()?;
        let line = |at| Self {
            names: Arc::clone(&names),
            values: columns.iter().map(|column: &Vec<Option<i64>>| column[at]).collect(),
        };
        Ok((0..frame.height()).map(line).collect())
    }

    /// Returns the number in the column with this name; `None` if it was not measured.
    pub fn get(&self, column: &str) -> Option<i64> {
        let at = self.names.iter().position(|name| name == column)?;
        self.values[at]
    }
}

/// The number in the column with this name, which was measured.
impl Index<&str> for Numbers {
    type Output = i64;

    fn index(&self, column: &str) -> &i64 {
        let at = self.names.iter().position(|name| name == column);
        at.and_then(|at| self.values[at].as_ref()).expect(column)
    }
}

impl<K> Row<K> {
    /// Returns the same row with another key.
    pub fn with_key<L>(&self, key: L) -> Row<L> {
        Row { numbers: self.numbers.clone(), name: self.name.clone(), trace: self.trace.clone(), key }
    }

    /// Returns the number in the column with this name; `None` if it was not measured.
    pub fn get(&self, column: &str) -> Option<i64> {
        self.numbers.get(column)
    }
}

/// The number in the column with this name, which was measured.
impl<K> Index<&str> for Row<K> {
    type Output = i64;

    fn index(&self, column: &str) -> &i64 {
        &self.numbers[column]
    }
}

/// Declares a column of the numbers that the rows have under its name.
pub fn measure<K>(word: &'static str, kind: Kind, doc: &'static str) -> Column<Row<K>> {
    let name = format!("{word}{}", kind.suffix());
    Column::new(word, kind, move |row: &Row<K>| row.get(&name).into(), doc)
}

/// Declares a [`measure`] in ns.
pub fn duration<K>(word: &'static str, doc: &'static str) -> Column<Row<K>> {
    measure(word, Kind::Duration, doc)
}

/// Declares a [`measure`] that is a number of things.
pub fn count<K>(word: &'static str, doc: &'static str) -> Column<Row<K>> {
    measure(word, Kind::Count, doc)
}

/// A column of a frame, and the order by it. Null comes last.
pub type OrderBy = (String, Order);

/// Returns the order by the sort key `word`, if it is not empty, and then by the columns `default`, the
/// greatest first. Frames call their columns as programs see them.
pub fn order_by<R>(
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
pub fn descending(column: &str) -> OrderBy {
    (column.to_owned(), Order::Descending)
}

/// Returns the order by a column, the smallest first.
pub fn ascending(column: &str) -> OrderBy {
    (column.to_owned(), Order::Ascending)
}

/// The rows that are shown.
pub struct Ranked<K> {
    pub frame: DataFrame,
    /// The name of each line.
    pub names: Vec<NamedRow<K>>,
    /// The number of rows before the limit.
    pub total: usize,
    /// The sum of the first column of the order, over all rows, if it has numbers.
    pub sum: Option<i64>,
}

/// Sorts the rows by these columns, then by name and key, and keeps the first `limit`. `name` gets the
/// columns `keys` of a row.
///
/// Only rows that can be among the first get a name: a table by site can have as many rows as locks times
/// sites.
pub fn rank<K: Ord, const KEYS: usize>(
    mut rows: DataFrame,
    keys: [&str; KEYS],
    by: &[OrderBy],
    limit: Option<usize>,
    name: impl Fn([i64; KEYS]) -> NamedRow<K>,
) -> PolarsResult<Ranked<K>> {
    let total_rows = rows.height();
    let sum = match by.first() {
        Some((first, _)) if first != "name" => Some(total(&rows, first)?),
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
    let frame = frame.drop_many(["name", "key_order", "line"]);
    Ok(Ranked { frame, names, total: total_rows, sum })
}

/// Returns the rows that can be among the first `limit`: those that come before the last of them, or equal
/// it.
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

/// The rows of a table that are shown.
pub struct Rows<K> {
    pub rows: Vec<Row<K>>,
    /// The number of rows before the limit.
    pub total: usize,
    /// The sum of the first column of the order, over all rows, if it has numbers.
    pub sum: Option<i64>,
}

/// Returns the sum of a column.
pub fn total(frame: &DataFrame, column: &str) -> PolarsResult<i64> {
    Ok(values(frame, column)?.into_iter().flatten().fold(0, i64::saturating_add))
}

/// Returns whether a column of a frame is among the declared columns of numbers.
pub fn declared<R>(columns: &[Column<R>]) -> impl Fn(&str) -> bool {
    |name| columns.iter().any(|column| column.field.name == name && !column.field.kind.is_text())
}

/// Returns the rows of a frame as [`rank`] sorts and names them, with these measures.
pub fn rows<K: Ord, const KEYS: usize>(
    is_measure: impl Fn(&str) -> bool,
    frame: DataFrame,
    keys: [&str; KEYS],
    by: &[OrderBy],
    limit: Option<usize>,
    name: impl Fn([i64; KEYS]) -> NamedRow<K>,
) -> Result<Rows<K>, AnalyzeError> {
    rank(frame, keys, by, limit, name).and_then(|ranked| ranked.rows(is_measure)).map_err(failed)
}

impl<K> Ranked<K> {
    /// Returns the rows with these measures.
    pub fn rows(self, is_measure: impl Fn(&str) -> bool) -> PolarsResult<Rows<K>> {
        let Self { frame, names, total, sum } = self;
        let row = |(NamedRow { key, name, trace }, numbers)| Row { numbers, name, trace, key };
        let numbers = Numbers::of_lines(&frame, is_measure)?;
        Ok(Rows { rows: names.into_iter().zip(numbers).map(row).collect(), total, sum })
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
