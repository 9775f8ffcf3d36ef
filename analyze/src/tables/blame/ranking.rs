//! The rows of the table: lines of sums by stack enter; stacks through the same sites, of all traces, become one row.

use polars::{
    frame::DataFrame,
    prelude::{IntoLazy, PolarsResult, SortMultipleOptions, col},
};
use rustc_hash::{FxHashMap, FxHashSet};
use trace_format::Stack;

use super::{
    naming::{KEYS, Parties},
    row::{Charged, Row, Totals},
    sums::BlameSums,
};
use crate::{
    error::AnalyzeError,
    input::{Input, names},
    tables::{
        frame::{Lines, failed, lines, merged, sums_of},
        rank::{OrderBy, Ranked, rank},
        row_ids::NamedRow,
    },
};

/// The rows that are shown, with the ids of their stacks.
pub(super) struct Ranking {
    ranked: Ranked<Parties>,
    pub(super) rows_total: usize,
    pub(super) totals: Totals,
}

impl Ranking {
    /// Returns the sum of the column that rows are sorted by, over all rows.
    pub(super) fn sorted_sum(&self) -> Option<i64> {
        self.ranked.sum
    }
}

/// Merges the lines of a row, with the stacks of the longest time, and sorts the rows.
pub(super) fn rank_rows(
    sums: Lines<BlameSums, { KEYS.len() }>,
    order: &[OrderBy],
    limit: Option<usize>,
    name: impl Fn([i64; 3]) -> NamedRow<Parties>,
) -> PolarsResult<Ranking> {
    let [charged, holder, waiter, stacks @ ..] = KEYS;
    // Trace and stacks decide between equal times, so that the table is the same each time.
    let heaviest = ["wait_caused_ns", "trace", "holder_stack", "waiter_stack"];
    let descending = SortMultipleOptions::default().with_order_descending_multi([true, false, true, true]);
    let columns = [merged::<BlameSums>(), stacks.map(|column| col(column).first()).to_vec()].concat();
    let lines = sums.merge()?.sort(heaviest, descending);
    let rows = lines.group_by_stable([charged, holder, waiter].map(col)).agg(columns).collect()?;
    Ok(Ranking {
        rows_total: rows.height(),
        totals: totals(&rows)?,
        ranked: rank(rows, [charged, holder, waiter], order, limit, name)?,
    })
}

pub(super) fn totals(rows: &DataFrame) -> PolarsResult<Totals> {
    let sums = rows.clone().lazy().group_by([col("charged")]).agg([col("wait_caused_ns").sum()]).collect()?;
    let mut parts = [0; Charged::ALL.len()];
    for [charged, ns] in lines(&sums, ["charged", "wait_caused_ns"])? {
        parts[charged as usize] = ns;
    }
    let of = |charged: Charged| parts[charged as usize];
    Ok(Totals {
        waited_ns: parts.iter().sum(),
        hold_ns: of(Charged::Hold),
        handoff_ns: of(Charged::Handoff),
        gap_ns: of(Charged::Gap),
        owner_ns: of(Charged::Owner),
        unknown_ns: of(Charged::Waker).saturating_add(of(Charged::Unknown)),
    })
}

/// Looks up the stacks of the rows that are shown.
pub(super) fn with_stacks(ranking: Ranking, inputs: &[Input<'_>]) -> Result<Vec<Row>, AnalyzeError> {
    let Ranked { frame, names, .. } = ranking.ranked;
    let sums = sums_of::<BlameSums>(&frame).map_err(failed)?;
    let ids =
        lines(&frame, ["charged", "trace", "kernel", "holder_stack", "waiter_stack"]).map_err(failed)?;
    let wanted: FxHashSet<(i64, i64)> =
        ids.iter().flat_map(|[_, at, _, holder, waiter]| [(*at, *holder), (*at, *waiter)]).collect();
    let mut stacks: FxHashMap<(i64, i64), Stack> = FxHashMap::default();
    for (at, input) in (0..).zip(inputs) {
        if wanted.iter().any(|(of, stack)| *of == at && *stack >= 0) {
            let of_input = input.trace.stacks()?.into_iter().map(|stack| ((at, stack.id.0.into()), stack));
            stacks.extend(of_input.filter(|(key, _)| wanted.contains(key)));
        }
    }
    let frames = |at: i64, stack: i64, kernel: bool| -> Vec<String> {
        let stack = stacks.get(&(at, stack)).map_or(&[][..], |stack| &stack.frames);
        names::shown_frames(stack, kernel).map(names::function).collect()
    };
    let row = |((named, sums), [charged, at, kernel, of_holder, of_waiter]): ((_, BlameSums), [i64; 5])| {
        let NamedRow { key: (holder, waiter), name, trace } = named;
        Row {
            charged_to: Charged::ALL[charged as usize],
            wait_caused_ns: sums.wait_caused_ns,
            shares: sums.shares,
            longest_ns: sums.longest_ns,
            cut_by_loss: sums.cut_by_loss,
            name,
            trace,
            holder,
            waiter,
            holder_stack: frames(at, of_holder, kernel != 0),
            waiter_stack: frames(at, of_waiter, kernel != 0),
        }
    };
    Ok(names.into_iter().zip(sums).zip(ids).map(row).collect())
}
