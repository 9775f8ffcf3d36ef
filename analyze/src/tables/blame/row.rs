//! A row of the table and its columns.

use std::io::{self, Write};

use serde::Serialize;

use super::By;
use crate::{
    TextStyle,
    choices::choices,
    output::{Column, units},
    tables::{
        key::{self, Key},
        key_columns,
        key_columns::folded,
        trace_column,
    },
};

choices! {
    /// The party that a time is charged to.
    Charged, "charge" {
        /// A recorded hold of another task.
        #[default]
        Hold = "hold",
        /// No task: the lock was free, all its holds being recorded, and the next waiter was not running yet.
        Handoff = "handoff",
        /// No task is known: holds of this lock are recorded, none of another task was open, and the lock may have been taken before the
        /// recording.
        Gap = "gap",
        /// The task that the lock word named when the wait began. Either holds are not recorded, and it is charged the whole
        /// wait; or its hold was not recorded, and it is charged until the first hold that was.
        Owner = "owner",
        /// Unknown, as with the next: the task that woke the waiter, which in most locks is the one that released it.
        Waker = "waker",
        /// Unknown: holds are not recorded, or the start of the wait was not seen.
        Unknown = "unknown",
    }
}

/// The waits that one holder, or one pair of holder and waiter, caused.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The party that the time is charged to.
    pub charged_to: Charged,
    /// The sum of the shares, in ns.
    pub wait_caused_ns: i64,
    /// The number of shares: a wait for two holds has two, two waits for one hold have two. The time that a wait spent in no hold is one.
    pub shares: i64,
    /// The longest share, in ns.
    pub longest_ns: i64,
    /// Shares of waits that lasted while events were lost, and so were longer.
    pub cut_by_loss: i64,
    /// The name; safe to print.
    pub name: String,
    /// The trace, if there are several and the row belongs to one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// The holder: an acquisition site and the class of its locks, a task, or a machine. In a gap, the class alone.
    pub holder: Option<Key>,
    /// The site at which others waited; for pairs only.
    pub waiter: Option<Key>,
    /// The stack at which the lock was acquired, from the acquisition site outwards; if several stacks lead through the site, the one
    /// with the longest time.
    pub holder_stack: Vec<String>,
    /// The stack of the wait; for pairs only.
    pub waiter_stack: Vec<String>,
}

/// The sum of all waits in ns. `waited_ns` is exactly the sum of the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// All waits, until they ended with or without the lock, or until they were last seen.
    pub waited_ns: i64,
    /// Charged to holds.
    pub hold_ns: i64,
    /// Charged to no task, while the lock was free.
    pub handoff_ns: i64,
    /// Charged to no task, while an unseen hold may have been open.
    pub gap_ns: i64,
    /// Charged to the owner that the lock word named.
    pub owner_ns: i64,
    /// Waits whose holder is unknown.
    pub unknown_ns: i64,
}

impl Totals {
    /// Writes the sum and its parts, exact, so that it can be checked.
    pub(super) fn write(&self, style: TextStyle, out: &mut (dyn Write + Send)) -> io::Result<()> {
        let Self { waited_ns, hold_ns, handoff_ns, gap_ns, owner_ns, unknown_ns } = *self;
        let parts = [
            (hold_ns, "charged to holds"),
            (handoff_ns, "in hand-offs"),
            (gap_ns, "in no recorded hold"),
            (owner_ns, "charged to the owner that the lock word named"),
            (unknown_ns, "for holders that were not recorded"),
        ];
        write_sum(&waited(waited_ns), &parts, style, out)?;
        match self.hint().filter(|_| style.is_terminal) {
            Some(hint) => style.wrapped(hint, out),
            None => Ok(()),
        }
    }

    /// Returns the command that goes on where this table cannot, because most waits are charged to no code.
    fn hint(&self) -> Option<&'static str> {
        let is_most = |ns: i64| ns > self.waited_ns / 2;
        if is_most(self.owner_ns) {
            Some(
                "the code of most holders was not recorded: klock blame --by task names the holders, klock report --by site the code that waited",
            )
        } else if is_most(self.unknown_ns) || is_most(self.owner_ns.saturating_add(self.unknown_ns)) {
            Some("most holders were not recorded: klock report --by site shows the code that waited")
        } else {
            None
        }
    }

    /// Returns a part of all waits in millionths.
    pub(super) fn part(waited_ns: i64, ns: i64) -> Option<i64> {
        units::ppm(ns, waited_ns)
    }
}

/// Writes the time of all waits as the sum of its parts, exact, so that it can be checked.
pub(in crate::tables) fn write_sum(
    sum: &str,
    parts: &[(i64, &str)],
    style: TextStyle,
    out: &mut (dyn Write + Send),
) -> io::Result<()> {
    let mut sum = vec![sum.to_owned()];
    for (ns, what) in parts.iter().filter(|(ns, _)| *ns != 0) {
        let sign = if sum.len() == 1 { '=' } else { '+' };
        sum.push(format!("{sign} {} {what}", units::exact(*ns)));
    }
    let one_line = sum.join(" ");
    let fits = style.width.is_none_or(|width| one_line.len() <= width);
    writeln!(out, "\n{}", if fits { one_line } else { sum.join("\n  ") })
}

/// Returns the words for the sum of waits.
pub(in crate::tables) fn waited(ns: i64) -> String {
    format!("waited {} ns", units::exact(ns))
}

/// Declares the columns. Parts are of `waited_ns`; rows of several traces have their trace.
pub fn columns(by: By, waited_ns: i64, several: bool) -> Vec<Column<Row>> {
    type Of = Column<Row>;
    let has_sites = matches!(by, By::Site | By::State | By::Pair);
    let part = move |row: &Row| Totals::part(waited_ns, row.wait_caused_ns);
    let mut columns = vec![
        Of::text(
            "charged_to",
            |row| row.charged_to.as_str().into(),
            "hold, handoff, gap, owner, waker or unknown.",
        )
        .identity(),
        Of::duration("wait_caused", |row| row.wait_caused_ns, "Time that others waited.").sum(),
        Of::ppm("part", part, "wait_caused divided by all waits.").heading("percent").not_sortable(),
        Of::count("shares", |row| row.shares, "Shares of waits.").sum(),
        Of::duration("longest", |row| row.longest_ns, "The longest share."),
        Of::count(
            "cut_by_loss",
            |row| row.cut_by_loss,
            "Shares of waits that lasted while events were lost.",
        )
        .identity(),
        Of::name(heading(by), |row| row.name.as_str().into()),
    ];
    let holder_by = match by {
        By::Task => key::By::Task,
        By::Host => key::By::Host,
        By::Site | By::State | By::Pair => key::By::Site,
    };
    columns.extend(key_columns(holder_by, "holder_", |row: &Row| row.holder.as_ref()));
    if by == By::Pair {
        columns.extend(key_columns(key::By::Site, "waiter_", |row: &Row| row.waiter.as_ref()));
    }
    if has_sites {
        columns.push(
            Of::text("holder_stack", |row| folded(&row.holder_stack), "The holder's stack.").identity(),
        );
    }
    if by == By::Pair {
        columns.push(
            Of::text("waiter_stack", |row| folded(&row.waiter_stack), "The waiter's stack.").identity(),
        );
    }
    columns.extend(trace_column(several, |row: &Row| row.trace.as_deref()));
    columns
}

const fn heading(by: By) -> &'static str {
    match by {
        By::Site | By::State => "held at (lock)",
        By::Task => "held by",
        By::Pair => "held at <- waited for at (lock)",
        By::Host => "host",
    }
}
