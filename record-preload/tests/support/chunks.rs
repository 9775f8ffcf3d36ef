//! The chunks that are being read: each link of the queue claims or releases its chunk in a set.

use std::collections::HashSet;

use trace_format::preload::pool::{Owners, Pool};

/// The chunks that sessions are reading.
pub(crate) struct Chunks<'a> {
    pub(crate) pool: Pool<'a>,
    pub(crate) owned: &'a mut HashSet<u32>,
}

impl Owners for Chunks<'_> {
    fn claim(&mut self, chunk: u32) -> bool {
        (chunk as usize) < self.pool.links.len() && self.owned.insert(chunk)
    }

    fn release(&mut self, chunk: u32) {
        assert!(self.owned.remove(&chunk));
        self.pool.used.push(chunk);
    }
}
