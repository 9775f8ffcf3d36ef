//! The trust block: what the numbers of a table leave out.
//!
//! A `TrustCounter` counts intervals while a table is made. With the statistics of the reading and the footer
//! of the trace it becomes a
//! [`Trust`]: losses, intervals without a begin or an end, and what the sources cannot see.

use serde::Serialize;
use trace_format::run_info::{Loss, NamedValue};

use crate::input::names::purposes::Purpose;
use output::units;

mod about;
mod counter;
mod loss;
mod text;

pub use about::About;
pub use counter::{SelectedCounter, TrustCounter};
pub(super) use loss::check;
pub(super) use text::describe;
pub use text::members;

/// Adds fields of one value to the same fields of another.
macro_rules! add {
    ($to:ident, $from:ident: $($field:ident),+) => {
        $($to.$field = $to.$field.saturating_add($from.$field);)+
    };
}

/// The trust block. Counts are of the selected locks; loss, sources and completeness are of the whole trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Trust {
    /// Events that were read.
    pub events: u64,
    /// The length of the recording without pauses, in ns.
    pub span_ns: i64,
    /// The length of the pauses, in ns.
    #[serde(skip_serializing_if = "is_zero")]
    pub paused_ns: i64,
    /// Whether the recording was begun again.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_reset: bool,
    /// Events in the trace, read or not.
    pub recorded: u64,
    /// Lost events.
    pub lost: u64,
    /// Lost events by cause, without causes that did not occur.
    pub lost_by_cause: Vec<Cause>,
    /// The CPU or task that lost most of them, and the time, as text; empty if unknown.
    pub lost_where: String,
    /// Recorded events without their stack.
    pub stacks_lost: u64,
    /// User stacks by frame pointers, because they could not be unwound: their callers are guesses.
    pub stacks_not_unwound: u64,
    /// Recorded waits without their blocked and run-queue times.
    pub wait_states_lost: u64,
    /// Events out of order in the trace.
    pub late: u64,
    /// Holds that were dropped because events were lost during them.
    pub holds_cut_by_loss: u64,
    /// Waits that were dropped because events were lost during them.
    pub waits_cut_by_loss: u64,
    /// Releases without an acquisition in the trace.
    pub unpaired_releases: u64,
    /// Holds that a task other than the owner released.
    pub hand_overs: u64,
    /// Holds that were dropped because another task got the lock before their release was seen.
    pub releases_unseen: u64,
    /// Holds that were dropped because their release is earlier than their acquisition.
    pub backwards: u64,
    /// Waits of which only the end was seen: counted in cnt_lock; their time is in no column.
    pub begin_unseen: u64,
    /// Holds that were open at the end of the trace: in no column.
    pub holds_open_at_end: u64,
    /// Waits that were open at the end of the trace: in cnt_hold only.
    pub waits_open_at_end: u64,
    /// The longest wait in `waits_open_at_end`, in ns.
    pub longest_open_wait_ns: Option<i64>,
    /// Waits that began. The sum of `cnt_hold` of all rows, `gap_waits`, `unmeasured_waits` and
    /// `uncounted_waits`, unless the table is filtered by task or time.
    pub waits_begun: u64,
    /// Waits in `waits_begun` that are charged to no hold, because no hold of another task was open: in a
    /// hand-off gap, or because the holder was not seen.
    pub gap_waits: u64,
    /// Waits in `waits_begun` that are charged to no hold, because holds of these locks are not recorded.
    pub unmeasured_waits: u64,
    /// Waits in `waits_begun` that are charged to holds without an end, which are in no column.
    pub uncounted_waits: u64,
    /// Waits that are known only from their end and length: not in cnt_hold.
    pub inferred_waits: u64,
    /// Waits that ended without the lock: in cnt_hold and wait_caused only.
    pub abandoned_waits: u64,
    /// The total length of abandoned waits, in ns.
    pub abandoned_wait_ns: i64,
    /// The total length of `waits_begun`, in ns, where holds are recorded: to their end, or until they were
    /// last observed. The sum of `wait_caused_ns` of all rows, `uncounted_wait_ns` and `gap_ns`, unless the
    /// table is filtered by task or time.
    pub waited_ns: i64,
    /// The part of `waited_ns` that is charged to no hold, because no hold of another task was open.
    pub gap_ns: i64,
    /// The part of `waited_ns` that is charged to holds without an end, which are in no column.
    pub uncounted_wait_ns: i64,
    /// Attempts that found the lock taken and did not wait: in no column.
    pub try_failures: u64,
    /// Idle waits, which tables leave out by default: all but those for locks.
    pub idle_waits: u64,
    /// The total length of `idle_waits`, in ns, until the end of the trace if they are open then.
    pub idle_wait_ns: i64,
    /// These waits by purpose.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
    /// The deadlocks among the selected locks at the end, a sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deadlocks: Vec<String>,
    /// The limits of the sources, a sentence each.
    pub limits: Vec<String>,
    /// Whether the recorder finished the file itself.
    pub complete: bool,
    /// The reason why the recording ended.
    pub stop_reason: String,
    /// Estimated cost of a probe hit by program, in ns, where it was measured.
    pub probe_cost_ns: Vec<NamedValue>,
}

