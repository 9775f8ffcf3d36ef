//! Decides when the records of processes that record themselves wait to be composed: while more tasks are runnable than there are
//! processors, recorded programs come first.
//!
//! The wait is bounded by checkpoints: before one is due, everything that was drained is composed, so a recorder that is killed
//! loses no more than one that never waits. Chunks are drained meanwhile, and mappings that change are read, because a
//! process may end before its stacks are composed.

use std::{fs, time::Duration};

use crate::{preload::Preload, processors::Processors, symbols::Symbols};

/// Time before a checkpoint in which nothing waits. Composing what was recorded in the rest of the time between two
/// checkpoints takes less, unless the programs do nothing but lock.
const BEFORE_CHECKPOINT: Duration = Duration::from_millis(150);
/// Maximum number of processes whose mappings are followed. With more of them, nothing waits.
const MAX_PROCESSES: usize = 32;

/// The decision for the next round, and what it needs.
#[derive(Debug)]
pub(super) struct Deferral {
    processors: Processors,
    is_on: bool,
    /// The running processes that record themselves.
    processes: Vec<Process>,
}

/// A process whose mappings are followed.
#[derive(Debug)]
struct Process {
    pid: u32,
    /// The size of its memory when its mappings were last read.
    pages: u64,
}

impl Deferral {
    pub(super) fn new() -> Self {
        Self { processors: Processors::new(), is_on: false, processes: Vec::new() }
    }

    /// Returns whether composing waits.
    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Ends the wait.
    pub(super) fn end(&mut self) {
        self.is_on = false;
    }

    /// Decides for the next round. `is_caught_up` reports whether everything that was drained is composed, or waited in this round.
    pub(super) fn update(
        &mut self,
        preload: &Preload,
        is_caught_up: bool,
        until_checkpoint: Duration,
        symbols: &Symbols,
    ) {
        self.processes.extend(preload.take_joined().into_iter().map(|pid| Process { pid, pages: 0 }));
        self.is_on = may_wait(is_caught_up, until_checkpoint, self.processes.len())
            && preload.may_wait()
            && self.processors.are_busy();
        if self.is_on {
            self.processes.retain_mut(|process| process.read_if_changed(symbols));
        }
    }
}

/// Whether composing may wait, on busy processors.
fn may_wait(is_caught_up: bool, until_checkpoint: Duration, processes: usize) -> bool {
    is_caught_up && until_checkpoint > BEFORE_CHECKPOINT && processes <= MAX_PROCESSES
}

impl Process {
    /// Reads the mappings again if the size of the memory has changed. Returns `false` if the process has ended.
    fn read_if_changed(&mut self, symbols: &Symbols) -> bool {
        let Ok(text) = fs::read_to_string(format!("/proc/{}/statm", self.pid)) else { return false };
        let pages = text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0);
        if pages != self.pages {
            self.pages = pages;
            symbols.read_mappings(self.pid);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAR: Duration = Duration::from_millis(400);

    #[test]
    fn nothing_waits_before_a_checkpoint_behind_the_records_or_with_many_processes() {
        assert!(may_wait(true, FAR, 1));
        assert!(!may_wait(true, BEFORE_CHECKPOINT, 1));
        assert!(!may_wait(true, Duration::ZERO, 1), "a checkpoint that is overdue");
        assert!(!may_wait(false, FAR, 1));
        assert!(!may_wait(true, FAR, MAX_PROCESSES + 1));
    }

    #[test]
    fn mappings_are_read_again_only_after_a_change() {
        let symbols = Symbols::start(None, crate::Stop::new()).unwrap();
        let mut process = Process { pid: std::process::id(), pages: 0 };
        assert!(process.read_if_changed(&symbols));
        assert!(process.pages > 0);
        let mut gone = Process { pid: u32::MAX, pages: 0 };
        assert!(!gone.read_if_changed(&symbols));
        symbols.wait_for_mappings(Duration::from_secs(60));
    }
}
