//! What can't be recorded on a machine, each with the next step: the texts that users read.

use super::MAX_CPUS;

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
    /// The kernel opens no events for those who are not root.
    #[error(
        "kernel.perf_event_paranoid is {level}, which keeps all but root from probes and tracepoints, CAP_PERFMON or not; run \
         it with sudo, or set it to 2"
    )]
    Paranoid {
        /// Its value.
        level: i64,
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
