//! The events that a recording selects, as input of planning.

use crate::{options::KernelDepth, setup::filters::Filters, sources::LockSources};

/// The events to record, and the sizes to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    pub kernel: Option<KernelDepth>,
    /// Locks of programs; kernel locks are selected above.
    pub locks: LockSources,
    /// Off-CPU time of tasks.
    pub off_cpu: bool,
    /// Off-CPU time of tasks without stacks and wakers.
    pub switches: bool,
    pub target: TargetMode,
    /// Restrictions on the selected events.
    pub filters: Filters,
    /// Size of each CPU's ring of events in bytes; `None` for the default.
    pub ring_bytes: Option<usize>,
    /// Maximum number of frames per stack; `None` for the default.
    pub max_stack: Option<u32>,
    /// Number of bytes of user stacks to copy for unwinding; 0 walks them by frame pointers only.
    pub stack_bytes: u32,
}

impl Selection {
    /// Selects waits for kernel locks and futexes, and pthread calls, of all tasks.
    pub fn everything() -> Self {
        Self {
            kernel: Some(KernelDepth::Waits),
            locks: LockSources::OF_PROGRAMS,
            off_cpu: false,
            switches: false,
            target: TargetMode::All,
            filters: Filters::default(),
            ring_bytes: None,
            max_stack: None,
            stack_bytes: 0,
        }
    }

    /// Returns whether nothing of the kernel's is selected.
    pub fn is_empty(&self) -> bool {
        let has_locks = self.kernel.is_some() || self.locks.rows().next().is_some();
        !(has_locks || self.off_cpu || self.switches)
    }

    pub fn without_locks(self) -> Self {
        Self { kernel: None, locks: LockSources::NONE, ..self }
    }
}

/// The rule by which BPF programs decide whether a task is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetMode {
    All,
    /// Processes in the target map and their children.
    Processes,
    Threads,
    /// Tasks in a cgroup and the cgroups below it.
    Cgroup {
        /// The cgroup's id.
        id: u64,
        /// Its depth below the root.
        level: u32,
    },
}

// Sizes of the rings between the BPF programs and klock.

/// Default size of each CPU's ring of events in bytes.
pub(crate) const RING_BYTES: usize = 8 << 20;
/// By default, all rings of events together take no more than this.
const ALL_RINGS_BYTES: usize = 256 << 20;
/// Size of each CPU's ring of descriptors in bytes.
const DESCRIPTOR_RING_BYTES: usize = 256 << 10;
/// The same if the ring also takes copies of stacks.
const DESCRIPTOR_RING_BYTES_WITH_STACKS: usize = 4 << 20;
/// Size of each CPU's rings for nested programs, which interrupted another one, in bytes.
pub(crate) const NESTED_RING_BYTES: usize = 64 << 10;
/// Maximum number of CPUs in the BPF programs' maps.
pub(crate) const MAX_CPUS: u32 = 1024;

/// Returns the size of each CPU's ring of descriptors, given the number of bytes of copied stacks.
pub(crate) fn descriptor_ring_bytes(stack_bytes: u32) -> usize {
    if stack_bytes > 0 { DESCRIPTOR_RING_BYTES_WITH_STACKS } else { DESCRIPTOR_RING_BYTES }
}

/// Returns the default size, or the largest power of two that keeps all rings within their limit.
pub(crate) fn default_ring_bytes(cpus: u32) -> usize {
    let each = ALL_RINGS_BYTES / usize::try_from(cpus).unwrap_or(usize::MAX).max(1);
    let power = 1_usize << each.max(1).ilog2();
    power.clamp(64 << 10, RING_BYTES)
}

// A BPF program and the hook that it is attached to.

/// A BPF program to attach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attachment {
    Raw {
        program: &'static str,
        tracepoint: &'static str,
    },
    /// A system call tracepoint.
    Syscall {
        program: &'static str,
        /// The tracepoint, in the group `syscalls`.
        tracepoint: String,
    },
    /// The entry or return of a kernel function.
    Function {
        program: String,
        probe: ProbeType,
        function: &'static str,
        /// Whether recording fails without this probe, because holds would never end. Other probes may be
        /// skipped.
        required: bool,
    },
}

impl Attachment {
    /// The name of the BPF program.
    pub(crate) fn program(&self) -> &str {
        match self {
            Self::Raw { program, .. } | Self::Syscall { program, .. } => program,
            Self::Function { program, .. } => program,
        }
    }

    pub(crate) fn raw(program: &'static str, tracepoint: &'static str) -> Self {
        Self::Raw { program, tracepoint }
    }

    /// Returns the attachment to a function, whose program is named after it: `fexit_mutex_lock`.
    pub(crate) fn function(probe: ProbeType, name: &str, function: &'static str, required: bool) -> Self {
        Self::Function { program: format!("{}_{name}", probe.prefix()), probe, function, required }
    }
}

/// A type of probe on a kernel function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeType {
    /// At the entry, by a trampoline (5.5).
    Fentry,
    /// At the return, with access to the arguments (5.5).
    Fexit,
    /// At the entry, by a breakpoint or ftrace.
    Kprobe,
    Kretprobe,
}

impl ProbeType {
    /// Returns the prefix of the names of its programs.
    const fn prefix(self) -> &'static str {
        match self {
            Self::Fentry => "fentry",
            Self::Fexit => "fexit",
            Self::Kprobe => "kprobe",
            Self::Kretprobe => "kretprobe",
        }
    }
}
