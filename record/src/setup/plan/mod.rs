//! Plans a recording from the facts about a machine and a selection of events.
//!
//! Pure, so that the plan for any machine can be tested on any other. [`load`](crate::kernel::load) carries a
//! plan out.

use rustix::thread::CapabilitySet;
use trace_format::run_info::Source;

use crate::{
    options::{KernelDepth, ProbePreference},
    setup::{btf::KernelTypes, filters::Filters, host::HostFacts, test_overrides},
    sources::{
        LockSources, TraceSource,
        futex::{self, FutexPlan},
        kernel::{self, KernelPlan, ProbeMethod},
        off_cpu, switches,
    },
};

mod error;
mod selection;
#[cfg(test)]
mod tests;

pub(crate) use error::PlanError;
pub use selection::Selection;
pub(crate) use selection::{
    Attachment, MAX_CPUS, NESTED_RING_BYTES, ProbeType, TargetMode, descriptor_ring_bytes,
};

/// The programs to load and attach, and their settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The plan for kernel locks, if they are recorded.
    pub kernel: Option<KernelPlan>,
    /// The locks of programs that are recorded.
    pub locks: LockSources,
    /// Whether off-CPU time is recorded.
    pub off_cpu: bool,
    /// Whether off-CPU time is recorded without stacks and wakers.
    pub switches: bool,
    /// The plan for futex calls, if futexes or locks that wait on them are recorded.
    pub futex_calls: Option<FutexPlan>,
    pub target: TargetMode,
    /// Number of CPUs that get a ring.
    pub cpus: u32,
    /// Size of each CPU's ring of events in bytes.
    pub ring_bytes: usize,
    /// Maximum number of frames per stack; frames at the root are cut off.
    pub max_stack: u32,
    /// Number of bytes of user stacks that are copied for unwinding; 0 if none are.
    pub stack_bytes: u32,
    /// Whether the kernel lacks atomic operations that return a value (before 5.12).
    pub old_kernel: bool,
    /// Whether the kernel's count of missed kretprobes is correct: 5.10 counts returns that it delivered.
    pub misses_counted: bool,
    /// Whether one attachment can place many uprobes. 6.6 introduced that, but recorded only a process's
    /// first thread before 6.10 (`bpf: fix multi-uprobe PID filtering logic`).
    pub uprobe_multi: bool,
    /// Type information for the programs.
    pub types: KernelTypes,
    /// Restrictions on the selected events.
    pub filters: Filters,
    /// Whether tracefs has to be mounted first.
    pub mount_tracefs: bool,
    /// The programs that follow forks, execs, names and exits of tasks; attached first.
    pub lifetimes: Vec<Attachment>,
    /// The programs that record events; attached second.
    pub sources: Vec<Attachment>,
    /// Restrictions that the user may not expect, a sentence each.
    pub warnings: Vec<String>,
}

impl Plan {
    /// Plans the recording of a selection on a machine.
    pub fn new(facts: &HostFacts, selection: &Selection) -> Result<Self, PlanError> {
        check_requirements(facts, selection)?;
        let cpus = facts.cpus_possible.or(facts.cpus_online).unwrap_or(1).max(1);
        if cpus > MAX_CPUS {
            return Err(PlanError::Cpus { cpus });
        }
        let kernel =
            selection.kernel.map(|depth| kernel::plan(facts, depth, &selection.filters)).transpose()?;
        let preference = match selection.kernel {
            Some(KernelDepth::Holds(preference)) => preference,
            _ => ProbePreference::Auto,
        };
        let locks = selection.locks;
        let waits_on_futexes = locks.futex || locks.pthread || locks.rust;
        let futex_calls = waits_on_futexes.then(|| futex::plan(facts, preference));
        let is_used = |method| {
            let holds = kernel.as_ref().is_some_and(|kernel| kernel.holds == Some(method));
            holds || futex_calls == Some(FutexPlan::Functions(method))
        };
        let has_uprobes = locks.by_uprobes() != LockSources::NONE;
        let tracepoints = futex_calls == Some(FutexPlan::Tracepoints);
        if tracepoints || is_used(ProbeMethod::Kprobe) || has_uprobes {
            check_perf_events(facts)?;
        }
        let at_least = |version| facts.version().is_some_and(|found| found >= version);
        Ok(Self {
            locks: selection.locks,
            off_cpu: selection.off_cpu,
            switches: selection.switches,
            target: selection.target,
            cpus,
            ring_bytes: selection.ring_bytes.unwrap_or_else(|| selection::default_ring_bytes(cpus)),
            max_stack: selection.max_stack.unwrap_or(127),
            stack_bytes: if facts.types.as_ref().is_some_and(|types| types.task.stack.is_some())
                && (kernel.is_some() || futex_calls.is_some() || locks.go || selection.off_cpu)
            {
                selection.stack_bytes
            } else {
                0
            },
            misses_counted: at_least((6, 1)),
            old_kernel: facts.version().is_some() && !at_least((5, 12)),
            uprobe_multi: at_least((6, 10)) && !test_overrides::has_single_probes(),
            types: facts.types.clone().unwrap_or_default(),
            filters: selection.filters.clone(),
            mount_tracefs: facts.tracefs.is_none() && (tracepoints || is_used(ProbeMethod::Kprobe)),
            lifetimes: lifetimes(),
            sources: attachments(facts, kernel.as_ref(), futex_calls, selection),
            warnings: warnings(facts, kernel.is_some(), is_used(ProbeMethod::Fentry)),
            futex_calls,
            kernel,
        })
    }

