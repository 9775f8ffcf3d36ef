//! milli-klockstat's CSV: how long each thread waited for each lock in each period of some milliseconds, and how often it acquired it.
//!
//! Acquisitions go in, in the order of time; `s` lines come out, and before the first one of a stack its `t` line. By default an
//! acquisition belongs to the period in which it was done, and each is in some line. [`PeriodMode::Compat`] charges periods as the
//! original does (`mklockstat.py`): it closes a period at the first acquisition after its end, counts that one in it, and loses the
//! last one.
//!
//! The original measures from the call to its return. klock's waits begin at the first failed attempt, so an uncontended
//! acquisition takes 0.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashSet},
    io::Write,
};

use rustc_hash::FxHashMap;
use trace_format::{Event, EventKind, Frame, LockId, LockKind, Mode, StackId, TaskId};

use super::{
    attempts::failed_attempts,
    run::{Exporter, Reads},
    stream::Stream,
};
use crate::{
    choices::choices, error::AnalyzeError, input::Input, input::names::Names, input::trust::Trust,
    output::safe,
};

#[cfg(test)]
mod tests;

choices! {
    /// The period that a wait belongs to.
    PeriodMode, "way to charge periods" {
        /// The period in which the lock was acquired.
        #[default]
        Exact = "exact",
        /// The period that the original charges.
        Compat = "compat",
    }
}

/// The default length of a period, as in the original, in ns.
pub const PERIOD_NS: i64 = 50_000_000;

/// The maximal number of further periods that waits are spread over: a damaged trace may hold a wait of centuries.
const MAX_SPREAD: i64 = 1_000_000;

/// Names of monitoring threads, which the original leaves out.
const MONITORS: [&str; 3] = ["collect", "collectl", "tcplife-bpfcc"];

/// Options of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The period that a wait belongs to.
    pub mode: PeriodMode,
    /// The length of a period in ns; at least 1.
    pub period_ns: i64,
    /// Spreads a wait over the periods in which it lasted, in the exact mode. The acquisition counts in the last one, so there are
    /// lines with 0 acquisitions.
    pub split: bool,
    /// Prints the thread after `P` and the process after `T`, as the original does.
    pub swap_pt: bool,
    /// Includes monitoring threads.
    pub with_monitors: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            mode: PeriodMode::Exact,
            period_ns: PERIOD_NS,
            split: false,
            swap_pt: false,
            with_monitors: false,
        }
    }
}

/// An acquisition.
#[derive(Clone, Copy, Debug)]
struct Acquisition {
    of: Of,
    requested_ns: i64,
    acquired_ns: i64,
    stack: Option<StackId>,
}

/// The subject of a line. Readers and writers of a lock are separate in the compatible mode only, as their probes are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Of {
    task: TaskId,
    lock: LockId,
    shared: bool,
}

/// The sums of a subject in one period.
#[derive(Clone, Copy, Debug, Default)]
struct Period {
    start_ns: i64,
    waited_ns: i64,
    acquisitions: i64,
    stack: Option<StackId>,
}

/// The open periods; in the exact mode, all periods.
#[derive(Debug, Default)]
struct Periods {
    options: Options,
    /// By start and subject.
    exact: FxHashMap<(i64, Of), Period>,
    open: FxHashMap<Of, Period>,
    /// The number of further periods that waits were spread over.
    spread: i64,
    first_stacks: FxHashMap<Of, Option<StackId>>,
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
    /// Returns the acquisition of this event, if the format shows it.
    fn acquisition(&mut self, event: &Event, names: &Names) -> Option<Acquisition> {
        self.abandoned += i64::from(event.kind == EventKind::Abandon);
        self.try_failed += i64::from(event.kind == EventKind::TryFail);
        let (EventKind::Acquire, Some(lock), Some(task)) = (event.kind, event.lock, event.task) else {
            return None;
        };
        let kind = names.lock(lock)?.kind;
        if type_of(kind).is_none() {
            *self.untyped.entry(kind.as_str()).or_default() += 1;
            return None;
        }
        let comm = names.task(task)?.comm.as_deref().unwrap_or_default();
        if !self.options.with_monitors && MONITORS.contains(&comm) {
            return None;
        }
        let is_compat = self.options.mode == PeriodMode::Compat;
        self.unknown += u64::from(event.wait_ns.is_none());
        if is_compat && event.wait_ns.is_none() {
            return None;
        }
        Some(Acquisition {
            of: Of { task, lock, shared: is_compat && event.mode == Some(Mode::Shared) },
            requested_ns: event.ts_ns.saturating_sub(event.wait_ns.unwrap_or(0).max(0)),
            acquired_ns: event.ts_ns,
            stack: event.stack,
        })
    }

    /// Adds an acquisition. In the compatible mode, returns the line that it completes.
    fn add(&mut self, acquisition: &Acquisition) -> Option<(Of, Period)> {
        match self.options.mode {
            PeriodMode::Exact => {
                self.add_exact(acquisition);
                None
            }
            PeriodMode::Compat => self.add_compat(acquisition),
        }
    }

    fn start_of(&self, ns: i64) -> i64 {
        ns.saturating_sub(ns.rem_euclid(self.options.period_ns.max(1)))
    }

