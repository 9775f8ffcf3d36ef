//! Fills the stacks of an event, whose task is the current one.

use aya_ebpf::programs::tracing::StackIdContext;
use trace_format::wire::{WireEvent, stack};

use crate::{
    emit::has_room,
    filter::Task,
    guard::Run,
    stacks::{Inline, Side, id},
    user_stack::{self, Walk},
};

/// Fills both stacks of the event.
#[inline(always)]
pub(crate) fn both(run: &Run, ctx: &impl StackIdContext, walk: Walk, event: &mut WireEvent) {
    if !has_room(run, event.cpu) {
        // The event will be lost. If the ring is drained meanwhile and the event fits, it reports lost
        // stacks.
        (event.kernel_stack, event.user_stack) = (stack::LOST, stack::LOST);
        return;
    }
    event.kernel_stack = id(run, ctx, (event.cpu, event.seq), Side::Kernel, Inline::OfTask);
    event.user_stack = of_user(run, ctx, walk, event);
}

/// Fills the user stack of the event.
#[inline(always)]
pub(crate) fn user(run: &Run, ctx: &impl StackIdContext, walk: Walk, event: &mut WireEvent) {
    event.user_stack = if has_room(run, event.cpu) { of_user(run, ctx, walk, event) } else { stack::LOST };
}

/// Returns the user stack of the event's task.
#[inline(always)]
fn of_user(run: &Run, ctx: &impl StackIdContext, walk: Walk, event: &WireEvent) -> i32 {
    let task = Task { tgid: event.tgid, tid: event.tid };
    user_stack::take(run, ctx, (event.cpu, event.seq), task, walk, Inline::OfTask)
}
