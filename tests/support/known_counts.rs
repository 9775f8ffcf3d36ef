//! The counts of `fixtures/programs/known_counts.c`: those that it prints, and those that a trace has of its
//! mutexes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;

use trace_format::{Event, EventKind, LockKind, LockRow, TaskRow};

/// Counts by lock, thread and event.
pub type Counts = BTreeMap<(String, i32, String), i64>;

/// Reads the counts that the program prints.
pub fn printed(stdout: &str) -> Counts {
    let lines = stdout.lines().filter_map(|line| line.strip_prefix("COUNT "));
    lines
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            ((words[0].to_owned(), words[1].parse().unwrap(), words[2].to_owned()), words[3].parse().unwrap())
        })
        .collect()
}

/// Returns the name of a lock, if it is one of the program's mutexes.
pub fn mutex_name(lock: &LockRow) -> Option<&str> {
    let name = lock.name.as_deref()?.split('+').next()?;
    let ours = lock.kind == LockKind::PthreadMutex && ["hot", "cold", "gate", "own"].contains(&name);
    ours.then_some(name)
}

/// Counts the events of the program's mutexes.
pub fn counts(events: &[Event], locks: &[LockRow], tasks: &[TaskRow]) -> Counts {
    const COUNTED: [EventKind; 4] =
        [EventKind::Acquire, EventKind::Release, EventKind::TryFail, EventKind::Abandon];
    let mut counts = Counts::new();
    for event in events.iter().filter(|event| COUNTED.contains(&event.kind)) {
        let Some(lock) = event.lock else { continue };
        if let Some(mutex) = mutex_name(&locks[usize::try_from(lock.0).unwrap()]) {
            let task = event.task.expect("a lock event has a task");
            let tid = tasks[usize::try_from(task.0).unwrap()].tid;
            *counts.entry((mutex.to_owned(), tid, event.kind.to_string())).or_default() += 1;
        }
    }
    counts
}
