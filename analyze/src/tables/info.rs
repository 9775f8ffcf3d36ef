//! The contents of a trace and the circumstances of its recording.
//!
//! A trace enters, [`Info`] leaves: data from the footers, the side tables and one column of the events. It is written as text or JSON.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Write,
    path::Path,
};

use serde::Serialize;
use trace_format::{
    FormatError, StackCounts, Trace,
    run_info::{Clocks, Host, Loss, NamedValue, Source},
};

use crate::{error::AnalyzeError, output::json};

mod text;

/// The contents of a trace and the circumstances of its recording.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Info {
    /// Its four files.
    pub files: Vec<FileSize>,
    /// Their total size in bytes.
    pub total_bytes: u64,
    /// Events.
    pub events: u64,
    /// Bytes of all four files per event; `None` without events.
    pub bytes_per_event: Option<f64>,
    /// Compressed bytes of each column of the events, in the order of the file.
    pub columns: Vec<ColumnSize>,
    /// Row groups of the events.
    pub row_groups: usize,
    /// Events by kind, without kinds that do not occur.
    pub events_by_kind: Vec<Count>,
    /// Locks by kind, without kinds that do not occur.
    pub locks_by_kind: Vec<Count>,
    /// Threads.
    pub tasks: usize,
    /// Processes.
    pub processes: usize,
    /// Distinct stacks.
    pub stacks: usize,
    /// Frames of all stacks.
    pub frames: usize,
    /// Frames with the name of their function.
    pub frames_named: usize,
    /// Version of the trace format, `major.minor`.
    pub format: String,
    /// The id that the four files share.
    pub trace_id: String,
    /// Version of klock that wrote the trace.
    pub klock: String,
    /// The machine.
    pub host: Host,
    /// The command line of the recorder.
    pub command_line: Vec<String>,
    /// The recorded processes.
    pub target: String,
    /// The clocks when recording began.
    pub clocks_start: Clocks,
    /// The length of the recording, in ns.
    pub span_ns: i64,
    /// Whether the recorder finished the file itself.
    pub complete: bool,
    /// The reason why the recording ended.
    pub stop_reason: String,
    /// The sources of events and their limits.
    pub sources: Vec<Source>,
    /// Lost events.
    pub loss: Loss,
    /// Estimated cost of a probe hit by program, in ns, where it was measured.
    pub probe_cost_ns: Vec<NamedValue>,
}

/// A file and its size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileSize {
    /// Its path.
    pub path: String,
    /// Its size in bytes.
    pub bytes: u64,
}

/// A column and its size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ColumnSize {
    /// Its name.
    pub name: String,
    /// Its compressed size in bytes.
    pub bytes: u64,
    /// Its compressed size in bytes per event.
    pub bytes_per_event: f64,
}

/// The count of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Count {
    /// The kind.
    pub kind: &'static str,
    /// The count.
    pub count: u64,
}

/// Describes a trace.
///
/// # Errors
///
/// The files cannot be read. A trace without events is valid here.
pub fn info(trace: &Trace) -> Result<Info, AnalyzeError> {
    let run = trace.info();
    let events = trace.event_count();
    let files = trace.paths().all().into_iter().map(size).collect::<Result<Vec<_>, _>>()?;
    let total_bytes = files.iter().map(|file| file.bytes).sum();
    let by_event = |bytes: u64| bytes as f64 / events.max(1) as f64;
    let columns = trace.column_bytes().into_iter().map(|(name, bytes)| ColumnSize {
        name,
        bytes,
        bytes_per_event: by_event(bytes),
    });
    let mut locks: BTreeMap<_, u64> = BTreeMap::new();
    // A lock in shared memory has several rows with the id of the first.
    let is_first = |(row, lock): &(usize, trace_format::LockRow)| usize::try_from(lock.id.0) == Ok(*row);
    for (_, lock) in trace.locks()?.into_iter().enumerate().filter(is_first) {
        *locks.entry(lock.kind).or_default() += 1;
    }
    let tasks = trace.tasks()?;
    let StackCounts { stacks, frames, named } = trace.stack_counts()?;
    Ok(Info {
        columns: columns.collect(),
        files,
        total_bytes,
        events,
        bytes_per_event: (events > 0).then(|| by_event(total_bytes)),
        row_groups: trace.row_groups(),
        events_by_kind: counts(trace.events_by_kind()?.into_iter().map(|(kind, n)| (kind.as_str(), n))),
        locks_by_kind: counts(locks.into_iter().map(|(kind, n)| (kind.as_str(), n))),
        tasks: tasks.len(),
        processes: tasks.iter().map(|task| task.pid).collect::<BTreeSet<_>>().len(),
        stacks,
        frames,
        frames_named: named,
        format: format!("{}.{}", run.format.major, run.format.minor),
        trace_id: run.trace_id.clone(),
        klock: run.klock.clone(),
        host: run.host.clone(),
        command_line: run.command_line.clone(),
        target: run.target.clone(),
        clocks_start: run.clocks_start,
        span_ns: run.span_ns(),
        complete: run.complete,
        stop_reason: run.stop_reason.clone(),
        sources: run.sources.clone(),
        loss: run.loss.clone(),
        probe_cost_ns: run.probe_cost_ns.clone(),
    })
}

