//! The intervals of a window, kept in memory so that they can be read again.

use super::replay::{Replay, Replayed};
use crate::{
    AnalyzeError,
    engine::{Hold, Share, Sink, Wait},
};

/// The intervals that overlap a window, in the order in which they ended.
#[derive(Debug)]
pub(super) struct Kept {
    from_ns: i64,
    items: Vec<Item>,
    pub(super) end: Replayed,
}

#[derive(Debug)]
enum Item {
    Hold(Hold),
    Wait(Wait),
    Share(Wait, Share),
    Lost(i64, i64),
}

impl Kept {
    /// Keeps what ends at `from_ns` or later.
    pub(super) fn new(from_ns: i64) -> Self {
        Self { from_ns, items: Vec::new(), end: Replayed::default() }
    }

    fn keep(&mut self, end_ns: i64, item: Item) {
        if end_ns >= self.from_ns {
            self.items.push(item);
        }
    }
}

impl Sink for Kept {
    const SHARES: bool = true;

    fn hold(&mut self, hold: &Hold) {
        self.keep(hold.end_ns, Item::Hold(*hold));
    }

    fn wait(&mut self, wait: &Wait) {
        self.keep(wait.end_ns, Item::Wait(*wait));
    }

    fn share(&mut self, wait: &Wait, share: &Share) {
        self.keep(share.start_ns.saturating_add(share.ns), Item::Share(*wait, *share));
    }

    fn lost(&mut self, ts_ns: i64, count: i64) {
        self.keep(ts_ns, Item::Lost(ts_ns, count));
    }
}

impl Replay for Kept {
    fn replay(&self, _until_ns: Option<i64>, sink: &mut impl Sink) -> Result<Replayed, AnalyzeError> {
        for item in &self.items {
            match item {
                Item::Hold(hold) => sink.hold(hold),
                Item::Wait(wait) => sink.wait(wait),
                Item::Share(wait, share) => sink.share(wait, share),
                Item::Lost(ts_ns, count) => sink.lost(*ts_ns, *count),
            }
        }
        Ok(self.end)
    }
}
