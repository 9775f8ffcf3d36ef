//! Deadlocks among the holds and waits that are open at one instant.
//!
//! The open holds and waits of all locks enter. A waiter needs every other task whose open hold excludes it, or itself, if it came for a
//! lock that it holds. So each cycle is a deadlock: one leaves for each group of tasks that wait for each other.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use trace_format::{LockId, Mode, StackId, TaskId};

/// An open hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenHold {
    pub lock: LockId,
    pub task: TaskId,
    pub mode: Mode,
    pub stack: Option<StackId>,
    /// Whether it excludes all other holds.
    pub excludes: bool,
}

/// An open wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenWait {
    pub lock: LockId,
    pub task: TaskId,
    pub mode: Mode,
    pub stack: Option<StackId>,
    pub start_ns: i64,
    /// Whether its hold would exclude all others.
    pub excludes: bool,
    /// Whether it ends at some time by itself.
    pub is_timed: bool,
}

/// The holds and waits that are open at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenLocks {
    pub holds: Vec<OpenHold>,
    pub waits: Vec<OpenWait>,
}

/// A member of a deadlock: it holds the lock that the member before it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    pub has: OpenHold,
    pub wants: OpenWait,
}

/// Tasks that wait for each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadlock {
    /// The shortest cycle, from its smallest task id on.
    pub members: Vec<Member>,
    /// The number of other tasks that wait for a member, directly or not.
    pub behind: usize,
}

/// Tasks by task, with the wait and the hold that make each edge.
type Edges = BTreeMap<TaskId, BTreeMap<TaskId, (OpenWait, OpenHold)>>;

impl OpenLocks {
    /// Adds what is open on other locks.
    pub fn merge(&mut self, other: Self) {
        self.holds.extend(other.holds);
        self.waits.extend(other.waits);
    }

    /// Returns the deadlocks, in the order of their smallest task id.
    pub fn deadlocks(&self) -> Vec<Deadlock> {
        let edges = self.edges();
        let mut found: Vec<Deadlock> = Vec::new();
        let mut seen: BTreeSet<TaskId> = BTreeSet::new();
        for task in edges.keys() {
            if seen.contains(task) {
                continue;
            }
            if let Some(members) = shortest_cycle(&edges, *task) {
                // Other cycles through the same tasks are part of the same deadlock.
                let waiting = all_behind(&edges, members.iter().map(|member| member.wants.task));
                let behind = waiting.len() - members.len();
                seen.extend(waiting);
                found.push(Deadlock { members, behind });
            }
        }
        found
    }

    fn edges(&self) -> Edges {
        let mut holds: BTreeMap<LockId, Vec<&OpenHold>> = BTreeMap::new();
        for hold in &self.holds {
            holds.entry(hold.lock).or_default().push(hold);
        }
        let mut edges = Edges::new();
        // Of several waits and holds that make an edge, that of the smallest lock is reported, however many readers there were.
        let mut waits: Vec<&OpenWait> = self.waits.iter().collect();
        waits.sort_by_key(|wait| wait.lock);
        for wait in waits {
            let of_lock = holds.get(&wait.lock).into_iter().flatten();
            for hold in of_lock.filter(|hold| hold.excludes || wait.excludes) {
                edges.entry(wait.task).or_default().entry(hold.task).or_insert((*wait, **hold));
            }
        }
        edges
    }
}

/// Returns the shortest cycle through a task, if there is one.
fn shortest_cycle(edges: &Edges, start: TaskId) -> Option<Vec<Member>> {
    let mut from: BTreeMap<TaskId, TaskId> = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(task) = queue.pop_front() {
        for next in edges.get(&task).into_iter().flat_map(BTreeMap::keys) {
            if *next == start {
                return Some(members(edges, &from, start, task));
            }
            if !from.contains_key(next) {
                from.insert(*next, task);
                queue.push_back(*next);
            }
        }
    }
    None
}

