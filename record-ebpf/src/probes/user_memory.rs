//! Reads the memory of the probed process: the caller of a function and the words of a lock. Memory that is
//! not resident cannot be read, such as a lock that was never used; the values are then unknown.

use aya_ebpf::{helpers::bpf_probe_read_user, programs::ProbeContext};
use trace_format::wire::{api, lock_words, mutex_state};

/// Returns the return address of the function. The frame pointer walk misses it, because the frame is not set
/// up yet.
#[inline(always)]
pub(super) fn caller(ctx: &ProbeContext) -> u64 {
    #[cfg(bpf_target_arch = "aarch64")]
    // SAFETY: the verifier allows reads of the context's registers.
    return unsafe { (*ctx.regs).regs[30] };
    #[cfg(not(bpf_target_arch = "aarch64"))]
    {
        // SAFETY: the verifier allows reads of the context's registers; the helper checks the address.
        unsafe { bpf_probe_read_user((*ctx.regs).rsp as *const u64) }.unwrap_or(0)
    }
}

/// Returns the goroutine, and the first argument of a function of Go, by the convention of Go 1.17
/// (`cmd/compile/abi-internal.md`).
#[inline(always)]
pub(super) fn goroutine_and_argument(ctx: &ProbeContext) -> (u64, u64) {
    #[cfg(bpf_target_arch = "aarch64")]
    // SAFETY: the verifier allows reads of the context's registers.
    return unsafe { ((*ctx.regs).regs[28], (*ctx.regs).regs[0]) };
    #[cfg(not(bpf_target_arch = "aarch64"))]
    // SAFETY: as above.
    unsafe {
        ((*ctx.regs).r14, (*ctx.regs).rax)
    }
}

/// Whether the attempt to acquire a spinlock, which ended with the last instruction, succeeded: it
/// decremented the lock to 0.
#[inline(always)]
pub(super) fn has_succeeded(ctx: &ProbeContext) -> bool {
    #[cfg(bpf_target_arch = "aarch64")]
    {
        // On this architecture the functions are probed at their entry.
        let _ = ctx;
        return false;
    }
    #[cfg(not(bpf_target_arch = "aarch64"))]
    {
        /// `X86_EFLAGS_ZF`
        const ZERO: u64 = 1 << 6;
        // SAFETY: the verifier allows reads of the context's registers.
        unsafe { (*ctx.regs).eflags & ZERO != 0 }
    }
}

/// The words of a lock.
#[derive(Clone, Copy)]
pub(super) struct Words {
    /// The [`lock_words`].
    pub(super) both: u64,
    /// The [`mutex_state`] of a mutex.
    pub(super) mutex: u64,
}

impl Words {
    /// Reads the words of the lock at `address`; `object` is one of [`api`].
    #[inline(always)]
    pub(super) fn of(object: u8, address: u64) -> Option<Self> {
        match object {
            api::MUTEX => {
                let [first, _, owner, users, kind] = read::<[u32; 5]>(address)?;
                Some(Self { both: lock_words::pack(first, owner), mutex: mutex_state::pack(kind, users) })
            }
            api::RWLOCK_READ | api::RWLOCK_WRITE | api::RWLOCK => {
                let [first, _, _, _, _, _, owner] = read::<[u32; 7]>(address)?;
                Some(Self { both: lock_words::pack(first, owner), mutex: 0 })
            }
            api::SPIN | api::SPIN_UNLOCK_OR_INIT | api::SEMAPHORE => {
                Some(Self { both: lock_words::pack(read(address)?, 0), mutex: 0 })
            }
            _ => None,
        }
    }
}

/// Whether the C library refuses to wait until this time: the clock is neither `CLOCK_REALTIME` (0) nor
/// `CLOCK_MONOTONIC` (1), or the `timespec` has more nanoseconds than a second.
#[inline(always)]
pub(super) fn is_invalid_timeout(clock: u32, until: u64) -> bool {
    let nanoseconds = read::<[u64; 2]>(until).map_or(0, |[_, nanoseconds]| nanoseconds);
    clock > 1 || nanoseconds >= 1_000_000_000
}

#[inline(always)]
fn read<T>(address: u64) -> Option<T> {
    // SAFETY: the helper checks the address, and `T` is an integer or an array of integers.
    unsafe { bpf_probe_read_user(address as *const T) }.ok()
}