    fn add_exact(&mut self, acquisition: &Acquisition) {
        let Acquisition { of, requested_ns, acquired_ns, stack } = *acquisition;
        let stack = *self.first_stacks.entry(of).or_insert(stack);
        let (split, length_ns) = (self.options.split, self.options.period_ns.max(1));
        let last_ns = self.start_of(acquired_ns);
        let own_ns = if split { last_ns.max(requested_ns) } else { requested_ns };
        self.charge(last_ns, of, stack, (acquired_ns.saturating_sub(own_ns), 1));
        let mut end_ns = last_ns;
        while split && end_ns > requested_ns && self.spread <= MAX_SPREAD {
            let start_ns = end_ns.saturating_sub(length_ns);
            self.charge(start_ns, of, stack, (end_ns - start_ns.max(requested_ns), 0));
            self.spread += 1;
            end_ns = start_ns;
        }
    }

    fn charge(
        &mut self,
        start_ns: i64,
        of: Of,
        stack: Option<StackId>,
        (waited_ns, acquisitions): (i64, i64),
    ) {
        let new = Period { start_ns, stack, ..Period::default() };
        let period = self.exact.entry((start_ns, of)).or_insert(new);
        period.waited_ns = period.waited_ns.saturating_add(waited_ns);
        period.acquisitions += acquisitions;
    }

    fn add_compat(&mut self, acquisition: &Acquisition) -> Option<(Of, Period)> {
        let Acquisition { of, requested_ns, acquired_ns, stack } = *acquisition;
        let (requested_in, acquired_in) = (self.start_of(requested_ns), self.start_of(acquired_ns));
        let open =
            self.open.entry(of).or_insert(Period { start_ns: requested_in, stack, ..Period::default() });
        open.acquisitions += 1;
        open.waited_ns = open.waited_ns.saturating_add(acquired_ns.saturating_sub(requested_ns));
        if open.start_ns.saturating_add(self.options.period_ns) >= acquired_ns {
            return None;
        }
        let done = *open;
        *open = Period { start_ns: acquired_in, waited_ns: 0, acquisitions: 0, stack: open.stack };
        Some((of, done))
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
            let what = match self.options.mode {
                PeriodMode::Exact => "are counted",
                PeriodMode::Compat => "are left out",
            };
            notes.push(format!("{} acquisitions with unknown wait times {what}", self.unknown));
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
    swap_pt: bool,
    stacks: Vec<Vec<Frame>>,
    /// The stacks whose `t` line was written.
    written_stacks: HashSet<Option<StackId>>,
    written: u64,
    out: Stream<'w>,
}

impl<'w> Lines<'w> {
    pub(super) fn new(options: Options, out: &'w mut (dyn Write + Send)) -> Self {
        Self {
            periods: Periods { options, ..Periods::default() },
            swap_pt: options.swap_pt,
            stacks: Vec::new(),
            written_stacks: HashSet::new(),
            written: 0,
            out: Stream::new(out),
        }
    }

    fn write(&mut self, of: &Of, period: &Period, names: &Names) {
        // Both exist: the acquisition was found by them.
        let (Some(task), Some(lock)) = (names.task(of.task), names.lock(of.lock)) else { return };
        let stack_id = period.stack.map_or(-1, |stack| stack.0);
        if self.written_stacks.insert(period.stack) {
            self.write_stack(stack_id, period.stack);
        }
        let comm = task.comm.as_deref().unwrap_or("[unknown]").replace([',', '"', '\r', '\n'], "_");
        let (p, t) = if self.swap_pt { (task.tid, task.pid) } else { (task.pid, task.tid) };
        let (address, kind) = (lock.address.unwrap_or(0), type_of(lock.kind).unwrap_or_default());
        let Period { start_ns, waited_ns, acquisitions, .. } = *period;
        self.written += 1;
        let line = format!(
            "s,{},P{p}_T{t},{kind},{address:#04x},{start_ns},{waited_ns},{acquisitions},{stack_id}\n",
            safe::cell(&comm)
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

    fn begin(&mut self, input: &Input<'_>) -> Result<Reads, AnalyzeError> {
        self.stacks = input.trace.stacks()?.into_iter().map(|stack| stack.frames).collect();
        Ok(Reads::Events)
    }

    fn event(&mut self, event: &Event, input: &Input<'_>) {
        if let Some(acquisition) = self.periods.acquisition(event, &input.names)
            && let Some((of, period)) = self.periods.add(&acquisition)
        {
            self.write(&of, &period, &input.names);
        }
    }

    fn end(&mut self, input: &Input<'_>) -> Result<(), AnalyzeError> {
        if self.periods.spread > MAX_SPREAD {
            return Err(AnalyzeError::TooManyPeriods { periods: self.periods.spread, most: MAX_SPREAD });
        }
        let names = &input.names;
        let order = |of: &Of| {
            let tid = names.task(of.task).map(|task| task.tid);
            let address = names.lock(of.lock).and_then(|lock| lock.address);
            (tid, address, *of)
        };
        let mut exact: Vec<((i64, Of), Period)> = self.periods.exact.drain().collect();
        exact.sort_unstable_by_key(|((start_ns, of), _)| (*start_ns, order(of)));
        exact.iter().for_each(|((_, of), period)| self.write(of, period, names));
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
