//! `klock analyze processes`: one row per process with its threads and locks, its waits and holds, the calls that woke others and
//! those that failed. Idle waits have columns of their own.
//!
//! Each trace is read twice: intervals come from the engine, calls without one (wake-ups, failed attempts) from the events. Memory
//! grows with threads and locks. The table follows bcc's lockstat (iovisor/bcc pull request 1697).

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;
use serde::Serialize;
use trace_format::{Event, EventKind, LockId, StackId, TaskId, Trace};

use crate::{
    error::AnalyzeError,
    input::{
        Input,
        filter::Filter,
        names::{Names, UNKNOWN, printable},
        selection::Selection,
        trust::{About, Trust, TrustCounter},
    },
    items::{Hold, HoldState, Item, Outcome, Sink, Wait},
    output::{Column, Kind, column::sort_key, units},
    tables::{Table, cut_column, table::rows_and_trust, trace_column},
};

#[cfg(test)]
mod tests;

/// Options of the table.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The column that rows are sorted by; empty for the longest waits first.
    pub sort: String,
    /// The number of rows; `None` is all.
    pub limit: Option<usize>,
    /// The part of the traces to read. Idle waits are always read, and always counted apart.
    pub filter: Filter,
    /// Whether to rank a trace that lost too many events for the order of rows to mean anything.
    pub allow_loss: bool,
}

/// The table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Processes {
    /// The number of traces.
    #[serde(skip)]
    pub traces: usize,
    /// The processes, the one that waited longest first.
    pub rows: Vec<Row>,
    /// The number of rows before the limit.
    pub rows_total: usize,
    /// Events and intervals that the numbers do not hold.
    pub trust: Trust,
}

/// One process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The process id.
    pub pid: i32,
    /// The name; safe to print.
    pub comm: String,
    /// The trace, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// Threads that have events.
    pub threads: i64,
    /// Locks that they acquired or waited for.
    pub locks: i64,
    /// Acquisitions.
    pub count: i64,
    /// Waits for locks, however they ended.
    pub waits: i64,
    /// The sum of these waits, in ns; a wait that is open at the end counts until then.
    pub wait_ns: i64,
    /// Time asleep during the waits for which it is known, in ns; `None` if it is known for none.
    pub blocked_ns: Option<i64>,
    /// The sum of the holds, in ns; `None` if holds were not recorded.
    pub hold_ns: Option<i64>,
    /// The lifetime of the threads within the selected time, in ns: running, waiting and asleep.
    pub lived_ns: i64,
    /// Failed calls: abandoned waits, attempts that found the lock taken, wake-ups with an error.
    pub errors: i64,
    /// Calls that wake others.
    pub wakes: i64,
    /// Threads woken by these calls, as far as it is known.
    pub woken: i64,
    /// Idle waits.
    pub idle_waits: i64,
    /// The sum of these waits, in ns.
    pub idle_ns: i64,
    /// Holds and waits that are in no column, because events were lost while they lasted.
    pub cut_by_loss: u64,
}

impl Row {
    /// Returns the part of the threads' lifetime that was spent waiting for locks, in millionths.
    pub fn wait_ppm(&self) -> Option<i64> {
        ppm(self.wait_ns, self.lived_ns)
    }

    /// Returns the part of the threads' lifetime that was spent asleep over locks, in millionths.
    pub fn blocked_ppm(&self) -> Option<i64> {
        self.blocked_ns.and_then(|ns| ppm(ns, self.lived_ns))
    }
}

fn ppm(part: i64, whole: i64) -> Option<i64> {
    units::ppm(part, whole.max(0))
}

/// Computes the table of one trace or several. A process of one trace is not a process of another.
///
/// # Errors
///
/// A trace cannot be read, holds no events or lost too much, or a filter finds nothing in any of them.
pub fn processes(traces: &[Trace], options: &Options) -> Result<Processes, AnalyzeError> {
    let filter = Filter { include_idle: true, ..options.filter.clone() };
    let columns = columns(false);
    let sort = sort_key(&columns, if options.sort.is_empty() { "wait" } else { &options.sort })?;
    let inputs = Input::open_all(traces, 0, &filter)?;
    let (mut rows, mut trust) = (Vec::new(), Vec::new());
    for input in &inputs {
        let (of_trace, trust_of_trace) = processes_of(input, options.allow_loss)?;
        let label = (inputs.len() > 1).then(|| input.label.clone());
        rows.extend(of_trace.into_iter().map(|row| Row { trace: label.clone(), ..row }));
        trust.push(trust_of_trace);
    }
    rows.sort_by(|a, b| sort.compare(a, b).then_with(|| (a.pid, &a.trace).cmp(&(b.pid, &b.trace))));
    let rows_total = rows.len();
    rows.truncate(options.limit.unwrap_or(usize::MAX));
    Ok(Processes { traces: inputs.len(), rows, rows_total, trust: Trust::merged(trust) })
}

