//! A slow and obviously correct model of the ledger: it looks at every nanosecond of every task, and at the
//! rows around it. It shares only the purposes of waits with the ledger.

use trace_format::{Event, EventKind, LockId, StackId, Syscall, TaskId, TaskRow, TaskState};

use super::Ledger;
use crate::{engine::PAUSE_NS, input::names::purposes::Purpose};

/// The events, tasks and bounds of a recording, from which the model computes its ledger.
pub(super) struct Model<'a, P> {
    pub(super) events: &'a [Event],
    pub(super) tasks: &'a [TaskRow],
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
    pub(super) covers_all: bool,
    pub(super) purpose: P,
}

impl<P: Fn(LockId, Option<StackId>) -> Purpose> Model<'_, P> {
    pub(super) fn ledger(&self) -> Ledger {
        let mut ledger = Ledger::default();
        for task in self.tasks {
            let rows = self.rows(task.id);
            for ns in self.start_ns..task.exit_ns.unwrap_or(self.end_ns) {
                ledger.alive_ns += 1;
                self.add((task, &rows), ns, &mut ledger);
            }
        }
        ledger
    }

    /// Adds the nanosecond that begins at `ns`.
    fn add(&self, (task, rows): (&TaskRow, &[&Event]), ns: i64, ledger: &mut Ledger) {
        let is_loss = |event: &&Event| event.kind == EventKind::Lost;
        let next = rows.iter().find(|event| event.ts_ns > ns);
        if self
            .events
            .iter()
            .filter(is_loss)
            .any(|loss| loss.ts_ns > ns && next.is_none_or(|row| is_before(loss, row, self.events)))
        {
            ledger.unknown_ns += 1;
            return;
        }
        let loss = self.events.iter().filter(is_loss).rfind(|loss| loss.ts_ns <= ns);
        let known: Vec<&Event> = rows
            .iter()
            .filter(|row| row.ts_ns <= ns && loss.is_none_or(|loss| !is_before(row, loss, self.events)))
            .copied()
            .collect();
        let since_ns =
            known.last().map_or(self.start_ns, |row| row.ts_ns).max(loss.map_or(i64::MIN, |loss| loss.ts_ns));
        let (now_ns, length) = next.map_or((self.end_ns, 0), |row| (row.ts_ns, row.ts_ns - since_ns));

        let mut open: Vec<(LockId, Purpose)> = Vec::new();
        for row in &known {
            let Some(lock) = row.lock else { continue };
            match row.kind {
                EventKind::Wait => open.push((lock, (self.purpose)(lock, row.stack))),
                EventKind::Acquire | EventKind::Abandon => open.retain(|(other, _)| *other != lock),
                _ => {}
            }
        }
        // The trace has the end of this wait and its length, and no row of its begin.
        if let Some(row) = next
            && matches!(row.kind, EventKind::Acquire | EventKind::Abandon)
            && let Some(lock) = row.lock.filter(|lock| open.iter().all(|(other, _)| other != lock))
            && ns >= row.ts_ns - row.wait_ns.unwrap_or(0).clamp(0, length)
        {
            open.push((lock, (self.purpose)(lock, row.stack)));
        }
        let off_ns = next
            .filter(|row| row.kind == EventKind::OffCpu)
            .map_or(0, |row| row.wait_ns.unwrap_or(0).clamp(0, length));
        let asleep_ns = next.map_or(0, |row| match row.state {
            Some(TaskState::Runnable) => 0,
            _ => row.blocked_ns.unwrap_or(off_ns).clamp(0, off_ns),
        });
        let waits_for = |is: &dyn Fn(Purpose) -> bool| open.iter().any(|(_, purpose)| is(*purpose));
        let part = match () {
            () if waits_for(&|purpose| purpose == Purpose::Lock) => &mut ledger.locks_ns,
            () if waits_for(&|purpose| purpose == Purpose::Undecided) => &mut ledger.undecided_ns,
            () if !open.is_empty() => {
                ledger.scheduler_ns += i64::from(waits_for(&|purpose| purpose == Purpose::Scheduler));
                &mut ledger.idle_ns
            }
            () if self.polls(&known, now_ns) => &mut ledger.polling_ns,
            () if ns >= now_ns - off_ns && ns < now_ns - off_ns + asleep_ns => {
                if let Some(call) = next.and_then(|row| row.syscall).filter(|call| *call != Syscall::NONE) {
                    *ledger.asleep_in.entry(call).or_default() += 1;
                }
                &mut ledger.asleep_ns
            }
            () if ns >= now_ns - off_ns => &mut ledger.ready_ns,
            () if self.covers_all && (next.is_some() || task.exit_ns.is_some()) => &mut ledger.ran_ns,
            () => &mut ledger.unknown_ns,
        };
        *part += 1;
    }

    /// Returns the rows of a task, from the first one on that is not the wake-up of another task.
    fn rows(&self, task: TaskId) -> Vec<&Event> {
        let own =
            self.events.iter().filter(|event| event.task == Some(task) && event.kind != EventKind::Lost);
        own.skip_while(|event| event.kind == EventKind::Wake).collect()
    }

    /// Whether the task failed twice in a row to get a lock, less than a pause ago.
    fn polls(&self, known: &[&Event], now_ns: i64) -> bool {
        let locks = known.iter().filter_map(|row| row.lock);
        locks.into_iter().any(|lock| {
            let (mut last_ns, mut tries, mut has) = (0, 0, false);
            for row in known.iter().filter(|row| row.lock == Some(lock)) {
                match row.kind {
                    EventKind::TryFail if !has => {
                        tries = if tries > 0 && row.ts_ns - last_ns <= PAUSE_NS { tries + 1 } else { 1 };
                        last_ns = row.ts_ns;
                    }
                    EventKind::Acquire => {
                        (tries, has) = (0, has || (self.purpose)(lock, row.stack) == Purpose::Lock)
                    }
                    EventKind::Abandon => tries = 0,
                    EventKind::Release => has = false,
                    _ => {}
                }
            }
            tries > 1 && now_ns - last_ns <= PAUSE_NS
        })
    }
}

/// Whether one of two rows comes first in a trace.
fn is_before(one: &Event, other: &Event, events: &[Event]) -> bool {
    let at = |row: &Event| events.iter().position(|event| std::ptr::eq(event, row));
    at(one) < at(other)
}
