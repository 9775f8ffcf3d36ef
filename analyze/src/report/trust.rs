//! What the numbers of a report don't hold: what was lost, what had no begin or no end, what the sources could not
//! see. Counted while the report is made, printed with it.

use std::io::{self, Write};

use serde::Serialize;
use trace_format::{Trace, run_info::Named};

use crate::{
    intervals::{Counts, Hold, HoldState, Outcome, Wait},
    layout::Look,
    loss,
    names::{Names, printable},
    pass::Walk,
    scope::Chosen,
    units,
};

mod words;

pub use words::About;
use words::Line;

/// The trust block. Counts are of the locks that the report is about; loss, sources and completeness are of the trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Trust {
    /// Events that were read.
    pub events: u64,
    /// From the begin of the recording to its end, in ns.
    pub span_ns: i64,
    /// Events that the trace holds, read or not.
    pub recorded: u64,
    /// Events that are missing.
    pub lost: u64,
    /// The same by cause, only causes that occurred.
    pub lost_by_cause: Vec<Cause>,
    /// Where most of them are missing, and when, in words; empty if the trace does not say.
    pub lost_where: String,
    /// Of the recorded events: those whose stack is missing.
    pub stacks_lost: u64,
    /// Of the recorded waits: those whose blocked and run-queue times are missing.
    pub wait_states_lost: u64,
    /// Events that are in the trace out of order.
    pub late: u64,
    /// Holds that were dropped because events were lost while they lasted.
    pub holds_cut_by_loss: u64,
    /// Waits that were dropped because events were lost while they lasted.
    pub waits_cut_by_loss: u64,
    /// Releases by a task that held nothing: it acquired before the recording, or unseen.
    pub unpaired_releases: u64,
    /// Holds that another task than the owner released.
    pub hand_overs: u64,
    /// Holds that were dropped because somebody else got the lock before their release was seen.
    pub releases_unseen: u64,
    /// Holds that were dropped because their release is earlier than their acquisition.
    pub backwards: u64,
    /// Waits whose end was seen and whose begin was not: counted in cnt_lock, their time in no column.
    pub begin_unseen: u64,
    /// Holds without an end: in no column.
    pub holds_open_at_end: u64,
    /// Waits without an end: in no column but cnt_hold.
    pub waits_open_at_end: u64,
    /// The longest of those so far, in ns.
    pub longest_open_wait_ns: Option<i64>,
    /// Waits that began. `cnt_hold` of all rows, `gap_waits`, `unmeasured_waits` and `uncounted_waits` add up to it,
    /// unless the report is of some tasks or some time only.
    pub waits_begun: u64,
    /// Of those: charged to nobody, because no hold of another task was open: the lock was being handed over, or its
    /// holder was not seen.
    pub gap_waits: u64,
    /// Of those: charged to nobody, because holds of such locks are not recorded.
    pub unmeasured_waits: u64,
    /// Of those: charged to holds that are in no column, because they have no end.
    pub uncounted_waits: u64,
    /// Waits that are known only from their end and length: in no cnt_hold.
    pub inferred_waits: u64,
    /// Waits that ended without the lock: in cnt_hold and wait_caused only.
    pub abandoned_waits: u64,
    /// How long those lasted together, in ns.
    pub abandoned_wait_ns: i64,
    /// How long all waits lasted that began, in ns, where holds are recorded: however they ended, or until they were last
    /// seen. `wait_caused_ns` of all rows, `uncounted_wait_ns` and `gap_ns` add up to it, unless the report is of some
    /// tasks or some time only.
    pub waited_ns: i64,
    /// Of that: charged to nobody, because no hold of another task was open.
    pub gap_ns: i64,
    /// Of that: charged to holds that are in no column, because they have no end.
    pub uncounted_wait_ns: i64,
    /// Attempts that did not wait and found the lock taken: in no column.
    pub try_failures: u64,
    /// Waits on condition variables, semaphores and barriers, which the report leaves out.
    pub idle_waits: u64,
    /// What the sources can't see, a sentence each.
    pub limits: Vec<String>,
    /// Whether the recorder finished the file itself.
    pub complete: bool,
    /// Why the recording ended.
    pub stop_reason: String,
    /// Estimated cost of a probe hit in ns, by program, where it was measured.
    pub probe_cost_ns: Vec<Named>,
}

