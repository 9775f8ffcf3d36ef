//! A profile for the Firefox Profiler (profiler.firefox.com): the stacks of waits, and waits and holds as markers.
//!
//! The profile has the "processed" format. A wait is a sample that weighs as much as it lasted, so the
//! call tree adds up waiting time; the leaf of its stack is the lock. Waits and holds are also markers with their lock, site and
//! holder. The viewer keeps all of them in the memory of a browser, so only the longest are written, up to a limit; a
//! note reports how many are left out.
//!
//! Source: <https://github.com/firefox-devtools/profiler/tree/main/docs-developer>.

use std::cmp::Reverse;

use trace_format::Trace;

use super::{
    options::Options,
    read::{ONE_CLOCK, Out, Written, open_one, read},
    stacks::Stacks,
};
use intervals::items::{Hold, Item, Needs, Wait};
use output::{error::AnalyzeError, units};

mod markers;
mod profile;
#[cfg(test)]
mod tests;
mod weights;

/// The most waits, and holds, unless another number is given.
const LIMIT: usize = 50_000;

/// Writes the profile of the trace.
pub(super) fn write(traces: &[Trace], options: &Options, out: Out<'_>) -> Result<Written, AnalyzeError> {
    let input = open_one(traces, options, ONE_CLOCK)?;
    let limit = options.limit.unwrap_or(LIMIT);
    let (mut waits, mut holds) = (Longest::<Wait>::new(limit), Longest::<Hold>::new(limit));
    let trust = read(&input, Needs::default(), true, |item, is_selected| match item {
        Item::Hold(hold) if is_selected => holds.add(hold.end_ns.saturating_sub(hold.start_ns), *hold),
        Item::Wait(wait) if is_selected => waits.add(wait.wait_ns, *wait),
        _ => {}
    })?;
    let (waits, waits_left) = waits.finish("waits");
    let (holds, holds_left) = holds.finish("holds");
    let stacks = Stacks::read(input.trace)?;
    let mut profile = profile::Builder::new(&input, &stacks);
    waits.iter().for_each(|wait| profile.wait(wait));
    holds.iter().for_each(|hold| profile.hold(hold));
    profile.write(out)?;
    let notes = waits_left.into_iter().chain(holds_left).collect();
    Ok(Written::new(waits.len() + holds.len(), [trust], notes))
}

/// The longest intervals so far.
struct Longest<T> {
    limit: usize,
    /// Lengths in ns, numbers in the order of ends, and intervals.
    kept: Vec<(i64, usize, T)>,
    seen: usize,
}

impl<T> Longest<T> {
    fn new(limit: usize) -> Self {
        Self { limit, kept: Vec::new(), seen: 0 }
    }

    fn add(&mut self, ns: i64, interval: T) {
        self.kept.push((ns, self.seen, interval));
        self.seen += 1;
        // Twice the number, so that thinning costs a step per interval.
        if self.kept.len() > self.limit.saturating_mul(2) {
            self.thin();
        }
    }

    /// Removes the shortest; of equal ones, those that ended last.
    fn thin(&mut self) {
        self.kept.sort_unstable_by_key(|(ns, number, _)| (Reverse(*ns), *number));
        self.kept.truncate(self.limit);
    }

    /// Returns the intervals in the order in which they ended, and a note if some were left out.
    fn finish(mut self, what: &str) -> (Vec<T>, Option<String>) {
        self.thin();
        self.kept.sort_unstable_by_key(|(_, number, _)| *number);
        let kept = self.kept.len();
        let note = (self.seen > kept).then(|| {
            format!(
                "only the longest {} of {} {what} are written, to fit into a browser; -n sets the number, filters choose among them",
                units::count(kept),
                units::count(self.seen)
            )
        });
        (self.kept.into_iter().map(|(.., interval)| interval).collect(), note)
    }
}
