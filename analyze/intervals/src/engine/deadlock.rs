//! Deadlocks: cycles and dead ends of the graph of who waits for whom, at one instant.
//!
//! The graph is made of the open holds and waits of all locks. A waiter needs
//!
//! * every other task whose open hold excludes it, or itself, if it came for a lock that it holds;
//! * as a reader that waits while only readers hold the lock: the writers that came before it;
//! * the thread whose end it waits for;
//! * of a condition variable: the tasks that signalled it before or, if there are none, those that wait for a
//!   lock of the waiter. Any of them could signal, so these are needs only if all of them wait for the
//!   waiter, directly or not.
//!
//! So each cycle is a deadlock. One is reported for each group of tasks that wait for each other. A task that
//! waits for a lock of a task that has ended is at a dead end.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

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
    /// Waits for the end of a thread, and the thread if the row of the wait has it.
    pub joins: Vec<(OpenWait, Option<TaskId>)>,
    /// Waits for a condition variable without a time-out, and the tasks that signalled it before.
    pub conditions: Vec<(OpenWait, BTreeSet<TaskId>)>,
    /// Waits for a semaphore or a barrier without a time-out.
    pub idle: Vec<OpenWait>,
    /// Threads that ended before their process.
    pub ended: BTreeSet<TaskId>,
    /// The creations of threads: the creator, the time and the thread.
    pub created: BTreeSet<(TaskId, i64, LockId)>,
    pub children: Arc<Children>,
}

/// The threads that tasks created, by creator, with their start.
pub type Children = BTreeMap<TaskId, Vec<(i64, TaskId)>>;

/// The reason why the member before waits for a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Has {
    /// It holds the lock.
    Hold(OpenHold),
    /// A task that has ended holds the lock. The member is the waiter itself.
    Ended(OpenHold),
    /// Another thread of the parent held the lock when the waiter's process was forked. The member is the
    /// waiter itself.
    AtFork(OpenHold),
    /// It waits for the lock, too, and comes first.
    Queued(OpenWait),
    /// It is the thread whose end the member before waits for.
    Thread(LockId),
    /// It would signal the condition variable.
    Signal(LockId),
    /// Every thread of the waiter's process waits. The member is the waiter itself.
    Nobody,
}

/// A member of a deadlock: what it has is what the member before it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    pub has: Has,
    pub wants: OpenWait,
}

impl Has {
    /// Returns the lock that the member before waits for; `None` if it is one of another process, or nobody
    /// has it.
    pub const fn lock(&self) -> Option<LockId> {
        match self {
            Self::Hold(hold) | Self::Ended(hold) => Some(hold.lock),
            Self::AtFork(_) | Self::Nobody => None,
            Self::Queued(wait) => Some(wait.lock),
            Self::Thread(lock) | Self::Signal(lock) => Some(*lock),
        }
    }
}

/// Tasks that wait for each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadlock {
    /// The shortest cycle, from its smallest task id on.
    pub members: Vec<Member>,
    /// The number of other tasks that wait for a member, directly or not.
    pub behind: usize,
}

/// Why tasks are stuck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadlockKind {
    /// They take locks in different orders.
    Order,
    /// A task takes a lock that it has.
    Itself,
    /// A reader comes again while a writer is queued.
    Reader,
    /// One joins a thread that needs it.
    Join,
    /// One waits for a signal of a task that needs it.
    Signal,
    /// The owner of the lock has ended.
    Ended,
    /// The owner of the lock was not copied by a fork.
    Fork,
    /// No thread is left that could end the wait.
    Nobody,
}

impl Deadlock {
    /// Returns its kind.
    pub fn kind(&self) -> DeadlockKind {
        let has = |is: fn(&Has) -> bool| self.members.iter().any(|member| is(&member.has));
        if has(|has| matches!(has, Has::Ended(_))) {
            DeadlockKind::Ended
        } else if has(|has| matches!(has, Has::AtFork(_))) {
            DeadlockKind::Fork
        } else if has(|has| matches!(has, Has::Nobody)) {
            DeadlockKind::Nobody
        } else if has(|has| matches!(has, Has::Signal(_))) {
            DeadlockKind::Signal
        } else if has(|has| matches!(has, Has::Thread(_))) {
            DeadlockKind::Join
        } else if has(|has| matches!(has, Has::Queued(_))) {
            DeadlockKind::Reader
        } else if self.members.len() == 1 {
            DeadlockKind::Itself
        } else {
            DeadlockKind::Order
        }
    }
}

