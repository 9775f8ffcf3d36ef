//! Behaviour: what the rows of waits say of each object and site.

use std::ops::ControlFlow;

use rustc_hash::{FxHashMap, FxHashSet};
use trace_format::{Batch, EventKind, EventRow, LockId, StackId, TaskId, TaskRow, Trace};

use super::{Behaviour, OfLock, Purpose, Purposes};
use crate::{
    input::{names::split_locks::SiteWaits, source},
    roles::{Context, Evidence, Group, Role},
};

impl Purposes {
    /// Lets the behaviour of tasks decide where kinds and stacks do not. Reads the events of a trace that has
    /// such locks. `functions` returns the number of the function of a site, or 0. Returns the sites at which
    /// tasks exclude each other, and the semaphores that are locks.
    pub(in crate::input::names) fn observe(
        &mut self,
        trace: &Trace,
        tasks: &[TaskRow],
        functions: impl Fn(u32) -> u32,
    ) -> (Vec<(u32, SiteWaits)>, FxHashSet<LockId>) {
        if self.has_kinds_only() {
            return (Vec::new(), FxHashSet::default());
        }
        let mut observed = Observed::new(self, tasks, functions);
        let columns = ["lock_id", "task_id", "stack_id", "peer_task_id", "peer_stack_id", "wait_ns"];
        // A damaged row group ends what is observed: the reading that follows reports it.
        let _ = source::batches(trace, &columns, |_, batch| {
            observed.add(batch);
            Ok(ControlFlow::Continue(()))
        });
        observed.decide(trace.info().clocks_end.monotonic_ns).apply(self)
    }
}

/// The rows of waits. Those whose purpose is known from their stack say nothing of their object, only of
/// their site.
pub(super) struct Observed<'a, F> {
    purposes: &'a Purposes,
    tasks: &'a [TaskRow],
    last_ns: i64,
    /// Returns the number of the function of a site.
    functions: F,
    objects: FxHashMap<LockId, Box<Object>>,
    sites: Sites,
}

/// By acquisition site and kind of object.
type Sites = FxHashMap<(u32, Purpose), Site>;

/// The waits for an object.
#[derive(Default)]
struct Object {
    group: Group,
    code: Code,
    waiters: FxHashSet<TaskId>,
    open: Vec<Open>,
    /// The last tasks that woke others, latest last, and when they did.
    wakers: Vec<(i64, TaskId)>,
    /// The stacks of waits.
    stacks: FxHashSet<Option<StackId>>,
    semaphore: Semaphore,
    /// Whether it belongs to a condition variable.
    has_condition: bool,
}

#[derive(Clone, Copy)]
struct Open {
    task: TaskId,
    site: (u32, Purpose),
    begin_ns: i64,
    /// Whether its purpose is known from its stack.
    is_named: bool,
}

/// The waits at a site, for all objects of a kind.
#[derive(Default)]
struct Site {
    group: Group,
    /// Waits that may be for locks.
    waits: SiteWaits,
    /// Whether the stack of a wait does not say what it is for.
    has_unnamed: bool,
}

/// The functions in which tasks wait, and those in which they wake.
#[derive(Default)]
struct Code {
    waits: FxHashSet<u32>,
    wakes: FxHashSet<u32>,
}

/// The tasks that take permits of a semaphore and give them back.
#[derive(Clone, Debug, Default)]
struct Semaphore {
    /// Times that a task that had a permit gave it back.
    own: u64,
    /// Times that a task gave back what it did not have, or waited for or took a second permit.
    foreign: u64,
    /// The tasks that have a permit, and since when.
    takers: Vec<(TaskId, i64)>,
    /// Whether two tasks had permits at once.
    has_many: bool,
    /// The first task that took it and gave it back, and when it did both.
    first: Option<(TaskId, i64, i64)>,
    /// Whether a function of locks waits for it.
    is_named: bool,
}

