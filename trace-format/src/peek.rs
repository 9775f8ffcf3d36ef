//! What the program that reads kernel memory gives the host: one record in a map, not a part of the trace.

/// The most bytes that one run reads.
pub const PEEK_BYTES: usize = 64;

/// The answer of a run.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct WirePeek {
    /// The address of the `task_struct` that ran on the CPU.
    pub task: u64,
    /// 1 if the bytes were readable. A program on a raw tracepoint has no result of its own.
    pub read: u64,
    /// What is at the address; only as many bytes as were asked for count, and only if they were readable.
    pub bytes: [u8; PEEK_BYTES],
}

const _: () = assert!(size_of::<WirePeek>() == 16 + PEEK_BYTES);
