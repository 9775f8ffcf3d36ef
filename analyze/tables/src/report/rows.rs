//! The rows of the report: frames of sums enter; columns, order, limit and shares are expressions; typed rows leave.

use polars::{
    frame::DataFrame,
    prelude::{Expr, IntoLazy, LazyFrame, PolarsResult, col, lit},
};
use serde::Serialize;

use super::{
    columns::{Column, Columns, Group, PROCESS_TEXT, TEXT, expressions, of_frame},
    hold_sums::HoldSums,
    options::ReportOptions,
};
use crate::{
    cut_column,
    frame::{Lines, ints, merged, values},
    key::{By, Key},
    key_columns,
    rank::{Ranked, descending, rank},
    row_ids::{NONE, NamedRow},
    trace_column,
};
use intervals::input::trust::Trust;
use output::units;

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
    pub totals: Columns,
    /// Whether the rows are of all locks, tasks and times.
    #[serde(skip)]
    pub is_unfiltered: bool,
    /// Events and intervals that the numbers do not hold.
    pub trust: Trust,
}

/// One row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The columns.
    #[serde(flatten)]
    pub columns: Columns,
    /// The row's part of all rows, those beyond the limit too, in the column that is sorted by, in millionths, truncated. `None` if the
    /// column does not add up, if all rows are 0, or if it was not measured here.
    pub pct_ppm: Option<i64>,
    /// The part of this row and all before it.
    pub cum_pct_ppm: Option<i64>,
    /// Holds and waits of the row that are in no column, because events were lost while they lasted.
    pub cut_by_loss: u64,
    /// The name; safe to print.
    pub name: String,
    /// In a report of several traces, which one it is of, if it is of one alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// The key.
    #[serde(flatten)]
    pub key: Key,
}

impl Row {
    /// The value of a column; `None` where it was not measured, and for the name.
    pub fn get(&self, column: Column) -> Option<i64> {
        match column {
            Column::Pct => self.pct_ppm,
            Column::CumPct => self.cum_pct_ppm,
            column => self.columns.get(column),
        }
    }
}

/// Declares the columns; rows of several traces have their trace.
pub fn columns(by: By, several: bool) -> Vec<output::Column<Row>> {
    type Of = output::Column<Row>;
    let numbers = Column::ALL.iter().filter(|column| **column != Column::Name);
    let mut columns: Vec<Of> = numbers.map(|column| number(*column, by)).collect();
    columns.push(Of::name(by.heading(), |row| row.name.as_str().into()));
    columns.extend(key_columns(by, "", |row: &Row| Some(&row.key)));
    columns.push(cut_column(|row: &Row| row.cut_by_loss));
    columns.extend(trace_column(several, |row: &Row| row.trace.as_deref()));
    columns
}

/// Returns the columns for a terminal: those of text, with the sort column and its share in percent.
pub(super) fn terminal_columns(by: By, sort: Column) -> Vec<String> {
    let mut columns = text_columns(by).to_vec();
    if sort != Column::Name && !columns.contains(&sort) {
        columns.insert(0, sort);
    }
    if sort.adds_up()
        && let Some(at) = columns.iter().position(|column| *column == sort)
    {
        columns.insert(at + 1, Column::Pct);
    }
    columns.iter().map(ToString::to_string).collect()
}

/// Returns the default columns of text.
pub(super) const fn text_columns(by: By) -> &'static [Column] {
    if matches!(by, By::Process) { &PROCESS_TEXT } else { &TEXT }
}

/// Declares a column of numbers.
fn number(column: Column, by: By) -> output::Column<Row> {
    let declared = output::Column::new(
        column.as_str(),
        column.kind(),
        move |row: &Row| row.get(column).into(),
        column.doc(),
    );
    if text_columns(by).contains(&column) {
        declared
    } else if column.group().is_some_and(|group| group != Group::Calls || by != By::Process) {
        declared.on_request()
    } else {
        declared.programs()
    }
}

/// Rows that are shown, the number of all rows, and the columns over all of them.
type Ranking = (Vec<Row>, usize, Columns);

/// Columns on request, by row, and the expressions that complete them for all rows.
pub(super) type OnRequest = (LazyFrame, Vec<Expr>);

/// Makes the rows, with `keeps_all` also those without any attempt to get a lock. Only rows that are shown get names: a report by site can have as many rows as locks times sites.
pub(super) fn ranked(
    sums: Lines<HoldSums, 1>,
    (on_request, keeps_all): (Vec<OnRequest>, bool),
    options: &ReportOptions,
    name: impl Fn([i64; 1]) -> NamedRow,
) -> PolarsResult<Ranking> {
    // Other rows hold nothing but what loss kept out of them.
    let has_attempts = ["count", "abandoned", "try_failed", "open_holds", "open_waits"];
    let has_attempts = has_attempts.into_iter().map(col).reduce(|a, b| a + b).unwrap_or(lit(0)).gt(lit(0));
    let sums = sums.merge()?.filter(has_attempts.or(lit(keeps_all))).collect()?;
    let (rows, totals) = with_totals(&sums)?;
    let mut rows = rows.lazy();
    for (columns, filled) in on_request {
        rows = rows.left_join(columns, col("row"), col("row")).with_columns(filled);
    }
    let rows = rows.collect()?;
    let rows_total = rows.height();
    let by_name = options.sort == Column::Name || options.sort.is_part();
    let value = options.sort.as_str();
    let by = if by_name { vec![] } else { vec![descending(value)] };
    let Ranked { frame, names, sum } = rank(rows, ["row"], &by, options.limit, name)?;
    let all = sum.filter(|_| options.sort.adds_up()).unwrap_or(0);
    let columns = of_frame(&frame)?;
    let share = |of: Option<i64>| units::ppm(of?, all);
    let shares = match all {
        0 => vec![(None, None); frame.height()],
        _ => {
            let sums = frame
                .clone()
                .lazy()
                .select([col(value), col(value).cum_sum(false).alias("up_to")])
                .collect()?;
            values(&sums, value)?.into_iter().zip(values(&sums, "up_to")?).collect()
        }
    };
    let cut_by_loss = values(&frame, "cut_by_loss")?.into_iter().map(|cut| cut.map_or(0, i64::unsigned_abs));
    let lines = names.into_iter().zip(columns).zip(shares).zip(cut_by_loss);
    let row = |(((NamedRow { key, name, trace }, columns), (pct, cum_pct)), cut_by_loss)| Row {
        columns,
        pct_ppm: share(pct),
        cum_pct_ppm: share(cum_pct),
        cut_by_loss,
        name,
        trace,
        key,
    };
    Ok((lines.map(row).collect(), rows_total, totals))
}

/// Returns the columns of each row, and those over all rows, which are computed like another row.
fn with_totals(sums: &DataFrame) -> PolarsResult<(DataFrame, Columns)> {
    let all = merged::<HoldSums>().into_iter().map(|sum| sum.fill_null(lit(0)));
    let mut all = sums.clone().lazy().select(all.collect::<Vec<_>>()).collect()?;
    all.insert_column(0, ints("row", vec![NONE]))?;
    let mut columns = vec![col("row"), col("cut_by_loss")];
    columns.extend(expressions());
    // A frame of one line alone takes polars 0.55 longer than a small report: it fills 8 MiB with zeroes to compare with a number.
    let frame = sums.vstack(&all)?.lazy().select(columns).collect()?;
    let totals = of_frame(&frame.tail(Some(1)))?.pop().unwrap_or_default();
    Ok((frame.head(Some(sums.height())), totals))
}
