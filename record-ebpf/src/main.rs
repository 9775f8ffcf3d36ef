//! The kernel side of klock: small programs that fill wire records and decide nothing.
//!
//! Enter: tracepoints of locks, futexes, the scheduler and tasks, probes on the kernel's lock functions, and uprobes on
//! pthread functions. Leave: records of
//! `trace_format::wire` in per-CPU rings, and counters. What a record means is decided on the host.
//!
//! Every program is a thin shell: it takes the guard (`guard`), asks whether task and lock are recorded (`filter`,
//! `sampling`), notes or reads what the task waits for (`waiting`, `owner`, `calls`), and emits (`emit`), stacks
//! included (`stacks`).

#![no_std]
#![no_main]
// core's atomic types have no such operations for this target, though its instructions exist (v3, Linux 5.12).
#![allow(internal_features, reason = "see above")]
#![feature(core_intrinsics)]

mod atomic;
mod calls;
mod config;
mod emit;
mod filter;
mod guard;
mod maps;
mod off_cpu;
mod owner;
mod probes;
mod sampling;
mod stacks;
mod waiting;

/// The kernel offers some of the helpers only to programs whose licence is compatible with the GPL.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // The verifier accepts no program in which this can be reached.
    loop {}
}