/// Returns the members of the cycle that leads from `start` to `last` and back.
fn members(edges: &Edges, from: &BTreeMap<TaskId, TaskId>, start: TaskId, last: TaskId) -> Vec<Member> {
    let mut tasks = vec![last];
    while let Some(task) = tasks.last().copied().filter(|task| *task != start) {
        tasks.push(from[&task]);
    }
    tasks.reverse();
    let before = tasks.iter().cycle().skip(tasks.len() - 1);
    let next = tasks.iter().cycle().skip(1);
    let member = |((task, before), next): ((&TaskId, &TaskId), &TaskId)| Member {
        has: edges[before][task].1,
        wants: edges[task][next].0,
    };
    tasks.iter().zip(before).zip(next).map(member).collect()
}

/// Returns these tasks and all that wait for them, directly or not.
fn all_behind(edges: &Edges, tasks: impl Iterator<Item = TaskId>) -> BTreeSet<TaskId> {
    let mut found: BTreeSet<TaskId> = tasks.collect();
    loop {
        let leads_there = |needs: &BTreeMap<TaskId, _>| needs.keys().any(|task| found.contains(task));
        let more: Vec<TaskId> = edges
            .iter()
            .filter(|(task, needs)| !found.contains(task) && leads_there(needs))
            .map(|(task, _)| *task)
            .collect();
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        engine::{Engine, Rules},
        testing::Intervals,
        testing::Parts,
    };

    /// Returns the deadlocks as lists of `task has lock, wants lock`, with the number of tasks behind.
    fn deadlocks(text: &str) -> Vec<(Vec<String>, usize)> {
        let parts = Parts::parse(text);
        let mut engine = Engine::new(Rules::new(&parts.info, &parts.locks));
        parts.events.iter().for_each(|event| engine.push(event, &mut Intervals::default()));
        let task = |id: TaskId| parts.tasks[id.0 as usize].comm.clone().unwrap();
        let lock = |id: LockId| parts.locks[id.0 as usize].name.clone().unwrap();
        let member = |Member { has, wants }: &Member| {
            format!("{} has {}, wants {}", task(wants.task), lock(has.lock), lock(wants.lock))
        };
        let found = engine.open_locks().deadlocks();
        found.iter().map(|found| (found.members.iter().map(member).collect(), found.behind)).collect()
    }

    const V3: &str = "100 A acquire x\n110 B acquire y\n120 A wait y\n130 B wait x\n150 C wait x\n";

    #[test]
    fn v3_two_tasks_that_wait_for_each_other_are_a_deadlock_and_a_third_is_behind() {
        let expected = vec!["A has x, wants y".to_owned(), "B has y, wants x".to_owned()];
        assert_eq!(deadlocks(V3), [(expected, 1)]);
        assert_eq!(deadlocks(&format!("{V3}160 B abandon x wait=30")), []);
        assert_eq!(deadlocks(&format!("{V3}160 - lost count=1")), []);
    }

    #[test]
    fn a_task_that_waits_for_its_own_lock_is_a_deadlock_of_one() {
        assert_eq!(deadlocks("100 A acquire x\n120 A wait x"), [(vec!["A has x, wants x".to_owned()], 0)]);
    }

    #[test]
    fn a_writer_waits_for_all_readers_and_a_reader_for_no_other_reader() {
        let text = "lock x rwsem\nlock y mutex\n100 A acquire x shared\n101 B acquire x shared\n102 B acquire y\n110 A wait y\n120 B wait x";
        assert_eq!(
            deadlocks(text),
            [(vec!["A has x, wants y".to_owned(), "B has y, wants x".to_owned()], 0)]
        );
        assert_eq!(deadlocks(&text.replace("120 B wait x", "120 B wait x shared")), []);
    }

    #[test]
    fn a_counting_semaphore_makes_no_deadlock() {
        let text = "lock s semaphore\n100 A acquire s\n110 B acquire x\n120 A wait x\n130 B wait s";
        assert_eq!(deadlocks(text), []);
    }
}
