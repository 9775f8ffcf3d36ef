//! The time of tasks in a program that is being built: work and sleep between their rows.

use trace_format::{Event, TaskState, run_info::Covers};

use super::{Builder, TaskIndex};
use crate::whatif::{others::OffCpu, program::Action};

impl Builder<'_> {
    /// Adds work up to this time.
    fn work(&mut self, task: TaskIndex, to_ns: i64) {
        let task = &mut self.tasks[task];
        let ns = to_ns - task.at_ns;
        if ns > 0 {
            match task.actions.last_mut() {
                Some(Action::Work(last)) => *last += ns,
                _ => task.actions.push(Action::Work(ns)),
            }
            task.at_ns = to_ns;
        }
    }

    /// Adds a sleep, and work before it.
    pub(super) fn sleep(&mut self, task: TaskIndex, from_ns: i64, to_ns: i64) {
        self.work(task, from_ns);
        let task = &mut self.tasks[task];
        let ns = to_ns - task.at_ns.max(from_ns);
        if ns > 0 {
            if task.held.is_empty() {
                task.sleep_ns += ns;
            }
            let is_open = self.idle_open && task.held.is_empty();
            task.actions.push(if is_open { Action::SleepUntil(to_ns) } else { Action::Sleep(ns) });
            task.at_ns = to_ns;
        }
    }

    /// Adds a step that is not time, and work before it.
    pub(super) fn step(&mut self, task: TaskIndex, ns: i64, action: Action) {
        self.work(task, ns);
        self.tasks[task].actions.push(action);
        self.lasts_until(task, ns);
    }

    /// Adds work up to this time, at which the task does something for others that is no step.
    pub(super) fn lasts_until(&mut self, task: TaskIndex, ns: i64) {
        self.work(task, ns);
        let task = &mut self.tasks[task];
        task.end = (task.actions.len(), task.at_ns.max(ns));
    }

    pub(super) fn off_cpu(&mut self, task: TaskIndex, row: &Event) {
        let off_ns = row.wait_ns.unwrap_or(0).max(0);
        let left_ns = row.ts_ns.saturating_sub(off_ns).max(self.tasks[task].last_row_ns);
        if let Some(wait) = self.tasks[task].wait {
            self.is_off(task, left_ns, row.ts_ns, row.ts_ns);
            let of = self.locks.find(wait.lock.0).map(|index| &mut self.locks[index]);
            // It runs again, and tries to take the lock.
            if let Some(of) = of
                && let Some((_, woken_ns)) = of.woken.take_if(|(woken, _)| *woken == task)
            {
                of.wakeups_ns.push(row.ts_ns - woken_ns);
            }
            return;
        }
        let woken_ns = match (row.state, row.blocked_ns) {
            (Some(TaskState::Runnable), _) => left_ns,
            (_, Some(ns)) => left_ns.saturating_add(ns.max(0)).min(row.ts_ns),
            (_, None) => row.ts_ns,
        };
        self.is_off(task, left_ns, woken_ns, row.ts_ns);
        self.work(task, left_ns);
        self.sleep(task, left_ns, woken_ns);
        let task = &mut self.tasks[task];
        let ready_ns = row.ts_ns - task.at_ns;
        if ready_ns > 0 {
            self.facts.ready_ns = self.facts.ready_ns.saturating_add(ready_ns);
            if self.context.covers != Covers::All {
                task.actions.push(Action::Ready(ready_ns));
            }
            task.at_ns = row.ts_ns;
        }
    }

    /// Notes a time off the CPU, if the recording has them for all tasks.
    fn is_off(&mut self, task: TaskIndex, left_ns: i64, ready_ns: i64, back_ns: i64) {
        if self.context.covers == Covers::All {
            self.tasks[task].off_cpu.push(OffCpu { left_ns, ready_ns, back_ns });
        }
    }
}
