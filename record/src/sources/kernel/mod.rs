//! Plans how kernel locks are recorded: which functions are probed, for which kinds, and what stays unseen.

pub(crate) mod compose;
mod functions;

use std::{collections::BTreeSet, fmt};

use trace_format::{
    LockKind,
    kernel_functions::{Action, FUNCTIONS, KernelFunction, kind, kinds},
    run_info::Source,
};

use crate::setup::plan::{Attachment, PlanError, ProbeType};
use crate::{
    options::{KernelDepth, ProbePreference},
    setup::{
        filters::{Filters, bit},
        host::HostFacts,
    },
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelPlan {
    /// Whether waits are recorded by the contention tracepoints, rather than by probes on slow paths.
    pub contention: bool,
    /// The probes that record holds, if holds are recorded.
    pub holds: Option<ProbeMethod>,
    /// The kinds whose holds are recorded, a set of [`kinds`].
    pub hold_kinds: u32,
    /// The subset of these kinds whose waits start at slow paths.
    pub slow_kinds: u32,
}

/// A pair of probe types for entries and returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeMethod {
    Fentry,
    Kprobe,
}

impl fmt::Display for ProbeMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fentry => "fentry and fexit",
            Self::Kprobe => "kprobes and kretprobes",
        })
    }
}

pub(crate) fn plan(
    facts: &HostFacts,
    depth: KernelDepth,
    filters: &Filters,
) -> Result<KernelPlan, PlanError> {
    let contention = facts.contention != Some(false);
    let no_contention = || PlanError::NoContention { kernel: facts.kernel.clone() };
    let KernelDepth::Holds(preference) = depth else {
        let plan = KernelPlan { contention, holds: None, hold_kinds: 0, slow_kinds: 0 };
        return if contention { Ok(plan) } else { Err(no_contention()) };
    };
    let method = probe_method(facts, preference)?;
    if facts.realtime {
        return Err(PlanError::Realtime);
    }
    let functions = functions_for(facts, method);
    let hold_kinds = hold_kinds(functions) & filters.kinds;
    if hold_kinds == 0 && !contention {
        return Err(PlanError::NoKind);
    }
    let slow = FUNCTIONS.iter().filter(|f| f.action == Action::SlowPath && functions.contains(f.name));
    let slow = slow.fold(0, |kinds, function| kinds | kind(function.flags));
    // The tracepoints of rwsems fire after the spinning, and not at all if the spinning ends the wait.
    let slow_kinds = slow & hold_kinds & if contention { kinds::RWSEM } else { kinds::ALL };
    Ok(KernelPlan { contention, holds: Some(method), hold_kinds, slow_kinds })
}

/// Returns the probes to use on functions of this kernel.
pub(crate) fn probe_method(facts: &HostFacts, preference: ProbePreference) -> Result<ProbeMethod, PlanError> {
    // An unknown feature is tried.
    let has_fentry = facts.fentry != Some(false);
    // A task that is preempted in a fexit program keeps the program from running for all other tasks of its
    // CPU.
    let is_exact = facts.preemptible == Some(false) || !facts.kprobes;
    match preference {
        ProbePreference::Fentry if has_fentry => Ok(ProbeMethod::Fentry),
        ProbePreference::Auto if has_fentry && is_exact => Ok(ProbeMethod::Fentry),
        ProbePreference::Kprobe | ProbePreference::Auto if facts.kprobes => Ok(ProbeMethod::Kprobe),
        ProbePreference::Auto => Err(PlanError::NoFunctions { missing: "neither fentry nor kprobes" }),
        ProbePreference::Fentry => Err(PlanError::NoFunctions { missing: "no fentry" }),
        ProbePreference::Kprobe => Err(PlanError::NoFunctions { missing: "no kprobes" }),
    }
}

/// Returns the kinds that have both an acquiring and a releasing function.
fn hold_kinds(functions: &BTreeSet<&'static str>) -> u32 {
    let all = |selects: fn(Action) -> bool| {
        let present = FUNCTIONS.iter().filter(|f| functions.contains(f.name) && selects(f.action));
        present.fold(0, |kinds, function| kinds | kind(function.flags))
    };
    all(is_acquiring) & all(|action| action == Action::Release)
}

fn is_acquiring(action: Action) -> bool {
    matches!(
        action,
        Action::Acquire
            | Action::AcquireOrFail
            | Action::Try
            | Action::TryInverted
            | Action::AcquireConditionally
    )
}

