//! A slow and obviously correct model of every table, for tests.
//!
//! The model says what each table contains for some events and a filter. Intervals come from the slow model
//! of the engine. For every row the model visits all intervals, counts nanoseconds one by one, and sorts all
//! times for a percentile. It shares only the definitions in docs/internals/definitions.md with the tables.

use std::collections::BTreeMap;

use trace_format::{Event, EventKind, LockId, LockKind, Mode, StackId, TaskId};

use crate::{
    blame::{self, Charged},
    hist::{Bucket, Of},
    key::By,
};
use intervals::{
    Filter,
    engine::{Counts, Hold, HoldState, Outcome, Wait, histories, model::Model, tries_model},
    items::Polling,
};

mod context;
mod cross_checks;
mod keys;
mod properties;
pub(crate) mod report;
mod request;

use context::{END_NS, START_NS};
use keys::{key, tid};

/// A row's key as CSV has it.
pub(super) type Key = Vec<String>;

/// The intervals and counts that tables are made of.
pub(super) struct Seen {
    pub(super) filter: Filter,
    pub(super) holds: Vec<Hold>,
    pub(super) waits: Vec<Wait>,
    /// By wait: the hold that each of its nanoseconds is charged to, and whether all holds of the lock were
    /// seen then.
    payers: Vec<Vec<(Option<Hold>, bool)>>,
    /// The attempts that failed.
    try_failures: Vec<Event>,
    pollings: Vec<Polling>,
    pub(super) counts: Counts,
}

/// The task that woke another one, and the stack.
type Waker = (TaskId, Option<StackId>);

/// A row of blame: total ns, shares, the longest share in ns, and shares of waits that a loss cut.
pub(super) type Blamed = (i64, i64, i64, i64);

/// A cell of a timeline: waits in ns, holds in ns, waits and holds that began.
pub(super) type Cell = (i64, Option<i64>, i64, i64);

impl Seen {
    pub(super) fn of(events: &[Event], filter: Filter) -> Self {
        let to_ns = filter.to_ns.map(|to_ns| START_NS + to_ns);
        let is_before = |event: &&Event| to_ns.is_none_or(|to_ns| event.ts_ns < to_ns);
        let in_window: Vec<Event> = events.iter().take_while(is_before).copied().collect();
        let end_ns = match to_ns {
            Some(to_ns) if in_window.len() < events.len() => to_ns,
            _ => END_NS,
        };
        let is_selected = |event: &Event| match event.lock {
            Some(lock) => {
                let kind = histories::kind(lock);
                if filter.kinds.is_empty() {
                    filter.include_idle || kind != LockKind::CondVar
                } else {
                    filter.kinds.contains(&kind)
                }
            }
            None => event.kind == EventKind::Lost,
        };
        let selected: Vec<Event> = in_window.into_iter().filter(is_selected).collect();
        let model = Model::of(&selected, end_ns);
        let payers = model.payers();
        let (intervals, counts) = model.intervals();
        let is_failure = |event: &&Event| event.kind == EventKind::TryFail && event.task.is_some();
        let try_failures = selected.iter().filter(is_failure).copied().collect();
        let pollings = tries_model::polled(&selected);
        Self {
            filter,
            pollings,
            holds: intervals.holds,
            waits: intervals.waits,
            payers,
            counts,
            try_failures,
        }
    }

    fn selects(&self, task: TaskId, mode: Mode, wait_ns: Option<i64>) -> bool {
        let of_task = match &self.filter.task {
            Some(selector) => *selector == intervals::input::filter::TaskSelector::Number(tid(task)),
            None => true,
        };
        of_task
            && self.filter.mode.is_none_or(|selected| selected == mode)
            && self.filter.min_wait_ns.is_none_or(|least| wait_ns.is_some_and(|ns| ns >= least))
    }

    fn window_begin(&self) -> Option<i64> {
        self.filter.from_ns.map(|ns| START_NS + ns)
    }

    fn ended_in_window(&self, end_ns: i64) -> bool {
        self.window_begin().is_none_or(|from_ns| end_ns >= from_ns)
    }

    pub(super) fn selected_holds(&self) -> impl Iterator<Item = &Hold> {
        let selected = |hold: &&Hold| {
            self.selects(hold.task, hold.mode, hold.wait_ns) && self.ended_in_window(hold.end_ns)
        };
        self.holds.iter().filter(selected)
    }

    pub(super) fn selected_waits(&self) -> impl Iterator<Item = &Wait> {
        self.waits_with_payers().map(|(wait, _)| wait)
    }

