//! The kernel side: BPF programs are loaded, their rings drained, decoded and ordered.
//!
//! ```text
//! plan -> load (maps, programs, attachments) -> ring (bytes) -> decode (wire records) -> order (by time)
//! ```

pub(crate) mod bpf;
pub(crate) mod counters;
pub(crate) mod decode;
pub(crate) mod known_stacks;
pub(crate) mod kretprobes;
pub(crate) mod load;
pub(crate) mod map_records;
pub(crate) mod order;
pub(crate) mod peek;
pub(crate) mod perf_ring;
pub(crate) mod ring;
