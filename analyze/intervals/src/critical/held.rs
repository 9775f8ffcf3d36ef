//! The locks that tasks hold, as numbered lists: each row of a task knows the number of its list.
//!
//! A list is a chain of changes, the last one first, that begins with the empty list. Lists share the changes that they have in common, so the
//! list of a row takes 8 bytes at most, and mostly none: the list after a release is the one before the acquisition.

use rustc_hash::FxHashMap;
use trace_format::LockId;

/// A lock that a task holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    pub lock: LockId,
    pub(super) is_shared: bool,
}

/// The number of a list of holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HeldSet(pub(super) u32);

impl HeldSet {
    pub(super) const EMPTY: Self = Self(0);
}

/// The holds of a task.
#[derive(Debug, Default)]
pub(super) struct TaskHeld {
    /// In the order of the acquisitions.
    pub(super) list: Vec<Held>,
    /// The number of the list.
    pub(super) set: HeldSet,
    /// The number of changes of which the list is made.
    changes: usize,
}

impl TaskHeld {
    /// Ends all holds.
    pub(super) fn clear(&mut self) {
        self.list.clear();
        (self.set, self.changes) = (HeldSet::EMPTY, 0);
    }
}

/// All lists that tasks held.
#[derive(Debug)]
pub(super) struct HeldSets {
    changes: Vec<Change>,
    /// The number of each change.
    index: FxHashMap<Change, u32>,
}

/// The last change of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Change {
    /// The lock that was acquired, or the place of the hold that ended, from the end of the list.
    value: u32,
    /// The list before it, and flags.
    before: u32,
}

/// Flags of a change: a hold that ended; a shared acquisition.
const ENDED: u32 = 1 << 31;
const SHARED: u32 = 1 << 30;
/// Changes that a list may have beside twice its holds.
const SLACK: usize = 8;

impl Default for HeldSets {
    fn default() -> Self {
        Self { changes: vec![Change { value: 0, before: 0 }], index: FxHashMap::default() }
    }
}

impl Change {
    fn of_hold(held: Held, before: HeldSet) -> Self {
        let flags = if held.is_shared { SHARED } else { 0 };
        Self { value: held.lock.0.cast_unsigned(), before: before.0 | flags }
    }

    fn before(self) -> HeldSet {
        HeldSet(self.before & !(ENDED | SHARED))
    }

    /// Returns the hold that began.
    fn held(self) -> Option<Held> {
        let held = Held { lock: LockId(self.value.cast_signed()), is_shared: self.before & SHARED > 0 };
        (self.before & ENDED == 0).then_some(held)
    }
}

impl HeldSets {
    /// Adds a hold to the holds of a task.
    pub(super) fn acquire(&mut self, of: &mut TaskHeld, held: Held) {
        of.set = self.add(Change::of_hold(held, of.set));
        of.list.push(held);
        of.changes += 1;
    }

    /// Ends the hold at an index of the list of a task.
    #[inline]
    pub(super) fn end(&mut self, of: &mut TaskHeld, at: usize) {
        of.list.remove(at);
        let behind = of.list.len() - at;
        let last = self.change(of.set);
        if of.list.is_empty() {
            (of.set, of.changes) = (HeldSet::EMPTY, 0);
        } else if behind == 0 && last.held().is_some() {
            (of.set, of.changes) = (last.before(), of.changes - 1);
        } else {
            self.end_inside(of, behind);
        }
    }

    fn end_inside(&mut self, of: &mut TaskHeld, behind: usize) {
        of.set = self.add(Change { value: behind as u32, before: of.set.0 | ENDED });
        of.changes += 1;
        // Otherwise the chain of a task that always holds something grows for ever.
        if of.changes > 2 * of.list.len() + SLACK {
            of.set = HeldSet::EMPTY;
            for held in &of.list {
                of.set = self.add(Change::of_hold(*held, of.set));
            }
            of.changes = of.list.len();
        }
    }

