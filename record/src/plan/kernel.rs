//! How kernel locks are recorded on a machine: by which functions, of which kinds, and what stays unseen. A part of the plan,
//! and as pure.

use std::collections::BTreeSet;

use trace_format::{
    LockKind,
    kernel_functions::{Act, FUNCTIONS, KernelFunction, kind, kinds},
    run_info::Source,
};

use super::{Attach, Refusal};
use crate::{
    filters::{Filters, bit},
    host::HostFacts,
    options::{KernelDepth, ProbeWay},
};

/// How a program gets onto a kernel function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// At its entry, by a trampoline (5.5).
    Fentry,
    /// At its return, with its arguments at hand (5.5).
    Fexit,
    /// At its entry, by a breakpoint or ftrace.
    Kprobe,
    /// At its return.
    Kretprobe,
}

impl By {
    /// What the names of its programs begin with.
    pub(super) const fn prefix(self) -> &'static str {
        match self {
            Self::Fentry => "fentry",
            Self::Fexit => "fexit",
            Self::Kprobe => "kprobe",
            Self::Kretprobe => "kretprobe",
        }
    }
}

/// How kernel locks are recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelPlan {
    /// Waits begin and end at the contention tracepoints. Otherwise they begin at slow functions.
    pub contention: bool,
    /// Whole holds, by fentry and fexit or by kprobes.
    pub holds: Option<Way>,
    /// The kinds whose holds are recorded, any of [`kinds`].
    pub hold_kinds: u32,
    /// Of those: the kinds whose waits begin at slow functions.
    pub slow_kinds: u32,
}

/// How functions are probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// fentry and fexit.
    Fentry,
    /// kprobe and kretprobe.
    Kprobe,
}

/// How kernel locks are recorded on this machine.
pub(super) fn kernel(
    facts: &HostFacts,
    depth: KernelDepth,
    filters: &Filters,
) -> Result<KernelPlan, Refusal> {
    let contention = facts.contention != Some(false);
    let no_contention = || Refusal::NoContention { kernel: facts.kernel.clone() };
    let KernelDepth::Holds(way) = depth else {
        let plan = KernelPlan { contention, holds: None, hold_kinds: 0, slow_kinds: 0 };
        return if contention { Ok(plan) } else { Err(no_contention()) };
    };
    let way = self::way(facts, way)?;
    if facts.realtime {
        return Err(Refusal::Realtime);
    }
    let functions = functions_for(facts, way);
    let hold_kinds = hold_kinds(functions) & filters.kinds;
    if hold_kinds == 0 && !contention {
        return Err(Refusal::NoKind);
    }
    let slow = FUNCTIONS.iter().filter(|f| f.act == Act::Slow && functions.contains(f.name));
    let slow = slow.fold(0, |kinds, function| kinds | kind(function.flags));
    // The tracepoints of rwsems come after the spinning, and not at all if that ends the wait.
    let slow_kinds = slow & hold_kinds & if contention { kinds::RWSEM } else { kinds::ALL };
    Ok(KernelPlan { contention, holds: Some(way), hold_kinds, slow_kinds })
}

/// How programs get onto functions of this kernel.
pub(super) fn way(facts: &HostFacts, asked: ProbeWay) -> Result<Way, Refusal> {
    // What could not be told is tried.
    let has_fentry = facts.fentry != Some(false);
    // A task that is preempted in a fexit program keeps it from running for all others of its CPU meanwhile.
    let is_exact = facts.preemptible == Some(false) || !facts.kprobes;
    match asked {
        ProbeWay::Fentry if has_fentry => Ok(Way::Fentry),
        ProbeWay::Auto if has_fentry && is_exact => Ok(Way::Fentry),
        ProbeWay::Kprobe | ProbeWay::Auto if facts.kprobes => Ok(Way::Kprobe),
        ProbeWay::Auto => Err(Refusal::NoFunctions { missing: "neither fentry nor kprobes" }),
        ProbeWay::Fentry => Err(Refusal::NoFunctions { missing: "no fentry" }),
        ProbeWay::Kprobe => Err(Refusal::NoFunctions { missing: "no kprobes" }),
    }
}

/// The kinds of which something is taken and given back by functions that are there.
fn hold_kinds(functions: &BTreeSet<&'static str>) -> u32 {
    let there = || FUNCTIONS.iter().filter(|function| functions.contains(function.name));
    let all = |of: fn(Act) -> bool| {
        there().filter(|f| of(f.act)).fold(0, |kinds, function| kinds | kind(function.flags))
    };
    all(is_taking) & all(|act| act == Act::Release)
}

