//! The nodes of the graph of lock orders: the locks of a trace, or classes of locks; and whether an order
//! between two locks can be part of a deadlock at all.

use rustc_hash::FxHashMap;
use trace_format::{LockId, LockKind, LockRow, Mode, StackId};

use crate::{
    engine::Rules,
    input::names::{Names, UNKNOWN},
};
use output::choices;

choices! {
    /// The locks that an order is about.
    By, "key" {
        /// Each lock is one of its own.
        #[default]
        Lock = "lock",
        /// All locks of one kind and name, or of one place of initialisation, of one process are one.
        Class = "class",
    }
}

/// A lock, or a class of locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Node {
    Lock(LockId),
    /// The class of this lock, which is the first of its class.
    Class(LockId),
}

impl Node {
    /// Returns the lock, or the first one of the class.
    pub const fn lock(self) -> LockId {
        match self {
            Self::Lock(lock) | Self::Class(lock) => lock,
        }
    }

    /// Returns the name of the lock or class.
    pub fn label(self, names: &Names) -> String {
        let Self::Class(lock) = self else { return names.lock_label(self.lock()) };
        let Some(row) = names.lock(lock) else { return UNKNOWN.to_owned() };
        match names.class_number(lock).and_then(|class| names.class(class)) {
            Some(class) if class.name.is_some() || row.init_stack.is_none() => class.label(),
            _ => format!("{} of {}", row.kind, names.point(lock, row.init_stack).label()),
        }
    }
}

/// The properties of the locks of one trace.
#[derive(Debug)]
pub struct Nodes<'a> {
    names: &'a Names,
    rules: &'a Rules,
    /// By lock id; empty if each lock is a node of its own.
    classes: Vec<Node>,
}

/// The properties that locks of one class share: the number of kind and name, or the kind and the site of the
/// initialisation; and the process.
#[derive(PartialEq, Eq, Hash)]
enum ClassKey {
    Named(u32, Option<i32>),
    Initialised(LockKind, u32, Option<i32>),
}

impl<'a> Nodes<'a> {
    pub fn new(by: By, names: &'a Names, rules: &'a Rules) -> Self {
        let classes = if by == By::Class { classes(names) } else { Vec::new() };
        Self { names, rules, classes }
    }

    /// Returns the node of a lock.
    pub fn of(&self, lock: LockId) -> Node {
        let class = usize::try_from(lock.0).ok().and_then(|at| self.classes.get(at));
        class.copied().unwrap_or(Node::Lock(lock))
    }

    /// Returns the number of the site of a call that took a lock.
    pub fn site(&self, lock: LockId, stack: Option<StackId>) -> u32 {
        self.names.point_number(lock, stack)
    }

    /// Returns whether a node can be a class of several locks.
    pub fn has_classes(&self) -> bool {
        !self.classes.is_empty()
    }

    /// Returns whether holds of these modes exclude each other.
    pub fn excludes(&self, lock: LockId, one: Mode, other: Mode) -> bool {
        self.rules.excludes(lock, one) || self.rules.excludes(lock, other)
    }

    /// Returns whether a waiting writer stops further readers.
    pub fn queues_writers(&self, lock: LockId) -> bool {
        self.names.lock(lock).is_some_and(|row| row.kind == LockKind::RwSem)
    }

    /// Returns whether two locks can be in one deadlock: both are of the kernel, or of one process, or
    /// processes share one of them.
    pub fn can_meet(&self, one: LockId, other: LockId) -> bool {
        let (Some(one), Some(other)) = (self.names.lock(one), self.names.lock(other)) else { return true };
        match (one.kind.is_kernel(), other.kind.is_kernel()) {
            (true, true) => true,
            (false, false) => one.pid == other.pid || one.shared.is_some() || other.shared.is_some(),
            _ => false,
        }
    }
}

/// Returns the class of each lock. A lock without a name whose initialisation was not seen is a class of its
/// own.
fn classes(names: &Names) -> Vec<Node> {
    let mut first: FxHashMap<ClassKey, LockId> = FxHashMap::default();
    let mut class = |lock: &LockRow| {
        let pid = lock.pid.filter(|_| lock.shared.is_none());
        let key = match (&lock.name, names.class_number(lock.id), lock.init_stack) {
            (Some(_), Some(class), _) => ClassKey::Named(class, pid),
            (None, _, Some(_)) => {
                ClassKey::Initialised(lock.kind, names.point_number(lock.id, lock.init_stack), pid)
            }
            _ => return Node::Lock(lock.id),
        };
        Node::Class(*first.entry(key).or_insert(lock.id))
    };
    names.locks().iter().map(&mut class).collect()
}
