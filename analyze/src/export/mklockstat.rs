//! milli-klockstat's CSV: for each thread and lock, how long it waited in each period of some milliseconds, and how often it acquired.
//!
//! Acquisitions enter in the order of time; `s` lines leave, and before the first one of a stack its `t` line. By default each acquisition is
//! in the period in which it was done, and all of them are in some line; [`PeriodMode::Compat`] charges as the original does
//! (`mklockstat.py`), which closes a period at the first acquisition behind its end, counts that one in it, and loses the last one.
//!
//! The original measures from the call to its return. klock's waits begin at the first failed attempt: one of a free lock takes 0.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashSet},
    fmt,
    io::{self, Write},
    str::FromStr,
};

use rustc_hash::FxHashMap;
use trace_format::{Event, EventKind, Frame, LockId, LockKind, Mode, StackId, TaskId, Trace};

use super::{Options as Export, Written, safe};
use crate::{
    choices::choices,
    error::AnalyzeError,
    intervals::Counts,
    names::Names,
    pass::{Detail, Pass},
    report::trust::Watch,
    scope::Chosen,
};

#[cfg(test)]
mod tests;

choices! {
    /// Which period a wait belongs to.
    PeriodMode, "way to charge periods" {
        /// That in which the lock was acquired.
        #[default]
        Exact = "exact",
        /// As the original does it.
        Compat = "compat",
    }
}

/// The period of the original, in ns.
pub const PERIOD_NS: i64 = 50_000_000;

/// The most periods that waits are spread over, beside their own: a trace from somewhere may hold a wait of centuries.
const MOST_LINES: i64 = 1_000_000;

/// Names of threads that the original leaves out: monitors.
const MONITORS: [&str; 3] = ["collect", "collectl", "tcplife-bpfcc"];

/// What the format takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Which period a wait belongs to.
    pub mode: PeriodMode,
    /// How long a period is, in ns; at least 1.
    pub period_ns: i64,
    /// With the exact mode: a wait is spread over the periods that it lasted in. The acquisition stays where it was done, so that there
    /// are lines with 0 of them.
    pub split: bool,
    /// The thread behind `P` and the process behind `T`, as the original prints them.
    pub swap_pt: bool,
    /// Monitors too.
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

pub(super) fn write(
    trace: &Trace,
    options: &Export,
    out: &mut (dyn Write + Send),
) -> Result<Written, AnalyzeError> {
    let names = Names::read(trace)?;
    let chosen = Chosen::of(trace, &names, &options.filter)?;
    let stacks: Vec<Vec<Frame>> = trace.stacks()?.into_iter().map(|stack| stack.frames).collect();
    let asked = options.mklockstat;
    let mut lines =
        Lines { names: &names, stacks, swap_pt: asked.swap_pt, told: HashSet::new(), written: 0, out };
    let mut periods = Periods { options: asked, ..Periods::default() };
    let mut failed = Ok(());
    let walk = Pass { trace, names: &names, chosen: &chosen, detail: Detail::All }.events(|event| {
        if let Some(acquisition) = periods.acquisition(event, &names)
            && let Some((of, period)) = periods.add(&acquisition)
            && failed.is_ok()
        {
            failed = lines.write(&of, &period);
        }
    })?;
    if periods.spread > MOST_LINES {
        return Err(AnalyzeError::TooManyPeriods { periods: periods.spread, most: MOST_LINES });
    }
    failed.and_then(|()| lines.write_all(&periods)).map_err(AnalyzeError::Write)?;
    let trust = Watch::default().block(trace, (&walk, &Counts::default()), &chosen, &names);
    Ok(Written { items: lines.written, trust, notes: periods.notes() })
}

/// One acquisition.
#[derive(Clone, Copy, Debug)]
struct Acquisition {
    of: Of,
    requested_ns: i64,
    acquired_ns: i64,
    stack: Option<StackId>,
}

/// What a line is about. Readers and writers of a lock are apart in the compatible mode alone, where they have probes of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Of {
    task: TaskId,
    lock: LockId,
    shared: bool,
}

/// A period of it.
#[derive(Clone, Copy, Debug, Default)]
struct Period {
    start_ns: i64,
    waited_ns: i64,
    acquisitions: i64,
    stack: Option<StackId>,
}

/// The periods that are open, or in the exact mode all.
#[derive(Debug, Default)]
struct Periods {
    options: Options,
    /// By their begin.
    exact: FxHashMap<(i64, Of), Period>,
    open: FxHashMap<Of, Period>,
    /// Over how many periods waits were spread.
    spread: i64,
    first_stacks: FxHashMap<Of, Option<StackId>>,
    /// Acquisitions of locks for which the format has no type.
    untyped: BTreeMap<&'static str, u64>,
    /// Acquisitions whose wait's begin was not seen.
    unknown: u64,
}

