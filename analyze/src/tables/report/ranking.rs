//! The rows of the report: frames of sums enter; columns, order, limit and shares are expressions; typed rows leave.

use polars::{
    frame::DataFrame,
    prelude::{Expr, IntoLazy, LazyFrame, PolarsResult, col, lit},
};

use super::{
    Column, Columns, Options, Row,
    columns::{expressions, of_frame},
    hold_sums::HoldSums,
};
use crate::{
    output::units,
    tables::{
        frame::{Lines, ints, merged, values},
        rank::{Ranked, descending, rank},
        row_ids::{NONE, NamedRow},
    },
};

/// Rows that are shown, the number of all rows, and the columns over all of them.
type Ranking = (Vec<Row>, usize, Columns);

/// Columns on request, by row, and the expressions that complete them for all rows.
pub(super) type OnRequest = (LazyFrame, Vec<Expr>);

/// Makes the rows. Only rows that are shown get names: a report by site can have as many rows as locks times sites.
pub(super) fn rows(
    sums: Lines<HoldSums, 1>,
    on_request: Vec<OnRequest>,
    options: &Options,
    name: impl Fn([i64; 1]) -> NamedRow,
) -> PolarsResult<Ranking> {
    // Other rows hold nothing but what loss kept out of them.
    let has_attempts = ["count", "abandoned", "try_failed", "open_holds", "open_waits"];
    let has_attempts = has_attempts.into_iter().map(col).reduce(|a, b| a + b).unwrap_or(lit(0)).gt(lit(0));
    let sums = sums.merge()?.filter(has_attempts).collect()?;
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