/// The verdicts of behaviour: of locks by their id, and of sites.
pub(super) struct Decided {
    locks: Vec<(LockId, Behaviour, Vec<Option<StackId>>)>,
    sites: FxHashMap<(u32, Purpose), Behaviour>,
    /// The sites at which tasks exclude each other, with their waits.
    exclusive: Vec<(u32, SiteWaits)>,
    /// Semaphores that are locks.
    mutexes: FxHashSet<LockId>,
}

/// The number of a function that is not known.
pub(super) const UNKNOWN: u32 = 0;

/// The wakers of an object that are kept.
const WAKERS: usize = 8;

/// The tasks with a permit of a semaphore that are kept.
const MAX_TAKERS: usize = 64;

impl<'a, F: Fn(u32) -> u32> Observed<'a, F> {
    pub(super) fn new(purposes: &'a Purposes, tasks: &'a [TaskRow], functions: F) -> Self {
        Self {
            purposes,
            tasks,
            last_ns: i64::MIN,
            functions,
            objects: FxHashMap::default(),
            sites: FxHashMap::default(),
        }
    }

    /// Adds the rows of a batch.
    pub(super) fn add(&mut self, batch: &Batch) {
        for index in 0..batch.len() {
            let row = batch.row(index);
            self.last_ns = self.last_ns.max(row.ts_ns());
            match (row.lock(), row.task()) {
                (Some(lock), Some(task)) => self.row(&row, lock, task),
                _ if row.kind() == EventKind::Lost => self.lose(row.ts_ns()),
                _ => {}
            }
        }
    }

    fn row(&mut self, row: &impl EventRow, lock: LockId, task: TaskId) {
        let Some(OfLock::Decided { kind, .. }) = self.purposes.of_lock(lock) else { return };
        let object = match row.kind() {
            EventKind::Wait => self.objects.entry(lock).or_default(),
            EventKind::Acquire | EventKind::Wake if kind == Purpose::Semaphore => {
                self.objects.entry(lock).or_default()
            }
            EventKind::Acquire | EventKind::Wake | EventKind::Abandon => match self.objects.get_mut(&lock) {
                Some(object) => object,
                None => return,
            },
            _ => return,
        };
        let (purposes, functions, sites) = (self.purposes, &self.functions, &mut self.sites);
        match row.kind() {
            EventKind::Wait => {
                object.stacks.insert(row.stack());
                object.semaphore.waited_for(task);
                let named = purposes.by_stack(row.stack());
                object.semaphore.is_named |= named.is_some_and(|(purpose, _)| purpose == Purpose::Lock);
                object.has_condition |= named.is_some_and(|(purpose, _)| purpose == Purpose::CondVar);
                let (number, named) = (purposes.site(row.stack()), purposes.decided_by_stack(row.stack()));
                let site = sites.entry((number, kind)).or_default();
                site.has_unnamed |= named.is_none();
                if named.is_none_or(|purpose| purpose == Purpose::Lock) {
                    site.waits.wait(lock, task);
                }
                let (begin_ns, is_named) = (row.ts_ns(), named.is_some());
                site.group.begin(task, begin_ns);
                object.begin(Open { task, site: (number, kind), begin_ns, is_named }, functions(number));
            }
            EventKind::Wake => {
                object.semaphore.given_back(task, row.ts_ns());
                let number = purposes.site(row.stack());
                for open in &object.open {
                    let site = sites.entry(open.site).or_default();
                    site.group.wake(task);
                    site.waits.wake(lock, number);
                }
                let entered_ns = row.ts_ns().saturating_sub(row.wait_ns().unwrap_or(0));
                object.wake(task, functions(number), row.ts_ns());
                object.group.call(task, entered_ns);
            }
            EventKind::Acquire => {
                object.semaphore.taken(task, row.ts_ns());
                object.end(task, row.ts_ns(), row.peer_task(), sites);
            }
            _ => object.give_up(task, row.ts_ns(), sites),
        }
    }

    /// Nothing that is open is known any more.
    fn lose(&mut self, ts_ns: i64) {
        for object in self.objects.values_mut() {
            object.group.lose(ts_ns);
            object.open.clear();
            object.wakers.clear();
            object.semaphore.takers.clear();
        }
        self.sites.values_mut().for_each(|site| site.group.lose(ts_ns));
    }

