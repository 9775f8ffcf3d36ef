//! `klock blame`: which site or task held the lock during each nanosecond of each wait. With `--chains`:
//! which hold is at the end of the chain of waits.
//!
//! For example, B waits 100 ns for a lock, and A holds the lock during 90 of them. A's hold is charged 90 ns,
//! the hand-off 10 ns. The engine splits each wait into such shares, one per hold (`shares`). States of
//! holders and chains need one pass over all locks (`causes`), because the holder of a lock may wait for
//! another lock, whose holder waits for a third one. polars adds the shares up by holder, waiter and their
//! stacks; stacks through the same sites are one row. The rows add up to all waits; the rows of chains add up
//! to the waits that end at holds. Memory grows with the number of stacks. `docs/internals/causes.md` has the
//! definitions.

use std::io::{self, Write};

use polars::{
    frame::DataFrame,
    prelude::{PolarsResult, SortMultipleOptions, col},
};
use serde::Serialize;
use trace_format::Trace;

use crate::{
    Table, TableOptions,
    frame::{Lines, Sums, failed, merged},
    gather::{self, Gather},
    key::{Key, RowKey, Single},
    rank::{self, OrderBy, Rows, order_by},
    row_ids::{NONE, RowIds},
    table::{noise_of, rows_and_trust},
};
use intervals::{
    causes::{self as passes, Followed, PassStats},
    input::trust::{About, Trust, TrustCounter},
    input::{Input, ReadOutcome, readers},
};
use output::{
    Column,
    error::AnalyzeError,
    layout::{STACK_SEPARATOR, TextStyle},
    units,
};

mod causes;
#[cfg(test)]
mod chains_tests;
mod columns;
mod naming;
mod row;
mod shares;
#[cfg(test)]
mod states_tests;
#[cfg(test)]
mod tests;
mod totals;
mod wakers;

pub use causes::{CauseSums, Causes};
pub use columns::columns;
pub use intervals::items::State;
pub use naming::{label, parties};
pub use row::{By, Charged, Parties, Row};
pub use shares::{BlameKey, BlameSums, Shares};
pub use totals::write_sum;
pub use totals::{ChainTotals, Totals};
pub(crate) use wakers::Passes;

use causes::CauseKey;
use naming::{add_stacks, named, on_key};
use row::{KEYS, REST, ROW};

/// The sentence that stands for a table without waits.
const NOBODY_WAITED: &str =
    "nobody waited for a lock in what was selected; `klock info` shows what was recorded";

/// The number of functions of a stack at which a task left the CPU.
const FRAMES: usize = 2;

/// Options of the table.
pub type Options = TableOptions<By>;

/// The table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Blame {
    /// The key of a row.
    pub by: By,
    /// Whether waits are charged to the ends of their chains.
    pub chains: bool,
    /// The number of traces.
    pub traces: usize,
    /// The rows, sorted by time and limited.
    pub rows: Vec<Row>,
    /// The number of rows before the limit.
    pub rows_total: usize,
    /// The sum of all waits.
    pub totals: Totals,
    /// The sum of the column that rows are sorted by, if the share in it is not a column.
    #[serde(skip)]
    sorted_sum: Option<i64>,
    /// The time in which holders waited for locks themselves, where it is in rows of its own.
    #[serde(skip)]
    lock_ns: i64,
    /// Events and intervals that the numbers do not hold.
    pub trust: Trust,
}

/// Computes the table of one trace or several.
///
/// # Errors
///
/// A trace cannot be read, holds no events or lost too much, or a filter finds nothing in any of them.
pub fn blame(traces: &[Trace], options: &Options) -> Result<Blame, AnalyzeError> {
    if options.by == By::State {
        return of_causes::<false>(traces, options);
    }
    of_inputs(&Input::open_all(traces, 0, &options.filter)?, options, readers())
}

/// Computes the table of chains of one trace or several: each nanosecond of each wait is charged to the end
/// of its chain.
///
/// # Errors
///
/// As [`blame`].
pub fn chains(traces: &[Trace], options: &Options) -> Result<Blame, AnalyzeError> {
    of_causes::<true>(traces, options)
}

/// Computes the table of shares with this number of readers, which changes nothing in it.
pub fn of_inputs(inputs: &[Input<'_>], options: &Options, readers: usize) -> Result<Blame, AnalyzeError> {
    let mut gathered = gather(inputs, options)?;
    gather::read(inputs, readers, &mut gathered)?;
    gathered.finish()
}

/// Opens the traces with the functions that tables of causes show.
pub fn open<'a>(traces: &'a [Trace], options: &Options) -> Result<Vec<Input<'a>>, AnalyzeError> {
    Input::open_all(traces, FRAMES, &options.filter)
}

