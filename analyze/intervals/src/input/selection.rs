//! The part of a trace that a table is about.
//!
//! A [`Selection`] is a [`Filter`] resolved against the names of one trace. It answers for each event, hold
//! and wait whether it is selected.

use std::{ops::ControlFlow, sync::Arc};

use rustc_hash::FxHashSet;
use trace_format::{Event, EventKind, EventRow, LockId, LockKind, Mode, StackId, TaskId, Trace};

use crate::{
    engine::{Hold, TryFailure, Wait},
    input::filter::{self, Filter},
    input::names::purposes::{Purpose, Purposes},
    input::names::{Names, printable},
    input::source,
    items::Polling,
};
use output::error::AnalyzeError;

/// The selected locks and intervals of one trace.
#[derive(Clone, Debug)]
pub struct Selection {
    /// By lock id: whether it is selected.
    locks: Vec<bool>,
    /// By lock id: whether it is left out only because its waits are idle.
    idle: Vec<bool>,
    purposes: Arc<Purposes>,
    /// The selected purposes of waits; `None` if the kinds of the locks decide.
    selected: Option<SelectedPurposes>,
    /// Whether locks that the side table does not have are selected.
    all_locks: bool,
    tasks: Option<FxHashSet<TaskId>>,
    /// By stack id.
    stacks: Option<Vec<bool>>,
    mode: Option<Mode>,
    min_wait_ns: Option<i64>,
    /// Whether any interval of a selected lock is selected: all of the above say nothing.
    is_of_any_interval: bool,
    pub window: Window,
    /// The start of the trace, from which the times of a filter count.
    pub start_ns: i64,
}

/// Selects waits by their purpose.
#[derive(Clone, Debug)]
struct SelectedPurposes {
    has: [bool; Purpose::ALL.len()],
    /// Whether waits are left out only because they are idle.
    by_default: bool,
}

/// A window of time on the clock of the trace. An interval is in it if its end is.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub from_ns: Option<i64>,
    pub to_ns: Option<i64>,
}

impl Selection {
    /// Resolves a filter.
    ///
    /// # Errors
    ///
    /// The trace cannot be read or holds no events, or the filter names a lock, a task or a function that it
    /// does not have. Such an error has no suggestions yet.
    pub(super) fn of(trace: &Trace, names: &Names, filter: &Filter) -> Result<Self, AnalyzeError> {
        if trace.event_count() == 0 {
            return Err(AnalyzeError::Empty { path: trace.paths().events.clone() });
        }
        let named = match &filter.lock {
            Some(selector) => Some(FxHashSet::from_iter(filter::resolve_lock(names, selector)?)),
            None => None,
        };
        if !filter.kinds.is_empty() {
            filter::check_kinds(names, &filter.kinds)?;
        }
        let start_ns = match trace.info().clocks_start.monotonic_ns {
            0 => first_time(trace)?,
            start_ns => start_ns,
        };
        let lasted_ns = trace.info().clocks_end.monotonic_ns.saturating_sub(start_ns);
        if let Some(from_ns) = filter.from_ns.filter(|from_ns| lasted_ns > 0 && *from_ns > lasted_ns) {
            return Err(AnalyzeError::WindowAfterEnd { from_ns, lasted_ns });
        }
        let mut selection = Self {
            locks: Vec::new(),
            idle: Vec::new(),
            purposes: Arc::clone(names.purposes()),
            selected: None,
            all_locks: named.is_none() && filter.kinds.is_empty(),
            tasks: tasks(names, filter)?,
            stacks: stacks(trace, filter)?,
            mode: filter.mode,
            min_wait_ns: filter.min_wait_ns,
            is_of_any_interval: false,
            window: Window {
                // Rows before the start are of another recording, or only say what tasks had and waited for.
                from_ns: filter
                    .from_ns
                    .or((trace.info().is_reset || trace.info().has_earlier).then_some(0))
                    .map(|ns| start_ns.saturating_add(ns)),
                to_ns: filter.to_ns.map(|ns| start_ns.saturating_add(ns)),
            },
            start_ns,
        };
        // A filter that names an idle lock or its kind includes it.
        let with_idle =
            filter.include_idle || named.is_some() || !filter.kinds.is_empty() || !filter.purposes.is_empty();
        let purposes = names.purposes();
        if !filter.purposes.is_empty() || !with_idle && purposes.has_mixed() {
            let mut has = [false; Purpose::ALL.len()];
            let by_default = filter.purposes.is_empty();
            let chosen: &[Purpose] = if by_default { &[Purpose::Lock] } else { &filter.purposes };
            chosen.iter().for_each(|purpose| has[*purpose as usize] = true);
            selection.selected = Some(SelectedPurposes { has, by_default });
        }
        for lock in names.locks() {
            let by_name = named.as_ref().is_none_or(|named| named.contains(&lock.id));
            let by_kind = filter.kinds.is_empty() || filter.kinds.contains(&lock.kind);
            let is_idle = purposes.is_always_idle(lock.id);
            selection.locks.push(by_name && by_kind && (with_idle || !is_idle));
            selection.idle.push(by_name && by_kind && !with_idle && is_idle);
        }
        selection.is_of_any_interval = selection.has_no_condition();
        Ok(selection)
    }