/// How many events one cause has cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// In words.
    pub cause: &'static str,
    /// Events.
    pub events: u64,
}

/// The cause that more memory would have prevented.
const RING: &str = "the ring was full";

/// The cause where the recorder could not write any down.
const UNFINISHED: &str = "of an unknown cause";

/// Counts intervals for the trust block.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    holds_cut_by_loss: u64,
    waits_cut_by_loss: u64,
    holds_open_at_end: u64,
    waits_open_at_end: u64,
    longest_open_wait_ns: Option<i64>,
    uncounted_waits: i64,
    uncounted_wait_ns: i64,
    abandoned_waits: u64,
    abandoned_wait_ns: i64,
}

impl Watch {
    pub(crate) fn hold(&mut self, hold: &Hold) {
        match hold.state {
            HoldState::Complete | HoldState::AcquisitionOnly => return,
            HoldState::OpenAtEnd => self.holds_open_at_end += 1,
            HoldState::CutByLoss => self.holds_cut_by_loss += 1,
            HoldState::ReleaseUnseen | HoldState::Backwards => {}
        }
        self.uncounted_waits += hold.waits_begun;
        self.uncounted_wait_ns = self.uncounted_wait_ns.saturating_add(hold.wait_caused_ns);
    }

    pub(crate) fn wait(&mut self, wait: &Wait) {
        match wait.outcome {
            Outcome::Acquired => {}
            Outcome::Abandoned(_) => {
                self.abandoned_waits += 1;
                self.abandoned_wait_ns = self.abandoned_wait_ns.saturating_add(wait.wait_ns);
            }
            Outcome::CutByLoss => self.waits_cut_by_loss += 1,
            Outcome::OpenAtEnd => {
                self.waits_open_at_end += 1;
                self.longest_open_wait_ns =
                    self.longest_open_wait_ns.max(Some(wait.end_ns.saturating_sub(wait.start_ns)));
            }
        }
    }

    /// What was seen here and there.
    #[must_use]
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            holds_cut_by_loss: self.holds_cut_by_loss + other.holds_cut_by_loss,
            waits_cut_by_loss: self.waits_cut_by_loss + other.waits_cut_by_loss,
            holds_open_at_end: self.holds_open_at_end + other.holds_open_at_end,
            waits_open_at_end: self.waits_open_at_end + other.waits_open_at_end,
            longest_open_wait_ns: self.longest_open_wait_ns.max(other.longest_open_wait_ns),
            uncounted_waits: self.uncounted_waits + other.uncounted_waits,
            uncounted_wait_ns: self.uncounted_wait_ns.saturating_add(other.uncounted_wait_ns),
            abandoned_waits: self.abandoned_waits + other.abandoned_waits,
            abandoned_wait_ns: self.abandoned_wait_ns.saturating_add(other.abandoned_wait_ns),
        }
    }

    pub(crate) fn block(
        self,
        trace: &Trace,
        (walk, counts): (&Walk, &Counts),
        chosen: &Chosen,
        names: &Names,
    ) -> Trust {
        let kinds = chosen.kinds(names);
        let info = trace.info();
        let loss = &info.loss;
        let recorded_ns = info.span_ns();
        let mut lost_by_cause: Vec<Cause> = [
            (RING, loss.ring_full),
            ("the probe was already running", loss.guard),
            ("what a probe had to remember found no place", loss.no_place),
            ("the kernel skipped the probe", loss.recursion_misses),
            ("the record made no sense", loss.undecodable),
        ]
        .into_iter()
        .filter(|(_, events)| *events > 0)
        .map(|(cause, events)| Cause { cause, events })
        .collect();
        let here = u64::try_from(walk.lost_here).unwrap_or(0);
        if lost_by_cause.is_empty() && here > 0 {
            // An unfinished file has no counters in its footer; the marks in the events are what is known.
            lost_by_cause.push(Cause { cause: UNFINISHED, events: here });
        }
        let limits = info
            .sources
            .iter()
            .filter(|source| kinds.iter().any(|kind| source.kinds.iter().any(|k| k == kind.as_str())))
            .flat_map(|source| source.limits.iter().cloned())
            .collect();
        Trust {
            events: walk.events,
            span_ns: if recorded_ns > 0 { recorded_ns } else { walk.last_ns.saturating_sub(walk.first_ns) },
            recorded: trace.event_count(),
            lost: lost_by_cause.iter().map(|cause| cause.events).sum(),
            lost_by_cause,
            lost_where: loss::place(walk, chosen.start_ns, names),
            stacks_lost: loss.stacks,
            wait_states_lost: loss.wait_states,
            late: loss.late,
            holds_cut_by_loss: self.holds_cut_by_loss,
            waits_cut_by_loss: self.waits_cut_by_loss,
            unpaired_releases: counts.unpaired_releases,
            hand_overs: counts.hand_overs,
            releases_unseen: counts.releases_unseen,
            backwards: counts.backwards,
            begin_unseen: counts.begin_unseen,
            holds_open_at_end: self.holds_open_at_end,
            waits_open_at_end: self.waits_open_at_end,
            longest_open_wait_ns: self.longest_open_wait_ns,
            waits_begun: counts.waits_begun,
            gap_waits: counts.gap_waits,
            unmeasured_waits: counts.unmeasured_waits,
            uncounted_waits: u64::try_from(self.uncounted_waits).unwrap_or(0),
            inferred_waits: counts.inferred_waits,
            abandoned_waits: self.abandoned_waits,
            abandoned_wait_ns: self.abandoned_wait_ns,
            waited_ns: counts.waited_ns,
            gap_ns: counts.gap_ns,
            uncounted_wait_ns: self.uncounted_wait_ns,
            try_failures: counts.try_failures,
            idle_waits: walk.idle_waits,
            limits,
            complete: info.complete,
            stop_reason: info.stop_reason.clone(),
            probe_cost_ns: info.probe_cost_ns.clone(),
        }
    }
}

