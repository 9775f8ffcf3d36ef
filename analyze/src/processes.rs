//! One line per process: how many threads and locks, for how long they waited and slept over locks, whom they woke, what failed; and
//! apart from that, how long they idled on condition variables, semaphores and barriers.
//!
//! A trace and [`Options`] enter, [`Processes`] leave: plain data in nanoseconds, and the [`Trust`] block. The trace is read twice:
//! intervals come from the engine, calls that make none (wake-ups, failed attempts) from the events. Memory grows with threads and
//! locks. It is the summary of bcc's lockstat (iovisor/bcc pull request 1697); what is in a process is told by `report --by task,lock`,
//! `site` or `stack`.

use std::{collections::BTreeMap, io::Write};

use rustc_hash::FxHashSet;
use serde::Serialize;
use trace_format::{Event, EventKind, LockId, TaskId, Trace};

use crate::{
    error::AnalyzeError,
    filter::Filter,
    intervals::{Hold, HoldState, Outcome, Sink, Wait},
    layout::{self, Look, Name},
    loss,
    names::{Names, UNKNOWN, printable},
    pass::{Detail, Pass},
    report::{
        Trust, json,
        trust::{About, Watch},
    },
    rows::{self, Cell, Field, Format, Value},
    scope::Chosen,
    units,
};

#[cfg(test)]
mod tests;

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// At most so many rows; `None` is all.
    pub limit: Option<usize>,
    /// What of the trace. Idle waits are always looked at, and always apart.
    pub filter: Filter,
    /// Also if the trace lost too much for the order of rows to mean anything.
    pub allow_loss: bool,
}

/// The table and what is to be known about it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Processes {
    /// The processes, the one that waited longest first.
    pub rows: Vec<Row>,
    /// How many there were before the limit.
    pub rows_total: usize,
    /// What the numbers don't hold.
    pub trust: Trust,
}

/// One process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Its id.
    pub pid: i32,
    /// Its name; safe to print.
    pub comm: String,
    /// Threads of which there are events.
    pub threads: i64,
    /// Locks that they acquired or waited for.
    pub locks: i64,
    /// Acquisitions.
    pub count: i64,
    /// Waits for locks, however they ended.
    pub waits: i64,
    /// How long those lasted together, in ns; what is open at the end until then.
    pub wait_ns: i64,
    /// Of that: asleep, in ns, of the waits of which that is known; `None` if it is of none.
    pub blocked_ns: Option<i64>,
    /// How long locks were held together, in ns; `None` if that was not recorded.
    pub hold_ns: Option<i64>,
    /// How long the threads lived within what is looked at, together, in ns: running, waiting and asleep.
    pub lived_ns: i64,
    /// Calls that failed: waits that were given up, attempts that found the lock taken, wake-ups with an error.
    pub errors: i64,
    /// Calls that wake others.
    pub wakes: i64,
    /// How many they woke, as far as that is known.
    pub woken: i64,
    /// Waits on condition variables, semaphores and barriers.
    pub idle_waits: i64,
    /// How long those lasted together, in ns.
    pub idle_ns: i64,
    /// Holds and waits that are in no column, because events were lost while they lasted.
    pub cut_by_loss: u64,
}

impl Row {
    /// Of the threads' life: waiting for locks, in millionths.
    pub fn wait_ppm(&self) -> Option<i64> {
        ppm(self.wait_ns, self.lived_ns)
    }

    /// The same asleep over that.
    pub fn blocked_ppm(&self) -> Option<i64> {
        self.blocked_ns.and_then(|ns| ppm(ns, self.lived_ns))
    }
}

fn ppm(part: i64, whole: i64) -> Option<i64> {
    let ppm = (i128::from(part) * 1_000_000).checked_div(i128::from(whole.max(0)))?;
    i64::try_from(ppm).ok()
}

