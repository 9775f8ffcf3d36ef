//! Plans how futex calls are recorded.
//!
//! If possible by probes on the functions in the system call table. Otherwise by tracepoints, which slow down every system call
//! of every task.

pub(crate) mod compose;

use std::fmt;

use super::kernel::{ProbeMethod, functions_for, probe_method};
use crate::setup::plan::{Attachment, ProbeType};
use crate::{
    options::ProbePreference,
    setup::host::HostFacts,
    sources::{FUTEX_CALLS, FutexCall},
};

/// The hooks that record futex calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FutexPlan {
    /// Probes on the functions: only callers pay.
    Functions(ProbeMethod),
    /// System call tracepoints.
    Tracepoints,
}

pub(crate) fn plan(facts: &HostFacts, preference: ProbePreference) -> FutexPlan {
    let has_all =
        |method: &ProbeMethod| calls(facts).all(|call| functions_for(facts, *method).contains(call.function));
    // fentry must be known to work, because there is an alternative.
    let works = |method: &ProbeMethod| *method == ProbeMethod::Kprobe || facts.fentry == Some(true);
    let other = match preference {
        ProbePreference::Auto => ProbePreference::Kprobe,
        chosen => chosen,
    };
    let methods =
        [preference, other].into_iter().filter_map(|preference| probe_method(facts, preference).ok());
    methods.filter(works).find(has_all).map_or(FutexPlan::Tracepoints, FutexPlan::Functions)
}

/// Returns the calls of this machine. Without tracefs they are the ones that have functions; `futex` exists in every kernel.
fn calls(facts: &HostFacts) -> impl Iterator<Item = &'static FutexCall> + use<'_> {
    let exists = |call: &&FutexCall| {
        let is_listed = facts.futex_calls.contains(&call.call);
        is_listed
            || facts.futex_calls.is_empty()
                && (call.call == "futex" || facts.functions.contains(call.function))
    };
    FUTEX_CALLS.iter().filter(exists)
}

impl FutexPlan {
    /// Returns the attachments. Exits come before entries, so that every call whose entry is seen also has an exit.
    pub(crate) fn attachments(self, facts: &HostFacts) -> Vec<Attachment> {
        let on_function =
            |probe, call: &FutexCall| Attachment::function(probe, call.call, call.function, true);
        let each = |call: &FutexCall| match self {
            Self::Tracepoints => [
                Attachment::Syscall { program: "exit_futex", tracepoint: format!("sys_exit_{}", call.call) },
                Attachment::Syscall { program: call.entry, tracepoint: format!("sys_enter_{}", call.call) },
            ],
            Self::Functions(ProbeMethod::Fentry) => {
                [ProbeType::Fexit, ProbeType::Fentry].map(|probe| on_function(probe, call))
            }
            Self::Functions(ProbeMethod::Kprobe) => {
                [ProbeType::Kretprobe, ProbeType::Kprobe].map(|probe| on_function(probe, call))
            }
        };
        calls(facts).flat_map(each).collect()
    }
}

impl fmt::Display for FutexPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Functions(method) => method.fmt(f),
            Self::Tracepoints => {
                f.write_str("system call tracepoints, which cost every system call of every task some 50 ns")
            }
        }
    }
}
