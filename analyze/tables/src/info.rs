//! The contents of a trace and the circumstances of its recording.
//!
//! An [`Info`] has data from the footers, the side tables and one column of the events of a trace. It is
//! written as text or JSON.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, Write},
    path::Path,
};

use serde::Serialize;
use trace_format::{
    FormatError, StackCounts, Trace,
    run_info::{Clocks, Covers, Host, Loss, NamedValue, Source},
    text::shell_word,
};

use intervals::{
    input::names::printable,
    input::trust::{Cause, each_because},
};
use output::{
    error::AnalyzeError,
    json,
    layout::{Paint, TextStyle},
    units,
};

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
    /// Whether the trace has checksums.
    pub checksums: bool,
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
    /// The length of what the program did in the recording, in ns.
    pub span_ns: i64,
    /// The length of the recording, in ns.
    pub recorded_ns: i64,
    /// The length of the pauses, in ns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused_ns: Option<i64>,
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
        checksums: trace.has_digest(),
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
        recorded_ns: run.recorded_ns(),
        paused_ns: Some(run.paused_ns()).filter(|ns| *ns > 0),
        complete: run.complete,
        stop_reason: run.stop_reason.clone(),
        sources: run.sources.clone(),
        loss: run.loss.clone(),
        probe_cost_ns: run.probe_cost_ns.clone(),
    })
}

impl Info {
    /// Writes the description as text, if the style is full with the size of each column. Unknown facts have
    /// no line.
    ///
    /// # Errors
    ///
    /// [`AnalyzeError::Write`] with the cause that `out` gave.
    pub fn write_text(&self, style: TextStyle, out: &mut (impl Write + ?Sized)) -> Result<(), AnalyzeError> {
        write_text(self, style, out).map_err(AnalyzeError::Write)
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

fn write_text(info: &Info, style: TextStyle, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let mut line = |name: &str, value: &str| match value {
        "" => Ok(()),
        value => style.labelled(&format!("{name:<11} "), &printable(value), out),
    };
    let host = &info.host;
    line("target", &info.target)?;
    let words: Vec<String> = info.command_line.iter().map(|word| shell_word(word)).collect();
    line("command", &words.join(" "))?;
    let machine = [host.name.as_str(), &host.kernel, &host.arch];
    let mut machine: Vec<String> =
        machine.iter().filter(|word| !word.is_empty()).map(|word| (*word).to_owned()).collect();
    if host.cpus > 0 {
        machine.push(units::counted(host.cpus, "CPU"));
    }
    line("host", &machine.join(", "))?;
    line("begun", &units::utc(info.clocks_start.realtime_ns))?;
    let mut span = units::duration(info.span_ns);
    if let Some(paused_ns) = info.paused_ns {
        span = format!("{span}, and paused for {}", units::duration(paused_ns));
    } else if info.span_ns != info.recorded_ns {
        let recorded = units::duration(info.recorded_ns);
        span = format!("{span} from the first to the last event; recorded for {recorded}");
    }
    let ended = match (info.complete, info.stop_reason.as_str()) {
        (false, _) => format!("{span}; not finished, the end is missing"),
        (true, "") => span,
        (true, reason) => format!("{span}, until {reason}"),
    };
    line("lasted", &ended)?;
    line("events", &with_kinds(info.events, &info.events_by_kind))?;
    line("locks", &with_kinds(info.locks_by_kind.iter().map(|kind| kind.count).sum(), &info.locks_by_kind))?;
    let processes = match info.processes {
        1 => "1 process".to_owned(),
        processes => format!("{} processes", units::exact(processes as u64)),
    };
    line("tasks", &format!("{} in {processes}", units::exact(info.tasks as u64)))?;
    let named = match info.frames {
        0 => String::new(),
        frames => format!(", {} % of their frames named", 100 * info.frames_named / frames),
    };
    line("stacks", &format!("{}{named}", units::exact(info.stacks as u64)))?;
    let lost = units::counted(info.loss.events(), "event");
    let loss = match Cause::all_of(&info.loss).as_slice() {
        [] => "no event".to_owned(),
        [one] => format!("{lost} because {}", one.cause),
        several => format!("{lost}: {}", each_because(several)),
    };
    line("lost", &loss)?;
    let written =
        if info.klock.is_empty() { String::new() } else { format!(", written by klock {}", info.klock) };
    let checksums = if info.checksums { "" } else { ", without checksums" };
    line("format", &format!("{}{written}{checksums}, trace {}", info.format, info.trace_id))?;

    for source in &info.sources {
        let sees = match (source.uncontended, source.holds) {
            (true, true) => "every acquisition and hold",
            (true, false) => "every acquisition, no holds",
            (false, true) => "contended acquisitions and holds",
            (false, false) if source.is_sched() => match source.covers {
                Some(Covers::ContendedHolds) => "time off the CPU of tasks that hold a lock",
                _ => "time off the CPU, of which locks know nothing",
            },
            (false, false) => "waits only: no uncontended acquisitions, no holds",
        };
        writeln!(out, "\nsource {}: {sees}", printable(&source.name))?;
        if !source.kinds.is_empty() {
            style.labelled("  kinds ", &printable(&source.kinds.join(", ")), out)?;
        }
        for limit in &source.limits {
            style.wrapped_in(Paint::Plain, &format!("  {}", printable(limit)), out)?;
        }
    }
    if !info.probe_cost_ns.is_empty() {
        writeln!(out, "\nwhat a probe cost")?;
        for cost in &info.probe_cost_ns {
            let ns = i64::try_from(cost.value).unwrap_or(i64::MAX);
            writeln!(out, "  {:<18} {:>8}", printable(&cost.name), units::duration(ns))?;
        }
    }

    writeln!(out)?;
    for file in &info.files {
        writeln!(out, "{:>9}  {}", units::bytes(file.bytes), printable(&file.path))?;
    }
    if let Some(bytes) = info.bytes_per_event {
        writeln!(out, "{:>9}  together, {bytes:.2} bytes per event", units::bytes(info.total_bytes))?;
    }
    if style.full && info.events > 0 {
        writeln!(out, "\nevents by column, bytes per event")?;
        for column in &info.columns {
            let (bytes, name) = (units::bytes(column.bytes), printable(&column.name));
            writeln!(out, "{bytes:>9}  {:>6.2}  {name}", column.bytes_per_event)?;
        }
    }
    Ok(())
}

/// `1,234 (wait 600, acquire 634)`
fn with_kinds(total: u64, kinds: &[Count]) -> String {
    let parts: Vec<String> =
        kinds.iter().map(|kind| format!("{} {}", kind.kind, units::exact(kind.count))).collect();
    match parts.as_slice() {
        [] => units::exact(total),
        _ => format!("{} ({})", units::exact(total), parts.join(", ")),
    }
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
        info.write_text(TextStyle { full: true, ..TextStyle::default() }, &mut out).unwrap();
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
        let mut short = Vec::new();
        info.write_text(TextStyle::default(), &mut short).unwrap();
        assert!(!String::from_utf8(short).unwrap().contains("ts_ns"));
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
        info.write_text(TextStyle::default(), &mut io::sink()).unwrap();
    }
}
