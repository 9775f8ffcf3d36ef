//! From facts and wishes to what is loaded: pure, so that every machine's plan can be tested on any other.

use std::collections::BTreeSet;

use trace_format::{
    LockKind,
    kernel_functions::{Act, FUNCTIONS, KernelFunction, kind, kinds},
    run_info::Source,
};

use crate::{
    btf::KernelTypes,
    filters::{Filters, bit},
    host::HostFacts,
    options::{KernelDepth, ProbeWay},
};

/// Size of each CPU's ring of events, if nothing else is asked for, in bytes.
pub const RING_BYTES: usize = 8 << 20;
/// All rings of events together take no more than this, if nothing else is asked for, in bytes.
const ALL_RINGS_BYTES: usize = 256 << 20;
/// Size of each CPU's ring of descriptors in bytes.
pub const DESCRIPTOR_RING_BYTES: usize = 256 << 10;
/// Size of each CPU's rings, of events and of descriptors, for programs that run inside another one, in bytes.
pub const NESTED_RING_BYTES: usize = 64 << 10;
/// The most CPUs that the kernel side has room for.
pub const MAX_CPUS: u32 = 1024;

/// What is wanted of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Kernel locks, and how much of them.
    pub kernel: Option<KernelDepth>,
    /// Futex waits and wakes.
    pub futex: bool,
    /// Calls of pthread functions.
    pub pthread: bool,
    /// Whose.
    pub target: TargetMode,
    /// What of them.
    pub filters: Filters,
    /// Size of each CPU's ring of events in bytes.
    pub ring_bytes: Option<usize>,
    /// Frames per stack.
    pub max_stack: Option<u32>,
}

/// How the kernel side decides whose events are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetMode {
    /// Everybody's.
    All,
    /// Those of the processes in the map of targets, and of those that they start.
    Processes,
    /// Those of the threads in the map of targets.
    Threads,
    /// Those of a cgroup and the ones below it.
    Cgroup {
        /// Its id.
        id: u64,
        /// How deep it is below the root.
        level: u32,
    },
}

/// A program to attach to a tracepoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attach {
    /// A raw tracepoint.
    Raw {
        /// The program.
        program: &'static str,
        /// The tracepoint.
        tracepoint: &'static str,
    },
    /// A system call's tracepoint.
    Syscall {
        /// The program.
        program: &'static str,
        /// The tracepoint, in the group `syscalls`.
        tracepoint: String,
    },
    /// The entry or return of a kernel function.
    Function {
        /// The program.
        program: String,
        /// How it gets there.
        by: By,
        /// The function.
        function: &'static str,
        /// Without it, holds would never end, and nothing is recorded. Any other function can be done without.
        required: bool,
    },
}

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
    const fn prefix(self) -> &'static str {
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

/// What will be loaded and attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What is recorded of kernel locks.
    pub kernel: Option<KernelPlan>,
    /// What is recorded.
    pub futex: bool,
    /// What is recorded.
    pub pthread: bool,
    /// Whose.
    pub target: TargetMode,
    /// CPUs that get a ring.
    pub cpus: u32,
    /// Size of each CPU's ring of events in bytes.
    pub ring_bytes: usize,
    /// Frames per stack; more are cut off at the root's end.
    pub max_stack: u32,
    /// The kernel is older than atomic operations that return a value (5.12).
    pub old_kernel: bool,
    /// Offsets for the programs.
    pub types: KernelTypes,
    /// What of the chosen locks is recorded.
    pub filters: Filters,
    /// Whether tracefs has to be mounted first.
    pub mount_tracefs: bool,
    /// Attached first: births, names and ends of tasks.
    pub lifetimes: Vec<Attach>,
    /// Attached then.
    pub sources: Vec<Attach>,
    /// What is not as one would expect, a sentence each.
    pub warnings: Vec<String>,
}

