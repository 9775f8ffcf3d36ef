//! The per-CPU guard that every program takes first, and the counters that every program increments at its
//! end.
//!
//! A program that interrupts another one on the same CPU, through a tracepoint in the ring buffer's own lock,
//! would take that lock again and hang the machine (kernels before 6.15). So all programs share a guard per
//! CPU. The guard records its owner, because uprobe programs can be preempted: a program of another task on
//! the same CPU is not nested, and takes another slot. Counters are atomic for the same reason.
//!
//! Most nesting is harmless: an interrupt during a stack walk meets a contended lock. So the programs of
//! kernel locks may run once inside another program, with rings of their own and without the maps whose locks
//! the outer program may hold (see [`Run::nested`]). Deeper nesting is counted as lost.

use aya_ebpf::{
    btf_maps::{Array, PerCpuArray},
    helpers::bpf_get_current_pid_tgid,
    macros::btf_map,
};
use trace_format::wire::{WireCounters, program};

use crate::{atomic, filter::Task};

/// 1 while events are recorded. Attaching and detaching all programs takes long; this starts and stops
/// recording for all of them at once, so that no begin is recorded without its end.
#[btf_map]
static ACTIVE: Array<u32, 1> = Array::new();

/// The guard and other state of a CPU.
#[btf_map]
static CPU: PerCpuArray<CpuState, 1> = PerCpuArray::new();

/// The counters of each program.
#[btf_map]
static COUNTERS: PerCpuArray<WireCounters, { program::COUNT }> = PerCpuArray::new();

/// Maximum number of programs in progress on a CPU: one runs, the others were preempted.
pub(crate) const SLOTS: usize = 4;

/// The state of a CPU.
#[repr(C)]
pub(crate) struct CpuState {
    /// Owners of the guard: tgid and pid plus one, 0 if free.
    slots: [u64; SLOTS],
    /// Events lost since the last delivered one.
    pub(crate) lost: u64,
    /// Events so far.
    pub(crate) seq: u64,
}

/// The outcome of a program.
#[derive(Clone, Copy)]
pub(crate) enum Outcome {
    /// Nothing to record.
    Filtered,
    /// The record is in the ring.
    Delivered,
    /// The ring was full.
    RingFull,
    /// A map was full, so that state for a later program could not be stored.
    NoPlace,
}

/// A run of a program that holds the guard.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    /// The program, one of [`program`].
    pub(crate) program: u32,
    /// The slot of the guard that it holds. No other program of this CPU has it.
    pub(crate) slot: u32,
    /// Whether it runs inside another program. Then it must use the second set of rings, and must not insert
    /// into maps.
    pub(crate) nested: bool,
    /// The CPU's state.
    pub(crate) cpu: *mut CpuState,
    /// The program's counters on this CPU.
    counters: *mut WireCounters,
}

impl Run {
    /// Counts a lost stack.
    #[inline(always)]
    pub(crate) fn count_lost_stack(&self) {
        // SAFETY: the pointer is from a checked map lookup.
        add(unsafe { &raw mut (*self.counters).stack_lost });
    }

    /// Counts a wait that did not fit into the map of waiting tasks.
    #[inline(always)]
    pub(crate) fn count_full_state(&self) {
        // SAFETY: as above.
        add(unsafe { &raw mut (*self.counters).state_full });
    }
}

/// Atomically adds one.
#[inline(always)]
fn add(counter: *mut u64) {
    // SAFETY: callers pass fields of map values: valid, aligned, and only changed atomically.
    unsafe { atomic::add(counter, 1) };
}

/// Runs `body` under the guard and counts its outcome.
#[inline(always)]
pub(crate) fn guarded(program: u32, body: impl FnOnce(&Run) -> Outcome) -> u32 {
    guarded_within(program, 0, || Task::current().is_recorded(), body)
}

/// As [`guarded`], for a program that may run inside another one. `body` must respect [`Run::nested`].
#[inline(always)]
pub(crate) fn guarded_or_nested(program: u32, body: impl FnOnce(&Run) -> Outcome) -> u32 {
    guarded_within(program, 1, || Task::current().is_recorded(), body)
}

