//! The system calls of threads that sleep with a lock for which others wait, where no BPF program reads them: a sample from `/proc`, once in a
//! sleep.

use std::io;

use rustc_hash::FxHashSet;

use crate::{
    compose::Composer,
    sources::switches::compose::Sleeper,
    system::{clocks::monotonic_ns, procfs},
};

/// Time that a thread sleeps, and that others wait, before its call is read. Most sleeps are shorter.
const MIN_NS: i64 = 1_000_000;
/// Time by which composing may be behind. What the composer knows of sleeps is too old then.
const MAX_BEHIND_NS: i64 = 100_000_000;
/// Maximum number of threads whose calls are read in a round, some 5 µs each.
const MAX_READS: usize = 64;

/// Reads the calls.
#[derive(Debug, Default)]
pub(super) struct SleeperCalls {
    /// Processes of which the kernel refused to tell.
    refused: FxHashSet<u32>,
}

impl SleeperCalls {
    /// Reads the calls of sleepers that are due, given the time up to which everything is composed.
    pub(super) fn read(&mut self, composed_ns: u64, composer: &mut Composer) {
        let composed_ns = i64::try_from(composed_ns).unwrap_or(i64::MAX);
        if monotonic_ns().saturating_sub(composed_ns) > MAX_BEHIND_NS {
            return;
        }
        let sleepers = composer.sleepers(composed_ns.saturating_sub(MIN_NS));
        for Sleeper { pid, tid } in sleepers.into_iter().take(MAX_READS) {
            if self.refused.contains(&pid) {
                continue;
            }
            match procfs::syscall(pid, tid) {
                // Read before this time. A thread that returned earlier has slept again, maybe in another call.
                Ok(Some(call)) => composer.add_call(tid, monotonic_ns(), call),
                Ok(None) => {}
                Err(error) if is_refusal(&error) => {
                    self.refused.insert(pid);
                }
                // It has ended.
                Err(_) => {}
            }
        }
    }
}

fn is_refusal(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}
