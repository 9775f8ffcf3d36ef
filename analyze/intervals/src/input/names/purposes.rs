//! The purposes of waits: whether a task waited for a lock, or idly for something else to happen.
//!
//! Each wait has a [`Purpose`], by its stack, its lock and the rows of other waits. A futex does not record
//! its use, and a condition variable or a semaphore may be a lock. In this order decide:
//!
//! 1. a function of the stack that has one purpose, by the table in `rules`;
//! 2. of semaphores, the tasks that give them back: a lock is given back by the task that took it. One that a
//!    task has for nearly all of its life says when the task ends;
//! 3. the roles of the tasks that wait and wake (`roles`);
//! 4. a function of the stack that serves others, and the kind of the object.

use rustc_hash::FxHashMap;
use trace_format::{LockId, LockKind, LockRow, Stack, StackId};

mod observed;
mod rules;

pub use rules::Purpose;

use rules::{Weight, rule};

/// The purposes of the waits of a trace.
#[derive(Clone, Debug, Default)]
pub struct Purposes {
    /// By stack id; empty if no lock of the trace needs it.
    by_stack: Vec<Option<(Purpose, Weight)>>,
    /// By lock id.
    by_lock: Vec<OfLock>,
    /// By acquisition site and kind, for objects that have one waiter each: what behaviour says.
    by_site: FxHashMap<(u32, Purpose), Behaviour>,
    /// By stack id: the acquisition site.
    sites: Vec<u32>,
}

/// The purpose of waits for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OfLock {
    /// All waits have this one.
    Always(Purpose),
    /// The stack and behaviour decide.
    Decided {
        /// The verdict of the tasks' behaviour.
        behaviour: Behaviour,
        /// The purpose if nothing else is known.
        kind: Purpose,
        /// Whether some waits are idle, and whether some are not.
        has: (bool, bool),
    },
}

/// The purpose of the waits for an object, as the behaviour of its tasks shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Behaviour {
    #[default]
    Unknown,
    Purpose(Purpose),
    /// There are few waits, and none of the tasks ended the wait of another one: a message as likely as a
    /// lock.
    OneWay,
    /// The object has one waiter: its sites have purposes.
    OfSite {
        /// Whether the waiter ended a wait of another one at a site, as who had a lock does.
        passes_on: bool,
    },
}

/// The rules of functions, and the purposes of the stacks so far.
#[derive(Debug, Default)]
pub(super) struct StackRules {
    known: FxHashMap<String, Option<(Purpose, Weight)>>,
    by_stack: Vec<Option<(Purpose, Weight)>>,
}

impl StackRules {
    /// Adds the next stack, in the order of ids.
    pub(super) fn add(&mut self, stack: &Stack) {
        let purpose = self.purpose(stack);
        self.by_stack.push(purpose);
    }

    fn purpose(&mut self, stack: &Stack) -> Option<(Purpose, Weight)> {
        let (mut served, mut is_callee) = (None, true);
        let user = stack.frames.iter().filter(|frame| !frame.kernel);
        for symbol in user.filter_map(|frame| frame.symbol.as_deref()) {
            let rule = match self.known.get(symbol) {
                Some(rule) => *rule,
                None => *self.known.entry(symbol.to_owned()).or_insert_with(|| rule(symbol)),
            };
            match rule {
                Some((purpose, Weight::Decides)) => return Some((purpose, Weight::Decides)),
                Some((purpose, Weight::Serves)) if is_callee || served.is_none() => {
                    (served, is_callee) = (Some((purpose, Weight::Serves)), true);
                }
                _ => is_callee = false,
            }
        }
        served
    }
}

impl Purposes {
    /// Returns the purposes by the kinds of locks alone.
    pub(super) fn new(locks: &[LockRow]) -> Self {
        Self { by_lock: locks.iter().map(|lock| OfLock::of_kind(lock.kind)).collect(), ..Self::default() }
    }

    /// Returns the rules for stacks, if stacks decide about some lock.
    pub(super) fn rules(&self) -> Option<StackRules> {
        (!self.has_kinds_only()).then(StackRules::default)
    }

    /// Whether the kinds of all locks say what waits for them are for.
    fn has_kinds_only(&self) -> bool {
        self.by_lock.iter().all(|of| matches!(of, OfLock::Always(_)))
    }

    /// Sets the purposes of all stacks. `sites` are the acquisition sites by stack id.
    pub(super) fn set_stacks(&mut self, rules: StackRules, sites: Vec<u32>) {
        (self.by_stack, self.sites) = (rules.by_stack, sites);
    }

