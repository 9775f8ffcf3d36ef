//! Intervals of one lock that can be read more than once: from the trace, or from memory.

use intervals::{
    input::Input,
    items::{Hold, Item, Needs, Share, Sink, Stretch, Wait},
};
use output::AnalyzeError;

/// The end of a replay.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Replayed {
    /// The end of the trace, or of what was read of it.
    pub(crate) end_ns: i64,
    /// Whether the trace goes on.
    pub(crate) cut_short: bool,
}

/// Intervals of one lock that can be read repeatedly.
pub(crate) trait Replay {
    /// Sends every interval, share and loss until `until_ns` into `sink`; what is of one kind is in the order
    /// of its ends.
    fn replay(&self, until_ns: Option<i64>, sink: &mut impl Sink) -> Result<Replayed, AnalyzeError>;
}

impl Replay for Input<'_> {
    fn replay(&self, until_ns: Option<i64>, sink: &mut impl Sink) -> Result<Replayed, AnalyzeError> {
        let outcome = self.run_until(until_ns, sink)?;
        Ok(Replayed { end_ns: outcome.end_ns, cut_short: outcome.stats.cut_short })
    }
}

/// The intervals that overlap a window, by kind.
#[derive(Debug, Default)]
pub(super) struct Kept {
    from_ns: i64,
    holds: Vec<Hold>,
    waits: Vec<Wait>,
    stretches: Vec<Stretch>,
    /// Of waits that have their own.
    shares: Vec<(Wait, Share)>,
    losses: Vec<(i64, i64)>,
    pub(super) end: Replayed,
}

impl Kept {
    /// Keeps what ends at `from_ns` or later.
    pub(super) fn new(from_ns: i64) -> Self {
        Self { from_ns, ..Self::default() }
    }
}

impl Sink for Kept {
    fn needs(&self) -> Needs {
        Needs { shares: true, ..Needs::default() }
    }

    fn push(&mut self, item: Item<'_>) {
        let is_kept = |end_ns: i64| end_ns >= self.from_ns;
        match item {
            Item::Hold(hold) if is_kept(hold.end_ns) => self.holds.push(*hold),
            Item::Wait(wait) if is_kept(wait.end_ns) => self.waits.push(*wait),
            Item::Stretch(of) if is_kept(of.start_ns.saturating_add(of.ns)) => self.stretches.push(*of),
            Item::Share(wait, share) if is_kept(share.start_ns.saturating_add(share.ns)) => {
                self.shares.push((*wait, *share));
            }
            Item::Lost { ts_ns, count } if is_kept(ts_ns) => self.losses.push((ts_ns, count)),
            _ => {}
        }
    }
}

impl Replay for Kept {
    fn replay(&self, _until_ns: Option<i64>, sink: &mut impl Sink) -> Result<Replayed, AnalyzeError> {
        self.holds.iter().for_each(|hold| sink.push(Item::Hold(hold)));
        self.waits.iter().for_each(|wait| sink.push(Item::Wait(wait)));
        self.stretches.iter().for_each(|stretch| sink.push(Item::Stretch(stretch)));
        self.shares.iter().for_each(|(wait, share)| sink.push(Item::Share(wait, share)));
        self.losses.iter().for_each(|&(ts_ns, count)| sink.push(Item::Lost { ts_ns, count }));
        Ok(self.end)
    }
}
