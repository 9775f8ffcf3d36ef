//! The in-process recorder, a library for LD_PRELOAD. In come the program's calls of the lock functions of pthread, C11 threads
//! and POSIX semaphores; out goes one record for each thing that happens, into memory that klock reads
//! (`trace_format::preload`). The calls go on to the C library, and come back with its answers: what the program sees, return
//! values and errno included, does not change. Nothing here prints, allocates or takes a lock, and nothing is needed but the C
//! library: where klock can't be reached every function only forwards.
//!
//! A call in order: [`entry`] notes who called, a file for each kind of lock ([`mutex`], [`rwlock`], [`spin`], [`barrier`],
//! [`semaphore`], [`condition`], [`c11`]) tries, waits and forwards ([`real`]), and a [`call::Call`] turns it into records: the
//! time ([`clock`]), the stack ([`walk`], [`table`]), the ring ([`ring`]). What a thread and a process are is found at their
//! first call ([`thread`], [`place`], [`process`], [`bounds`]).

// Built with panic=abort this is a library without std and without an unwinder, which is how it goes into programs; built
// otherwise, for its tests and for clippy, std brings the panic handler.
#![cfg_attr(all(panic = "abort", not(test)), no_std)]
#![deny(clippy::std_instead_of_core)]

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
compile_error!("record-preload knows Linux on x86_64 and aarch64");

mod barrier;
mod bounds;
mod c11;
mod call;
mod clock;
mod condition;
mod entry;
#[cfg(all(panic = "abort", not(test)))]
mod memory;
mod mutex;
mod name;
mod place;
mod process;
mod real;
mod ring;
mod rwlock;
mod semaphore;
mod spin;
mod sys;
mod table;
mod thread;
mod walk;

/// Nothing here panics; if it did all the same, the program could not go on.
#[cfg(all(panic = "abort", not(test)))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    sys::abort()
}

// An unwinder that passes through, because a thread is cancelled in a wait, finds nothing to do in the frames of this library:
// whatever their tables say it goes on (_URC_CONTINUE_UNWIND). Hidden: a Rust program has one of its own.
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
