//! `klock analyze blame --by state`: waiting time by the site of the holder and the state of its task meanwhile.
//!
//! The causes of the waits enter, added up by the holder's stack and the circumstances of its state. Stacks through the same sites are
//! one row. All rows add up to all waits.

use std::io::{self, Write};

use polars::prelude::{IntoLazy as _, PolarsResult, col};
use rustc_hash::FxHashMap;
use serde::Serialize;
use trace_format::{LockId, StackId, Trace};

use super::{By, Charged, NOBODY_WAITED, Options, Totals, naming::label, ranking::totals};
use crate::{
    TextStyle,
    causes::{self, Followed},
    error::AnalyzeError,
    input::{
        Input,
        names::{Names, UNKNOWN, printable},
        trust::{About, Trust},
    },
    items::{Detail, Item, Payer, Sink},
    output::{Column, layout::STACK_SEPARATOR, units},
    tables::{
        Table,
        frame::{Lines, failed, lines, merged, sums, sums_of},
        key::{self, Key, RowKey},
        key_columns,
        rank::{OrderBy, Ranked, order_by, rank},
        row_ids::{NONE, NamedRow, RowIds},
        table::rows_and_trust,
        trace_column,
    },
};

#[cfg(test)]
mod tests;

pub use crate::items::State;

/// The number of functions of a stack at which a task left the CPU.
pub(in crate::tables) const FRAMES: usize = 2;

/// The key of a row, and of a line.
const KEYS: [&str; 4] = ["charged", "state", "holder", "on"];

/// The holder of a row and the circumstances of its state; and the state, which orders rows that are otherwise equal.
type RowParts = (Key, Option<String>, i64);

/// The table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct States {
    /// The number of traces.
    pub traces: usize,
    /// The rows, sorted by time and limited.
    pub rows: Vec<StateRow>,
    /// The number of rows before the limit.
    pub rows_total: usize,
    /// The sum of all rows.
    pub totals: Totals,
    /// Changes of a number of waiters whose time counts as unknown, because a holder had more than a million of them between two of its events.
    pub steps_cut: u64,
    /// The sum of the rows with the state `lock`.
    #[serde(skip)]
    lock_ns: i64,
    /// Events and intervals that the numbers do not hold.
    pub trust: Trust,
}

/// The waits that holds of one site caused while their tasks were in one state.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StateRow {
    /// The party that the time is charged to.
    pub charged_to: Charged,
    /// The state of its task; `None` if no task is charged.
    pub state: Option<State>,
    /// The time, in ns.
    pub wait_caused_ns: i64,
    /// The lock that the task waited for and where, or the system call and the functions in which it slept; safe to print.
    pub on: Option<String>,
    /// The name; safe to print.
    pub name: String,
    /// The trace, if there are several and the row belongs to one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// The holder: an acquisition site and the class of its locks. In a gap, the class alone.
    pub holder: Option<Key>,
}

/// Computes the table of one trace or several.
///
/// # Errors
///
/// As [`blame`](super::blame()).
pub fn states(traces: &[Trace], options: &Options) -> Result<States, AnalyzeError> {
    let inputs = Input::open_all(traces, FRAMES, &options.filter)?;
    let order = order_by(&columns(0, false), &options.sort, &["wait_caused_ns"])?;
    let mut naming = Naming { inputs: &inputs, ids: RowIds::new(inputs.len()) };
    let (mut all, mut trusts, mut steps_cut) = (Lines::new(KEYS), Vec::new(), 0);
    let mut lock_ns = 0_i64;
    for (at, input) in inputs.iter().enumerate() {
        let receiver = || Found { names: &input.names, sums: FxHashMap::default() };
        let Followed { receiver: found, stats, trust, .. } =
            causes::of_waits(input, options.allow_loss, receiver)?;
        trusts.push(trust);
        steps_cut += stats.steps_cut;
        for (key, wait_caused_ns) in found.sums {
            if key.state == Some(State::Lock) {
                lock_ns = lock_ns.saturating_add(wait_caused_ns);
            }
            all.push(naming.line(at, key), &StateSums { wait_caused_ns });
        }
    }
    let name = |key| naming.name(key);
    let (rows, rows_total, totals) = ranked(all, &order, options.limit, name).map_err(failed)?;
    let trust = Trust::merged(trusts);
    Ok(States { traces: inputs.len(), rows, rows_total, totals, steps_cut, lock_ns, trust })
}

