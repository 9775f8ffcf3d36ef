//! Reasons why a machine cannot record a selection, with the next step for the user.

use super::rings::MAX_CPUS;
use crate::setup::btf::KERNEL_BTF;

/// Why nothing can be recorded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A capability is missing.
    #[error(
        "cannot record: CAP_BPF and CAP_PERFMON (or root) are required, and {missing} is missing; run klock with sudo"
    )]
    Capability {
        /// The name of the capability.
        missing: &'static str,
    },
    /// perf events are reserved for root.
    #[error(
        "cannot use probes and tracepoints: kernel.perf_event_paranoid is {level}, which reserves them for root, whatever \
         CAP_PERFMON says; run klock with sudo, or set it to 2"
    )]
    Paranoid {
        /// The setting's value.
        level: i64,
    },
    /// The kernel has no BTF.
    #[error("cannot read the kernel's BTF ({KERNEL_BTF}); use a kernel built with CONFIG_DEBUG_INFO_BTF")]
    NoBtf,
    /// The kernel's BTF lacks the flags that mark kernel threads.
    #[error(
        "cannot tell kernel threads apart: the kernel's BTF has no task_struct.flags; leave --user-threads and --kernel-threads out"
    )]
    NoTaskFlags,
    /// The kernel has no contention tracepoints.
    #[error(
        "cannot record waits for kernel locks: kernel {kernel} has no lock contention tracepoints (added in Linux 5.19); \
         record the holds of mutexes and semaphores with --locks kernel, or user locks with --locks futex"
    )]
    NoContention {
        /// The kernel's release.
        kernel: String,
    },
    /// The kernel's functions cannot be probed.
    #[error(
        "cannot probe lock functions: this kernel has {missing}; record waits alone with --contended-only"
    )]
    NoFunctions {
        /// The missing feature.
        missing: &'static str,
    },
    /// None of the chosen kinds has functions that can be probed.
    #[error("cannot probe any of the chosen kinds of kernel locks on this kernel; leave --kind out")]
    NoKind,
    /// On PREEMPT_RT, tracepoints do not tell kinds of locks apart.
    #[error(
        "cannot record holds: this kernel is PREEMPT_RT, where waits for mutexes and for spinlocks look the same; record waits \
         alone with --contended-only"
    )]
    Realtime,
    /// The kernel forbids programs to read its memory.
    #[error(
        "cannot read kernel memory: the kernel is locked down (confidentiality); boot it with lockdown=integrity or none"
    )]
    Lockdown,
    /// klock has no programs for this architecture.
    #[error("cannot record on {arch}: klock has programs for x86_64 only; record there and analyze here")]
    Architecture {
        /// The machine's architecture.
        arch: String,
    },
    /// The machine has more CPUs than klock supports.
    #[error(
        "cannot record on {cpus} possible CPUs: klock supports {MAX_CPUS}; boot with possible_cpus={MAX_CPUS} or fewer"
    )]
    Cpus {
        /// The number of possible CPUs.
        cpus: u32,
    },
    /// The selection is empty.
    #[error("cannot record nothing; choose from --locks kernel,futex,pthread")]
    Nothing,
}
