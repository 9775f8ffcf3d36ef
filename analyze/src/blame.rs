//! Who made whom wait: each nanosecond of each wait, by the place or the task that held the lock meanwhile.
//!
//! Traces and [`Options`] enter, a [`Blame`] leaves: rows of time in nanoseconds that add up to all that was waited,
//! and the [`Trust`] block. The interval engine hands out each wait in shares; they are added up by holder and, if the
//! rows are pairs, by waiter. So memory grows with the number of stacks, not with the trace. Nothing is formatted here;
//! `text`, `rows` and `json` are skins.
//!
//! All holds count, also those without an end: who never gives a lock back is who should be found.

use std::{fmt, str::FromStr};

use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;
use trace_format::{Stack, StackId, Trace};

use crate::{
    choices::choices,
    error::AnalyzeError,
    filter::Filter,
    names,
    parts::{self, Keys, Numbers, Part, Trusts},
    pass::{self, Detail},
    report::{self, Key, Trust, key, trust::Watch},
};

use sums::{Shares, Spot, Sums};

pub mod json;
pub mod rows;
pub mod text;

mod sums;
#[cfg(test)]
mod tests;

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What a row is.
    pub by: By,
    /// At most so many rows; `None` is all.
    pub limit: Option<usize>,
    /// What of the trace; of intervals, which waits.
    pub filter: Filter,
    /// Also if the trace lost too much for the order of rows to mean anything.
    pub allow_loss: bool,
}

choices! {
    /// What a row is.
    By, "key" {
        /// Where the lock was acquired by who held it.
        #[default]
        Site = "site",
        /// Who held it.
        Task = "task",
        /// Where it was acquired by who held it, and where others waited for it meanwhile.
        Pair = "pair",
        /// On which machine the lock is.
        Host = "host",
    }
}

choices! {
    /// Whom a time is charged to, and how that is known.
    Charged, "charge" {
        /// A recorded hold of another task.
        #[default]
        Hold = "hold",
        /// Nobody: holds of this lock are recorded, and none of another task was open.
        Gap = "gap",
        /// The task that the lock word named when the wait began: holds are not recorded, and it is the whole wait; or its hold
        /// was not, and it is the time until the first that was.
        Owner = "owner",
        /// Nobody knows: holds are not recorded, or the wait's begin was not seen.
        Unknown = "unknown",
    }
}

/// The table and what is to be known about it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Blame {
    /// What a row is.
    #[serde(serialize_with = "word")]
    pub by: By,
    /// Of how many traces it is.
    pub traces: usize,
    /// The rows, the longest time first, limited.
    pub rows: Vec<Row>,
    /// How many rows there were before the limit.
    pub rows_total: usize,
    /// What all rows add up to.
    pub totals: Totals,
    /// What the numbers don't hold.
    pub trust: Trust,
}

fn word<S: serde::Serializer>(word: &impl fmt::Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(word)
}

/// All that was waited, in ns: `waited_ns` is the sum of the other four, exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// All waits: until they ended, with the lock or without, or until they were last seen.
    pub waited_ns: i64,
    /// Charged to holds.
    pub hold_ns: i64,
    /// Charged to nobody.
    pub gap_ns: i64,
    /// Charged to whom the lock word named.
    pub owner_ns: i64,
    /// Of waits of which nothing more is known.
    pub unknown_ns: i64,
}

impl Totals {
    fn plus(self, other: Self) -> Self {
        Self {
            waited_ns: self.waited_ns.saturating_add(other.waited_ns),
            hold_ns: self.hold_ns.saturating_add(other.hold_ns),
            gap_ns: self.gap_ns.saturating_add(other.gap_ns),
            owner_ns: self.owner_ns.saturating_add(other.owner_ns),
            unknown_ns: self.unknown_ns.saturating_add(other.unknown_ns),
        }
    }
}

/// What one holder, or one pair of holder and waiter, cost.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// How it is known whom the time is charged to.
    #[serde(serialize_with = "word")]
    pub charged_to: Charged,
    /// How long others waited for it, in ns.
    pub wait_caused_ns: i64,
    /// In how many pieces: a wait for two holds is two, two waits for one hold are two.
    pub shares: i64,
    /// The longest of them, in ns.
    pub longest_ns: i64,
    /// How many are of waits that lasted while events were lost, and so were longer.
    pub cut_by_loss: i64,
    /// What the row is called; safe to print.
    pub name: String,
    /// Of several traces, which one it is of, if it is of one alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// Who held the lock: an acquisition point with the locks' class, a task, or a machine. With a gap, the class alone.
    pub holder: Option<Key>,
    /// Where others waited for it; of pairs only.
    pub waiter: Option<Key>,
    /// Frames of the stack at which the lock was acquired, from the acquisition point outwards. Of several stacks
    /// through one point, that with the longest time.
    pub holder_stack: Vec<String>,
    /// The same of the wait; of pairs only.
    pub waiter_stack: Vec<String>,
}

