//! The recorder library that klock loads into programs with `LD_PRELOAD`.
//!
//! It interposes the lock functions of pthread, C11 threads and POSIX semaphores, and those that create and
//! join threads, and writes a record of each event into shared memory that klock reads
//! (`trace_format::preload`). Calls are forwarded to the C library; return values and errno do not change.
//! The library needs nothing but the C library. It never prints, allocates from the heap or takes a lock. If
//! klock cannot be reached, it only forwards.
//!
//! The path of a call:
//!
//! 1. `entry` captures the caller and jumps to the function of the lock kind (`mutex`, `locks`, `semaphore`,
//!    `condition`, `join`, `c11`).
//! 2. That function tries, waits and forwards to the C library (`real`).
//! 3. A `call::Call` writes records, unless `sampling` leaves the call out: the time (`clock`), the stack
//!    (`walk`, `table`), through the thread's writer (`writer`).
//!
//! The first call of a thread or process sets up its session (`thread`, `slot`, `process`, `bounds`).
//!
//! Three more kinds of functions are interposed, so that programs do not notice the library: those that start
//! programs that cannot load it (`exec`), those by which a program restricts itself (`restrictions`), and
//! `mlockall` (`lock_memory`). `_exit` is interposed so that klock can read the mappings of a process before
//! it ends (`exit`).

#![warn(missing_docs)]
// Built with panic=abort for programs, the library has neither std nor an unwinder. Built for tests and
// clippy, std provides the panic handler.
#![cfg_attr(all(panic = "abort", not(test)), no_std)]
#![deny(clippy::std_instead_of_core)]

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
compile_error!("record-preload supports Linux on x86_64 and aarch64 only");

mod bounds;
mod c11;
mod call;
mod clock;
mod condition;
mod entry;
mod exec;
mod exit;
mod join;
mod last_release;
mod lock_memory;
mod locks;
mod maps;
#[cfg(all(panic = "abort", not(test)))]
mod memory;
mod mutex;
mod mutex_fields;
mod process;
mod program;
mod real;
mod restrictions;
mod sampling;
mod semaphore;
mod slot;
mod sys;
mod table;
mod thread;
mod valgrind;
mod walk;
mod writer;

/// Aborts the program. Not expected to run, since no code here panics.
#[cfg(all(panic = "abort", not(test)))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    sys::abort()
}

// When a thread is cancelled in a wait, the unwinder passes through frames of this library. They have nothing
// to clean up, so the personality function always returns _URC_CONTINUE_UNWIND. Hidden, because Rust programs
// have one of their own.
#[cfg(all(panic = "abort", not(test)))]
core::arch::global_asm!(
    ".pushsection .text.rust_eh_personality,\"ax\",%progbits",
    ".globl rust_eh_personality",
    ".hidden rust_eh_personality",
    ".type rust_eh_personality, %function",
    "rust_eh_personality:",
    #[cfg(target_arch = "x86_64")]
    "mov eax, 8",
    #[cfg(target_arch = "aarch64")]
    "mov w0, #8",
    "ret",
    ".size rust_eh_personality, . - rust_eh_personality",
    ".popsection",
);