fn processes_of(input: &Input<'_>, allow_loss: bool) -> Result<(Vec<Row>, Trust), AnalyzeError> {
    let Input { names, selection, .. } = input;
    let mut counter =
        ProcessCounter { names, selection, found: BTreeMap::new(), trust: TrustCounter::default() };
    let outcome = input.run(&mut counter)?;
    input.events(|event| counter.event(event))?;
    let ProcessCounter { found, trust, .. } = counter;
    let trust = input.trust(trust, &outcome, allow_loss)?;

    let from_ns = selection.window.from_ns.unwrap_or(selection.start_ns);
    let to_ns = outcome.end_ns;
    let lived = |task: &TaskId| {
        let task = names.task(*task);
        let start = task.and_then(|task| task.start_ns).unwrap_or(from_ns).max(from_ns);
        let exit = task.and_then(|task| task.exit_ns).unwrap_or(to_ns).min(to_ns);
        exit.saturating_sub(start).max(0)
    };
    let row = |(pid, found): (i32, Found)| Row {
        pid,
        comm: printable(names.process_comm(pid).unwrap_or(UNKNOWN)).into_owned(),
        threads: count(found.tasks.len()),
        locks: count(found.locks.len()),
        lived_ns: found.tasks.iter().map(lived).fold(0, i64::saturating_add),
        ..found.sums
    };
    Ok((found.into_iter().map(row).collect(), trust))
}

fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// The sums of one process.
#[derive(Debug, Default)]
struct Found {
    sums: Row,
    tasks: FxHashSet<TaskId>,
    locks: FxHashSet<LockId>,
}

/// Adds intervals and events up by process.
struct ProcessCounter<'a> {
    names: &'a Names,
    selection: &'a Selection,
    found: BTreeMap<i32, Found>,
    trust: TrustCounter,
}

impl ProcessCounter<'_> {
    fn process(&mut self, task: TaskId) -> Option<&mut Found> {
        let pid = self.names.task(task)?.pid;
        let found = self.found.entry(pid).or_default();
        found.tasks.insert(task);
        Some(found)
    }

    fn is_idle(&self, lock: LockId, stack: Option<StackId>) -> bool {
        self.names.purposes().of(lock, stack).is_idle()
    }

    /// Counts the calls that make no interval.
    fn event(&mut self, event: &Event) {
        let Some(task) = event.task.filter(|_| event.kind != EventKind::Lost) else { return };
        let Some(found) = self.process(task) else { return };
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

impl Sink for ProcessCounter<'_> {
    fn push(&mut self, item: Item<'_>) {
        match item {
            Item::Hold(hold) => self.hold(hold),
            Item::Wait(wait) => self.wait(wait),
            _ => {}
        }
    }
}

impl ProcessCounter<'_> {
    fn hold(&mut self, hold: &Hold) {
        if !self.selection.selects_hold(hold) || self.is_idle(hold.lock, hold.stack) {
            return;
        }
        self.trust.hold(hold);
        let Some(found) = self.process(hold.task) else { return };
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
        if !self.selection.selects_wait(wait) {
            return;
        }
        let is_idle = self.is_idle(wait.lock, wait.stack);
        self.trust.wait(wait);
        let Some(found) = self.process(wait.task) else { return };
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

impl Table for Processes {
    rows_and_trust!(Row);

    fn columns(&self) -> Vec<Column<Row>> {
        columns(self.traces > 1)
    }

    fn dispensable(&self) -> &'static [&'static str] {
        &["woken", "wakes", "errors", "asleep_%", "locks", "idle_waits", "idle_time", "count", "hold"]
    }

    fn text_name(&self, row: &Row) -> Option<String> {
        let trace = row.trace.as_ref().map_or_else(String::new, |trace| format!("{trace}: "));
        Some(format!("{trace}{} (pid {})", row.comm, row.pid))
    }

    fn about(&self) -> About {
        About::Timeline
    }
}

/// Declares the columns; rows of several traces have their trace.
pub fn columns(several: bool) -> Vec<Column<Row>> {
    type Of = Column<Row>;
    let mut columns = vec![
        Of::count("threads", |row| row.threads, "Threads that have events."),
        Of::count("locks", |row| row.locks, "Locks that they acquired or waited for."),
        Of::count("count", |row| row.count, "Acquisitions."),
        Of::count("waits", |row| row.waits, "Waits for locks, however they ended."),
        Of::duration("wait", |row| row.wait_ns, "All waits for locks."),
        Of::ppm("wait", |row| row.wait_ppm(), "wait by the lifetime of the threads.")
            .kind(Kind::Percent)
            .heading("wait_%"),
        Of::duration(
            "blocked",
            |row| row.blocked_ns,
            "Time asleep during these waits, as far as it is known.",
        )
        .heading("asleep"),
        Of::ppm("blocked", |row| row.blocked_ppm(), "asleep by the lifetime of the threads.")
            .kind(Kind::Percent)
            .heading("asleep_%"),
        Of::duration("hold", |row| row.hold_ns, "All holds."),
        Of::duration("lived", |row| row.lived_ns, "Lifetime of the threads within the selected time.")
            .programs(),
        Of::count(
            "errors",
            |row| row.errors,
            "Abandoned waits, attempts that found a lock taken, and failed wake-ups.",
        ),
        Of::count("wakes", |row| row.wakes, "Calls that wake others."),
        Of::count("woken", |row| row.woken, "Threads woken by these calls, as far as it is known."),
        Of::count(
            "idle_waits",
            |row| row.idle_waits,
            "Idle waits: on condition variables, semaphores and barriers, for the end of threads, in schedulers.",
        ),
        Of::duration("idle", |row| row.idle_ns, "Time in these waits.").heading("idle_time"),
        cut_column(|row: &Row| row.cut_by_loss),
        Of::count("pid", |row| row.pid, "The process id.").identity(),
        Of::text("comm", |row| row.comm.as_str().into(), "The name of the process.")
            .row_name()
            .heading("process"),
    ];
    columns.extend(trace_column(several, |row: &Row| row.trace.as_deref()));
    columns
}
