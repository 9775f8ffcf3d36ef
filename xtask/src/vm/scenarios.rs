//! The list of scenarios, one file for each subject.

use super::scenario::Scenario;

mod contended;
mod cost;
mod counts;
mod facts;
mod klockstat;
mod off_cpu;
mod refusals;
mod soak;

/// All scenarios, in order. Lockdown is last, because a kernel keeps it until it is shut down.
pub(super) const SCENARIOS: &[Scenario] = &[
    facts::SCENARIO,
    contended::SCENARIO,
    counts::FENTRY,
    counts::KPROBE,
    klockstat::SCENARIO,
    off_cpu::SCENARIO,
    cost::SCENARIO,
    refusals::SCENARIO,
    soak::SCENARIO,
    refusals::LOCKED_DOWN,
];
