//! A slow and obviously correct model of paths: for each place of a path it looks through all rows for the
//! place before it, and it names each nanosecond.

use std::collections::BTreeMap;

use trace_format::{Event, EventKind, LockId, LockKind, Mode, TaskId, TaskState};

use super::{Context, Root};
use crate::items::State;

/// The content of a path in a nanosecond.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Label {
    Task(Vec<LockId>, State),
    Handoff(LockId),
    WakeUp(LockId),
    Waiting(LockId, bool),
    Before,
    Lost,
}

/// Returns the task and the label of each nanosecond of a root, and the jumps by lock. The rows are in their
/// order.
pub(super) fn path(
    rows: &[Event],
    context: &Context<'_>,
    root: Root,
) -> (Vec<(TaskId, Label)>, BTreeMap<LockId, i64>) {
    let end = rows.iter().position(|row| row.ts_ns > root.to_ns).unwrap_or(rows.len());
    let history = History { rows: &rows[..end], context };
    let (mut labels, mut jumps) = (BTreeMap::new(), BTreeMap::new());
    let mut name = |task: TaskId, from_ns: i64, to_ns: i64, label: &Label| {
        for ns in from_ns.max(root.from_ns)..to_ns {
            assert!(labels.insert(ns, (task, label.clone())).is_none(), "{ns} has a second label");
        }
    };
    // The row to begin the search below, and the rows that do not count.
    let (mut task, mut at_ns, mut below, mut until) = (root.task, root.to_ns, end, end);
    if let Some(wait) = history.open_waits(task, end).first() {
        let Event { lock, ts_ns, stack, .. } = rows[*wait];
        let lock = lock.unwrap();
        name(task, ts_ns, at_ns, &Label::Waiting(lock, (context.idle)(lock, stack)));
        (at_ns, until) = (ts_ns, wait + 1);
    }
    while at_ns > root.from_ns {
        let creator = (context.start)(task)
            .filter(|started| started.ns <= at_ns)
            .and_then(|started| Some((started.ns, started.creator?)));
        let start_ns = creator.map_or(i64::MIN, |(start_ns, _)| start_ns);
        let is_next = |at: &usize| {
            let row = &rows[*at];
            let is_of_task =
                row.task == Some(task) && row.ts_ns <= at_ns && row.ts_ns > start_ns && *at < until;
            row.kind == EventKind::Lost || is_of_task
        };
        let next = (0..below).rev().find(is_next);
        if let Some((start_ns, creator)) = creator
            && next.is_none_or(|at| rows[at].ts_ns <= start_ns)
        {
            name(task, start_ns, at_ns, &Label::Task(Vec::new(), State::Running));
            (task, at_ns, until) = (creator, start_ns, end);
            continue;
        }
        let Some(at) = next else {
            let start_ns = (context.start)(task).map_or(i64::MAX, |started| started.ns).min(at_ns);
            name(task, start_ns, at_ns, &Label::Task(Vec::new(), State::Running));
            name(task, root.from_ns, start_ns, &Label::Before);
            break;
        };
        let row = rows[at];
        if row.kind == EventKind::Lost {
            name(task, root.from_ns, at_ns, &Label::Lost);
            break;
        }
        let held = history.held(task, at + 1);
        let is_idle = row.lock.is_some_and(|lock| (context.idle)(lock, row.stack));
        let own = |state| Label::Task(held.clone(), state);
        let here = match row.kind {
            EventKind::Wait => Label::Waiting(row.lock.unwrap(), is_idle),
            _ => own(State::Running),
        };
        name(task, row.ts_ns, at_ns, &here);
        (at_ns, below, until) = (row.ts_ns, at, end);
        if at_ns <= root.from_ns {
            break;
        }
        if row.kind == EventKind::OffCpu {
            if !history.open_waits(task, at).is_empty() {
                continue;
            }
            let left_ns = history.left_ns(at);
            if let Some((peer, ns)) = history.peer(at) {
                name(task, ns.max(left_ns), at_ns, &own(State::Ready));
                (task, at_ns) = (peer, ns.max(left_ns));
                continue;
            }
            for ns in left_ns.max(root.from_ns)..at_ns {
                name(task, ns, ns + 1, &own(state(&row, ns - left_ns)));
            }
            at_ns = left_ns;
            continue;
        }
        let Some((since_ns, wait)) = history.wait(at) else { continue };
        let lock = row.lock.unwrap();
        let stack = wait.map_or(row.stack, |wait| rows[wait].stack);
        let is_idle = (context.idle)(lock, stack);
        let ended = history
            .ended_by(at, since_ns, is_idle)
            .map(|by| (rows[by].task.unwrap(), rows[by].ts_ns, by + 1));
        let woken = || history.waker(at, since_ns).map(|(peer, ns)| (peer, ns.max(since_ns), end));
        let is_given_up = row.kind == EventKind::Abandon && !is_idle;
        match ended.or_else(woken).filter(|_| !is_given_up) {
            Some((by, ns, rest)) => {
                let label = if is_idle { Label::WakeUp(lock) } else { Label::Handoff(lock) };
                name(task, ns, at_ns, &label);
                if !is_idle {
                    *jumps.entry(lock).or_default() += 1;
                }
                (task, at_ns, until) = (by, ns, rest);
            }
            None => {
                let is_idle = row.lock.is_some_and(|lock| (context.idle)(lock, row.stack));
                name(task, since_ns, at_ns, &Label::Waiting(lock, is_idle));
                (at_ns, until) = (since_ns, wait.map_or(end, |wait| wait + 1));
            }
        }
    }
    (labels.into_values().collect(), jumps)
}