    /// Returns all locks in the same window, with idle waits.
    pub(super) fn of_all_locks(&self, trace: &Trace, names: &Names) -> Result<Self, AnalyzeError> {
        let all = Filter { include_idle: true, ..Filter::default() };
        Ok(Self { window: self.window, ..Self::of(trace, names, &all)? })
    }

    /// Whether a wait is known to be selected at its begin, unless its stack is known only at its end.
    pub const fn is_known_at_begin(&self) -> bool {
        self.min_wait_ns.is_none() && self.window.from_ns.is_none()
    }

    /// Whether any interval is selected, whatever its lock.
    pub fn is_of_everything(&self) -> bool {
        self.all_locks && self.is_of_any_interval && !self.locks.contains(&false)
    }

    /// Whether every hold of a selected lock is selected.
    pub fn selects_all_holds(&self) -> bool {
        self.is_of_any_interval && self.window.from_ns.is_none() && self.window.to_ns.is_none()
    }

    /// Whether an acquisition or the end of a wait is selected, as the interval that it begins or ends,
    /// whatever its time.
    pub fn selects_row(&self, row: &impl EventRow) -> bool {
        let (Some(lock), Some(task)) = (row.lock(), row.task()) else { return false };
        let mode = row.mode().unwrap_or(Mode::Exclusive);
        self.selects_lock(lock.0) && self.selects_interval((lock, task), mode, row.stack(), row.wait_ns())
    }

    /// Whether a filter selects the locks.
    pub(super) fn is_of_some_locks(&self) -> bool {
        !self.all_locks
    }

    /// Whether a lock is selected. A lock missing from the side table matches only unfiltered queries.
    #[inline]
    pub fn selects_lock(&self, lock: i32) -> bool {
        usize::try_from(lock).ok().and_then(|at| self.locks.get(at)).copied().unwrap_or(self.all_locks)
    }

    /// Selects idle waits for futexes, too: for formats that have every call.
    pub fn include_idle_futexes(&mut self) {
        self.selected = self.selected.take().filter(|selected| !selected.by_default);
        self.is_of_any_interval = self.has_no_condition();
    }

    /// Whether an interval is selected by its lock and the window alone.
    fn has_no_condition(&self) -> bool {
        let Self { tasks, selected, mode, stacks, min_wait_ns, .. } = self;
        tasks.is_none() && selected.is_none() && mode.is_none() && stacks.is_none() && min_wait_ns.is_none()
    }

    /// Whether anything is left out only because it is idle.
    pub fn leaves_out_idle(&self) -> bool {
        self.idle.contains(&true) || self.selected.as_ref().is_some_and(|selected| selected.by_default)
    }

    /// Returns the lock and the purpose of a wait, or of its end, that is left out only because it is idle.
    pub fn left_out(&self, event: &impl EventRow) -> Option<(LockId, Purpose)> {
        let lock = event.lock()?;
        let is_idle = usize::try_from(lock.0).ok().and_then(|at| self.idle.get(at)).copied().unwrap_or(false);
        if is_idle {
            return Some((lock, self.purposes.of(lock, event.stack())));
        }
        self.selected.as_ref().filter(|selected| selected.by_default)?;
        let purpose = self.purposes.of(lock, event.stack());
        (purpose.is_idle() && self.selects_lock(lock.0)).then_some((lock, purpose))
    }

    fn selects_purpose(&self, lock: LockId, stack: Option<StackId>) -> bool {
        let selects = |selected: &SelectedPurposes| selected.has[self.purposes.of(lock, stack) as usize];
        self.selected.as_ref().is_none_or(selects)
    }

    /// Returns the kinds of the selected locks.
    pub fn kinds(&self, names: &Names) -> FxHashSet<LockKind> {
        names.locks().iter().filter(|lock| self.selects_lock(lock.id.0)).map(|lock| lock.kind).collect()
    }

    /// Whether a hold is selected and ends in the window.
    #[inline]
    pub fn selects_hold(&self, hold: &Hold) -> bool {
        self.window.contains(hold.end_ns) && self.selects_hold_any_time(hold)
    }

    /// Whether a wait is selected and ends in the window.
    pub fn selects_wait(&self, wait: &Wait) -> bool {
        self.window.contains(wait.end_ns) && self.selects_wait_any_time(wait)
    }

    /// Whether a hold is selected, whenever it ends.
    #[inline]
    pub fn selects_hold_any_time(&self, hold: &Hold) -> bool {
        self.selects_interval((hold.lock, hold.task), hold.mode, hold.stack, hold.wait_ns)
    }

    /// Whether a wait is selected, whenever it ends.
    pub fn selects_wait_any_time(&self, wait: &Wait) -> bool {
        self.selects_interval((wait.lock, wait.task), wait.mode, wait.stack, Some(wait.wait_ns))
    }

