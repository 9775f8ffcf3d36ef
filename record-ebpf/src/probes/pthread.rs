//! The pthread calls of an attached process: a record at entry, with the caller, and one at return with the result.
//! Arguments are read at entry only; at return their registers hold something else.

#[cfg(not(bpf_target_arch = "aarch64"))]
use aya_ebpf::helpers::bpf_probe_read_user;
use aya_ebpf::{
    macros::{uprobe, uretprobe},
    programs::{ProbeContext, RetProbeContext},
};
use trace_format::wire::{api, code, program};

use crate::{
    emit::{emit, event},
    filter::{Task, wants_lock},
    guard::{Outcome, guarded},
    stacks,
};

/// Where the function returns to. Its frame is not set up yet, so the walk along the frame pointers leaves it out.
#[inline(always)]
fn caller(ctx: &ProbeContext) -> u64 {
    #[cfg(bpf_target_arch = "aarch64")]
    // SAFETY: the verifier allows reads of the context's registers.
    return unsafe { (*ctx.regs).regs[30] };
    #[cfg(not(bpf_target_arch = "aarch64"))]
    {
        // SAFETY: the verifier allows reads of the context's registers; the helper checks the address.
        unsafe { bpf_probe_read_user((*ctx.regs).rsp as *const u64) }.unwrap_or(0)
    }
}

/// An event at a function's entry, about the lock in argument `lock` and the condition variable in argument `extra`.
#[inline(always)]
fn entered(ctx: &ProbeContext, what: u8, detail: u8, lock: usize, extra: Option<usize>) -> u32 {
    // Registers are read here, each by its constant place: the verifier wants to see the context's pointer unchanged,
    // and inside the guard the compiler would compute the place.
    let arguments = [ctx.arg::<u64>(0).unwrap_or(0), ctx.arg::<u64>(1).unwrap_or(0)];
    let argument = |at: usize| if at == 0 { arguments[0] } else { arguments[1] };
    let (address, extra) = (argument(lock), extra.map_or(0, argument));
    guarded(program::PTHREAD_CALL, |run| {
        let task = Task::current();
        if !task.is_recorded() || !wants_lock(address) {
            return Outcome::Filtered;
        }
        let mut event = event(run, task, what);
        event.address = address;
        event.detail = detail;
        event.extra = extra;
        event.caller = caller(ctx);
        stacks::user(run, ctx, &mut event);
        emit(run, &mut event)
    })
}

#[inline(always)]
fn returned(ctx: &RetProbeContext, detail: u8) -> u32 {
    guarded(program::PTHREAD_RETURN, |run| {
        let task = Task::current();
        if !task.is_recorded() {
            return Outcome::Filtered;
        }
        let mut event = event(run, task, code::RETURN);
        event.detail = detail;
        event.value = i64::from(ctx.ret::<i32>());
        emit(run, &mut event)
    })
}

macro_rules! calls {
    ($($entry:ident, $exit:ident: $api:ident, lock $lock:literal, extra $extra:expr;)+) => {
        $(
            #[uprobe]
            fn $entry(ctx: ProbeContext) -> u32 {
                entered(&ctx, code::CALL, api::$api, $lock, $extra)
            }

            #[uretprobe]
            fn $exit(ctx: RetProbeContext) -> u32 {
                returned(&ctx, api::$api)
            }
        )+
    };
}

calls! {
    mutex_lock, mutex_lock_ret: MUTEX_LOCK, lock 0, extra None;
    mutex_trylock, mutex_trylock_ret: MUTEX_TRYLOCK, lock 0, extra None;
    mutex_timedlock, mutex_timedlock_ret: MUTEX_TIMEDLOCK, lock 0, extra None;
    mutex_clocklock, mutex_clocklock_ret: MUTEX_CLOCKLOCK, lock 0, extra None;
    cond_wait, cond_wait_ret: COND_WAIT, lock 1, extra Some(0);
    cond_timedwait, cond_timedwait_ret: COND_TIMEDWAIT, lock 1, extra Some(0);
    cond_clockwait, cond_clockwait_ret: COND_CLOCKWAIT, lock 1, extra Some(0);
}

macro_rules! moments {
    ($($entry:ident: $code:ident;)+) => {
        $(
            #[uprobe]
            fn $entry(ctx: ProbeContext) -> u32 {
                entered(&ctx, code::$code, 0, 0, None)
            }
        )+
    };
}

moments! {
    mutex_unlock: UNLOCK;
    mutex_init: INIT;
    mutex_destroy: DESTROY;
}