pub(crate) fn functions_for(facts: &HostFacts, method: ProbeMethod) -> &BTreeSet<&'static str> {
    match (method, &facts.types) {
        (ProbeMethod::Fentry, Some(types)) => &types.functions,
        _ => &facts.functions,
    }
}

/// Returns the probes on the functions of the recorded kinds, in the order of the table.
pub(crate) fn functions<'a>(
    facts: &'a HostFacts,
    method: ProbeMethod,
    plan: &KernelPlan,
) -> impl Iterator<Item = Attachment> + use<'a> {
    let present = functions_for(facts, method);
    let (holds, slow) = (plan.hold_kinds, plan.slow_kinds);
    let selected = move |f: &&KernelFunction| {
        let kinds = if f.action == Action::SlowPath { slow } else { holds };
        present.contains(f.name) && kind(f.flags) & kinds != 0
    };
    FUNCTIONS.iter().filter(selected).flat_map(move |function| {
        let probes: &[ProbeType] = match (method, is_acquiring(function.action)) {
            (ProbeMethod::Fentry, true) => &[ProbeType::Fexit],
            (ProbeMethod::Fentry, false) => &[ProbeType::Fentry],
            // The return first, so that every call whose entry is seen also has a return.
            (ProbeMethod::Kprobe, true) => &[ProbeType::Kretprobe, ProbeType::Kprobe],
            (ProbeMethod::Kprobe, false) => &[ProbeType::Kprobe],
        };
        let required = function.action == Action::Release && !function.is_wrapper;
        probes.iter().map(move |&probe| Attachment::function(probe, function.name, function.name, required))
    })
}

impl fmt::Display for KernelPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(method) = self.holds else {
            return f.write_str("waits, by raw tracepoints contention_begin/end");
        };
        let waits = if self.contention {
            "waits of all, by raw tracepoints contention_begin/end"
        } else {
            "waits of these, by the functions that wait"
        };
        write!(f, "holds of {}, by {method}; {waits}", kind_names(self.hold_kinds).join(", "))
    }
}

impl KernelPlan {
    /// Returns the recorded kinds and their limits, for the trace.
    pub(crate) fn sources(&self, filters: &Filters) -> Vec<Source> {
        let waits = if self.contention { filters.kinds & !self.hold_kinds } else { 0 };
        let all = filters.limits();
        let limits = |own: &[(u32, &str)], of: u32| {
            let own = own.iter().filter(|(kinds, _)| kinds & of != 0).map(|(_, words)| (*words).to_owned());
            own.chain(all.clone()).collect()
        };
        let mut sources = Vec::new();
        if self.hold_kinds != 0 {
            sources.push(Source {
                name: "kernel_functions".to_owned(),
                kinds: kind_names(self.hold_kinds),
                uncontended: true,
                holds: true,
                limits: limits(HOLD_LIMITS, self.hold_kinds),
                ..Source::default()
            });
        }
        if waits != 0 {
            sources.push(Source {
                name: "kernel_contended".to_owned(),
                kinds: kind_names(waits),
                uncontended: false,
                holds: false,
                limits: limits(WAIT_LIMITS, waits),
                ..Source::default()
            });
        }
        sources
    }
}

/// Limits of recording holds, by kind.
const HOLD_LIMITS: &[(u32, &str)] = &[
    (
        kinds::ALL,
        "kernel locks: acquisitions that the compiler put into their callers, or that take the lock word itself, are \
         not recorded",
    ),
    (kinds::PERCPU_RWSEM, "percpu_rwsem: of readers, only waits are recorded"),
    (kinds::SEMAPHORE, "semaphores: a hold that another task ends is not paired"),
];

/// Limits of recording waits, by kind.
const WAIT_LIMITS: &[(u32, &str)] = &[
    (kinds::ALL, "kernel locks: waits only; acquisitions without a wait and hold times are not recorded"),
    (
        kinds::SPINLOCK,
        "kernel spinlocks: the first waiter is not seen, and in virtual machines without paravirtual spinlocks none is",
    ),
];

fn kind_names(kinds: u32) -> Vec<String> {
    let kernel = LockKind::ALL.iter().filter(|kind| bit(**kind) & kinds != 0);
    kernel.map(|kind| kind.as_str().to_owned()).collect()
}