    /// Returns the list before its last change.
    pub(super) fn before(&self, set: HeldSet) -> HeldSet {
        self.change(set).before()
    }

    /// Whether a list is another one and a hold.
    #[inline]
    pub(super) fn is_one_more(&self, set: HeldSet, than: HeldSet) -> bool {
        let last = self.change(set);
        set != HeldSet::EMPTY && last.held().is_some() && last.before() == than
    }

    /// Writes the holds of a list, in the order of the acquisitions.
    pub(super) fn list(&self, set: HeldSet, list: &mut Vec<Held>) {
        let mut changes = Vec::new();
        let mut rest = set;
        while rest != HeldSet::EMPTY {
            let change = self.change(rest);
            changes.push(change);
            rest = change.before();
        }
        list.clear();
        for change in changes.into_iter().rev() {
            match change.held() {
                Some(held) => list.push(held),
                None => {
                    if let Some(at) = list.len().checked_sub(change.value as usize + 1) {
                        list.remove(at);
                    }
                }
            }
        }
    }

    fn change(&self, set: HeldSet) -> Change {
        self.changes[set.0 as usize]
    }

    fn add(&mut self, change: Change) -> HeldSet {
        // A trace with more of them does not fit into memory.
        let next = self.changes.len() as u32 & !(ENDED | SHARED);
        let number = *self.index.entry(change).or_insert(next);
        if number == next {
            self.changes.push(change);
        }
        HeldSet(number)
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*, sample::Index};

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Acquire(i32, bool),
        End(Index),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..4_i32, any::<bool>()).prop_map(|(lock, is_shared)| Step::Acquire(lock, is_shared)),
            any::<Index>().prop_map(Step::End),
        ]
    }

    proptest! {
        #[test]
        fn each_list_is_what_the_task_held_at_that_time(steps in vec((0..3_usize, step()), 0..120)) {
            let mut sets = HeldSets::default();
            let mut tasks: [TaskHeld; 3] = Default::default();
            let mut at_that_time = Vec::new();
            for (task, step) in steps {
                let of = &mut tasks[task];
                let before = of.set;
                match step {
                    Step::Acquire(lock, is_shared) => {
                        let held = Held { lock: LockId(lock), is_shared };
                        sets.acquire(of, held);
                        prop_assert!(sets.is_one_more(of.set, before));
                        prop_assert_eq!(sets.before(of.set), before);
                    }
                    Step::End(at) if !of.list.is_empty() => {
                        let at = at.index(of.list.len());
                        sets.end(of, at);
                    }
                    Step::End(_) => {}
                }
                at_that_time.push((of.set, of.list.clone()));
            }
            let mut list = Vec::new();
            for (set, expected) in at_that_time {
                sets.list(set, &mut list);
                prop_assert_eq!(&list, &expected);
            }
        }
    }

    #[test]
    fn lists_take_no_room_for_locks_that_are_taken_again_and_little_for_many_that_end_in_the_order_of_their_begin()
     {
        let (mut sets, mut of) = (HeldSets::default(), TaskHeld::default());
        for _ in 0..1000 {
            sets.acquire(&mut of, Held { lock: LockId(0), is_shared: false });
            sets.acquire(&mut of, Held { lock: LockId(1), is_shared: true });
            sets.end(&mut of, 1);
            sets.end(&mut of, 0);
        }
        assert_eq!(sets.changes.len(), 3);
        let locks = 5000;
        for lock in 0..locks {
            sets.acquire(&mut of, Held { lock: LockId(lock), is_shared: false });
        }
        (0..locks).for_each(|_| sets.end(&mut of, 0));
        assert!(sets.changes.len() < 5 * 5000, "{} changes", sets.changes.len());
        // A task that always holds something.
        sets.acquire(&mut of, Held { lock: LockId(0), is_shared: false });
        for lock in 1..1000 {
            sets.acquire(&mut of, Held { lock: LockId(lock % 10), is_shared: false });
            sets.end(&mut of, 0);
        }
        assert!(of.changes <= SLACK + 2);
    }
}