/// Tasks by task, with the wait and the reason that make each edge.
type Edges = BTreeMap<TaskId, BTreeMap<TaskId, (OpenWait, Has)>>;

impl OpenLocks {
    /// Adds what is open on other locks.
    pub fn merge(&mut self, other: Self) {
        self.holds.extend(other.holds);
        self.waits.extend(other.waits);
        self.joins.extend(other.joins);
        self.conditions.extend(other.conditions);
        self.idle.extend(other.idle);
        self.ended.extend(other.ended);
        self.created.extend(other.created);
        self.children = other.children;
    }

    /// Returns the task of a thread: the only child of its creator that started since the creation before.
    fn thread(&self, lock: LockId) -> Option<TaskId> {
        let (creator, created_ns, _) = self.created.iter().find(|(.., created)| *created == lock)?;
        let before =
            self.created.range((*creator, i64::MIN, LockId(i32::MIN))..(*creator, *created_ns, lock));
        let since_ns = before.last().map_or(i64::MIN, |(_, ns, _)| *ns);
        let children = self.children.get(creator)?.iter();
        let mut between = children.filter(|(start_ns, _)| since_ns < *start_ns && start_ns <= created_ns);
        let (_, thread) = between.next()?;
        between.next().is_none().then_some(*thread)
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
        found.extend(self.dead_ends(&edges, &seen));
        found
    }

    /// Returns the first waits for locks that tasks hold which have ended, one for each lock.
    fn dead_ends(&self, edges: &Edges, seen: &BTreeSet<TaskId>) -> Vec<Deadlock> {
        let mut found: BTreeMap<LockId, Member> = BTreeMap::new();
        for wait in self.waits.iter().filter(|wait| !wait.is_timed && !seen.contains(&wait.task)) {
            let excludes = |hold: &&OpenHold| {
                let is_other = hold.lock == wait.lock && hold.task != wait.task;
                is_other && (hold.excludes || wait.excludes) && self.ended.contains(&hold.task)
            };
            if let Some(hold) = self.holds.iter().find(excludes) {
                let member = Member { has: Has::Ended(*hold), wants: *wait };
                let first = found.entry(wait.lock).or_insert(member);
                if wait.start_ns < first.wants.start_ns {
                    *first = member;
                }
            }
        }
        let behind = |task: TaskId| all_behind(edges, std::iter::once(task)).len() - 1;
        let dead_end = |member: Member| Deadlock { behind: behind(member.wants.task), members: vec![member] };
        found.into_values().map(dead_end).collect()
    }

