//! Sizes of the rings between the BPF programs and klock.

/// Default size of each CPU's ring of events in bytes.
pub const RING_BYTES: usize = 8 << 20;
/// By default, all rings of events together take no more than this.
const ALL_RINGS_BYTES: usize = 256 << 20;
/// Size of each CPU's ring of descriptors in bytes.
const DESCRIPTOR_RING_BYTES: usize = 256 << 10;
/// The same if the ring also takes copies of stacks.
const DESCRIPTOR_RING_BYTES_WITH_STACKS: usize = 4 << 20;
/// Size of each CPU's rings for nested programs, which interrupted another one, in bytes.
pub const NESTED_RING_BYTES: usize = 64 << 10;
/// Maximum number of CPUs in the BPF programs' maps.
pub const MAX_CPUS: u32 = 1024;

/// Returns the size of each CPU's ring of descriptors, given the number of bytes of copied stacks.
pub fn descriptor_ring_bytes(stack_bytes: u32) -> usize {
    if stack_bytes > 0 { DESCRIPTOR_RING_BYTES_WITH_STACKS } else { DESCRIPTOR_RING_BYTES }
}

/// Returns the default size, or the largest power of two that keeps all rings within their limit.
pub(crate) fn default_ring_bytes(cpus: u32) -> usize {
    let each = ALL_RINGS_BYTES / usize::try_from(cpus).unwrap_or(usize::MAX).max(1);
    let power = 1_usize << each.max(1).ilog2();
    power.clamp(64 << 10, RING_BYTES)
}
