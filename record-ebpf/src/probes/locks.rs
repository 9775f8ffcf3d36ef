//! The functions that take kernel locks and give them back, one program each: `fexit` where the kernel permits it, which
//! sees arguments and answer together, otherwise `kprobe` and `kretprobe`. Which functions there are, and what their
//! answers mean, is the table of `trace_format::kernel_functions`.
//!
//! A program is named after its way and its function. All do the same, so each is a few instructions around one of three functions that the verifier sees once.

#![allow(non_snake_case, reason = "some functions of the kernel begin with an underscore")]

use aya_ebpf::{
    EbpfContext as _,
    macros::{fentry, fexit, kprobe, kretprobe},
    programs::{FEntryContext, FExitContext, ProbeContext, RetProbeContext},
};
use trace_format::{
    kernel_functions::{Act, FUNCTIONS, KernelFunction, id, kind},
    wire::{code, program},
};

use super::contention;
use crate::{
    calls, config,
    emit::{emit, event},
    filter::{Task, wants_lock},
    guard::{Outcome, guarded_or_nested},
    sampling::{self, Held},
    stacks,
    waiting::{Ended, WaitState},
};

/// What an attempt that does not wait reports if somebody else has the lock.
const EBUSY: i64 = -16;
/// What a function reports that had no need of the lock.
const EAGAIN: i64 = -11;

/// 0 if the function has the lock, otherwise a negative errno.
#[inline(always)]
fn answer(act: Act, returned: i32) -> i64 {
    match act {
        Act::TakeOrFail => i64::from(returned),
        Act::Try if returned == 0 => EBUSY,
        Act::TryZero if returned != 0 => EBUSY,
        Act::TakeUnless if returned == 0 => EAGAIN,
        _ => 0,
    }
}

/// A function's place in the table, and above it the kind of its lock: the verifier allows few arguments.
#[inline(always)]
const fn told(function: usize) -> u32 {
    kind(FUNCTIONS[function].flags) << KIND_AT | function as u32
}

/// Where the kind begins in [`told`].
const KIND_AT: u32 = 16;

/// A function returned that takes the lock at `address`.
#[inline(never)]
fn taken(ctx: FExitContext, told: u32, address: u64, value: i64) -> u32 {
    guarded_or_nested(program::LOCK_TAKEN, |run| {
        let task = Task::current();
        if !task.is_recorded() || !wants_lock(address) {
            return Outcome::Filtered;
        }
        let remembers = sampling::is_on() || config::slow_kinds() & told >> KIND_AT != 0;
        let mut state = if remembers && !run.nested { WaitState::of(task.tid) } else { None };
        let ended = match &mut state {
            Some(state) => state.function_returned(address),
            None => Ended::Nothing,
        };
        if let Some(state) = &mut state
            && matches!(ended, Ended::Told | Ended::Unchosen)
        {
            if ended == Ended::Unchosen {
                state.pop_lock(address);
            }
            state.end_if_idle(task.tid);
            return Outcome::Filtered;
        }
        if sampling::is_on() && ended == Ended::Nothing && (value != 0 || !sampling::chooses(run)) {
            return Outcome::Filtered;
        }
        if sampling::is_on() && value == 0 && !Held::by(task, address).remember() {
            run.count_full_state();
            return Outcome::Filtered;
        }
        let mut event = event(run, task, code::LOCK_TAKEN);
        event.address = address;
        event.detail = told as u8;
        event.value = value;
        match state {
            Some(state) if ended == Ended::Wait => {
                state.describe(&mut event);
                state.name_waker_of_lock(address, &mut event);
                state.pop_lock(address);
                state.end_if_idle(task.tid);
            }
            _ => stacks::both(run, &ctx, &mut event),
        }
        emit(run, &mut event)
    })
}

/// A function was entered that gives the lock at `address` back.
#[inline(never)]
fn released(ctx: FEntryContext, function: u32, address: u64) -> u32 {
    guarded_or_nested(program::LOCK_RELEASED, |run| {
        let task = Task::current();
        if !task.is_recorded() || !wants_lock(address) {
            return Outcome::Filtered;
        }
        if sampling::is_on() && !Held::by(task, address).forget() {
            return Outcome::Filtered;
        }
        let mut event = event(run, task, code::LOCK_RELEASED);
        event.address = address;
        event.detail = function as u8;
        if function == id::DOWNGRADE_WRITE as u32 {
            // It begins a hold, too.
            stacks::both(run, &ctx, &mut event);
        }
        emit(run, &mut event)
    })
}