    fn edges(&self) -> Edges {
        let mut holds: BTreeMap<LockId, Vec<&OpenHold>> = BTreeMap::new();
        for hold in &self.holds {
            holds.entry(hold.lock).or_default().push(hold);
        }
        let mut edges = Edges::new();
        // Several waits and holds may make one edge. The edge of the smallest lock is reported, whatever the
        // number of readers.
        let mut waits: Vec<&OpenWait> = self.waits.iter().collect();
        waits.sort_by_key(|wait| wait.lock);
        for wait in waits {
            let of_lock = holds.get(&wait.lock).into_iter().flatten();
            for hold in of_lock.filter(|hold| hold.excludes || wait.excludes) {
                edges.entry(wait.task).or_default().entry(hold.task).or_insert((*wait, Has::Hold(**hold)));
            }
            let mut of_lock = holds.get(&wait.lock).into_iter().flatten();
            if !wait.excludes && !of_lock.any(|hold| hold.excludes) {
                let writers = self.waits.iter().filter(|other| other.lock == wait.lock && other.excludes);
                for first in writers.filter(|other| (other.start_ns, other.task) < (wait.start_ns, wait.task))
                {
                    edges
                        .entry(wait.task)
                        .or_default()
                        .entry(first.task)
                        .or_insert((*wait, Has::Queued(*first)));
                }
            }
        }
        for (wait, thread) in &self.joins {
            if let Some(thread) = thread.or_else(|| self.thread(wait.lock)) {
                edges.entry(wait.task).or_default().entry(thread).or_insert((*wait, Has::Thread(wait.lock)));
            }
        }
        for (wait, signallers) in &self.conditions {
            let behind = all_behind(&edges, std::iter::once(wait.task));
            let of_locks = || {
                behind
                    .iter()
                    .filter(|task| edges.get(task).is_some_and(|needs| needs.contains_key(&wait.task)))
            };
            let others = signallers.iter().filter(|task| **task != wait.task);
            let mut needs: Vec<TaskId> = others.copied().collect();
            if needs.is_empty() {
                needs.extend(of_locks().filter(|task| **task != wait.task));
            }
            if needs.iter().all(|task| behind.contains(task)) {
                for task in needs {
                    edges
                        .entry(wait.task)
                        .or_default()
                        .entry(task)
                        .or_insert((*wait, Has::Signal(wait.lock)));
                }
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
mod properties;
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
        let rules = Rules::new(&parts.info, &parts.locks).with_tasks(&parts.tasks);
        let mut engine = Engine::new(rules);
        parts.events.iter().for_each(|event| engine.push(event, &mut Intervals::default()));
        let task = |id: TaskId| parts.tasks[id.0 as usize].comm.clone().unwrap();
        let lock = |id: LockId| parts.locks[id.0 as usize].name.clone().unwrap();
        let member = |Member { has, wants }: &Member| {
            let has = match has {
                Has::Hold(hold) => format!("has {}", lock(hold.lock)),
                Has::Ended(hold) => format!("comes after {} with {}", task(hold.task), lock(hold.lock)),
                Has::AtFork(hold) => format!("was forked while {} had {}", task(hold.task), lock(hold.lock)),
                Has::Queued(wait) => format!("queues for {}", lock(wait.lock)),
                Has::Thread(thread) => format!("is {}", lock(*thread)),
                Has::Signal(condition) => format!("signals {}", lock(*condition)),
                Has::Nobody => "is alone".to_owned(),
            };
            format!("{} {has}, wants {}", task(wants.task), lock(wants.lock))
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

    fn members(text: &str) -> Vec<Vec<String>> {
        deadlocks(text).into_iter().map(|(members, _)| members).collect()
    }

    #[test]
    fn a_reader_that_comes_again_behind_a_writer_waits_for_its_own_hold() {
        let text = "lock l pthread_rwlock\n10 A acquire l shared\n20 B wait l\n30 A wait l shared inner";
        assert_eq!(members(text), [["A has l, wants l", "B queues for l, wants l"]]);
        assert!(members(&text.replace("20 B wait l", "20 B wait l shared")).is_empty(), "readers share");
        assert!(members(&text.replace("20 B", "40 B")).is_empty(), "the writer came later");
    }

    #[test]
    fn a_task_that_joins_a_thread_with_a_lock_of_which_it_waits_for_its_end() {
        let text = "lock t thread\nlock p pthread_mutex\ntask M tid=100 start=0\ntask T start=9 parent=M\n10 M init t\n20 M acquire p\n30 M wait t\n40 T wait p";
        assert_eq!(members(text), [["M has p, wants t", "T is t, wants p"]]);
        assert!(members(&text.replace("40 T wait p", "40 T wait p\n50 T abandon p")).is_empty());
        // Two threads started before it: which one is joined is not known, unless the row says so.
        let several = text.replace("start=9 parent=M", "start=9 parent=M\ntask U start=8 parent=M");
        assert!(members(&several).is_empty());
        assert_eq!(members(&several.replace("30 M wait t", "30 M wait t peer=T")).len(), 1);
    }

    #[test]
    fn a_signal_that_only_a_task_behind_the_waiter_can_send_never_comes() {
        let text = "lock c condvar\nlock o pthread_mutex\n10 A acquire o\n20 A wait c\n30 B wait o";
        assert_eq!(members(text), [["A has o, wants c", "B signals c, wants o"]]);
        let signalled = |task: &str| {
            format!("{text}\n").replace("10 A acquire", &format!("5 {task} wake c\n10 A acquire"))
        };
        assert_eq!(members(&signalled("B")).len(), 1);
        assert!(members(&signalled("C")).is_empty(), "C may signal again");
        assert!(members(&text.replace("20 A wait c", "20 A wait c call=timed")).is_empty());
    }

    #[test]
    fn a_lock_whose_owner_ended_is_a_dead_end() {
        let text = "lock t thread\n10 A acquire m\n50 A wake t\n60 B wait m\n70 M wait m";
        let expected = vec!["B comes after A with m, wants m".to_owned()];
        assert_eq!(deadlocks(text), [(expected, 0)]);
        assert_eq!(deadlocks(&text.replace("50 A wake t\n", "")), [], "A may release it");
    }
}
