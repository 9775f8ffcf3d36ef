//! Futex calls: entry and exit of `futex(2)`, and of the futex2 calls where they exist (`futex_waitv` 5.16, the others
//! 6.7). A wait is an event at entry and one at exit, a wake one at exit, or at entry where nothing can remember it. The
//! exit of a wait whose entry was not seen carries [`flag::NO_WAIT_STATE`].
//!
//! How the calls are come by is in [`functions`] and [`tracepoints`]; what is recorded of them is here.

use aya_ebpf::{
    helpers::{bpf_probe_read_kernel, bpf_probe_read_user},
    programs::tracing::StackIdContext,
};
use trace_format::wire::{code, flag, futex2, program};

use crate::{
    config,
    emit::{emit, event, now_ns},
    filter::{Task, wants_lock},
    guard::{Outcome, Run, guarded, unguarded},
    stacks,
    waiting::{FutexCall, WaitState},
};

mod functions;
mod tracepoints;

/// The numbers of the calls (`arch/x86/entry/syscalls/syscall_64.tbl`; from 449 on the same on all architectures).
mod number {
    #[cfg(not(bpf_target_arch = "aarch64"))]
    pub(super) const FUTEX: u32 = 202;
    #[cfg(bpf_target_arch = "aarch64")]
    pub(super) const FUTEX: u32 = 98;
    pub(super) const FUTEX_WAITV: u32 = 449;
    pub(super) const FUTEX_WAKE: u32 = 454;
    pub(super) const FUTEX_WAIT: u32 = 455;
    pub(super) const FUTEX_REQUEUE: u32 = 456;
}

/// `FUTEX_CMD_MASK`: what is left without the flags for private words and the clock.
const COMMAND_MASK: u32 = !(128 | 256);

/// `FUTEX_WAIT`, `LOCK_PI`, `WAIT_BITSET`, `WAIT_REQUEUE_PI`, `LOCK_PI2`, and the waits of futex2.
#[inline(always)]
fn is_wait(command: u32) -> bool {
    matches!(command, 0 | 6 | 9 | 11 | 13)
        || command == futex2::WAIT as u32
        || command == futex2::WAITV as u32
}

/// `FUTEX_WAKE`, `REQUEUE`, `CMP_REQUEUE`, `WAKE_OP`, `UNLOCK_PI`, `WAKE_BITSET`, `CMP_REQUEUE_PI`, and those of futex2.
#[inline(always)]
fn is_wake(command: u32) -> bool {
    matches!(command, 1 | 3 | 4 | 5 | 7 | 10 | 12)
        || command == futex2::WAKE as u32
        || command == futex2::REQUEUE as u32
}

/// The address in the first element of an array of `struct futex_waitv` (`include/uapi/linux/futex.h`, 5.16).
#[inline(always)]
fn first_waiter(waiters: u64) -> u64 {
    const ADDRESS: u64 = 8;
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_user((waiters + ADDRESS) as *const u64) }.unwrap_or(0)
}

/// The call of this number with these first two arguments.
#[inline(always)]
fn call_of(number: u32, first: u64, second: u64) -> FutexCall {
    let of =
        |address: u64, extra: u64, command: u8| FutexCall { address, extra, command: u32::from(command) };
    match number {
        number::FUTEX_WAIT => of(first, 0, futex2::WAIT),
        number::FUTEX_WAITV => of(first_waiter(first), second, futex2::WAITV),
        number::FUTEX_WAKE => of(first, 0, futex2::WAKE),
        number::FUTEX_REQUEUE => of(first_waiter(first), 0, futex2::REQUEUE),
        _ => FutexCall { address: first, extra: 0, command: second as u32 & COMMAND_MASK },
    }
}

/// A call was entered.
#[inline(always)]
fn enter(ctx: &impl StackIdContext, call: impl FnOnce() -> FutexCall) -> u32 {
    guarded(program::FUTEX_ENTER, |run| try_enter(run, ctx, &call()))
}