impl Trust {
    pub(crate) fn lost_in_rings(&self) -> bool {
        self.lost_by_cause.iter().any(|cause| cause.cause == RING)
    }

    /// Writes the warning, if there is one to give before a table.
    pub(crate) fn warn(&self, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
        self.warning().map_or(Ok(()), |warning| writeln!(out, "{warning}\n"))
    }

    /// What the numbers of two traces don't hold.
    pub(crate) fn and(mut self, other: Self) -> Self {
        let counts: [(&mut u64, u64); 22] = [
            (&mut self.events, other.events),
            (&mut self.recorded, other.recorded),
            (&mut self.stacks_lost, other.stacks_lost),
            (&mut self.wait_states_lost, other.wait_states_lost),
            (&mut self.late, other.late),
            (&mut self.holds_cut_by_loss, other.holds_cut_by_loss),
            (&mut self.waits_cut_by_loss, other.waits_cut_by_loss),
            (&mut self.unpaired_releases, other.unpaired_releases),
            (&mut self.hand_overs, other.hand_overs),
            (&mut self.releases_unseen, other.releases_unseen),
            (&mut self.backwards, other.backwards),
            (&mut self.begin_unseen, other.begin_unseen),
            (&mut self.holds_open_at_end, other.holds_open_at_end),
            (&mut self.waits_open_at_end, other.waits_open_at_end),
            (&mut self.waits_begun, other.waits_begun),
            (&mut self.gap_waits, other.gap_waits),
            (&mut self.unmeasured_waits, other.unmeasured_waits),
            (&mut self.uncounted_waits, other.uncounted_waits),
            (&mut self.inferred_waits, other.inferred_waits),
            (&mut self.abandoned_waits, other.abandoned_waits),
            (&mut self.try_failures, other.try_failures),
            (&mut self.idle_waits, other.idle_waits),
        ];
        for (sum, more) in counts {
            *sum = sum.saturating_add(more);
        }
        let times: [(&mut i64, i64); 5] = [
            (&mut self.span_ns, other.span_ns),
            (&mut self.abandoned_wait_ns, other.abandoned_wait_ns),
            (&mut self.waited_ns, other.waited_ns),
            (&mut self.gap_ns, other.gap_ns),
            (&mut self.uncounted_wait_ns, other.uncounted_wait_ns),
        ];
        for (sum, more) in times {
            *sum = sum.saturating_add(more);
        }
        for cause in other.lost_by_cause {
            match self.lost_by_cause.iter_mut().find(|known| known.cause == cause.cause) {
                Some(known) => known.events = known.events.saturating_add(cause.events),
                None => self.lost_by_cause.push(cause),
            }
        }
        if other.lost > self.lost {
            self.lost_where = other.lost_where;
        }
        self.lost = self.lost.saturating_add(other.lost);
        self.longest_open_wait_ns = self.longest_open_wait_ns.max(other.longest_open_wait_ns);
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
        self
    }

