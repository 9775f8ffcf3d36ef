//! Deadlocks against a slow and obviously correct model: every task that can go on does so, and gives up all
//! that it has, until no task can. Those that are left are stuck.

use std::collections::BTreeSet;

use proptest::{collection::vec, prelude::*, test_runner::Config};
use trace_format::{LockId, Mode, TaskId};

use super::{Has, OpenHold, OpenLocks, OpenWait};
use crate::testing::cases;

const TASKS: i32 = 6;
const LOCKS: i32 = 5;

/// The need of a waiting task, by the tasks that it needs.
enum Need {
    /// All of them have to go on.
    All(BTreeSet<TaskId>),
    /// One of them has to.
    One(BTreeSet<TaskId>),
}

/// Returns the needs of each wait.
fn needs(open: &OpenLocks) -> Vec<(TaskId, Need)> {
    let of_lock = |wait: &OpenWait| {
        let holds = open.holds.iter().filter(|hold| hold.lock == wait.lock);
        let mut tasks: BTreeSet<TaskId> =
            holds.clone().filter(|hold| hold.excludes || wait.excludes).map(|hold| hold.task).collect();
        if !wait.excludes && holds.clone().all(|hold| !hold.excludes) {
            let came_first = |other: &&OpenWait| {
                other.lock == wait.lock
                    && other.excludes
                    && (other.start_ns, other.task) < (wait.start_ns, wait.task)
            };
            tasks.extend(open.waits.iter().filter(came_first).map(|other| other.task));
        }
        (wait.task, Need::All(tasks))
    };
    let of_join = |(wait, thread): &(OpenWait, Option<TaskId>)| {
        (wait.task, Need::All(thread.iter().copied().collect()))
    };
    let mut all: Vec<_> = open.waits.iter().map(of_lock).chain(open.joins.iter().map(of_join)).collect();
    for (wait, signallers) in &open.conditions {
        let mut tasks: BTreeSet<TaskId> =
            signallers.iter().copied().filter(|task| *task != wait.task).collect();
        if tasks.is_empty() {
            let waits_for_it =
                |(_, need): &&(TaskId, Need)| matches!(need, Need::All(tasks) if tasks.contains(&wait.task));
            tasks = all
                .iter()
                .filter(waits_for_it)
                .map(|(task, _)| *task)
                .filter(|task| *task != wait.task)
                .collect();
        }
        all.push((wait.task, Need::One(tasks)));
    }
    all
}

/// Returns the tasks that can never go on.
fn stuck(open: &OpenLocks) -> BTreeSet<TaskId> {
    let needs = needs(open);
    let mut stuck: BTreeSet<TaskId> = needs.iter().map(|(task, _)| *task).collect();
    loop {
        let can = |need: &Need| match need {
            Need::All(tasks) => tasks.is_disjoint(&stuck),
            Need::One(tasks) => tasks.is_empty() || !tasks.is_subset(&stuck),
        };
        let left: BTreeSet<TaskId> = needs
            .iter()
            .filter(|(task, need)| stuck.contains(task) && !can(need))
            .map(|(task, _)| *task)
            .collect();
        if left.len() == stuck.len() {
            return stuck;
        }
        stuck = left;
    }
}

fn hold() -> impl Strategy<Value = OpenHold> {
    (0..LOCKS, 0..TASKS, any::<bool>()).prop_map(|(lock, task, excludes)| OpenHold {
        lock: LockId(lock),
        task: TaskId(task),
        mode: if excludes { Mode::Exclusive } else { Mode::Shared },
        stack: None,
        excludes,
    })
}

fn wait(task: i32, lock: i32, start_ns: i64, excludes: bool) -> OpenWait {
    OpenWait {
        lock: LockId(lock),
        task: TaskId(task),
        mode: if excludes { Mode::Exclusive } else { Mode::Shared },
        stack: None,
        start_ns,
        excludes,
        is_timed: false,
    }
}

/// Draws a wait for each task: none, or one for a lock, for the end of a thread, or for a signal of some
/// tasks.
fn open(kinds: i32) -> impl Strategy<Value = OpenLocks> {
    let waits =
        vec((0..kinds, 0..LOCKS, 0..9_i64, any::<bool>(), 0..TASKS, vec(0..TASKS, 0..3)), TASKS as usize);
    (vec(hold(), 0..9), waits).prop_map(|(mut holds, waits)| {
        // Holds of one lock exclude each other, unless all share it.
        let mut kept: Vec<OpenHold> = Vec::new();
        holds.retain(|hold| {
            let fits = kept
                .iter()
                .filter(|other| other.lock == hold.lock)
                .all(|other| !other.excludes && !hold.excludes && other.task != hold.task);
            kept.extend(fits.then_some(*hold));
            fits
        });
        let mut open = OpenLocks { holds, ..OpenLocks::default() };
        for ((kind, lock, start_ns, excludes, thread, signallers), task) in waits.into_iter().zip(0..) {
            let wait = wait(task, lock, start_ns, excludes);
            match kind {
                1 | 2 => open.waits.push(wait),
                3 => {
                    open.joins.push((OpenWait { lock: LockId(LOCKS + thread), ..wait }, Some(TaskId(thread))))
                }
                4 => {
                    let signallers = signallers.into_iter().map(TaskId).collect();
                    open.conditions
                        .push((OpenWait { lock: LockId(2 * (LOCKS + TASKS)), ..wait }, signallers));
                }
                _ => {}
            }
        }
        open
    })
}

/// Returns the members of all deadlocks.
fn members(open: &OpenLocks) -> BTreeSet<TaskId> {
    open.deadlocks().iter().flat_map(|found| &found.members).map(|member| member.wants.task).collect()
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(cases(10_000)) })]

    #[test]
    fn tasks_that_wait_for_locks_and_threads_are_in_a_deadlock_or_behind_one_if_and_only_if_they_are_stuck(open in open(4)) {
        let found = open.deadlocks();
        let sum: usize = found.iter().map(|found| found.members.len() + found.behind).sum();
        let stuck = stuck(&open);
        prop_assert!(members(&open).is_subset(&stuck), "{:?}", found);
        // A task may be behind two deadlocks, and counts for both.
        prop_assert!(sum >= stuck.len(), "{:?}, stuck {:?}", found, stuck);
        prop_assert_eq!(found.is_empty(), stuck.is_empty());
    }

    #[test]
    fn no_member_of_a_deadlock_can_go_on_whoever_signals(open in open(5)) {
        let found = open.deadlocks();
        prop_assert!(members(&open).is_subset(&stuck(&open)), "{:?}", found);
        for deadlock in &found {
            // Each member has the lock that the member before it waits for.
            let before = deadlock.members.iter().cycle().skip(deadlock.members.len() - 1);
            for (member, before) in deadlock.members.iter().zip(before) {
                prop_assert_eq!(member.has.lock(), Some(before.wants.lock));
                let is_its = match member.has {
                    Has::Hold(hold) => hold.task == member.wants.task,
                    Has::Queued(wait) => wait.task == member.wants.task,
                    _ => true,
                };
                prop_assert!(is_its, "{:?}", deadlock);
            }
        }
    }
}