/// Makes the table.
///
/// # Errors
///
/// The trace can't be read, holds no events or lost too much, or a filter means nothing in it.
pub fn processes(trace: &Trace, options: &Options) -> Result<Processes, AnalyzeError> {
    let names = Names::read(trace)?;
    let filter = Filter { include_idle: true, ..options.filter.clone() };
    let chosen = Chosen::of(trace, &names, &filter)?;
    let pass = Pass { trace, names: &names, chosen: &chosen, detail: Detail::All };
    let mut sums =
        Summing { names: &names, chosen: &chosen, found: BTreeMap::new(), watch: Watch::default() };
    let (walk, counts) = pass.run(&mut sums)?;
    pass.events(|event| sums.event(event))?;
    let Summing { found, watch, .. } = sums;
    let trust = watch.block(trace, (&walk, &counts), &chosen, &names);
    loss::check(trace, &trust, options.allow_loss)?;

    let from_ns = chosen.window.from_ns.unwrap_or(chosen.start_ns);
    let to_ns = match chosen.window.to_ns {
        Some(to_ns) if walk.cut_short => to_ns,
        _ => walk.last_ns.max(trace.info().clocks_end.monotonic_ns),
    };
    let mut rows: Vec<Row> = found
        .into_iter()
        .map(|(pid, found)| {
            let lived = |task: &TaskId| {
                let task = names.task(*task);
                let begin = task.and_then(|task| task.start_ns).unwrap_or(from_ns).max(from_ns);
                let end = task.and_then(|task| task.exit_ns).unwrap_or(to_ns).min(to_ns);
                end.saturating_sub(begin).max(0)
            };
            Row {
                pid,
                comm: printable(names.process_comm(pid).unwrap_or(UNKNOWN)).into_owned(),
                threads: count(found.tasks.len()),
                locks: count(found.locks.len()),
                lived_ns: found.tasks.iter().map(lived).fold(0, i64::saturating_add),
                ..found.sums
            }
        })
        .collect();
    rows.sort_by(|a, b| b.wait_ns.cmp(&a.wait_ns).then_with(|| a.pid.cmp(&b.pid)));
    let rows_total = rows.len();
    rows.truncate(options.limit.unwrap_or(usize::MAX));
    Ok(Processes { rows, rows_total, trust })
}

fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// What is known of one process.
#[derive(Debug, Default)]
struct Found {
    sums: Row,
    tasks: FxHashSet<TaskId>,
    locks: FxHashSet<LockId>,
}

struct Summing<'a> {
    names: &'a Names,
    chosen: &'a Chosen,
    found: BTreeMap<i32, Found>,
    watch: Watch,
}

impl Summing<'_> {
    fn of(&mut self, task: TaskId) -> Option<&mut Found> {
        let pid = self.names.task(task)?.pid;
        let found = self.found.entry(pid).or_default();
        found.tasks.insert(task);
        Some(found)
    }

    fn is_idle(&self, lock: LockId) -> bool {
        self.names.lock(lock).is_some_and(|lock| lock.kind.is_idle())
    }

    /// What no interval tells.
    fn event(&mut self, event: &Event) {
        let Some(task) = event.task.filter(|_| event.kind != EventKind::Lost) else { return };
        let Some(found) = self.of(task) else { return };
        match event.kind {
            EventKind::Wake => {
                found.sums.wakes += 1;
                found.sums.woken = found.sums.woken.saturating_add(event.count.unwrap_or(0).max(0));
                found.sums.errors += i64::from(event.errno.is_some());
            }
            EventKind::TryFail => found.sums.errors += 1,
            _ => {}
        }
    }
}

impl Sink for Summing<'_> {
    fn hold(&mut self, hold: &Hold) {
        if !self.chosen.wants_hold(hold) || self.is_idle(hold.lock) {
            return;
        }
        self.watch.hold(hold);
        let Some(found) = self.of(hold.task) else { return };
        found.locks.insert(hold.lock);
        found.sums.count += hold.acquisitions;
        match hold.state {
            HoldState::Complete | HoldState::OpenAtEnd => {
                let held_ns = hold.end_ns.saturating_sub(hold.start_ns);
                found.sums.hold_ns = Some(found.sums.hold_ns.unwrap_or(0).saturating_add(held_ns));
            }
            HoldState::CutByLoss => found.sums.cut_by_loss += 1,
            _ => {}
        }
    }

    fn wait(&mut self, wait: &Wait) {
        if !self.chosen.wants_wait(wait) {
            return;
        }
        let is_idle = self.is_idle(wait.lock);
        self.watch.wait(wait);
        let Some(found) = self.of(wait.task) else { return };
        let sums = &mut found.sums;
        if wait.outcome == Outcome::CutByLoss {
            sums.cut_by_loss += 1;
        } else if is_idle {
            sums.idle_waits += 1;
            sums.idle_ns = sums.idle_ns.saturating_add(wait.wait_ns);
        } else {
            found.locks.insert(wait.lock);
            sums.waits += 1;
            sums.wait_ns = sums.wait_ns.saturating_add(wait.wait_ns);
            sums.errors += i64::from(matches!(wait.outcome, Outcome::Abandoned(_)));
            if let Some(ns) = wait.blocked_ns {
                sums.blocked_ns = Some(sums.blocked_ns.unwrap_or(0).saturating_add(ns));
            }
        }
    }
}

