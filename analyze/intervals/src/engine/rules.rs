//! Rules of pairing: what the engine needs to know about the locks and stacks of a trace.

use std::sync::Arc;

use trace_format::{LockId, LockKind, LockRow, Mode, RunInfo, StackId, TaskRow};

use super::deadlock::Children;

/// The rules for one trace.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// By lock id.
    locks: Vec<LockRule>,
    /// By stack id: the acquisition site of a kernel lock. Equal numbers are equal sites.
    kernel_points: Vec<u32>,
    /// By stack id: the acquisition site of a user lock.
    user_points: Vec<u32>,
    /// By task: the threads that it created, with their start.
    children: Arc<Children>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct LockRule {
    /// Whether the source records the length of its holds.
    pub(super) measures_holds: bool,
    /// Several tasks may hold it exclusively: a semaphore counts.
    counts: bool,
    /// Readers take it without a function call that could be recorded: their holds begin only if they waited,
    /// and never end.
    exclusive_only: bool,
    kernel: bool,
    /// It is a semaphore that its takers give back.
    pub(super) is_semaphore: bool,
    /// It is the end of a thread, or a condition variable: waits for it end by what some tasks do.
    pub(super) ends_by: Option<EndsBy>,
}

/// The act that ends waits for a lock without holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndsBy {
    Exit,
    Signal,
}

impl Default for LockRule {
    /// Returns the rules of a lock that the side table does not have: a user lock, fully recorded.
    fn default() -> Self {
        Self {
            measures_holds: true,
            counts: false,
            exclusive_only: false,
            kernel: false,
            is_semaphore: false,
            ends_by: None,
        }
    }
}

impl LockRule {
    fn new(info: &RunInfo, lock: &LockRow) -> Self {
        Self {
            // Locks that tasks wait for idly have no owner.
            measures_holds: !lock.kind.is_idle()
                && info.source_of(lock.kind).is_none_or(|source| source.holds),
            counts: lock.kind == LockKind::Semaphore,
            exclusive_only: lock.kind == LockKind::PercpuRwSem,
            kernel: lock.kind.is_kernel(),
            is_semaphore: false,
            ends_by: match lock.kind {
                LockKind::Thread => Some(EndsBy::Exit),
                LockKind::CondVar => Some(EndsBy::Signal),
                _ => None,
            },
        }
    }

    /// Whether the source records the length of holds of this mode.
    pub(super) fn measures(self, mode: Mode) -> bool {
        self.measures_holds && !(self.exclusive_only && mode == Mode::Shared)
    }

    /// Whether a hold of this mode can only begin when all others have ended.
    pub(super) fn excludes(self, mode: Mode) -> bool {
        mode == Mode::Exclusive && !self.counts
    }
}

impl Rules {
    /// Returns the rules of a trace. A kind of lock that no source lists counts as fully recorded, as in
    /// traces made by hand.
    pub fn new(info: &RunInfo, locks: &[LockRow]) -> Self {
        Self { locks: locks.iter().map(|lock| LockRule::new(info, lock)).collect(), ..Self::default() }
    }

    /// Adds the rule of the next lock.
    pub(super) fn add_lock(&mut self, info: &RunInfo, lock: &LockRow) {
        self.locks.push(LockRule::new(info, lock));
    }

    /// Sets the acquisition sites by stack id. Without them, every stack is a site of its own.
    #[must_use]
    pub fn with_points(self, kernel_points: Vec<u32>, user_points: Vec<u32>) -> Self {
        Self { kernel_points, user_points, ..self }
    }

    /// Adds the threads that tasks created, which a search for deadlocks needs.
    #[must_use]
    pub fn with_tasks(self, tasks: &[TaskRow]) -> Self {
        let mut children = Children::new();
        for task in tasks.iter().filter(|task| task.tid != task.pid) {
            let (Some(parent), Some(start_ns)) = (task.parent, task.start_ns) else { continue };
            children.entry(parent).or_default().push((start_ns, task.id));
        }
        Self { children: Arc::new(children), ..self }
    }

    /// Lets semaphores that are locks have holds.
    #[must_use]
    pub fn with_mutexes(mut self, semaphores: impl IntoIterator<Item = LockId>) -> Self {
        for semaphore in semaphores {
            if let Some(rule) = index(semaphore.0).and_then(|at| self.locks.get_mut(at)) {
                (rule.measures_holds, rule.is_semaphore) = (true, true);
            }
        }
        self
    }

    /// Returns the threads that tasks created.
    pub(super) const fn children(&self) -> &Arc<Children> {
        &self.children
    }

    /// Whether the source records the length of holds of `lock`.
    pub fn measures_holds(&self, lock: LockId) -> bool {
        self.of(lock).measures_holds
    }

    /// Whether the source records the length of holds of this mode.
    pub fn measures(&self, lock: LockId, mode: Mode) -> bool {
        self.of(lock).measures(mode)
    }

    /// Whether a hold of this mode can only begin when all others have ended.
    pub fn excludes(&self, lock: LockId, mode: Mode) -> bool {
        self.of(lock).excludes(mode)
    }

    /// The number of locks in the side table.
    pub(super) fn locks(&self) -> usize {
        self.locks.len()
    }

    /// Returns the rules of a lock.
    #[inline]
    pub(super) fn of(&self, lock: LockId) -> LockRule {
        index(lock.0).and_then(|at| self.locks.get(at)).copied().unwrap_or_default()
    }

    /// Returns the acquisition site of a stack with which a lock of these rules was acquired.
    pub(super) fn point(&self, lock: LockRule, stack: Option<StackId>) -> Option<i64> {
        let points = if lock.kernel { &self.kernel_points } else { &self.user_points };
        let stack = stack?;
        let point = index(stack.0).and_then(|at| points.get(at));
        // A stack without a known site is a site of its own; its negative number differs from all others.
        Some(point.map_or_else(|| -1 - i64::from(stack.0), |point| i64::from(*point)))
    }
}

fn index(id: i32) -> Option<usize> {
    usize::try_from(id).ok()
}