    /// Decides at the end of the trace.
    pub(super) fn decide(self, end_ns: i64) -> Decided {
        let (mut sites, mut exclusive) = (FxHashMap::default(), Vec::new());
        let mut passers = FxHashSet::default();
        let mut of_sites: Vec<((u32, Purpose), Site)> = self.sites.into_iter().collect();
        of_sites.sort_unstable_by_key(|((site, kind), _)| (*site, *kind as usize));
        for (site, Site { group, mut waits, has_unnamed }) in of_sites {
            waits.may_be_for_one_wait = site.1 != Purpose::Lock;
            passers.extend(waits.tasks().filter(|task| group.passes_on(*task)));
            if has_unnamed {
                waits.retain(|task| group.passes_on(task));
            }
            let evidence = group.evidence(end_ns);
            let role = evidence.role(Context { one_waiter_each: true, ..Context::default() });
            sites.insert(site, behaviour(role, &evidence));
            if site.0 != UNKNOWN && (role == Role::Lock || !has_unnamed && evidence.is_mutual()) {
                exclusive.push((site.0, waits));
            }
        }
        let mut mutexes = FxHashSet::default();
        let of_object = |(lock, object): (LockId, Box<Object>)| {
            let Object { group, code, waiters, stacks, semaphore, has_condition, .. } = *object;
            let is_a = |purpose| matches!(self.purposes.of_lock(lock), Some(OfLock::Decided { kind, .. }) if kind == purpose);
            let (is_word, wakes_elsewhere) = (is_a(Purpose::Lock) && !has_condition, code.wakes_elsewhere());
            let is_semaphore = is_a(Purpose::Semaphore);
            let behaviour = if is_semaphore
                && waiters.len() == 1
                && semaphore.is_life(self.tasks, end_ns.max(self.last_ns))
            {
                Behaviour::Purpose(Purpose::Exit)
            } else if is_semaphore && semaphore.is_lock() {
                if semaphore.own > 0 && !semaphore.has_many {
                    mutexes.insert(lock);
                }
                Behaviour::Purpose(Purpose::Lock)
            } else if waiters.len() == 1 {
                Behaviour::OfSite { passes_on: waiters.is_subset(&passers) }
            } else {
                let context = Context { one_waiter_each: false, wakes_elsewhere, is_word };
                let evidence = group.evidence(end_ns);
                behaviour(evidence.role(context), &evidence)
            };
            (lock, behaviour, stacks.into_iter().collect())
        };
        let locks = self.objects.into_iter().map(of_object).collect();
        Decided { locks, sites, exclusive, mutexes }
    }
}

impl Object {
    fn begin(&mut self, open: Open, function: u32) {
        if !open.is_named {
            self.waiters.insert(open.task);
            self.group.begin(open.task, open.begin_ns);
            self.code.waits.insert(function);
        }
        self.open.push(open);
    }

    fn wake(&mut self, task: TaskId, function: u32, ts_ns: i64) {
        if self.wakers.len() == WAKERS {
            self.wakers.remove(0);
        }
        self.wakers.push((ts_ns, task));
        self.code.wakes.insert(function);
    }

    /// Ends a wait. Processes that record themselves do not say who ended it: the last task that woke others
    /// does.
    fn end(&mut self, task: TaskId, ts_ns: i64, waker: Option<TaskId>, sites: &mut Sites) {
        let Some(at) = self.open.iter().position(|open| open.task == task) else { return };
        let open = self.open.swap_remove(at);
        let during = self.wakers.iter().rev().take_while(|(ts_ns, _)| *ts_ns >= open.begin_ns);
        let last = || during.map(|(_, waker)| *waker).find(|waker| *waker != task);
        let waker = waker.or_else(last);
        if !open.is_named {
            self.group.end(task, ts_ns, waker);
        }
        sites.entry(open.site).or_default().group.end(task, ts_ns, waker);
    }

    fn give_up(&mut self, task: TaskId, ts_ns: i64, sites: &mut Sites) {
        self.wakers.clear();
        self.end(task, ts_ns, None, sites);
    }
}

