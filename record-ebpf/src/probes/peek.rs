//! Reads the kernel's memory for the host, which names locks by what lies around them. Never attached: the host runs it
//! with `BPF_PROG_TEST_RUN` (raw tracepoints, 5.10), when and where it wants to read.
//!
//! Enter: `args[0]`, an address, and `args[1]`, how many bytes. Leave: the bytes and the running task in the map, 0 as the
//! result if the bytes were readable, 1 if not. It takes no guard, because it touches nothing that others use.

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

const READ: u32 = 0;
const UNREADABLE: u32 = 1;

#[raw_tracepoint]
fn peek(ctx: RawTracePointContext) -> u32 {
    let (address, bytes): (u64, u64) = (ctx.arg(0), ctx.arg(1));
    let Some(peeked) = PEEKED.get_ptr_mut(0) else { return UNREADABLE };
    if bytes > PEEK_BYTES as u64 {
        return UNREADABLE;
    }
    let peeked: *mut WirePeek = peeked;
    // SAFETY: the pointer came from the map's lookup and was checked; only the host's run of this program writes there.
    // The helper checks the address, and the destination has room for the most bytes.
    let answer = unsafe {
        (*peeked).task = bpf_get_current_task();
        bpf_probe_read_kernel((&raw mut (*peeked).bytes).cast(), bytes as u32, address as *const _)
    };
    if answer == 0 { READ } else { UNREADABLE }
}
