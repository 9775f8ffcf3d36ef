//! Who made whom wait: each nanosecond of each wait, by the place or the task that held the lock meanwhile.
//!
//! A trace and [`Options`] enter, a [`Blame`] leaves: rows of time in nanoseconds that add up to all that was waited,
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
    loss,
    names::{self, Names},
    pass::{Detail, Pass},
    report::{self, Key, Trust, key},
    scope::Chosen,
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
    /// Who held the lock: an acquisition point with the locks' class, or a task. With a gap, the class alone.
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
    let names = Names::read(trace)?;
    let chosen = Chosen::of(trace, &names, &options.filter)?;
    let mut shares = Shares::new(options.by, &names, &chosen);
    let (events, counts) =
        Pass { trace, names: &names, chosen: &chosen, detail: Detail::All }.run(&mut shares)?;
    let Shares { sums, trust, .. } = shares;
    let trust = trust.block(trace, (&events, &counts), &chosen, &names);
    loss::check(trace, &trust, options.allow_loss)?;
    let totals = sums::totals(&sums);
    let mut rows = named_rows(sums, options.by, &names);
    let rows_total = rows.len();
    rows.truncate(options.limit.unwrap_or(usize::MAX));
    let rows = finish(rows, trace)?;
    Ok(Blame { by: options.by, rows, rows_total, totals, trust })
}

/// A row that has its stacks as numbers.
struct Unnamed {
    sums: Sums,
    name: String,
    holder: Option<Key>,
    waiter: Option<Key>,
    /// The spot with the longest time.
    heaviest: (i64, Spot),
}

/// From stacks to places: one row for all stacks through the same points.
fn named_rows(sums: FxHashMap<Spot, Sums>, by: By, names: &Names) -> Vec<Unnamed> {
    let mut found: FxHashMap<(Charged, Option<i64>, Option<i64>), Unnamed> = FxHashMap::default();
    for (spot, sums) in sums {
        let site = |stack| key::site_number(names.points_number(spot.kernel, stack), spot.class);
        let is_hold = spot.charged == Charged::Hold;
        let (holder, waiter) = match by {
            By::Task => (spot.task.map(|task| i64::from(task.0)), None),
            By::Site | By::Pair if is_hold => (Some(site(spot.holder)), Some(site(spot.waiter))),
            By::Site | By::Pair => (spot.class.map(i64::from), Some(site(spot.waiter))),
        };
        let waiter = waiter.filter(|_| by == By::Pair);
        // Equally long ones are told apart by their stacks, so that the table is the same each time.
        let weight = |ns: i64, spot: &Spot| (ns, spot.holder, spot.waiter);
        let row = found.entry((spot.charged, holder, waiter)).or_insert_with(|| {
            let holder_by = match by {
                By::Task => report::By::Task,
                _ if is_hold => report::By::Site,
                _ => report::By::Class,
            };
            let holder = holder.map(|number| Key::of_number(number, holder_by, names));
            let waiter = waiter.map(|number| Key::of_number(number, report::By::Site, names));
            let name = label(spot.charged, by, holder.as_ref(), waiter.as_ref(), names);
            Unnamed { sums: Sums::default(), name, holder, waiter, heaviest: (sums.ns, spot) }
        });
        row.sums = row.sums.plus(sums);
        if weight(sums.ns, &spot) > weight(row.heaviest.0, &row.heaviest.1) {
            row.heaviest = (sums.ns, spot);
        }
    }
    let mut rows: Vec<Unnamed> = found.into_values().collect();
    rows.sort_by(|a, b| {
        let by_time = b.sums.ns.cmp(&a.sums.ns).then_with(|| a.name.cmp(&b.name));
        by_time.then_with(|| (&a.holder, &a.waiter).cmp(&(&b.holder, &b.waiter)))
    });
    rows
}

fn label(charged: Charged, by: By, holder: Option<&Key>, waiter: Option<&Key>, names: &Names) -> String {
    let holder_name = |key: &Key| if by == By::Pair { key.short_label(names) } else { key.label(names) };
    let held = match (charged, holder) {
        (Charged::Hold, Some(holder)) => holder_name(holder),
        (Charged::Owner, Some(holder)) if by == By::Task => {
            format!("{}, the owner by the lock word", holder.label(names))
        }
        (charged, class) => {
            let who = match charged {
                Charged::Gap => "no recorded hold",
                Charged::Owner => "the owner by the lock word",
                Charged::Hold | Charged::Unknown => "holder not recorded",
            };
            match class {
                Some(class) if by == By::Site => format!("({who}) ({})", class.label(names)),
                _ => format!("({who})"),
            }
        }
    };
    match waiter {
        Some(waiter) => format!("{held} <- {}", waiter.label(names)),
        None => held,
    }
}

/// Looks up the stacks of the rows that are shown.
fn finish(rows: Vec<Unnamed>, trace: &Trace) -> Result<Vec<Row>, AnalyzeError> {
    let wanted: FxHashSet<StackId> =
        rows.iter().flat_map(|row| [row.heaviest.1.holder, row.heaviest.1.waiter]).flatten().collect();
    let mut stacks: FxHashMap<StackId, Stack> = FxHashMap::default();
    if !wanted.is_empty() {
        stacks.extend(
            trace.stacks()?.into_iter().filter(|stack| wanted.contains(&stack.id)).map(|s| (s.id, s)),
        );
    }
    let frames = |stack: Option<StackId>, kernel: bool| -> Vec<String> {
        let stack = stack.and_then(|id| stacks.get(&id));
        let frames = stack.map_or(&[][..], |stack| names::from_point(&stack.frames, kernel));
        frames.iter().filter(|frame| kernel || !frame.kernel).map(names::function).collect()
    };
    let row = |Unnamed { sums, name, holder, waiter, heaviest: (_, spot) }| Row {
        charged_to: spot.charged,
        wait_caused_ns: sums.ns,
        shares: sums.shares,
        longest_ns: sums.longest_ns,
        cut_by_loss: sums.cut,
        name,
        holder,
        waiter,
        holder_stack: frames(spot.holder, spot.kernel),
        waiter_stack: frames(spot.waiter, spot.kernel),
    };
    Ok(rows.into_iter().map(row).collect())
}