/// Makes the table.
///
/// # Errors
///
/// The trace can't be read or holds no events, or a filter means no lock of it. A table without rows is no error:
/// nobody waited.
pub fn blame(trace: &Trace, options: &Options) -> Result<Blame, AnalyzeError> {
    blame_with(&[trace], options, pass::readers())
}

/// Makes one table of several traces, at least one: of other machines or times.
///
/// # Errors
///
/// As [`blame`]; but a trace without events, or in which a filter means nothing, is passed over if there is another.
pub fn blame_of(traces: &[Trace], options: &Options) -> Result<Blame, AnalyzeError> {
    blame_with(&traces.iter().collect::<Vec<_>>(), options, pass::readers())
}

/// The same with so many readers, on which nothing depends.
fn blame_with(traces: &[&Trace], options: &Options, readers: usize) -> Result<Blame, AnalyzeError> {
    let parts = parts::of(traces, Keys::default(), &options.filter)?;
    blame_of_parts(&parts, options, readers)
}

pub(crate) fn blame_of_parts(
    parts: &[Part<'_>],
    options: &Options,
    readers: usize,
) -> Result<Blame, AnalyzeError> {
    let mut trusts = Trusts::default();
    let mut totals = Totals::default();
    let mut naming = Naming::new(options.by, parts);
    for (at, part) in parts.iter().enumerate() {
        let sink = || Shares::new(options.by, &part.names, &part.chosen);
        let (sinks, events, counts) = part.run_apart(Detail::All, readers, sink)?;
        let mut watch = Watch::default();
        let mut all: FxHashMap<Spot, Sums> = FxHashMap::default();
        for Shares { sums, trust, .. } in sinks {
            watch = watch.and(trust);
            for (spot, sums) in sums {
                let sum = all.entry(spot).or_default();
                *sum = sum.plus(sums);
            }
        }
        totals = totals.plus(sums::totals(&all));
        naming.add(all, at);
        trusts.add(part, watch, (&events, &counts), options.allow_loss)?;
    }
    let mut rows = naming.finish();
    let rows_total = rows.len();
    rows.truncate(options.limit.unwrap_or(usize::MAX));
    let rows = finish(rows, parts)?;
    Ok(Blame { by: options.by, traces: parts.len(), rows, rows_total, totals, trust: trusts.finish() })
}

/// Where the longest time of a row was spent: the sum, in which trace, and between which stacks.
type Heaviest = (i64, usize, Spot);

/// A row that has its stacks as numbers.
struct Unnamed {
    sums: Sums,
    name: String,
    trace: Option<String>,
    holder: Option<Key>,
    waiter: Option<Key>,
    heaviest: Heaviest,
}

/// From stacks to places: one row for all stacks through the same points, of all traces.
struct Naming<'a> {
    by: By,
    parts: &'a [Part<'a>],
    holders: Numbers,
    classes: Numbers,
    waiters: Numbers,
    found: FxHashMap<(Charged, Option<i64>, Option<i64>), Unnamed>,
}