fn is_zero(ns: &i64) -> bool {
    *ns == 0
}

/// The cause that more memory would have prevented.
const RING_FULL: &str = "the ring was full";
/// The cause in an unfinished file.
const UNKNOWN: &str = "of an unknown cause";

/// The events that were lost for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// The reason.
    pub cause: &'static str,
    /// The number of events.
    pub events: u64,
}

impl Cause {
    /// Returns the causes that occurred.
    pub fn all_of(loss: &Loss) -> Vec<Self> {
        [
            (RING_FULL, loss.ring_full),
            ("klock was recording another event of the task", loss.guard),
            ("what a probe had to remember found no place", loss.no_place),
            ("the kernel skipped the probe", loss.recursion_misses),
            ("the record made no sense", loss.undecodable),
        ]
        .into_iter()
        .filter(|(_, events)| *events > 0)
        .map(|(cause, events)| Self { cause, events })
        .collect()
    }

    /// Returns the cause of losses that no counter explains.
    pub(super) fn unknown(events: u64) -> Self {
        Self { cause: UNKNOWN, events }
    }
}

/// Returns several causes as text: `2 because the ring was full, 1 because the record made no sense`.
pub fn each_because(causes: &[Cause]) -> String {
    let because = |of: &Cause| format!("{} because {}", units::exact(of.events), of.cause);
    causes.iter().map(because).collect::<Vec<_>>().join(", ")
}

/// The idle waits of one purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// The purpose.
    pub purpose: Purpose,
    /// The condition variables, semaphores and so on that they were for.
    pub objects: u64,
    /// The waits.
    pub waits: u64,
    /// Their total length, in ns, as far as their end was seen.
    pub wait_ns: i64,
}

impl Trust {
    /// The time of waits for a purpose that are left out, in ns, as far as their end was seen.
    pub fn left_out_ns(&self, purpose: Purpose) -> i64 {
        let waits = self.left_out.iter().filter(|left_out| left_out.purpose == purpose);
        waits.map(|left_out| left_out.wait_ns).fold(0, i64::saturating_add)
    }

    /// Returns the trust of several traces together.
    pub fn merged(trusts: impl IntoIterator<Item = Self>) -> Self {
        let merge = |mut all: Self, trust| {
            all.merge(trust);
            all
        };
        trusts.into_iter().reduce(merge).unwrap_or_default()
    }

    /// Adds the trust of another trace.
    fn merge(&mut self, other: Self) {
        if other.lost > self.lost {
            self.lost_where = other.lost_where;
        }
        add!(self, other: events, span_ns, recorded, lost, stacks_lost, stacks_not_unwound, wait_states_lost, late);
        add!(self, other: holds_cut_by_loss, waits_cut_by_loss, unpaired_releases, hand_overs, releases_unseen);
        add!(self, other: backwards, begin_unseen, holds_open_at_end, waits_open_at_end, waits_begun, waited_ns);
        add!(self, other: gap_waits, gap_ns, unmeasured_waits, uncounted_waits, uncounted_wait_ns);
        add!(self, other: inferred_waits, abandoned_waits, abandoned_wait_ns, try_failures, idle_waits);
        add!(self, other: idle_wait_ns, paused_ns);
        self.is_reset |= other.is_reset;
        for new in other.left_out {
            match self.left_out.iter_mut().find(|known| known.purpose == new.purpose) {
                Some(known) => {
                    add!(known, new: objects, waits, wait_ns);
                }
                None => self.left_out.push(new),
            }
        }
        self.left_out.sort_by_key(|left_out| left_out.purpose);
        self.longest_open_wait_ns = self.longest_open_wait_ns.max(other.longest_open_wait_ns);
        for cause in other.lost_by_cause {
            match self.lost_by_cause.iter_mut().find(|known| known.cause == cause.cause) {
                Some(known) => known.events = known.events.saturating_add(cause.events),
                None => self.lost_by_cause.push(cause),
            }
        }
        self.deadlocks.extend(other.deadlocks);
        let new = other.limits.into_iter().filter(|limit| !self.limits.contains(limit));
        let new: Vec<String> = new.collect();
        self.limits.extend(new);
        self.complete &= other.complete;
        if self.stop_reason != other.stop_reason {
            self.stop_reason = format!("{}; {}", self.stop_reason, other.stop_reason);
        }
        for cost in other.probe_cost_ns {
            if !self.probe_cost_ns.iter().any(|known| known.name == cost.name) {
                self.probe_cost_ns.push(cost);
            }
        }
    }
}
