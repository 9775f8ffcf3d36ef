//! The first pass: finds the time span of the lock, its threads and its acquisition sites. Keeps no interval.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;
use trace_format::TaskId;

use super::chart::{LockContext, MAX_LANES, MAX_SITES};
use crate::charges::add;
use intervals::items::{Hold, HoldId, HoldState, Item, Needs, Outcome, Sink};

/// The times of each thread and each site, and the span of all of them.
#[derive(Debug)]
pub(super) struct Survey<'a> {
    context: &'a LockContext<'a>,
    window: Option<(i64, i64)>,
    /// The first begin and the last end.
    ends: Option<(i64, i64)>,
    /// Whether an interval is still open at the end of the trace.
    open: bool,
    threads: FxHashMap<TaskId, Rank>,
    sites: FxHashMap<u32, i64>,
}

/// The order of threads: the wait that it caused first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    caused_ns: i64,
    hold_ns: i64,
    wait_ns: i64,
}

impl<'a> Survey<'a> {
    /// Returns a survey of a window, or of the whole trace.
    pub(super) fn new(context: &'a LockContext<'a>, window: Option<(i64, i64)>) -> Self {
        let (threads, sites) = (FxHashMap::default(), FxHashMap::default());
        Self { context, window, ends: None, open: false, threads, sites }
    }

    /// Returns the length of the part in the window.
    fn part(&self, start_ns: i64, end_ns: i64) -> Option<(i64, i64)> {
        match self.window {
            None => Some((start_ns, end_ns)),
            Some((from, to)) if start_ns < to && (end_ns > from || start_ns >= from) => {
                Some((start_ns.max(from), end_ns.min(to)))
            }
            Some(_) => None,
        }
    }

    /// Widens the span, and returns the times of a thread and the length of the part of its interval that
    /// counts.
    fn add(&mut self, task: TaskId, start_ns: i64, end_ns: i64, open: bool) -> Option<(&mut Rank, i64)> {
        let (start, end) = self.part(start_ns, end_ns)?;
        let (first, last) = self.ends.unwrap_or((start, end));
        self.ends = Some((first.min(start), last.max(end)));
        self.open |= open;
        Some((self.threads.entry(task).or_default(), end.saturating_sub(start)))
    }

    /// Returns the span from the first interval to the last, with a margin that makes begins and ends
    /// visible.
    pub(super) fn span(&self) -> (i64, i64) {
        let context = self.context;
        let (first, last) = self.ends.unwrap_or((context.lock.first_ns, context.lock.last_ns));
        let last = last.max(first);
        let margin = (last.saturating_sub(first) / 64).max(500);
        // Not before the start of the trace; and no margin after an open end.
        let from = first.saturating_sub(margin).max(context.origin_ns.min(first));
        (from, if self.open { last } else { last.saturating_add(margin) })
    }

    /// Returns the threads that get lanes, the one that caused most waiting first, and the number of others.
    pub(super) fn lanes(&self) -> (Vec<TaskId>, usize) {
        // Threads that acquired, but whose interval is not known, come in the end.
        let mut tasks: Vec<(Rank, TaskId)> = self.threads.iter().map(|(task, rank)| (*rank, *task)).collect();
        tasks.sort_unstable_by_key(|(rank, task)| (Reverse(*rank), *task));
        let more = tasks.len().saturating_sub(MAX_LANES);
        (tasks.into_iter().take(MAX_LANES).map(|(_, task)| task).collect(), more)
    }

    /// Returns the sites, the one held longest first, and the number of others. None if no site is known.
    pub(super) fn sites(&self) -> (Vec<u32>, usize) {
        let mut sites: Vec<(i64, u32)> = self.sites.iter().map(|(site, ns)| (*ns, *site)).collect();
        if sites.iter().all(|(_, site)| *site == 0) {
            return (Vec::new(), 0);
        }
        sites.sort_unstable_by_key(|(ns, site)| (Reverse(*ns), *site));
        let kept = if sites.len() > MAX_SITES { MAX_SITES - 1 } else { sites.len() };
        let more = sites.len() - kept;
        (sites.into_iter().take(kept).map(|(_, site)| site).collect(), more)
    }
}

/// Whether the end of a hold is known.
pub(super) fn is_measured(hold: &Hold) -> bool {
    !matches!(hold.state, HoldState::AcquisitionOnly | HoldState::ReleaseUnseen)
}

impl Sink for Survey<'_> {
    fn needs(&self) -> Needs {
        Needs { shares: true, ..Needs::default() }
    }

    fn push(&mut self, item: Item<'_>) {
        match item {
            Item::Hold(hold) => self.hold(hold),
            Item::Wait(wait) => {
                let open = wait.outcome == Outcome::OpenAtEnd;
                if let Some((rank, ns)) = self.add(wait.task, wait.start_ns, wait.end_ns, open) {
                    add(&mut rank.wait_ns, ns);
                }
            }
            Item::Share(_, share) => self.charge(share.payer, share.start_ns, share.ns, 1),
            Item::Stretch(of) => self.charge(of.payer, of.start_ns, of.ns, of.waits),
            _ => {}
        }
    }
}

impl Survey<'_> {
    fn hold(&mut self, hold: &Hold) {
        let end_ns = if is_measured(hold) { hold.end_ns } else { hold.start_ns };
        let open = hold.state == HoldState::OpenAtEnd;
        let Some((rank, ns)) = self.add(hold.task, hold.start_ns, end_ns, open) else { return };
        add(&mut rank.hold_ns, ns);
        add(self.sites.entry(self.context.site(hold.stack)).or_default(), ns);
    }

    /// Adds time of this many waits to their payer.
    fn charge(&mut self, payer: Option<HoldId>, start_ns: i64, ns: i64, waits: i64) {
        let part = self.part(start_ns, start_ns.saturating_add(ns));
        if let (Some(payer), Some((from_ns, to_ns))) = (payer, part) {
            let caused_ns = &mut self.threads.entry(payer.task).or_default().caused_ns;
            add(caused_ns, to_ns.saturating_sub(from_ns).saturating_mul(waits));
        }
    }
}