    /// Writes the block of a report: one line if there is nothing to say, a few if there is.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write(&self, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
        self.write_about(About::Report, Look::default(), out)
    }

    /// Writes the block below another table: what each line does to the numbers there.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write_about(&self, about: About, look: Look, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
        look.wrapped(&self.first_line(about), out)?;
        if !self.complete {
            let words =
                "  the recording was not finished: what came after the last whole row group is missing";
            look.wrapped(words, out)?;
        }
        for (count, what, line) in self.lines() {
            if let Some(why) = words::of(line, about).filter(|_| count > 0) {
                look.wrapped(&format!("  {} {why}", plural(count, what)), out)?;
            }
        }
        for limit in &self.limits {
            look.wrapped(&format!("  {}", printable(limit)), out)?;
        }
        if !self.probe_cost_ns.is_empty() {
            let costs: Vec<String> = self
                .probe_cost_ns
                .iter()
                .map(|cost| {
                    let ns = i64::try_from(cost.value).unwrap_or(i64::MAX);
                    format!("{} {}", printable(&cost.name), units::duration(ns))
                })
                .collect();
            look.wrapped(&format!("  a probe cost about: {}", costs.join(", ")), out)?;
        }
        Ok(())
    }

    fn first_line(&self, about: About) -> String {
        let n = |count: u64| units::exact(i64::try_from(count).unwrap_or(i64::MAX));
        let mut lost = match self.lost_by_cause.as_slice() {
            [] => "none lost".to_owned(),
            [one] => format!("{} lost because {}", n(one.events), one.cause),
            several => {
                let causes: Vec<String> =
                    several.iter().map(|c| format!("{} because {}", n(c.events), c.cause)).collect();
                format!("{} lost: {}", n(self.lost), causes.join(", "))
            }
        };
        if !self.lost_where.is_empty() {
            lost.push_str(&format!(", {}", self.lost_where));
        }
        let span = units::duration(self.span_ns);
        let mut first = if self.events < self.recorded {
            format!("trust: {} of {} events were read, over {span}, {lost}", n(self.events), n(self.recorded))
        } else {
            format!("trust: {} events over {span}, {lost}", n(self.events))
        };
        if let Some(why) = words::of(Line::HoldsOpen, about).filter(|_| self.holds_open_at_end > 0) {
            first.push_str(&format!("; {} {why}", plural(self.holds_open_at_end, "hold")));
        }
        if let Some(why) = words::of(Line::WaitsOpen, about).filter(|_| self.waits_open_at_end > 0) {
            let longest = units::duration(self.longest_open_wait_ns.unwrap_or(0));
            let waits = plural(self.waits_open_at_end, "wait");
            first.push_str(&format!("; {waits} {why}, the longest for {longest}"));
        }
        first
    }

    fn lines(&self) -> [(u64, &'static str, Line); 13] {
        [
            (self.abandoned_waits, "wait", Line::Abandoned),
            (self.holds_cut_by_loss, "hold", Line::HoldsCut),
            (self.waits_cut_by_loss, "wait", Line::WaitsCut),
            (self.unpaired_releases, "release", Line::Unpaired),
            (self.hand_overs, "hold", Line::HandOver),
            (self.releases_unseen, "hold", Line::ReleaseUnseen),
            (self.backwards, "hold", Line::Backwards),
            (self.begin_unseen, "wait", Line::BeginUnseen),
            (self.inferred_waits, "wait", Line::Inferred),
            (self.late, "event", Line::Late),
            (self.stacks_lost, "event", Line::StacksLost),
            (self.wait_states_lost, "wait", Line::StatesLost),
            (self.idle_waits, "idle wait", Line::Idle),
        ]
    }
}

fn plural(count: u64, what: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{} {what}{ending}", units::exact(i64::try_from(count).unwrap_or(i64::MAX)))
}