    /// Whether programs can record off-CPU time without stacks on this machine.
    pub fn has_switches(facts: &HostFacts, selection: &Selection) -> bool {
        let alone = Selection { switches: true, ..selection.clone().without_locks() };
        Self::new(facts, &alone).is_ok()
    }

    /// Returns the recorded sources and their limits, for the trace. `probed` are the locks that a program
    /// has probes for: without one, locks of Rust and Go are not a source.
    pub fn sources(&self, probed: LockSources) -> Vec<Source> {
        let LockSources { rust, go, .. } = self.locks;
        let recorded = LockSources { rust: rust && probed.rust, go: go && probed.go, ..self.locks };
        let mut sources: Vec<Source> =
            recorded.rows().flat_map(|row| row.in_trace).map(TraceSource::to_source).collect();
        if self.off_cpu {
            sources.push(off_cpu::source(&self.filters));
        }
        let user_limits = self.filters.limits_of_all();
        let off_cpu_limits = self.filters.limits_of_off_cpu();
        for source in &mut sources {
            let limits = if source.is_sched() { &off_cpu_limits } else { &user_limits };
            source.limits.extend_from_slice(limits);
        }
        let rows = switches::Rows::OfProgram { holders_only: self.has_holders_only() };
        sources.extend(self.switches.then(|| switches::source(&self.filters, &rows)));
        let kernel = self.kernel.iter().flat_map(|kernel| kernel.sources(&self.filters));
        kernel.chain(sources).collect()
    }

    /// Whether only holders have off-CPU times, and holds are reported by the program itself or not at all.
    pub fn has_holders_only(&self) -> bool {
        self.switches && self.kernel.is_none() && !self.locks.pthread
    }

    /// Returns the part about kernel locks as rows of label and value.
    pub fn kernel_rows(&self) -> Vec<(String, String)> {
        let kernel = self.kernel.as_ref().map_or_else(|| "no".to_owned(), KernelPlan::to_string);
        std::iter::once(("kernel locks".to_owned(), kernel)).chain(self.warning_rows()).collect()
    }

    /// Returns the plan as rows of label and value.
    pub fn rows(&self) -> Vec<(String, String)> {
        let calls = self.futex_calls.map_or_else(|| "nothing".to_owned(), |calls| calls.to_string());
        let or_no = |recorded: bool, how: String| if recorded { how } else { "no".to_owned() };
        let mut rows = Vec::new();
        let mut row = |label: &str, value: String| rows.push((label.to_owned(), value));
        row("kernel locks", self.kernel.as_ref().map_or_else(|| "no".to_owned(), KernelPlan::to_string));
        row("futexes", or_no(self.locks.futex, format!("waits and wakes, by {calls}")));
        row("pthread", or_no(self.locks.pthread, "every call, by uprobes on the process's libc".to_owned()));
        row(
            "rust, go",
            or_no(self.locks.rust || self.locks.go, "contended calls, by uprobes on the program".to_owned()),
        );
        row("scheduler", "sleeping and run-queue time of waiting tasks, and wakers".to_owned());
        row("rings", format!("{} of {} kB each", self.cpus, self.ring_bytes >> 10));
        if self.mount_tracefs {
            row("tracefs", "will be mounted at /sys/kernel/tracing".to_owned());
        }
        rows.extend(self.warning_rows());
        rows
    }

    fn warning_rows(&self) -> impl Iterator<Item = (String, String)> {
        self.warnings.iter().map(|warning| ("warning".to_owned(), warning.clone()))
    }
}

