//! Names of locks, tasks and acquisition sites.
//!
//! Labels are made from the side tables. Names come from the recorded programs and may contain any character,
//! so every label goes through [`printable`] before it reaches a terminal.

use std::{borrow::Cow, sync::Arc};

pub use trace_format::text::is_unsafe;
pub use trace_format::text::printable;
use trace_format::{FormatError, LockId, LockKind, LockRow, Stack, StackId, TaskId, TaskRow, Trace};

mod distinct;
mod frames;
mod lock_functions;
mod point;
pub mod purposes;
mod split_locks;

use distinct::{DistinctValues, Numbering};
pub use frames::{is_interrupt, shown_frames};
pub use point::Point;
use point::{Points, PointsSoFar, chains};
pub use point::{UNKNOWN, function, shorten};
use purposes::Purposes;
pub(super) use split_locks::JoinedEvents;
use split_locks::SplitLocks;

/// The side tables of a trace, for lookups by id. Keeps only the acquisition sites of stacks.
#[derive(Clone, Debug)]
pub struct Names {
    locks: Vec<LockRow>,
    tasks: Vec<TaskRow>,
    points: Points,
    /// By lock.
    classes: DistinctValues<Class>,
    /// By lock id: whether it is a kernel lock.
    kernel: Vec<bool>,
    /// By task.
    comms: DistinctValues<Option<String>>,
    /// By task.
    cgroups: DistinctValues<Option<String>>,
    /// The functions of stacks from the acquisition site outwards; empty until `read_chains`.
    chains: DistinctValues<Vec<String>>,
    purposes: Arc<Purposes>,
    split: Arc<SplitLocks>,
    host: Option<String>,
}

/// All locks of one kind and name. FreeBSD merges them into one row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Class {
    /// Their kind.
    pub kind: LockKind,
    /// Their name, if they have one.
    pub name: Option<String>,
}

impl Names {
    /// Reads the side tables of `trace`.
    pub(super) fn read(trace: &Trace) -> Result<Self, FormatError> {
        let mut locks = trace.locks()?;
        let (mut points, mut purposes) = (PointsSoFar::new(), Purposes::new(&locks));
        let mut rules = purposes.rules();
        trace.each_stack(|stack| {
            points.add(&stack);
            if let Some(rules) = &mut rules {
                rules.add(&stack);
            }
        })?;
        let points = points.finish();
        let sites = points.sites.by_stack(false);
        if let Some(rules) = rules {
            purposes.set_stacks(rules, sites.clone());
        }
        let functions = points.functions();
        let tasks = trace.tasks()?;
        let function = |site: u32| functions.get(site as usize).copied().unwrap_or(0);
        let (exclusive, mutexes) = purposes.observe(trace, &tasks, function);
        let label = |site| points.sites.known_value(site).label();
        let split = Arc::new(SplitLocks::find(exclusive, mutexes, (&sites, label), &mut locks));
        purposes.add_split(&locks);
        let purposes = Arc::new(purposes);
        let host = Some(trace.info().host.name.clone()).filter(|host| !host.is_empty());
        Ok(Self { host, purposes, split, ..Self::new(locks, tasks, points) })
    }

    /// Returns the names of locks and sites of a recording that goes on. Stacks are in the order of their
    /// ids.
    pub fn of_rows(locks: Vec<LockRow>, stacks: &[Stack]) -> Self {
        Self::new(locks, Vec::new(), Points::of(stacks))
    }

    fn new(locks: Vec<LockRow>, tasks: Vec<TaskRow>, points: Points) -> Self {
        let class = |lock: &LockRow| Class { kind: lock.kind, name: lock.name.clone() };
        Self {
            classes: DistinctValues::new(locks.iter().map(class)),
            kernel: locks.iter().map(|lock| lock.kind.is_kernel()).collect(),
            comms: DistinctValues::new(tasks.iter().map(|task| task.comm.clone())),
            cgroups: DistinctValues::new(tasks.iter().map(|task| task.cgroup.clone())),
            chains: DistinctValues::default(),
            purposes: Arc::default(),
            split: Arc::default(),
            host: None,
            locks,
            tasks,
            points,
        }
    }

    /// Also keeps up to `frames` functions of each stack, from the acquisition site outwards.
    pub(super) fn read_chains(&mut self, trace: &Trace, frames: usize) -> Result<(), FormatError> {
        let mut all = Numbering::of_stacks();
        trace.each_stack(|stack| chains(&stack, frames).into_iter().for_each(|chain| all.add(chain)))?;
        self.chains = all.finish();
        Ok(())
    }

    /// Returns every lock, by id.
    pub fn locks(&self) -> &[LockRow] {
        &self.locks
    }

    /// Returns every task, by id.
    pub fn tasks(&self) -> &[TaskRow] {
        &self.tasks
    }

    /// Returns a lock, if the trace has it.
    pub fn lock(&self, lock: LockId) -> Option<&LockRow> {
        usize::try_from(lock.0).ok().and_then(|at| self.locks.get(at))
    }

    /// Returns a task, if the trace has it.
    pub fn task(&self, task: TaskId) -> Option<&TaskRow> {
        usize::try_from(task.0).ok().and_then(|at| self.tasks.get(at))
    }

    /// Returns the site of an acquisition with this stack.
    pub fn point(&self, lock: LockId, stack: Option<StackId>) -> &Point {
        self.point_of_number(self.point_number(lock, stack))
    }

    /// Returns the number of stacks in the side table.
    pub fn stacks(&self) -> usize {
        self.points.stacks()
    }

