//! Calls of user lock functions in the C library of an attached process, and of the slow paths of Rust's and
//! Go's locks, with a record at entry and one at return. Arguments are read at entry only, because at return
//! their registers hold other values. The recorder interprets the calls, with the words of the lock.
//!
//! Where attachments can carry a cookie, two programs serve all functions; otherwise each function has its
//! own.

use aya_ebpf::{
    EbpfContext as _,
    helpers::generated::bpf_get_attach_cookie,
    macros::{uprobe, uretprobe},
    programs::{ProbeContext, RetProbeContext},
};
use trace_format::{
    user_functions::{ATTEMPT, cookie_for_entry, decode_cookie, extra, is_slow_path},
    wire::{api, code, flag, program},
};

use super::user_memory::{Words, caller, goroutine_and_argument, has_succeeded, is_invalid_timeout};
use crate::{
    emit::{emit, event},
    event_stacks,
    filter::{Task, selects_lock},
    guard::{Outcome, guarded},
    user_stack::Walk,
};

/// Records the entry of a function, or a return instruction of it.
#[inline(always)]
fn entered(ctx: &ProbeContext, cookie: u64) -> u32 {
    let (code, detail, extra) = decode_cookie(cookie);
    let code = match code {
        ATTEMPT if has_succeeded(ctx) => code::TAKEN,
        ATTEMPT => code::CALL,
        code => code,
    };
    // Read the registers here, at constant offsets: the verifier requires an unmodified context pointer, and
    // inside the guard the compiler would compute the offset.
    let arguments =
        [ctx.arg::<u64>(0).unwrap_or(0), ctx.arg::<u64>(1).unwrap_or(0), ctx.arg::<u64>(2).unwrap_or(0)];
    let (goroutine, argument) = goroutine_and_argument(ctx);
    let is_return = code == code::RETURN;
    let address = match extra {
        _ if is_return => 0,
        extra::CONDITION => arguments[1],
        extra::GOROUTINE => argument,
        _ => arguments[0],
    };
    guarded(program::PTHREAD_CALL, |run| {
        let task = Task::current();
        if !task.is_recorded() || !(is_return || selects_lock(address)) {
            return Outcome::Filtered;
        }
        let mut event = event(run, task, code);
        if is_return {
            event.detail = detail;
            event.extra = goroutine;
            return emit(run, &mut event);
        }
        event.address = address;
        event.detail = detail;
        event.caller = caller(ctx);
        // A lock that is about to be initialized has no valid words.
        let words = if code == code::INIT { None } else { Words::of(api::object(detail), address) };
        if let Some(words) = words {
            event.flags |= flag::LOCK_WORDS;
            event.value = words.both as i64;
        }
        event.extra = match extra {
            extra::CONDITION => arguments[0],
            extra::COUNT => arguments[2],
            extra::KIND => words.map_or(0, |words| words.mutex),
            extra::TIMEOUT => u64::from(is_invalid_timeout(0, arguments[1])),
            extra::CLOCK_TIMEOUT => u64::from(is_invalid_timeout(arguments[1] as u32, arguments[2])),
            extra::GOROUTINE => goroutine,
            _ => 0,
        };
        let walk = if is_slow_path(detail) { Walk::Unwound } else { Walk::ByPointers };
        event_stacks::user(run, ctx, walk, &mut event);
        emit(run, &mut event)
    })
}

/// Records the return of a function.
#[inline(always)]
fn returned(ctx: &RetProbeContext, cookie: u64) -> u32 {
    let (_, detail, _) = decode_cookie(cookie);
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

/// The entry of any function, identified by the attachment's cookie.
#[uprobe]
fn function_entered(ctx: ProbeContext) -> u32 {
    // SAFETY: the context is the program's own.
    entered(&ctx, unsafe { bpf_get_attach_cookie(ctx.as_ptr()) })
}

/// The return of any function, identified by the attachment's cookie.
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
                entered(&ctx, const { cookie_for_entry(stringify!($entry)) })
            }

            #[uretprobe]
            fn $exit(ctx: RetProbeContext) -> u32 {
                returned(&ctx, const { cookie_for_entry(stringify!($entry)) })
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
    rust_mutex, rust_mutex_ret;
    rust_read, rust_read_ret;
    rust_write, rust_write_ret;
}

macro_rules! entries {
    ($($entry:ident)+) => {
        $(
            #[uprobe]
            fn $entry(ctx: ProbeContext) -> u32 {
                entered(&ctx, const { cookie_for_entry(stringify!($entry)) })
            }
        )+
    };
}

entries! {
    mutex_unlock mutex_init mutex_destroy
    rwlock_unlock rwlock_init rwlock_destroy
    spin_lock_tried spin_unlock spin_init spin_unlock_or_init spin_destroy
    cond_init cond_destroy cond_signal cond_broadcast
    barrier_init barrier_destroy
    sem_init sem_destroy sem_post
    go_lock go_lock_returned go_unlock
}
