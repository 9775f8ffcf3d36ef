//! Stacks: ids of the stack map, and where that has no place, the frames themselves in the descriptors' ring.
//!
//! Flags are 0: with them a stack that collides with another one is refused (-EEXIST), where the other flags would
//! silently give it the other's id or take the other's place (`kernel/bpf/stackmap.c`, 4.6).

use core::ffi::c_void;

use aya_ebpf::{
    bindings::BPF_F_USER_STACK, helpers::generated::bpf_get_stack, programs::tracing::StackIdContext,
};
use trace_format::wire::{MAX_FRAMES, WireEvent, WireStack, code, stack};

use crate::{
    emit::{NO_WAKEUP, RECORD_HEADER, fill, has_room, now_ns, ring_of},
    guard::Run,
    maps::{DESCRIPTORS, STACKS},
};

/// Which stack of the current task.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The kernel's.
    Kernel,
    /// The user's.
    User,
}

/// How a stack may travel inline that has no place in the stack map.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inline {
    /// Not: nothing would join it to its event.
    Never,
    /// As that of the event's task.
    OfTask,
    /// As that of the event's peer.
    OfPeer,
}

/// Fills the event's two stacks.
#[inline(always)]
pub(crate) fn both(run: &Run, ctx: &impl StackIdContext, event: &mut WireEvent) {
    if !has_room(run, event.cpu) {
        // Nobody will see the event. Should the ring be emptied this very moment, it says that its stacks are lost.
        (event.kernel_stack, event.user_stack) = (stack::LOST, stack::LOST);
        return;
    }
    event.kernel_stack = id(run, ctx, (event.cpu, event.seq), Side::Kernel, Inline::OfTask);
    if event.tid == 0 {
        // The idle task has no user stack, but not every kernel knows: 6.18 reads one from registers that never were.
        event.user_stack = stack::ABSENT;
    } else {
        event.user_stack = id(run, ctx, (event.cpu, event.seq), Side::User, Inline::OfTask);
    }
}

/// Fills the event's user stack.
#[inline(always)]
pub(crate) fn user(run: &Run, ctx: &impl StackIdContext, event: &mut WireEvent) {
    let room = has_room(run, event.cpu);
    event.user_stack =
        if room { id(run, ctx, (event.cpu, event.seq), Side::User, Inline::OfTask) } else { stack::LOST };
}

/// The stack's id, or one of [`stack`]. A stack that travels inline is joined to its event by `place`, this CPU and a number of
/// it; whoever emits that event counts its own stacks that are lost.
#[inline(always)]
pub(crate) fn id(run: &Run, ctx: &impl StackIdContext, place: (u32, u32), side: Side, inline: Inline) -> i32 {
    const EFAULT: i32 = -14;
    let flags = if side == Side::User { u64::from(BPF_F_USER_STACK) } else { 0 };
    if run.nested {
        // The outer program may be about to add to the stack map.
        return send(run, ctx.as_ptr(), place, side, inline, flags);
    }
    match ctx.get_stackid(&STACKS, flags) {
        Ok(id) => id as i32,
        Err(EFAULT) => stack::ABSENT,
        Err(_) if inline != Inline::Never => send(run, ctx.as_ptr(), place, side, inline, flags),
        Err(_) => {
            run.count_lost_stack();
            stack::LOST
        }
    }
}

/// Sends the frames through the ring of descriptors; the answer is what the event says of them. A quarter of the ring is
/// left to births and names of tasks: a flood of stacks costs none of them.
#[inline(always)]
fn send(run: &Run, ctx: *mut c_void, (cpu, seq): (u32, u32), side: Side, inline: Inline, flags: u64) -> i32 {
    const BYTES: u64 = RECORD_HEADER + size_of::<WireStack>() as u64;
    let Some(ring) = DESCRIPTORS.get(ring_of(run, cpu)) else { return stack::LOST };
    let (taken, size) = fill(ring);
    if taken + BYTES > size / 4 * 3 {
        return stack::LOST;
    }
    let Some(mut entry) = ring.reserve(0) else { return stack::LOST };
    let record: *mut WireStack = entry.as_mut_ptr();
    // SAFETY: the ring reserved a whole record; every field is written before it is submitted.
    let bytes = unsafe {
        let frames = (&raw mut (*record).frames).cast::<c_void>();
        bpf_get_stack(ctx, frames, (MAX_FRAMES * 8) as u32, flags)
    };
    if bytes < 0 {
        entry.discard(NO_WAKEUP);
        return stack::ABSENT;
    }
    // SAFETY: as above. The helper fills the rest of the frames with zeros.
    unsafe {
        (*record).ts_ns = now_ns();
        (*record).code = code::STACK;
        (*record).user = u8::from(side == Side::User);
        (*record).peer = u8::from(inline == Inline::OfPeer);
        (*record).count = (bytes / 8) as u8;
        (*record).cpu = cpu;
        (*record).seq = seq;
        (*record).padding = 0;
    }
    entry.submit(NO_WAKEUP);
    stack::INLINE
}
