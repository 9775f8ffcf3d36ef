//! The result of the BPF program that reads kernel memory: one record in a map. It does not become part of a
//! trace.

/// Maximum number of bytes per run.
pub const PEEK_BYTES: usize = 64;

/// The result of one run.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct WirePeek {
    /// Address of the current `task_struct`.
    pub task: u64,
    /// 1 if the bytes were readable. Here because a raw tracepoint program returns no result.
    pub read: u64,
    /// The bytes at the address. Valid up to the requested length, and only if `read` is 1.
    pub bytes: [u8; PEEK_BYTES],
}

const _: () = assert!(size_of::<WirePeek>() == 16 + PEEK_BYTES);
