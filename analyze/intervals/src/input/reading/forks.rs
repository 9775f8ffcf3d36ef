//! Locks that another thread of the parent held when a process was forked: no thread of the child can release
//! its copy.
//!
//! ```text
//! 100 rotate acquires log_lock      in process 1
//! 150 main forks process 2          the copy of log_lock in process 2 is taken, and has no owner there
//! 160 process 2 waits for log_lock  for ever
//! ```
//!
//! A dead end is found for each lock that a task waits for and no task of its process took. Rows are read
//! again only if the parent used a lock at the same address.

use std::{collections::BTreeMap, ops::ControlFlow};

use trace_format::{EventKind, EventRow as _, FormatError, LockId, LockRow, Mode, TaskId};

use crate::{
    engine::deadlock::{Deadlock, Has, Member, OpenHold, OpenLocks, OpenWait},
    input::{
        names::Names,
        source::{self, EventSource},
    },
};

/// A wait in a child, and the lock at the same address in its parent.
struct Copied {
    wait: OpenWait,
    behind: usize,
    original: LockId,
    /// The task that forked, if it is known.
    forker: Option<TaskId>,
    fork_ns: i64,
    /// The holder of the original at the fork.
    hold: Option<OpenHold>,
}

/// Returns the dead ends.
pub(super) fn deadlocks(
    open: &OpenLocks,
    names: &Names,
    events: &dyn EventSource,
) -> Result<Vec<Deadlock>, FormatError> {
    let mut copies: BTreeMap<LockId, Copied> = BTreeMap::new();
    for wait in open.waits.iter().filter(|wait| !wait.is_timed) {
        if let Some(copied) = copies.get_mut(&wait.lock) {
            copied.behind += 1;
        } else if open.holds.iter().all(|hold| hold.lock != wait.lock)
            && let Some(copied) = copied(*wait, names)
        {
            copies.insert(wait.lock, copied);
        }
    }
    if copies.is_empty() {
        return Ok(Vec::new());
    }
    source::batches(events, &["lock_id", "task_id", "stack_id", "mode"], |_, batch| {
        for row in (0..batch.len()).map(|index| batch.row(index)) {
            let (Some(lock), Some(task)) = (row.lock(), row.task()) else { continue };
            // A task of the child took the lock, so it was free.
            copies.retain(|copy, _| *copy != lock || row.kind() != EventKind::Acquire);
            let of_lock = copies.values_mut().filter(|copied| copied.original == lock);
            for copied in of_lock.filter(|copied| row.ts_ns() <= copied.fork_ns) {
                let mode = row.mode().unwrap_or(Mode::Exclusive);
                match row.kind() {
                    EventKind::Acquire => {
                        copied.hold = Some(OpenHold { lock, task, mode, stack: row.stack(), excludes: true });
                    }
                    EventKind::Release | EventKind::Init | EventKind::Destroy => copied.hold = None,
                    _ => {}
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    })?;
    let dead_end = |copied: Copied| {
        let hold =
            copied.hold.filter(|hold| Some(hold.task) != copied.forker && hold.mode == Mode::Exclusive)?;
        let members = vec![Member { has: Has::AtFork(hold), wants: copied.wait }];
        Some(Deadlock { members, behind: copied.behind })
    };
    Ok(copies.into_values().filter_map(dead_end).collect())
}

/// Returns what is known of a wait in a process that was forked, if its parent has the lock, too.
fn copied(wait: OpenWait, names: &Names) -> Option<Copied> {
    let lock = names.lock(wait.lock).filter(|lock| lock.shared.is_none())?;
    let (pid, address) = (lock.pid?, lock.address?);
    let first = names.tasks().iter().find(|task| task.pid == pid && task.tid == pid)?;
    let fork_ns = first.start_ns?;
    let parent = first.parent.and_then(|parent| names.task(parent));
    let is_original = |other: &&LockRow| {
        let is_same = (other.address, other.kind, &other.name) == (Some(address), lock.kind, &lock.name);
        let is_of_parent = parent.map_or(other.pid != Some(pid), |parent| other.pid == Some(parent.pid));
        is_same && is_of_parent && other.first_ns <= fork_ns
    };
    let mut originals = names.locks().iter().rev().filter(is_original);
    let original = originals.next()?;
    // A parent that is not known is the only other process with such a lock.
    if parent.is_none() && originals.any(|other| other.pid != original.pid) {
        return None;
    }
    let main =
        original.pid.and_then(|pid| names.tasks().iter().find(|task| (task.pid, task.tid) == (pid, pid)));
    let forker = parent.or(main).map(|task| task.id);
    Some(Copied { wait, behind: 0, original: original.id, forker, fork_ns, hold: None })
}

#[cfg(test)]
mod tests {
    use crate::{
        input::{Input, filter::Filter},
        testing::trace,
    };

    /// Returns the deadlocks of a process that was forked at 150, as sentences.
    fn of(rows: &str) -> Vec<String> {
        let text = format!(
            "lock l pthread_mutex name=log pid=1 address=64\nlock c pthread_mutex name=log pid=2 address=64\ntask M tid=1 pid=1 start=0\n\
             task R tid=11 pid=1 start=0 parent=M\ntask C tid=2 pid=2 start=150 parent=M\n{rows}"
        );
        let test = trace(&text);
        Input::open(&test.trace, 0, &Filter::default()).unwrap().deadlocks().unwrap()
    }

    #[test]
    fn a_lock_that_another_thread_of_the_parent_held_at_the_fork_is_a_dead_end() {
        let found = of("100 R acquire l\n160 C wait c\n170 R release l");
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("at the fork") && found[0].contains("R (tid 11, pid 1)"), "{found:?}");
    }

    #[test]
    fn a_lock_that_was_free_at_the_fork_or_that_the_child_took_is_not() {
        for rows in [
            "100 R acquire l\n140 R release l\n160 C wait c",
            "155 R acquire l\n160 C wait c",
            "100 M acquire l\n160 C wait c",
            "100 R acquire l\n155 C acquire c\n156 C release c\n160 C wait c",
            "100 R acquire l\n160 C wait c call=timed",
        ] {
            assert!(of(rows).is_empty(), "{rows}");
        }
    }
}
