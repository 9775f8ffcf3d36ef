//! Links: for the end of each wait, and for each off-CPU time, where a path that arrives there goes on.
//!
//! Rows enter in their order. What is kept are open waits, and the last releases and wake-ups of each lock by two tasks each: one of the two
//! is always another task than the one that waits.

use rustc_hash::FxHashMap;
use trace_format::{Event, EventKind, LockId, LockKind, Mode, StackId, TaskId, TaskState};

use super::{context::Context, log::Log};

/// The place at which a path goes on, and the meaning of the time until the row that has the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) kind: LinkKind,
    pub(super) to: Mark,
}

/// The meaning of the time between the place at which a path goes on and the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkKind {
    Handoff,
    WakeUp,
    Waiting,
    /// The task was woken, and ready to run.
    Ready,
    /// The task was off the CPU, and no task that was recorded woke it.
    OffCpu,
}

impl LinkKind {
    const ALL: [Self; 5] = [Self::Handoff, Self::WakeUp, Self::Waiting, Self::Ready, Self::OffCpu];
}

/// A row of a task, or with the position 0 an instant of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) task: TaskId,
    pub(super) ns: i64,
    /// The number of the row, from 1.
    pub(super) position: u64,
}

impl Link {
    /// Adds the link of the row at this time and position to a log.
    pub(super) fn push(self, (ns, position): (i64, u64), log: &mut Log) {
        let Mark { task, ns: to_ns, position: to } = self.to;
        log.push(if to == 0 { 0 } else { position - to });
        log.push(ns.wrapping_sub(to_ns).cast_unsigned());
        log.push_id(task.0);
        log.push(self.kind as u64);
    }

    /// Removes a link from a log.
    pub(super) fn pop((ns, position): (i64, u64), log: &mut Log) -> Self {
        let kind = LinkKind::ALL[log.pop() as usize % LinkKind::ALL.len()];
        let task = TaskId(log.pop_id());
        let ns = ns.wrapping_sub(log.pop().cast_signed());
        let position = match log.pop() {
            0 => 0,
            distance => position - distance,
        };
        Self { kind, to: Mark { task, ns, position } }
    }
}

/// A wait that is open.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenWait {
    pub(super) lock: LockId,
    pub(super) stack: Option<StackId>,
    pub(super) since: Mark,
    /// The last task to arrive at the barrier, once all did.
    last: Option<Mark>,
    /// The mutex that was released for it, if it is for a condition variable.
    mutex: Option<LockId>,
}

/// The open waits of all tasks, and what could end them.
#[derive(Debug, Default)]
pub(super) struct Links {
    tasks: FxHashMap<TaskId, TaskWaits>,
    locks: FxHashMap<LockId, LockMarks>,
    lost_ns: Option<i64>,
}

#[derive(Debug)]
struct TaskWaits {
    last_row_ns: i64,
    waits: Vec<OpenWait>,
    /// The time at which the last off-CPU time ended, and the task that woke it.
    woken: Option<(i64, Mark)>,
    /// The lock that it released last, and when.
    released: Option<(LockId, i64)>,
}

/// The last rows of a lock that can end waits. Marks of one array are of different tasks, the last one first.
#[derive(Debug, Default)]
struct LockMarks {
    released: Last,
    released_exclusively: Last,
    woke: Last,
    /// Those who wait for a barrier.
    round: Vec<Mark>,
}

#[derive(Debug, Default)]
struct Last([Option<Mark>; 2]);

impl Last {
    fn set(&mut self, mark: Mark) {
        if self.0[0].is_some_and(|last| last.task != mark.task) {
            self.0[1] = self.0[0];
        }
        self.0[0] = Some(mark);
    }

    /// Returns the last one of another task at or after this time.
    fn of_another(&self, task: TaskId, since_ns: i64) -> Option<Mark> {
        self.0.iter().flatten().find(|mark| mark.task != task && mark.ns >= since_ns).copied()
    }
}

