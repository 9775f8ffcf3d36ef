//! The guard that every program takes first, and the counters that every program ends in.
//!
//! A program that runs inside another one on the same CPU, through a tracepoint in the ring buffer's own lock, would
//! take that lock again and hang the machine (kernels before 6.15). So all programs share a guard per CPU. It
//! knows its owner, because programs on uprobes can be preempted: another task that runs on the CPU meanwhile is no
//! nesting and may go on; it takes another slot. Counters are added to atomically for the same reason.
//!
//! Most nesting is harmless: an interrupt comes while a program walks a stack, and meets a contended lock. So the
//! programs of kernel locks may run once inside another one, with rings of their own and without any map whose locks the
//! outer program could hold: see [`Run::nested`]. What is nested deeper is lost, and counted.

use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use trace_format::wire::{WireCounters, program};

use crate::{
    atomic,
    filter::Task,
    maps::{ACTIVE, COUNTERS, CPU},
};

/// How many programs can be under way on one CPU: one runs, the others were preempted.
const SLOTS: usize = 4;

/// What belongs to a CPU.
#[repr(C)]
pub(crate) struct CpuState {
    /// Owners of the guard: pid and tgid plus one, 0 if free.
    slots: [u64; SLOTS],
    /// Events lost since the last one that got through.
    pub(crate) lost: u64,
    /// Events so far.
    pub(crate) seq: u64,
    /// Acquisitions of kernel locks so far, if not all are recorded.
    pub(crate) acquisitions: u64,
}

/// How a program ended.
#[derive(Clone, Copy)]
pub(crate) enum Outcome {
    /// Nothing to record.
    Filtered,
    /// The record is in the ring.
    Delivered,
    /// The record found no place.
    RingFull,
    /// What has to be remembered until a later program found no place.
    NoPlace,
}

/// What a program knows once it has the guard.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    /// Which program it is.
    pub(crate) program: u32,
    /// It runs inside another program: it must use the second set of rings, and add to no map.
    pub(crate) nested: bool,
    /// The CPU's state.
    pub(crate) cpu: *mut CpuState,
    /// The program's counters on this CPU.
    counters: *mut WireCounters,
}

impl Run {
    /// Counts a stack that found no place.
    #[inline(always)]
    pub(crate) fn count_lost_stack(&self) {
        // SAFETY: the pointer came from the map's lookup and was checked.
        add(unsafe { &raw mut (*self.counters).stack_lost });
    }

    /// Counts a wait that found no place.
    #[inline(always)]
    pub(crate) fn count_full_state(&self) {
        // SAFETY: as above.
        add(unsafe { &raw mut (*self.counters).state_full });
    }
}

/// Atomically adds one.
#[inline(always)]
pub(crate) fn add(counter: *mut u64) {
    // SAFETY: callers pass fields of map values: valid, aligned, and only ever changed atomically.
    unsafe { atomic::add(counter, 1) };
}

/// Runs `body` under the guard and counts how it ended.
#[inline(always)]
pub(crate) fn guarded(program: u32, body: impl FnOnce(&Run) -> Outcome) -> u32 {
    guarded_within(program, 0, || Task::current().is_recorded(), body)
}

/// The same for a program that may run inside another one; `body` heeds [`Run::nested`].
#[inline(always)]
pub(crate) fn guarded_or_nested(program: u32, body: impl FnOnce(&Run) -> Outcome) -> u32 {
    guarded_within(program, 1, || Task::current().is_recorded(), body)
}

/// The same for a program that knows already whether what it is about would be recorded; it may be about another task than
/// the current one.
#[inline(always)]
pub(crate) fn guarded_or_nested_of(recorded: bool, program: u32, body: impl FnOnce(&Run) -> Outcome) -> u32 {
    guarded_within(program, 1, || recorded, body)
}

