//! Queues of waiting tasks and their fairness, per lock: episodes and overtaking.
//!
//! The holds and waits of one lock are added in the order of the trace. Time passes between two of them, and
//! the events of one nanosecond are settled when the next one begins, so their order does not matter.

use std::collections::VecDeque;

use trace_format::{Mode, TaskId};

use crate::frame::sums;
use intervals::engine::{Hold, Outcome, Wait};

sums! {
    /// The sums of a lock or of several.
    pub struct QueueSums {
        convoys: Sum,
        convoy_wait_ns: Sum,
        saturated_wait_ns: Sum,
        overtakes: Sum,
        overtaken_max: Max,
        /// The division of hold time among tasks, of all locks of a row.
        jain_ppm: Max,
        hog_ppm: Max,
    }
}

/// A maximal time in which a task waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Episode {
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
    /// Acquisitions after its start, up to and with its end.
    pub(super) acquisitions: i64,
    /// The time with an open hold.
    pub(super) hold_ns: i64,
    /// The time of all waits.
    pub(super) wait_ns: i64,
    /// The first of its owners.
    owner: Option<TaskId>,
    has_several_owners: bool,
}

/// An open wait.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    task: TaskId,
    start_ns: i64,
    mode: Mode,
    /// The number of acquisitions that overtook it.
    overtaken: i64,
}

/// An acquisition in the current nanosecond.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    task: TaskId,
    mode: Mode,
    /// The time at which the task came.
    came_ns: i64,
}

/// The queue of one lock. Holds without waits change the first fields alone.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub struct LockQueue {
    now_ns: i64,
    open_holds: i64,
    episode: Option<Episode>,
    /// Acquisitions in the current nanosecond.
    arrivals: Vec<Arrival>,
    /// In the order in which they began.
    waiting: VecDeque<Waiting>,
    /// The number of acquisitions from which on an episode is a convoy or saturated.
    min_acquisitions: i64,
    pub sums: QueueSums,
    #[cfg(test)]
    pub(super) episodes: Vec<Episode>,
}

impl LockQueue {
    pub fn new(min_acquisitions: i64) -> Self {
        Self { min_acquisitions, ..Self::default() }
    }

    pub fn wait_begins(&mut self, wait: &Wait) {
        self.advance(wait.start_ns);
        self.episode.get_or_insert(Episode { start_ns: self.now_ns, ..Episode::default() });
        let Wait { task, mode, start_ns, .. } = *wait;
        self.waiting.push_back(Waiting { task, mode, start_ns, overtaken: 0 });
    }

    #[inline]
    pub fn acquired(&mut self, hold: &Hold) {
        if hold.acquisitions > 1 {
            // A further acquisition within a hold takes the lock from no task.
            return;
        }
        self.advance(hold.start_ns);
        self.open_holds += 1;
        // While no task waits, none is overtaken: most acquisitions of most locks. A task that comes in the
        // same nanosecond is not, either.
        if self.episode.is_some() {
            let came_ns = hold.wait_ns.map_or(self.now_ns, |wait_ns| self.now_ns.saturating_sub(wait_ns));
            self.arrivals.push(Arrival { task: hold.task, mode: hold.mode, came_ns });
        }
    }

    #[inline]
    pub fn hold(&mut self, hold: &Hold) {
        self.advance(hold.end_ns);
        self.open_holds -= 1;
    }

    /// Ends a wait. A wait without a seen begin changes nothing.
    pub fn wait(&mut self, wait: &Wait) {
        self.advance(wait.end_ns);
        let is_it = |waiting: &Waiting| {
            wait.start_seen && waiting.task == wait.task && waiting.start_ns == wait.start_ns
        };
        let Some(at) = self.waiting.iter().position(is_it) else { return };
        let Some(waiting) = self.waiting.remove(at) else { return };
        self.sums.overtaken_max = self.sums.overtaken_max.max(waiting.overtaken);
        if wait.outcome == Outcome::CutByLoss && self.waiting.is_empty() {
            self.settle();
            self.close();
        }
    }

    /// Ends the trace.
    pub fn finish(&mut self) {
        self.settle();
        self.close();
    }

    #[inline]
    fn advance(&mut self, now_ns: i64) {
        if now_ns <= self.now_ns {
            return;
        }
        if self.episode.is_some() {
            self.pass(now_ns);
        }
        self.now_ns = now_ns;
    }

    /// Lets the time of an episode pass.
    fn pass(&mut self, now_ns: i64) {
        self.settle();
        if self.waiting.is_empty() {
            self.close();
        } else if let Some(episode) = &mut self.episode {
            let ns = now_ns.saturating_sub(self.now_ns);
            let waiting = i64::try_from(self.waiting.len()).unwrap_or(i64::MAX);
            episode.wait_ns = episode.wait_ns.saturating_add(ns.saturating_mul(waiting));
            episode.hold_ns += if self.open_holds > 0 { ns } else { 0 };
        }
    }

    /// Settles the acquisitions of the current nanosecond, whose events are all known.
    fn settle(&mut self) {
        self.arrivals.sort_by_key(|arrival| arrival.task);
        for Arrival { task, mode, came_ns } in self.arrivals.drain(..) {
            let is_earlier = |waiting: &&mut Waiting| waiting.start_ns < came_ns;
            let is_overtaken = |waiting: &&mut Waiting| {
                waiting.task != task && (mode == Mode::Exclusive || waiting.mode == Mode::Exclusive)
            };
            for waiting in self.waiting.iter_mut().take_while(is_earlier).filter(is_overtaken) {
                waiting.overtaken += 1;
                self.sums.overtakes += 1;
                self.sums.overtaken_max = self.sums.overtaken_max.max(waiting.overtaken);
            }
            if let Some(episode) = self.episode.as_mut().filter(|episode| episode.start_ns < self.now_ns) {
                episode.acquisitions += 1;
                let owner = *episode.owner.get_or_insert(task);
                episode.has_several_owners |= owner != task;
            }
        }
    }

    /// Ends the episode, if there is one, at the current nanosecond.
    fn close(&mut self) {
        let Some(mut episode) = self.episode.take() else { return };
        episode.end_ns = self.now_ns;
        let gap_ns = episode.end_ns - episode.start_ns - episode.hold_ns;
        if episode.acquisitions >= self.min_acquisitions {
            if gap_ns < episode.hold_ns {
                self.sums.saturated_wait_ns = self.sums.saturated_wait_ns.saturating_add(episode.wait_ns);
            } else if episode.has_several_owners {
                self.sums.convoys += 1;
                self.sums.convoy_wait_ns = self.sums.convoy_wait_ns.saturating_add(episode.wait_ns);
            }
        }
        #[cfg(test)]
        self.episodes.push(episode);
    }
}

#[cfg(test)]
mod tests;
