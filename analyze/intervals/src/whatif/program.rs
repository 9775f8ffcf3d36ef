//! The program of a recording: what each task does, without what it waited for. Built from rows, replayed by
//! `replay`.

use trace_format::{LockId, Mode, TaskId};

/// The slice of Linux's scheduler on a machine with several processors.
pub(crate) const SLICE_NS: i64 = 3_000_000;
/// Maximum number of slices of all tasks. If they live for longer than some seven hours, their slices are
/// longer.
pub(crate) const MAX_SLICES: i64 = 1 << 23;

/// One step of a task. Steps take 16 bytes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The task computes for so many ns, or does what was not recorded.
    Work(i64),
    /// The task sleeps for so many ns.
    Sleep(i64),
    /// The task sleeps until this time, in ns since the start of the program, or does not sleep if it comes
    /// later.
    SleepUntil(i64),
    /// The task is ready to run for so many ns and has no processor. Not used if the off-CPU times of all
    /// tasks were recorded: then the replay decides when they have one.
    Ready(i64),
    /// The task takes a lock.
    Acquire { lock: u32, site: u32, mode: Mode },
    /// The task releases a lock.
    Release { lock: u32, mode: Mode },
    /// The task waits until another one signals.
    Await { signal: u32, object: u32 },
    /// The task lets those go on that wait for this signal.
    Signal(u32),
    /// The task waits until all members of the round of a barrier have come.
    Meet { round: u32, object: u32 },
}

/// The steps of one task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskProgram {
    pub task: TaskId,
    /// The time of its first step, in ns since the start of the program.
    pub start_ns: i64,
    pub actions: Vec<Action>,
}

/// A lock, and what its acquisitions in the recording say about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockFacts {
    pub lock: LockId,
    /// The time from a release to the acquisition of the waiter that it lets go on: the lower quartile,
    /// median and upper quartile.
    pub handoff_ns: [i64; 3],
    /// The number of tasks that may hold it exclusively: 1 but for semaphores.
    pub capacity: u32,
    pub order: QueueOrder,
    /// All waits for it in the recording that ended with it.
    pub waited_ns: i64,
    /// The sites of its acquisitions, sorted.
    pub sites: Vec<u32>,
}

/// The rules of the queue of a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueOrder {
    /// As in glibc: a task that comes may take a free lock although others wait, and a woken waiter that does
    /// not get it waits behind all others.
    #[default]
    Overtaking,
    /// The same, but a woken waiter that does not get it stays the first. Mutexes and semaphores of the
    /// kernel.
    KeepsPlace,
    /// The same, and a waiting writer keeps new readers out. Reader-writer semaphores of the kernel.
    WritersFirst,
    /// Nobody overtakes. Spinlocks of the kernel.
    Fifo,
}

/// A program: tasks in the order of their ids, and what their steps refer to by index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    pub tasks: Vec<TaskProgram>,
    pub locks: Vec<LockFacts>,
    /// The number of signals.
    pub signals: usize,
    /// The number of members of each round of a barrier.
    pub rounds: Vec<u32>,
    /// By object that is waited for idly: the median time from a signal to the end of a wait.
    pub latency_ns: Vec<i64>,
    /// The number of processors, if it is known.
    pub cpus: Option<u32>,
    /// The times at which the number of processors that other programs have changes, and the number from then
    /// on; the last one is 0.
    pub others: Vec<(i64, u32)>,
    /// The time after which a task leaves its processor to others that are ready.
    pub slice_ns: i64,
    /// The time from the start of the first task to the last step of the last one.
    pub recorded_ns: i64,
    pub facts: Facts,
}

/// Numbers that say how much a replay assumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Whether the off-CPU times of all tasks were recorded. If not, work may be sleep, or time without a
    /// processor.
    pub has_all_states: bool,
    /// The number of rows.
    pub rows: u64,
    /// The time of all tasks from their first step to their last one.
    pub lives_ns: i64,
    /// Sleep outside of locks and of waits that a recorded row ended.
    pub sleep_ns: i64,
    /// Idle waits that no recorded row ended.
    pub unknown_wakers: u64,
    /// Time without a processor.
    pub ready_ns: i64,
    /// Time that other programs had processors for which tasks were ready, a processor at a time.
    pub others_ns: i64,
    /// Waits of which the parts are known, and the part in which the waiter neither slept nor was ready.
    pub measured_wait_ns: i64,
    pub spun_ns: i64,
    /// Waits that ended without the lock, and failed attempts.
    pub given_up: u64,
    /// Waits for locks whose holds are not recorded.
    pub unmeasured_ns: i64,
    /// Tasks that began after the first one.
    pub later_tasks: u64,
}

impl Program {
    /// Returns the part of the time that tasks have one of these locks in which they sleep, in millionths.
    pub fn slept_ppm(&self, locks: &[usize]) -> i64 {
        let (mut slept_ns, mut all_ns) = (0_i64, 1_i64);
        for task in &self.tasks {
            let mut held = 0;
            for action in &task.actions {
                match *action {
                    Action::Acquire { lock, .. } if locks.contains(&(lock as usize)) => held += 1,
                    Action::Release { lock, .. } if locks.contains(&(lock as usize)) => held -= 1,
                    Action::Sleep(ns) if held > 0 => {
                        (slept_ns, all_ns) = (slept_ns.saturating_add(ns), all_ns.saturating_add(ns));
                    }
                    Action::Work(ns) | Action::Ready(ns) if held > 0 => all_ns = all_ns.saturating_add(ns),
                    _ => {}
                }
            }
        }
        i64::try_from(i128::from(slept_ns) * 1_000_000 / i128::from(all_ns)).unwrap_or(0)
    }

    /// Returns the index of a lock.
    pub fn lock_index(&self, lock: LockId) -> Option<usize> {
        self.locks.iter().position(|facts| facts.lock == lock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_takes_16_bytes() {
        assert_eq!(size_of::<Action>(), 16);
    }
}
