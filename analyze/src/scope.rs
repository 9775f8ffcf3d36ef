//! Which part of a trace a table is about, and what was seen of the events on the way.

use rustc_hash::FxHashSet;
use trace_format::{Event, EventKind, LockKind, TaskId, Trace};

use crate::{
    error::AnalyzeError,
    names::Names,
    select::{self, LockSelector, TaskSelector},
};

/// What was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) lock: Option<&'a LockSelector>,
    pub(crate) task: Option<&'a TaskSelector>,
    pub(crate) kinds: &'a [LockKind],
    pub(crate) include_idle: bool,
}

/// Which locks and tasks the table is about.
#[derive(Debug)]
pub(crate) struct Chosen {
    /// By lock id.
    locks: Vec<bool>,
    /// By lock id: left out because waiting for it is idling, and for no other reason.
    idle: Vec<bool>,
    pub(crate) tasks: Option<FxHashSet<TaskId>>,
    everything: bool,
}

impl Chosen {
    pub(crate) fn of(trace: &Trace, names: &Names, wanted: Wanted<'_>) -> Result<Self, AnalyzeError> {
        let named = match wanted.lock {
            Some(selector) => Some(FxHashSet::from_iter(select::lock_of(trace, names, selector)?)),
            None => None,
        };
        let tasks = match wanted.task {
            Some(selector) => Some(FxHashSet::from_iter(select::tasks_of(names, selector)?)),
            None => None,
        };
        let mut chosen = Self { locks: Vec::new(), idle: Vec::new(), tasks, everything: false };
        for lock in names.locks() {
            let by_name = named.as_ref().is_none_or(|named| named.contains(&lock.id));
            let by_kind = wanted.kinds.is_empty() || wanted.kinds.contains(&lock.kind);
            // Who names an idle lock, or its kind, asks for it.
            let asked = wanted.include_idle || named.is_some() || !wanted.kinds.is_empty();
            chosen.locks.push(by_name && by_kind && (asked || !lock.kind.is_idle()));
            chosen.idle.push(by_name && by_kind && !asked && lock.kind.is_idle());
        }
        chosen.everything = named.is_none() && wanted.kinds.is_empty();
        Ok(chosen)
    }

    pub(crate) fn wants(&self, lock: i32) -> bool {
        // A lock that the side table does not have is nobody's in particular.
        usize::try_from(lock).ok().and_then(|at| self.locks.get(at)).copied().unwrap_or(self.everything)
    }

    pub(crate) fn is_idle(&self, lock: i32) -> bool {
        usize::try_from(lock).ok().and_then(|at| self.idle.get(at)).copied().unwrap_or(false)
    }

    pub(crate) fn kinds(&self, names: &Names) -> FxHashSet<LockKind> {
        names.locks().iter().filter(|lock| self.wants(lock.id.0)).map(|lock| lock.kind).collect()
    }
}

/// Between which times, on the trace's clock, an end must lie to be counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) from_ns: Option<i64>,
    pub(crate) to_ns: Option<i64>,
}

impl Window {
    pub(crate) fn holds(self, ns: i64) -> bool {
        self.from_ns.is_none_or(|from_ns| ns >= from_ns)
    }
}

/// What was seen of the events themselves.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    pub(crate) events: u64,
    pub(crate) first_ns: i64,
    pub(crate) last_ns: i64,
    pub(crate) lost_here: i64,
    pub(crate) idle_waits: u64,
    pub(crate) cut_short: bool,
}

impl Walk {
    /// Takes note of the event, and says whether it is of a lock that the table is about.
    pub(crate) fn see(&mut self, event: &Event, chosen: &Chosen) -> bool {
        if self.events == 0 {
            self.first_ns = event.ts_ns;
            self.last_ns = event.ts_ns;
        }
        self.events += 1;
        self.last_ns = self.last_ns.max(event.ts_ns);
        if event.kind == EventKind::Lost {
            self.lost_here = self.lost_here.saturating_add(event.count.unwrap_or(0));
        }
        let Some(lock) = event.lock else { return true };
        let wanted = chosen.wants(lock.0);
        self.idle_waits += u64::from(!wanted && event.kind == EventKind::Wait && chosen.is_idle(lock.0));
        wanted
    }
}
