//! Which part of a trace a table is about, and what was seen of the events on the way.
//!
//! A [`Filter`] and the names of a trace enter, a [`Chosen`] leaves that answers for an event, a hold or a wait. Nothing is added up here.

use std::ops::ControlFlow;

use rustc_hash::FxHashSet;
use trace_format::{Event, EventKind, LockKind, Mode, StackId, TaskId, Trace};

use crate::{
    error::AnalyzeError,
    filter::Filter,
    intervals::{Hold, Wait},
    names::Names,
    select, source,
};

/// Which locks and intervals a table is about.
#[derive(Debug)]
pub(crate) struct Chosen {
    /// By lock id.
    locks: Vec<bool>,
    /// By lock id: left out because waiting for it is idling, and for no other reason.
    idle: Vec<bool>,
    everything: bool,
    tasks: Option<FxHashSet<TaskId>>,
    /// By stack id.
    stacks: Option<Vec<bool>>,
    mode: Option<Mode>,
    min_wait_ns: Option<i64>,
    pub(crate) window: Window,
    /// The time from which those of a filter count.
    pub(crate) start_ns: i64,
}

/// Between which times, on the trace's clock, an end must lie to be counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) from_ns: Option<i64>,
    pub(crate) to_ns: Option<i64>,
}

impl Chosen {
    pub(crate) fn of(trace: &Trace, names: &Names, filter: &Filter) -> Result<Self, AnalyzeError> {
        if trace.event_count() == 0 {
            return Err(AnalyzeError::Empty { path: trace.paths().events.clone() });
        }
        let named = match &filter.lock {
            Some(selector) => Some(FxHashSet::from_iter(select::lock_of(trace, names, selector)?)),
            None => None,
        };
        let start_ns = match trace.info().clocks_start.monotonic_ns {
            0 => first_time(trace)?,
            start_ns => start_ns,
        };
        let mut chosen = Self {
            locks: Vec::new(),
            idle: Vec::new(),
            everything: named.is_none() && filter.kinds.is_empty(),
            tasks: tasks(names, filter)?,
            stacks: stacks(trace, filter)?,
            mode: filter.mode,
            min_wait_ns: filter.min_wait_ns,
            window: Window {
                from_ns: filter.from_ns.map(|ns| start_ns.saturating_add(ns)),
                to_ns: filter.to_ns.map(|ns| start_ns.saturating_add(ns)),
            },
            start_ns,
        };
        for lock in names.locks() {
            let by_name = named.as_ref().is_none_or(|named| named.contains(&lock.id));
            let by_kind = filter.kinds.is_empty() || filter.kinds.contains(&lock.kind);
            // Who names an idle lock, or its kind, asks for it.
            let asked = filter.include_idle || named.is_some() || !filter.kinds.is_empty();
            chosen.locks.push(by_name && by_kind && (asked || !lock.kind.is_idle()));
            chosen.idle.push(by_name && by_kind && !asked && lock.kind.is_idle());
        }
        Ok(chosen)
    }

    pub(crate) fn wants(&self, lock: i32) -> bool {
        // A lock that the side table does not have is nobody's in particular.
        usize::try_from(lock).ok().and_then(|at| self.locks.get(at)).copied().unwrap_or(self.everything)
    }

    /// Whether a lock is left out because waiting for it is idling.
    pub(crate) fn has_idle(&self) -> bool {
        self.idle.contains(&true)
    }

    pub(crate) fn is_idle(&self, lock: i32) -> bool {
        usize::try_from(lock).ok().and_then(|at| self.idle.get(at)).copied().unwrap_or(false)
    }

    pub(crate) fn kinds(&self, names: &Names) -> FxHashSet<LockKind> {
        names.locks().iter().filter(|lock| self.wants(lock.id.0)).map(|lock| lock.kind).collect()
    }

    /// Whether the hold is wanted, and ended in the window.
    pub(crate) fn wants_hold(&self, hold: &Hold) -> bool {
        self.window.holds(hold.end_ns) && self.wants_any_time(hold)
    }

    /// The same of a wait.
    pub(crate) fn wants_wait(&self, wait: &Wait) -> bool {
        self.window.holds(wait.end_ns) && self.wants_wait_any_time(wait)
    }

