//! Intervals of one lock that can be read more than once: from the trace, or from memory.

use intervals::{
    input::Input,
    items::{Hold, Item, Needs, Share, Sink, Wait},
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
    /// Sends every interval, share and loss until `until_ns` into `sink`, in the order of their ends.
    fn replay(&self, until_ns: Option<i64>, sink: &mut impl Sink) -> Result<Replayed, AnalyzeError>;
}

impl Replay for Input<'_> {
    fn replay(&self, until_ns: Option<i64>, sink: &mut impl Sink) -> Result<Replayed, AnalyzeError> {
        let outcome = self.run_until(until_ns, sink)?;
        Ok(Replayed { end_ns: outcome.end_ns, cut_short: outcome.stats.cut_short })
    }
}

/// The intervals that overlap a window, in the order in which they ended.
#[derive(Debug)]
pub(super) struct Kept {
    from_ns: i64,
    items: Vec<KeptItem>,
    pub(super) end: Replayed,
}

#[derive(Debug)]
enum KeptItem {
    Hold(Hold),
    Wait(Wait),
    Share(Wait, Share),
    Lost { ts_ns: i64, count: i64 },
}

impl Kept {
    /// Keeps what ends at `from_ns` or later.
    pub(super) fn new(from_ns: i64) -> Self {
        Self { from_ns, items: Vec::new(), end: Replayed::default() }
    }
}

impl Sink for Kept {
    fn needs(&self) -> Needs {
        Needs { shares: true, ..Needs::default() }
    }

    fn push(&mut self, item: Item<'_>) {
        let (end_ns, item) = match item {
            Item::Hold(hold) => (hold.end_ns, KeptItem::Hold(*hold)),
            Item::Wait(wait) => (wait.end_ns, KeptItem::Wait(*wait)),
            Item::Share(wait, share) => {
                (share.start_ns.saturating_add(share.ns), KeptItem::Share(*wait, *share))
            }
            Item::Lost { ts_ns, count } => (ts_ns, KeptItem::Lost { ts_ns, count }),
            _ => return,
        };
        if end_ns >= self.from_ns {
            self.items.push(item);
        }
    }
}

impl Replay for Kept {
    fn replay(&self, _until_ns: Option<i64>, sink: &mut impl Sink) -> Result<Replayed, AnalyzeError> {
        for item in &self.items {
            sink.push(match item {
                KeptItem::Hold(hold) => Item::Hold(hold),
                KeptItem::Wait(wait) => Item::Wait(wait),
                KeptItem::Share(wait, share) => Item::Share(wait, share),
                &KeptItem::Lost { ts_ns, count } => Item::Lost { ts_ns, count },
            });
        }
        Ok(self.end)
    }
}
