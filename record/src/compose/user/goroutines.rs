//! Turns facts about waits of goroutines for mutexes of Go into rows.
//!
//! A goroutine that waits leaves its thread, and may go on in another one. So a wait belongs to the
//! goroutine, which is a task of its own in the trace. Meanwhile, the scheduler waits for futexes on the
//! thread.

use rustc_hash::FxHashMap;
use trace_format::{Event, EventKind, LockId, Mode, StackId, TaskId};

use super::fact::Fact;
use crate::compose::{
    header::{Context, Header},
    locks::Space,
};

/// The goroutines that wait, and who released the locks last.
#[derive(Debug, Default)]
pub(crate) struct Goroutines {
    waiting: FxHashMap<(Space, u64), Waiting>,
    /// The last release of each lock with waiters.
    releases: FxHashMap<LockId, Released>,
}

#[derive(Clone, Copy, Debug)]
struct Released {
    ts_ns: i64,
    by: TaskId,
    stack: Option<StackId>,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    lock: LockId,
    since_ns: i64,
    stack: Option<StackId>,
}

impl Goroutines {
    pub(crate) fn wait(&mut self, at: &Header, fact: &Fact, goroutine: u64, context: &mut Context<'_>) {
        let Some(task) = task(at, goroutine, context) else { return };
        let lock = context.lock(at, fact);
        if self.waiting.get(&(at.space, goroutine)).is_some_and(|open| open.lock == lock) {
            // A function of Go that has to grow its stack begins again.
            return;
        }
        context.out.push(Event { task: Some(task), mode: fact.mode(), ..at.row(EventKind::Wait, lock) });
        let waiting = Waiting { lock, since_ns: at.ts_ns, stack: at.stack };
        if self.waiting.insert((at.space, goroutine), waiting).is_some() {
            *context.unpaired += 1;
        }
    }

    /// Adds the end of the goroutine's wait.
    pub(crate) fn acquired(&mut self, at: &Header, goroutine: u64, context: &mut Context<'_>) {
        let Some(waiting) = self.waiting.remove(&(at.space, goroutine)) else {
            // It began before the recording.
            *context.unpaired += 1;
            return;
        };
        let Some(task) = task(at, goroutine, context) else { return };
        let during_wait = |last: &&Released| last.ts_ns >= waiting.since_ns && last.by != task;
        let release = self.releases.get(&waiting.lock).filter(during_wait);
        context.locks.touch(waiting.lock, at.ts_ns);
        context.out.push(Event {
            task: Some(task),
            stack: waiting.stack,
            mode: Some(Mode::Exclusive),
            wait_ns: Some((at.ts_ns - waiting.since_ns).max(0)),
            peer_task: release.map(|last| last.by),
            peer_stack: release.and_then(|last| last.stack),
            ..at.row(EventKind::Acquire, waiting.lock)
        });
    }

    /// Adds the release of a lock for which others wait.
    pub(crate) fn released(&mut self, at: &Header, fact: &Fact, goroutine: u64, context: &mut Context<'_>) {
        let Some(task) = task(at, goroutine, context) else { return };
        let lock = context.lock(at, fact);
        context.out.push(Event { task: Some(task), ..at.row(EventKind::Wake, lock) });
        self.releases.insert(lock, Released { ts_ns: at.ts_ns, by: task, stack: at.stack });
    }

    /// Forgets what is open: records are missing.
    pub(crate) fn lost(&mut self) {
        self.waiting.clear();
        self.releases.clear();
    }
}

fn task(at: &Header, goroutine: u64, context: &mut Context<'_>) -> Option<TaskId> {
    let Space::Process(process, pid) = at.space else { return None };
    Some(context.tasks.goroutine(process, pid, goroutine))
}
