//! The text of a process's mappings, from its reading to its parsing.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::{names::files::FileOwner, system::clocks};

/// The text of a process's mappings, until it is parsed.
#[derive(Debug)]
pub(crate) struct MapsText {
    pub(crate) owner: FileOwner,
    pub(crate) taken_ns: i64,
    pub(crate) bytes: Vec<u8>,
}

impl MapsText {
    /// Reads the text, and the user of the process. Both may be gone soon.
    pub(crate) fn read(pid: u32, read: impl FnOnce(u32) -> io::Result<Vec<u8>>) -> Self {
        let taken_ns = clocks::monotonic_ns();
        Self { owner: FileOwner::of(pid), taken_ns, bytes: read(pid).unwrap_or_default() }
    }
}

/// A text that counts as unparsed until it is dropped.
#[derive(Debug)]
pub(crate) struct UnparsedText {
    pub(crate) text: MapsText,
    /// Size of all such texts.
    unparsed: Arc<AtomicUsize>,
}

impl UnparsedText {
    /// Counts a text.
    pub(crate) fn new(text: MapsText, unparsed: &Arc<AtomicUsize>) -> Self {
        unparsed.fetch_add(text.bytes.len(), Ordering::Relaxed);
        Self { text, unparsed: Arc::clone(unparsed) }
    }
}

impl Drop for UnparsedText {
    fn drop(&mut self) {
        self.unparsed.fetch_sub(self.text.bytes.len(), Ordering::Relaxed);
    }
}