/// As [`guarded_or_nested`], for a program that knows whether its event is `recorded`. Its task need not be
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
        // SAFETY: the pointer is from a checked map lookup.
        add(unsafe { &raw mut (*counters).filtered });
        return 0;
    }
    let owner = bpf_get_current_pid_tgid().wrapping_add(1);
    let Some((index, slot, nested)) = take(cpu, owner, depth) else {
        // Only events that would have been recorded are lost. Looking up a target takes no lock and needs no
        // guard.
        let recorded = is_recorded();
        // SAFETY: both pointers are from checked map lookups.
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
    let outcome = body(&Run { program, slot: index, nested, cpu, counters });
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

/// Runs `body` without the guard and counts it as filtered. Only for programs that emit nothing and only look
/// up entries of hash maps, which takes no lock. Scheduler tracepoints fire in interrupts; the guard would
/// cost wake-ups that interrupt another program.
#[inline(always)]
pub(crate) fn unguarded(program: u32, body: impl FnOnce()) -> u32 {
    let Some(counters) = COUNTERS.get_ptr_mut(program) else { return 0 };
    if is_active() {
        body();
    }
    // SAFETY: the pointer is from a checked map lookup.
    add(unsafe { &raw mut (*counters).filtered });
    0
}

/// Runs `body` under the guard and returns its result; `None` inside another program.
#[inline(always)]
pub(crate) fn if_free<T>(program: u32, body: impl FnOnce(&Run) -> T) -> Option<T> {
    if_free_within(program, 0, body)
}

/// As [`if_free`], but also once inside another program. `body` must respect [`Run::nested`].
#[inline(always)]
pub(crate) fn if_free_or_nested<T>(program: u32, body: impl FnOnce(&Run) -> T) -> Option<T> {
    if_free_within(program, 1, body)
}

#[inline(always)]
fn if_free_within<T>(program: u32, depth: u32, body: impl FnOnce(&Run) -> T) -> Option<T> {
    let (counters, cpu) = (COUNTERS.get_ptr_mut(program)?, CPU.get_ptr_mut(0)?);
    let (index, slot, nested) = take(cpu, bpf_get_current_pid_tgid().wrapping_add(1), depth)?;
    let result = body(&Run { program, slot: index, nested, cpu, counters });
    // SAFETY: the slot is a field of the map value, and owned by this program.
    unsafe { core::ptr::write_volatile(slot, 0) };
    Some(result)
}

/// Whether events are recorded now. Forks, execs and exits are recorded before and after that as well.
#[inline(always)]
pub(crate) fn is_active() -> bool {
    // SAFETY: the value is an aligned word that only the recorder writes.
    ACTIVE.get_ptr(0).is_some_and(|active| unsafe { core::ptr::read_volatile(active) } != 0)
}

/// Takes a slot of this CPU's guard. Returns its index, the slot, and whether the owner has another slot;
/// `None` if the owner has more than `depth` slots, or if no slot is free.
#[inline(always)]
fn take(cpu: *mut CpuState, owner: u64, depth: u32) -> Option<(u32, *mut u64, bool)> {
    // SAFETY: the pointer is from a checked map lookup.
    let slots = unsafe { &raw mut (*cpu).slots }.cast::<u64>();
    let mut owned = 0;
    for index in 0..SLOTS {
        // SAFETY: `index` is less than the number of slots.
        owned += u32::from(unsafe { core::ptr::read_volatile(slots.add(index)) } == owner);
    }
    if owned > depth {
        return None;
    }
    for index in 0..SLOTS {
        // SAFETY: `index` is less than the number of slots.
        let slot = unsafe { slots.add(index) };
        // SAFETY: the slot is a field of the map value.
        if unsafe { atomic::claim(slot, owner) } {
            return Some((index as u32, slot, owned > 0));
        }
    }
    None
}
