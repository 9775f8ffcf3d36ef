//! milli-klockstat's CSV: how long each thread waited for each lock in each period of some milliseconds, and how often it acquired it.
//!
//! Acquisitions go in, in the order of time; `s` lines come out, and before the first one of a stack its `t` line. An acquisition
//! belongs to the period in which it was done, and each is in some line; `mklockstat.py` closes a period at the first acquisition after
//! its end, counts that one in it, and loses the last one.
//!
//! The original measures from the call to its return. klock's waits begin at the first failed attempt, so an uncontended
//! acquisition takes 0.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashSet},
    io::Write,
};

use rustc_hash::FxHashMap;
use trace_format::{Event, EventKind, Frame, LockId, LockKind, StackId, TaskId};

use super::{
    run::{Exporter, failed_attempts},
    stream::Stream,
};
use intervals::{
    input::Input,
    input::names::Names,
    input::trust::Trust,
    items::{Item, Needs},
};
use output::{error::AnalyzeError, safe};

#[cfg(test)]
mod tests;

/// Names of monitoring threads, which the original leaves out.
const MONITORS: [&str; 3] = ["collect", "collectl", "tcplife-bpfcc"];

/// The subject of a line.
type Subject = (TaskId, LockId);

/// The sums of a subject in one period.
#[derive(Clone, Copy, Debug, Default)]
struct Period {
    waited_ns: i64,
    acquisitions: i64,
    stack: Option<StackId>,
}

/// All periods.
#[derive(Debug, Default)]
struct Periods {
    period_ns: i64,
    with_monitors: bool,
    /// By start and subject.
    sums: FxHashMap<(i64, Subject), Period>,
    first_stacks: FxHashMap<Subject, Option<StackId>>,
    /// Acquisitions of locks for which the format has no type, by kind.
    untyped: BTreeMap<&'static str, u64>,
    /// Acquisitions for which the start of the wait was not seen.
    unknown: u64,
    /// Waits that ended without the lock.
    abandoned: i64,
    /// Attempts that found the lock taken and did not wait.
    try_failed: i64,
}

impl Periods {
    /// Adds the acquisition of this event, if it is one that the format shows.
    fn add(&mut self, event: &Event, names: &Names) {
        self.abandoned += i64::from(event.kind == EventKind::Abandon);
        self.try_failed += i64::from(event.kind == EventKind::TryFail);
        let (EventKind::Acquire, Some(lock), Some(task)) = (event.kind, event.lock, event.task) else {
            return;
        };
        let (Some(row), Some(task_row)) = (names.lock(lock), names.task(task)) else { return };
        if type_of(row.kind).is_none() {
            *self.untyped.entry(row.kind.as_str()).or_default() += 1;
            return;
        }
        if !self.with_monitors && MONITORS.contains(&task_row.comm.as_deref().unwrap_or_default()) {
            return;
        }
        self.unknown += u64::from(event.wait_ns.is_none());
        let subject = (task, lock);
        let stack = *self.first_stacks.entry(subject).or_insert(event.stack);
        let start_ns = event.ts_ns.saturating_sub(event.ts_ns.rem_euclid(self.period_ns.max(1)));
        let new = Period { stack, ..Period::default() };
        let period = self.sums.entry((start_ns, subject)).or_insert(new);
        period.waited_ns = period.waited_ns.saturating_add(event.wait_ns.unwrap_or(0).max(0));
        period.acquisitions += 1;
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if !self.untyped.is_empty() {
            let kinds: Vec<String> =
                self.untyped.iter().map(|(kind, count)| format!("{kind} ({count})")).collect();
            notes.push(format!(
                "acquisitions of lock kinds without a type in this format are left out: {}",
                kinds.join(", ")
            ));
        }
        if self.unknown > 0 {
            notes.push(format!("{} acquisitions with unknown wait times are counted", self.unknown));
        }
        notes.extend(failed_attempts(self.abandoned, self.try_failed));
        notes
    }
}

/// Returns the format's type of a kind of lock. Sleeping reader-writer locks are semaphores there, as in the kernel (rw_semaphore).
const fn type_of(kind: LockKind) -> Option<&'static str> {
    match kind {
        LockKind::Mutex
        | LockKind::RtMutex
        | LockKind::PthreadMutex
        | LockKind::RustMutex
        | LockKind::GoMutex => Some("Mutex"),
        LockKind::RwLock | LockKind::PthreadRwLock | LockKind::RustRwLock => Some("RWLock"),
        LockKind::RwSem | LockKind::PercpuRwSem | LockKind::Semaphore | LockKind::UserSemaphore => {
            Some("Semaphore")
        }
        LockKind::SpinLock
        | LockKind::PthreadSpin
        | LockKind::Futex
        | LockKind::CondVar
        | LockKind::Barrier
        | LockKind::Thread => None,
    }
}

