//! Information about the recording: the `klock` entry of the Parquet footer, as JSON.
//!
//! It describes what was recorded, what the sources could not see, what was lost, and whether the file is
//! complete. Unknown fields are ignored and missing ones take their default, so that fields can be added.

use serde::{Deserialize, Serialize};

use crate::{FORMAT_MAJOR, FORMAT_MINOR, named_enum, tables::LockKind};

/// The key of the footer entry.
pub const KEY: &str = "klock";

/// The reason for the end of a recording: the recorded command ended.
pub const COMMAND_ENDED: &str = "command ended";
/// The same of processes that klock did not start.
pub const PROCESS_ENDED: &str = "process ended";

/// The name of the [`Source`] of off-CPU time, which sees no locks.
pub const SCHED: &str = "sched";

/// The name of that source in traces of klock 0.1 before format 1.2 was complete. It covers all off-CPU
/// times.
const OFF_CPU: &str = "off_cpu";

named_enum! {
    /// The off-CPU times that have rows.
    Covers, "covers" {
        /// All of every recorded task.
        All = "all",
        /// At least the times of tasks that hold a lock for which another task waits; others may be missing.
        ContendedHolds = "contended_holds",
        /// None for certain.
        None = "none",
    }
}

/// The entry of the events file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunInfo {
    /// Version of the format.
    pub format: Version,
    /// The table in this file: `events`.
    pub table: String,
    /// Random id that joins the four files of a trace, 32 hex digits.
    pub trace_id: String,
    /// Version of the klock that wrote the trace.
    pub klock: String,
    /// The recorded machine.
    pub host: Host,
    /// Command line of the recorder.
    pub command_line: Vec<String>,
    /// The recorded tasks, in words: `all tasks`, `pid 12 and its children`.
    pub target: String,
    /// The clocks when recording started.
    pub clocks_start: Clocks,
    /// The clocks when recording ended.
    pub clocks_end: Clocks,
    /// The first event, and the last event or end of a process; `None` if it is not known when a process
    /// ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lived_ns: Option<(i64, i64)>,
    /// The times in which nothing was recorded, because `klock control` asked for that. A `lost` row of 0
    /// events is at the end of each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paused: Vec<(i64, i64)>,
    /// Rows before `clocks_start` are not part of the recording: `klock control` began it again.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_reset: bool,
    /// The first rows are from before `clocks_start`, and are not part of the recording: the mutexes that the
    /// tasks of a deadlock had and waited for when it started.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub has_earlier: bool,
    /// The event sources, and what they could not see.
    pub sources: Vec<Source>,
    /// Missing events, by cause.
    pub loss: Loss,
    /// Number of rows in the events table.
    pub events: u64,
    /// False if the recorder did not finish the file itself.
    pub complete: bool,
    /// Why recording ended: `command ended`, `interrupted`, `duration`, ...
    pub stop_reason: String,
    /// Estimated cost of one probe hit in nanoseconds, by program, where measured.
    pub probe_cost_ns: Vec<NamedValue>,
}

/// A version of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Readers refuse traces with a newer major version.
    pub major: u32,
    /// Grows with new columns and fields.
    pub minor: u32,
}

impl Default for Version {
    fn default() -> Self {
        Self { major: FORMAT_MAJOR, minor: FORMAT_MINOR }
    }
}

/// The recorded machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Host {
    /// Host name.
    pub name: String,
    /// Kernel release, as `uname -r` prints it.
    pub kernel: String,
    /// Machine architecture, as `uname -m` prints it.
    pub arch: String,
    /// Number of online CPUs.
    pub cpus: u32,
}

/// A snapshot of the clocks, taken together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Clocks {
    /// CLOCK_MONOTONIC, the clock of all times in the trace.
    pub monotonic_ns: i64,
    /// CLOCK_REALTIME, wall clock time since 1970.
    pub realtime_ns: i64,
    /// CLOCK_BOOTTIME, which also counts time in suspend.
    pub boottime_ns: i64,
}

/// A source of events: the lock kinds that it sees, and its limits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Source {
    /// `kernel_contended`, `futex`, `pthread_uprobe`, ...
    pub name: String,
    /// The lock kinds that it sees, named as in the locks table.
    pub kinds: Vec<String>,
    /// Whether it sees uncontended acquisitions. If not, acquisition counts include contended ones only.
    pub uncontended: bool,
    /// Whether it sees releases. If not, hold times are unknown.
    pub holds: bool,
    /// The limits of the source, one sentence each.
    pub limits: Vec<String>,
    /// For [`SCHED`], the off-CPU times that have rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub covers: Option<Covers>,
    /// For [`SCHED`], whether the times of wake-ups are known, so that sleep and run queue are apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// For [`SCHED`], the length of the shortest off-CPU time that has a row, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_block_ns: Option<u64>,
}

