//! The waits whose time counts, and the readings of a trace that follow their causes.
//!
//! Filters choose waits, and never change who pays. Most filters choose a wait by what is known at its begin,
//! and one reading of all rows of all locks follows the causes and counts for the trust block. Otherwise a
//! first reading decides it for each wait, and a second one follows the causes.

use rustc_hash::FxHashMap;
use trace_format::{LockId, TaskId};

use super::{
    counted::{Chosen, CountedWaits},
    pass::{Finished, Pass, PassStats},
};
use crate::{
    input::selection::Selection,
    input::trust::{Trust, TrustCounter},
    input::{Input, ReadOutcome},
    items::{Columns, Item, Sink, Wait},
};
use output::error::AnalyzeError;

/// The outcome of the readings of a trace.
pub struct Followed<R> {
    pub receiver: R,
    pub stats: PassStats,
    /// The trust block of the waits.
    pub trust: Trust,
    /// The outcome for the selected locks.
    pub outcome: ReadOutcome,
}

/// Sends the causes of the waits of the input's filter to a sink.
///
/// # Errors
///
/// The trace cannot be read, or lost too much and `allow_loss` is not set.
pub fn of_waits<R: Sink>(
    input: &Input<'_>,
    allow_loss: bool,
    receiver: impl Fn() -> R,
) -> Result<Followed<R>, AnalyzeError> {
    let selection = &input.selection;
    if selection.is_known_at_begin() {
        let (finished, outcome) = read(input, receiver(), CountedWaits::at_begin(selection))?;
        if !finished.counted.has_changed && finished.stats.late_rows == 0 {
            let trust = input.trust(finished.counted.trust, &outcome, allow_loss)?;
            return Ok(Followed { receiver: finished.receiver, stats: finished.stats, trust, outcome });
        }
    }
    let mut choosing = Choosing {
        selection,
        open: FxHashMap::default(),
        chosen: Chosen::default(),
        trust: TrustCounter::default(),
    };
    let outcome = input.run(&mut choosing)?;
    let Choosing { chosen, trust, .. } = choosing;
    let trust = input.trust(trust, &outcome, allow_loss)?;
    let (finished, _) = read(input, receiver(), CountedWaits::chosen(selection, chosen))?;
    Ok(Followed { receiver: finished.receiver, stats: finished.stats, trust, outcome })
}

/// Reads a trace and sends the causes of all waits for the selected locks to `receiver`. The outcome has the
/// waits for these locks.
pub fn of_all_waits<R: Sink>(input: &Input<'_>, receiver: R) -> Result<(R, ReadOutcome), AnalyzeError> {
    let (finished, outcome) = read(input, receiver, CountedWaits::of_locks(&input.selection))?;
    Ok((finished.receiver, outcome))
}

/// Follows all rows of a trace. The outcome has the waits for the selected locks.
fn read<'a, R: Sink>(
    input: &'a Input<'_>,
    receiver: R,
    counted: CountedWaits<'a>,
) -> Result<(Finished<'a, R>, ReadOutcome), AnalyzeError> {
    let columns = receiver.needs().columns.max(Columns::Causes);
    let mut pass = Pass::new(input.trace.info(), input.names.locks(), input.rules(), receiver, counted);
    let outcome = input.rows(columns, |row| pass.push(row))?;
    let mut finished = pass.end(outcome.end_ns);
    let (counts, deadlocks) = (finished.counts, std::mem::take(&mut finished.deadlocks));
    Ok((finished, ReadOutcome { counts, deadlocks, ..outcome }))
}

/// The first reading.
struct Choosing<'a> {
    selection: &'a Selection,
    /// Open waits: their number and begin.
    open: FxHashMap<(LockId, TaskId), (usize, i64)>,
    chosen: Chosen,
    trust: TrustCounter,
}

impl Sink for Choosing<'_> {
    fn push(&mut self, item: Item<'_>) {
        match item {
            Item::WaitBegins(wait) => {
                let number = self.chosen.push();
                self.open.insert((wait.lock, wait.task), (number, wait.start_ns));
            }
            Item::Hold(hold) => self.trust.hold(hold),
            Item::Wait(wait) => self.wait(wait),
            _ => {}
        }
    }
}

impl Choosing<'_> {
    fn wait(&mut self, wait: &Wait) {
        // One of no length counts for nothing, and may leave when the next one has begun.
        let key = (wait.lock, wait.task);
        let is_seen = wait.start_seen && wait.wait_ns > 0;
        let is_open = |(_, start_ns): &&(usize, i64)| is_seen && *start_ns == wait.start_ns;
        let number = self.open.get(&key).filter(is_open).map(|(number, _)| *number);
        if number.is_some() {
            self.open.remove(&key);
        }
        if self.selection.selects_wait(wait) {
            self.trust.wait(wait);
            number.into_iter().for_each(|number| self.chosen.choose(number));
        }
    }
}
