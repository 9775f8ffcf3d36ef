//! A profile for the Firefox Profiler (profiler.firefox.com): where each thread waited, and its waits and holds as markers.
//!
//! Holds and waits enter, a profile in its "processed" format leaves. A wait is a sample that weighs as long as it lasted, so the call
//! tree adds up waiting time; the leaf of its stack is the lock. Waits and holds are also markers, with their lock, place and holder.
//! A viewer keeps all of them in the memory of a browser, so only the longest are written, as many as [`Options::markers`] says; what is
//! left out is told. The format: <https://github.com/firefox-devtools/profiler/tree/main/docs-developer>.

use std::{cmp::Reverse, collections::BinaryHeap, io::Write};

use trace_format::Trace;

use super::{Options as All, Written, stacks::Stacks};
use crate::{
    error::AnalyzeError,
    intervals::{Hold, Sink, Wait},
    names::Names,
    pass::{Detail, Pass},
    report::trust::Watch,
    scope::Chosen,
    units,
};

mod markers;
mod profile;
#[cfg(test)]
mod tests;
mod weights;

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// At most so many waits and so many holds, the longest.
    pub markers: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { markers: 50_000 }
    }
}

/// Writes the profile; `items` counts waits and holds.
pub(super) fn write(trace: &Trace, all: &All, out: &mut (dyn Write + Send)) -> Result<Written, AnalyzeError> {
    let names = Names::read(trace)?;
    let chosen = Chosen::of(trace, &names, &all.filter)?;
    let mut longest = Longest::new(&chosen, all.firefox.markers);
    let walked = Pass { trace, names: &names, chosen: &chosen, detail: Detail::All }.run(&mut longest)?;
    let notes = longest.notes();
    let trust = longest.watch.block(trace, (&walked.0, &walked.1), &chosen, &names);
    let (waits, holds) = (in_order(longest.waits), in_order(longest.holds));

    let stacks = Stacks::read(trace)?;
    let mut profile = profile::Building::new(trace, &names, &stacks, chosen.start_ns);
    for wait in &waits {
        profile.wait(wait);
    }
    for hold in &holds {
        profile.hold(hold);
    }
    profile.write(out)?;
    Ok(Written { items: (waits.len() + holds.len()) as u64, trust, notes })
}

/// An interval with what it is chosen by: how long it lasted, and which of equally long ones came first.
#[derive(Debug)]
struct Ranked<T> {
    rank: (i64, Reverse<u64>),
    of: T,
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

/// Keeps the longest waits and holds.
struct Longest<'a> {
    chosen: &'a Chosen,
    most: usize,
    /// The shortest of them on top.
    waits: BinaryHeap<Reverse<Ranked<Wait>>>,
    holds: BinaryHeap<Reverse<Ranked<Hold>>>,
    waits_seen: u64,
    holds_seen: u64,
    watch: Watch,
}

impl<'a> Longest<'a> {
    fn new(chosen: &'a Chosen, most: usize) -> Self {
        let (waits, holds) = (BinaryHeap::new(), BinaryHeap::new());
        Self { chosen, most, waits, holds, waits_seen: 0, holds_seen: 0, watch: Watch::default() }
    }

    fn notes(&self) -> Vec<String> {
        let left_out = |what: &str, seen: u64, kept: usize| {
            let left = seen - kept as u64;
            (left > 0).then(|| {
                format!(
                    "the longest {} of {} {what} are written, a browser would not stand more; --markers sets how many, filters choose which",
                    units::count(kept as i64),
                    units::count(i64::try_from(seen).unwrap_or(i64::MAX))
                )
            })
        };
        let waits = left_out("waits", self.waits_seen, self.waits.len());
        waits.into_iter().chain(left_out("holds", self.holds_seen, self.holds.len())).collect()
    }
}

fn keep<T>(heap: &mut BinaryHeap<Reverse<Ranked<T>>>, most: usize, rank: (i64, Reverse<u64>), of: T) {
    heap.push(Reverse(Ranked { rank, of }));
    if heap.len() > most {
        heap.pop();
    }
}

/// In the order in which they ended.
fn in_order<T>(heap: BinaryHeap<Reverse<Ranked<T>>>) -> Vec<T> {
    let mut all: Vec<Ranked<T>> = heap.into_iter().map(|Reverse(ranked)| ranked).collect();
    all.sort_by_key(|ranked| Reverse(ranked.rank.1));
    all.into_iter().map(|ranked| ranked.of).collect()
}

impl Sink for Longest<'_> {
    fn hold(&mut self, hold: &Hold) {
        if !self.chosen.wants_hold(hold) {
            return;
        }
        self.watch.hold(hold);
        self.holds_seen += 1;
        let rank = (hold.end_ns.saturating_sub(hold.start_ns), Reverse(self.holds_seen));
        keep(&mut self.holds, self.most, rank, *hold);
    }

    fn wait(&mut self, wait: &Wait) {
        if !self.chosen.wants_wait(wait) {
            return;
        }
        self.watch.wait(wait);
        self.waits_seen += 1;
        keep(&mut self.waits, self.most, (wait.wait_ns, Reverse(self.waits_seen)), *wait);
    }
}