#[inline(always)]
fn guarded_within(
    program: u32,
    depth: u32,
    is_recorded: impl FnOnce() -> bool,
    body: impl FnOnce(&Run) -> Outcome,
) -> u32 {
    let (Some(counters), Some(cpu)) = (COUNTERS.get_ptr_mut(program), CPU.get_ptr_mut(0)) else { return 0 };
    if program != program::TASK && !is_active() {
        // SAFETY: the pointer came from a lookup and was checked.
        add(unsafe { &raw mut (*counters).filtered });
        return 0;
    }
    let owner = bpf_get_current_pid_tgid().wrapping_add(1);
    let Some((slot, nested)) = take(cpu, owner, depth) else {
        // Only what would have been recorded is lost. Looking a target up takes no lock, so it needs no guard.
        let recorded = is_recorded();
        // SAFETY: both pointers came from lookups and were checked.
        unsafe {
            if recorded {
                add(&raw mut (*counters).guard);
                add(&raw mut (*cpu).lost);
            } else {
                add(&raw mut (*counters).filtered);
            }
        }
        return 0;
    };
    let outcome = body(&Run { program, nested, cpu, counters });
    // SAFETY: as above.
    unsafe {
        if nested {
            add(&raw mut (*counters).nested);
        }
        match outcome {
            Outcome::Filtered => add(&raw mut (*counters).filtered),
            Outcome::Delivered => add(&raw mut (*counters).delivered),
            Outcome::RingFull => {
                add(&raw mut (*counters).ring_full);
                add(&raw mut (*cpu).lost);
            }
            Outcome::NoPlace => {
                add(&raw mut (*counters).no_place);
                add(&raw mut (*cpu).lost);
            }
        }
        core::ptr::write_volatile(slot, 0);
    }
    0
}

/// Runs `body` without the guard and counts it as filtered. Only for programs that emit nothing and only look entries of
/// the hash map up, which takes no lock: the scheduler's tracepoints fire in interrupts, and an interrupt that comes
/// in the middle of another program would cost its wake-up if the guard kept it out.
#[inline(always)]
pub(crate) fn unguarded(program: u32, body: impl FnOnce()) -> u32 {
    let Some(counters) = COUNTERS.get_ptr_mut(program) else { return 0 };
    if is_active() {
        body();
    }
    // SAFETY: the pointer came from a lookup and was checked.
    add(unsafe { &raw mut (*counters).filtered });
    0
}

/// Runs `body` if the guard is free, and gives what it gave; `None` inside another program.
#[inline(always)]
pub(crate) fn if_free<T>(program: u32, body: impl FnOnce(&Run) -> T) -> Option<T> {
    if_free_within(program, 0, body)
}

/// The same, also once inside another program: `body` heeds [`Run::nested`].
#[inline(always)]
pub(crate) fn if_free_or_nested<T>(program: u32, body: impl FnOnce(&Run) -> T) -> Option<T> {
    if_free_within(program, 1, body)
}

#[inline(always)]
fn if_free_within<T>(program: u32, depth: u32, body: impl FnOnce(&Run) -> T) -> Option<T> {
    let (counters, cpu) = (COUNTERS.get_ptr_mut(program)?, CPU.get_ptr_mut(0)?);
    let (slot, nested) = take(cpu, bpf_get_current_pid_tgid().wrapping_add(1), depth)?;
    let result = body(&Run { program, nested, cpu, counters });
    // SAFETY: the slot is a field of the map's value, and this program's own.
    unsafe { core::ptr::write_volatile(slot, 0) };
    Some(result)
}

/// Whether events are recorded. Tasks are followed before and after that as well.
#[inline(always)]
fn is_active() -> bool {
    // SAFETY: the value is one aligned word that only the host writes.
    ACTIVE.get_ptr(0).is_some_and(|active| unsafe { core::ptr::read_volatile(active) } != 0)
}

/// A slot of this CPU's guard, and whether the task has another one; `None` if it has more than `depth`, or none is free.
#[inline(always)]
fn take(cpu: *mut CpuState, owner: u64, depth: u32) -> Option<(*mut u64, bool)> {
    // SAFETY: the pointer came from the map's lookup and was checked.
    let slots = unsafe { &raw mut (*cpu).slots }.cast::<u64>();
    let mut owned = 0;
    for at in 0..SLOTS {
        // SAFETY: `at` is less than the number of slots.
        owned += u32::from(unsafe { core::ptr::read_volatile(slots.add(at)) } == owner);
    }
    if owned > depth {
        return None;
    }
    for at in 0..SLOTS {
        // SAFETY: `at` is less than the number of slots.
        let slot = unsafe { slots.add(at) };
        // SAFETY: the slot is a field of the map's value.
        if unsafe { atomic::claim(slot, owner) } {
            return Some((slot, owned > 0));
        }
    }
    None
}