/// Why nothing can be recorded, and the next step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A capability is missing.
    #[error(
        "klock needs CAP_BPF and CAP_PERFMON (or root) to record, and has no {missing}; run it with sudo"
    )]
    Capability {
        /// Which.
        missing: &'static str,
    },
    /// The kernel doesn't describe its types.
    #[error(
        "this kernel has no readable BTF ({}); klock needs a kernel built with CONFIG_DEBUG_INFO_BTF",
        crate::btf::KERNEL_BTF
    )]
    NoBtf,
    /// The kernel has no contention tracepoints.
    #[error(
        "kernel {kernel} has no lock contention tracepoints (Linux 5.19 has); record the holds of mutexes and semaphores \
         with --locks kernel, or user locks with --locks futex"
    )]
    NoContention {
        /// The kernel's release.
        kernel: String,
    },
    /// The kernel takes no program onto its functions.
    #[error(
        "this kernel takes no program onto its lock functions ({missing}); record waits alone with --contended-only"
    )]
    NoFunctions {
        /// What it doesn't have.
        missing: &'static str,
    },
    /// What is asked for is only seen by probes on functions, which this kernel has none of.
    #[error(
        "of the kinds of kernel locks that were chosen, none has functions that can be probed here; leave --kind out"
    )]
    NoKind,
    /// The tracepoints of such a kernel don't tell its locks apart.
    #[error(
        "this kernel is PREEMPT_RT: what waits there for a mutex can't be told from what waits for a spinlock; record waits \
         alone with --contended-only"
    )]
    Realtime,
    /// The kernel hides what programs read.
    #[error(
        "the kernel is locked down (confidentiality) and lets no program read its memory; boot it with lockdown=integrity or none"
    )]
    Lockdown,
    /// No object for this machine.
    #[error("klock has no programs for {arch} yet; record on x86_64 and analyze here")]
    Architecture {
        /// The machine's architecture.
        arch: String,
    },
    /// More CPUs than rings.
    #[error(
        "{cpus} CPUs are possible here, and klock has room for {MAX_CPUS}; boot with possible_cpus={MAX_CPUS} or fewer"
    )]
    Cpus {
        /// How many there may be.
        cpus: u32,
    },
    /// Nothing was chosen.
    #[error("nothing to record was chosen; choose from --locks kernel,futex,pthread")]
    Nothing,
}

impl Plan {
    /// The plan for this machine and these wishes.
    pub fn make(facts: &HostFacts, wanted: &Wanted) -> Result<Self, Refusal> {
        refuse(facts, wanted)?;
        let cpus = facts.cpus_possible.or(facts.cpus_online).unwrap_or(1).max(1);
        if cpus > MAX_CPUS {
            return Err(Refusal::Cpus { cpus });
        }
        let mut warnings = Vec::new();
        if facts.kptr_restrict.is_some_and(|level| level > 1)
            || facts.has_capability("CAP_SYSLOG") == Some(false)
        {
            warnings.push(
                "kernel symbols are hidden (kptr_restrict, CAP_SYSLOG): kernel frames will have no names"
                    .to_owned(),
            );
        }
        if facts.has_capability("CAP_SYS_PTRACE") == Some(false) {
            warnings.push(
                "processes of others can't be read (CAP_SYS_PTRACE): their frames will have no names, and their pthread \
                 calls are not recorded"
                    .to_owned(),
            );
        }
        let kernel = wanted.kernel.map(|depth| kernel(facts, depth, &wanted.filters)).transpose()?;
        if kernel.is_some() && facts.functions.contains("mutex_lock_nested") {
            warnings.push(
                "this kernel checks its locks (CONFIG_DEBUG_LOCK_ALLOC): every acquisition of a mutex counts as contended"
                    .to_owned(),
            );
        }
        let by_kprobes = kernel.as_ref().is_some_and(|kernel| kernel.holds == Some(Way::Kprobe));
        let fentry = kernel.as_ref().is_some_and(|kernel| kernel.holds == Some(Way::Fentry));
        if fentry && facts.preemptible != Some(false) {
            warnings.push(
                "this kernel may preempt a task inside a program on fentry or fexit, and then runs it for no other task of \
                 that CPU: acquisitions are lost, and counted as recursion misses; --kernel-probes kprobe loses none"
                    .to_owned(),
            );
        }
        Ok(Self {
            futex: wanted.futex,
            pthread: wanted.pthread,
            target: wanted.target,
            cpus,
            ring_bytes: wanted.ring_bytes.unwrap_or_else(|| ring_bytes(cpus)),
            max_stack: wanted.max_stack.unwrap_or(127),
            old_kernel: facts.version().is_some_and(|version| version < (5, 12)),
            types: facts.types.clone().unwrap_or_default(),
            filters: wanted.filters.clone(),
            mount_tracefs: facts.tracefs.is_none() && (wanted.futex || by_kprobes),
            lifetimes: lifetimes(),
            sources: sources(facts, wanted, kernel.as_ref()),
            kernel,
            warnings,
        })
    }