    /// Whether the hold is wanted, whenever it ended.
    pub(crate) fn wants_any_time(&self, hold: &Hold) -> bool {
        self.wants_of(hold.task, hold.mode, hold.stack, hold.wait_ns)
    }

    /// The same of a wait.
    pub(crate) fn wants_wait_any_time(&self, wait: &Wait) -> bool {
        self.wants_of(wait.task, wait.mode, wait.stack, Some(wait.wait_ns))
    }

    /// Whether a row of the events is wanted. Of a lost one there is nothing to know.
    pub(crate) fn wants_event(&self, event: &Event) -> bool {
        let is_of = |task: TaskId| self.tasks.as_ref().is_none_or(|tasks| tasks.contains(&task));
        let in_window = self.window.holds(event.ts_ns);
        if event.kind == EventKind::Lost {
            return in_window;
        }
        // How long a call that wakes took is no wait.
        let is_wait = event.kind != EventKind::Wake;
        in_window
            && event.lock.map_or(self.everything, |lock| self.wants(lock.0))
            && event.task.map_or(self.tasks.is_none(), is_of)
            && self.mode.is_none_or(|mode| event.mode == Some(mode))
            && self.wants_stack(event.stack)
            && self.min_wait_ns.is_none_or(|ns| is_wait && event.wait_ns.is_some_and(|wait_ns| wait_ns >= ns))
    }

    fn wants_of(&self, task: TaskId, mode: Mode, stack: Option<StackId>, wait_ns: Option<i64>) -> bool {
        self.tasks.as_ref().is_none_or(|tasks| tasks.contains(&task))
            && self.mode.is_none_or(|wanted| wanted == mode)
            && self.wants_stack(stack)
            && self.min_wait_ns.is_none_or(|ns| wait_ns.is_some_and(|wait_ns| wait_ns >= ns))
    }

    fn wants_stack(&self, stack: Option<StackId>) -> bool {
        let Some(wanted) = &self.stacks else { return true };
        let at = stack.and_then(|stack| usize::try_from(stack.0).ok());
        at.and_then(|at| wanted.get(at)).copied().unwrap_or(false)
    }
}

fn tasks(names: &Names, filter: &Filter) -> Result<Option<FxHashSet<TaskId>>, AnalyzeError> {
    let mut chosen: Option<FxHashSet<TaskId>> = match &filter.task {
        Some(selector) => Some(FxHashSet::from_iter(select::tasks_of(names, selector)?)),
        None => None,
    };
    if !filter.comms.is_empty() {
        let mut named = FxHashSet::default();
        for comm in &filter.comms {
            named.extend(select::tasks_of(names, &select::TaskSelector::Comm(comm.clone()))?);
        }
        chosen = Some(match chosen {
            Some(tasks) => tasks.intersection(&named).copied().collect(),
            None => named,
        });
    }
    Ok(chosen)
}

fn stacks(trace: &Trace, filter: &Filter) -> Result<Option<Vec<bool>>, AnalyzeError> {
    let Some(wanted) = &filter.symbol else { return Ok(None) };
    let has = |symbol: &Option<String>| symbol.as_deref().is_some_and(|symbol| symbol.contains(wanted));
    let stacks: Vec<bool> =
        trace.stacks()?.iter().map(|stack| stack.frames.iter().any(|frame| has(&frame.symbol))).collect();
    if !stacks.contains(&true) {
        return Err(AnalyzeError::SymbolNotFound {
            wanted: crate::names::printable(wanted).into_owned(),
            stacks: stacks.len(),
        });
    }
    Ok(Some(stacks))
}

impl Window {
    pub(crate) fn holds(self, ns: i64) -> bool {
        self.from_ns.is_none_or(|from_ns| ns >= from_ns)
    }
}

/// The latest time of any event.
pub(crate) fn last_time(trace: &Trace) -> Result<i64, AnalyzeError> {
    let mut last_ns = i64::MIN;
    source::for_each(trace, |event| {
        last_ns = last_ns.max(event.ts_ns);
        ControlFlow::Continue(())
    })?;
    Ok(last_ns)
}

fn first_time(trace: &Trace) -> Result<i64, AnalyzeError> {
    let mut first_ns = 0;
    source::for_each(trace, |event| {
        first_ns = event.ts_ns;
        ControlFlow::Break(())
    })?;
    Ok(first_ns)
}
