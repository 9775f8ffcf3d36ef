//! The BPF programs of klock. They turn tracepoints (locks, futexes, scheduler, tasks), probes on kernel lock
//! functions and uprobes on pthread functions into records of `trace_format::wire` in per-CPU ring buffers.
//! The recorder interprets them.
//!
//! The programs are in `probes`. Each takes the `guard`, checks whether the task and the lock are recorded
//! (`filter`, `sampling`), reads or updates what is known of the task (`waiting`, `off_cpu`, `syscall`,
//! `calls`, `owner`), and writes a record (`emit`) with its stacks (`event_stacks`, of `stacks` and
//! `user_stack`). Each BPF map is in the module that uses it; `config` holds the settings that the loader
//! writes.

#![no_std]
#![no_main]
#![warn(missing_docs)]
// core's atomic types lack these operations for this target, although the instructions exist (v3, Linux
// 5.12).
#![allow(internal_features, reason = "see above")]
#![feature(core_intrinsics)]

mod atomic;
mod calls;
mod config;
mod emit;
mod event_stacks;
mod filter;
mod guard;
mod known_stacks;
mod memory;
mod off_cpu;
mod owner;
mod probes;
mod registers;
mod sampling;
mod stacks;
mod syscall;
mod user_stack;
mod waiting;

/// A GPL-compatible licence. The kernel restricts some helpers to such programs.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // Unreachable: the verifier rejects a program that could get here.
    loop {}
}