/// Reads acquisitions and writes lines.
pub(super) struct Lines<'w> {
    periods: Periods,
    stacks: Vec<Vec<Frame>>,
    /// The stacks whose `t` line was written.
    written_stacks: HashSet<Option<StackId>>,
    written: u64,
    out: Stream<'w>,
}

impl<'w> Lines<'w> {
    pub(super) fn new(period_ns: i64, with_monitors: bool, out: &'w mut (dyn Write + Send)) -> Self {
        Self {
            periods: Periods { period_ns, with_monitors, ..Periods::default() },
            stacks: Vec::new(),
            written_stacks: HashSet::new(),
            written: 0,
            out: Stream::new(out),
        }
    }

    fn write(&mut self, start_ns: i64, (task, lock): Subject, period: &Period, names: &Names) {
        // Both exist: the acquisition was found by them.
        let (Some(task), Some(lock)) = (names.task(task), names.lock(lock)) else { return };
        let stack_id = period.stack.map_or(-1, |stack| stack.0);
        if self.written_stacks.insert(period.stack) {
            self.write_stack(stack_id, period.stack);
        }
        let comm = task.comm.as_deref().unwrap_or("[unknown]").replace([',', '"', '\r', '\n'], "_");
        let (address, kind) = (lock.address.unwrap_or(0), type_of(lock.kind).unwrap_or_default());
        let Period { waited_ns, acquisitions, .. } = *period;
        self.written += 1;
        let line = format!(
            "s,{},P{}_T{},{kind},{address:#04x},{start_ns},{waited_ns},{acquisitions},{stack_id}\n",
            safe::cell(&comm),
            task.pid,
            task.tid
        );
        self.out.write(line.as_bytes());
    }

    fn write_stack(&mut self, id: i32, stack: Option<StackId>) {
        let at = stack.and_then(|stack| usize::try_from(stack.0).ok());
        let mut line = format!("t,{id}");
        match at.and_then(|at| self.stacks.get(at)) {
            Some(frames) if !frames.is_empty() => {
                for frame in frames {
                    line.push(',');
                    line.push_str(&quoted(&name(frame)));
                }
            }
            _ => line.push_str(",[Stack Trace Not Obtained]"),
        }
        line.push('\n');
        self.out.write(line.as_bytes());
    }
}

impl Exporter for Lines<'_> {
    const ONE_TRACE: Option<&'static str> =
        Some("its periods are of one clock and its stacks have the ids of one trace");

    fn begin(&mut self, input: &Input<'_>) -> Result<(), AnalyzeError> {
        self.stacks = input.trace.stacks()?.into_iter().map(|stack| stack.frames).collect();
        Ok(())
    }

    fn needs(&self) -> Needs {
        Needs { rows: true, ..Needs::default() }
    }

    fn push(&mut self, item: Item<'_>, input: &Input<'_>, _: bool) {
        if let Item::Row(row) = item {
            self.periods.add(&row.to_event(), &input.names);
        }
    }

    fn end(&mut self, input: &Input<'_>) -> Result<(), AnalyzeError> {
        let names = &input.names;
        let order = |&(task, lock): &Subject| {
            let tid = names.task(task).map(|task| task.tid);
            let address = names.lock(lock).and_then(|lock| lock.address);
            (tid, address, task, lock)
        };
        let mut sums: Vec<((i64, Subject), Period)> = self.periods.sums.drain().collect();
        sums.sort_unstable_by_key(|((start_ns, subject), _)| (*start_ns, order(subject)));
        sums.iter().for_each(|((start_ns, subject), period)| self.write(*start_ns, *subject, period, names));
        Ok(())
    }

    fn finish(self, _trust: &Trust) -> Result<(u64, Vec<String>), AnalyzeError> {
        self.out.finish()?;
        Ok((self.written, self.periods.notes()))
    }
}

fn name(frame: &Frame) -> String {
    match (&frame.symbol, frame.symbol_offset) {
        (Some(symbol), Some(offset)) => format!("{symbol}+{offset:#x}"),
        (Some(symbol), None) => symbol.clone(),
        (None, _) => "[unknown]".to_owned(),
    }
}

/// Returns a field of RFC 4180, quoted if needed.
fn quoted(text: &str) -> Cow<'_, str> {
    match safe::cell(text) {
        safe if safe.contains([',', '"']) => Cow::Owned(format!("\"{}\"", safe.replace('"', "\"\""))),
        safe => safe,
    }
}
