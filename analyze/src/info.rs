//! What a trace holds and how it was made.
//!
//! A trace enters, [`Info`] leaves: plain data from the footers, the side tables and one column of the events. Two
//! skins write it, for people and as JSON. Nothing is paired or judged here.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, Write},
};

use serde::Serialize;
use trace_format::{
    FormatError, Trace,
    run_info::{Clocks, Host, Loss, Named, Source},
};

use crate::{error::AnalyzeError, names::printable, report::json, units};

/// What a trace holds and how it was made.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Info {
    /// Its four files.
    pub files: Vec<FileSize>,
    /// Their bytes together.
    pub total_bytes: u64,
    /// Rows of the events.
    pub events: u64,
    /// Bytes of all four files by event; `None` if there are no events.
    pub bytes_per_event: Option<f64>,
    /// Compressed bytes of each column of the events, in the order of the file.
    pub columns: Vec<ColumnSize>,
    /// Row groups of the events.
    pub row_groups: usize,
    /// Events of each kind; only kinds that there are.
    pub events_by_kind: Vec<Count>,
    /// Locks of each kind; only kinds that there are.
    pub locks_by_kind: Vec<Count>,
    /// Threads.
    pub tasks: usize,
    /// Processes.
    pub processes: usize,
    /// Distinct stacks.
    pub stacks: usize,
    /// Their frames.
    pub frames: usize,
    /// Of those: with the name of the function.
    pub frames_named: usize,
    /// Version of the trace format, `major.minor`.
    pub format: String,
    /// What joins the four files.
    pub trace_id: String,
    /// Version of the klock that wrote it.
    pub klock: String,
    /// The machine.
    pub host: Host,
    /// The command line of the recorder.
    pub command_line: Vec<String>,
    /// Whose locks were recorded.
    pub target: String,
    /// The clocks when recording began.
    pub clocks_start: Clocks,
    /// How long the recording took, in ns.
    pub span_ns: i64,
    /// Whether the recorder finished the file itself.
    pub complete: bool,
    /// Why the recording ended.
    pub stop_reason: String,
    /// What was recorded, and what it could not see.
    pub sources: Vec<Source>,
    /// What is missing.
    pub loss: Loss,
    /// Estimated cost of a probe hit in ns, by program, where it was measured.
    pub probe_cost_ns: Vec<Named>,
}

/// A file and its size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileSize {
    /// Its path.
    pub path: String,
    /// Its size.
    pub bytes: u64,
}

/// A column and its size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ColumnSize {
    /// Its name.
    pub name: String,
    /// Its size, compressed.
    pub bytes: u64,
    /// The same by event.
    pub bytes_per_event: f64,
}

/// How many there are of something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Count {
    /// Of what.
    pub kind: &'static str,
    /// How many.
    pub count: u64,
}

/// Reads what there is to know.
///
/// # Errors
///
/// The files can't be read. A trace without events is no error here.
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
    for lock in trace.locks()? {
        *locks.entry(lock.kind).or_default() += 1;
    }
    let tasks = trace.tasks()?;
    let stacks = trace.stacks()?;
    let frames = || stacks.iter().flat_map(|stack| &stack.frames);
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
        stacks: stacks.len(),
        frames: frames().count(),
        frames_named: frames().filter(|frame| frame.symbol.is_some()).count(),
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

