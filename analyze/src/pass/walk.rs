//! What is to be known of the events themselves, whatever becomes of them: how many, from when to when, and what is missing.

use rustc_hash::FxHashMap;
use trace_format::{Event, EventKind, TaskId};

use crate::scope::Chosen;

/// What was seen of the events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Walk {
    pub(crate) events: u64,
    pub(crate) first_ns: i64,
    pub(crate) last_ns: i64,
    pub(crate) lost_here: i64,
    /// Of those, by whose they are: a CPU's, or a task's.
    pub(crate) lost_by: FxHashMap<(Option<i32>, Option<TaskId>), i64>,
    /// When the first and the last loss were marked.
    pub(crate) lost_between: Option<(i64, i64)>,
    /// Waits for locks that the table leaves out because waiting for them is idling.
    pub(crate) idle_waits: u64,
    /// Whether the window ended before the events did.
    pub(crate) cut_short: bool,
}

impl Walk {
    /// Takes note of events at these times, in the order of the file.
    pub(crate) fn see(&mut self, times: &[i64]) {
        let (Some(first), Some(last)) = (times.first(), times.iter().max()) else { return };
        if self.events == 0 {
            (self.first_ns, self.last_ns) = (*first, *last);
        }
        self.events += times.len() as u64;
        self.last_ns = self.last_ns.max(*last);
    }

    /// Takes note of an event of which all columns were read.
    pub(crate) fn see_event(&mut self, event: &Event, chosen: &Chosen) {
        self.see(&[event.ts_ns]);
        self.lose(event);
        let is_idle = event.lock.is_some_and(|lock| chosen.is_idle(lock.0));
        self.idle_waits += u64::from(event.kind == EventKind::Wait && is_idle);
    }

    /// Takes note of a loss, which is an event that was seen.
    pub(crate) fn lose(&mut self, event: &Event) {
        if event.kind != EventKind::Lost {
            return;
        }
        let count = event.count.unwrap_or(0);
        self.lost_here = self.lost_here.saturating_add(count);
        let of = if event.task.is_some() { None } else { event.cpu };
        *self.lost_by.entry((of, event.task)).or_default() += count;
        let (first, _) = self.lost_between.unwrap_or((event.ts_ns, event.ts_ns));
        self.lost_between = Some((first, event.ts_ns));
    }

    /// What was seen here, and after that there.
    pub(crate) fn and(&mut self, later: Self) {
        if later.events > 0 {
            (self.first_ns, self.last_ns) = match self.events {
                0 => (later.first_ns, later.last_ns),
                _ => (self.first_ns, self.last_ns.max(later.last_ns)),
            };
        }
        self.events += later.events;
        self.lost_here = self.lost_here.saturating_add(later.lost_here);
        for (of, count) in later.lost_by {
            let lost = self.lost_by.entry(of).or_default();
            *lost = lost.saturating_add(count);
        }
        self.lost_between = match (self.lost_between, later.lost_between) {
            (Some((first, _)), Some((_, last))) => Some((first, last)),
            (one, other) => one.or(other),
        };
        self.idle_waits += later.idle_waits;
        self.cut_short |= later.cut_short;
    }
}