    /// What will be recorded, and what it can't see, for the trace.
    pub fn sources(&self) -> Vec<Source> {
        let mut sources = Vec::new();
        let kernel_sources = self.kernel.iter().flat_map(|kernel| kernel.sources(&self.filters));
        sources.extend(kernel_sources);
        if self.futex {
            sources.push(source(
                "futex",
                &["futex"],
                (false, false),
                &["futexes: waits and wakes only; acquisitions that don't enter the kernel and hold times are not \
                   recorded"],
            ));
        }
        if self.pthread {
            sources.push(source(
                "pthread_uprobe",
                &["pthread_mutex"],
                (true, true),
                &["pthread: processes that a recorded one starts are recorded from some milliseconds after their \
                   start"],
            ));
            // Nobody holds a condition: there is nothing to release.
            sources.push(source("pthread_condition", &["condvar"], (true, false), &[]));
        }
        sources
    }

    /// What is recorded of kernel locks, with labels, for people.
    pub fn kernel_rows(&self) -> Vec<(String, String)> {
        let words = self.kernel.as_ref().map_or_else(|| "no".to_owned(), KernelPlan::words);
        let warnings = self.warnings.iter().map(|warning| ("warning".to_owned(), warning.clone()));
        std::iter::once(("kernel locks".to_owned(), words)).chain(warnings).collect()
    }

    /// The plan with labels, for people.
    pub fn rows(&self) -> Vec<(String, String)> {
        let how = |wanted: bool, words: &str| if wanted { words.to_owned() } else { "no".to_owned() };
        let mut rows = vec![
            (
                "kernel locks".to_owned(),
                self.kernel.as_ref().map_or_else(|| "no".to_owned(), KernelPlan::words),
            ),
            ("futexes".to_owned(), how(self.futex, "waits and wakes, by system call tracepoints")),
            ("pthread".to_owned(), how(self.pthread, "every call, by uprobes on the process's libc")),
            ("scheduler".to_owned(), "sleeping and run-queue time of waiting tasks, and wakers".to_owned()),
            ("rings".to_owned(), format!("{} of {} kB each", self.cpus, self.ring_bytes >> 10)),
        ];
        if self.mount_tracefs {
            rows.push(("tracefs".to_owned(), "will be mounted at /sys/kernel/tracing".to_owned()));
        }
        rows.extend(self.warnings.iter().map(|warning| ("warning".to_owned(), warning.clone())));
        rows
    }
}

fn refuse(facts: &HostFacts, wanted: &Wanted) -> Result<(), Refusal> {
    if !(wanted.kernel.is_some() || wanted.futex || wanted.pthread) {
        return Err(Refusal::Nothing);
    }
    if facts.arch != "x86_64" {
        return Err(Refusal::Architecture { arch: facts.arch.clone() });
    }
    for missing in ["CAP_BPF", "CAP_PERFMON"] {
        if facts.has_capability(missing) == Some(false) {
            return Err(Refusal::Capability { missing });
        }
    }
    if facts.lockdown.as_deref() == Some("confidentiality") {
        return Err(Refusal::Lockdown);
    }
    if facts.types.as_ref().is_none_or(|types| types.task.pid.is_none() || types.task.state.is_none()) {
        return Err(Refusal::NoBtf);
    }
    Ok(())
}

/// The default size, or the largest power of two with which all rings stay within their limit.
fn ring_bytes(cpus: u32) -> usize {
    let each = ALL_RINGS_BYTES / usize::try_from(cpus).unwrap_or(usize::MAX).max(1);
    let power = 1_usize << each.max(1).ilog2();
    power.clamp(64 << 10, RING_BYTES)
}

fn raw(program: &'static str, tracepoint: &'static str) -> Attach {
    Attach::Raw { program, tracepoint }
}

fn lifetimes() -> Vec<Attach> {
    vec![
        raw("task_fork", "sched_process_fork"),
        raw("task_exec", "sched_process_exec"),
        raw("task_exit", "sched_process_exit"),
        raw("task_rename", "task_rename"),
    ]
}