impl Source {
    /// Returns whether this is the source of off-CPU time.
    pub fn is_sched(&self) -> bool {
        self.name == SCHED || self.name == OFF_CPU
    }
}

/// Numbers of missing events, by cause. Waits and holds that touch lost events are not counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Loss {
    /// The ring buffer was full.
    pub ring_full: u64,
    /// The guard kept the program out: another program of the same task was running on the same CPU. Of a
    /// process that recorded itself: a signal handler locked while a record of its thread was being written.
    pub guard: u64,
    /// A BPF map was full, so that state for a later program could not be stored.
    pub no_place: u64,
    /// Programs that ran inside another program of the same task on the same CPU, as is allowed once. Nothing
    /// is missing here.
    pub nested: u64,
    /// The kernel skipped a program because it, or another one, was already running on the CPU.
    pub recursion_misses: u64,
    /// Records that the recorder could not decode.
    pub undecodable: u64,
    /// Recorded events whose stack could not be stored.
    pub stacks: u64,
    /// User stacks that could not be copied or unwound in time. They are by frame pointers, and their callers
    /// are guesses.
    pub stacks_not_unwound: u64,
    /// Recorded waits whose blocked and run-queue time is unknown because a BPF map was full.
    pub wait_states: u64,
    /// Events that arrived too late to be sorted; they are in the trace, out of order.
    pub late: u64,
    /// Ends whose begin was not seen, and begins whose end was not. They have no row.
    pub unpaired: u64,
    /// The counters by program and CPU, without rows of zeros.
    pub by_program: Vec<ProgramCounters>,
}

impl Loss {
    /// Returns the number of missing events.
    pub fn events(&self) -> u64 {
        self.ring_full + self.guard + self.no_place + self.recursion_misses + self.undecodable
    }
}

/// The counters of one program on one CPU, or of all processes that recorded themselves. The program ran
/// `filtered + delivered + ring_full + guard + no_place` times.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProgramCounters {
    /// Name of the program.
    pub program: String,
    /// The CPU; `None` for processes that recorded themselves.
    pub cpu: Option<u32>,
    /// Runs for a task that is not recorded, or with nothing to record.
    pub filtered: u64,
    /// Runs that delivered a record.
    pub delivered: u64,
    /// Runs that found the ring buffer full.
    pub ring_full: u64,
    /// Runs that the guard kept out.
    pub guard: u64,
    /// Runs that found a BPF map full.
    pub no_place: u64,
    /// Runs inside another program; each is in one of the other counters as well.
    pub nested: u64,
}

/// A named number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NamedValue {
    /// The name.
    pub name: String,
    /// The number.
    pub value: u64,
}

/// The entry of a side table, which joins it to the events file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SidecarInfo {
    /// Version of the format.
    pub format: Version,
    /// `stacks`, `locks` or `tasks`.
    pub table: String,
    /// The trace id of the events file.
    pub trace_id: String,
}

impl RunInfo {
    /// Returns the source that sees locks of this kind, if there is one.
    pub fn source_of(&self, kind: LockKind) -> Option<&Source> {
        self.sources.iter().find(|source| source.kinds.iter().any(|k| k == kind.as_str()))
    }

    /// Returns the off-CPU times that have rows.
    pub fn covers(&self) -> Covers {
        let sched = self.sources.iter().find(|source| source.is_sched());
        sched.map_or(Covers::None, |source| source.covers.unwrap_or(Covers::All))
    }

    /// Returns the entry of an events file with these events that the recorder did not finish itself.
    pub(crate) fn unfinished(&self, events: u64, stop_reason: &str) -> Self {
        Self {
            format: Version::default(),
            table: "events".to_owned(),
            events,
            complete: false,
            stop_reason: stop_reason.to_owned(),
            ..self.clone()
        }
    }

    /// Returns the time of the program in the recording. klock starts before a command and sees its end
    /// later, so the time of one that ended is from its first to its last event. A program that runs on was
    /// there from the start to the end of the recording.
    pub fn program_ns(&self) -> (i64, i64) {
        let recorded = (self.clocks_start.monotonic_ns, self.clocks_end.monotonic_ns);
        match self.stop_reason.as_str() {
            COMMAND_ENDED if self.is_reset => {
                (recorded.0, self.lived_ns.map_or(recorded.1, |(_, last_ns)| last_ns))
            }
            COMMAND_ENDED => self.lived_ns.unwrap_or(recorded),
            PROCESS_ENDED => (recorded.0, self.lived_ns.map_or(recorded.1, |(_, last_ns)| last_ns)),
            _ => recorded,
        }
    }

