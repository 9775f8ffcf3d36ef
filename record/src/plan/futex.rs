//! How futex calls are recorded on a machine: at the functions that the kernel's table of system calls leads to, where programs
//! get onto them, and otherwise by tracepoints, which cost every system call of every task some time. A part of the plan, and
//! as pure.

use super::{
    Attach, By, Way,
    kernel::{functions_for, way},
};
use crate::{
    host::{FUTEX_CALLS, HostFacts},
    options::ProbeWay,
};

/// How futex calls are come by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FutexPlan {
    /// By programs on their functions: nobody pays but who calls them.
    Functions(Way),
    /// By the tracepoints of system calls.
    Tracepoints,
}

/// A futex call, and the names of what belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FutexCall {
    /// As the kernel's tracepoints name it.
    pub call: &'static str,
    /// The function that its entry in the table of system calls leads to (4.17, x86-64).
    pub function: &'static str,
    /// The program at its tracepoint.
    entry: &'static str,
}

impl FutexCall {
    /// `call` by `function`, with the program `entry`.
    pub(crate) const fn new(call: &'static str, function: &'static str, entry: &'static str) -> Self {
        Self { call, function, entry }
    }
}

/// The way for this machine. Without tracepoints nothing is known of the calls but what the symbols say; the call that every
/// kernel has is certain.
pub(super) fn futex(facts: &HostFacts, asked: ProbeWay) -> FutexPlan {
    let all_there = |way: &Way| calls(facts).all(|call| functions_for(facts, *way).contains(call.function));
    // A program that may be refused is no way here, where there is another one.
    let is_certain = |way: &Way| *way == Way::Kprobe || facts.fentry == Some(true);
    let other = if asked == ProbeWay::Auto { ProbeWay::Kprobe } else { asked };
    let ways = [asked, other].into_iter().filter_map(|asked| way(facts, asked).ok());
    let mut ways = ways.filter(is_certain).filter(all_there);
    ways.next().map_or(FutexPlan::Tracepoints, FutexPlan::Functions)
}

/// The calls of this machine.
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
    /// What is attached: the ends before the begins, so that what is seen to begin is seen to end.
    pub(super) fn attachments(self, facts: &HostFacts) -> Vec<Attach> {
        let each = |call: &FutexCall| match self {
            Self::Tracepoints => [
                Attach::Syscall { program: "exit_futex", tracepoint: format!("sys_exit_{}", call.call) },
                Attach::Syscall { program: call.entry, tracepoint: format!("sys_enter_{}", call.call) },
            ],
            Self::Functions(Way::Fentry) => [By::Fexit, By::Fentry].map(|by| on_function(by, call)),
            Self::Functions(Way::Kprobe) => [By::Kretprobe, By::Kprobe].map(|by| on_function(by, call)),
        };
        calls(facts).flat_map(each).collect()
    }

    /// How, for people.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Functions(way) => way.words(),
            Self::Tracepoints => {
                "system call tracepoints, which cost every system call of every task some 50 ns"
            }
        }
    }
}

fn on_function(by: By, call: &FutexCall) -> Attach {
    Attach::Function {
        program: format!("{}_{}", by.prefix(), call.call),
        by,
        function: call.function,
        required: true,
    }
}