    fn waits_with_payers(&self) -> impl Iterator<Item = (&Wait, &Vec<(Option<Hold>, bool)>)> {
        let selected = |(wait, _): &(&Wait, &Vec<(Option<Hold>, bool)>)| {
            self.selects(wait.task, wait.mode, Some(wait.wait_ns)) && self.ended_in_window(wait.end_ns)
        };
        self.waits.iter().zip(&self.payers).filter(selected)
    }

    fn credited(&self) -> impl Iterator<Item = &Hold> {
        let states = [HoldState::Complete, HoldState::AcquisitionOnly];
        self.selected_holds().filter(move |hold| states.contains(&hold.state))
    }

    /// Returns times by key.
    pub(super) fn times(&self, of: Of, by: Option<By>) -> BTreeMap<Key, Vec<i64>> {
        let mut times: BTreeMap<Key, Vec<i64>> = BTreeMap::new();
        for hold in self.credited() {
            let ns = match of {
                Of::Hold if hold.state == HoldState::Complete => Some(hold.end_ns - hold.start_ns),
                Of::Hold => None,
                Of::Wait => hold.wait_ns.filter(|_| hold.contended),
            };
            let key = by.map_or_else(Vec::new, |by| key(by, hold.lock, hold.task, hold.stack));
            times.entry(key).or_default().extend(ns);
        }
        times.retain(|_, times| !times.is_empty());
        times
    }

