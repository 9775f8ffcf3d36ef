//! The sum of all waits by the party that pays, and the text of it.

use std::io::{self, Write};

use serde::Serialize;

use super::row::Charged;
use output::{layout::TextStyle, units};

/// The sum of all waits in ns. `waited_ns` is exactly the sum of its parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// All waits, until they ended with or without the lock, or until they were last seen.
    pub waited_ns: i64,
    /// Charged to holds.
    pub hold_ns: i64,
    /// Charged to no task, while the lock was free.
    pub handoff_ns: i64,
    /// Charged to no task, while an unseen hold may have been open.
    pub gap_ns: i64,
    /// Charged to the owner that the lock word named.
    pub owner_ns: i64,
    /// Waits whose holder is unknown.
    pub unknown_ns: i64,
    /// Changes of a number of waiters whose state counts as unknown, because a holder had more than a million
    /// of them between two of its events.
    pub steps_cut: u64,
    /// The parts that only chains have.
    #[serde(flatten)]
    pub chains: Option<ChainTotals>,
}

/// The sums of chains of waits, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ChainTotals {
    /// Chains that end at a task that waits for its own lock.
    pub self_ns: i64,
    /// Chains that end in a cycle.
    pub cycle_ns: i64,
    /// The part of `waited_ns` in chains of more than one lock.
    pub through_others_ns: i64,
    /// The time of waits inside other waits of the same task, which is not in `waited_ns`.
    pub nested_wait_ns: i64,
    /// Whether the states of tasks are known: off-CPU times were recorded in every trace.
    pub has_states: bool,
}

impl Totals {
    /// Adds time that is charged to a party.
    pub(super) fn add(&mut self, charged: Charged, ns: i64) {
        self.waited_ns = self.waited_ns.saturating_add(ns);
        let part = match charged {
            Charged::Hold => &mut self.hold_ns,
            Charged::Handoff => &mut self.handoff_ns,
            Charged::Gap => &mut self.gap_ns,
            Charged::Owner => &mut self.owner_ns,
            Charged::Waker | Charged::Unknown => &mut self.unknown_ns,
            Charged::Oneself => &mut self.chains.get_or_insert_default().self_ns,
            Charged::Cycle => &mut self.chains.get_or_insert_default().cycle_ns,
        };
        *part = part.saturating_add(ns);
    }

    /// Adds the totals of another trace.
    pub(super) fn merge(&mut self, other: &Self) {
        self.add(Charged::Hold, other.hold_ns);
        self.add(Charged::Handoff, other.handoff_ns);
        self.add(Charged::Gap, other.gap_ns);
        self.add(Charged::Owner, other.owner_ns);
        self.add(Charged::Unknown, other.unknown_ns);
        if let Some(of) = other.chains {
            let all = self.chains.get_or_insert(ChainTotals { has_states: true, ..ChainTotals::default() });
            all.through_others_ns = all.through_others_ns.saturating_add(of.through_others_ns);
            all.nested_wait_ns = all.nested_wait_ns.saturating_add(of.nested_wait_ns);
            all.has_states &= of.has_states;
            self.add(Charged::Oneself, of.self_ns);
            self.add(Charged::Cycle, of.cycle_ns);
        }
        self.steps_cut += other.steps_cut;
    }

    /// Writes the sum and its parts, exact, so that it can be checked; and what the trace lacks.
    pub(super) fn write(&self, style: TextStyle, out: &mut (dyn Write + Send)) -> io::Result<()> {
        let Self { waited_ns, hold_ns, handoff_ns, gap_ns, owner_ns, unknown_ns, .. } = *self;
        let waited = format!("waited {} ns", units::exact(waited_ns));
        let parts = match self.chains {
            None => vec![
                (hold_ns, "charged to holds"),
                (handoff_ns, "in hand-offs"),
                (gap_ns, "in no recorded hold"),
                (owner_ns, "charged to the owner that the lock word named"),
                (unknown_ns, "for holders that were not recorded"),
            ],
            Some(chains) => vec![
                (hold_ns, "that end at holds"),
                (owner_ns, "at the owner that the lock word named"),
                (handoff_ns, "in hand-offs"),
                (gap_ns, "in no recorded hold"),
                (chains.self_ns, "for a lock that the task holds itself"),
                (chains.cycle_ns, "in cycles"),
                (unknown_ns, "at holders that were not recorded"),
            ],
        };
        write_sum(&waited, &parts, style, out)?;
        let mut say = |text: String| style.wrapped(&text, out);
        if let Some(ChainTotals { through_others_ns, nested_wait_ns, .. }) = self.chains {
            if through_others_ns > 0 {
                say(format!("{} ns of it in chains of more than one lock", units::exact(through_others_ns)))?;
            }
            if nested_wait_ns > 0 {
                let nested = units::exact(nested_wait_ns);
                say(format!("left out: {nested} ns of waits inside other waits of the same task"))?;
            }
        }
        if self.steps_cut > 0 {
            let steps = units::exact(self.steps_cut);
            say(format!(
                "{steps} changes of a number of waiters were too many to be kept: their state is unknown"
            ))?;
        }
        let lacks_states = self.chains.is_some_and(|chains| !chains.has_states);
        if lacks_states && hold_ns.saturating_add(owner_ns) > 0 {
            say("whether the holders ran or slept is not known: record with --off-cpu".to_owned())?;
        }
        match self.hint().filter(|_| style.is_terminal || self.chains.is_some()) {
            Some(hint) => say(hint.to_owned()),
            None => Ok(()),
        }
    }

    /// Returns the command that goes on where this table cannot, because most waits are charged to no code.
    fn hint(&self) -> Option<&'static str> {
        let is_most = |ns: i64| ns > self.waited_ns / 2;
        if is_most(self.owner_ns) && self.chains.is_none() {
            Some(
                "the code of most holders was not recorded: `klock blame --by task` names the holders, `klock report --by site` the code that waited",
            )
        } else if is_most(self.owner_ns.saturating_add(self.unknown_ns)) {
            Some("most holders were not recorded: `klock report --by site` shows the code that waited")
        } else {
            None
        }
    }
}

/// Writes the time of all waits as the sum of its parts, exact, so that it can be checked.
pub fn write_sum(
    sum: &str,
    parts: &[(i64, &str)],
    style: TextStyle,
    out: &mut (dyn Write + Send),
) -> io::Result<()> {
    let mut sum = vec![sum.to_owned()];
    for (ns, what) in parts.iter().filter(|(ns, _)| *ns != 0) {
        let sign = if sum.len() == 1 { '=' } else { '+' };
        sum.push(format!("{sign} {} {what}", units::exact(*ns)));
    }
    let one_line = sum.join(" ");
    let fits = style.width.is_none_or(|width| one_line.len() <= width);
    writeln!(out, "\n{}", if fits { one_line } else { sum.join("\n  ") })
}
