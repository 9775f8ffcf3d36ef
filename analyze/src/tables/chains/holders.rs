//! `klock analyze chains --by lock`, `site` and `task`: the waits that the holds of a row cause themselves, pass on and receive.
//!
//! The ends of chains and the time that is passed on enter, added up by holder. For each row, `wait_caused` is `kept` and `passed`, and
//! `root_wait` is `kept` and `received`.

use std::io::{self, Write};

use polars::prelude::{PolarsResult, SortMultipleOptions, col};
use rustc_hash::FxHashMap;
use serde::Serialize;
use trace_format::{LockId, Trace};

use super::{
    options::{By, Options},
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
    items::{Caused, HoldId, Item, Needs, Passed, Payer, Sink},
    output::Column,
    tables::{
        Table,
        blame::NOBODY_WAITED,
        frame::{Lines, Sums as _, failed, merged, sums, sums_of},
        key::{Key, RowKey},
        key_columns,
        rank::{OrderBy, Ranked, order_by, rank},
        row_ids::{NamedRow, RowIds},
        table::rows_and_trust,
        trace_column,
    },
};

/// The key of a line: the holder, and the lock that its task waits for. A row has the key of the first.
const KEYS: [&str; 2] = ["holder", "to"];

/// The table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Holders {
    /// The key of a row.
    pub by: By,
    /// The number of traces.
    pub traces: usize,
    /// The rows, sorted by time and limited.
    pub rows: Vec<HolderRow>,
    /// The number of rows before the limit.
    pub rows_total: usize,
    /// All waits. The holds have `hold_ns` of them.
    pub totals: Totals,
    /// Events and intervals that the numbers do not hold.
    pub trust: Trust,
}

/// The waits that holds of one row cause.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HolderRow {
    /// The time of waits whose chain ends at one of the holds, in ns: `kept_ns` and `received_ns`.
    pub root_wait_ns: i64,
    /// The time of waits for the holds, in ns: `kept_ns` and `passed_ns`.
    pub wait_caused_ns: i64,
    /// The part of `wait_caused_ns` during which the holder waited for no lock.
    pub kept_ns: i64,
    /// The part of `wait_caused_ns` during which the holder waited for another lock.
    pub passed_ns: i64,
    /// The time of waits for other locks whose chain ends at one of the holds.
    pub received_ns: i64,
    /// The lock that most of `passed_ns` is passed on to; safe to print.
    pub passed_to: Option<String>,
    /// The name; safe to print.
    pub name: String,
    /// The trace, if there are several and the row belongs to one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// The holder: a lock, a task, or an acquisition site and the class of its locks.
    pub holder: Key,
}

/// Computes the table of one trace or several.
///
/// # Errors
///
/// As [`blame`](crate::tables::blame::blame()).
pub fn holders(traces: &[Trace], options: &Options) -> Result<Holders, AnalyzeError> {
    let by = options.by;
    let inputs = reading::open(traces, options)?;
    let order = order_by(&columns(by, 0, false), &options.sort, &["root_wait_ns", "wait_caused_ns"])?;
    let mut ids = RowIds::new(inputs.len());
    let mut all = Lines::new(KEYS);
    let found = |input, _| Found::new(by, input);
    let (totals, trust) = reading::read(&inputs, options.allow_loss, found, |at, found: Found<'_>| {
        // In the order of their keys, so that the ids do not depend on the order of equal rows.
        let mut sums: Vec<_> = found.sums.into_iter().collect();
        sums.sort_unstable_by_key(|(key, _)| *key);
        for ((holder, to), sums) in sums {
            let [to, holder] = [to.map(RowKey::Lock), Some(holder)].map(|key| ids.id_of(at, key, &inputs));
            all.push([holder, to], &sums);
        }
        found.totals
    })?;
    let (rows, rows_total) = ranked(all, &order, options.limit, &ids, &inputs).map_err(failed)?;
    Ok(Holders { by, traces: inputs.len(), rows, rows_total, totals, trust })
}

sums! {
    /// The sums of a row.
    struct HolderSums {
        root_wait_ns: Sum,
        wait_caused_ns: Sum,
        kept_ns: Sum,
        passed_ns: Sum,
        received_ns: Sum,
    }
}

/// Adds up time by holder, and by the lock that it is passed on to.
struct Found<'a> {
    by: By,
    names: &'a Names,
    sums: FxHashMap<(RowKey, Option<LockId>), HolderSums>,
    totals: Totals,
}

impl<'a> Found<'a> {
    fn new(by: By, input: &'a Input<'_>) -> Self {
        Self { by, names: &input.names, sums: FxHashMap::default(), totals: Totals::default() }
    }

    fn add(&mut self, lock: LockId, hold: HoldId, to: Option<LockId>, sums: &HolderSums) {
        let key = RowKey::of((lock, hold.task, hold.stack), self.by.holder(), self.names);
        self.sums.entry((key, to)).or_default().merge(sums);
    }
}

impl Sink for Found<'_> {
    fn needs(&self) -> Needs {
        Needs { chains: true, ..Needs::default() }
    }

    fn push(&mut self, item: Item<'_>) {
        match item {
            Item::Caused(caused) => self.caused(caused),
            Item::Passed(passed) => self.passed(passed),
            Item::Nested(ns) => self.totals.add_nested(ns),
            _ => {}
        }
    }
}

