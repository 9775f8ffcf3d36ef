//! Links: for the end of each wait, and for each off-CPU time, where a path that arrives there goes on.

use trace_format::{EventKind, EventRow, LockId, Mode};

use super::{
    forward::Forward,
    locks::{LockIndex, Mark},
    notes::{Link, LinkKind, Place, TaskIndex},
    tasks::{OpenWait, Task},
};
use crate::causes::StatePart;

impl Forward<'_> {
    /// Adds the begin of a wait.
    pub(super) fn wait(&mut self, ns: i64, task: TaskIndex, id: LockId, row: &impl EventRow) {
        let index = self.locks.index(id, self.context);
        let stack = row.stack();
        let is_idle = (self.context.idle)(id, stack);
        let of = &mut self.tasks[task];
        of.notes.wait(ns, &of.held, (id, is_idle));
        if of.waits.iter().any(|wait| wait.lock == index) {
            return;
        }
        let since = self.mark(task);
        let lock = self.locks.get(index);
        let of = &mut self.tasks[task];
        let is_released_now = |released: &(LockIndex, i64)| lock.is_condition && released.1 == ns;
        let mutex = of.released.filter(is_released_now).map(|(mutex, _)| mutex);
        of.waits.push(OpenWait { lock: index, id, stack, since, mutex });
        if lock.is_barrier {
            lock.rare().rounds.arrive(since);
        }
    }

    /// Ends a wait, if there was one.
    #[inline]
    pub(super) fn wait_ends(
        &mut self,
        ns: i64,
        task: TaskIndex,
        (index, id): (LockIndex, LockId),
        row: &impl EventRow,
    ) -> Option<Link> {
        let last = self.locks.get(index).has_rare().and_then(|rare| {
            // Only barriers have rounds.
            rare.rounds.leave(task, row.kind() == EventKind::Abandon)
        });
        let waits = &mut self.tasks[task].waits;
        let open = waits.iter().position(|wait| wait.lock == index).map(|at| waits.remove(at));
        let wait = match (open, row.wait_ns()) {
            (Some(wait), _) => wait,
            (None, Some(wait_ns)) if wait_ns > 0 => {
                let since_ns = ns.saturating_sub(wait_ns);
                // Its begin may have been lost.
                if self.losses.last().is_some_and(|lost_ns| since_ns <= *lost_ns) {
                    return None;
                }
                let since = Mark::instant(task, since_ns);
                OpenWait { lock: index, id, stack: row.stack(), since, mutex: None }
            }
            _ => return None,
        };
        Some(self.ended(ns, task, &wait, last, row))
    }

    fn ended(
        &mut self,
        ns: i64,
        task: TaskIndex,
        wait: &OpenWait,
        last: Option<Mark>,
        row: &impl EventRow,
    ) -> Link {
        let (since, id, is_acquired) = (wait.since, wait.id, row.kind() == EventKind::Acquire);
        let is_idle = (self.context.idle)(id, wait.stack);
        let last = last.filter(|last| last.task != task);
        let by_other = || self.ended_by(ns, task, wait, is_idle, row);
        let to = if is_acquired || is_idle { last.or_else(by_other) } else { None };
        match to {
            Some(to) => {
                let kind = if is_idle { LinkKind::WakeUp } else { LinkKind::Handoff };
                Link::To { kind, lock: id, is_idle, to: self.goes_on(ns, to) }
            }
            None => {
                let is_idle = (self.context.idle)(id, row.stack());
                Link::To { kind: LinkKind::Waiting, lock: id, is_idle, to: self.goes_on(ns, since) }
            }
        }
    }

    /// Returns the row of another task that ended a wait.
    fn ended_by(
        &mut self,
        ns: i64,
        task: TaskIndex,
        wait: &OpenWait,
        is_idle: bool,
        row: &impl EventRow,
    ) -> Option<Mark> {
        let since_ns = wait.since.ns;
        let ended = if is_idle { self.woken_by(task, wait, row) } else { self.freed_by(task, wait, row) };
        ended.or_else(|| {
            // The task that woke it, by this row, or by an off-CPU time in the wait.
            let is_since = |(woken_ns, _): &(i64, Mark)| *woken_ns >= since_ns;
            let woken = || self.tasks[task].woken.filter(is_since).map(|(_, waker)| waker);
            let waker = self.waker(ns, task, row).or_else(woken)?;
            Some(waker.not_before(since_ns))
        })
    }

    /// Returns the release that ended a wait.
    fn freed_by(&mut self, task: TaskIndex, wait: &OpenWait, row: &impl EventRow) -> Option<Mark> {
        let lock = self.locks.get(wait.lock);
        let any = lock.released.of_another(&task, wait.since.ns);
        if lock.is_exclusive && row.mode() != Some(Mode::Shared) {
            return any.copied();
        }
        lock.released_exclusively().of_another(&task, wait.since.ns).or(any).copied()
    }

    /// Returns the wake-up that ended an idle wait, or the release of the mutex that came later. A time-out
    /// is no signal.
    fn woken_by(&mut self, task: TaskIndex, wait: &OpenWait, row: &impl EventRow) -> Option<Mark> {
        let lock = self.locks.get(wait.lock);
        let since_ns = if lock.is_thread { i64::MIN } else { wait.since.ns };
        let woke = lock.has_rare()?.woke.of_another(&task, since_ns).copied();
        let woke = woke.filter(|_| row.kind() == EventKind::Acquire)?;
        let mutex = wait.mutex.map(|mutex| self.locks.get(mutex));
        let freed = mutex.and_then(|lock| lock.released.of_another(&task, woke.ns).copied());
        freed.filter(|freed| freed.value.position > woke.value.position).or(Some(woke))
    }

    /// Returns the other task that the row names as its waker, if it was recorded.
    fn waker(&self, ns: i64, task: TaskIndex, row: &impl EventRow) -> Option<Mark> {
        let peer = self.tasks.find(row.waker()?.0)?;
        let is_interrupt = || row.peer_stack().is_some_and(|stack| self.interrupts.contains(&stack));
        if peer == task || !self.tasks[peer].has_rows || is_interrupt() {
            return None;
        }
        Some(Mark::instant(peer, ns.saturating_sub(row.runq_ns().unwrap_or(0).max(0))))
    }

    /// Returns the link of an off-CPU time.
    pub(super) fn off_cpu(&mut self, ns: i64, task: TaskIndex, row: &impl EventRow) -> Option<Link> {
        let waker = self.waker(ns, task, row);
        let of = &mut self.tasks[task];
        let left_ns = ns.saturating_sub(row.wait_ns().unwrap_or(0).max(0)).max(of.last_row_ns);
        let waker = waker.map(|waker| waker.not_before(left_ns));
        if !of.waits.is_empty() {
            if let Some(waker) = waker {
                of.woken = Some((ns, waker));
            }
            return None;
        }
        Some(match waker {
            // No lock has to do with it.
            Some(to) => {
                let to = self.goes_on(ns, to);
                Link::To { kind: LinkKind::Ready, lock: LockId(0), is_idle: false, to }
            }
            None => {
                let [_, off, _] = StatePart::between(left_ns, row, true);
                Link::OffCpu { state: off.state, left_ns, woken_ns: off.until_ns }
            }
        })
    }

    /// Returns the place at which a path goes on that leads from a row of this time to a mark.
    fn goes_on(&mut self, ns: i64, to: Mark) -> Place {
        // A path that comes to a task at its start goes on at the creator at once. Rows of that nanosecond
        // behind this row do not count.
        if to.ns == ns
            && let Some((start_ns, creator)) = self.created(to.task)
            && start_ns == ns
        {
            let creator = self.tasks.number(creator.0, Task::default);
            self.activate(creator);
            return self.place(Mark::instant(creator, ns));
        }
        self.place(to)
    }
}