impl<'a> Naming<'a> {
    fn new(by: By, parts: &'a [Part<'a>]) -> Self {
        let numbers = || Numbers::new(parts.len());
        let (holders, classes, waiters) = (numbers(), numbers(), numbers());
        Self { by, parts, holders, classes, waiters, found: FxHashMap::default() }
    }

    /// What the holder's key is of.
    fn holder_by(&self, charged: Charged) -> report::By {
        match self.by {
            By::Task => report::By::Task,
            By::Host => report::By::Host,
            By::Site | By::Pair if charged == Charged::Hold => report::By::Site,
            By::Site | By::Pair => report::By::Class,
        }
    }

    fn add(&mut self, sums: FxHashMap<Spot, Sums>, at: usize) {
        let names = &self.parts[at].names;
        for (spot, sums) in sums {
            let site = |stack| key::site_number(names.points_number(spot.kernel, stack), spot.class);
            let by = self.holder_by(spot.charged);
            let local = match by {
                report::By::Task => spot.task.map(|task| i64::from(task.0)),
                report::By::Host => Some(0),
                report::By::Site => Some(site(spot.holder)),
                _ => spot.class.map(i64::from),
            };
            let holders = if by == report::By::Class { &mut self.classes } else { &mut self.holders };
            let holder = local.map(|local| holders.row(local, at, names, by));
            let waiter = (self.by == By::Pair)
                .then(|| self.waiters.row(site(spot.waiter), at, names, report::By::Site));
            let heaviest = (sums.ns, at, spot);
            let key = (spot.charged, holder, waiter);
            if !self.found.contains_key(&key) {
                let row = self.unnamed(key, heaviest);
                self.found.insert(key, row);
            }
            let Some(row) = self.found.get_mut(&key) else { continue };
            row.sums = row.sums.plus(sums);
            // Equally long ones are told apart by their stacks, so that the table is the same each time.
            let weight = |(ns, at, spot): &Heaviest| (*ns, std::cmp::Reverse(*at), spot.holder, spot.waiter);
            if weight(&heaviest) > weight(&row.heaviest) {
                row.heaviest = heaviest;
            }
        }
    }

    fn unnamed(
        &self,
        (charged, holder, waiter): (Charged, Option<i64>, Option<i64>),
        heaviest: Heaviest,
    ) -> Unnamed {
        let names = &self.parts[heaviest.1].names;
        let by = self.holder_by(charged);
        let holders = if by == report::By::Class { &self.classes } else { &self.holders };
        let holder = holder.map(|number| holders.name(number, self.parts, by));
        let (holder, label_of_holder, trace) =
            holder.map_or((None, None, None), |(key, label, trace)| (Some(key), Some(label), trace));
        let waiter = waiter.map(|number| self.waiters.name(number, self.parts, report::By::Site));
        let (waiter, label_of_waiter) =
            waiter.map_or((None, None), |(key, label, _)| (Some(key), Some(label)));
        let held = match (charged, &holder) {
            // The class stands with the waiter.
            (Charged::Hold, Some(key)) if self.by == By::Pair => Some(key.short_label(names)),
            _ => label_of_holder,
        };
        let name = label(charged, self.by, held.as_deref(), label_of_waiter.as_deref());
        Unnamed { sums: Sums::default(), name, trace, holder, waiter, heaviest }
    }

    fn finish(self) -> Vec<Unnamed> {
        let mut rows: Vec<Unnamed> = self.found.into_values().collect();
        rows.sort_by(|a, b| {
            let by_time = b.sums.ns.cmp(&a.sums.ns).then_with(|| a.name.cmp(&b.name));
            by_time.then_with(|| (&a.holder, &a.waiter).cmp(&(&b.holder, &b.waiter)))
        });
        rows
    }
}

fn label(charged: Charged, by: By, holder: Option<&str>, waiter: Option<&str>) -> String {
    let held = match (charged, holder) {
        (Charged::Hold, Some(holder)) => holder.to_owned(),
        (Charged::Owner, Some(holder)) if by == By::Task => {
            format!("{holder}, the owner by the lock word")
        }
        (charged, class) => {
            let who = match charged {
                Charged::Gap => "no recorded hold",
                Charged::Owner => "the owner by the lock word",
                Charged::Hold | Charged::Unknown => "holder not recorded",
            };
            match class {
                Some(class) if by == By::Site => format!("({who}) ({class})"),
                Some(host) if by == By::Host => format!("{host} ({who})"),
                _ => format!("({who})"),
            }
        }
    };
    match waiter {
        Some(waiter) => format!("{held} <- {waiter}"),
        None => held,
    }
}

/// Looks up the stacks of the rows that are shown.
fn finish(rows: Vec<Unnamed>, parts: &[Part<'_>]) -> Result<Vec<Row>, AnalyzeError> {
    let wanted: FxHashSet<(usize, StackId)> = rows
        .iter()
        .flat_map(|row| {
            let (_, at, spot) = row.heaviest;
            [spot.holder, spot.waiter].into_iter().flatten().map(move |stack| (at, stack))
        })
        .collect();
    let mut stacks: FxHashMap<(usize, StackId), Stack> = FxHashMap::default();
    for (at, part) in parts.iter().enumerate() {
        if wanted.iter().any(|(of, _)| *of == at) {
            let of_part = part.trace.stacks()?.into_iter().map(|stack| ((at, stack.id), stack));
            stacks.extend(of_part.filter(|(key, _)| wanted.contains(key)));
        }
    }
    let frames = |at: usize, stack: Option<StackId>, kernel: bool| -> Vec<String> {
        let stack = stack.and_then(|id| stacks.get(&(at, id)));
        let frames = stack.map_or(&[][..], |stack| names::from_point(&stack.frames, kernel));
        frames.iter().filter(|frame| kernel || !frame.kernel).map(names::function).collect()
    };
    let row = |Unnamed { sums, name, trace, holder, waiter, heaviest: (_, at, spot) }| Row {
        charged_to: spot.charged,
        wait_caused_ns: sums.ns,
        shares: sums.shares,
        longest_ns: sums.longest_ns,
        cut_by_loss: sums.cut,
        name,
        trace,
        holder,
        waiter,
        holder_stack: frames(at, spot.holder, spot.kernel),
        waiter_stack: frames(at, spot.waiter, spot.kernel),
    };
    Ok(rows.into_iter().map(row).collect())
}
