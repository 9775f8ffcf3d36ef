//! What the probes of user locks read in the memory of the program: who called, and the words of the lock. Memory that
//! is not there at the moment can't be read, as of a lock that was never used; then nothing is known.

use aya_ebpf::{helpers::bpf_probe_read_user, programs::ProbeContext};
use trace_format::wire::{api, mutex, words};

/// Where the function returns to. Its frame is not set up yet, so the walk along the frame pointers leaves it out.
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

/// Whether the attempt of a spin lock that ended with the last instruction took it: it brought the lock down to 0.
#[inline(always)]
pub(super) fn has_succeeded(ctx: &ProbeContext) -> bool {
    #[cfg(bpf_target_arch = "aarch64")]
    {
        // Its functions are probed at their entry.
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

/// What a lock says about itself.
#[derive(Clone, Copy)]
pub(super) struct Words {
    /// Its [`words`].
    pub(super) both: u64,
    /// Of a mutex: its [`mutex`] half words.
    pub(super) mutex: u64,
}

impl Words {
    /// Those of the lock at the address; `object` is one of [`api`].
    #[inline(always)]
    pub(super) fn of(object: u8, address: u64) -> Option<Self> {
        match object {
            api::MUTEX => {
                let [first, _, owner, users, kind] = read::<[u32; 5]>(address)?;
                Some(Self { both: words::of(first, owner), mutex: mutex::of(kind, users) })
            }
            api::RWLOCK_READ | api::RWLOCK_WRITE | api::RWLOCK => {
                let [first, _, _, _, _, _, owner] = read::<[u32; 7]>(address)?;
                Some(Self { both: words::of(first, owner), mutex: 0 })
            }
            api::SPIN | api::SPIN_UNLOCK_OR_INIT | api::SEMAPHORE => {
                Some(Self { both: words::of(read(address)?, 0), mutex: 0 })
            }
            _ => None,
        }
    }
}

/// Whether a wait until then is refused: the clock is neither of the two that can be waited for (`CLOCK_REALTIME` is 0,
/// `CLOCK_MONOTONIC` 1), or the `timespec` has more nanoseconds than a second.
#[inline(always)]
pub(super) fn is_refused(clock: u32, until: u64) -> bool {
    let nanoseconds = read::<[u64; 2]>(until).map_or(0, |[_, nanoseconds]| nanoseconds);
    clock > 1 || nanoseconds >= 1_000_000_000
}

#[inline(always)]
fn read<T>(address: u64) -> Option<T> {
    // SAFETY: the helper checks the address, and `T` is an integer or an array of them here.
    unsafe { bpf_probe_read_user(address as *const T) }.ok()
}