    /// Adds the split locks at the end of `locks`: each wait for a split lock is a wait for a lock.
    pub(super) fn add_split(&mut self, locks: &[LockRow]) {
        self.by_lock.resize(locks.len(), OfLock::Always(Purpose::Lock));
    }

    fn by_stack(&self, stack: Option<StackId>) -> Option<(Purpose, Weight)> {
        let at = stack.and_then(|stack| usize::try_from(stack.0).ok());
        at.and_then(|at| self.by_stack.get(at)).copied().flatten()
    }

    fn decided_by_stack(&self, stack: Option<StackId>) -> Option<Purpose> {
        self.by_stack(stack).filter(|(_, weight)| *weight == Weight::Decides).map(|(purpose, _)| purpose)
    }

    /// Returns the acquisition site of a stack; 0 if it is not known.
    fn site(&self, stack: Option<StackId>) -> u32 {
        let at = stack.and_then(|stack| usize::try_from(stack.0).ok());
        at.and_then(|at| self.sites.get(at)).copied().unwrap_or(0)
    }

    fn of_lock(&self, lock: LockId) -> Option<OfLock> {
        usize::try_from(lock.0).ok().and_then(|at| self.by_lock.get(at)).copied()
    }

    /// Returns the purpose of a wait.
    pub fn of(&self, lock: LockId, stack: Option<StackId>) -> Purpose {
        match self.of_lock(lock) {
            None => Purpose::Lock,
            Some(OfLock::Always(purpose)) => purpose,
            Some(OfLock::Decided { behaviour, kind, .. }) => self.decided(behaviour, kind, stack),
        }
    }

    fn decided(&self, behaviour: Behaviour, kind: Purpose, stack: Option<StackId>) -> Purpose {
        let by_stack = self.by_stack(stack);
        if let Some((purpose, Weight::Decides)) = by_stack {
            return purpose;
        }
        let observed = match behaviour {
            Behaviour::OfSite { passes_on } => match self.by_site.get(&(self.site(stack), kind)).copied() {
                Some(Behaviour::Purpose(Purpose::Lock)) if !passes_on => Behaviour::OneWay,
                of_site => of_site.unwrap_or_default(),
            },
            of_object => of_object,
        };
        let served = by_stack.map(|(purpose, _)| purpose);
        // The function in which a task waits says more than the kind, but a semaphore in a function of locks
        // may be a signal.
        let by_default = served.filter(|purpose| purpose.is_idle() || !kind.is_idle()).unwrap_or(kind);
        match observed {
            // An idle wait keeps the word of its function.
            Behaviour::Purpose(Purpose::Park) if by_default.is_idle() => by_default,
            // A futex is more often a lock than not.
            Behaviour::Purpose(Purpose::Undecided) if !kind.is_idle() && !by_default.is_idle() => by_default,
            Behaviour::Purpose(purpose) => purpose,
            Behaviour::OneWay if by_stack.is_none() && !kind.is_idle() => Purpose::Undecided,
            Behaviour::OneWay | Behaviour::Unknown | Behaviour::OfSite { .. } => by_default,
        }
    }

    /// Whether all waits for a lock that is no futex are idle.
    pub fn is_always_idle(&self, lock: LockId) -> bool {
        match self.of_lock(lock) {
            None => false,
            Some(OfLock::Always(purpose)) => purpose.is_idle(),
            Some(OfLock::Decided { kind, has: (_, has_locks), .. }) => kind.is_idle() && !has_locks,
        }
    }

    /// Whether some waits are idle for locks that are not always idle.
    pub fn has_mixed(&self) -> bool {
        let is_mixed = |of: &OfLock| match *of {
            OfLock::Always(_) => false,
            OfLock::Decided { kind, has: (has_idle, has_locks), .. } => {
                has_idle && (has_locks || !kind.is_idle())
            }
        };
        self.by_lock.iter().any(is_mixed)
    }
}

impl OfLock {
    const fn of_kind(kind: LockKind) -> Self {
        match (kind, Purpose::of_kind(kind)) {
            (LockKind::Futex | LockKind::CondVar | LockKind::UserSemaphore, kind) => {
                Self::Decided { behaviour: Behaviour::Unknown, kind, has: (false, false) }
            }
            (_, purpose) => Self::Always(purpose),
        }
    }
}

#[cfg(test)]
mod tests;
