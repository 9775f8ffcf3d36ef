//! The machine as every step sees it: clocks, `/proc`, mappings and control groups of processes, and the
//! priorities of klock's own threads.

pub(crate) mod clocks;
pub(crate) mod control_groups;
pub(crate) mod maps;
pub(crate) mod priority;
pub(crate) mod procfs;
pub(crate) mod stuck;

/// Returns bytes in lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