fn is_taking(act: Act) -> bool {
    matches!(act, Act::Take | Act::TakeOrFail | Act::Try | Act::TryZero | Act::TakeUnless)
}

/// The functions that programs get onto in this way.
pub(super) fn functions_for(facts: &HostFacts, way: Way) -> &BTreeSet<&'static str> {
    match (way, &facts.types) {
        (Way::Fentry, Some(types)) => &types.functions,
        _ => &facts.functions,
    }
}

impl Way {
    /// For people.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Fentry => "fentry and fexit",
            Self::Kprobe => "kprobes and kretprobes",
        }
    }
}

/// The probes on the functions of the kinds that are recorded, in the order of the table.
pub(super) fn functions<'a>(
    facts: &'a HostFacts,
    way: Way,
    plan: &KernelPlan,
) -> impl Iterator<Item = Attach> + use<'a> {
    let there = functions_for(facts, way);
    let (holds, slow) = (plan.hold_kinds, plan.slow_kinds);
    let wanted = move |f: &&KernelFunction| {
        let kinds = if f.act == Act::Slow { slow } else { holds };
        there.contains(f.name) && kind(f.flags) & kinds != 0
    };
    FUNCTIONS.iter().filter(wanted).flat_map(move |function| {
        let ways: &[By] = match (way, is_taking(function.act)) {
            (Way::Fentry, true) => &[By::Fexit],
            (Way::Fentry, false) => &[By::Fentry],
            // The return first: what is seen to begin must be seen to end.
            (Way::Kprobe, true) => &[By::Kretprobe, By::Kprobe],
            (Way::Kprobe, false) => &[By::Kprobe],
        };
        ways.iter().map(|&by| Attach::Function {
            program: format!("{}_{}", by.prefix(), function.name),
            by,
            function: function.name,
            required: function.act == Act::Release && !function.wraps,
        })
    })
}

impl KernelPlan {
    /// What is recorded, for people.
    pub(super) fn words(&self) -> String {
        match (self.holds, self.contention) {
            (None, _) => "waits, by raw tracepoints contention_begin/end".to_owned(),
            (Some(way), contention) => {
                let waits = if contention {
                    "waits of all, by raw tracepoints contention_begin/end"
                } else {
                    "waits of these, by the functions that wait"
                };
                format!("holds of {}, by {}; {waits}", names(self.hold_kinds), way.words())
            }
        }
    }

    /// What is recorded, and what can't be seen, for the trace.
    pub(super) fn sources(&self, filters: &Filters) -> Vec<Source> {
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
                kinds: kind_words(self.hold_kinds),
                uncontended: true,
                holds: true,
                limits: limits(HOLD_LIMITS, self.hold_kinds),
            });
        }
        if waits != 0 {
            sources.push(Source {
                name: "kernel_contended".to_owned(),
                kinds: kind_words(waits),
                uncontended: false,
                holds: false,
                limits: limits(WAIT_LIMITS, waits),
            });
        }
        sources
    }
}

/// What a recording of holds can't see, by kind.
const HOLD_LIMITS: &[(u32, &str)] = &[
    (
        kinds::ALL,
        "kernel locks: acquisitions that the compiler put into their callers, or that take the lock word itself, are \
         not recorded",
    ),
    (kinds::PERCPU_RWSEM, "percpu_rwsem: of readers, only waits are recorded"),
    (kinds::SEMAPHORE, "semaphores: a hold that another task ends is not paired"),
];

/// What a recording of waits can't see, by kind.
const WAIT_LIMITS: &[(u32, &str)] = &[
    (kinds::ALL, "kernel locks: waits only; acquisitions without a wait and hold times are not recorded"),
    (
        kinds::SPINLOCK,
        "kernel spinlocks: the second waiter is not seen, and in virtual machines without paravirtual spinlocks none is",
    ),
];

fn kind_words(kinds: u32) -> Vec<String> {
    let kernel = LockKind::ALL.iter().filter(|kind| bit(**kind) & kinds != 0);
    kernel.map(|kind| kind.as_str().to_owned()).collect()
}

fn names(kinds: u32) -> String {
    kind_words(kinds).join(", ")
}
