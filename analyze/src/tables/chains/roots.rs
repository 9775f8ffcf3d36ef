//! `klock analyze chains`, and `--by depth`: waiting time by the end of its chain, or by the length of the chain.
//!
//! The ends of chains enter, added up by the holder's stack and the circumstances of its state. Stacks through the same sites are one row.
//! All rows add up to all waits.

use std::io::{self, Write};

use polars::prelude::{IntoLazy as _, PolarsResult, col};
use rustc_hash::FxHashMap;
use serde::Serialize;
use trace_format::{StackId, Trace};

use super::{
    options::{By, Options, Root},
    reading,
    totals::Totals,
};
use crate::{
    TextStyle,
    error::AnalyzeError,
    input::{
        Input,
        names::Names,
        trust::{About, Trust},
    },
    items::{Caused, Detail, Item, Needs, Payer, Sink, State},
    output::Column,
    tables::{
        Table,
        blame::{self, Charged, states},
        frame::{Lines, Sums as _, failed, lines, merged, sums, sums_of},
        key::{self, Key, RowKey},
        key_columns,
        rank::{OrderBy, Ranked, order_by, rank},
        row_ids::{NONE, NamedRow, RowIds},
        table::rows_and_trust,
        trace_column,
    },
};

/// The key of a row, and of a line.
const KEYS: [&str; 5] = ["root", "state", "holder", "on", "depth"];

/// The holder of a row and the circumstances of its state; and the root and the state, which order rows that are otherwise equal.
type RowParts = (Option<Key>, Option<String>, [i64; 2]);

/// The table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Roots {
    /// The key of a row: the end of chains, or their depth.
    pub by: By,
    /// The number of traces.
    pub traces: usize,
    /// The rows, sorted by time and limited.
    pub rows: Vec<RootRow>,
    /// The number of rows before the limit.
    pub rows_total: usize,
    /// The sum of all rows.
    pub totals: Totals,
    /// Events and intervals that the numbers do not hold.
    pub trust: Trust,
}

/// The waits whose chains end at holds of one site while their tasks were in one state.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RootRow {
    /// The end of the chains; `None` if a row is a depth.
    pub root: Option<Root>,
    /// The state of the holder's task; `None` if there is no holder, or if states were not recorded.
    pub state: Option<State>,
    /// The time of the waits, in ns.
    pub root_wait_ns: i64,
    /// The part of it in chains of one lock, in ns.
    pub direct_ns: i64,
    /// The greatest number of locks in a chain.
    pub deepest: i64,
    /// The most waits whose chains ended here at one time.
    pub max_waiters: i64,
    /// The system call and the functions in which the holder slept, or the idle lock that it waited for and where; safe to print.
    pub on: Option<String>,
    /// The name; safe to print.
    pub name: String,
    /// The trace, if there are several and the row belongs to one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// The holder: an acquisition site and the class of its locks. Without a hold, the class alone.
    pub holder: Option<Key>,
}

/// Computes the table of one trace or several.
///
/// # Errors
///
/// As [`blame`](crate::tables::blame::blame()).
pub fn roots(traces: &[Trace], options: &Options) -> Result<Roots, AnalyzeError> {
    let inputs = reading::open(traces, options)?;
    let mut gathered = Gathered::new(&inputs, options)?;
    let found = |input, has_states| Found::new(options.by, input, has_states);
    let (totals, trust) =
        reading::read(&inputs, options.allow_loss, found, |at, found| gathered.add(at, found))?;
    gathered.finish(totals, trust)
}

/// Gathers the ends of chains of all traces.
pub(crate) struct Gathered<'a> {
    options: &'a Options,
    order: Vec<OrderBy>,
    naming: Naming<'a>,
    all: Lines<RootSums, { KEYS.len() }>,
}

impl<'a> Gathered<'a> {
    /// Gathers the rows of the table. An error if it has no such column to sort by.
    pub(crate) fn new(inputs: &'a [Input<'a>], options: &'a Options) -> Result<Self, AnalyzeError> {
        let order = order_by(&columns(options.by, 0, false), &options.sort, &["root_wait_ns"])?;
        let naming = Naming { inputs, ids: RowIds::new(inputs.len()) };
        Ok(Self { options, order, naming, all: Lines::new(KEYS) })
    }

    /// Adds what was found in the input with this index, and returns its totals.
    pub(crate) fn add(&mut self, at: usize, found: Found<'_>) -> Totals {
        found.sums.into_iter().for_each(|(key, sums)| self.all.push(self.naming.line(at, key), &sums));
        found.totals
    }

    /// Returns the table.
    pub(crate) fn finish(self, totals: Totals, trust: Trust) -> Result<Roots, AnalyzeError> {
        let Self { options, order, naming, all } = self;
        let (rows, rows_total) =
            ranked(all, &order, options.limit, |key| naming.name(key)).map_err(failed)?;
        Ok(Roots { by: options.by, traces: naming.inputs.len(), rows, rows_total, totals, trust })
    }
}