sums! {
    /// The sum of a row.
    struct StateSums {
        wait_caused_ns: Sum,
    }
}

/// The holder and the circumstances of its state, by stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct StateKey {
    charged: Charged,
    state: Option<State>,
    detail: Detail,
    lock_class: Option<u32>,
    kernel: bool,
    holder: Option<StackId>,
}

/// Adds up the causes of waits.
struct Found<'a> {
    names: &'a Names,
    sums: FxHashMap<StateKey, i64>,
}

impl Sink for Found<'_> {
    fn push(&mut self, item: Item<'_>) {
        let Item::Caused(caused) = item else { return };
        let (charged, holder) = match caused.payer {
            Payer::Hold(hold) => (Charged::Hold, hold.stack),
            Payer::Owner(_) => (Charged::Owner, None),
            Payer::Handoff => (Charged::Handoff, None),
            Payer::Gap | Payer::Oneself => (Charged::Gap, None),
            Payer::Cycle | Payer::Unknown => (Charged::Unknown, None),
        };
        let key = StateKey {
            charged,
            state: caused.state,
            detail: caused.detail,
            lock_class: self.names.class_number(caused.lock),
            kernel: self.names.is_kernel(caused.lock),
            holder,
        };
        let sum = self.sums.entry(key).or_default();
        *sum = sum.saturating_add(caused.ns);
    }
}

/// Returns the key of the circumstances of a state.
pub(in crate::tables) fn on_key(detail: Detail, names: &Names) -> Option<RowKey> {
    // A task that left the CPU did so in the function that it called, whatever the kernel did for it.
    let user = LockId(NONE as i32);
    match detail {
        Detail::None => None,
        Detail::Lock(lock, stack) => {
            Some(RowKey::Site(names.point_number(lock, stack), names.class_number(lock)))
        }
        Detail::Asleep(None, stack) => Some(RowKey::Stack(names.chain_number(user, stack), None)),
        Detail::Asleep(Some(call), stack) => Some(RowKey::Syscall(call, names.chain_number(user, stack))),
    }
}

/// Returns the name of the circumstances of a state; safe to print.
pub(in crate::tables) fn on_name(row: NamedRow) -> String {
    match row {
        NamedRow { key: Key::Stack { stack, .. }, .. } if stack.is_empty() => UNKNOWN.to_owned(),
        NamedRow { key: Key::Stack { stack, .. }, .. } => {
            printable(&stack.join(STACK_SEPARATOR)).into_owned()
        }
        NamedRow { name, .. } => name,
    }
}

/// Numbers and names the holders and the circumstances of all traces.
struct Naming<'a> {
    inputs: &'a [Input<'a>],
    ids: RowIds,
}

impl Naming<'_> {
    /// Returns the columns [`KEYS`] of a key in the trace with the index `at`.
    fn line(&mut self, at: usize, key: StateKey) -> [i64; KEYS.len()] {
        let Self { inputs, ids } = self;
        let names = &inputs[at].names;
        let holder = match key.charged {
            Charged::Hold => RowKey::Site(names.points_number(key.kernel, key.holder), key.lock_class),
            _ => RowKey::Class(key.lock_class),
        };
        let [holder, on] = [Some(holder), on_key(key.detail, names)].map(|key| ids.id_of(at, key, inputs));
        [key.charged as i64, key.state.map_or(NONE, |state| state as i64), holder, on]
    }

    fn name(&self, [charged, state, holder, on]: [i64; KEYS.len()]) -> NamedRow<RowParts> {
        let NamedRow { key, name, trace } = self.ids.name(holder, self.inputs);
        let name = label(Charged::ALL[charged as usize], By::Site, Some(&name), None);
        let on = self.ids.name_of(on, self.inputs).map(on_name);
        NamedRow { key: (key, on, state), name, trace }
    }
}