/// Writes the table.
///
/// # Errors
///
/// [`AnalyzeError::Write`] with the cause that `out` gave.
pub fn write(
    processes: &Processes,
    format: Format,
    look: impl Into<Look>,
    out: &mut (dyn Write + Send),
) -> Result<(), AnalyzeError> {
    match format {
        Format::Text => write_text(processes, look.into(), out).map_err(AnalyzeError::Write),
        Format::Json => json::write_value(processes, out),
        format => write_rows(processes, format, out),
    }
}

const fn fields() -> [(&'static str, &'static str, Value); 17] {
    [
        ("threads", "threads", Value::Count),
        ("locks", "locks", Value::Count),
        ("count", "count", Value::Count),
        ("waits", "waits", Value::Count),
        ("wait_ns", "wait", Value::Duration),
        ("wait_ppm", "wait_%", Value::Ppm),
        ("blocked_ns", "asleep", Value::Duration),
        ("blocked_ppm", "asleep_%", Value::Ppm),
        ("hold_ns", "hold", Value::Duration),
        ("lived_ns", "", Value::Duration),
        ("errors", "errors", Value::Count),
        ("wakes", "wakes", Value::Count),
        ("woken", "woken", Value::Count),
        ("idle_waits", "idle_waits", Value::Count),
        ("idle_ns", "idle_time", Value::Duration),
        ("cut_by_loss", "", Value::Count),
        ("pid", "", Value::Count),
    ]
}

impl Row {
    /// In the order of the fields.
    fn values(&self) -> [Option<i64>; 17] {
        [
            Some(self.threads),
            Some(self.locks),
            Some(self.count),
            Some(self.waits),
            Some(self.wait_ns),
            self.wait_ppm(),
            self.blocked_ns,
            self.blocked_ppm(),
            self.hold_ns,
            Some(self.lived_ns),
            Some(self.errors),
            Some(self.wakes),
            Some(self.woken),
            Some(self.idle_waits),
            Some(self.idle_ns),
            i64::try_from(self.cut_by_loss).ok(),
            Some(i64::from(self.pid)),
        ]
    }
}

fn write_text(processes: &Processes, look: Look, out: &mut (dyn Write + Send)) -> std::io::Result<()> {
    processes.trust.warn(out)?;
    let shown: Vec<(usize, &str, Value)> = fields()
        .into_iter()
        .enumerate()
        .filter(|(_, (_, head, _))| !head.is_empty())
        .map(|(at, (_, head, value))| (at, head, value))
        .collect();
    let heads: Vec<&str> = shown.iter().map(|(_, head, _)| *head).collect();
    let row = |row: &Row| -> Vec<String> {
        let values = row.values();
        shown.iter().map(|(at, _, value)| cell(values[*at], *value)).collect()
    };
    let cells: Vec<Vec<String>> = processes.rows.iter().map(row).collect();
    let name = |row: &Row| layout::marked(&format!("{} (pid {})", row.comm, row.pid), row.cut_by_loss > 0);
    let names: Vec<String> = processes.rows.iter().map(name).collect();
    let names: Vec<Name<'_>> = names.iter().map(|name| name.as_str().into()).collect();
    layout::table(&heads, &cells, "process", &names, look, out)?;
    layout::hidden(processes.rows_total - processes.rows.len(), out)?;
    writeln!(out)?;
    processes.trust.write_about(About::Timeline, look, out)
}

fn cell(value: Option<i64>, unit: Value) -> String {
    match (value, unit) {
        (None, _) => "-".to_owned(),
        (Some(n), Value::Duration) => units::duration(n),
        (Some(n), Value::Ppm) => format!("{:.1}", n as f64 / 1e4),
        (Some(n), _) => units::count(n),
    }
}

fn write_rows(
    processes: &Processes,
    format: Format,
    out: &mut (dyn Write + Send),
) -> Result<(), AnalyzeError> {
    let number = |(name, head, value): (&'static str, &'static str, Value)| match head {
        "" => Field::number(name),
        head => Field::number(name).shown(head, value, (0, 0)),
    };
    let mut columns: Vec<Field> = fields().into_iter().map(number).collect();
    columns.push(Field::text("comm").shown("process", Value::Text, (0, 0)));
    let mut out = rows::writer(format, &columns, None, out)?;
    for row in &processes.rows {
        let mut cells: Vec<Cell<'_>> = row.values().into_iter().map(Cell::from).collect();
        cells.push(row.comm.as_str().into());
        out.push(&cells)?;
    }
    out.finish()
}