sums! {
    /// The sums of a row.
    struct RootSums {
        root_wait_ns: Sum,
        direct_ns: Sum,
        deepest: Max,
        max_waiters: Max,
    }
}

/// The end of a chain and the circumstances of its state, by stack; or the depth of a chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct RootKey {
    root: Option<Root>,
    state: Option<State>,
    detail: Detail,
    lock_class: Option<u32>,
    kernel: bool,
    holder: Option<StackId>,
    depth: Option<u32>,
}

/// Adds up the ends of chains.
pub(crate) struct Found<'a> {
    by: By,
    names: &'a Names,
    /// Whether states were recorded.
    has_states: bool,
    sums: FxHashMap<RootKey, RootSums>,
    totals: Totals,
}

impl<'a> Found<'a> {
    pub(crate) fn new(by: By, input: &'a Input<'_>, has_states: bool) -> Self {
        let (sums, totals) = (FxHashMap::default(), Totals::default());
        Self { by, names: &input.names, has_states, sums, totals }
    }

    fn key(&self, caused: &Caused) -> RootKey {
        let Caused { lock, payer, depth, state, detail, .. } = *caused;
        if self.by == By::Depth {
            return RootKey { depth: Some(depth), ..RootKey::default() };
        }
        let state = state.filter(|state| self.has_states || *state != State::Unknown);
        let key = RootKey { root: Some(payer.into()), state, detail, ..RootKey::default() };
        if payer == Payer::Cycle {
            return key;
        }
        let holder = match payer {
            Payer::Hold(hold) => hold.stack,
            _ => None,
        };
        let (lock_class, kernel) = (self.names.class_number(lock), self.names.is_kernel(lock));
        RootKey { lock_class, kernel, holder, ..key }
    }
}

impl Sink for Found<'_> {
    fn needs(&self) -> Needs {
        Needs { chains: true, ..Needs::default() }
    }

    fn push(&mut self, item: Item<'_>) {
        match item {
            Item::Caused(caused) => self.caused(caused),
            Item::Nested(ns) => self.totals.add_nested(ns),
            _ => {}
        }
    }
}

impl Found<'_> {
    fn caused(&mut self, caused: &Caused) {
        self.totals.add(caused);
        let Caused { depth, waiters: max_waiters, ns: root_wait_ns, .. } = *caused;
        let direct_ns = if depth == 1 { root_wait_ns } else { 0 };
        let sums = RootSums { root_wait_ns, direct_ns, deepest: depth.into(), max_waiters };
        self.sums.entry(self.key(caused)).or_default().merge(&sums);
    }
}

/// Numbers and names the ends of chains of all traces.
struct Naming<'a> {
    inputs: &'a [Input<'a>],
    ids: RowIds,
}

impl Naming<'_> {
    /// Returns the columns [`KEYS`] of a key in the trace with the index `at`.
    fn line(&mut self, at: usize, key: RootKey) -> [i64; KEYS.len()] {
        let Self { inputs, ids } = self;
        let names = &inputs[at].names;
        let holder = match key.root {
            None | Some(Root::Cycle) => None,
            Some(Root::Hold) => {
                Some(RowKey::Site(names.points_number(key.kernel, key.holder), key.lock_class))
            }
            Some(_) => Some(RowKey::Class(key.lock_class)),
        };
        let [holder, on] = [holder, states::on_key(key.detail, names)].map(|key| ids.id_of(at, key, inputs));
        let root = key.root.map_or(NONE, |root| root as i64);
        let state = key.state.map_or(NONE, |state| state as i64);
        [root, state, holder, on, key.depth.map_or(NONE, i64::from)]
    }

    fn name(&self, [root, state, holder, on, depth]: [i64; KEYS.len()]) -> NamedRow<RowParts> {
        let on = self.ids.name_of(on, self.inputs).map(states::on_name);
        let order = [root, state];
        let root = usize::try_from(root).ok().and_then(|root| Root::ALL.get(root));
        let (key, name, trace) = match self.ids.name_of(holder, self.inputs) {
            Some(NamedRow { key, name, trace }) => (Some(key), name, trace),
            None => (None, String::new(), None),
        };
        let charged = |charged| blame::label(charged, blame::By::Site, Some(&name), None);
        let name = match root {
            None if depth == 1 => "1 lock".to_owned(),
            None => format!("{depth} locks"),
            Some(Root::Hold) => charged(Charged::Hold),
            Some(Root::Owner) => charged(Charged::Owner),
            Some(Root::Handoff) => charged(Charged::Handoff),
            Some(Root::Gap) => charged(Charged::Gap),
            Some(Root::Oneself) => format!("(a task that waits for a lock that it holds) ({name})"),
            Some(Root::Cycle) => "(tasks that wait for each other)".to_owned(),
            Some(Root::Unknown) => charged(Charged::Unknown),
        };
        NamedRow { key: (key, on, order), name, trace }
    }
}

