//! The conditions under which a cycle of lock orders can deadlock.
//!
//! The tasks must differ and be alive at one instant, no lock may be held in two of the orders (a gate), by
//! its task or by a task that waits idly meanwhile, and at each lock the mode held and the mode wanted must
//! exclude each other. These are the conditions of Bensalem and Havelund (Dynamic Deadlock Analysis of
//! Multi-threaded Programs, 2005). A cycle can deadlock if one choice of its dependencies satisfies all.

use serde::Serialize;
use trace_format::{LockId, Mode, TaskId};

use super::{
    dependency::{Dependency, DependencyId},
    graph::Edge,
    lifetimes::{Lifetimes, Together},
    node::Nodes,
};
use output::choices;

/// The most choices of dependencies that are tried for one cycle.
const MAX_CHOICES: u32 = 10_000;

choices! {
    /// Whether a cycle of lock orders can deadlock.
    Verdict, "verdict" {
        /// It can, if all of it happens at once.
        #[default]
        Inversion = "inversion",
        /// It can, if a writer waits for a lock that the tasks read.
        NeedsWriter = "needs_writer",
        /// It cannot: the modes at one of its locks do not exclude each other.
        Shared = "shared",
        /// It cannot: two of its tasks hold one further lock, or other tasks that wait for them do.
        Gated = "gated",
        /// It cannot: one task would have to act twice.
        OneThread = "one_thread",
        /// Not in this recording: its tasks were never alive at the same time.
        NeverTogether = "never_together",
    }
}

impl Verdict {
    /// Returns whether the cycle can deadlock.
    pub const fn is_inversion(self) -> bool {
        matches!(self, Self::Inversion | Self::NeedsWriter)
    }
}

/// The numbers of cycles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CycleCounts {
    /// Cycles that can deadlock.
    pub inversions: u64,
    /// Cycles in which the modes at a lock do not exclude each other.
    pub shared: u64,
    /// Cycles in which two tasks hold one further lock.
    pub gated: u64,
    /// Cycles in which one task would have to act twice.
    pub one_thread: u64,
    /// Cycles of tasks that were never alive at the same time.
    pub never_together: u64,
}

impl CycleCounts {
    pub(super) fn add(&mut self, verdict: Verdict) {
        *match verdict {
            Verdict::Inversion | Verdict::NeedsWriter => &mut self.inversions,
            Verdict::Shared => &mut self.shared,
            Verdict::Gated => &mut self.gated,
            Verdict::OneThread => &mut self.one_thread,
            Verdict::NeverTogether => &mut self.never_together,
        } += 1;
    }

    /// Adds the numbers of another trace.
    pub fn merge(&mut self, other: Self) {
        self.inversions += other.inversions;
        self.shared += other.shared;
        self.gated += other.gated;
        self.one_thread += other.one_thread;
        self.never_together += other.never_together;
    }

    /// Returns the number of cycles that cannot deadlock.
    pub fn harmless(&self) -> u64 {
        self.shared + self.gated + self.one_thread
    }
}

/// Judges cycles.
pub(super) struct Judge<'a> {
    pub(super) dependencies: &'a [Dependency],
    pub(super) edges: &'a [Edge],
    pub(super) properties: &'a Nodes<'a>,
    pub(super) lifetimes: &'a Lifetimes,
}

impl Judge<'_> {
    /// Returns the verdict on the cycle of these edges, and whether there were too many choices to try all.
    pub(super) fn verdict(&self, path: &[usize]) -> (Verdict, bool) {
        let mut inversion = Verdict::Inversion;
        for (edge, next) in path.iter().zip(path.iter().cycle().skip(1)) {
            let (wanted, held) = (self.edges[*edge].wanted, self.edges[*next].held);
            let lock = wanted.node.lock();
            if self.properties.excludes(lock, wanted.mode, held.mode) {
                continue;
            }
            let are_readers = wanted.mode == Mode::Shared && held.mode == Mode::Shared;
            if !are_readers || !self.properties.queues_writers(lock) {
                return (Verdict::Shared, false);
            }
            inversion = Verdict::NeedsWriter;
        }
        let mut choices = Choices { left: MAX_CHOICES, best: None };
        self.choose(path, &mut Vec::new(), &mut choices);
        let verdict = match choices.best {
            None => Verdict::Gated,
            Some(Together::OneTask) => Verdict::OneThread,
            Some(Together::Never) => Verdict::NeverTogether,
            Some(Together::Yes) => inversion,
        };
        (verdict, choices.left == 0)
    }

    /// Chooses a dependency for each edge so that no two have a gate, and so that their tasks can act
    /// together.
    fn choose(&self, path: &[usize], chosen: &mut Vec<DependencyId>, choices: &mut Choices) {
        let dependency = |id: DependencyId| &self.dependencies[id as usize];
        let Some((edge, rest)) = path.split_first() else {
            let tasks: Vec<Vec<TaskId>> = chosen.iter().map(|id| self.tasks(*id, chosen)).collect();
            if tasks.iter().all(|tasks| !tasks.is_empty()) {
                let tasks: Vec<&[TaskId]> = tasks.iter().map(Vec::as_slice).collect();
                choices.best = choices.best.max(Some(self.lifetimes.together(&tasks)));
            }
            return;
        };
        for (id, _) in &self.edges[*edge].variants {
            if choices.left == 0 || choices.best == Some(Together::Yes) {
                return;
            }
            choices.left -= 1;
            if chosen.iter().any(|other| self.have_gate(dependency(*other), dependency(*id))) {
                continue;
            }
            chosen.push(*id);
            self.choose(rest, chosen, choices);
            chosen.pop();
        }
    }

    /// Whether a dependency holds a lock in a mode that excludes this one.
    fn holds(&self, of: &Dependency, lock: LockId, mode: Mode) -> bool {
        let gate = of.gates.iter().find(|(gate, _)| *gate == lock);
        gate.is_some_and(|(_, also)| self.properties.excludes(lock, mode, *also))
    }

    /// Returns whether two dependencies hold one lock in modes that exclude each other, or tasks that wait
    /// for them hold it.
    fn have_gate(&self, one: &Dependency, other: &Dependency) -> bool {
        let by_others = |(lock, task): &(LockId, TaskId)| {
            let by_another = |(also, of): &(LockId, TaskId)| also == lock && of != task;
            let is_exclusive = self.properties.excludes(*lock, Mode::Exclusive, Mode::Exclusive);
            is_exclusive && other.behind().iter().any(by_another)
        };
        one.gates.iter().any(|(lock, mode)| self.holds(other, *lock, *mode))
            || one.behind().iter().any(by_others)
    }

    /// Returns the tasks that can act with the others of a choice. While others acted, a task may have held a
    /// lock of this dependency and waited idly: for others, the lock is a gate. The task itself goes on with
    /// the lock, say behind a barrier that all of them reach.
    fn tasks(&self, id: DependencyId, chosen: &[DependencyId]) -> Vec<TaskId> {
        let of = &self.dependencies[id as usize];
        let others = chosen.iter().filter(|other| **other != id);
        let behind = others.flat_map(|other| self.dependencies[*other as usize].behind());
        let gates: Vec<_> = behind.filter(|(lock, _)| self.holds(of, *lock, Mode::Exclusive)).collect();
        of.tasks.iter().copied().filter(|task| gates.iter().all(|(_, by)| by == task)).collect()
    }
}

/// The choices of dependencies that are left to try, and the best so far. `None` if all had a gate.
struct Choices {
    left: u32,
    best: Option<Together>,
}