#[inline(always)]
fn try_enter(run: &Run, ctx: &impl StackIdContext, call: &FutexCall) -> Outcome {
    let task = Task::current();
    let waits = is_wait(call.command);
    let is_lock = (waits || is_wake(call.command)) && call.address != 0;
    if !is_lock || !task.is_recorded() || !wants_lock(call.address) {
        return Outcome::Filtered;
    }
    let state = WaitState::begin(task);
    if !waits {
        // A wake is one event at its exit, which the state remembers.
        match state {
            Some(state) => {
                state.enter_futex(call, now_ns());
                return Outcome::Filtered;
            }
            None => return wake_without_state(run, ctx, task, call),
        }
    }
    if config::min_wait_ns() > 0 {
        // What has no place is not known to be short or long: it is lost.
        let Some(state) = state else { return Outcome::NoPlace };
        state.enter_futex(call, now_ns());
        return Outcome::Filtered;
    }
    let mut event = event(run, task, code::FUTEX_WAIT);
    event.address = call.address;
    event.extra = call.extra;
    event.detail = call.command as u8;
    match state {
        Some(state) => {
            state.enter_futex(call, event.ts_ns);
            state.describe(&mut event);
        }
        None => {
            run.count_full_state();
            event.flags |= flag::NO_WAIT_STATE;
        }
    }
    stacks::both(run, ctx, &mut event);
    emit(run, &mut event)
}

/// A wake that found no place to be remembered in until its exit is told now, without its result.
#[inline(always)]
fn wake_without_state(run: &Run, ctx: &impl StackIdContext, task: Task, call: &FutexCall) -> Outcome {
    run.count_full_state();
    let mut event = event(run, task, code::FUTEX_WAKE);
    event.address = call.address;
    event.detail = call.command as u8;
    event.flags |= flag::NO_WAIT_STATE;
    stacks::both(run, ctx, &mut event);
    emit(run, &mut event)
}

/// A call returned `result`. `returning` is the call by the registers of its entry, which the task's kernel stack still
/// holds; it is asked where nothing was remembered.
#[inline(always)]
fn leave(ctx: &impl StackIdContext, result: i64, returning: impl FnOnce() -> Option<FutexCall>) -> u32 {
    let task = Task::current();
    // The call is taken from the state before the guard: a call whose entry the guard kept out is not counted twice, and
    // one whose exit it keeps out leaves nothing behind that the next exit would tell. Looking up takes no lock.
    let state = WaitState::of(task.tid);
    match state {
        Some(state) => match state.leave_futex() {
            Some(call) => guarded(program::FUTEX_EXIT, |run| exit(run, ctx, task, state, (&call, result))),
            None => unguarded(program::FUTEX_EXIT, || {}),
        },
        None if !task.is_recorded() => unguarded(program::FUTEX_EXIT, || {}),
        // A wait that is recorded whole, and found no place, was counted at its entry.
        None if config::min_wait_ns() > 0 => unguarded(program::FUTEX_EXIT, || {}),
        None => {
            let wait = returning().filter(|call| is_wait(call.command) && call.address != 0);
            match wait.filter(|call| wants_lock(call.address)) {
                Some(call) => {
                    guarded(program::FUTEX_EXIT, |run| exit_without_state(run, task, (&call, result)))
                }
                None => unguarded(program::FUTEX_EXIT, || {}),
            }
        }
    }
}

#[inline(always)]
fn exit(
    run: &Run,
    ctx: &impl StackIdContext,
    task: Task,
    state: &WaitState,
    (call, result): (&FutexCall, i64),
) -> Outcome {
    let waits = is_wait(call.command);
    if waits && now_ns().wrapping_sub(state.begin_of_futex().ts_ns) < config::min_wait_ns() {
        state.end_if_idle(task.tid);
        return Outcome::Filtered;
    }
    let mut event = event(run, task, if waits { code::FUTEX_WAIT_DONE } else { code::FUTEX_WAKE });
    event.address = call.address;
    event.extra = call.extra;
    event.detail = call.command as u8;
    event.value = result;
    if waits && config::min_wait_ns() > 0 {
        event.extra = 0;
        state.describe_whole(state.begin_of_futex(), &mut event);
        state.name_waker_of_futex(&mut event);
        stacks::both(run, ctx, &mut event);
    } else if waits {
        state.describe(&mut event);
        state.name_waker_of_futex(&mut event);
    } else {
        event.extra = state.begin_of_futex().ts_ns;
        stacks::both(run, ctx, &mut event);
    }
    state.end_if_idle(task.tid);
    emit(run, &mut event)
}

