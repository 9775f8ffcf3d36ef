//! `klock analyze blame`: each nanosecond of each wait, charged to the site or the task that held the lock then.
//!
//! The engine splits each wait into shares, one per hold that it waited for. They are added up by holder and, for pairs, by waiter,
//! so memory grows with the number of stacks. All rows add up to all waits. Every hold counts, also one that never ends.

use std::io::{self, Write};

use serde::Serialize;
use trace_format::Trace;

use crate::{
    TextStyle,
    error::AnalyzeError,
    input::{
        Input, ReadOutcome, readers,
        trust::{About, Trust, TrustCounter},
    },
    output::{Column, layout::STACK_SEPARATOR},
    tables::{
        Table,
        frame::{Lines, failed},
        gather::{self, Finish, Gather},
        rank::{OrderBy, order_by},
        table::rows_and_trust,
    },
};

mod naming;
mod options;
mod ranking;
mod row;
pub mod states;
mod sums;
#[cfg(test)]
mod tests;

pub(crate) use naming::label;
pub(crate) use naming::parties;
pub use options::{By, Options};
pub use row::{Charged, Row, Totals, columns};
pub(in crate::tables) use row::{waited, write_sum};
pub use states::{States, states};
pub(crate) use sums::{BlameKey, BlameSums, Shares};

use naming::{KEYS, Naming};
use ranking::{rank_rows, with_stacks};

/// The sentence that stands for a table without waits.
pub(in crate::tables) const NOBODY_WAITED: &str =
    "nobody waited for a lock in what was selected; `klock info` shows what was recorded";

/// The table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Blame {
    /// The key of a row.
    pub by: By,
    /// The number of traces.
    pub traces: usize,
    /// The rows, sorted by time and limited.
    pub rows: Vec<Row>,
    /// The number of rows before the limit.
    pub rows_total: usize,
    /// The sum of all rows.
    pub totals: Totals,
    /// The sum of the column that rows are sorted by, if the share in it is not a column.
    #[serde(skip)]
    pub sorted_sum: Option<i64>,
    /// Events and intervals that the numbers do not hold.
    pub trust: Trust,
}

/// Computes the table of one trace or several.
///
/// # Errors
///
/// A trace cannot be read, holds no events or lost too much, or a filter finds nothing in any of them.
pub fn blame(traces: &[Trace], options: &Options) -> Result<Blame, AnalyzeError> {
    let inputs = Input::open_all(traces, 0, &options.filter)?;
    of_inputs(&inputs, options, readers())
}

/// Computes the table with this number of readers, which changes nothing in it.
pub(crate) fn of_inputs(
    inputs: &[Input<'_>],
    options: &Options,
    readers: usize,
) -> Result<Blame, AnalyzeError> {
    gather::table(inputs, readers, gather(inputs, options)?)
}

/// Gathers the shares of all traces.
pub(crate) struct Gathered<'a> {
    inputs: &'a [Input<'a>],
    options: &'a Options,
    order: Vec<OrderBy>,
    naming: Naming<'a>,
    lines: Lines<BlameSums, { KEYS.len() }>,
    trusts: Vec<Trust>,
}

/// Gathers the rows of the table.
///
/// # Errors
///
/// The table has no such column to sort by.
pub(crate) fn gather<'a>(
    inputs: &'a [Input<'a>],
    options: &'a Options,
) -> Result<Gathered<'a>, AnalyzeError> {
    let order = order_by(&columns(options.by, 0, false), &options.sort, &["wait_caused_ns"])?;
    let (naming, lines) = (Naming::new(options.by, inputs), Lines::new(KEYS));
    Ok(Gathered { inputs, options, order, naming, lines, trusts: Vec::new() })
}

impl<'a> Gather for Gathered<'a> {
    type Sink = Shares<'a>;

    fn sink(&self, at: usize) -> Shares<'a> {
        Shares::new(self.options.by, &self.inputs[at].names, &self.inputs[at].selection)
    }

    fn add(&mut self, at: usize, sinks: Vec<Shares<'a>>, outcome: &ReadOutcome) -> Result<(), AnalyzeError> {
        let mut counter = TrustCounter::default();
        for Shares { sums, trust, .. } in sinks {
            sums.into_iter().for_each(|(key, sums)| self.lines.push(self.naming.line(at, key), &sums));
            counter.merge(trust);
        }
        self.trusts.push(self.inputs[at].trust(counter, outcome, self.options.allow_loss)?);
        Ok(())
    }
}

impl Finish for Gathered<'_> {
    type Table = Blame;

    fn finish(self) -> Result<Blame, AnalyzeError> {
        let Self { inputs, options, order, naming, lines, trusts } = self;
        let ranking = rank_rows(lines, &order, options.limit, |key| naming.name(key)).map_err(failed)?;
        let (totals, rows_total) = (ranking.totals, ranking.rows_total);
        let is_by_time = matches!(options.sort.as_str(), "" | "wait_caused" | "wait_caused_ns");
        let sorted_sum = ranking.sorted_sum().filter(|_| !is_by_time);
        let rows = with_stacks(ranking, inputs)?;
        let trust = Trust::merged(trusts);
        Ok(Blame { by: options.by, traces: inputs.len(), rows, rows_total, totals, sorted_sum, trust })
    }
}

impl Table for Blame {
    rows_and_trust!(Row);

    fn columns(&self) -> Vec<Column<Row>> {
        columns(self.by, self.totals.waited_ns, self.traces > 1)
    }

    /// Pairs have both stacks below them, innermost function first.
    fn below(&self, row: &Row) -> Vec<String> {
        let line = |what: &str, frames: &[String]| {
            (self.by == By::Pair && !frames.is_empty())
                .then(|| format!("  {what:<8}{}", frames.join(STACK_SEPARATOR)))
        };
        let stacks = [line("held", &row.holder_stack), line("waited", &row.waiter_stack)];
        stacks.into_iter().flatten().collect()
    }

    fn dispensable(&self) -> &'static [&'static str] {
        &["shares", "longest"]
    }

    fn sorted_sum(&self) -> Option<i64> {
        self.sorted_sum
    }

    fn about(&self) -> About {
        About::Blame
    }

    fn nothing(&self) -> Option<String> {
        (self.rows_total == 0).then(|| NOBODY_WAITED.to_owned())
    }

    fn write_totals(&self, style: TextStyle, out: &mut (dyn Write + Send)) -> io::Result<()> {
        self.totals.write(style, out)
    }
}