fn of_causes<const CHAINS: bool>(traces: &[Trace], options: &Options) -> Result<Blame, AnalyzeError> {
    let inputs = open(traces, options)?;
    let mut gathered = Gathered::new(&inputs, options, CHAINS)?;
    for (at, input) in inputs.iter().enumerate() {
        let has_states = input.has_holder_states()?;
        let receiver = || Causes::<CHAINS>::new(options.by, input, has_states);
        let Followed { receiver, stats, trust, .. } = passes::of_waits(input, options.allow_loss, receiver)?;
        gathered.add_causes(at, receiver, stats, trust);
    }
    gathered.finish()
}

/// Gathers the lines of all traces.
pub struct Gathered<'a, S> {
    inputs: &'a [Input<'a>],
    options: &'a Options,
    chains: bool,
    order: Vec<OrderBy>,
    ids: RowIds,
    lines: Lines<S, { KEYS.len() }>,
    totals: Totals,
    lock_ns: i64,
    trusts: Vec<Trust>,
}

/// Gathers the shares of waits.
///
/// # Errors
///
/// The table has no such column to sort by.
pub fn gather<'a>(
    inputs: &'a [Input<'a>],
    options: &'a Options,
) -> Result<Gathered<'a, BlameSums>, AnalyzeError> {
    Gathered::new(inputs, options, false)
}

impl<'a, S: Sums> Gathered<'a, S> {
    /// Gathers shares or causes; with `chains`, the causes of chains of waits. An error if the table has no such
    /// column to sort by.
    pub fn new(inputs: &'a [Input<'a>], options: &'a Options, chains: bool) -> Result<Self, AnalyzeError> {
        let default: &[&str] = match (chains, options.by.holder()) {
            (false, _) => &["wait_caused_ns"],
            (true, None) => &["root_wait_ns"],
            (true, Some(_)) => &["root_wait_ns", "wait_caused_ns"],
        };
        let order = order_by(&columns(options.by, chains, 0, false), &options.sort, default)?;
        let (ids, lines) = (RowIds::new(inputs.len()), Lines::new(KEYS));
        let (totals, trusts) = (Totals::default(), Vec::new());
        Ok(Self { inputs, options, chains, order, ids, lines, totals, lock_ns: 0, trusts })
    }

    /// Returns the row id of a key in the trace with the index `at`.
    fn id(&mut self, at: usize, key: Option<RowKey>) -> i64 {
        self.ids.id_of(at, key, self.inputs)
    }

    pub fn finish(self) -> Result<Blame, AnalyzeError> {
        let Self { inputs, options, chains, .. } = self;
        let (by, traces) = (options.by, inputs.len());
        let name = |key| named(by, &self.ids, inputs, key);
        let lines = heaviest(self.lines).map_err(failed)?;
        let declared = columns(by, chains, 0, false);
        let Rows { mut rows, total: rows_total, sum } =
            rank::rows(rank::declared(&declared), lines, KEYS, &self.order, options.limit, name)?;
        add_stacks(&mut rows, inputs)?;
        let has_share = chains
            || by == By::State
            || matches!(options.sort.as_str(), "" | "wait_caused" | "wait_caused_ns");
        let (totals, lock_ns) = (self.totals, self.lock_ns);
        let (sorted_sum, trust) = (sum.filter(|_| !has_share), Trust::merged(self.trusts));
        Ok(Blame { by, chains, traces, rows, rows_total, totals, sorted_sum, lock_ns, trust })
    }
}

/// Merges the lines of a row, with the stacks of the longest time and the lock to which most is passed on.
fn heaviest<S: Sums>(lines: Lines<S, { KEYS.len() }>) -> PolarsResult<DataFrame> {
    // Trace, stacks and lock decide between equal times, so that the table is the same each time.
    let mut order = vec![("wait_caused_ns", true), ("trace", false), ("holder_stack", true)];
    order.extend([("waiter_stack", true), ("to", false)]);
    if S::FIELDS.iter().any(|(field, _)| *field == "passed_ns") {
        order.insert(0, ("passed_ns", true));
    }
    let (columns, descending): (Vec<&str>, Vec<bool>) = order.into_iter().unzip();
    let descending = SortMultipleOptions::default().with_order_descending_multi(descending);
    let columns_of_row = [merged::<S>(), REST.map(|column| col(column).first()).to_vec()].concat();
    let through = (col("root_wait_ns") - col("direct_ns")).alias("through_others_ns");
    let rows = lines.merge()?.sort(columns, descending).group_by_stable(ROW.map(col)).agg(columns_of_row);
    let has_roots = S::FIELDS.iter().any(|(field, _)| *field == "root_wait_ns");
    if has_roots { rows.with_columns([through]).collect() } else { rows.collect() }
}

impl<'a> Gather for Gathered<'a, BlameSums> {
    type Sink = Shares<'a>;