fn counts(counts: impl Iterator<Item = (&'static str, u64)>) -> Vec<Count> {
    counts.map(|(kind, count)| Count { kind, count }).collect()
}

fn size(path: &std::path::Path) -> Result<FileSize, FormatError> {
    let metadata = fs::metadata(path).map_err(|source| FormatError::Io { path: path.to_owned(), source })?;
    Ok(FileSize { path: path.display().to_string(), bytes: metadata.len() })
}

impl Info {
    /// Writes it for people.
    ///
    /// # Errors
    ///
    /// [`AnalyzeError::Write`] with the cause that `out` gave.
    pub fn write_text(&self, out: &mut impl Write) -> Result<(), AnalyzeError> {
        self.write_lines(out).map_err(AnalyzeError::Write)
    }

    /// Writes it as JSON.
    ///
    /// # Errors
    ///
    /// [`AnalyzeError::Write`] with the cause that `out` gave.
    pub fn write_json(&self, out: &mut impl Write) -> Result<(), AnalyzeError> {
        json::write_value(self, out)
    }

    fn write_lines(&self, out: &mut impl Write) -> io::Result<()> {
        let mut line = |name: &str, value: &str| match value {
            "" => Ok(()),
            value => writeln!(out, "{:<11} {}", name, printable(value)),
        };
        let host = &self.host;
        line("target", &self.target)?;
        line("command", &shell_words(&self.command_line))?;
        let machine = [host.name.as_str(), &host.kernel, &host.arch];
        let mut machine: Vec<String> =
            machine.iter().filter(|word| !word.is_empty()).map(|word| (*word).to_owned()).collect();
        if host.cpus > 0 {
            machine.push(format!("{} CPUs", host.cpus));
        }
        line("host", &machine.join(", "))?;
        line("begun", &utc(self.clocks_start.realtime_ns))?;
        let span = units::duration(self.span_ns);
        let ended = match (self.complete, self.stop_reason.as_str()) {
            (false, _) => format!("{span}; not finished, the end is missing"),
            (true, "") => span,
            (true, reason) => format!("{span}, until {reason}"),
        };
        line("lasted", &ended)?;
        line("events", &with_kinds(self.events, &self.events_by_kind))?;
        line(
            "locks",
            &with_kinds(self.locks_by_kind.iter().map(|kind| kind.count).sum(), &self.locks_by_kind),
        )?;
        line("tasks", &format!("{} in {} processes", n(self.tasks as u64), n(self.processes as u64)))?;
        let named = match self.frames {
            0 => String::new(),
            frames => format!(", {} % of their frames named", 100 * self.frames_named / frames),
        };
        line("stacks", &format!("{}{named}", n(self.stacks as u64)))?;
        let loss = match self.loss.events() {
            0 => "no event".to_owned(),
            events => format!("{} events", n(events)),
        };
        line("lost", &loss)?;
        let written =
            if self.klock.is_empty() { String::new() } else { format!(", written by klock {}", self.klock) };
        line("format", &format!("{}{written}, trace {}", self.format, self.trace_id))?;

        for source in &self.sources {
            let sees = match (source.uncontended, source.holds) {
                (true, true) => "every acquisition and hold",
                (true, false) => "every acquisition, no holds",
                (false, true) => "contended acquisitions and holds",
                (false, false) => "waits only: no free acquisitions, no holds",
            };
            writeln!(out, "\nsource {}: {sees}", printable(&source.name))?;
            writeln!(out, "  kinds {}", printable(&source.kinds.join(", ")))?;
            for limit in &source.limits {
                writeln!(out, "  {}", printable(limit))?;
            }
        }
        if !self.probe_cost_ns.is_empty() {
            writeln!(out, "\nwhat a probe cost")?;
            for cost in &self.probe_cost_ns {
                let ns = i64::try_from(cost.value).unwrap_or(i64::MAX);
                writeln!(out, "  {:<18} {:>8}", printable(&cost.name), units::duration(ns))?;
            }
        }

        writeln!(out)?;
        for file in &self.files {
            writeln!(out, "{:>9}  {}", units::bytes(file.bytes), printable(&file.path))?;
        }
        if let Some(bytes) = self.bytes_per_event {
            writeln!(out, "{:>9}  together, {bytes:.2} bytes per event", units::bytes(self.total_bytes))?;
        }
        if self.events > 0 {
            writeln!(out, "\nevents by column, bytes per event")?;
            for column in &self.columns {
                writeln!(
                    out,
                    "{:>9}  {:>6.2}  {}",
                    units::bytes(column.bytes),
                    column.bytes_per_event,
                    printable(&column.name)
                )?;
            }
        }
        Ok(())
    }
}

fn n(count: u64) -> String {
    units::exact(i64::try_from(count).unwrap_or(i64::MAX))
}

/// `1,234 (wait 600, acquire 634)`
fn with_kinds(total: u64, kinds: &[Count]) -> String {
    let parts: Vec<String> = kinds.iter().map(|kind| format!("{} {}", kind.kind, n(kind.count))).collect();
    match parts.as_slice() {
        [] => n(total),
        _ => format!("{} ({})", n(total), parts.join(", ")),
    }
}

/// The words as a shell would read them back.
fn shell_words(words: &[String]) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./=:,+@%".contains(c);
    let quoted = |word: &String| match word.is_empty() || !word.chars().all(plain) {
        true => format!("'{}'", word.replace('\'', r"'\''")),
        false => word.clone(),
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// `2026-01-31 23:59:59 UTC`, or nothing before 1970 and for a clock that was not read.
fn utc(realtime_ns: i64) -> String {
    if realtime_ns <= 0 {
        return String::new();
    }
    let seconds = realtime_ns / 1_000_000_000;
    let (days, time) = (seconds / 86_400, seconds % 86_400);
    // Howard Hinnant's civil_from_days: years begin in March, so that the leap day is the last.
    let days = days + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
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
        parts.info.clocks_start.realtime_ns = 1_772_323_199_000_000_000;
        parts.info.clocks_end.monotonic_ns = 2_000_000_000;
        parts
    }

    #[test]
    fn the_text_says_what_there_is_and_leaves_out_what_is_not_known() {
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
tasks       2 in 1 processes
stacks      3, 100 % of their frames named
lost        2 events
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
    fn the_sizes_are_those_of_the_files() {
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
        info.write_text(&mut io::sink()).unwrap();
    }

    #[test]
    fn a_date_is_that_of_the_calendar() {
        for (seconds, date) in [
            (1, "1970-01-01 00:00:01 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_735_689_599, "2024-12-31 23:59:59 UTC"),
            (4_107_542_399, "2100-02-28 23:59:59 UTC"),
        ] {
            assert_eq!(utc(seconds * 1_000_000_000), date);
        }
        assert_eq!(utc(0), "");
    }
}
