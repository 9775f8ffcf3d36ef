//! How a trace was made: the `klock` entry of the footer, as JSON.
//!
//! Whoever gets a trace from another machine learns from it what was recorded, what the sources could not see, what
//! was lost, and whether the file is whole. Unknown fields are ignored, missing ones take their default, so that
//! fields can be added.

use serde::{Deserialize, Serialize};

use crate::{FORMAT_MAJOR, FORMAT_MINOR, tables::LockKind};

/// The key of the footer entry.
pub const KEY: &str = "klock";

/// The name of the [`Source`] of off-CPU time, which sees no kind of lock.
pub const OFF_CPU: &str = "off_cpu";

/// The whole entry of the events' file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunInfo {
    /// Version of the format.
    pub format: Version,
    /// Which table this file holds: `events`.
    pub table: String,
    /// Joins the four files of a trace: random, 32 hex digits.
    pub trace_id: String,
    /// Version of the klock that wrote it.
    pub klock: String,
    /// The machine.
    pub host: Host,
    /// The command line of the recorder.
    pub command_line: Vec<String>,
    /// Whose locks were recorded, in words: `all tasks`, `pid 12 and its children`.
    pub target: String,
    /// The clocks when recording began.
    pub clocks_start: Clocks,
    /// The clocks when recording ended.
    pub clocks_end: Clocks,
    /// What was recorded, and what it could not see.
    pub sources: Vec<Source>,
    /// What is missing, by cause.
    pub loss: Loss,
    /// Rows in the events table.
    pub events: u64,
    /// False if the recorder did not finish the file itself.
    pub complete: bool,
    /// Why it ended: `command ended`, `interrupted`, `duration`, ...
    pub stop_reason: String,
    /// Estimated cost of one probe hit in nanoseconds, by program, where it was measured.
    pub probe_cost_ns: Vec<Named>,
}

/// A version of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Readers refuse a newer one.
    pub major: u32,
    /// Grows with new columns and fields.
    pub minor: u32,
}

impl Default for Version {
    fn default() -> Self {
        Self { major: FORMAT_MAJOR, minor: FORMAT_MINOR }
    }
}

/// The machine that was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Kernel release, as `uname -r` prints it.
    pub kernel: String,
    /// Machine architecture, as `uname -m` prints it.
    pub arch: String,
    /// CPUs that were online.
    pub cpus: u32,
}

/// Snapshots of the clocks, taken together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Clocks {
    /// The clock of every time in the trace.
    pub monotonic_ns: i64,
    /// Wall clock, since 1970.
    pub realtime_ns: i64,
    /// Monotonic, with suspend.
    pub boottime_ns: i64,
}

/// One source of events: which kinds of lock it sees, and what of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Source {
    /// `kernel_contended`, `futex`, `pthread_uprobe`, ...
    pub name: String,
    /// The kinds of lock that it sees, as the locks table writes them.
    pub kinds: Vec<String>,
    /// Whether uncontended acquisitions are seen: where not, `count` counts the contended ones only.
    pub uncontended: bool,
    /// Whether releases are seen: where not, hold times are unknown.
    pub holds: bool,
    /// What it can't see, a sentence each.
    pub limits: Vec<String>,
}

/// What is missing from the trace, by cause. A wait or hold that touches lost events is not counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Loss {
    /// A ring had no place.
    pub ring_full: u64,
    /// A program came upon another one of its own task on its CPU.
    pub guard: u64,
    /// What a program had to remember for a later one found no place.
    pub no_place: u64,
    /// Nothing is missing by these: a program ran inside another one of its task on its CPU, as it may.
    pub nested: u64,
    /// The kernel skipped a program because it, or another, was already running on the CPU.
    pub recursion_misses: u64,
    /// Records that the host could not decode.
    pub undecodable: u64,
    /// Of the recorded events: those whose stack found no place.
    pub stacks: u64,
    /// Of the recorded waits: those whose blocked and run-queue time is unknown for want of a place.
    pub wait_states: u64,
    /// Events that came too late to be put in order; they are in the trace, out of order.
    pub late: u64,
    /// Returns and ends whose begin was not seen, and begins whose end was not: no row stands for them.
    pub unpaired: u64,
    /// The same counters, by program and CPU; only rows that are not all zero, and `entries` for all programs.
    pub by_program: Vec<ProgramCounters>,
}

impl Loss {
    /// Events that are missing.
    pub fn events(&self) -> u64 {
        self.ring_full + self.guard + self.no_place + self.recursion_misses + self.undecodable
    }
}

/// The counters of one program on one CPU, or of all processes that recorded themselves: `filtered + delivered + ring_full + guard + no_place` is how often it ran.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProgramCounters {
    /// The program.
    pub program: String,
    /// The CPU; none where processes recorded themselves.
    pub cpu: Option<u32>,
    /// Ran for a task that is not recorded, or had nothing to record.
    pub filtered: u64,
    /// Put a record into the ring.
    pub delivered: u64,
    /// Found the ring full.
    pub ring_full: u64,
    /// Left because of the guard.
    pub guard: u64,
    /// What it had to remember found no place.
    pub no_place: u64,
    /// Of all: inside another program.
    pub nested: u64,
}

/// A number with a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Named {
    /// Its name.
    pub name: String,
    /// The number.
    pub value: u64,
}

/// The entry of a side table: just enough to know what it belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SidecarInfo {
    /// Version of the format.
    pub format: Version,
    /// `stacks`, `locks` or `tasks`.
    pub table: String,
    /// That of the events.
    pub trace_id: String,
}

impl RunInfo {
    /// The source that saw locks of this kind, if any did.
    pub fn source_of(&self, kind: LockKind) -> Option<&Source> {
        self.sources.iter().find(|source| source.kinds.iter().any(|k| k == kind.as_str()))
    }

    /// How long the recording took, in nanoseconds.
    pub fn span_ns(&self) -> i64 {
        self.clocks_end.monotonic_ns - self.clocks_start.monotonic_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_footer_of_a_later_minor_version_is_read_for_what_is_known() {
        let json =
            r#"{"format":{"major":1,"minor":7},"trace_id":"ab","colour":"green","loss":{"ring_full":3}}"#;
        let info: RunInfo = serde_json::from_str(json).unwrap();
        assert_eq!((info.format.minor, info.loss.events()), (7, 3));
        assert!(!info.complete);
    }

    #[test]
    fn a_kind_is_found_in_the_source_that_lists_it() {
        let source = Source { name: "futex".into(), kinds: vec!["futex".into()], ..Default::default() };
        let info = RunInfo { sources: vec![source], ..Default::default() };
        assert_eq!(info.source_of(LockKind::Futex).map(|s| s.name.as_str()), Some("futex"));
        assert!(info.source_of(LockKind::Mutex).is_none());
    }
}