    fn sink(&self, at: usize) -> Shares<'a> {
        Shares::new(self.options.by, &self.inputs[at])
    }

    fn add(&mut self, at: usize, sinks: Vec<Shares<'a>>, outcome: &ReadOutcome) -> Result<(), AnalyzeError> {
        let mut counter = TrustCounter::default();
        for (sums, trust) in sinks.into_iter().map(Shares::finish) {
            for (key, sums) in sums {
                self.totals.add(key.charged, sums.wait_caused_ns);
                let parties = parties(self.options.by, key, &self.inputs[at].names);
                let [holder, waiter] = parties.map(|party| self.id(at, party.map(RowKey::from)));
                let [held, waited] = [key.holder, key.waiter].map(|id| id.map_or(NONE, |id| id.0.into()));
                let kernel = key.kernel.into();
                let charged = key.charged as i64;
                let row = [charged, NONE, holder, waiter, NONE, NONE, at as i64, kernel, held, waited, NONE];
                self.lines.push(row, &sums);
            }
            counter.merge(trust);
        }
        self.trusts.push(self.inputs[at].trust(counter, outcome, self.options.allow_loss)?);
        Ok(())
    }
}

impl Gathered<'_, CauseSums> {
    /// Adds the causes of the waits of the input with the index `at`.
    pub fn add_causes<const CHAINS: bool>(
        &mut self,
        at: usize,
        causes: Causes<'_, CHAINS>,
        stats: PassStats,
        trust: Trust,
    ) {
        self.totals.merge(&causes.totals);
        self.totals.steps_cut += stats.steps_cut;
        self.trusts.push(trust);
        let names = &self.inputs[at].names;
        for (key, sums) in causes.sums {
            if key.state == Some(State::Lock) {
                self.lock_ns = self.lock_ns.saturating_add(sums.wait_caused_ns);
            }
            let CauseKey { charged, state, detail, lock_class, kernel, stack, depth, holder, to } = key;
            let holder = match charged {
                Some(Charged::Hold) => {
                    Some(Single::Site(names.points_number(kernel, stack), lock_class).into())
                }
                None | Some(Charged::Cycle) => holder,
                Some(_) => Some(Single::Class(lock_class).into()),
            };
            let [holder, on] = [holder, on_key(detail, names).map(RowKey::from)].map(|key| self.id(at, key));
            let charged = charged.map_or(NONE, |charged| charged as i64);
            let state = state.map_or(NONE, |state| state as i64);
            let (depth, to) = (depth.map_or(NONE, i64::from), to.map_or(NONE, |lock| lock.0.into()));
            let row = [charged, state, holder, NONE, on, depth, at as i64, NONE, NONE, NONE, to];
            self.lines.push(row, &sums);
        }
    }
}

impl Table for Blame {
    rows_and_trust!(Row);

    fn columns(&self) -> Vec<Column<Row>> {
        columns(self.by, self.chains, self.totals.waited_ns, self.traces > 1)
    }

    /// Pairs have both stacks below them, innermost function first. A terminal has no room for two names
    /// beside each other.
    fn below(&self, row: &Row) -> Vec<String> {
        let Parties { holder_stack, waiter_stack, on, passed_to, .. } = &row.key;
        let stack = |what: &str, frames: &[String]| {
            (self.by == By::Pair && !frames.is_empty())
                .then(|| format!("  {what:<8}{}", frames.join(STACK_SEPARATOR)))
        };
        let stacks = [stack("held", holder_stack), stack("waited", waiter_stack)];
        let on = on.iter().map(|on| format!("  on {on}"));
        let passed = passed_to.iter().map(|to| format!("  passed on to {to}"));
        stacks.into_iter().flatten().chain(on).chain(passed).collect()
    }

    fn dispensable(&self) -> &'static [&'static str] {
        &["shares", "longest", "max_waiters", "deepest", "direct", "through_others"]
    }

    fn noise(&self) -> usize {
        let time = if self.chains { "root_wait_ns" } else { "wait_caused_ns" };
        noise_of(self, &self.rows, |row| (row.key.holder.as_ref().and_then(Key::kind), row[time]))
    }

    fn sorted_sum(&self) -> Option<i64> {
        self.sorted_sum
    }

    fn about(&self) -> About {
        About::Blame
    }

    fn nothing(&self) -> Option<String> {
        let nothing = match self.totals.waited_ns {
            0 => NOBODY_WAITED,
            _ => "no chain goes through a recorded hold; `klock blame --chains` shows where the chains end",
        };
        (self.rows_total == 0).then(|| nothing.to_owned())
    }

    fn write_totals(&self, style: TextStyle, out: &mut (dyn Write + Send)) -> io::Result<()> {
        self.totals.write(style, out)?;
        if style.is_terminal && !self.chains && self.lock_ns > self.totals.waited_ns / 10 {
            let lock = units::duration(self.lock_ns);
            let hint = format!(
                "during {lock} the holders waited for locks themselves: klock blame --chains shows who is at the end"
            );
            style.wrapped(&hint, out)?;
        }
        Ok(())
    }
}
