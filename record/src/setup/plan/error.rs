//! Reasons why a machine cannot record a selection, with the next step for the user.

use super::selection::MAX_CPUS;
use crate::setup::btf::KERNEL_BTF;

/// Why nothing can be recorded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error(
        "cannot record: CAP_BPF and CAP_PERFMON (or root) are required, and {missing} is missing; run klock with sudo"
    )]
    Capability { missing: &'static str },
    #[error(
        "cannot use probes and tracepoints: kernel.perf_event_paranoid is {level}, which reserves them for root, whatever \
         CAP_PERFMON says; run klock with sudo, or set it to 2"
    )]
    Paranoid { level: i64 },
    #[error("cannot read the kernel's BTF ({KERNEL_BTF}); use a kernel built with CONFIG_DEBUG_INFO_BTF")]
    NoBtf,
    #[error(
        "cannot tell kernel threads apart: the kernel's BTF has no task_struct.flags; leave --threads out"
    )]
    NoTaskFlags,
    #[error(
        "cannot record waits for kernel locks: kernel {kernel} has no lock contention tracepoints (added in Linux 5.19); \
         record the holds of mutexes and semaphores with --locks kernel, or user locks with --locks futex"
    )]
    NoContention { kernel: String },
    #[error(
        "cannot probe lock functions: this kernel has {missing}; record waits alone with --contended-only"
    )]
    NoFunctions { missing: &'static str },
    #[error("cannot probe any of the chosen kinds of kernel locks on this kernel; leave --kind out")]
    NoKind,
    #[error(
        "cannot record holds: this kernel is PREEMPT_RT, where waits for mutexes and for spinlocks look the same; record waits \
         alone with --contended-only"
    )]
    Realtime,
    #[error(
        "cannot read kernel memory: the kernel is locked down (confidentiality); boot it with lockdown=integrity or none"
    )]
    Lockdown,
    #[error("cannot record on {arch}: klock has programs for x86_64 only; record there and analyze here")]
    Architecture { arch: String },
    #[error(
        "cannot record on {cpus} possible CPUs: klock supports {MAX_CPUS}; boot with possible_cpus={MAX_CPUS} or fewer"
    )]
    Cpus { cpus: u32 },
    #[error("cannot record nothing; choose from --locks kernel,futex,pthread")]
    Nothing,
}
