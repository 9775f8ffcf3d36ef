//! A profile for the Firefox Profiler (profiler.firefox.com): the stacks of waits, and waits and holds as markers.
//!
//! Holds and waits go in, a profile in the "processed" format comes out. A wait is a sample that weighs as much as it lasted, so the
//! call tree adds up waiting time; the leaf of its stack is the lock. Waits and holds are also markers with their lock, site and
//! holder. The viewer keeps all of them in the memory of a browser, so only the longest are written, up to a limit; a
//! note reports how many are left out.
//!
//! Source: <https://github.com/firefox-devtools/profiler/tree/main/docs-developer>.

use std::{cmp::Reverse, collections::BinaryHeap, io::Write};

use super::{
    run::{Exporter, ONE_CLOCK},
    stacks::Stacks,
};
use intervals::{
    input::Input,
    input::trust::Trust,
    items::{Hold, Item, Wait},
};
use output::{error::AnalyzeError, units};

mod markers;
mod profile;
#[cfg(test)]
mod tests;
mod weights;

/// The most waits, and holds, unless another number is given.
const LIMIT: usize = 50_000;

/// Keeps the longest waits and holds and writes the profile.
pub(super) struct Firefox<'w> {
    waits: Longest<Wait>,
    holds: Longest<Hold>,
    out: &'w mut (dyn Write + Send),
}

impl<'w> Firefox<'w> {
    pub(super) fn new(limit: Option<usize>, out: &'w mut (dyn Write + Send)) -> Self {
        let limit = limit.unwrap_or(LIMIT);
        Self { waits: Longest::new(limit), holds: Longest::new(limit), out }
    }
}

impl Exporter for Firefox<'_> {
    const ONE_TRACE: Option<&'static str> = Some(ONE_CLOCK);

    fn push(&mut self, item: Item<'_>, _: &Input<'_>, is_selected: bool) {
        match item {
            Item::Hold(hold) if is_selected => {
                self.holds.add(hold.end_ns.saturating_sub(hold.start_ns), *hold);
            }
            Item::Wait(wait) if is_selected => self.waits.add(wait.wait_ns, *wait),
            _ => {}
        }
    }

    fn end(&mut self, input: &Input<'_>) -> Result<(), AnalyzeError> {
        let stacks = Stacks::read(input.trace)?;
        let mut profile = profile::Builder::new(input, &stacks);
        self.waits.in_order().into_iter().for_each(|wait| profile.wait(wait));
        self.holds.in_order().into_iter().for_each(|hold| profile.hold(hold));
        profile.write(self.out)
    }

    fn finish(self, _trust: &Trust) -> Result<(u64, Vec<String>), AnalyzeError> {
        let items = self.waits.kept.len() + self.holds.kept.len();
        let notes = self.waits.note("waits").into_iter().chain(self.holds.note("holds"));
        Ok((items as u64, notes.collect()))
    }
}

/// The longest intervals so far.
struct Longest<T> {
    limit: usize,
    /// The shortest on top.
    kept: BinaryHeap<Reverse<Ranked<T>>>,
    seen: u64,
}

impl<T> Longest<T> {
    fn new(limit: usize) -> Self {
        Self { limit, kept: BinaryHeap::new(), seen: 0 }
    }

    fn add(&mut self, ns: i64, interval: T) {
        self.seen += 1;
        self.kept.push(Reverse(Ranked { rank: (ns, Reverse(self.seen)), interval }));
        if self.kept.len() > self.limit {
            self.kept.pop();
        }
    }

    /// Returns the intervals in the order in which they ended.
    fn in_order(&self) -> Vec<&T> {
        let mut all: Vec<&Ranked<T>> = self.kept.iter().map(|Reverse(ranked)| ranked).collect();
        all.sort_by_key(|ranked| Reverse(ranked.rank.1));
        all.into_iter().map(|ranked| &ranked.interval).collect()
    }

    /// Returns a note if some were left out.
    fn note(&self, what: &str) -> Option<String> {
        let kept = self.kept.len();
        (self.seen > kept as u64).then(|| {
            format!(
                "only the longest {} of {} {what} are written, to fit into a browser; -n sets the number, filters choose among them",
                units::count(kept),
                units::count(self.seen)
            )
        })
    }
}

/// An interval with its rank: its length, then its number, of which the earlier one ranks higher.
#[derive(Debug)]
struct Ranked<T> {
    rank: (i64, Reverse<u64>),
    interval: T,
}

impl<T> PartialEq for Ranked<T> {
    fn eq(&self, other: &Self) -> bool {
        self.rank == other.rank
    }
}

impl<T> Eq for Ranked<T> {}

impl<T> PartialOrd for Ranked<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Ranked<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.rank.cmp(&other.rank)
    }
}