impl Found<'_> {
    fn caused(&mut self, caused: &Caused) {
        self.totals.add(caused);
        let Caused { lock, payer: Payer::Hold(hold), depth, ns, .. } = *caused else { return };
        let (kept_ns, received_ns) = if depth == 1 { (ns, 0) } else { (0, ns) };
        let (root_wait_ns, wait_caused_ns) = (ns, kept_ns);
        let sums = HolderSums { root_wait_ns, wait_caused_ns, kept_ns, received_ns, passed_ns: 0 };
        self.add(lock, hold, None, &sums);
    }

    fn passed(&mut self, passed: &Passed) {
        let Passed { lock, payer: Payer::Hold(hold), to, ns } = *passed else { return };
        let sums = HolderSums { wait_caused_ns: ns, passed_ns: ns, ..HolderSums::default() };
        self.add(lock, hold, Some(to), &sums);
    }
}

/// Returns the rows that are shown, and the number of all rows.
fn ranked(
    all: Lines<HolderSums, { KEYS.len() }>,
    order: &[OrderBy],
    limit: Option<usize>,
    ids: &RowIds,
    inputs: &[Input<'_>],
) -> PolarsResult<(Vec<HolderRow>, usize)> {
    let [holder, to] = KEYS;
    // The lock to which most is passed on comes first; of several, the one that was seen first.
    let most = SortMultipleOptions::default().with_order_descending_multi([true, false]);
    let lines = all.merge()?.sort(["passed_ns", to], most);
    let columns = [merged::<HolderSums>(), vec![col(to).first()]].concat();
    let rows = lines.group_by_stable([col(holder)]).agg(columns).collect()?;
    let rows_total = rows.height();
    let named = |[holder, to]: [i64; 2]| {
        let NamedRow { key, name, trace } = ids.name(holder, inputs);
        let passed_to = ids.name_of(to, inputs).map(|lock| lock.name);
        NamedRow { key: (key, passed_to), name, trace }
    };
    let Ranked { frame, names, .. } = rank(rows, KEYS, order, limit, named)?;
    let row = |(NamedRow { key: (holder, passed_to), name, trace }, sums): (_, _)| {
        let HolderSums { root_wait_ns, wait_caused_ns, kept_ns, passed_ns, received_ns } = sums;
        HolderRow {
            root_wait_ns,
            wait_caused_ns,
            kept_ns,
            passed_ns,
            received_ns,
            passed_to,
            name,
            trace,
            holder,
        }
    };
    Ok((names.into_iter().zip(sums_of::<HolderSums>(&frame)?).map(row).collect(), rows_total))
}

/// Declares the columns. Parts are of `waited_ns`; rows of several traces have their trace.
pub fn columns(by: By, waited_ns: i64, several: bool) -> Vec<Column<HolderRow>> {
    type Of = Column<HolderRow>;
    let part = move |row: &HolderRow| Totals::part(waited_ns, row.root_wait_ns);
    let heading = match by {
        By::Site => "held at (lock)",
        By::Task => "held by",
        By::Root | By::Lock | By::Depth => "lock",
    };
    let mut columns = vec![
        Of::duration(
            "root_wait",
            |row| row.root_wait_ns,
            "Time of waits whose chain ends here: kept + received.",
        )
        .sum(),
        Of::ppm("part", part, "root_wait divided by all waits.").heading("percent").not_sortable(),
        Of::duration(
            "wait_caused",
            |row| row.wait_caused_ns,
            "Time that others waited for it: kept + passed.",
        )
        .sum(),
        Of::duration("kept", |row| row.kept_ns, "The part of it while the holder waited for no lock.").sum(),
        Of::duration(
            "passed",
            |row| row.passed_ns,
            "The part of it while the holder waited for another lock.",
        )
        .sum(),
        Of::duration(
            "received",
            |row| row.received_ns,
            "Time of waits for other locks, whose holders waited for this one.",
        )
        .sum(),
        Of::text("passed_to", |row| row.passed_to.as_deref().into(), "The lock that most of passed goes to.")
            .programs(),
        Of::name(heading, |row| row.name.as_str().into()),
    ];
    columns.extend(key_columns(by.holder(), "holder_", |row: &HolderRow| Some(&row.holder)));
    columns.extend(trace_column(several, |row: &HolderRow| row.trace.as_deref()));
    columns
}

impl Table for Holders {
    rows_and_trust!(HolderRow);

    fn columns(&self) -> Vec<Column<HolderRow>> {
        columns(self.by, self.totals.waited_ns, self.traces > 1)
    }

    /// A terminal has no room for two names beside each other.
    fn below(&self, row: &HolderRow) -> Vec<String> {
        row.passed_to.iter().map(|to| format!("  passed on to {to}")).collect()
    }

    fn about(&self) -> About {
        About::Blame
    }

    fn nothing(&self) -> Option<String> {
        (self.rows_total == 0).then(|| match self.totals.waited_ns {
            0 => NOBODY_WAITED.to_owned(),
            _ => {
                "no chain goes through a recorded hold; `klock chains` shows where the chains end".to_owned()
            }
        })
    }

    fn write_totals(&self, style: TextStyle, out: &mut (dyn Write + Send)) -> io::Result<()> {
        self.totals.write(style, out)
    }
}
