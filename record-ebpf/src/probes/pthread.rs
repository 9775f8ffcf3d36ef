//! The calls on user locks of an attached process, by the functions of its C library: a record at entry, with the caller, and
//! one at return with the result. Arguments are read at entry only; at return their registers hold something else. What
//! the calls mean, and which of them are refused, is the host's business: it gets the words of the lock.
//!
//! Where an attachment can bring a cookie along, two programs do for all functions; otherwise each has its own.

use aya_ebpf::{
    EbpfContext as _,
    helpers::generated::bpf_get_attach_cookie,
    macros::{uprobe, uretprobe},
    programs::{ProbeContext, RetProbeContext},
};
use trace_format::{
    user_functions::{ATTEMPT, cookie_of, extra, of_cookie},
    wire::{api, code, flag, program},
};

use super::user_memory::{Words, caller, has_succeeded, is_refused};
use crate::{
    emit::{emit, event},
    filter::{Task, wants_lock},
    guard::{Outcome, guarded},
    stacks,
};

/// An event at a function's entry.
#[inline(always)]
fn entered(ctx: &ProbeContext, cookie: u64) -> u32 {
    let (what, detail, further) = of_cookie(cookie);
    let what = match what {
        ATTEMPT if has_succeeded(ctx) => code::TAKEN,
        ATTEMPT => code::CALL,
        what => what,
    };
    // Registers are read here, each by its constant place: the verifier wants to see the context's pointer unchanged,
    // and inside the guard the compiler would compute the place.
    let arguments =
        [ctx.arg::<u64>(0).unwrap_or(0), ctx.arg::<u64>(1).unwrap_or(0), ctx.arg::<u64>(2).unwrap_or(0)];
    let address = if further == extra::CONDITION { arguments[1] } else { arguments[0] };
    guarded(program::PTHREAD_CALL, |run| {
        let task = Task::current();
        if !task.is_recorded() || !wants_lock(address) {
            return Outcome::Filtered;
        }
        let mut event = event(run, task, what);
        event.address = address;
        event.detail = detail;
        event.caller = caller(ctx);
        // What is initialised has no words yet.
        let words = if what == code::INIT { None } else { Words::of(api::object(detail), address) };
        if let Some(words) = words {
            event.flags |= flag::WORDS;
            event.value = words.both as i64;
        }
        event.extra = match further {
            extra::CONDITION => arguments[0],
            extra::COUNT => arguments[2],
            extra::KIND => words.map_or(0, |words| words.mutex),
            extra::UNTIL => u64::from(is_refused(0, arguments[1])),
            extra::CLOCK_UNTIL => u64::from(is_refused(arguments[1] as u32, arguments[2])),
            _ => 0,
        };
        stacks::user(run, ctx, &mut event);
        emit(run, &mut event)
    })
}

#[inline(always)]
fn returned(ctx: &RetProbeContext, cookie: u64) -> u32 {
    let (_, detail, _) = of_cookie(cookie);
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

/// Every function's entry.
#[uprobe]
fn function_entered(ctx: ProbeContext) -> u32 {
    // SAFETY: the context is the program's own.
    entered(&ctx, unsafe { bpf_get_attach_cookie(ctx.as_ptr()) })
}

/// Every function's return.
#[uretprobe]
fn function_returned(ctx: RetProbeContext) -> u32 {
    // SAFETY: as above.
    returned(&ctx, unsafe { bpf_get_attach_cookie(ctx.as_ptr()) })
}

macro_rules! calls {
    ($($entry:ident, $exit:ident;)+) => {
        $(
            #[uprobe]
            fn $entry(ctx: ProbeContext) -> u32 {
                entered(&ctx, const { cookie_of(stringify!($entry)) })
            }

            #[uretprobe]
            fn $exit(ctx: RetProbeContext) -> u32 {
                returned(&ctx, const { cookie_of(stringify!($entry)) })
            }
        )+
    };
}

calls! {
    mutex_lock, mutex_lock_ret;
    mutex_trylock, mutex_trylock_ret;
    mutex_timedlock, mutex_timedlock_ret;
    mutex_clocklock, mutex_clocklock_ret;
    cond_wait, cond_wait_ret;
    cond_timedwait, cond_timedwait_ret;
    cond_clockwait, cond_clockwait_ret;
    rwlock_rdlock, rwlock_rdlock_ret;
    rwlock_tryrdlock, rwlock_tryrdlock_ret;
    rwlock_timedrdlock, rwlock_timedrdlock_ret;
    rwlock_clockrdlock, rwlock_clockrdlock_ret;
    rwlock_wrlock, rwlock_wrlock_ret;
    rwlock_trywrlock, rwlock_trywrlock_ret;
    rwlock_timedwrlock, rwlock_timedwrlock_ret;
    rwlock_clockwrlock, rwlock_clockwrlock_ret;
    spin_lock, spin_lock_ret;
    spin_trylock, spin_trylock_ret;
    barrier_wait, barrier_wait_ret;
    sem_wait, sem_wait_ret;
    sem_trywait, sem_trywait_ret;
    sem_timedwait, sem_timedwait_ret;
    sem_clockwait, sem_clockwait_ret;
}

macro_rules! moments {
    ($($entry:ident)+) => {
        $(
            #[uprobe]
            fn $entry(ctx: ProbeContext) -> u32 {
                entered(&ctx, const { cookie_of(stringify!($entry)) })
            }
        )+
    };
}

moments! {
    mutex_unlock mutex_init mutex_destroy
    rwlock_unlock rwlock_init rwlock_destroy
    spin_lock_tried spin_unlock spin_init spin_unlock_or_init spin_destroy
    cond_init cond_destroy
    barrier_init barrier_destroy
    sem_init sem_destroy sem_post
}