fn check_requirements(facts: &HostFacts, selection: &Selection) -> Result<(), PlanError> {
    if selection.is_empty() {
        return Err(PlanError::Nothing);
    }
    if facts.arch != "x86_64" {
        return Err(PlanError::Architecture { arch: facts.arch.clone() });
    }
    for (missing, capability) in [("CAP_BPF", CapabilitySet::BPF), ("CAP_PERFMON", CapabilitySet::PERFMON)] {
        if facts.has_capability(capability) == Some(false) {
            return Err(PlanError::Capability { missing });
        }
    }
    if facts.lockdown.as_deref() == Some("confidentiality") {
        return Err(PlanError::Lockdown);
    }
    if facts.types.as_ref().is_none_or(|types| types.task.pid.is_none() || types.task.state.is_none()) {
        return Err(PlanError::NoBtf);
    }
    let has_flags = facts.types.as_ref().is_some_and(|types| types.task.flags.is_some());
    if selection.filters.threads.is_some() && !has_flags {
        return Err(PlanError::NoTaskFlags);
    }
    Ok(())
}

/// Checks that perf events may be opened. Debian's kernels have a level above 2, at which CAP_PERFMON does
/// not replace CAP_SYS_ADMIN (`perf_event_open`, 5.10 to 7.2). fentry and raw tracepoints need no perf
/// events.
fn check_perf_events(facts: &HostFacts) -> Result<(), PlanError> {
    match facts.perf_event_paranoid {
        Some(level) if level > 2 && facts.has_capability(CapabilitySet::SYS_ADMIN) == Some(false) => {
            Err(PlanError::Paranoid { level })
        }
        _ => Ok(()),
    }
}

fn warnings(facts: &HostFacts, kernel_locks: bool, fentry: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    if facts.kptr_restrict.is_some_and(|level| level > 1)
        || facts.has_capability(CapabilitySet::SYSLOG) == Some(false)
    {
        warnings
            .push("kernel symbols are hidden (kptr_restrict, CAP_SYSLOG): kernel frames will have no names");
    }
    if facts.has_capability(CapabilitySet::SYS_PTRACE) == Some(false) {
        warnings.push(
            "processes of other users cannot be read (CAP_SYS_PTRACE): their frames will have no names, and their pthread \
             calls may be missing",
        );
    }
    if kernel_locks && facts.functions.contains("mutex_lock_nested") {
        warnings.push(
            "this kernel checks its locks (CONFIG_DEBUG_LOCK_ALLOC): every acquisition of a mutex counts as contended",
        );
    }
    if fentry && facts.preemptible != Some(false) {
        warnings.push(
            "this kernel may preempt a task inside a program on fentry or fexit, and then skips the program for all other \
             tasks of that CPU: acquisitions are lost, and counted as recursion misses; --probes kprobe loses none",
        );
    }
    warnings.into_iter().map(str::to_owned).collect()
}

fn lifetimes() -> Vec<Attachment> {
    vec![
        Attachment::raw("task_fork", "sched_process_fork"),
        Attachment::raw("task_exec", "sched_process_exec"),
        Attachment::raw("task_exit", "sched_process_exit"),
        Attachment::raw("task_rename", "task_rename"),
    ]
}

fn attachments(
    facts: &HostFacts,
    kernel: Option<&KernelPlan>,
    futex_calls: Option<FutexPlan>,
    selection: &Selection,
) -> Vec<Attachment> {
    let mut list = Vec::new();
    if selection.switches {
        list.push(Attachment::raw("switch", "sched_switch"));
    }
    if selection.off_cpu {
        list.extend(off_cpu::attachments());
    }
    if kernel.is_some() || futex_calls.is_some() {
        // The scheduler first, so that every wait whose start is seen also has its sleeps.
        list.extend([
            Attachment::raw("sched_switch", "sched_switch"),
            Attachment::raw("sched_waking", "sched_waking"),
            Attachment::raw("sched_wakeup", "sched_wakeup"),
        ]);
    }
    if let Some(kernel) = kernel {
        if let Some(method) = kernel.holds {
            list.extend(kernel::functions(facts, method, kernel));
        }
        if kernel.contention {
            list.push(Attachment::raw("contention_end", "contention_end"));
            list.push(Attachment::raw("contention_begin", "contention_begin"));
        }
    }
    list.extend(futex_calls.into_iter().flat_map(|plan| plan.attachments(facts)));
    list
}