/// How kernel locks are recorded on this machine.
fn kernel(facts: &HostFacts, depth: KernelDepth, filters: &Filters) -> Result<KernelPlan, Refusal> {
    let contention = facts.contention != Some(false);
    let no_contention = || Refusal::NoContention { kernel: facts.kernel.clone() };
    let KernelDepth::Holds(way) = depth else {
        let plan = KernelPlan { contention, holds: None, hold_kinds: 0, slow_kinds: 0 };
        return if contention { Ok(plan) } else { Err(no_contention()) };
    };
    // What could not be told is tried.
    let has_fentry = facts.fentry != Some(false);
    // A task that is preempted in a fexit program keeps it from running for all others of its CPU meanwhile.
    let is_exact = facts.preemptible == Some(false) || !facts.kprobes;
    let way = match way {
        ProbeWay::Fentry if has_fentry => Way::Fentry,
        ProbeWay::Auto if has_fentry && is_exact => Way::Fentry,
        ProbeWay::Kprobe | ProbeWay::Auto if facts.kprobes => Way::Kprobe,
        ProbeWay::Auto => return Err(Refusal::NoFunctions { missing: "neither fentry nor kprobes" }),
        ProbeWay::Fentry => return Err(Refusal::NoFunctions { missing: "no fentry" }),
        ProbeWay::Kprobe => return Err(Refusal::NoFunctions { missing: "no kprobes" }),
    };
    if facts.realtime {
        return Err(Refusal::Realtime);
    }
    let functions = facts.functions_for(way);
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

impl HostFacts {
    fn functions_for(&self, way: Way) -> &BTreeSet<&'static str> {
        match (way, &self.types) {
            (Way::Fentry, Some(types)) => &types.functions,
            _ => &self.functions,
        }
    }
}