/// A function was entered that gives a lock back or waits for it.
#[inline(always)]
fn on_entry(ctx: FEntryContext, function: usize, address: u64) -> u32 {
    match FUNCTIONS[function].act {
        Act::Slow => slow(ctx, u32::from(FUNCTIONS[function].flags), address),
        _ => released(ctx, function as u32, address),
    }
}

/// A function was entered that takes the lock at `address`; its return can't tell which.
#[inline(never)]
fn entered(function: u32, address: u64) -> u32 {
    guarded_or_nested(program::LOCK_ENTERED, |_| {
        let task = Task::current();
        if !task.is_recorded() || !wants_lock(address) {
            return Outcome::Filtered;
        }
        if calls::enter(task, function, address) { Outcome::Filtered } else { Outcome::NoPlace }
    })
}

/// A function was entered that waits for the lock at `address`, after the first attempt to take it failed.
#[inline(never)]
fn slow(ctx: FEntryContext, flags: u32, address: u64) -> u32 {
    guarded_or_nested(program::LOCK_SLOW, |run| contention::begin(run, &ctx, address, flags))
}

macro_rules! taking {
    ($($id:ident: $fexit:ident, $kprobe:ident, $kretprobe:ident;)+) => {
        $(
            #[fexit]
            fn $fexit(ctx: FExitContext) -> u32 {
                const FUNCTION: KernelFunction = FUNCTIONS[id::$id];
                let address = ctx.arg(FUNCTION.lock);
                // The answer stands behind the arguments; `Take` has none.
                let returned = if matches!(FUNCTION.act, Act::Take) { 0 } else { ctx.arg(FUNCTION.arguments) };
                taken(ctx, told(id::$id), address, answer(FUNCTION.act, returned))
            }

            #[kprobe]
            fn $kprobe(ctx: ProbeContext) -> u32 {
                entered(id::$id as u32, ctx.arg(FUNCTIONS[id::$id].lock).unwrap_or(0))
            }

            #[kretprobe]
            fn $kretprobe(ctx: RetProbeContext) -> u32 {
                let answer = answer(FUNCTIONS[id::$id].act, ctx.ret());
                let Some(address) = calls::leave(Task::current(), id::$id as u32) else { return 0 };
                taken(FExitContext::new(ctx.as_ptr()), told(id::$id), address, answer)
            }
        )+
    };
}

