//! The calls on user locks of an attached process, by the functions of its C library: a record at entry, with the caller, and
//! one at return with the result. Arguments are read at entry only; at return their registers hold something else. What
//! the calls mean, and which of them are refused, is the host's business: it gets the words of the lock.

use aya_ebpf::{
    macros::{uprobe, uretprobe},
    programs::{ProbeContext, RetProbeContext},
};
use trace_format::wire::{api, code, flag, program};

use super::user_memory::{Words, caller, has_succeeded, is_refused};
use crate::{
    emit::{emit, event},
    filter::{Task, wants_lock},
    guard::{Outcome, guarded},
    stacks,
};

/// What the third field of a call, [`extra`](trace_format::wire::WireEvent::extra), holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extra {
    /// Nothing.
    None,
    /// Argument 0. The lock is argument 1.
    Condition,
    /// Argument 2.
    Count,
    /// The mutex's kind and users.
    Kind,
    /// Whether the time in argument 1 is refused.
    Until,
    /// Whether the clock in argument 1 or the time in argument 2 is refused.
    ClockUntil,
}

/// An event at a function's entry.
#[inline(always)]
fn entered(ctx: &ProbeContext, what: u8, detail: u8, extra: Extra) -> u32 {
    // Registers are read here, each by its constant place: the verifier wants to see the context's pointer unchanged,
    // and inside the guard the compiler would compute the place.
    let arguments =
        [ctx.arg::<u64>(0).unwrap_or(0), ctx.arg::<u64>(1).unwrap_or(0), ctx.arg::<u64>(2).unwrap_or(0)];
    let address = if extra == Extra::Condition { arguments[1] } else { arguments[0] };
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
        event.extra = match extra {
            Extra::None => 0,
            Extra::Condition => arguments[0],
            Extra::Count => arguments[2],
            Extra::Kind => words.map_or(0, |words| words.mutex),
            Extra::Until => u64::from(is_refused(0, arguments[1])),
            Extra::ClockUntil => u64::from(is_refused(arguments[1] as u32, arguments[2])),
        };
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
    ($($entry:ident, $exit:ident: $object:ident $way:ident, $extra:ident;)+) => {
        $(
            #[uprobe]
            fn $entry(ctx: ProbeContext) -> u32 {
                entered(&ctx, code::CALL, const { api::of(api::$object, api::$way) }, Extra::$extra)
            }

            #[uretprobe]
            fn $exit(ctx: RetProbeContext) -> u32 {
                returned(&ctx, const { api::of(api::$object, api::$way) })
            }
        )+
    };
}

calls! {
    mutex_lock, mutex_lock_ret: MUTEX WAITS, None;
    mutex_trylock, mutex_trylock_ret: MUTEX TRIES, None;
    mutex_timedlock, mutex_timedlock_ret: MUTEX TIMED, Until;
    mutex_clocklock, mutex_clocklock_ret: MUTEX CLOCKED, ClockUntil;
    cond_wait, cond_wait_ret: CONDITION WAITS, Condition;
    cond_timedwait, cond_timedwait_ret: CONDITION TIMED, Condition;
    cond_clockwait, cond_clockwait_ret: CONDITION CLOCKED, Condition;
    rwlock_rdlock, rwlock_rdlock_ret: RWLOCK_READ WAITS, None;
    rwlock_tryrdlock, rwlock_tryrdlock_ret: RWLOCK_READ TRIES, None;
    rwlock_timedrdlock, rwlock_timedrdlock_ret: RWLOCK_READ TIMED, Until;
    rwlock_clockrdlock, rwlock_clockrdlock_ret: RWLOCK_READ CLOCKED, ClockUntil;
    rwlock_wrlock, rwlock_wrlock_ret: RWLOCK_WRITE WAITS, None;
    rwlock_trywrlock, rwlock_trywrlock_ret: RWLOCK_WRITE TRIES, None;
    rwlock_timedwrlock, rwlock_timedwrlock_ret: RWLOCK_WRITE TIMED, Until;
    rwlock_clockwrlock, rwlock_clockwrlock_ret: RWLOCK_WRITE CLOCKED, ClockUntil;
    spin_lock, spin_lock_ret: SPIN WAITS, None;
    spin_trylock, spin_trylock_ret: SPIN TRIES, None;
    barrier_wait, barrier_wait_ret: BARRIER WAITS, None;
    sem_wait, sem_wait_ret: SEMAPHORE WAITS, None;
    sem_trywait, sem_trywait_ret: SEMAPHORE TRIES, None;
    sem_timedwait, sem_timedwait_ret: SEMAPHORE TIMED, Until;
    sem_clockwait, sem_clockwait_ret: SEMAPHORE CLOCKED, ClockUntil;
}

/// `pthread_spin_lock` right after an attempt, where there can be no probe before it: the processor tells how it went.
#[uprobe]
fn spin_lock_tried(ctx: ProbeContext) -> u32 {
    let what = if has_succeeded(&ctx) { code::TAKEN } else { code::CALL };
    entered(&ctx, what, const { api::of(api::SPIN, api::RETRIES) }, Extra::None)
}

macro_rules! moments {
    ($($entry:ident: $code:ident $object:ident, $extra:ident;)+) => {
        $(
            #[uprobe]
            fn $entry(ctx: ProbeContext) -> u32 {
                entered(&ctx, code::$code, const { api::of(api::$object, api::NONE) }, Extra::$extra)
            }
        )+
    };
}

moments! {
    mutex_unlock: UNLOCK MUTEX, Kind;
    mutex_init: INIT MUTEX, None;
    mutex_destroy: DESTROY MUTEX, Kind;
    rwlock_unlock: UNLOCK RWLOCK, None;
    rwlock_init: INIT RWLOCK, None;
    rwlock_destroy: DESTROY RWLOCK, None;
    spin_unlock: UNLOCK SPIN, None;
    spin_init: INIT SPIN, None;
    spin_unlock_or_init: UNLOCK SPIN_UNLOCK_OR_INIT, None;
    spin_destroy: DESTROY SPIN, None;
    cond_init: INIT CONDITION, None;
    cond_destroy: DESTROY CONDITION, None;
    barrier_init: INIT BARRIER, Count;
    barrier_destroy: DESTROY BARRIER, None;
    sem_init: INIT SEMAPHORE, Count;
    sem_destroy: DESTROY SEMAPHORE, None;
    sem_post: POST SEMAPHORE, None;
}