impl Links {
    /// Adds a row of a task, and returns its link.
    pub(super) fn row(
        &mut self,
        task: TaskId,
        row: &Event,
        position: u64,
        context: &Context<'_>,
    ) -> Option<Link> {
        let mark = Mark { task, ns: row.ts_ns, position };
        let link = match (row.kind, row.lock) {
            (EventKind::Wait, Some(lock)) => {
                self.wait(lock, row, mark, context);
                None
            }
            (EventKind::Acquire | EventKind::Abandon, Some(lock)) => self.wait_ends(lock, row, mark, context),
            (EventKind::Release, Some(lock)) => {
                self.task(task).released = Some((lock, row.ts_ns));
                let marks = self.locks.entry(lock).or_default();
                marks.released.set(mark);
                if context.rules.excludes(lock, row.mode.unwrap_or(Mode::Exclusive)) {
                    marks.released_exclusively.set(mark);
                }
                None
            }
            (EventKind::Wake, Some(lock)) => {
                self.locks.entry(lock).or_default().woke.set(mark);
                None
            }
            (EventKind::OffCpu, _) => self.off_cpu(row, mark, context),
            _ => None,
        };
        self.task(task).last_row_ns = row.ts_ns;
        link
    }

    /// Forgets everything: no link leads across a loss.
    pub(super) fn lost(&mut self, ns: i64) {
        *self = Self { lost_ns: Some(ns), ..Self::default() };
    }

    /// Returns the open wait of a task that began first.
    pub(super) fn open_wait(&self, task: TaskId) -> Option<OpenWait> {
        self.tasks.get(&task)?.waits.first().copied()
    }

    fn task(&mut self, task: TaskId) -> &mut TaskWaits {
        let last_row_ns = self.lost_ns.unwrap_or(i64::MIN);
        let new = || TaskWaits { last_row_ns, waits: Vec::new(), woken: None, released: None };
        self.tasks.entry(task).or_insert_with(new)
    }

    fn wait(&mut self, lock: LockId, row: &Event, mark: Mark, context: &Context<'_>) {
        let of = self.task(mark.task);
        if of.waits.iter().any(|wait| wait.lock == lock) {
            return;
        }
        let is_condition = context.kind(lock) == Some(LockKind::CondVar);
        let mutex = of.released.filter(|(_, ns)| is_condition && *ns == mark.ns).map(|(mutex, _)| mutex);
        of.waits.push(OpenWait { lock, stack: row.stack, since: mark, last: None, mutex });
        if context.kind(lock) == Some(LockKind::Barrier) {
            self.locks.entry(lock).or_default().round.push(mark);
        }
    }

    /// Ends a wait, if there was one.
    fn wait_ends(&mut self, lock: LockId, row: &Event, mark: Mark, context: &Context<'_>) -> Option<Link> {
        let Mark { task, ns, .. } = mark;
        if context.kind(lock) == Some(LockKind::Barrier) {
            self.end_round(lock, row, task);
        }
        let waits = &mut self.task(task).waits;
        let open = waits.iter().position(|wait| wait.lock == lock).map(|at| waits.remove(at));
        let wait = match (open, row.wait_ns) {
            (Some(wait), _) => wait,
            (None, Some(wait_ns)) if wait_ns > 0 => {
                let since_ns = ns.saturating_sub(wait_ns);
                // Its begin may have been lost.
                if self.lost_ns.is_some_and(|lost_ns| since_ns <= lost_ns) {
                    return None;
                }
                let since = Mark { task, ns: since_ns, position: 0 };
                OpenWait { lock, stack: row.stack, since, last: None, mutex: None }
            }
            _ => return None,
        };
        let (since, is_idle) = (wait.since, context.is_idle(lock, wait.stack));
        let unseen = Link { kind: LinkKind::Waiting, to: since };
        if row.kind == EventKind::Abandon && !is_idle {
            return Some(unseen);
        }
        let kind = if is_idle { LinkKind::WakeUp } else { LinkKind::Handoff };
        let ended = wait.last.filter(|last| last.task != task).or_else(|| {
            let marks = self.locks.get(&lock)?;
            if is_idle {
                // A time-out is no signal.
                let woke =
                    marks.woke.of_another(task, since.ns).filter(|_| row.kind == EventKind::Acquire)?;
                let mutex = wait.mutex.and_then(|mutex| self.locks.get(&mutex));
                let freed = mutex.and_then(|marks| marks.released.of_another(task, woke.ns));
                return freed.filter(|freed| freed.position > woke.position).or(Some(woke));
            }
            let mode = row.mode.unwrap_or(Mode::Exclusive);
            let any = marks.released.of_another(task, since.ns);
            if context.rules.excludes(lock, mode) {
                return any;
            }
            marks.released_exclusively.of_another(task, since.ns).or(any)
        });
        let to = ended.or_else(|| self.waker(row, since, context));
        Some(to.map_or(unseen, |to| Link { kind, to }))
    }

