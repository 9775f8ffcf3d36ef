//! The sum of all chains, and what its text says of it.

use std::io::{self, Write};

use serde::Serialize;

use super::options::Root;
use crate::{
    TextStyle,
    items::Caused,
    output::units,
    tables::blame::{waited, write_sum},
};

/// The time of all waits in ns, by the end of its chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// All waits, until they ended with or without the lock, or until they were last seen: exactly the sum of the next seven.
    pub waited_ns: i64,
    /// Chains that end at holds.
    pub hold_ns: i64,
    /// Chains that end at an owner that the lock word named.
    pub owner_ns: i64,
    /// Chains that end at a free lock.
    pub handoff_ns: i64,
    /// Chains that end at a lock without a recorded hold.
    pub gap_ns: i64,
    /// Chains that end at a task that waits for its own lock.
    pub self_ns: i64,
    /// Chains that end in a cycle.
    pub cycle_ns: i64,
    /// Chains that end at a holder that was not recorded.
    pub unknown_ns: i64,
    /// The part of `waited_ns` in chains of more than one lock.
    pub through_others_ns: i64,
    /// The time of waits inside other waits of the same task, which is not in `waited_ns`.
    pub nested_wait_ns: i64,
    /// Changes of a number of waiters whose state counts as unknown, because a holder had more than a million of them between two of its
    /// events.
    pub steps_cut: u64,
    /// Whether the states of tasks are known: off-CPU times were recorded in every trace.
    pub has_states: bool,
}

impl Totals {
    /// Adds the time of an end.
    pub(super) fn add(&mut self, caused: &Caused) {
        let ns = match Root::from(caused.payer) {
            Root::Hold => &mut self.hold_ns,
            Root::Owner => &mut self.owner_ns,
            Root::Handoff => &mut self.handoff_ns,
            Root::Gap => &mut self.gap_ns,
            Root::Oneself => &mut self.self_ns,
            Root::Cycle => &mut self.cycle_ns,
            Root::Unknown => &mut self.unknown_ns,
        };
        *ns = ns.saturating_add(caused.ns);
        self.waited_ns = self.waited_ns.saturating_add(caused.ns);
        if caused.depth > 1 {
            self.through_others_ns = self.through_others_ns.saturating_add(caused.ns);
        }
    }

    /// Adds time of waits inside other waits of the same task.
    pub(super) fn add_nested(&mut self, ns: i64) {
        self.nested_wait_ns = self.nested_wait_ns.saturating_add(ns);
    }

    /// Adds the totals of another trace.
    pub(super) fn merge(&mut self, other: &Self) {
        let Self { waited_ns, hold_ns, owner_ns, handoff_ns, gap_ns, self_ns, cycle_ns, unknown_ns, .. } =
            other;
        let Self { through_others_ns, nested_wait_ns, .. } = other;
        for (to, from) in [
            (&mut self.waited_ns, waited_ns),
            (&mut self.hold_ns, hold_ns),
            (&mut self.owner_ns, owner_ns),
            (&mut self.handoff_ns, handoff_ns),
            (&mut self.gap_ns, gap_ns),
            (&mut self.self_ns, self_ns),
            (&mut self.cycle_ns, cycle_ns),
            (&mut self.unknown_ns, unknown_ns),
            (&mut self.through_others_ns, through_others_ns),
            (&mut self.nested_wait_ns, nested_wait_ns),
        ] {
            *to = to.saturating_add(*from);
        }
    }

    /// Writes the sum and its parts, exact, so that it can be checked; and what the trace lacks.
    pub(super) fn write(&self, style: TextStyle, out: &mut (dyn Write + Send)) -> io::Result<()> {
        let parts = [
            (self.hold_ns, "that end at holds"),
            (self.owner_ns, "at the owner that the lock word named"),
            (self.handoff_ns, "in hand-offs"),
            (self.gap_ns, "in no recorded hold"),
            (self.self_ns, "for a lock that the task holds itself"),
            (self.cycle_ns, "in cycles"),
            (self.unknown_ns, "at holders that were not recorded"),
        ];
        write_sum(&waited(self.waited_ns), &parts, style, out)?;
        if self.through_others_ns > 0 {
            writeln!(
                out,
                "{} ns of it in chains of more than one lock",
                units::exact(self.through_others_ns)
            )?;
        }
        if self.nested_wait_ns > 0 {
            let nested = units::exact(self.nested_wait_ns);
            style.wrapped(
                &format!("left out: {nested} ns of waits inside other waits of the same task"),
                out,
            )?;
        }
        if self.steps_cut > 0 {
            let steps = units::exact(self.steps_cut);
            style.wrapped(
                &format!(
                    "{steps} changes of a number of waiters were too many to be kept: their state is unknown"
                ),
                out,
            )?;
        }
        if !self.has_states && self.hold_ns.saturating_add(self.owner_ns) > 0 {
            style.wrapped("whether the holders ran or slept is not known: record with --off-cpu", out)?;
        }
        if self.owner_ns.saturating_add(self.unknown_ns) > self.waited_ns / 2 {
            style.wrapped(
                "most holders were not recorded: `klock report --by site` shows the code that waited",
                out,
            )?;
        }
        Ok(())
    }

    /// Returns a part of all waits in millionths.
    pub(super) fn part(waited_ns: i64, ns: i64) -> Option<i64> {
        units::ppm(ns, waited_ns)
    }
}