    /// Returns the blame by holder, and by waiter with pairs.
    pub(super) fn blame(&self, by: blame::By) -> BTreeMap<(&'static str, Key, Key), Blamed> {
        let mut rows: BTreeMap<(&'static str, Key, Key), Blamed> = BTreeMap::new();
        for (wait, payers) in self.waits_with_payers() {
            let mut add = |charged: Charged, task: Option<TaskId>, stack: Option<StackId>, ns: i64| {
                let class = key(By::Class, wait.lock, wait.task, None);
                let holder = match by {
                    blame::By::Task => {
                        task.map_or_else(Key::new, |task| key(By::Task, wait.lock, task, None))
                    }
                    blame::By::Host => key(By::Host, wait.lock, wait.task, None),
                    _ if matches!(charged, Charged::Hold | Charged::Waker) => {
                        key(By::Site, wait.lock, wait.task, stack)
                    }
                    _ => class,
                };
                let waiter = match by {
                    blame::By::Pair => key(By::Site, wait.lock, wait.task, wait.stack),
                    _ => Vec::new(),
                };
                let cut = i64::from(wait.outcome == Outcome::CutByLoss);
                let row = rows.entry((charged.as_str(), holder, waiter)).or_default();
                *row = (row.0 + ns, row.1 + 1, row.2.max(ns), row.3 + cut);
            };
            if wait.gap_ns.is_none() {
                if let Some(owner) = wait.owner {
                    add(Charged::Owner, Some(owner), None, wait.wait_ns);
                    continue;
                }
                let passes: BTreeMap<i64, Waker> = self.passes(wait);
                let mut from_ns = wait.start_ns;
                for (ns, (task, stack)) in passes {
                    add(Charged::Waker, Some(task), stack, ns - from_ns);
                    from_ns = ns;
                }
                let rest_ns = wait.wait_ns - (from_ns - wait.start_ns);
                match wait.waker {
                    Some(waker) => add(Charged::Waker, Some(waker), wait.waker_stack, rest_ns),
                    None => add(Charged::Unknown, None, None, rest_ns),
                }
                continue;
            }
            // Without a hold, a stretch is one of a hand-off or one in no recorded hold. Until the first
            // hold, it is one of the owner.
            let mut payers = payers.clone();
            if wait.owner.is_some() {
                payers.iter_mut().take_while(|(hold, _)| hold.is_none()).for_each(|(_, free)| *free = false);
            }
            let who = |(hold, free): &(Option<Hold>, bool)| {
                (hold.map(|hold| (hold.task, hold.start_ns, hold.stack, hold.mode)), *free)
            };
            let runs: Vec<&[(Option<Hold>, bool)]> = payers.chunk_by(|a, b| who(a) == who(b)).collect();
            let (mut free_ns, mut gap_ns) = (0, 0);
            for (at, run) in runs.iter().enumerate() {
                let ns = run.len() as i64;
                match run[0] {
                    (Some(hold), _) => add(Charged::Hold, Some(hold.task), hold.stack, ns),
                    (None, _) if at == 0 && wait.owner.is_some() => add(Charged::Owner, wait.owner, None, ns),
                    (None, true) => free_ns += ns,
                    (None, false) => gap_ns += ns,
                }
            }
            // The time of a wait in no hold is one share.
            for (charged, ns) in [(Charged::Handoff, free_ns), (Charged::Gap, gap_ns)] {
                if ns > 0 {
                    add(charged, None, None, ns);
                }
            }
        }
        rows
    }

    /// Returns the wake-ups of other waiters by other tasks within a wait whose begin was seen; of one
    /// instant, that by the smallest task.
    fn passes(&self, wait: &Wait) -> BTreeMap<i64, Waker> {
        let mut passes = BTreeMap::new();
        for other in self.waits.iter().filter(|other| other.lock == wait.lock && wait.start_seen) {
            let Some(task) = other.waker.filter(|waker| *waker != wait.task && *waker != other.task) else {
                continue;
            };
            if wait.start_ns < other.end_ns && other.end_ns < wait.end_ns {
                let waker = (task, other.waker_stack);
                let first = passes.entry(other.end_ns).or_insert(waker);
                *first = waker.min(*first);
            }
        }
        passes
    }

    /// Returns the timeline by key and period, and the intervals cut by loss by key.
    pub(super) fn timeline(&self, by: By, period_ns: i64) -> BTreeMap<Key, (BTreeMap<i64, Cell>, u64)> {
        let from_ns = self.window_begin().unwrap_or(START_NS);
        let to_ns = self.filter.to_ns.map_or(END_NS, |ns| (START_NS + ns).min(END_NS)).max(from_ns);
        let last = ((to_ns - from_ns + period_ns - 1) / period_ns).max(1) - 1;
        let mut keys: BTreeMap<Key, (BTreeMap<i64, Cell>, bool)> = BTreeMap::new();
        let mut add = |lock: LockId, key: Key, (start_ns, end_ns): (i64, i64), is_wait: bool| {
            let (cells, measured) = keys.entry(key).or_default();
            let mut count = |period: i64, ns: i64, began: i64| {
                let (wait_ns, hold_ns, waits, holds) = cells.entry(period).or_default();
                if is_wait {
                    (*wait_ns, *waits) = (*wait_ns + ns, *waits + began);
                } else {
                    (*hold_ns, *holds) = (Some(hold_ns.unwrap_or(0) + ns), *holds + began);
                }
                *measured |= !matches!(histories::kind(lock), LockKind::Mutex | LockKind::CondVar);
            };
            if (from_ns..=to_ns).contains(&start_ns) {
                count(((start_ns - from_ns) / period_ns).min(last), 0, 1);
            }
            for ns in start_ns.max(from_ns)..end_ns.min(to_ns) {
                count((ns - from_ns) / period_ns, 1, 0);
            }
        };
        let lasting = [HoldState::Complete, HoldState::AcquisitionOnly, HoldState::OpenAtEnd];
        for hold in
            self.selected_holds().filter(|hold| hold.end_ns >= from_ns && lasting.contains(&hold.state))
        {
            let key = key(by, hold.lock, hold.task, hold.stack);
            add(hold.lock, key, (hold.start_ns, hold.end_ns), false);
        }
        for wait in self.selected_waits().filter(|wait| wait.end_ns >= from_ns) {
            if wait.outcome != Outcome::CutByLoss {
                let key = key(by, wait.lock, wait.task, wait.stack);
                add(wait.lock, key, (wait.start_ns, wait.start_ns + wait.wait_ns), true);
            }
        }
        let mut cut: BTreeMap<Key, u64> = BTreeMap::new();
        let holds = self.selected_holds().filter(|hold| hold.state == HoldState::CutByLoss);
        let holds = holds.map(|hold| (hold.end_ns, key(by, hold.lock, hold.task, hold.stack)));
        let waits = self.selected_waits().filter(|wait| wait.outcome == Outcome::CutByLoss);
        let waits = waits.map(|wait| (wait.end_ns, key(by, wait.lock, wait.task, wait.stack)));
        for (_, key) in holds.chain(waits).filter(|(end_ns, _)| *end_ns >= from_ns) {
            *cut.entry(key).or_default() += 1;
        }
        let with_cut = |(key, (mut cells, measured)): (Key, (BTreeMap<i64, Cell>, bool))| {
            for cell in cells.values_mut() {
                cell.1 = measured.then_some(cell.1.unwrap_or(0));
            }
            let cut = cut.get(&key).copied().unwrap_or(0);
            (key, (cells, cut))
        };
        keys.into_iter().map(with_cut).filter(|(_, (cells, _))| !cells.is_empty()).collect()
    }
}

/// Whether the buckets count these times: each time is in exactly one bucket.
pub(super) fn fit(buckets: &[Bucket], times: &[i64]) -> bool {
    let holds = |bucket: &Bucket| {
        let inside = times.iter().filter(|ns| bucket.from_ns <= **ns && **ns <= bucket.to_ns);
        inside.count() as u64 == bucket.count
    };
    let apart = buckets.windows(2).all(|pair| pair[0].to_ns < pair[1].from_ns);
    apart && buckets.iter().all(holds) && buckets.iter().map(|b| b.count).sum::<u64>() == times.len() as u64
}