/// The rows up to the end of the root.
struct History<'a> {
    rows: &'a [Event],
    context: &'a Context<'a>,
}

impl History<'_> {
    /// Returns the first row after the last loss before a row.
    fn epoch(&self, before: usize) -> usize {
        self.rows[..before].iter().rposition(|row| row.kind == EventKind::Lost).map_or(0, |lost| lost + 1)
    }

    /// Returns the begins of the waits of a task that are open before a row.
    fn open_waits(&self, task: TaskId, before: usize) -> Vec<usize> {
        let mut open: Vec<usize> = Vec::new();
        for at in self.epoch(before)..before {
            let row = &self.rows[at];
            if row.task != Some(task) {
                continue;
            }
            match row.kind {
                EventKind::Wait if !open.iter().any(|wait| self.rows[*wait].lock == row.lock) => {
                    open.push(at)
                }
                EventKind::Acquire | EventKind::Abandon => {
                    open.retain(|wait| self.rows[*wait].lock != row.lock)
                }
                _ => {}
            }
        }
        open
    }

    /// Returns the begin of the wait that a row ends, and the row of the begin, if it was seen.
    fn wait(&self, at: usize) -> Option<(i64, Option<usize>)> {
        let row = &self.rows[at];
        if !matches!(row.kind, EventKind::Acquire | EventKind::Abandon) {
            return None;
        }
        let open = self.open_waits(row.task?, at);
        if let Some(wait) = open.into_iter().find(|wait| self.rows[*wait].lock == row.lock) {
            return Some((self.rows[wait].ts_ns, Some(wait)));
        }
        let since_ns = row.ts_ns - row.wait_ns.filter(|ns| *ns > 0)?;
        let epoch = self.epoch(at);
        (epoch == 0 || since_ns > self.rows[epoch - 1].ts_ns).then_some((since_ns, None))
    }

    /// Returns the row of another task that ended a wait.
    fn ended_by(&self, at: usize, since_ns: i64, is_idle: bool) -> Option<usize> {
        let row = &self.rows[at];
        let lock = row.lock?;
        let excludes =
            |mode: Option<Mode>| self.context.rules.excludes(lock, mode.unwrap_or(Mode::Exclusive));
        let last_since = |since_ns: i64, is_it: &dyn Fn(&Event) -> bool| {
            (self.epoch(at)..at).rev().find(|by| {
                let by = &self.rows[*by];
                by.lock == Some(lock)
                    && by.task.is_some()
                    && by.task != row.task
                    && by.ts_ns >= since_ns
                    && is_it(by)
            })
        };
        let last = |is_it: &dyn Fn(&Event) -> bool| last_since(since_ns, is_it);
        if is_idle {
            let is_thread = (self.context.kind)(lock) == Some(LockKind::Thread);
            let woke =
                last_since(if is_thread { i64::MIN } else { since_ns }, &|by| by.kind == EventKind::Wake);
            let woke = woke.filter(|_| row.kind == EventKind::Acquire)?;
            let freed = self.mutex(at).and_then(|mutex| {
                (woke + 1..at).rev().find(|by| {
                    let by = &self.rows[*by];
                    by.kind == EventKind::Release
                        && by.lock == Some(mutex)
                        && by.task.is_some()
                        && by.task != row.task
                })
            });
            return freed.or(Some(woke));
        }
        last(&|by| by.kind == EventKind::Release && (excludes(by.mode) || excludes(row.mode)))
            .or_else(|| last(&|by| by.kind == EventKind::Release))
    }

    /// Returns the lock that a task released for the condition wait that a row ends.
    fn mutex(&self, at: usize) -> Option<LockId> {
        let (_, wait) = self.wait(at)?;
        let begin = &self.rows[wait?];
        let wait = wait?;
        if begin.lock.and_then(|lock| (self.context.kind)(lock)) != Some(LockKind::CondVar) {
            return None;
        }
        let is_release =
            |row: &&Event| row.task == begin.task && row.kind == EventKind::Release && row.lock.is_some();
        let release = self.rows[self.epoch(wait)..wait].iter().rfind(is_release)?;
        release.lock.filter(|_| release.ts_ns == begin.ts_ns)
    }

    /// Returns the peer of a row and the time of the wake-up, if the peer was recorded.
    fn peer(&self, at: usize) -> Option<(TaskId, i64)> {
        let row = &self.rows[at];
        let peer = row.peer_task.filter(|peer| Some(*peer) != row.task)?;
        let is_recorded = self.rows[self.epoch(at)..at].iter().any(|other| other.task == Some(peer));
        let is_wake_up = row.kind != EventKind::OffCpu || row.state != Some(TaskState::Runnable);
        (is_recorded && is_wake_up).then(|| (peer, row.ts_ns - row.runq_ns.unwrap_or(0)))
    }

    /// Returns the task that ended a wait by a wake-up. The row of the wait names it, or else the row of the
    /// last off-CPU time.
    fn waker(&self, at: usize, since_ns: i64) -> Option<(TaskId, i64)> {
        let task = self.rows[at].task?;
        self.peer(at).or_else(|| {
            let is_woken = |off: &usize| {
                let row = &self.rows[*off];
                row.task == Some(task)
                    && row.kind == EventKind::OffCpu
                    && !self.open_waits(task, *off).is_empty()
                    && self.peer(*off).is_some()
            };
            let off = (self.epoch(at)..at).rev().find(is_woken)?;
            let (peer, ns) = self.peer(off)?;
            (self.rows[off].ts_ns >= since_ns).then(|| (peer, ns.max(self.left_ns(off))))
        })
    }

    /// Returns the start of an off-CPU time.
    fn left_ns(&self, at: usize) -> i64 {
        let row = &self.rows[at];
        let epoch = self.epoch(at);
        let before = self.rows[epoch..at].iter().rfind(|other| other.task == row.task).map(|row| row.ts_ns);
        let lost = epoch.checked_sub(1).map(|lost| self.rows[lost].ts_ns);
        (row.ts_ns - row.wait_ns.unwrap_or(0)).max(before.or(lost).unwrap_or(i64::MIN))
    }

    /// Returns the locks that a task holds before a row, in the order in which it acquired them.
    fn held(&self, task: TaskId, before: usize) -> Vec<LockId> {
        let rules = &self.context.rules;
        let mut all: Vec<(TaskId, LockId, Mode)> = Vec::new();
        for row in &self.rows[self.epoch(before)..before] {
            let (Some(of), Some(lock)) = (row.task, row.lock) else { continue };
            let mode = row.mode.unwrap_or(Mode::Exclusive);
            match row.kind {
                EventKind::Acquire => {
                    all.retain(|(other, held, held_mode)| {
                        let excludes = rules.excludes(lock, mode) || rules.excludes(lock, *held_mode);
                        *other == of || *held != lock || !excludes
                    });
                    if rules.measures(lock, mode) {
                        all.push((of, lock, mode));
                    }
                }
                EventKind::Release => {
                    let it = all.iter().rposition(|hold| *hold == (of, lock, mode));
                    let any = || all.iter().rposition(|(other, held, _)| (*other, *held) == (of, lock));
                    it.or_else(any).map(|at| all.remove(at));
                }
                EventKind::Destroy => all.retain(|(_, held, _)| *held != lock),
                _ => {}
            }
        }
        all.iter().filter(|(of, ..)| *of == task).map(|(_, lock, _)| *lock).collect()
    }
}

/// Returns the state of a task so long after it left the CPU.
fn state(row: &Event, ns: i64) -> State {
    match row.state {
        Some(TaskState::Runnable) => State::Preempted,
        _ if row.blocked_ns.is_some_and(|blocked_ns| ns >= blocked_ns) => State::Ready,
        Some(TaskState::Uninterruptible) => State::Uninterruptible,
        Some(TaskState::Stopped | TaskState::Traced) => State::Stopped,
        _ => State::Asleep,
    }
}
