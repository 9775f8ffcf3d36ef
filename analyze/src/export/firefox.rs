//! A profile for the Firefox Profiler (profiler.firefox.com): the stacks of waits, and waits and holds as
//! markers.
//!
//! The profile has the "processed" format. A wait is a sample that weighs as much as it lasted, so the call
//! tree adds up waiting time; the leaf of its stack is the lock. Waits and holds are also markers with their
//! lock, site and holder. The viewer keeps all of them in the memory of a browser, so only the longest are
//! written, up to a limit; a note reports how many are left out.
//!
//! Source: <https://github.com/firefox-devtools/profiler/tree/main/docs-developer>.

use std::cmp::Reverse;

use trace_format::Trace;

use super::{
    options::Options,
    read::{ONE_CLOCK, Out, Written, open_one, read},
    stacks::Stacks,
};
use crate::first::First;
use intervals::items::{Item, Needs};
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
    let (mut waits, mut holds, mut number) = (First::new(limit), First::new(limit), 0_u64);
    let trust = read(&input, Needs::default(), true, |item, is_selected| {
        number += 1;
        match item {
            Item::Hold(hold) if is_selected => {
                holds.push(Reverse(hold.end_ns.saturating_sub(hold.start_ns)), (number, *hold));
            }
            Item::Wait(wait) if is_selected => waits.push(Reverse(wait.wait_ns), (number, *wait)),
            _ => {}
        }
    })?;
    let (waits, waits_left) = in_order(waits, "waits");
    let (holds, holds_left) = in_order(holds, "holds");
    let stacks = Stacks::read(input.trace)?;
    let mut profile = profile::Builder::new(&input, &stacks);
    waits.iter().for_each(|wait| profile.wait(wait));
    holds.iter().for_each(|hold| profile.hold(hold));
    profile.write(out)?;
    let notes = waits_left.into_iter().chain(holds_left).collect();
    Ok(Written::new(waits.len() + holds.len(), [trust], notes))
}

/// Returns the longest intervals in the order in which they ended, and a note if some were left out.
fn in_order<T>(longest: First<Reverse<i64>, (u64, T)>, what: &str) -> (Vec<T>, Option<String>) {
    let (mut kept, left_out) = longest.finish();
    kept.sort_unstable_by_key(|(number, _)| *number);
    let note = (left_out > 0).then(|| {
        format!(
            "only the longest {} of {} {what} are written, to fit into a browser; -n sets the number, filters choose among them",
            units::count(kept.len()),
            units::count(kept.len() as u64 + left_out)
        )
    });
    (kept.into_iter().map(|(_, interval)| interval).collect(), note)
}
