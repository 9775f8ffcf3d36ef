//! From facts and wishes to what is loaded: pure, so that every machine's plan can be tested on any other.

use trace_format::run_info::{OFF_CPU, Source};

use crate::{
    btf::KernelTypes,
    filters::Filters,
    host::HostFacts,
    options::{KernelDepth, ProbeWay},
    rehearsal,
};

mod futex;
mod kernel;
mod refusal;
#[cfg(test)]
mod tests;

pub use futex::{FutexCall, FutexPlan};
pub use kernel::{By, KernelPlan, Way};
pub use refusal::Refusal;

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
    /// Off-CPU time of tasks.
    pub off_cpu: bool,
    /// Whose.
    pub target: TargetMode,
    /// What of them.
    pub filters: Filters,
    /// Size of each CPU's ring of events in bytes.
    pub ring_bytes: Option<usize>,
    /// Frames per stack.
    pub max_stack: Option<u32>,
}

impl Wanted {
    /// Waits for kernel locks and futexes, and pthread calls, of everybody, in the sizes that are usual.
    pub fn everything() -> Self {
        Self {
            kernel: Some(KernelDepth::Waits),
            futex: true,
            pthread: true,
            off_cpu: false,
            target: TargetMode::All,
            filters: Filters::default(),
            ring_bytes: None,
            max_stack: None,
        }
    }
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

/// What will be loaded and attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What is recorded of kernel locks.
    pub kernel: Option<KernelPlan>,
    /// What is recorded.
    pub futex: bool,
    /// What is recorded.
    pub pthread: bool,
    /// Whether off-CPU time is recorded.
    pub off_cpu: bool,
    /// How futex calls are come by, if either of the two is recorded: a contended pthread lock shows by its futex wait.
    pub futex_calls: Option<FutexPlan>,
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
    /// Whether the kernel's count of returns that kretprobes missed can be believed: 5.10 counts returns that it delivered.
    pub misses_counted: bool,
    /// The kernel takes many probes in a process at a time, and tells its threads apart from others as it should: 6.6
    /// recorded the first thread alone, up to 6.9 (`bpf: fix multi-uprobe PID filtering logic`).
    pub uprobe_multi: bool,
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
        let kernel = wanted.kernel.map(|depth| kernel::kernel(facts, depth, &wanted.filters)).transpose()?;
        if kernel.is_some() && facts.functions.contains("mutex_lock_nested") {
            warnings.push(
                "this kernel checks its locks (CONFIG_DEBUG_LOCK_ALLOC): every acquisition of a mutex counts as contended"
                    .to_owned(),
            );
        }
        let asked = match wanted.kernel {
            Some(KernelDepth::Holds(way)) => way,
            _ => ProbeWay::Auto,
        };
        let futex_calls = (wanted.futex || wanted.pthread).then(|| futex::futex(facts, asked));
        let is_probed = |way| {
            let locks = kernel.as_ref().is_some_and(|kernel| kernel.holds == Some(way));
            locks || futex_calls == Some(FutexPlan::Functions(way))
        };
        let tracepoints = futex_calls == Some(FutexPlan::Tracepoints);
        if tracepoints || is_probed(Way::Kprobe) || wanted.pthread {
            refuse_events(facts)?;
        }
        if is_probed(Way::Fentry) && facts.preemptible != Some(false) {
            warnings.push(
                "this kernel may preempt a task inside a program on fentry or fexit, and then runs it for no other task of \
                 that CPU: acquisitions are lost, and counted as recursion misses; --kernel-probes kprobe loses none"
                    .to_owned(),
            );
        }
        Ok(Self {
            futex: wanted.futex,
            pthread: wanted.pthread,
            off_cpu: wanted.off_cpu,
            target: wanted.target,
            cpus,
            ring_bytes: wanted.ring_bytes.unwrap_or_else(|| ring_bytes(cpus)),
            max_stack: wanted.max_stack.unwrap_or(127),
            misses_counted: facts.version().is_some_and(|version| version >= (6, 1)),
            old_kernel: facts.version().is_some_and(|version| version < (5, 12)),
            uprobe_multi: facts.version().is_some_and(|version| version >= (6, 10))
                && !rehearsal::has_single_probes(),
            types: facts.types.clone().unwrap_or_default(),
            filters: wanted.filters.clone(),
            mount_tracefs: facts.tracefs.is_none() && (tracepoints || is_probed(Way::Kprobe)),
            lifetimes: lifetimes(),
            sources: sources(facts, kernel.as_ref(), futex_calls, wanted.off_cpu),
            futex_calls,
            kernel,
            warnings,
        })
    }

    /// What will be recorded, and what it can't see, for the trace.
    pub fn sources(&self) -> Vec<Source> {
        let mut sources = Vec::new();
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
                &["pthread_mutex", "pthread_rwlock", "pthread_spin"],
                (true, true),
                &["pthread: processes that a recorded one starts are recorded from some milliseconds after their \
                   start"],
            ));
            // Nobody holds these: there is nothing to release.
            let idle = &["condvar", "barrier", "user_semaphore"];
            sources.push(source("pthread_condition", idle, (true, false), &[]));
        }
        if self.off_cpu {
            sources.push(source(OFF_CPU, &[], (false, false), OFF_CPU_LIMITS));
        }
        let left_out = self.filters.limits_of_all();
        let left_out_of_off_cpu = self.filters.limits_of_off_cpu();
        for source in &mut sources {
            let left_out = if source.name == OFF_CPU { &left_out_of_off_cpu } else { &left_out };
            source.limits.extend_from_slice(left_out);
        }
        let kernel = self.kernel.iter().flat_map(|kernel| kernel.sources(&self.filters));
        kernel.chain(sources).collect()
    }

    /// What is recorded of kernel locks, with labels, for people.
    pub fn kernel_rows(&self) -> Vec<(String, String)> {
        let words = self.kernel.as_ref().map_or_else(|| "no".to_owned(), KernelPlan::words);
        let warnings = self.warnings.iter().map(|warning| ("warning".to_owned(), warning.clone()));
        std::iter::once(("kernel locks".to_owned(), words)).chain(warnings).collect()
    }

    /// The plan with labels, for people.
    pub fn rows(&self) -> Vec<(String, String)> {
        let calls = self.futex_calls.map_or("nothing", FutexPlan::words);
        let how = |wanted: bool, words: &str| if wanted { words.to_owned() } else { "no".to_owned() };
        let mut rows = vec![
            (
                "kernel locks".to_owned(),
                self.kernel.as_ref().map_or_else(|| "no".to_owned(), KernelPlan::words),
            ),
            ("futexes".to_owned(), how(self.futex, &format!("waits and wakes, by {calls}"))),
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
    if !(wanted.kernel.is_some() || wanted.futex || wanted.pthread || wanted.off_cpu) {
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

/// Debian's kernels know a level above 2, at which CAP_PERFMON does not stand for CAP_SYS_ADMIN any more (`perf_event_open`,
/// 5.10 to 7.2). Programs on fentry and raw tracepoints need no such events.
fn refuse_events(facts: &HostFacts) -> Result<(), Refusal> {
    match facts.perf_event_paranoid {
        Some(level) if level > 2 && facts.has_capability("CAP_SYS_ADMIN") == Some(false) => {
            Err(Refusal::Paranoid { level })
        }
        _ => Ok(()),
    }
}

/// The default size, or the largest power of two with which all rings stay within their limit.
fn ring_bytes(cpus: u32) -> usize {
    let each = ALL_RINGS_BYTES / usize::try_from(cpus).unwrap_or(usize::MAX).max(1);
    let power = 1_usize << each.max(1).ilog2();
    power.clamp(64 << 10, RING_BYTES)
}

/// What a recording of off-CPU time can't see.
const OFF_CPU_LIMITS: &[&str] = &[
    "off-CPU time: what began before the recording, or lasts beyond it, is not recorded",
    "off-CPU time: a waker is the task that ran; if an interrupt did it, the task that it came upon",
];

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

fn sources(
    facts: &HostFacts,
    kernel: Option<&KernelPlan>,
    futex_calls: Option<FutexPlan>,
    off_cpu: bool,
) -> Vec<Attach> {
    let mut list = Vec::new();
    if off_cpu {
        list.extend([
            raw("off_cpu_wakeup", "sched_wakeup"),
            raw("off_cpu_waking", "sched_waking"),
            raw("off_cpu_in", "sched_switch"),
            raw("off_cpu_out", "sched_switch"),
        ]);
    }
    if kernel.is_some() || futex_calls.is_some() {
        // The scheduler first: a wait that is seen to begin must be seen to sleep.
        list.extend([
            raw("sched_switch", "sched_switch"),
            raw("sched_waking", "sched_waking"),
            raw("sched_wakeup", "sched_wakeup"),
        ]);
    }
    if let Some(kernel) = kernel {
        if let Some(way) = kernel.holds {
            list.extend(kernel::functions(facts, way, kernel));
        }
        if kernel.contention {
            list.push(raw("contention_end", "contention_end"));
            list.push(raw("contention_begin", "contention_begin"));
        }
    }
    list.extend(futex_calls.into_iter().flat_map(|plan| plan.attachments(facts)));
    list
}

fn source(name: &str, kinds: &[&str], (uncontended, holds): (bool, bool), limits: &[&str]) -> Source {
    let all = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
    Source { name: name.to_owned(), kinds: all(kinds), uncontended, holds, limits: all(limits) }
}
