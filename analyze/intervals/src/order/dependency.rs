//! Dependencies: a task wants a lock while it holds others.
//!
//! A task makes one each time that it wants a lock in a way that can block. Equal nestings become one
//! [`Dependency`] with a count and its tasks.

use rustc_hash::FxHashMap;
use trace_format::{LockId, Mode, StackId, TaskId};

use super::{
    held::Held,
    node::{Node, Nodes},
};
use crate::engine::open_list::OpenList;

/// The most distinct nestings that are kept; some 300 bytes each.
const MAX_DEPENDENCIES: usize = 1 << 20;
/// The most locks that are held in all of them.
const MAX_HELD: usize = 1 << 21;
/// The most locks that a task holds in one of them. A task that takes all buckets of a table holds thousands.
const MAX_HELD_AT_ONCE: usize = 1 << 10;

/// A lock, the mode in which it is held or wanted, and the site of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Acquisition {
    pub node: Node,
    pub mode: Mode,
    /// The number of the site among all sites of the trace.
    pub site: u32,
}

/// An acquisition, and the stack and lock of its first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Example {
    pub(super) acquisition: Acquisition,
    pub(super) lock: LockId,
    pub(super) stack: Option<StackId>,
}

/// A nesting of locks, as often as it occurred.
#[derive(Clone, Debug)]
pub(super) struct Dependency {
    /// The locks that were held, sorted and distinct.
    pub(super) held: Vec<Example>,
    /// The lock that was wanted.
    pub(super) wanted: Example,
    /// The locks that were held each time: exclusive, if it was each time. Two dependencies that share one
    /// cannot run side by side.
    pub(super) gates: Vec<(LockId, Mode)>,
    /// The locks that another task held each time while it waited idly, and that task: it let this one work,
    /// and waited for the end.
    pub(super) behind: Option<Vec<(LockId, TaskId)>>,
    pub(super) count: u64,
    /// The tasks that wanted the lock, sorted.
    pub(super) tasks: Vec<TaskId>,
    /// Whether the filter selects one of these attempts.
    pub(super) is_selected: bool,
}

/// The index of a dependency.
pub(super) type DependencyId = u32;

/// All dependencies of a trace.
#[derive(Debug, Default)]
pub(super) struct Dependencies {
    pub(super) all: Vec<Dependency>,
    /// By the wanted acquisition and those held.
    known: FxHashMap<Box<[Acquisition]>, DependencyId>,
    key: Vec<Acquisition>,
    /// Number of held locks in all of them.
    held: usize,
    /// Attempts that were not kept, because there were too many distinct nestings.
    pub(super) dropped: u64,
}

impl Dependencies {
    /// Adds that `task` wants a lock while it holds others. `None` if that is not kept.
    pub(super) fn add(
        &mut self,
        nodes: &Nodes<'_>,
        held: &OpenList<Held>,
        (task, lock, mode, stack): (TaskId, LockId, Mode, Option<StackId>),
    ) -> Option<DependencyId> {
        if held.len() > MAX_HELD_AT_ONCE {
            self.dropped += 1;
            return None;
        }
        let class = nodes.of(lock);
        // Two locks of one class are nodes of their own: the class counts in itself only if they are taken in
        // both orders.
        let is_nested = held.iter().any(|held| nodes.of(held.lock) == class);
        let node = |lock: LockId| match nodes.of(lock) {
            node if is_nested && node == class => Node::Lock(lock),
            node => node,
        };
        let of = |lock: LockId, mode: Mode, stack: Option<StackId>| {
            let acquisition = Acquisition { node: node(lock), mode, site: nodes.site(lock, stack) };
            Example { acquisition, lock, stack }
        };
        let wanted = of(lock, mode, stack);
        self.key.clear();
        self.key.push(wanted.acquisition);
        self.key.extend(held.iter().map(|held| of(held.lock, held.mode, held.stack).acquisition));
        self.key[1..].sort_unstable();
        self.key.dedup();
        let id = match self.known.get(self.key.as_slice()) {
            Some(id) => *id,
            None if self.all.len() >= MAX_DEPENDENCIES || self.held + held.len() > MAX_HELD => {
                self.dropped += 1;
                return None;
            }
            None => {
                self.held += held.len();
                // At most MAX_DEPENDENCIES.
                let id = self.all.len() as DependencyId;
                let mut once: Vec<Example> =
                    held.iter().map(|held| of(held.lock, held.mode, held.stack)).collect();
                once.sort_unstable();
                once.dedup_by_key(|held| held.acquisition);
                let (gates, tasks, count, is_selected) = (gates(held), Vec::new(), 0, false);
                let behind = None;
                self.all.push(Dependency { held: once, wanted, gates, behind, count, tasks, is_selected });
                self.known.insert(self.key.as_slice().into(), id);
                id
            }
        };
        let dependency = &mut self.all[id as usize];
        // Nestings of single locks that are equal have equal gates.
        if dependency.count > 0 && nodes.has_classes() {
            restrict(&mut dependency.gates, held);
        }
        dependency.count += 1;
        if let Err(at) = dependency.tasks.binary_search(&task) {
            dependency.tasks.insert(at, task);
        }
        Some(id)
    }
}

impl Dependency {
    /// Keeps the locks that other tasks hold this time, too.
    pub(super) fn restrict_behind(&mut self, now: &[(LockId, TaskId)]) {
        match &mut self.behind {
            Some(behind) => behind.retain(|lock| now.contains(lock)),
            None => self.behind = Some(now.to_vec()),
        }
    }

    /// Returns the locks that other tasks held each time.
    pub(super) fn behind(&self) -> &[(LockId, TaskId)] {
        self.behind.as_deref().unwrap_or_default()
    }
}

/// Returns the locks that are held, each once: exclusive, if it is held so.
fn gates(held: &OpenList<Held>) -> Vec<(LockId, Mode)> {
    let mut gates: Vec<(LockId, Mode)> = held.iter().map(|held| (held.lock, held.mode)).collect();
    // Exclusive sorts before shared.
    gates.sort_unstable();
    gates.dedup_by_key(|gate| gate.0);
    gates
}

/// Keeps the gates that are held again. One that is held shared this time is a shared one.
fn restrict(gates: &mut Vec<(LockId, Mode)>, held: &OpenList<Held>) {
    gates.retain_mut(|(lock, mode)| {
        let strictest = held.iter().filter(|held| held.lock == *lock).map(|held| held.mode).min();
        *mode = (*mode).max(strictest.unwrap_or(*mode));
        strictest.is_some()
    });
}
