//! Call stacks: ids in the stack map or, if that is full, frames in the ring of descriptors ("inline").
//!
//! The lookup flags are 0, so that a stack that collides with another one is refused (-EEXIST). Other flags
//! would silently return the other stack's id or replace it (`kernel/bpf/stackmap.c`, 4.6).

use core::ffi::c_void;

use aya_ebpf::{
    bindings::BPF_F_USER_STACK, btf_maps::StackTrace, helpers::generated::bpf_get_stack, macros::btf_map,
    programs::tracing::StackIdContext,
};
use trace_format::wire::{MAX_FRAMES, WireStack, code, stack};

use crate::{
    emit::{DESCRIPTORS, NO_WAKEUP, RECORD_HEADER, fill, now_ns, ring_of},
    guard::Run,
};

/// Kernel and user stacks. Entries are never replaced: an id means the same frames for the whole recording.
#[btf_map]
static STACKS: StackTrace<65536, 0, MAX_FRAMES> = StackTrace::new();

/// A stack of the current task.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The kernel stack.
    Kernel,
    /// The user stack.
    User,
}

/// Whether and as whose stack a stack may be sent inline.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inline {
    /// Not inline, because nothing would join the stack to its event.
    Never,
    /// As the stack of the event's task.
    OfTask,
    /// As the stack of the event's peer.
    OfPeer,
}

/// Returns the id of a stack in the stack map, or one of [`stack`]. An inline stack is joined to its event by
/// `key`, this CPU and a sequence number. [`emit`](crate::emit::emit) counts lost stacks of inline
/// candidates.
#[inline(always)]
pub(crate) fn id(run: &Run, ctx: &impl StackIdContext, key: (u32, u32), side: Side, inline: Inline) -> i32 {
    const EFAULT: i32 = -14;
    let flags = if side == Side::User { u64::from(BPF_F_USER_STACK) } else { 0 };
    if run.nested {
        // The outer program may be inserting into the stack map.
        return send(run, ctx.as_ptr(), key, side, inline, flags);
    }
    match ctx.get_stackid(&STACKS, flags) {
        Ok(id) => id as i32,
        Err(EFAULT) => stack::ABSENT,
        Err(_) if inline != Inline::Never => send(run, ctx.as_ptr(), key, side, inline, flags),
        Err(_) => {
            run.count_lost_stack();
            stack::LOST
        }
    }
}

/// Sends the frames through the ring of descriptors and returns the event's stack field. A quarter of the
/// ring is reserved for task records, so that a flood of stacks does not cost names.
#[inline(always)]
fn send(run: &Run, ctx: *mut c_void, (cpu, seq): (u32, u32), side: Side, inline: Inline, flags: u64) -> i32 {
    const BYTES: u64 = RECORD_HEADER + size_of::<WireStack>() as u64;
    let Some(ring) = DESCRIPTORS.get(ring_of(run, cpu)) else { return stack::LOST };
    let (used, size) = fill(ring);
    if used + BYTES > size / 4 * 3 {
        return stack::LOST;
    }
    let Some(mut entry) = ring.reserve(0) else { return stack::LOST };
    let record: *mut WireStack = entry.as_mut_ptr();
    // SAFETY: the ring reserved a whole record; all fields are written before it is submitted.
    let bytes = unsafe {
        let frames = (&raw mut (*record).frames).cast::<c_void>();
        bpf_get_stack(ctx, frames, (MAX_FRAMES * 8) as u32, flags)
    };
    if bytes < 0 {
        entry.discard(NO_WAKEUP);
        return stack::ABSENT;
    }
    // SAFETY: as above. The helper fills unused frames with zeros.
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