/// Returns the rows that are shown, and the number of all rows.
fn ranked(
    all: Lines<RootSums, { KEYS.len() }>,
    order: &[OrderBy],
    limit: Option<usize>,
    name: impl Fn([i64; KEYS.len()]) -> NamedRow<RowParts>,
) -> PolarsResult<(Vec<RootRow>, usize)> {
    let rows = all.frame()?.lazy().group_by(KEYS.map(col)).agg(merged::<RootSums>()).collect()?;
    let rows_total = rows.height();
    let Ranked { frame, names, .. } = rank(rows, KEYS, order, limit, name)?;
    let keys = lines(&frame, ["root", "state"])?;
    let row = |((NamedRow { key: (holder, on, _), name, trace }, sums), [root, state]): (_, [i64; 2])| {
        let RootSums { root_wait_ns, direct_ns, deepest, max_waiters } = sums;
        let root = usize::try_from(root).ok().map(|root| Root::ALL[root]);
        let state = usize::try_from(state).ok().map(|state| State::ALL[state]);
        RootRow { root, state, root_wait_ns, direct_ns, deepest, max_waiters, on, name, trace, holder }
    };
    let rows = names.into_iter().zip(sums_of::<RootSums>(&frame)?).zip(keys).map(row);
    Ok((rows.collect(), rows_total))
}

/// Declares the columns. Parts are of `waited_ns`; rows of several traces have their trace.
pub fn columns(by: By, waited_ns: i64, several: bool) -> Vec<Column<RootRow>> {
    type Of = Column<RootRow>;
    let part = move |row: &RootRow| Totals::part(waited_ns, row.root_wait_ns);
    let is_root = by != By::Depth;
    let mut columns = Vec::new();
    if is_root {
        let doc = "hold, owner, handoff, gap, self, cycle or unknown.";
        columns.push(Of::text("root", |row| row.root.map(Root::as_str).into(), doc).identity());
    }
    columns.extend([
        Of::duration("root_wait", |row| row.root_wait_ns, "Time of waits whose chain ends here.").sum(),
        Of::ppm("part", part, "root_wait divided by all waits.").heading("percent").not_sortable(),
    ]);
    if is_root {
        columns.extend([
            Of::duration("direct", |row| row.direct_ns, "The part of it for this lock itself.").sum(),
            Of::duration(
                "through_others",
                |row| row.root_wait_ns.saturating_sub(row.direct_ns),
                "The part of it for other locks, whose holders waited for this one.",
            )
            .sum(),
            Of::count("deepest", |row| row.deepest, "The most locks in a chain."),
        ]);
    }
    let waiters = "The most waits that had this end at one time.";
    columns.push(Of::count("max_waiters", |row| row.max_waiters, waiters));
    if is_root {
        columns.extend([
            Of::text(
                "state",
                |row| row.state.map(State::as_str).into(),
                "The state of the holder's task: running, preempted, asleep, uninterruptible, stopped, ready, idle or unknown.",
            ),
            Of::text(
                "on",
                |row| row.on.as_deref().into(),
                "The functions in which it slept, or the idle lock that it waited for and where.",
            )
            .programs(),
        ]);
    }
    let heading = if is_root { "held at (lock)" } else { "chain of" };
    columns.push(Of::name(heading, |row| row.name.as_str().into()));
    if is_root {
        columns.extend(key_columns(key::By::Site, "holder_", |row: &RootRow| row.holder.as_ref()));
    } else {
        let doc = "The number of locks in the chain.";
        columns.push(Of::count("depth", |row| row.deepest, doc).identity());
    }
    columns.extend(trace_column(several, |row: &RootRow| row.trace.as_deref()));
    columns
}

impl Table for Roots {
    rows_and_trust!(RootRow);

    fn columns(&self) -> Vec<Column<RootRow>> {
        columns(self.by, self.totals.waited_ns, self.traces > 1)
    }

    fn dispensable(&self) -> &'static [&'static str] {
        &["max_waiters", "deepest"]
    }

    /// A terminal has no room for two names beside each other.
    fn below(&self, row: &RootRow) -> Vec<String> {
        row.on.iter().map(|on| format!("  on {on}")).collect()
    }

    fn about(&self) -> About {
        About::Blame
    }

    fn nothing(&self) -> Option<String> {
        (self.rows_total == 0).then(|| blame::NOBODY_WAITED.to_owned())
    }

    fn write_totals(&self, style: TextStyle, out: &mut (dyn Write + Send)) -> io::Result<()> {
        self.totals.write(style, out)
    }
}