/// The probes on the functions of the kinds that are recorded, in the order of the table.
fn functions<'a>(
    facts: &'a HostFacts,
    way: Way,
    plan: &KernelPlan,
) -> impl Iterator<Item = Attach> + use<'a> {
    let there = facts.functions_for(way);
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
    fn words(&self) -> String {
        match (self.holds, self.contention) {
            (None, _) => "waits, by raw tracepoints contention_begin/end".to_owned(),
            (Some(way), contention) => {
                let way = if way == Way::Fentry { "fentry and fexit" } else { "kprobes and kretprobes" };
                let waits = if contention {
                    "waits of all, by raw tracepoints contention_begin/end"
                } else {
                    "waits of these, by the functions that wait"
                };
                format!("holds of {}, by {way}; {waits}", names(self.hold_kinds))
            }
        }
    }

    /// What is recorded, and what can't be seen, for the trace.
    fn sources(&self, filters: &Filters) -> Vec<Source> {
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

fn sources(facts: &HostFacts, wanted: &Wanted, kernel: Option<&KernelPlan>) -> Vec<Attach> {
    // The scheduler first: a wait that is seen to begin must be seen to sleep.
    let mut list = vec![
        raw("sched_switch", "sched_switch"),
        raw("sched_waking", "sched_waking"),
        raw("sched_wakeup", "sched_wakeup"),
    ];
    if let Some(kernel) = kernel {
        if let Some(way) = kernel.holds {
            list.extend(functions(facts, way, kernel));
        }
        if kernel.contention {
            list.push(raw("contention_end", "contention_end"));
            list.push(raw("contention_begin", "contention_begin"));
        }
    }
    // A contended pthread mutex shows by its futex wait.
    if wanted.futex || wanted.pthread {
        let all = [
            ("enter_futex", "futex"),
            ("enter_futex_wait", "futex_wait"),
            ("enter_futex_waitv", "futex_waitv"),
            ("enter_futex_wake", "futex_wake"),
            ("enter_futex_requeue", "futex_requeue"),
        ];
        for (program, call) in all {
            // Without tracefs nothing is known yet: only the call that every kernel has is certain.
            let exists =
                facts.futex_calls.contains(&call) || (facts.futex_calls.is_empty() && call == "futex");
            if exists {
                list.push(Attach::Syscall { program: "exit_futex", tracepoint: format!("sys_exit_{call}") });
                list.push(Attach::Syscall { program, tracepoint: format!("sys_enter_{call}") });
            }
        }
    }
    list
}

fn source(name: &str, kinds: &[&str], (uncontended, holds): (bool, bool), limits: &[&str]) -> Source {
    let all = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
    Source { name: name.to_owned(), kinds: all(kinds), uncontended, holds, limits: all(limits) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::btf::TaskOffsets;

    fn machine() -> HostFacts {
        HostFacts {
            kernel: "6.12.0".to_owned(),
            arch: "x86_64".to_owned(),
            cpus_online: Some(4),
            cpus_possible: Some(8),
            capabilities: Some(u64::MAX),
            types: Some(KernelTypes {
                task: TaskOffsets { pid: Some(1), tgid: Some(2), comm: Some(3), state: Some(4) },
                functions: ["mutex_lock", "mutex_unlock", "down_read"].into(),
                ..KernelTypes::default()
            }),
            fentry: Some(true),
            kprobes: true,
            preemptible: Some(false),
            functions: ["mutex_lock", "mutex_unlock", "up_read", "down_read"].into(),
            tracefs: Some("/sys/kernel/tracing"),
            contention: Some(true),
            futex_calls: vec!["futex", "futex_waitv"],
            ..HostFacts::default()
        }
    }

    fn everything() -> Wanted {
        Wanted {
            kernel: Some(KernelDepth::Waits),
            futex: true,
            pthread: true,
            target: TargetMode::All,
            filters: Filters::default(),
            ring_bytes: None,
            max_stack: None,
        }
    }

    #[test]
    fn a_capable_machine_gets_a_ring_for_each_possible_cpu_and_every_source() {
        let plan = Plan::make(&machine(), &everything()).unwrap();
        assert_eq!((plan.cpus, plan.ring_bytes), (8, 8 << 20));
        let kinds = |name: &str| plan.sources().into_iter().find(|source| source.name == name).unwrap();
        assert!(kinds("pthread_uprobe").holds && !kinds("pthread_condition").holds);
        assert_eq!(plan.sources().len(), 4);
        assert!(plan.sources.contains(&raw("contention_begin", "contention_begin")));
        let waitv =
            Attach::Syscall { program: "enter_futex_waitv", tracepoint: "sys_enter_futex_waitv".into() };
        assert!(plan.sources.contains(&waitv));
    }

    fn whole(way: ProbeWay) -> Wanted {
        Wanted { kernel: Some(KernelDepth::Holds(way)), ..everything() }
    }

    fn probes(plan: &Plan) -> Vec<&str> {
        let program = |attach| match attach {
            &Attach::Function { ref program, .. } => Some(program.as_str()),
            _ => None,
        };
        plan.sources.iter().filter_map(program).collect()
    }

    #[test]
    fn holds_are_recorded_of_the_kinds_whose_functions_are_there_and_waits_of_the_others() {
        let plan = Plan::make(&machine(), &whole(ProbeWay::Auto)).unwrap();
        assert_eq!(probes(&plan), ["fentry_mutex_unlock", "fexit_mutex_lock"]);
        let sources = plan.sources();
        assert_eq!(
            (sources[0].name.as_str(), &sources[0].kinds[..]),
            ("kernel_functions", &["mutex".to_owned()][..])
        );
        assert!(sources[0].holds && !sources[1].holds && sources[1].kinds.contains(&"rwsem".to_owned()));
    }

    #[test]
    fn where_there_is_no_fentry_kprobes_do_it_and_the_return_comes_first() {
        let facts = HostFacts { fentry: Some(false), ..machine() };
        let plan = Plan::make(&facts, &whole(ProbeWay::Auto)).unwrap();
        let expected = [
            "kprobe_mutex_unlock",
            "kprobe_up_read",
            "kretprobe_mutex_lock",
            "kprobe_mutex_lock",
            "kretprobe_down_read",
            "kprobe_down_read",
        ];
        assert_eq!(probes(&plan), expected);
    }

    #[test]
    fn a_kernel_that_preempts_its_tasks_is_probed_by_kprobes_unless_fentry_is_asked_for() {
        let facts = HostFacts { preemptible: Some(true), ..machine() };
        let plan = Plan::make(&facts, &whole(ProbeWay::Auto)).unwrap();
        assert_eq!(plan.kernel.and_then(|kernel| kernel.holds), Some(Way::Kprobe));
        let plan = Plan::make(&facts, &whole(ProbeWay::Fentry)).unwrap();
        assert_eq!(plan.kernel.and_then(|kernel| kernel.holds), Some(Way::Fentry));
        assert!(plan.warnings.iter().any(|warning| warning.contains("recursion misses")));
    }

    #[test]
    fn a_kernel_that_lets_nothing_onto_its_functions_offers_waits_alone() {
        let facts = HostFacts { fentry: Some(false), kprobes: false, ..machine() };
        let refusal = Plan::make(&facts, &whole(ProbeWay::Auto)).unwrap_err();
        assert!(refusal.to_string().contains("--contended-only"), "{refusal}");
        assert!(Plan::make(&machine(), &whole(ProbeWay::Kprobe)).is_ok());
        let refusal = Plan::make(&facts, &whole(ProbeWay::Kprobe)).unwrap_err();
        assert_eq!(refusal, Refusal::NoFunctions { missing: "no kprobes" });
    }

    #[test]
    fn without_contention_tracepoints_holds_are_recorded_and_spinlocks_are_not() {
        let facts = HostFacts { contention: Some(false), kernel: "5.10.0".into(), ..machine() };
        let plan = Plan::make(&facts, &whole(ProbeWay::Auto)).unwrap();
        assert!(plan.old_kernel && !Plan::make(&machine(), &everything()).unwrap().old_kernel);
        assert!(plan.kernel.as_ref().is_some_and(|kernel| !kernel.contention));
        assert!(plan.sources().iter().all(|source| !source.kinds.contains(&"spinlock".to_owned())));
        assert!(!plan.sources.contains(&raw("contention_begin", "contention_begin")));
    }

    #[test]
    fn only_the_chosen_kinds_are_probed_and_the_trace_says_so() {
        let filters = Filters { kinds: kinds::RWSEM, ..Filters::default() };
        let plan = Plan::make(&machine(), &Wanted { filters, ..whole(ProbeWay::Kprobe) }).unwrap();
        assert_eq!(probes(&plan), ["kprobe_up_read", "kretprobe_down_read", "kprobe_down_read"]);
        assert!(plan.sources()[0].limits.iter().any(|limit| limit.contains("only rwsem")));
    }

    #[test]
    fn many_cpus_share_a_bounded_amount_of_memory() {
        let facts = HostFacts { cpus_possible: Some(200), ..machine() };
        let plan = Plan::make(&facts, &everything()).unwrap();
        assert_eq!(plan.ring_bytes, 1 << 20);
        let facts = HostFacts { cpus_possible: Some(5000), ..machine() };
        assert_eq!(Plan::make(&facts, &everything()), Err(Refusal::Cpus { cpus: 5000 }));
    }

    #[test]
    fn a_missing_capability_is_named_with_the_next_step() {
        let facts = HostFacts { capabilities: Some(0), ..machine() };
        let refusal = Plan::make(&facts, &everything()).unwrap_err();
        assert!(refusal.to_string().contains("CAP_BPF") && refusal.to_string().contains("sudo"));
    }

    #[test]
    fn an_old_kernel_is_offered_what_it_can_do() {
        let facts = HostFacts { contention: Some(false), kernel: "5.10.0".into(), ..machine() };
        let refusal = Plan::make(&facts, &everything()).unwrap_err();
        assert!(refusal.to_string().contains("--locks futex"));
        let wanted = Wanted { kernel: None, ..everything() };
        assert!(Plan::make(&facts, &wanted).is_ok());
    }

    #[test]
    fn what_could_not_be_told_is_tried() {
        let facts = HostFacts {
            capabilities: None,
            contention: None,
            tracefs: None,
            futex_calls: vec![],
            ..machine()
        };
        let plan = Plan::make(&facts, &everything()).unwrap();
        assert!(plan.mount_tracefs);
    }

    #[test]
    fn what_will_be_missing_for_want_of_a_capability_is_said() {
        let facts = HostFacts { capabilities: Some(1 << 38 | 1 << 39), ..machine() };
        let warnings = Plan::make(&facts, &everything()).unwrap().warnings;
        let says = |word: &str| warnings.iter().any(|warning| warning.contains(word));
        assert!(says("CAP_SYSLOG") && says("CAP_SYS_PTRACE"), "{warnings:?}");
    }

    #[test]
    fn no_btf_and_lockdown_are_refused() {
        let facts = HostFacts { types: None, ..machine() };
        assert_eq!(Plan::make(&facts, &everything()), Err(Refusal::NoBtf));
        let facts = HostFacts { lockdown: Some("confidentiality".into()), ..machine() };
        assert_eq!(Plan::make(&facts, &everything()), Err(Refusal::Lockdown));
    }
}
