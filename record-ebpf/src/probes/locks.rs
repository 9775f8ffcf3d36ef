//! Kernel lock functions, with a program per function: `fexit` if the kernel permits it, which sees the
//! arguments and the return value together, otherwise `kprobe` and `kretprobe`.
//! `trace_format::kernel_functions` lists the functions and the meaning of their return values.
//!
//! Programs are named after the attach type and the function. Each consists of a few instructions that call a
//! function shared by all, which the verifier checks once.

#![allow(non_snake_case, reason = "some functions of the kernel begin with an underscore")]

use aya_ebpf::{
    EbpfContext as _,
    macros::{fentry, fexit, kprobe, kretprobe},
    programs::{FEntryContext, FExitContext, ProbeContext, RetProbeContext},
};
use trace_format::{
    kernel_functions::{Action, FUNCTIONS, KernelFunction, index, kind},
    wire::{code, program},
};

use super::contention;
use crate::{
    calls, config,
    emit::{emit, event},
    event_stacks,
    filter::{Task, selects_lock},
    guard::{Outcome, guarded_or_nested},
    sampling::{self, Held},
    user_stack::Walk,
    waiting::{EndedWait, WaitState},
};

/// Result of a try-lock that found the lock held.
const EBUSY: i64 = -16;
/// Result of a function that did not need the lock.
const EAGAIN: i64 = -11;

/// Converts a return value: 0 if the function acquired the lock, otherwise a negative errno.
#[inline(always)]
fn result(action: Action, returned: i32) -> i64 {
    match action {
        Action::AcquireOrFail => i64::from(returned),
        Action::Try if returned == 0 => EBUSY,
        Action::TryInverted if returned != 0 => EBUSY,
        Action::AcquireConditionally if returned == 0 => EAGAIN,
        _ => 0,
    }
}

/// Packs the index of a function and the kind of its lock, because BPF functions have at most five arguments.
#[inline(always)]
const fn pack(function: usize) -> u32 {
    kind(FUNCTIONS[function].flags) << KIND_SHIFT | function as u32
}

/// Position of the kind in [`pack`].
const KIND_SHIFT: u32 = 16;

/// Records the return of a function that acquires the lock at `address`. `function` is from [`pack`].
#[inline(never)]
fn returned(ctx: FExitContext, function: u32, address: u64, value: i64) -> u32 {
    guarded_or_nested(program::LOCK_TAKEN, |run| {
        let task = Task::current();
        if !task.is_recorded() || !selects_lock(address) {
            return Outcome::Filtered;
        }
        let has_state = sampling::is_on() || config::slow_path_kinds() & function >> KIND_SHIFT != 0;
        let mut state = if has_state && !run.nested { WaitState::of(task.tid) } else { None };
        let ended = match &mut state {
            Some(state) => state.function_returned(address),
            None => EndedWait::None,
        };
        if let Some(state) = &mut state
            && matches!(ended, EndedWait::Reported | EndedWait::Skipped)
        {
            if ended == EndedWait::Skipped {
                state.pop_lock(address);
            }
            state.end_if_idle(task.tid);
            return Outcome::Filtered;
        }
        if sampling::is_on() && ended == EndedWait::None && (value != 0 || !sampling::samples()) {
            return Outcome::Filtered;
        }
        if sampling::is_on() && value == 0 && !Held::by(task, address).add() {
            run.count_full_state();
            return Outcome::Filtered;
        }
        let mut event = event(run, task, code::LOCK_TAKEN);
        event.address = address;
        event.detail = function as u8;
        event.value = value;
        match state {
            Some(state) if ended == EndedWait::Recorded => {
                state.describe(&mut event);
                state.describe_waker_of_lock(address, &mut event);
                state.pop_lock(address);
                state.end_if_idle(task.tid);
            }
            _ => event_stacks::both(run, &ctx, Walk::ByPointers, &mut event),
        }
        emit(run, &mut event)
    })
}

/// Records the entry of a function that releases the lock at `address`.
#[inline(never)]
fn released(ctx: FEntryContext, function: u32, address: u64) -> u32 {
    guarded_or_nested(program::LOCK_RELEASED, |run| {
        let task = Task::current();
        if !task.is_recorded() || !selects_lock(address) {
            return Outcome::Filtered;
        }
        if sampling::is_on() && !Held::by(task, address).remove() {
            return Outcome::Filtered;
        }
        let mut event = event(run, task, code::LOCK_RELEASED);
        event.address = address;
        event.detail = function as u8;
        if function == index::DOWNGRADE_WRITE as u32 {
            // It begins a hold as well.
            event_stacks::both(run, &ctx, Walk::ByPointers, &mut event);
        }
        emit(run, &mut event)
    })
}

/// Records the entry of a function that releases a lock or is a slow path.
#[inline(always)]
fn on_entry(ctx: FEntryContext, function: usize, address: u64) -> u32 {
    match FUNCTIONS[function].action {
        Action::SlowPath => slow_path(ctx, u32::from(FUNCTIONS[function].flags), address),
        _ => released(ctx, function as u32, address),
    }
}

/// Stores the lock at `address` at the entry of an acquiring function, for the kretprobe at its return.
#[inline(never)]
fn entered(function: u32, address: u64) -> u32 {
    guarded_or_nested(program::LOCK_ENTERED, |_| {
        let task = Task::current();
        if !task.is_recorded() || !selects_lock(address) {
            return Outcome::Filtered;
        }
        if calls::enter(task, function, address) { Outcome::Filtered } else { Outcome::NoPlace }
    })
}

/// Records the entry of a slow path, where the wait for the lock at `address` begins.
#[inline(never)]
fn slow_path(ctx: FEntryContext, flags: u32, address: u64) -> u32 {
    guarded_or_nested(program::LOCK_SLOW, |run| contention::begin(run, &ctx, address, flags))
}

macro_rules! acquiring {
    ($($id:ident: $fexit:ident, $kprobe:ident, $kretprobe:ident;)+) => {
        $(
            #[fexit]
            fn $fexit(ctx: FExitContext) -> u32 {
                const FUNCTION: KernelFunction = FUNCTIONS[index::$id];
                let address = ctx.arg(FUNCTION.lock);
                // The return value follows the arguments; `Acquire` has none.
                let value = if matches!(FUNCTION.action, Action::Acquire) { 0 } else { ctx.arg(FUNCTION.arguments) };
                returned(ctx, pack(index::$id), address, result(FUNCTION.action, value))
            }

            #[kprobe]
            fn $kprobe(ctx: ProbeContext) -> u32 {
                entered(index::$id as u32, ctx.arg(FUNCTIONS[index::$id].lock).unwrap_or(0))
            }

            #[kretprobe]
            fn $kretprobe(ctx: RetProbeContext) -> u32 {
                let result = result(FUNCTIONS[index::$id].action, ctx.ret());
                let Some(address) = calls::leave(Task::current(), index::$id as u32) else { return 0 };
                returned(FExitContext::new(ctx.as_ptr()), pack(index::$id), address, result)
            }
        )+
    };
}

acquiring! {
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
                on_entry(ctx, index::$id, address)
            }

            #[kprobe]
            fn $kprobe(ctx: ProbeContext) -> u32 {
                let address = ctx.arg(0).unwrap_or(0);
                on_entry(FEntryContext::new(ctx.as_ptr()), index::$id, address)
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
