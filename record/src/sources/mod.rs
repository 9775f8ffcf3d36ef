//! The kernel functions that klock can attach programs to: lock functions and futex system calls, by name.
//!
//! A table only. [`host`](crate::setup::host) finds out which of them a machine has, [`plan`](crate::setup::plan) decides which are probed.

pub(crate) mod futex;
pub(crate) mod kernel;
pub(crate) mod languages;
pub(crate) mod off_cpu;
pub(crate) mod probes;
pub(crate) mod pthread;
pub(crate) mod switches;

use trace_format::kernel_functions::FUNCTIONS;

/// A futex system call and the names that belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FutexCall {
    /// The name that the kernel's tracepoints use.
    pub call: &'static str,
    /// The function in the system call table (4.17, x86-64).
    pub function: &'static str,
    /// The BPF program for the entry tracepoint.
    pub entry: &'static str,
}

/// Every futex call that a kernel may have.
pub(crate) const FUTEX_CALLS: [FutexCall; 5] = [
    FutexCall { call: "futex", function: "__x64_sys_futex", entry: "enter_futex" },
    FutexCall { call: "futex_wait", function: "__x64_sys_futex_wait", entry: "enter_futex_wait" },
    FutexCall { call: "futex_waitv", function: "__x64_sys_futex_waitv", entry: "enter_futex_waitv" },
    FutexCall { call: "futex_wake", function: "__x64_sys_futex_wake", entry: "enter_futex_wake" },
    FutexCall { call: "futex_requeue", function: "__x64_sys_futex_requeue", entry: "enter_futex_requeue" },
];

/// Returns every kernel function that klock may probe, with the index of the argument that its program reads.
pub(crate) fn probed_functions() -> impl Iterator<Item = (&'static str, usize)> {
    let locks = FUNCTIONS.iter().map(|function| (function.name, function.lock));
    locks.chain(FUTEX_CALLS.iter().map(|call| (call.function, 0)))
}
