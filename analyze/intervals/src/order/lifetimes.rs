//! The lifetimes of tasks: whether several tasks can do something at the same time.
//!
//! Several sets of tasks can act together if one task of each set can be chosen so that all differ, and so
//! that all are alive at one instant. Lifetimes are intervals, so tasks that overlap two by two also share an
//! instant.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;
use trace_format::{TaskId, TaskRow};

/// The times at which tasks started and ended. A task without a time was there before, or after, the
/// recording.
#[derive(Clone, Debug, Default)]
pub struct Lifetimes(FxHashMap<TaskId, (i64, Option<i64>)>);

/// Whether tasks of several sets can act together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Together {
    /// One task would have to act for two of the sets.
    OneTask,
    /// The tasks differ, but were never alive at the same time.
    Never,
    /// There are such tasks.
    Yes,
}

impl Lifetimes {
    /// Reads the lifetimes of tasks.
    pub fn of(tasks: &[TaskRow]) -> Self {
        let known = tasks.iter().filter(|task| task.start_ns.is_some() || task.exit_ns.is_some());
        let lifetime = |task: &TaskRow| {
            let start_ns = task.start_ns.unwrap_or(i64::MIN);
            (task.id, (start_ns, task.exit_ns.map(|exit_ns| exit_ns.max(start_ns.saturating_add(1)))))
        };
        Self(known.map(lifetime).collect())
    }

    /// Returns whether one task of each set can be chosen so that all differ and are alive at one instant.
    pub(super) fn together(&self, sets: &[&[TaskId]]) -> Together {
        // Of each set, as many tasks as there are sets are enough to differ.
        let first: Vec<BTreeSet<TaskId>> =
            sets.iter().map(|set| set.iter().take(sets.len()).copied().collect()).collect();
        if !can_differ(&first) {
            return Together::OneTask;
        }
        // An exit comes before a start of the same time.
        let mut changes: Vec<(i64, bool, usize, TaskId)> = Vec::new();
        for (at, set) in sets.iter().enumerate() {
            for task in *set {
                let (start_ns, exit_ns) = self.0.get(task).copied().unwrap_or((i64::MIN, None));
                changes.push((start_ns, true, at, *task));
                changes.extend(exit_ns.map(|exit_ns| (exit_ns, false, at, *task)));
            }
        }
        changes.sort_unstable();
        let mut alive = vec![BTreeSet::new(); sets.len()];
        for (_, starts, at, task) in changes {
            if !starts {
                alive[at].remove(&task);
            } else if alive[at].insert(task) && can_differ(&alive) {
                return Together::Yes;
            }
        }
        Together::Never
    }
}

/// Returns whether one task of each set can be chosen so that all differ.
fn can_differ(sets: &[BTreeSet<TaskId>]) -> bool {
    fn choose(sets: &[BTreeSet<TaskId>], most: usize, chosen: &mut Vec<TaskId>) -> bool {
        let Some((set, rest)) = sets.split_first() else { return true };
        set.iter().take(most).any(|task| {
            if chosen.contains(task) {
                return false;
            }
            chosen.push(*task);
            let found = choose(rest, most, chosen);
            chosen.pop();
            found
        })
    }
    sets.iter().all(|set| !set.is_empty()) && choose(sets, sets.len(), &mut Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::task_row;

    fn lifetimes(of: &[(Option<i64>, Option<i64>)]) -> Lifetimes {
        Lifetimes::of(&(0..).zip(of).map(|(id, lifetime)| task_row(id, *lifetime)).collect::<Vec<_>>())
    }

    fn together(lifetimes: &Lifetimes, sets: &[&[i32]]) -> Together {
        let sets: Vec<Vec<TaskId>> =
            sets.iter().map(|set| set.iter().copied().map(TaskId).collect()).collect();
        lifetimes.together(&sets.iter().map(Vec::as_slice).collect::<Vec<_>>())
    }

    #[test]
    fn one_task_cannot_act_twice() {
        let unknown = Lifetimes::default();
        assert_eq!(together(&unknown, &[&[0], &[0]]), Together::OneTask);
        assert_eq!(together(&unknown, &[&[0], &[0, 1]]), Together::Yes);
        assert_eq!(together(&unknown, &[&[0, 1], &[0, 1], &[0, 1]]), Together::OneTask);
        assert_eq!(together(&unknown, &[&[0, 1], &[0, 1], &[0, 1, 2]]), Together::Yes);
    }

    #[test]
    fn a_task_that_starts_when_another_has_ended_is_never_with_it() {
        let lifetimes =
            lifetimes(&[(None, Some(150)), (Some(180), None), (Some(150), None), (Some(149), None)]);
        assert_eq!(together(&lifetimes, &[&[0], &[1]]), Together::Never);
        assert_eq!(together(&lifetimes, &[&[0], &[2]]), Together::Never);
        assert_eq!(together(&lifetimes, &[&[0], &[3]]), Together::Yes);
        assert_eq!(together(&lifetimes, &[&[0], &[1, 2, 3]]), Together::Yes);
    }

    #[test]
    fn three_tasks_need_one_instant() {
        let lifetimes = lifetimes(&[(Some(0), Some(20)), (Some(10), Some(40)), (Some(30), Some(50))]);
        assert_eq!(together(&lifetimes, &[&[0], &[1]]), Together::Yes);
        assert_eq!(together(&lifetimes, &[&[1], &[2]]), Together::Yes);
        assert_eq!(together(&lifetimes, &[&[0], &[1], &[2]]), Together::Never);
    }

    #[test]
    fn a_task_found_late_among_many_counts() {
        let mut all: Vec<(Option<i64>, Option<i64>)> = (0..100).map(|at| (Some(at), Some(at + 1))).collect();
        all.push((Some(57), Some(58)));
        let lifetimes = lifetimes(&all);
        let many: Vec<i32> = (0..100).collect();
        assert_eq!(together(&lifetimes, &[&many, &[100]]), Together::Yes);
        let others: Vec<i32> = (0..57).chain(58..100).collect();
        assert_eq!(together(&lifetimes, &[&others, &[100]]), Together::Never);
    }
}
