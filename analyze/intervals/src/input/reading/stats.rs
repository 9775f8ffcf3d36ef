//! Statistics of the events of a reading: their number, their time span and the losses among them.

use rustc_hash::FxHashMap;
use trace_format::{Event, EventKind, TaskId};

use super::left_out::LeftOut;
use crate::input::selection::Selection;

/// Statistics of the events that were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadStats {
    /// Events.
    pub events: u64,
    /// The time of the first event.
    pub first_ns: i64,
    /// The latest time of an event.
    pub last_ns: i64,
    /// Events that were lost, by the `lost` events of the trace.
    pub lost: i64,
    /// Lost events by the CPU or the task that lost them.
    pub lost_by: FxHashMap<(Option<i32>, Option<TaskId>), i64>,
    /// The times of the first and the last `lost` event.
    pub lost_between: Option<(i64, i64)>,
    /// Waits that the selection leaves out because they are idle, by lock and purpose.
    pub left_out: LeftOut,
    /// Whether the window ended before the events did.
    pub cut_short: bool,
}

impl ReadStats {
    /// Counts events at these times, in the order of the file.
    pub fn add_times(&mut self, times: &[i64]) {
        let (Some(first), Some(last)) = (times.first(), times.iter().max()) else { return };
        if self.events == 0 {
            (self.first_ns, self.last_ns) = (*first, *last);
        }
        self.events += times.len() as u64;
        self.last_ns = self.last_ns.max(*last);
    }

    /// Counts an event of which all columns were read.
    pub fn add_event(&mut self, event: &Event, selection: &Selection) {
        self.add_times(&[event.ts_ns]);
        self.add_loss(event);
        if selection.leaves_out_idle() {
            self.left_out.add(event, selection);
        }
    }

    /// Adds up the losses that a `lost` event reports. Ignores other events.
    pub fn add_loss(&mut self, event: &Event) {
        if event.kind != EventKind::Lost {
            return;
        }
        let count = event.count.unwrap_or(0);
        self.lost = self.lost.saturating_add(count);
        let cpu = if event.task.is_some() { None } else { event.cpu };
        *self.lost_by.entry((cpu, event.task)).or_default() += count;
        let (first, _) = self.lost_between.unwrap_or((event.ts_ns, event.ts_ns));
        self.lost_between = Some((first, event.ts_ns));
    }

    /// Adds the waits of a batch that are left out.
    pub(super) fn merge_left_out(&mut self, left_out: LeftOut) {
        self.left_out.merge(left_out);
    }

    /// Adds the statistics of events that come later in the file.
    pub fn merge(&mut self, later: Self) {
        if later.events > 0 {
            (self.first_ns, self.last_ns) = match self.events {
                0 => (later.first_ns, later.last_ns),
                _ => (self.first_ns, self.last_ns.max(later.last_ns)),
            };
        }
        self.events += later.events;
        self.lost = self.lost.saturating_add(later.lost);
        for (key, count) in later.lost_by {
            let lost = self.lost_by.entry(key).or_default();
            *lost = lost.saturating_add(count);
        }
        self.lost_between = match (self.lost_between, later.lost_between) {
            (Some((first, _)), Some((_, last))) => Some((first, last)),
            (one, other) => one.or(other),
        };
        self.left_out.merge(later.left_out);
        self.cut_short |= later.cut_short;
    }
}
