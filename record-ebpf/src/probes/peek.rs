//! Reads kernel memory for the recorder, which finds lock names in it. The program is never attached: the
//! recorder runs it with `BPF_PROG_TEST_RUN` (raw tracepoints, 5.10).
//!
//! The arguments are an address and a number of bytes. The map receives the current task, whether the bytes
//! were readable, and the bytes. The program needs no guard, because it shares nothing with others.

use aya_ebpf::{
    btf_maps::Array,
    helpers::{bpf_get_current_task, generated::bpf_probe_read_kernel},
    macros::{btf_map, raw_tracepoint},
    programs::RawTracePointContext,
};
use trace_format::peek::{PEEK_BYTES, WirePeek};

/// The result of the last run.
#[btf_map]
static PEEKED: Array<WirePeek, 1> = Array::new();

#[raw_tracepoint]
fn peek(ctx: RawTracePointContext) -> u32 {
    let (address, bytes): (u64, u64) = (ctx.arg(0), ctx.arg(1));
    let Some(peeked) = PEEKED.get_ptr_mut(0) else { return 0 };
    // SAFETY: the pointer is from a checked map lookup, and only runs of this program write there.
    unsafe {
        (*peeked).task = bpf_get_current_task();
        (*peeked).read = 0;
    }
    if bytes > PEEK_BYTES as u64 {
        return 0;
    }
    // SAFETY: as above; the destination is large enough, and the helper checks the address.
    unsafe {
        let destination = (&raw mut (*peeked).bytes).cast();
        let error = bpf_probe_read_kernel(destination, bytes as u32, address as *const _);
        (*peeked).read = u64::from(error == 0);
    }
    0
}
