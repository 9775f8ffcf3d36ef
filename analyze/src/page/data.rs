//! The data of a page, as the browser reads it: JSON with the places of packed columns. Texts are numbers of
//! [`Data::strings`].

use serde::Serialize;
use trace_format::Trace;

use super::pack::{Pack, Packed};

#[derive(Debug, Serialize)]
pub(super) struct Data {
    pub(super) strings: Vec<String>,
    pub(super) about: About,
    pub(super) verdicts: Verdicts,
    pub(super) tables: Vec<TableData>,
    pub(super) timeline: Timeline,
    pub(super) flames: Vec<Flame>,
    pub(super) pictures: Vec<Picture>,
}

/// The trace and its recording.
#[derive(Debug, Serialize)]
pub(super) struct About {
    file: i64,
    host: i64,
    kernel: i64,
    command: i64,
    klock: &'static str,
    events: u64,
    span_ns: i64,
    realtime_ns: i64,
    warnings: Vec<i64>,
    /// The lines of the trust block, as below the report.
    trust: Vec<i64>,
}

impl About {
    pub(super) fn of(trace: &Trace, warnings: &[String], trust: &str, pack: &mut Pack) -> Self {
        let info = trace.info();
        let file = trace.paths().events.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let command =
            if info.command_line.is_empty() { info.target.clone() } else { info.command_line.join(" ") };
        Self {
            file: pack.string(&file),
            host: pack.string(&info.host.name),
            kernel: pack.string(&info.host.kernel),
            command: pack.string(&command),
            klock: env!("CARGO_PKG_VERSION"),
            events: trace.event_count(),
            span_ns: info.span_ns(),
            realtime_ns: info.clocks_start.realtime_ns,
            warnings: warnings.iter().map(|warning| pack.string(warning)).collect(),
            trust: trust.lines().map(|line| pack.string(line)).collect(),
        }
    }
}

/// The answers of `klock why`.
#[derive(Debug, Serialize)]
pub(super) struct Verdicts {
    /// Whether locks are the cause, if that is known: a headline, and lines below it.
    pub(super) answer: Vec<i64>,
    pub(super) locks: Vec<Verdict>,
    /// Locks that were waited for and are not judged.
    pub(super) hidden: usize,
}

/// The answer of `klock why` about a lock.
#[derive(Debug, Serialize)]
pub(super) struct Verdict {
    pub(super) lock_id: i32,
    pub(super) lock: i64,
    /// Whether it slows somebody down, and is waited for much beside the others.
    pub(super) matters: bool,
    pub(super) cost: i64,
    /// The verdict, the evidence, the advice and the prediction.
    pub(super) findings: Vec<[i64; 4]>,
    pub(super) notes: Vec<i64>,
}

/// A flame graph.
#[derive(Debug, Serialize)]
pub(super) struct Flame {
    pub(super) title: &'static str,
    pub(super) is_off_cpu: bool,
    /// The frames of each stack, from the thread to the lock.
    pub(super) stacks: Vec<Vec<i64>>,
    pub(super) weights: Packed,
}

#[derive(Debug, Serialize)]
pub(super) struct TableData {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    /// The column that rows are sorted by.
    pub(super) sorted_by: String,
    pub(super) columns: Vec<ColumnData>,
    pub(super) rows: usize,
    /// Rows that the page does not hold.
    pub(super) hidden: usize,
}

/// A column of a table.
#[derive(Debug, Serialize)]
pub(super) struct ColumnData {
    pub(super) name: String,
    pub(super) heading: String,
    pub(super) kind: &'static str,
    pub(super) doc: &'static str,
    pub(super) is_shown: bool,
    pub(super) is_name: bool,
    pub(super) sums: bool,
    pub(super) values: Packed,
}

/// The timeline. Times are in ns since its start.
#[derive(Debug, Serialize)]
pub(super) struct Timeline {
    pub(super) span_ns: i64,
    /// By lock, the most waited for first: its id and label. Locks without levels come last.
    pub(super) lock_ids: Packed,
    pub(super) locks: Packed,
    /// Locks of the trace.
    pub(super) locks_total: usize,
    pub(super) levels: Vec<Level>,
    /// By thread, the one that waited longest first: its label. Threads without levels come last.
    pub(super) threads: Packed,
    pub(super) thread_level: Level,
    /// By thread with a level: the time that it waited for locks, and was off-CPU, in ns.
    pub(super) thread_waited: Packed,
    pub(super) thread_off: Packed,
    pub(super) windows: Vec<Window>,
    pub(super) intervals: Intervals,
}

/// The first locks or threads in periods of equal length, one after the other.
#[derive(Debug, Serialize)]
pub(super) struct Level {
    pub(super) period_ns: i64,
    pub(super) periods: usize,
    pub(super) locks: usize,
    /// The mean number of holders, in thousandths.
    pub(super) held: Packed,
    /// The mean number of waiters, in thousandths.
    pub(super) waiting: Packed,
    /// The share of time that a thread was off-CPU, in thousandths. Nothing for locks.
    pub(super) off: Packed,
}

/// A window whose intervals are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Window {
    pub(super) from_ns: i64,
    pub(super) to_ns: i64,
}

/// Intervals, by their begins.
#[derive(Debug, Serialize)]
pub(super) struct Intervals {
    pub(super) count: usize,
    /// Short intervals of the windows that are left out.
    pub(super) left_out: u64,
    /// 0 for a hold, 1 for a wait, 2 for time off-CPU.
    pub(super) kind: Packed,
    pub(super) start: Packed,
    pub(super) length: Packed,
    /// Index of the lock; missing off-CPU.
    pub(super) lock: Packed,
    /// Index of the thread.
    pub(super) task: Packed,
    pub(super) mode: Packed,
    /// The state of a hold, the outcome of a wait, why a thread was off-CPU.
    pub(super) state: Packed,
    pub(super) site: Packed,
    /// Index of the stack; missing if nothing is known beyond the site.
    pub(super) stack: Packed,
    /// The index of the hold that a wait began in.
    pub(super) holder: Packed,
    /// The thread of that hold, which need not be kept.
    pub(super) holder_task: Packed,
    /// By stack: its functions.
    pub(super) stacks: Vec<Vec<i64>>,
}

/// A picture, as SVG.
#[derive(Debug, Serialize)]
pub(super) struct Picture {
    pub(super) title: &'static str,
    pub(super) light: String,
    pub(super) dark: String,
}
