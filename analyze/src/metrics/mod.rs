//! Counters of locks for Prometheus.
//!
//! `Tally` adds up intervals by lock and acquisition site. `Series` gives these sums names and a bounded
//! number of series; `text` writes them. An export reads a whole trace once; [`Live`] takes the events of a
//! recording as they are written.

use rustc_hash::FxHashMap;
use trace_format::{LockId, LockKind, LockRow, StackId, TaskId};

use intervals::{
    input::names::Names,
    items::{Hold, HoldState, Item, Outcome, Sink, Wait},
};
use tables::{
    diff::{self, Align},
    key::{By, RowKey},
};

mod live;
mod series;
#[cfg(test)]
mod tests;
mod text;

pub use live::Live;
pub use series::DEFAULT_SERIES;
pub(crate) use series::{Fill, Series};
pub use text::Syntax;
pub(crate) use text::{Events, causes, write};

/// Bounds of the histogram of waits: powers of four, from 1 µs to 4.2 s.
const BOUNDS: usize = 12;

/// Returns the longest time of a bucket.
const fn bound_ns(bucket: usize) -> i64 {
    1_000 << (2 * bucket)
}

/// The sums of a lock. Seconds are kept as nanoseconds, in 128 bits: 64 bits are 292 years of all waiters
/// together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    /// Waits that ended with the lock.
    waits: u64,
    wait_ns: u128,
    wait_max_ns: i64,
    /// Waits that ended without it.
    abandoned: u64,
    /// Waits, taken or abandoned, by length; the last bucket is for longer ones.
    by_length: [u64; BOUNDS + 1],
    acquisitions: u64,
    /// Holds of known length.
    holds: u64,
    hold_ns: u128,
}

impl Sums {
    fn hold(&mut self, hold: &Hold) {
        if !hold.is_credited() {
            return;
        }
        self.acquisitions += u64::try_from(hold.acquisitions).unwrap_or(0);
        if hold.state == HoldState::Complete {
            self.holds += 1;
            self.hold_ns += positive(hold.end_ns.saturating_sub(hold.start_ns));
        }
    }

    fn wait(&mut self, wait: &Wait) {
        match wait.outcome {
            Outcome::Acquired => self.waits += 1,
            Outcome::Abandoned(_) => self.abandoned += 1,
            Outcome::OpenAtEnd | Outcome::CutByLoss => return,
        }
        self.wait_ns += positive(wait.wait_ns);
        self.wait_max_ns = self.wait_max_ns.max(wait.wait_ns);
        let bucket = (0..BOUNDS).find(|&bucket| wait.wait_ns <= bound_ns(bucket)).unwrap_or(BOUNDS);
        self.by_length[bucket] += 1;
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.waits += other.waits;
        self.wait_ns += other.wait_ns;
        self.wait_max_ns = self.wait_max_ns.max(other.wait_max_ns);
        self.abandoned += other.abandoned;
        self.by_length.iter_mut().zip(other.by_length).for_each(|(sum, n)| *sum += n);
        self.acquisitions += other.acquisitions;
        self.holds += other.holds;
        self.hold_ns += other.hold_ns;
    }
}

/// Times are never negative, unless a trace is damaged.
fn positive(ns: i64) -> u128 {
    u128::try_from(ns).unwrap_or(0)
}

/// Sums by lock and acquisition site, in the ids of one trace.
#[derive(Debug, Default)]
pub(crate) struct Tally(FxHashMap<(LockId, Option<StackId>), Sums>);

impl Sink for Tally {
    fn push(&mut self, item: Item<'_>) {
        match item {
            Item::Hold(hold) => self.0.entry((hold.lock, hold.stack)).or_default().hold(hold),
            Item::Wait(wait) => self.0.entry((wait.lock, wait.stack)).or_default().wait(wait),
            _ => {}
        }
    }
}

impl Tally {
    /// Takes the sums of locks that were first seen by `until_ns`, by kind and name.
    pub(crate) fn take_named(&mut self, names: &Names, until_ns: i64) -> Named {
        let mut named = Named::default();
        self.0.retain(|&(lock, stack), sums| {
            let Some(row) = names.lock(lock) else { return true };
            let is_taken = row.first_ns <= until_ns;
            if is_taken && *sums != Sums::default() {
                named.entry((row.kind, name(row, stack, names))).or_default().merge(sums);
            }
            !is_taken
        });
        named
    }
}

/// Sums by kind and name of the lock; `None` for locks that have nothing to go by.
pub(crate) type Named = FxHashMap<(LockKind, Option<String>), Sums>;

/// Returns the name of a lock, or the place of its initialisation or acquisition, as in `klock diff`. An id
/// or an address is no name: each lock of each recording would have its own.
fn name(row: &LockRow, stack: Option<StackId>, names: &Names) -> Option<String> {
    let site = names.point(row.id, row.init_stack.or(stack));
    if row.name.is_none() && site.file.is_none() && site.function.is_none() && site.module.is_none() {
        return None;
    }
    let site = RowKey::of((row.id, TaskId(-1), stack), By::Site, names);
    let label = diff::label(Align::Lock, Some(row.id), site, names);
    // The kind is a label of its own.
    let kind = row.kind.as_str();
    let label = label.strip_prefix(kind).and_then(|name| name.strip_prefix(':')).unwrap_or(&label);
    let label = label.strip_suffix(&format!(" ({kind})")).unwrap_or(label);
    Some(label.to_owned())
}