/// Returns the rows that are shown, the number of all rows, and the totals.
fn ranked(
    all: Lines<StateSums, { KEYS.len() }>,
    order: &[OrderBy],
    limit: Option<usize>,
    name: impl Fn([i64; KEYS.len()]) -> NamedRow<RowParts>,
) -> PolarsResult<(Vec<StateRow>, usize, Totals)> {
    let rows = all.frame()?.lazy().group_by(KEYS.map(col)).agg(merged::<StateSums>()).collect()?;
    let (rows_total, totals) = (rows.height(), totals(&rows)?);
    let Ranked { frame, names, .. } = rank(rows, KEYS, order, limit, name)?;
    let keys = lines(&frame, ["charged", "state"])?;
    let row = |((NamedRow { key: (holder, on, _), name, trace }, sums), [charged, state]): (_, [i64; 2])| {
        let StateSums { wait_caused_ns } = sums;
        let state = usize::try_from(state).ok().map(|state| State::ALL[state]);
        let charged_to = Charged::ALL[charged as usize];
        StateRow { charged_to, state, wait_caused_ns, on, name, trace, holder: Some(holder) }
    };
    let rows = names.into_iter().zip(sums_of::<StateSums>(&frame)?).zip(keys).map(row);
    Ok((rows.collect(), rows_total, totals))
}

/// Declares the columns. Parts are of `waited_ns`; rows of several traces have their trace.
pub fn columns(waited_ns: i64, several: bool) -> Vec<Column<StateRow>> {
    type Of = Column<StateRow>;
    let part = move |row: &StateRow| Totals::part(waited_ns, row.wait_caused_ns);
    let mut columns = vec![
        Of::text("charged_to", |row| row.charged_to.as_str().into(), "hold, handoff, gap, owner or unknown.")
            .identity(),
        Of::duration("wait_caused", |row| row.wait_caused_ns, "Time that others waited.").sum(),
        Of::ppm("part", part, "wait_caused divided by all waits.").heading("percent").not_sortable(),
        Of::text(
            "state",
            |row| row.state.map(State::as_str).into(),
            "The state of the holder's task: running, preempted, asleep, uninterruptible, stopped, ready, lock, idle or unknown.",
        ),
        Of::text(
            "on",
            |row| row.on.as_deref().into(),
            "The lock that it waited for and where, or the system call and the functions in which it slept.",
        )
        .programs(),
        Of::name("held at (lock)", |row| row.name.as_str().into()),
    ];
    columns.extend(key_columns(key::By::Site, "holder_", |row: &StateRow| row.holder.as_ref()));
    columns.extend(trace_column(several, |row: &StateRow| row.trace.as_deref()));
    columns
}

impl Table for States {
    rows_and_trust!(StateRow);

    fn columns(&self) -> Vec<Column<StateRow>> {
        columns(self.totals.waited_ns, self.traces > 1)
    }

    /// A terminal has no room for two names beside each other.
    fn below(&self, row: &StateRow) -> Vec<String> {
        row.on.iter().map(|on| format!("  on {on}")).collect()
    }

    fn about(&self) -> About {
        About::Blame
    }

    fn nothing(&self) -> Option<String> {
        (self.rows_total == 0).then(|| NOBODY_WAITED.to_owned())
    }

    fn write_totals(&self, style: TextStyle, out: &mut (dyn Write + Send)) -> io::Result<()> {
        self.totals.write(style, out)?;
        if self.steps_cut > 0 {
            let steps = units::exact(self.steps_cut);
            writeln!(
                out,
                "{steps} changes of a number of waiters were too many to be kept: their state is unknown"
            )?;
        }
        if style.is_terminal && self.lock_ns > self.totals.waited_ns / 10 {
            let lock = units::duration(self.lock_ns);
            let hint = format!(
                "during {lock} the holders waited for locks themselves: klock chains shows who is at the end"
            );
            style.wrapped(&hint, out)?;
        }
        Ok(())
    }
}
