//! Futex calls: `futex(2)`, and the futex2 calls where they exist (`futex_waitv` 5.16, the others 6.7). A
//! wait has an event at entry and one at exit; a wake has one at exit, or at entry if the map of waiting
//! tasks is full. The exit of a wait whose entry was not seen has [`flag::NO_WAIT_STATE`].
//!
//! [`functions`] and [`tracepoints`] are the two ways to probe the calls; the common part is here.

use aya_ebpf::{
    helpers::{bpf_probe_read_kernel, bpf_probe_read_user},
    programs::tracing::StackIdContext,
};
use trace_format::wire::{code, flag, futex2, program};

use crate::{
    config,
    emit::{emit, event, now_ns},
    event_stacks,
    filter::{Task, selects_lock},
    guard::{Outcome, Run, guarded, unguarded},
    user_stack::Walk,
    waiting::{FutexCall, WaitState},
};

mod functions;
mod tracepoints;

/// System call numbers (`arch/x86/entry/syscalls/syscall_64.tbl`; from 449 on the same on all architectures).
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

/// `FUTEX_CMD_MASK`: the command without the flags for private futexes and the clock.
const COMMAND_MASK: u32 = !(128 | 256);

/// `FUTEX_WAIT`, `LOCK_PI`, `WAIT_BITSET`, `WAIT_REQUEUE_PI`, `LOCK_PI2`, and the waits of futex2.
#[inline(always)]
fn is_wait(command: u32) -> bool {
    matches!(command, 0 | 6 | 9 | 11 | 13)
        || command == futex2::WAIT as u32
        || command == futex2::WAITV as u32
}

/// `FUTEX_WAKE`, `REQUEUE`, `CMP_REQUEUE`, `WAKE_OP`, `UNLOCK_PI`, `WAKE_BITSET`, `CMP_REQUEUE_PI`, and the
/// wakes of futex2.
#[inline(always)]
fn is_wake(command: u32) -> bool {
    matches!(command, 1 | 3 | 4 | 5 | 7 | 10 | 12)
        || command == futex2::WAKE as u32
        || command == futex2::REQUEUE as u32
}

/// Reads the address in the first element of an array of `struct futex_waitv` (`include/uapi/linux/futex.h`,
/// 5.16).
#[inline(always)]
fn first_waiter(waiters: u64) -> u64 {
    const ADDRESS: u64 = 8;
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_user((waiters + ADDRESS) as *const u64) }.unwrap_or(0)
}

/// Decodes a call from its system call number and its first two arguments.
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

/// Records the entry of a call.
#[inline(always)]
fn enter(ctx: &impl StackIdContext, call: impl FnOnce() -> FutexCall) -> u32 {
    guarded(program::FUTEX_ENTER, |run| try_enter(run, ctx, &call()))
}

#[inline(always)]
fn try_enter(run: &Run, ctx: &impl StackIdContext, call: &FutexCall) -> Outcome {
    let task = Task::current();
    let waits = is_wait(call.command);
    let is_lock = (waits || is_wake(call.command)) && call.address != 0;
    if !is_lock || !task.is_recorded() || !selects_lock(call.address) {
        return Outcome::Filtered;
    }
    let state = WaitState::begin(task);
    if !waits {
        // A wake has one event, at its exit.
        match state {
            Some(state) => {
                state.enter_futex(call, now_ns());
                return Outcome::Filtered;
            }
            None => return wake_without_state(run, ctx, task, call),
        }
    }
    if config::min_wait_ns() > 0 {
        // Without a state the duration stays unknown, so the wait is lost.
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
    event_stacks::both(run, ctx, Walk::Unwound, &mut event);
    emit(run, &mut event)
}

/// Records a wake at its entry, without its result, because the map of waiting tasks is full.
#[inline(always)]
fn wake_without_state(run: &Run, ctx: &impl StackIdContext, task: Task, call: &FutexCall) -> Outcome {
    run.count_full_state();
    let mut event = event(run, task, code::FUTEX_WAKE);
    event.address = call.address;
    event.detail = call.command as u8;
    event.flags |= flag::NO_WAIT_STATE;
    event_stacks::both(run, ctx, Walk::Unwound, &mut event);
    emit(run, &mut event)
}

/// Records the return of a call with `result`. Without a state, `returning` decodes the call from the
/// registers of its entry, which are still on the task's kernel stack.
#[inline(always)]
fn leave(ctx: &impl StackIdContext, result: i64, returning: impl FnOnce() -> Option<FutexCall>) -> u32 {
    let task = Task::current();
    // Remove the call from the state before taking the guard. So a call whose entry the guard kept out is not
    // counted twice, and a call whose exit it keeps out does not remain for the next exit. Lookups take no
    // lock.
    let state = WaitState::of(task.tid);
    match state {
        Some(state) => match state.leave_futex() {
            Some(call) => guarded(program::FUTEX_EXIT, |run| exit(run, ctx, task, state, (&call, result))),
            None => unguarded(program::FUTEX_EXIT, || {}),
        },
        None if !task.is_recorded() => unguarded(program::FUTEX_EXIT, || {}),
        // Its loss was counted at the entry.
        None if config::min_wait_ns() > 0 => unguarded(program::FUTEX_EXIT, || {}),
        None => {
            let wait = returning().filter(|call| is_wait(call.command) && call.address != 0);
            match wait.filter(|call| selects_lock(call.address)) {
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
        state.describe_waker_of_futex(&mut event);
        event_stacks::both(run, ctx, Walk::Unwound, &mut event);
    } else if waits {
        state.describe(&mut event);
        state.describe_waker_of_futex(&mut event);
    } else {
        event.extra = state.begin_of_futex().ts_ns;
        event_stacks::both(run, ctx, Walk::Unwound, &mut event);
    }
    state.end_if_idle(task.tid);
    emit(run, &mut event)
}

/// Records the end of a wait that has no state, because the map of waiting tasks was full or its begin was
/// not seen.
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

/// The registers of a task at its entry to the kernel.
#[derive(Clone, Copy)]
struct Registers {
    first: u64,
    second: u64,
    /// System call number.
    number: u32,
    /// Result of the call, once the kernel has stored it.
    #[cfg_attr(bpf_target_arch = "aarch64", expect(dead_code, reason = "only used with tracepoints on x86"))]
    result: i64,
}

impl Registers {
    /// Reads the `struct pt_regs` at `address` (`arch/x86/include/asm/ptrace.h`).
    #[cfg(not(bpf_target_arch = "aarch64"))]
    #[inline(always)]
    fn at(address: u64) -> Option<Self> {
        /// `ax`, `cx`, `dx`, `si`, `di` and `orig_ax`, and their offset.
        type Fields = [u64; 6];
        const OFFSET: u64 = 80;
        // SAFETY: the helper checks the address.
        let fields = unsafe { bpf_probe_read_kernel((address + OFFSET) as *const Fields) }.ok()?;
        let [result, _, _, second, first, number] = fields;
        Some(Self { first, second, number: number as u32, result: result as i64 })
    }

    /// Reads the `struct pt_regs` at `address` (`arch/arm64/include/asm/ptrace.h`).
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

/// Finds the registers of a task's kernel entry, given any address on its kernel stack. They are at the top
/// of the stack, below a padding on some kernels.
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