/// The end of a wait that found no place in the map of waiting tasks, or whose begin was not seen: the host knows.
#[inline(always)]
fn exit_without_state(run: &Run, task: Task, (call, result): (&FutexCall, i64)) -> Outcome {
    let mut event = event(run, task, code::FUTEX_WAIT_DONE);
    event.address = call.address;
    event.extra = call.extra;
    event.detail = call.command as u8;
    event.value = result;
    event.flags |= flag::NO_WAIT_STATE;
    emit(run, &mut event)
}

/// The registers with which a task came into the kernel, as far as they matter here.
#[derive(Clone, Copy)]
struct Registers {
    first: u64,
    second: u64,
    /// The number of the call.
    number: u32,
    /// What it returned, once the kernel has put it there.
    #[cfg_attr(
        bpf_target_arch = "aarch64",
        expect(dead_code, reason = "only asked for where there are tracepoints")
    )]
    result: i64,
}

impl Registers {
    /// Those at this address, a `struct pt_regs`.
    #[cfg(not(bpf_target_arch = "aarch64"))]
    #[inline(always)]
    fn at(address: u64) -> Option<Self> {
        /// `ax`, `cx`, `dx`, `si`, `di` and `orig_ax`, and where they begin (`arch/x86/include/asm/ptrace.h`).
        type Part = [u64; 6];
        const BEGIN: u64 = 80;
        // SAFETY: the helper checks the address.
        let part = unsafe { bpf_probe_read_kernel((address + BEGIN) as *const Part) }.ok()?;
        let [result, _, _, second, first, number] = part;
        Some(Self { first, second, number: number as u32, result: result as i64 })
    }

    /// Those at this address, a `struct pt_regs` (`arch/arm64/include/asm/ptrace.h`).
    #[cfg(bpf_target_arch = "aarch64")]
    #[inline(always)]
    fn at(address: u64) -> Option<Self> {
        const NUMBER: u64 = 8 * 35;
        // SAFETY: the helper checks the addresses.
        let (arguments, number) = unsafe {
            let arguments: [u64; 2] = bpf_probe_read_kernel(address as *const [u64; 2]).ok()?;
            (arguments, bpf_probe_read_kernel((address + NUMBER) as *const i32).ok()?)
        };
        Some(Self { first: arguments[0], second: arguments[1], number: number as u32, result: 0 })
    }

    #[inline(always)]
    fn call(&self) -> FutexCall {
        call_of(self.number, self.first, self.second)
    }
}

/// Where the registers end that a task came into the kernel with, given any address on its kernel stack: they are what the
/// stack begins with, below a padding that some kernels leave.
#[cfg(not(bpf_target_arch = "aarch64"))]
#[inline(always)]
fn registers_near(stack: u64, fits: impl Fn(&Registers) -> bool) -> Option<Registers> {
    /// The size of `struct pt_regs` (`arch/x86/include/asm/ptrace.h`).
    const SIZE: u64 = 168;
    /// `THREAD_SIZE`, and `TOP_OF_KERNEL_STACK_PADDING` with FRED (6.9).
    const STACK: u64 = 16 << 10;
    const PADDING: u64 = 16;
    let top = (stack | (STACK - 1)) + 1;
    let at = |address: u64| Registers::at(address).filter(|registers| fits(registers));
    at(top - SIZE).or_else(|| at(top - SIZE - PADDING))
}