impl Info {
    /// Writes the description as text. Unknown facts have no line.
    ///
    /// # Errors
    ///
    /// [`AnalyzeError::Write`] with the cause that `out` gave.
    pub fn write_text(&self, out: &mut (impl Write + ?Sized)) -> Result<(), AnalyzeError> {
        text::write(self, out).map_err(AnalyzeError::Write)
    }

    /// Writes the description as JSON, with the names of its fields, and a line end.
    ///
    /// # Errors
    ///
    /// [`AnalyzeError::Write`] with the cause that `out` gave.
    pub fn write_json(&self, out: &mut (impl Write + ?Sized)) -> Result<(), AnalyzeError> {
        json::write_value(self, out)
    }
}

fn counts(counts: impl Iterator<Item = (&'static str, u64)>) -> Vec<Count> {
    counts.map(|(kind, count)| Count { kind, count }).collect()
}

fn size(path: &Path) -> Result<FileSize, FormatError> {
    let metadata = fs::metadata(path).map_err(|source| FormatError::Io { path: path.to_owned(), source })?;
    Ok(FileSize { path: path.display().to_string(), bytes: metadata.len() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Parts;

    fn example() -> Parts {
        let mut parts = Parts::parse(
            "source pthread_uprobe kinds=pthread_mutex limit=spinning_is_not_seen
             lock m pthread_mutex\nlock s semaphore
             1000 A acquire m main<start\n1500 B wait m work\n3000 A release m main
             3500 B acquire m work wait=2000\n4000 B release m work\n5000 - lost count=2",
        );
        parts.info.target = "pid 7".to_owned();
        parts.info.command_line = ["klock", "record", "-p", "7", "my file"].map(str::to_owned).to_vec();
        parts.info.loss.ring_full = 2;
        parts.info.loss.recursion_misses = 1;
        parts.info.clocks_start.realtime_ns = 1_772_323_199_000_000_000;
        parts.info.clocks_end.monotonic_ns = 2_000_000_000;
        parts
    }

    #[test]
    fn the_text_leaves_out_unknown_facts() {
        let info = info(&example().write().trace).unwrap();
        let mut out = Vec::new();
        info.write_text(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let head = "\
target      pid 7
command     klock record -p 7 'my file'
begun       2026-02-28 23:59:59 UTC
lasted      2.00 s, until command ended
events      6 (wait 1, acquire 2, release 2, lost 1)
locks       2 (semaphore 1, pthread_mutex 1)
tasks       2 in 1 process
stacks      3, 100 % of their frames named
lost        3 events: 2 because the ring was full, 1 because the kernel skipped the probe
";
        assert!(text.starts_with(head), "{text}");
        for part in
            ["source pthread_uprobe: every acquisition and hold", "  spinning is not seen", "  ts_ns\n"]
        {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains("host "), "{text}");
    }

    #[test]
    fn sizes_match_the_files() {
        let test = example().write();
        let info = info(&test.trace).unwrap();
        let sizes: u64 = test.trace.paths().all().iter().map(|path| fs::metadata(path).unwrap().len()).sum();
        assert_eq!((info.files.len(), info.total_bytes), (4, sizes));
        assert_eq!(info.columns.len(), trace_format::schema::EVENTS.len());
        let mut out = Vec::new();
        info.write_json(&mut out).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!((&value["events"], &value["total_bytes"]), (&6.into(), &sizes.into()));
    }

    #[test]
    fn a_trace_without_events_has_an_info() {
        let info = info(&Parts::default().write().trace).unwrap();
        assert_eq!((info.events, info.bytes_per_event), (0, None));
        info.write_text(&mut std::io::sink()).unwrap();
    }
}