/// Returns what a role says of the purpose of waits; an idle one has the name of its function or kind.
const fn behaviour(role: Role, evidence: &Evidence) -> Behaviour {
    match role {
        Role::Lock => Behaviour::Purpose(Purpose::Lock),
        Role::Queue => Behaviour::Purpose(Purpose::Park),
        Role::Barrier => Behaviour::Purpose(Purpose::Barrier),
        Role::Undecided => Behaviour::Purpose(Purpose::Undecided),
        Role::TooFew if evidence.both == 0 => Behaviour::OneWay,
        Role::TooFew => Behaviour::Unknown,
    }
}

impl Code {
    fn wakes_elsewhere(&self) -> bool {
        let is_known = |functions: &FxHashSet<u32>| !functions.is_empty() && !functions.contains(&UNKNOWN);
        is_known(&self.waits) && is_known(&self.wakes) && self.wakes.is_disjoint(&self.waits)
    }
}

impl Semaphore {
    /// A task that waits for a permit that it has itself waits for a signal, as in a `Condition` of Python.
    fn waited_for(&mut self, task: TaskId) {
        self.foreign += u64::from(self.takers.iter().any(|(taker, _)| *taker == task));
    }

    fn taken(&mut self, task: TaskId, ts_ns: i64) {
        if let Some(taker) = self.takers.iter_mut().find(|(taker, _)| *taker == task) {
            (self.foreign, *taker) = (self.foreign + 1, (task, ts_ns));
        } else if self.takers.len() < MAX_TAKERS {
            self.has_many |= !self.takers.is_empty();
            self.takers.push((task, ts_ns));
        }
    }

    fn given_back(&mut self, task: TaskId, ts_ns: i64) {
        if let Some(at) = self.takers.iter().position(|(taker, _)| *taker == task) {
            let (_, taken_ns) = self.takers.remove(at);
            self.own += 1;
            self.first.get_or_insert((task, taken_ns, ts_ns));
        } else {
            self.foreign += 1;
            // klock does not know who took this permit: the oldest taker counts as the one.
            if !self.takers.is_empty() {
                self.takers.remove(0);
            }
        }
    }

    /// Whether a task had it for nearly all of its life, and only one that waited for that took it later, as
    /// those do who join a thread of Python.
    fn is_life(&self, tasks: &[TaskRow], end_ns: i64) -> bool {
        let Some((task, taken_ns, given_ns)) = self.first.filter(|_| self.own <= 2 && self.foreign == 0)
        else {
            return false;
        };
        let row = usize::try_from(task.0).ok().and_then(|at| tasks.get(at));
        let (start_ns, exit_ns) = row.map_or((None, None), |row| (row.start_ns, row.exit_ns));
        let lived_ns = exit_ns.unwrap_or(end_ns).saturating_sub(start_ns.unwrap_or(taken_ns));
        given_ns.saturating_sub(taken_ns).saturating_mul(10) >= lived_ns.saturating_mul(9)
    }

    /// A few hand-offs do not make a lock a signal. Functions of locks build signals, too.
    fn is_lock(&self) -> bool {
        let is_own = self.own > self.foreign || self.own + self.foreign == 0;
        self.own > self.foreign.saturating_mul(9) || self.is_named && is_own
    }
}

impl Decided {
    /// Sets the purposes, and returns the sites at which tasks exclude each other, and the semaphores that
    /// are locks.
    pub(super) fn apply(self, purposes: &mut Purposes) -> (Vec<(u32, SiteWaits)>, FxHashSet<LockId>) {
        purposes.by_site = self.sites;
        for (lock, observed, stacks) in self.locks {
            let Some(OfLock::Decided { kind, .. }) = purposes.of_lock(lock) else { continue };
            let idle = |stack: &Option<StackId>| purposes.decided(observed, kind, *stack).is_idle();
            let has = (stacks.iter().any(&idle), !stacks.iter().all(&idle));
            purposes.by_lock[lock.0 as usize] = OfLock::Decided { behaviour: observed, kind, has };
        }
        (self.exclusive, self.mutexes)
    }
}
