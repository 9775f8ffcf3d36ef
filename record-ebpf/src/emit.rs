//! The ring buffers, and writing events to them. Only here can an event be lost.

use aya_ebpf::{
    bindings::{BPF_RB_AVAIL_DATA, BPF_RB_NO_WAKEUP, BPF_RB_RING_SIZE},
    btf_maps::{ArrayOfMaps, RingBuf},
    helpers::{bpf_get_smp_processor_id, bpf_ktime_get_ns, bpf_ringbuf_query},
    macros::btf_map,
};
use trace_format::wire::{WireEvent, WireStack, stack};

use crate::{
    atomic, config,
    filter::Task,
    guard::{Outcome, Run},
};

/// Two rings for each of 1024 CPUs. The loader adds one for each possible CPU, and then one for each CPU's
/// nested programs.
const MAX_RINGS: usize = 2048;

/// Events, in a ring per CPU, so that the lock inside the ring buffer is never contended. The loader sets the
/// size.
#[btf_map]
static RINGS: ArrayOfMaps<RingBuf<WireEvent, { 8 << 20 }>, MAX_RINGS> = ArrayOfMaps::new();

/// Descriptors, in a ring per CPU, so that a flood of events does not cost names or stacks.
#[btf_map]
pub(crate) static DESCRIPTORS: ArrayOfMaps<RingBuf<WireStack, { 256 << 10 }>, MAX_RINGS> = ArrayOfMaps::new();

/// Suppresses the wake-up of the reader, which polls the rings on a timer. A wake-up would cost more than the
/// record.
pub(crate) const NO_WAKEUP: u64 = BPF_RB_NO_WAKEUP as u64;

/// Size of a record's header in a ring (`BPF_RINGBUF_HDR_SZ`).
pub(crate) const RECORD_HEADER: u64 = 8;

/// Returns the current CPU.
#[inline(always)]
pub(crate) fn cpu() -> u32 {
    // SAFETY: the helper has no preconditions.
    unsafe { bpf_get_smp_processor_id() }
}

/// Returns CLOCK_MONOTONIC in nanoseconds.
#[inline(always)]
pub(crate) fn now_ns() -> u64 {
    // SAFETY: the helper has no preconditions.
    unsafe { bpf_ktime_get_ns() }
}

/// Returns the next sequence number of this CPU.
#[inline(always)]
pub(crate) fn next_seq(run: &Run) -> u32 {
    // SAFETY: the pointer is from a checked map lookup, and the field is only changed atomically.
    unsafe { atomic::add(&raw mut (*run.cpu).seq, 1) as u32 }
}

/// Creates an event of the task with the current time.
#[inline(always)]
pub(crate) fn event(run: &Run, task: Task, code: u8) -> WireEvent {
    event_at(run, task, code, now_ns())
}

/// Creates an event of the task with a time since which no other program ran on this CPU.
#[inline(always)]
pub(crate) fn event_at(run: &Run, task: Task, code: u8, ts_ns: u64) -> WireEvent {
    let seq = next_seq(run);
    WireEvent {
        ts_ns,
        code,
        program: run.program as u8,
        cpu: cpu(),
        tgid: task.tgid,
        tid: task.tid,
        kernel_stack: stack::NONE,
        user_stack: stack::NONE,
        peer_kernel_stack: stack::NONE,
        peer_user_stack: stack::NONE,
        seq,
        ..WireEvent::default()
    }
}

/// Returns the index of the ring for this run on this CPU.
#[inline(always)]
pub(crate) fn ring_of(run: &Run, cpu: u32) -> u32 {
    if run.nested { config::cpus() + cpu } else { cpu }
}

/// Returns the used bytes and the size of a ring.
#[inline(always)]
pub(crate) fn fill<T, const BYTES: usize>(ring: &RingBuf<T, BYTES>) -> (u64, u64) {
    let map = core::ptr::from_ref(ring).cast_mut().cast();
    // SAFETY: the pointer is a ring, which the helper only queries.
    unsafe {
        (bpf_ringbuf_query(map, BPF_RB_AVAIL_DATA.into()), bpf_ringbuf_query(map, BPF_RB_RING_SIZE.into()))
    }
}

/// Whether this CPU's ring has room for an event. If not, collecting the event's stacks is useless.
#[inline(always)]
pub(crate) fn has_room(run: &Run, cpu: u32) -> bool {
    const BYTES: u64 = RECORD_HEADER + size_of::<WireEvent>() as u64;
    let Some(ring) = RINGS.get(ring_of(run, cpu)) else { return false };
    let (used, size) = fill(ring);
    used + BYTES <= size
}

/// Writes the event to this CPU's ring.
#[inline(always)]
pub(crate) fn emit(run: &Run, event: &mut WireEvent) -> Outcome {
    // SAFETY: as above.
    let before = unsafe { atomic::swap(&raw mut (*run.cpu).lost, 0) };
    event.lost_before = before as u32;
    let delivered =
        RINGS.get(ring_of(run, event.cpu)).is_some_and(|ring| ring.output(&*event, NO_WAKEUP).is_ok());
    if delivered {
        if event.kernel_stack == stack::LOST || event.user_stack == stack::LOST {
            run.count_lost_stack();
        }
        Outcome::Delivered
    } else {
        // SAFETY: as above.
        unsafe { atomic::add(&raw mut (*run.cpu).lost, before) };
        Outcome::RingFull
    }
}