impl Periods {
    /// The acquisition that this event is, if it is one of the format's.
    fn acquisition(&mut self, event: &Event, names: &Names) -> Option<Acquisition> {
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

    /// Adds it; in the compatible mode, returns the line that it completes.
    fn add(&mut self, acquisition: &Acquisition) -> Option<(Of, Period)> {
        match self.options.mode {
            PeriodMode::Exact => {
                self.add_exactly(acquisition);
                None
            }
            PeriodMode::Compat => self.add_as_the_original(acquisition),
        }
    }

    fn start_of(&self, ns: i64) -> i64 {
        ns.saturating_sub(ns.rem_euclid(self.options.period_ns.max(1)))
    }

    fn add_exactly(&mut self, acquisition: &Acquisition) {
        let Acquisition { of, requested_ns, acquired_ns, stack } = *acquisition;
        let stack = *self.first_stacks.entry(of).or_insert(stack);
        let (split, length_ns) = (self.options.split, self.options.period_ns.max(1));
        let last_ns = self.start_of(acquired_ns);
        let own_ns = if split { last_ns.max(requested_ns) } else { requested_ns };
        self.charge(last_ns, of, stack, (acquired_ns.saturating_sub(own_ns), 1));
        let mut end_ns = last_ns;
        while split && end_ns > requested_ns && self.spread <= MOST_LINES {
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

    fn add_as_the_original(&mut self, acquisition: &Acquisition) -> Option<(Of, Period)> {
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
                "acquisitions of locks that the format has no type for are left out: {}",
                kinds.join(", ")
            ));
        }
        if self.unknown > 0 {
            let what = match self.options.mode {
                PeriodMode::Exact => "are counted, and their time is not known",
                PeriodMode::Compat => "are left out, for their time is not known",
            };
            notes.push(format!("{} acquisitions {what}", self.unknown));
        }
        notes
    }
}

/// The format's name for it. Of reader-writer locks, those that sleep are semaphores there: the kernel's name for them is rw_semaphore.
const fn type_of(kind: LockKind) -> Option<&'static str> {
    match kind {
        LockKind::Mutex | LockKind::RtMutex | LockKind::PthreadMutex => Some("Mutex"),
        LockKind::RwLock | LockKind::PthreadRwLock => Some("RWLock"),
        LockKind::RwSem | LockKind::PercpuRwSem | LockKind::Semaphore | LockKind::UserSemaphore => {
            Some("Semaphore")
        }
        LockKind::SpinLock
        | LockKind::PthreadSpin
        | LockKind::Futex
        | LockKind::CondVar
        | LockKind::Barrier => None,
    }
}

/// Writes lines.
struct Lines<'a, 'w> {
    names: &'a Names,
    stacks: Vec<Vec<Frame>>,
    swap_pt: bool,
    /// The stacks whose `t` line was written.
    told: HashSet<Option<StackId>>,
    written: u64,
    out: &'w mut (dyn Write + Send),
}

impl Lines<'_, '_> {
    /// The exact mode's, by period, thread and address.
    fn write_all(&mut self, periods: &Periods) -> io::Result<()> {
        let mut all: Vec<(&Of, &Period)> =
            periods.exact.iter().map(|((_, of), period)| (of, period)).collect();
        let order = |of: &Of| {
            let tid = self.names.task(of.task).map(|task| task.tid);
            let address = self.names.lock(of.lock).and_then(|lock| lock.address);
            (tid, address, *of)
        };
        all.sort_unstable_by_key(|(of, period)| (period.start_ns, order(of)));
        all.into_iter().try_for_each(|(of, period)| self.write(of, period))
    }

    fn write(&mut self, of: &Of, period: &Period) -> io::Result<()> {
        // Both are there: the acquisition was looked up by them.
        let (Some(task), Some(lock)) = (self.names.task(of.task), self.names.lock(of.lock)) else {
            return Ok(());
        };
        let stack_id = period.stack.map_or(-1, |stack| stack.0);
        if self.told.insert(period.stack) {
            self.write_stack(stack_id, period.stack)?;
        }
        let comm = task.comm.as_deref().unwrap_or("[unknown]").replace([',', '"', '\r', '\n'], "_");
        let (p, t) = if self.swap_pt { (task.tid, task.pid) } else { (task.pid, task.tid) };
        let (address, kind) = (lock.address.unwrap_or(0), type_of(lock.kind).unwrap_or_default());
        let Period { start_ns, waited_ns, acquisitions, .. } = *period;
        self.written += 1;
        writeln!(
            self.out,
            "s,{},P{p}_T{t},{kind},{address:#04x},{start_ns},{waited_ns},{acquisitions},{stack_id}",
            safe::cell(&comm)
        )
    }

    fn write_stack(&mut self, id: i32, stack: Option<StackId>) -> io::Result<()> {
        write!(self.out, "t,{id}")?;
        let at = stack.and_then(|stack| usize::try_from(stack.0).ok());
        match at.and_then(|at| self.stacks.get(at)) {
            Some(frames) if !frames.is_empty() => {
                for frame in frames {
                    write!(self.out, ",{}", quoted(&name(frame)))?;
                }
            }
            _ => write!(self.out, ",[Stack Trace Not Obtained]")?,
        }
        writeln!(self.out)
    }
}

fn name(frame: &Frame) -> String {
    match (&frame.symbol, frame.symbol_offset) {
        (Some(symbol), Some(offset)) => format!("{symbol}+{offset:#x}"),
        (Some(symbol), None) => symbol.clone(),
        (None, _) => "[unknown]".to_owned(),
    }
}

/// A field as RFC 4180 has it: quoted where it must be.
fn quoted(text: &str) -> Cow<'_, str> {
    match safe::cell(text) {
        safe if safe.contains([',', '"']) => Cow::Owned(format!("\"{}\"", safe.replace('"', "\"\""))),
        safe => safe,
    }
}
