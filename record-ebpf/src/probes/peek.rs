//! Reads the kernel's memory for the host, which names locks by what lies around them. Never attached: the host runs it
//! with `BPF_PROG_TEST_RUN` (raw tracepoints, 5.10), when and where it wants to read.
//!
//! Enter: `args[0]`, an address, and `args[1]`, how many bytes. Leave, in the map: the running task, whether the
//! bytes were readable, and the bytes. It takes no guard, because it touches nothing that others use.

use aya_ebpf::{
    btf_maps::Array,
    helpers::{bpf_get_current_task, generated::bpf_probe_read_kernel},
    macros::{btf_map, raw_tracepoint},
    programs::RawTracePointContext,
};
use trace_format::peek::{PEEK_BYTES, WirePeek};

/// What the last run read.
#[btf_map]
static PEEKED: Array<WirePeek, 1> = Array::new();

#[raw_tracepoint]
fn peek(ctx: RawTracePointContext) -> u32 {
    let (address, bytes): (u64, u64) = (ctx.arg(0), ctx.arg(1));
    let Some(peeked) = PEEKED.get_ptr_mut(0) else { return 0 };
    // SAFETY: the pointer came from the map's lookup and was checked; only the host's run of this program writes there.
    unsafe {
        (*peeked).task = bpf_get_current_task();
        (*peeked).read = 0;
    }
    if bytes > PEEK_BYTES as u64 {
        return 0;
    }
    // SAFETY: as above; the destination has room for the most bytes, and the helper checks the address.
    unsafe {
        let place = (&raw mut (*peeked).bytes).cast();
        let answer = bpf_probe_read_kernel(place, bytes as u32, address as *const _);
        (*peeked).read = u64::from(answer == 0);
    }
    0
}
