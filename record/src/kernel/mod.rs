//! The kernel side: BPF programs are loaded, their rings drained, decoded and ordered.
//!
//! ```text
//! plan -> load (maps, programs, attachments) -> ring (bytes) -> decode (wire records) -> order (by time)
//! ```

mod bpf;
pub mod counters;
pub mod decode;
pub(crate) mod known_stacks;
pub mod kretprobes;
pub mod load;
pub mod order;
pub mod peek;
pub mod ring;
