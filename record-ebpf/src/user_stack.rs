//! Takes user stacks: has the kernel walk them by frame pointers, which most C libraries and many programs do
//! not keep, or recognizes them, or copies their top and the registers that the recorder needs to unwind
//! them.

use aya_ebpf::{
    btf_maps::RingBuf,
    helpers::generated::{bpf_probe_read_user, bpf_ringbuf_reserve, bpf_ringbuf_submit},
    programs::tracing::StackIdContext,
};
use trace_format::wire::{WireStack, WireUserStack, code, stack};

use crate::{
    config,
    emit::{DESCRIPTORS, NO_WAKEUP, RECORD_HEADER, fill, now_ns, ring_of},
    filter::Task,
    guard::Run,
    known_stacks::Top,
    registers::Registers,
    stacks::{self, Inline, Side},
};

/// The way in which a user stack is taken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Walk {
    /// The kernel walks it by frame pointers.
    ByPointers,
    /// The recorder unwinds it, where it can.
    Unwound,
}

/// Takes the user stack of `task`, which is the current one, and returns the event's stack field. An inline
/// stack and a copy are joined to their event by `key`, this CPU and a sequence number.
#[inline(always)]
pub(crate) fn take(
    run: &Run,
    ctx: &impl StackIdContext,
    key: (u32, u32),
    task: Task,
    walk: Walk,
    inline: Inline,
) -> i32 {
    if task.tid == 0 {
        // The idle task has no user stack, but some kernels (6.18) read one from uninitialized registers.
        return stack::ABSENT;
    }
    let by_pointers = || stacks::id(run, ctx, key, Side::User, inline);
    if walk == Walk::ByPointers || config::stack_bytes() == 0 {
        return by_pointers();
    }
    let Some(registers) = Registers::of_current() else { return by_pointers() };
    let Some(top) = Top::of_current(run, task.tgid, registers) else { return by_pointers() };
    let known = top.find(run);
    if known.is_some() && known.by_pointers() == stack::NONE {
        return known.stack();
    }
    let user_stack = by_pointers();
    if known.is_some() && known.by_pointers() == user_stack {
        return known.stack();
    }
    copy(run, key, top, user_stack, inline == Inline::OfPeer);
    user_stack
}

/// Copies the top of a user stack into the ring of descriptors. If it cannot be copied, the event keeps
/// `user_stack`, the stack by frame pointers.
#[inline(always)]
fn copy(run: &Run, (cpu, seq): (u32, u32), top: &Top, user_stack: i32, peer: bool) {
    const HEADER: u64 = size_of::<WireUserStack>() as u64;
    const PAGE: u64 = 4096;
    let wanted = u64::from(config::stack_bytes());
    let sp = top.key.sp;
    let Some(ring) = DESCRIPTORS.get(ring_of(run, cpu)) else { return };
    let (used, size) = fill(ring);
    if used + RECORD_HEADER + HEADER + wanted > size / 4 * 3 {
        return;
    }
    let map = core::ptr::from_ref::<RingBuf<WireStack, { 256 << 10 }>>(ring).cast_mut().cast();
    // SAFETY: the record has the size of the header and of the wanted bytes; all fields are written before it
    // is submitted. The helper checks the address of the stack.
    unsafe {
        let record = bpf_ringbuf_reserve(map, HEADER + wanted, 0);
        if record.is_null() {
            return;
        }
        let stack = record.byte_add(HEADER as usize);
        let mut bytes = wanted;
        if bpf_probe_read_user(stack, wanted as u32, sp as *const _) != 0 {
            // The stack ends within these bytes.
            bytes = PAGE - sp % PAGE;
            if bytes >= wanted || bpf_probe_read_user(stack, bytes as u32, sp as *const _) != 0 {
                bytes = 0;
            }
        }
        record.cast::<WireUserStack>().write(WireUserStack {
            ts_ns: now_ns(),
            code: code::USER_STACK,
            peer: u8::from(peer),
            padding: [0; 2],
            cpu,
            seq,
            user_stack,
            bytes: bytes as u32,
            reserved: 0,
            incarnation: top.key.incarnation,
            ip: top.key.ip,
            sp,
            bp: top.bp,
        });
        bpf_ringbuf_submit(record, NO_WAKEUP);
    }
}