    /// Returns the length of the time of the program without pauses, in ns. Rates are per second of it.
    pub fn span_ns(&self) -> i64 {
        let (from_ns, to_ns) = self.program_ns();
        to_ns.saturating_sub(from_ns).saturating_sub(self.paused_ns())
    }

    /// Returns the length of all pauses in the time of the program, in ns.
    pub fn paused_ns(&self) -> i64 {
        let (first_ns, last_ns) = self.program_ns();
        let inside = |(from_ns, to_ns): &(i64, i64)| {
            (*to_ns).min(last_ns).saturating_sub((*from_ns).max(first_ns)).max(0)
        };
        self.paused.iter().map(inside).fold(0, i64::saturating_add)
    }

    /// Returns the length of the recording in ns.
    pub fn recorded_ns(&self) -> i64 {
        self.clocks_end.monotonic_ns.saturating_sub(self.clocks_start.monotonic_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_a_command_that_ended_is_from_its_first_to_its_last_event() {
        let clocks = |monotonic_ns| Clocks { monotonic_ns, ..Clocks::default() };
        let span = |reason: &str, lived_ns| {
            let (clocks_start, clocks_end) = (clocks(1_000), clocks(3_150));
            let stop_reason = reason.to_owned();
            let info = RunInfo { clocks_start, clocks_end, lived_ns, stop_reason, ..RunInfo::default() };
            assert_eq!(info.recorded_ns(), 2_150);
            (info.program_ns(), info.span_ns())
        };
        let events = Some((1_040, 2_840));
        assert_eq!(span("command ended", events), ((1_040, 2_840), 1_800));
        assert_eq!(span("process ended", events), ((1_000, 2_840), 1_840));
        assert_eq!(span("duration", events), ((1_000, 3_150), 2_150), "it runs on");
        let paused = RunInfo {
            clocks_start: clocks(1_000),
            clocks_end: clocks(3_150),
            paused: vec![(900, 1_100), (2_000, 2_500)],
            ..RunInfo::default()
        };
        assert_eq!((paused.paused_ns(), paused.span_ns()), (600, 1_550), "pauses do not count");
        assert_eq!(
            span("command ended", None),
            ((1_000, 3_150), 2_150),
            "of a process it is not known when it ended"
        );
    }

    #[test]
    fn unknown_fields_of_a_later_minor_version_are_ignored() {
        let json =
            r#"{"format":{"major":1,"minor":7},"trace_id":"ab","colour":"green","loss":{"ring_full":3}}"#;
        let info: RunInfo = serde_json::from_str(json).unwrap();
        assert_eq!((info.format.minor, info.loss.events()), (7, 3));
        assert!(!info.complete);
    }

    #[test]
    fn the_source_of_off_cpu_time_has_had_two_names_and_covers_all_unless_it_says_less() {
        let info = |json: &str| -> RunInfo { serde_json::from_str(json).unwrap() };
        let covers = |source: &str| info(&format!(r#"{{"sources":[{{"name":"futex"}},{source}]}}"#)).covers();
        assert_eq!(covers(r#"{"name":"off_cpu"}"#), Covers::All);
        assert_eq!(
            covers(r#"{"name":"sched","covers":"contended_holds","ready":false}"#),
            Covers::ContendedHolds
        );
        assert_eq!(info(r#"{"sources":[{"name":"futex"}]}"#).covers(), Covers::None);
    }

    #[test]
    fn fields_of_another_source_are_not_written() {
        let json = serde_json::to_string(&Source { name: "futex".into(), ..Source::default() }).unwrap();
        assert!(
            !json.contains("covers") && !json.contains("ready") && !json.contains("min_block_ns"),
            "{json}"
        );
    }

    #[test]
    fn a_kind_is_found_in_the_source_that_lists_it() {
        let source = Source { name: "futex".into(), kinds: vec!["futex".into()], ..Default::default() };
        let info = RunInfo { sources: vec![source], ..Default::default() };
        assert_eq!(info.source_of(LockKind::Futex).map(|s| s.name.as_str()), Some("futex"));
        assert!(info.source_of(LockKind::Mutex).is_none());
    }
}