    /// Whether a failed attempt is selected. It has no wait, so a least wait excludes it.
    pub fn selects_try_failure(&self, failure: &TryFailure) -> bool {
        let TryFailure { lock, task, mode, ts_ns, stack, .. } = *failure;
        self.window.contains(ts_ns) && self.selects_interval((lock, task), mode, stack, None)
    }

    /// Whether a time of polling is selected and ends in the window.
    pub fn selects_polling(&self, polling: &Polling) -> bool {
        let Polling { lock, task, mode, stack, end_ns, .. } = *polling;
        self.window.contains(end_ns) && self.selects_interval((lock, task), mode, stack, None)
    }

    /// Whether an event is selected. A `lost` event has no lock or task, so only the window applies to it.
    pub fn selects_event(&self, event: &Event) -> bool {
        let in_window = self.window.contains(event.ts_ns);
        if event.kind == EventKind::Lost {
            return in_window;
        }
        // The `wait_ns` of a wake event is the duration of the call, not of a wait.
        let wait_ns = event.wait_ns.filter(|_| event.kind != EventKind::Wake);
        let is_wait = matches!(event.kind, EventKind::Wait | EventKind::Acquire | EventKind::Abandon);
        in_window
            && event.lock.is_none_or(|lock| !is_wait || self.selects_purpose(lock, event.stack))
            && event.lock.map_or(self.all_locks, |lock| self.selects_lock(lock.0))
            && event.task.map_or(self.tasks.is_none(), |task| self.selects_task(task))
            && self.mode.is_none_or(|mode| event.mode == Some(mode))
            && self.selects_stack(event.stack)
            && self.selects_wait_ns(wait_ns)
    }

    #[inline]
    fn selects_interval(
        &self,
        (lock, task): (LockId, TaskId),
        mode: Mode,
        stack: Option<StackId>,
        wait_ns: Option<i64>,
    ) -> bool {
        self.is_of_any_interval
            || self.selects_task(task)
                && self.selects_purpose(lock, stack)
                && self.mode.is_none_or(|selected| selected == mode)
                && self.selects_stack(stack)
                && self.selects_wait_ns(wait_ns)
    }

    fn selects_task(&self, task: TaskId) -> bool {
        self.tasks.as_ref().is_none_or(|tasks| tasks.contains(&task))
    }

    fn selects_wait_ns(&self, wait_ns: Option<i64>) -> bool {
        self.min_wait_ns.is_none_or(|min_ns| wait_ns.is_some_and(|ns| ns >= min_ns))
    }

    fn selects_stack(&self, stack: Option<StackId>) -> bool {
        let Some(selected) = &self.stacks else { return true };
        let at = stack.and_then(|stack| usize::try_from(stack.0).ok());
        at.and_then(|at| selected.get(at)).copied().unwrap_or(false)
    }
}

fn tasks(names: &Names, filter: &Filter) -> Result<Option<FxHashSet<TaskId>>, AnalyzeError> {
    let mut selection: Option<FxHashSet<TaskId>> = match &filter.task {
        Some(selector) => Some(FxHashSet::from_iter(filter::resolve_task(names, selector)?)),
        None => None,
    };
    if !filter.comms.is_empty() {
        let mut named = FxHashSet::default();
        for comm in &filter.comms {
            named.extend(filter::resolve_task(names, &filter::TaskSelector::Comm(comm.clone()))?);
        }
        selection = Some(match selection {
            Some(tasks) => tasks.intersection(&named).copied().collect(),
            None => named,
        });
    }
    Ok(selection)
}

fn stacks(trace: &Trace, filter: &Filter) -> Result<Option<Vec<bool>>, AnalyzeError> {
    let Some(part) = &filter.symbol else { return Ok(None) };
    let has = |symbol: &Option<String>| symbol.as_deref().is_some_and(|symbol| symbol.contains(part));
    let mut stacks: Vec<bool> = Vec::new();
    trace.each_stack(|stack| stacks.push(stack.frames.iter().any(|frame| has(&frame.symbol))))?;
    if !stacks.contains(&true) {
        return Err(AnalyzeError::SymbolNotFound {
            wanted: printable(part).into_owned(),
            stacks: stacks.len(),
        });
    }
    Ok(Some(stacks))
}

impl Window {
    /// Whether a time is not before the window. Events after it are never read.
    pub fn contains(self, ns: i64) -> bool {
        self.from_ns.is_none_or(|from_ns| ns >= from_ns)
    }

    /// Whether the window has ended at this time.
    pub(super) fn ends_by(self, ns: i64) -> bool {
        self.to_ns.is_some_and(|to_ns| ns >= to_ns)
    }

    /// Returns the index of the first time after the window.
    pub(super) fn end_in(self, times: &[i64]) -> Option<usize> {
        self.to_ns.and_then(|to_ns| times.iter().position(|&ns| ns >= to_ns))
    }
}

fn first_time(trace: &Trace) -> Result<i64, AnalyzeError> {
    let mut first_ns = 0;
    source::batches(trace, &[], |_, batch| {
        let first = batch.times().first();
        first_ns = first.copied().unwrap_or(first_ns);
        Ok(if first.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok(first_ns)
}
