//! The waits whose time counts, and the two readings of a trace that follow their causes.
//!
//! Filters choose waits, and never change who pays. Whether a wait is chosen may be known only at its end, so a first reading decides
//! it for each, and counts for the trust block. The second reading follows all rows of all locks.

use rustc_hash::FxHashMap;
use trace_format::{LockId, TaskId};

use super::{
    Receiver,
    pass::{Pass, PassStats},
    queues::WaitChoice,
};
use crate::{
    engine::{Hold, Sink, Wait},
    error::AnalyzeError,
    input::{
        Detail, Input,
        selection::Selection,
        trust::{Trust, TrustCounter},
    },
};

/// The causes of the waits of one trace.
pub(crate) struct Causes<'a, 'i> {
    input: &'a Input<'i>,
    chosen: Chosen,
    /// The trust block of the chosen waits.
    pub(crate) trust: Trust,
}

impl<'a, 'i> Causes<'a, 'i> {
    /// Reads the trace once and chooses the waits of the input's filter.
    ///
    /// # Errors
    ///
    /// The trace cannot be read, or lost too much and `allow_loss` is not set.
    pub(crate) fn of(input: &'a Input<'i>, allow_loss: bool) -> Result<Self, AnalyzeError> {
        let mut choosing = Choosing {
            selection: &input.selection,
            open: FxHashMap::default(),
            chosen: Chosen::default(),
            trust: TrustCounter::default(),
        };
        let outcome = input.run(Detail::All, &mut choosing)?;
        let Choosing { chosen, trust, .. } = choosing;
        let trust = input.trust(trust, &outcome, allow_loss)?;
        Ok(Self { input, chosen, trust })
    }

    /// Reads the trace again and sends the causes of the chosen waits to `receiver`.
    pub(crate) fn read<R: Receiver>(self, receiver: R) -> Result<(R, PassStats), AnalyzeError> {
        let Self { input, chosen, .. } = self;
        read(input, receiver, Counted { chosen, selection: &input.selection, next: 0 })
    }
}

/// Reads a trace and sends the causes of all waits for the selected locks to `receiver`.
pub(crate) fn of_all_waits<R: Receiver>(
    input: &Input<'_>,
    receiver: R,
) -> Result<(R, PassStats), AnalyzeError> {
    read(input, receiver, OfLocks(&input.selection))
}

fn read<R: Receiver>(
    input: &Input<'_>,
    receiver: R,
    choice: impl WaitChoice,
) -> Result<(R, PassStats), AnalyzeError> {
    let mut pass = Pass::new(input.trace.info(), input.names.locks(), input.rules(), receiver, choice);
    let end_ns = input.rows(|row| pass.push(row))?;
    Ok(pass.finish(end_ns))
}

/// The chosen ones of the waits for the selected locks, in the order of their begin: one bit each.
#[derive(Debug, Default)]
struct Chosen {
    bits: Vec<u64>,
    waits: usize,
}

impl Chosen {
    fn push(&mut self) -> usize {
        if self.waits.is_multiple_of(64) {
            self.bits.push(0);
        }
        self.waits += 1;
        self.waits - 1
    }

    fn choose(&mut self, wait: usize) {
        self.bits[wait / 64] |= 1 << (wait % 64);
    }

    fn has(&self, wait: usize) -> bool {
        self.bits.get(wait / 64).is_some_and(|bits| bits >> (wait % 64) & 1 == 1)
    }
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
    fn wait_begins(&mut self, wait: &Wait) {
        let number = self.chosen.push();
        self.open.insert((wait.lock, wait.task), (number, wait.start_ns));
    }

    fn hold(&mut self, hold: &Hold) {
        self.trust.hold(hold);
    }

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

/// The waits that the first reading chose.
struct Counted<'a> {
    chosen: Chosen,
    selection: &'a Selection,
    next: usize,
}

impl WaitChoice for Counted<'_> {
    fn begins(&mut self, wait: &Wait) -> bool {
        if !self.selection.selects_lock(wait.lock.0) {
            return false;
        }
        self.next += 1;
        self.chosen.has(self.next - 1)
    }

    fn inferred(&mut self, wait: &Wait) -> bool {
        self.selection.selects_lock(wait.lock.0) && self.selection.selects_wait(wait)
    }
}

/// All waits for the selected locks.
struct OfLocks<'a>(&'a Selection);

impl WaitChoice for OfLocks<'_> {
    fn begins(&mut self, wait: &Wait) -> bool {
        self.0.selects_lock(wait.lock.0)
    }

    fn inferred(&mut self, wait: &Wait) -> bool {
        self.0.selects_lock(wait.lock.0)
    }
}
