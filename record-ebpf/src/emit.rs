//! From values to a record in the ring: the one place where events are lost.

use aya_ebpf::{
    bindings::{BPF_RB_AVAIL_DATA, BPF_RB_NO_WAKEUP, BPF_RB_RING_SIZE},
    btf_maps::RingBuf,
    helpers::{bpf_get_smp_processor_id, bpf_ktime_get_ns, bpf_ringbuf_query},
};
use trace_format::wire::{WireEvent, stack};

use crate::{
    atomic, config,
    filter::Task,
    guard::{Outcome, Run},
    maps::RINGS,
};

/// The host polls the rings on a timer; a wake-up per record would cost more than the record.
pub(crate) const NO_WAKEUP: u64 = BPF_RB_NO_WAKEUP as u64;

/// What a record takes in a ring beside its own bytes (`BPF_RINGBUF_HDR_SZ`).
pub(crate) const RECORD_HEADER: u64 = 8;

/// This CPU.
#[inline(always)]
pub(crate) fn cpu() -> u32 {
    // SAFETY: the helper has no preconditions.
    unsafe { bpf_get_smp_processor_id() }
}

/// CLOCK_MONOTONIC in nanoseconds.
#[inline(always)]
pub(crate) fn now_ns() -> u64 {
    // SAFETY: the helper has no preconditions.
    unsafe { bpf_ktime_get_ns() }
}

/// The next number of this CPU.
#[inline(always)]
pub(crate) fn next_seq(run: &Run) -> u32 {
    // SAFETY: the pointer came from the map's lookup and was checked; the field is only ever changed atomically.
    unsafe { atomic::add(&raw mut (*run.cpu).seq, 1) as u32 }
}

/// An event of the task, now.
#[inline(always)]
pub(crate) fn event(run: &Run, task: Task, code: u8) -> WireEvent {
    let seq = next_seq(run);
    WireEvent {
        ts_ns: now_ns(),
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

/// Which of the rings is this CPU's for this program.
#[inline(always)]
pub(crate) fn ring_of(run: &Run, cpu: u32) -> u32 {
    if run.nested { config::cpus() + cpu } else { cpu }
}

/// What is taken of a ring, and its size, in bytes.
#[inline(always)]
pub(crate) fn fill<T, const BYTES: usize>(ring: &RingBuf<T, BYTES>) -> (u64, u64) {
    let map = core::ptr::from_ref(ring).cast_mut().cast();
    // SAFETY: the pointer is that of a ring, which the helper only asks.
    unsafe {
        (bpf_ringbuf_query(map, BPF_RB_AVAIL_DATA.into()), bpf_ringbuf_query(map, BPF_RB_RING_SIZE.into()))
    }
}

/// Whether this CPU's ring will take one more event: what belongs to one that it won't take need not be sought.
#[inline(always)]
pub(crate) fn has_room(run: &Run, cpu: u32) -> bool {
    const BYTES: u64 = RECORD_HEADER + size_of::<WireEvent>() as u64;
    let Some(ring) = RINGS.get(ring_of(run, cpu)) else { return false };
    let (taken, size) = fill(ring);
    taken + BYTES <= size
}

/// Puts the event into this CPU's ring.
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