    /// Returns the acquisition sites by stack id: of kernel locks, and of user locks.
    pub(super) fn points_by_stack(&self) -> (Vec<u32>, Vec<u32>) {
        (self.points.sites.by_stack(true), self.points.sites.by_stack(false))
    }

    /// Returns `#3 hot_mutex (pthread_mutex)`. A lock without a name has its address, and the site of its
    /// initialisation if known.
    pub fn lock_label(&self, lock: LockId) -> String {
        let Some(row) = self.lock(lock) else { return format!("{lock} {UNKNOWN}") };
        let name = match (&row.name, row.address) {
            (Some(name), _) => format!("{} ", printable(name)),
            (None, Some(address)) => match row.init_stack {
                Some(_) => format!("{address:#x} of {} ", self.point(lock, row.init_stack).label()),
                None => format!("{address:#x} "),
            },
            (None, None) => String::new(),
        };
        let shared = if row.shared.is_some() { ", shared" } else { "" };
        format!("{lock} {name}({}{shared})", row.kind)
    }

    /// Returns `worker (pid 12)`, or `worker (tid 12, pid 10)` if the task is not the first of its process.
    pub fn task_label(&self, task: TaskId) -> String {
        let Some(row) = self.task(task) else { return format!("{task} {UNKNOWN}") };
        let comm = row.comm.as_deref().map_or(Cow::Borrowed(UNKNOWN), printable);
        match row.tid {
            tid if tid == row.pid => format!("{comm} (pid {tid})"),
            // The recorder numbers goroutines below 0.
            tid @ ..0 => format!("{comm} {} (pid {})", tid.unsigned_abs(), row.pid),
            tid => format!("{comm} (tid {tid}, pid {})", row.pid),
        }
    }

    /// Returns the name of a process: the name of its first thread, or of any thread.
    pub fn process_comm(&self, pid: i32) -> Option<&str> {
        let comm = |first: bool| {
            let is_of_process = |task: &&TaskRow| task.pid == pid && (task.tid == pid || !first);
            self.tasks.iter().rev().filter(is_of_process).find_map(|task| task.comm.as_deref())
        };
        comm(true).or_else(|| comm(false))
    }

    pub fn point_number(&self, lock: LockId, stack: Option<StackId>) -> u32 {
        self.points_number(self.is_kernel(lock), stack)
    }

    /// Returns whether the stack of an acquisition says that the call would not have waited. Stacks that do
    /// not have the called function say nothing.
    pub fn is_try(&self, lock: LockId, stack: Option<StackId>) -> bool {
        self.points.is_try(stack, self.is_kernel(lock))
    }

    /// Returns the number of a stack's site, for a kernel or a user lock.
    pub fn points_number(&self, kernel: bool, stack: Option<StackId>) -> u32 {
        self.points.sites.of_stack(stack, kernel)
    }

    /// Returns the site with a number of [`points_number`](Self::points_number).
    pub fn point_of_number(&self, number: u32) -> &Point {
        self.points.sites.known_value(number)
    }

    /// Returns the number of a stack's chain, if `read_chains` kept it.
    pub fn chain_number(&self, lock: LockId, stack: Option<StackId>) -> u32 {
        self.chains.of_stack(stack, self.is_kernel(lock))
    }

    pub fn is_kernel(&self, lock: LockId) -> bool {
        usize::try_from(lock.0).ok().and_then(|at| self.kernel.get(at)).copied().unwrap_or(false)
    }

    /// Returns the locks whose waiters each wait for an object of their own.
    pub(super) const fn split_locks(&self) -> &Arc<SplitLocks> {
        &self.split
    }

    /// Whether a lock is a semaphore whose holds are recorded.
    pub fn is_mutex_of_semaphore(&self, lock: LockId) -> bool {
        self.split.mutexes().contains(&lock)
    }

    /// Returns the purposes of waits.
    pub const fn purposes(&self) -> &Arc<Purposes> {
        &self.purposes
    }

    /// Whether a wait ends by a wake-up rather than by a release: if it is idle, or for a condition variable,
    /// whatever its purpose.
    pub fn ends_by_wake(&self, lock: LockId, stack: Option<StackId>) -> bool {
        self.lock(lock).is_some_and(|lock| lock.kind == LockKind::CondVar)
            || self.purposes.of(lock, stack).is_idle()
    }

    /// Returns the host name of the machine.
    pub fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    pub fn chain_of_number(&self, number: u32) -> &[String] {
        self.chains.value(number).map_or(&[], Vec::as_slice)
    }

    pub fn cgroup_number(&self, task: TaskId) -> Option<u32> {
        self.cgroups.number(task.0)
    }

    pub fn cgroup_of_number(&self, number: u32) -> Option<&str> {
        self.cgroups.value(number)?.as_deref()
    }

    pub fn class_number(&self, lock: LockId) -> Option<u32> {
        self.classes.number(lock.0)
    }

    pub fn class(&self, number: u32) -> Option<&Class> {
        self.classes.value(number)
    }

    pub fn comm_number(&self, task: TaskId) -> Option<u32> {
        self.comms.number(task.0)
    }

    pub fn comm_of_number(&self, number: u32) -> Option<&str> {
        self.comms.value(number)?.as_deref()
    }
}

impl Class {
    /// Returns `pthread_mutex:hot`, or the kind alone.
    pub fn label(&self) -> String {
        match &self.name {
            Some(name) => format!("{}:{}", self.kind, printable(name)),
            None => self.kind.to_string(),
        }
    }
}
