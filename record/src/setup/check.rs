//! Determines what this machine can record, for `klock check`.

use trace_format::output::OutputOptions;

use crate::{
    options::{KernelDepth, ProbePreference},
    preload,
    setup::{
        host::HostFacts,
        plan::{Plan, PlanError, Selection},
        safety::SafetyFacts,
    },
    sources::switches,
};

/// The result of [`check`].
#[derive(Clone, Debug)]
pub struct Check {
    /// The facts about this machine.
    pub facts: HostFacts,
    /// The default plan, or why nothing can be recorded.
    pub plan: Result<Plan, PlanError>,
    /// A description of how a program that klock starts records its own calls, which works on every machine.
    pub preload: String,
    /// The way in which the off-CPU time of a command's threads is recorded by default.
    pub sched: String,
    /// Why the default plan leaves kernel locks out, if it does.
    pub left_out: Option<PlanError>,
    /// The ways in which this setup protects less than it could, a line each.
    pub weaknesses: Vec<String>,
    /// The plan with `--locks kernel`, which records holds of kernel locks.
    pub holds: Result<Plan, PlanError>,
}

/// Collects the facts about this machine and plans a recording of everything. `output` are the rules for an output in the working
/// directory.
pub fn check(output: &OutputOptions) -> Check {
    let facts = HostFacts::gather();
    let plan_with = |kernel| Plan::new(&facts, &Selection { kernel, ..Selection::everything() });
    let (plan, left_out) = match plan_with(Some(KernelDepth::Waits)) {
        Err(error @ PlanError::NoContention { .. }) => (plan_with(None), Some(error)),
        plan => (plan, None),
    };
    let holds = plan_with(Some(KernelDepth::Holds(ProbePreference::Auto)));
    let sched = sched(&facts, plan.is_ok());
    let weaknesses = SafetyFacts::gather(&facts, output).weaknesses();
    Check { facts, weaknesses, plan, preload: preload::description(), sched, left_out, holds }
}

/// Describes, for people, how the off-CPU time of a command's threads is recorded by default.
fn sched(facts: &HostFacts, has_plan: bool) -> String {
    if has_plan {
        return "of its threads, by a BPF program; with stacks and wakers on request (--sched all)"
            .to_owned();
    }
    match switches::check(facts.perf_event_paranoid) {
        Ok(()) => "of threads that hold a lock, by the kernel's switch records; no root needed".to_owned(),
        Err(refusal) => format!("no: {refusal}"),
    }
}