    /// Closes the round of a barrier at the first task that leaves it.
    fn end_round(&mut self, lock: LockId, row: &Event, task: TaskId) {
        let Some(marks) = self.locks.get_mut(&lock) else { return };
        let Some(at) = marks.round.iter().position(|mark| mark.task == task) else { return };
        if row.kind == EventKind::Abandon {
            marks.round.remove(at);
            return;
        }
        let round = std::mem::take(&mut marks.round);
        let last = round.last().copied();
        for mark in round {
            let waits = self.tasks.get_mut(&mark.task).map(|task| &mut task.waits);
            if let Some(wait) = waits.and_then(|waits| waits.iter_mut().find(|wait| wait.lock == lock)) {
                wait.last = last;
            }
        }
    }

    /// Returns the task that ended a wait by waking the task, and when.
    fn waker(&self, row: &Event, since: Mark, context: &Context<'_>) -> Option<Mark> {
        if let Some(waker) = self.peer(row, since.task, context) {
            return Some(Mark { ns: waker.ns.max(since.ns), ..waker });
        }
        let (_, waker) = self.tasks.get(&since.task)?.woken.filter(|(ns, _)| *ns >= since.ns)?;
        Some(Mark { ns: waker.ns.max(since.ns), ..waker })
    }

    /// Returns the other task that the row names as its waker, if it was recorded.
    fn peer(&self, row: &Event, task: TaskId, context: &Context<'_>) -> Option<Mark> {
        let peer = row.peer_task.filter(|peer| *peer != task && self.tasks.contains_key(peer))?;
        if row.peer_stack.is_some_and(|stack| context.interrupts.contains(&stack)) {
            return None;
        }
        let ns = row.ts_ns.saturating_sub(row.runq_ns.unwrap_or(0).max(0));
        Some(Mark { task: peer, ns, position: 0 })
    }

    fn off_cpu(&mut self, row: &Event, mark: Mark, context: &Context<'_>) -> Option<Link> {
        let Mark { task, ns, .. } = mark;
        if row.state == Some(TaskState::Mixed) {
            // When the task was off-CPU is not known: the time stays its own.
            return None;
        }
        let waker = self.peer(row, task, context).filter(|_| row.state != Some(TaskState::Runnable));
        let of = self.task(task);
        let left_ns = ns.saturating_sub(row.wait_ns.unwrap_or(0).max(0)).max(of.last_row_ns);
        let waker = waker.map(|waker| Mark { ns: waker.ns.max(left_ns), ..waker });
        if !of.waits.is_empty() {
            if let Some(waker) = waker {
                of.woken = Some((ns, waker));
            }
            return None;
        }
        Some(match waker {
            Some(to) => Link { kind: LinkKind::Ready, to },
            None => Link { kind: LinkKind::OffCpu, to: Mark { task, ns: left_ns, position: 0 } },
        })
    }
}
