//! Decides when the records of processes that record themselves wait to be composed: while more tasks are
//! runnable than there are processors, recorded programs come first.
//!
//! Records that wait are in the [backlog](crate::write::backlog), so a recorder that is killed loses no more
//! than one that never waits; the wait ends when the backlog is full. Without such a file the wait is bounded
//! by checkpoints: before one is due, everything that was drained is composed. Chunks are drained meanwhile,
//! and mappings that change are read, because a process may end before its stacks are composed.

use std::{
    fs,
    time::{Duration, Instant},
};

use crate::{names::symbols::Symbols, preload::Preload, system::procfs::Processors};

/// Time before a checkpoint in which nothing waits. Composing what was recorded in the rest of the time
/// between two checkpoints takes less, unless the programs do nothing but lock.
const BEFORE_CHECKPOINT: Duration = Duration::from_millis(150);
/// Maximum number of processes whose mappings are followed. With more of them, nothing waits.
const MAX_PROCESSES: usize = 32;
/// Number of rounds after which processors that were busy count as idle: a program that needs all of them
/// does so with gaps.
const IDLE_ROUNDS: u32 = 5;
/// Minimum number of units per second: fewer of them take less than a hundredth of a processor to compose, so
/// whoever reads the trace meanwhile should see them.
const MIN_RATE: f64 = 100_000.0;
/// Time over which the rate is measured.
const RATE_TIME: Duration = Duration::from_millis(100);

/// The decision for the next round, and what it needs.
#[derive(Debug)]
pub(super) struct Deferral {
    processors: Processors,
    /// Rounds since the processors were seen to be busy.
    idle_rounds: u32,
    rate: Rate,
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
        Self {
            processors: Processors::new(),
            idle_rounds: IDLE_ROUNDS,
            rate: Rate::default(),
            is_on: false,
            processes: Vec::new(),
        }
    }

    /// Returns whether composing waits.
    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    pub(super) fn end(&mut self) {
        self.is_on = false;
    }

    /// Decides for the next round. `room` is what the backlog has.
    pub(super) fn update(&mut self, preload: &Preload, room: Room, symbols: &Symbols) {
        self.processes.extend(preload.queue.take_joined().into_iter().map(|pid| Process { pid, pages: 0 }));
        self.idle_rounds = if self.processors.are_busy() { 0 } else { self.idle_rounds.saturating_add(1) };
        self.is_on = may_wait(room, self.processes.len())
            && preload.may_wait()
            && self.rate.is_high(preload.spool.added(), Instant::now())
            && self.idle_rounds < if room == Room::InFile { IDLE_ROUNDS } else { 1 };
        if self.is_on {
            self.processes.retain_mut(|process| process.read_if_changed(symbols));
        }
    }
}

/// The rate at which units are drained.
#[derive(Debug, Default)]
struct Rate {
    /// The begin of the measurement, and the number of units then.
    begun: Option<(Instant, u64)>,
    is_high: bool,
}

impl Rate {
    /// Returns whether it was high when it was last measured, given the number of units so far.
    fn is_high(&mut self, units: u64, now: Instant) -> bool {
        let (begun, before) = *self.begun.get_or_insert((now, units));
        let elapsed = now.saturating_duration_since(begun);
        if elapsed >= RATE_TIME {
            self.is_high = units.saturating_sub(before) as f64 / elapsed.as_secs_f64() >= MIN_RATE;
            self.begun = Some((now, units));
        }
        self.is_high
    }
}

/// The room for records that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// None: what waited before is not composed, or the backlog is full.
    None,
    /// In a file, which survives klock.
    InFile,
    /// In memory only, until a checkpoint, which is due after this time.
    UntilCheckpoint(Duration),
}

/// Whether composing may wait, on busy processors.
fn may_wait(room: Room, processes: usize) -> bool {
    let has_room = match room {
        Room::None => false,
        Room::InFile => true,
        Room::UntilCheckpoint(time) => time > BEFORE_CHECKPOINT,
    };
    has_room && processes <= MAX_PROCESSES
}

impl Process {
    /// Reads the mappings again if the size of the memory has changed. Returns `false` if the process has
    /// ended.
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
    use crate::names::kernel_addresses::KernelAddresses;

    const FAR: Duration = Duration::from_millis(400);

    #[test]
    fn nothing_waits_before_a_checkpoint_behind_the_records_or_with_many_processes() {
        assert!(may_wait(Room::UntilCheckpoint(FAR), 1));
        assert!(!may_wait(Room::UntilCheckpoint(BEFORE_CHECKPOINT), 1));
        assert!(!may_wait(Room::UntilCheckpoint(Duration::ZERO), 1), "a checkpoint that is overdue");
        assert!(!may_wait(Room::None, 1));
        assert!(may_wait(Room::InFile, MAX_PROCESSES));
        assert!(!may_wait(Room::InFile, MAX_PROCESSES + 1));
    }

    #[test]
    fn a_rate_is_high_once_many_units_came_within_its_time() {
        let (mut rate, begun) = (Rate::default(), Instant::now());
        assert!(!rate.is_high(0, begun));
        assert!(!rate.is_high(50_000, begun + RATE_TIME / 2), "not measured yet");
        assert!(rate.is_high(50_000, begun + RATE_TIME));
        assert!(rate.is_high(50_100, begun + RATE_TIME), "until it is measured again");
        assert!(!rate.is_high(50_100, begun + 2 * RATE_TIME));
    }

    #[test]
    fn mappings_are_read_again_only_after_a_change() {
        let symbols = Symbols::start(None, KernelAddresses::new(true), None, crate::Stop::new()).unwrap();
        let mut process = Process { pid: std::process::id(), pages: 0 };
        assert!(process.read_if_changed(&symbols));
        assert!(process.pages > 0);
        let mut gone = Process { pid: u32::MAX, pages: 0 };
        assert!(!gone.read_if_changed(&symbols));
        symbols.wait_for_mappings(Duration::from_secs(60));
    }
}