taking! {
    MUTEX_LOCK: fexit_mutex_lock, kprobe_mutex_lock, kretprobe_mutex_lock;
    MUTEX_LOCK_NESTED: fexit_mutex_lock_nested, kprobe_mutex_lock_nested, kretprobe_mutex_lock_nested;
    MUTEX_LOCK_NEST_LOCK: fexit__mutex_lock_nest_lock, kprobe__mutex_lock_nest_lock, kretprobe__mutex_lock_nest_lock;
    MUTEX_LOCK_IO: fexit_mutex_lock_io, kprobe_mutex_lock_io, kretprobe_mutex_lock_io;
    MUTEX_LOCK_IO_NESTED: fexit_mutex_lock_io_nested, kprobe_mutex_lock_io_nested, kretprobe_mutex_lock_io_nested;
    MUTEX_LOCK_INTERRUPTIBLE: fexit_mutex_lock_interruptible, kprobe_mutex_lock_interruptible, kretprobe_mutex_lock_interruptible;
    MUTEX_LOCK_INTERRUPTIBLE_NESTED: fexit_mutex_lock_interruptible_nested, kprobe_mutex_lock_interruptible_nested, kretprobe_mutex_lock_interruptible_nested;
    MUTEX_LOCK_KILLABLE: fexit_mutex_lock_killable, kprobe_mutex_lock_killable, kretprobe_mutex_lock_killable;
    MUTEX_LOCK_KILLABLE_NESTED: fexit_mutex_lock_killable_nested, kprobe_mutex_lock_killable_nested, kretprobe_mutex_lock_killable_nested;
    MUTEX_LOCK_KILLABLE_NEST: fexit__mutex_lock_killable, kprobe__mutex_lock_killable, kretprobe__mutex_lock_killable;
    MUTEX_TRYLOCK: fexit_mutex_trylock, kprobe_mutex_trylock, kretprobe_mutex_trylock;
    MUTEX_TRYLOCK_NEST_LOCK: fexit__mutex_trylock_nest_lock, kprobe__mutex_trylock_nest_lock, kretprobe__mutex_trylock_nest_lock;
    ATOMIC_DEC_AND_MUTEX_LOCK: fexit_atomic_dec_and_mutex_lock, kprobe_atomic_dec_and_mutex_lock, kretprobe_atomic_dec_and_mutex_lock;
    WW_MUTEX_LOCK: fexit_ww_mutex_lock, kprobe_ww_mutex_lock, kretprobe_ww_mutex_lock;
    WW_MUTEX_LOCK_INTERRUPTIBLE: fexit_ww_mutex_lock_interruptible, kprobe_ww_mutex_lock_interruptible, kretprobe_ww_mutex_lock_interruptible;
    WW_MUTEX_TRYLOCK: fexit_ww_mutex_trylock, kprobe_ww_mutex_trylock, kretprobe_ww_mutex_trylock;
    DOWN_READ: fexit_down_read, kprobe_down_read, kretprobe_down_read;
    DOWN_READ_NESTED: fexit_down_read_nested, kprobe_down_read_nested, kretprobe_down_read_nested;
    DOWN_READ_NON_OWNER: fexit_down_read_non_owner, kprobe_down_read_non_owner, kretprobe_down_read_non_owner;
    DOWN_READ_INTERRUPTIBLE: fexit_down_read_interruptible, kprobe_down_read_interruptible, kretprobe_down_read_interruptible;
    DOWN_READ_KILLABLE: fexit_down_read_killable, kprobe_down_read_killable, kretprobe_down_read_killable;
    DOWN_READ_KILLABLE_NESTED: fexit_down_read_killable_nested, kprobe_down_read_killable_nested, kretprobe_down_read_killable_nested;
    DOWN_READ_TRYLOCK: fexit_down_read_trylock, kprobe_down_read_trylock, kretprobe_down_read_trylock;
    DOWN_WRITE: fexit_down_write, kprobe_down_write, kretprobe_down_write;
    DOWN_WRITE_NESTED: fexit_down_write_nested, kprobe_down_write_nested, kretprobe_down_write_nested;
    DOWN_WRITE_NEST_LOCK: fexit__down_write_nest_lock, kprobe__down_write_nest_lock, kretprobe__down_write_nest_lock;
    DOWN_WRITE_KILLABLE: fexit_down_write_killable, kprobe_down_write_killable, kretprobe_down_write_killable;
    DOWN_WRITE_KILLABLE_NESTED: fexit_down_write_killable_nested, kprobe_down_write_killable_nested, kretprobe_down_write_killable_nested;
    DOWN_WRITE_TRYLOCK: fexit_down_write_trylock, kprobe_down_write_trylock, kretprobe_down_write_trylock;
    DOWN: fexit_down, kprobe_down, kretprobe_down;
    DOWN_INTERRUPTIBLE: fexit_down_interruptible, kprobe_down_interruptible, kretprobe_down_interruptible;
    DOWN_KILLABLE: fexit_down_killable, kprobe_down_killable, kretprobe_down_killable;
    DOWN_TIMEOUT: fexit_down_timeout, kprobe_down_timeout, kretprobe_down_timeout;
    DOWN_TRYLOCK: fexit_down_trylock, kprobe_down_trylock, kretprobe_down_trylock;
    RT_MUTEX_LOCK: fexit_rt_mutex_lock, kprobe_rt_mutex_lock, kretprobe_rt_mutex_lock;
    RT_MUTEX_LOCK_NESTED: fexit_rt_mutex_lock_nested, kprobe_rt_mutex_lock_nested, kretprobe_rt_mutex_lock_nested;
    RT_MUTEX_LOCK_NEST_LOCK: fexit__rt_mutex_lock_nest_lock, kprobe__rt_mutex_lock_nest_lock, kretprobe__rt_mutex_lock_nest_lock;
    RT_MUTEX_LOCK_INTERRUPTIBLE: fexit_rt_mutex_lock_interruptible, kprobe_rt_mutex_lock_interruptible, kretprobe_rt_mutex_lock_interruptible;
    RT_MUTEX_LOCK_KILLABLE: fexit_rt_mutex_lock_killable, kprobe_rt_mutex_lock_killable, kretprobe_rt_mutex_lock_killable;
    RT_MUTEX_TIMED_LOCK: fexit_rt_mutex_timed_lock, kprobe_rt_mutex_timed_lock, kretprobe_rt_mutex_timed_lock;
    RT_MUTEX_TRYLOCK: fexit_rt_mutex_trylock, kprobe_rt_mutex_trylock, kretprobe_rt_mutex_trylock;
    PERCPU_DOWN_WRITE: fexit_percpu_down_write, kprobe_percpu_down_write, kretprobe_percpu_down_write;
}

