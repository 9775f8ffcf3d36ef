//! From facts and wishes to what is loaded: pure, so that every machine's plan can be tested on any other.

use trace_format::run_info::Source;

use crate::{btf::TaskOffsets, host::HostFacts};

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
    /// Waits for kernel locks.
    pub kernel: bool,
    /// Futex waits and wakes.
    pub futex: bool,
    /// Calls of pthread functions.
    pub pthread: bool,
    /// Whose.
    pub target: TargetMode,
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
}

/// What will be loaded and attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What is recorded.
    pub kernel: bool,
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
    /// Offsets for the programs.
    pub offsets: TaskOffsets,
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
        "kernel {kernel} has no lock contention tracepoints (Linux 5.19 has); record user locks with --locks futex"
    )]
    NoContention {
        /// The kernel's release.
        kernel: String,
    },
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
        Ok(Self {
            kernel: wanted.kernel,
            futex: wanted.futex,
            pthread: wanted.pthread,
            target: wanted.target,
            cpus,
            ring_bytes: wanted.ring_bytes.unwrap_or_else(|| ring_bytes(cpus)),
            max_stack: wanted.max_stack.unwrap_or(127),
            offsets: facts.task_offsets.unwrap_or_default(),
            mount_tracefs: facts.tracefs.is_none() && wanted.futex,
            lifetimes: lifetimes(),
            sources: sources(facts, wanted),
            warnings,
        })
    }

    /// What will be recorded, and what it can't see, for the trace.
    pub fn sources(&self) -> Vec<Source> {
        let mut sources = Vec::new();
        if self.kernel {
            sources.push(source(
                "kernel_contended",
                &["mutex", "rtmutex", "rwsem", "percpu_rwsem", "semaphore", "spinlock", "rwlock"],
                (false, false),
                &[
                    "kernel locks: waits only; acquisitions without a wait and hold times are not recorded",
                    "kernel spinlocks: the second waiter is not seen, and in virtual machines without paravirtual \
                     spinlocks none is",
                ],
            ));
        }
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

    /// The plan with labels, for people.
    pub fn rows(&self) -> Vec<(String, String)> {
        let how = |wanted: bool, words: &str| if wanted { words.to_owned() } else { "no".to_owned() };
        let mut rows = vec![
            ("kernel locks".to_owned(), how(self.kernel, "waits, by raw tracepoints contention_begin/end")),
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
    if !(wanted.kernel || wanted.futex || wanted.pthread) {
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
    if facts.task_offsets.is_none_or(|offsets| offsets.pid.is_none() || offsets.state.is_none()) {
        return Err(Refusal::NoBtf);
    }
    if wanted.kernel && facts.contention == Some(false) {
        return Err(Refusal::NoContention { kernel: facts.kernel.clone() });
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

fn sources(facts: &HostFacts, wanted: &Wanted) -> Vec<Attach> {
    // The scheduler first: a wait that is seen to begin must be seen to sleep.
    let mut list = vec![
        raw("sched_switch", "sched_switch"),
        raw("sched_waking", "sched_waking"),
        raw("sched_wakeup", "sched_wakeup"),
    ];
    if wanted.kernel {
        list.push(raw("contention_end", "contention_end"));
        list.push(raw("contention_begin", "contention_begin"));
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

    fn machine() -> HostFacts {
        HostFacts {
            kernel: "6.12.0".to_owned(),
            arch: "x86_64".to_owned(),
            cpus_online: Some(4),
            cpus_possible: Some(8),
            capabilities: Some(u64::MAX),
            task_offsets: Some(TaskOffsets { pid: Some(1), tgid: Some(2), comm: Some(3), state: Some(4) }),
            tracefs: Some("/sys/kernel/tracing"),
            contention: Some(true),
            futex_calls: vec!["futex", "futex_waitv"],
            ..HostFacts::default()
        }
    }

    fn everything() -> Wanted {
        Wanted {
            kernel: true,
            futex: true,
            pthread: true,
            target: TargetMode::All,
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
        let wanted = Wanted { kernel: false, ..everything() };
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
        let facts = HostFacts { task_offsets: None, ..machine() };
        assert_eq!(Plan::make(&facts, &everything()), Err(Refusal::NoBtf));
        let facts = HostFacts { lockdown: Some("confidentiality".into()), ..machine() };
        assert_eq!(Plan::make(&facts, &everything()), Err(Refusal::Lockdown));
    }
}