macro_rules! entering {
    ($($id:ident: $fentry:ident, $kprobe:ident;)+) => {
        $(
            #[fentry]
            fn $fentry(ctx: FEntryContext) -> u32 {
                let address = ctx.arg(0);
                on_entry(ctx, id::$id, address)
            }

            #[kprobe]
            fn $kprobe(ctx: ProbeContext) -> u32 {
                let address = ctx.arg(0).unwrap_or(0);
                on_entry(FEntryContext::new(ctx.as_ptr()), id::$id, address)
            }
        )+
    };
}

entering! {
    MUTEX_UNLOCK: fentry_mutex_unlock, kprobe_mutex_unlock;
    WW_MUTEX_UNLOCK: fentry_ww_mutex_unlock, kprobe_ww_mutex_unlock;
    UP_READ: fentry_up_read, kprobe_up_read;
    UP_READ_NON_OWNER: fentry_up_read_non_owner, kprobe_up_read_non_owner;
    UP_WRITE: fentry_up_write, kprobe_up_write;
    DOWNGRADE_WRITE: fentry_downgrade_write, kprobe_downgrade_write;
    UP: fentry_up, kprobe_up;
    RT_MUTEX_UNLOCK: fentry_rt_mutex_unlock, kprobe_rt_mutex_unlock;
    PERCPU_UP_WRITE: fentry_percpu_up_write, kprobe_percpu_up_write;
    MUTEX_LOCK_SLOWPATH: fentry___mutex_lock_slowpath, kprobe___mutex_lock_slowpath;
    MUTEX_LOCK_KILLABLE_SLOWPATH: fentry___mutex_lock_killable_slowpath, kprobe___mutex_lock_killable_slowpath;
    MUTEX_LOCK_INTERRUPTIBLE_SLOWPATH: fentry___mutex_lock_interruptible_slowpath, kprobe___mutex_lock_interruptible_slowpath;
    WW_MUTEX_LOCK_SLOWPATH: fentry___ww_mutex_lock_slowpath, kprobe___ww_mutex_lock_slowpath;
    WW_MUTEX_LOCK_INTERRUPTIBLE_SLOWPATH: fentry___ww_mutex_lock_interruptible_slowpath, kprobe___ww_mutex_lock_interruptible_slowpath;
    RWSEM_DOWN_READ_SLOWPATH: fentry_rwsem_down_read_slowpath, kprobe_rwsem_down_read_slowpath;
    RWSEM_DOWN_WRITE_SLOWPATH: fentry_rwsem_down_write_slowpath, kprobe_rwsem_down_write_slowpath;
    DOWN_SLOWPATH: fentry___down, kprobe___down;
    DOWN_INTERRUPTIBLE_SLOWPATH: fentry___down_interruptible, kprobe___down_interruptible;
    DOWN_KILLABLE_SLOWPATH: fentry___down_killable, kprobe___down_killable;
    DOWN_TIMEOUT_SLOWPATH: fentry___down_timeout, kprobe___down_timeout;
    RT_MUTEX_SLOWLOCK: fentry_rt_mutex_slowlock, kprobe_rt_mutex_slowlock;
}
