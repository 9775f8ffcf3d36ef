//! Roles: whether the tasks that wait at an object exclude each other, by who ends whose waits.
//!
//! ```text
//! A wakes B, B wakes C, C wakes A      each task waits, and each one ends a wait: a lock made of a condition variable
//! A wakes B, A wakes C, A wakes B      one task wakes, and others wait for its work: a queue
//! ```
//!
//! A [`Group`] reads the rows of the waits at one object, or at one site if each object has one waiter, and
//! counts the [`Evidence`]. [`Evidence::role`] decides. The thresholds were set on programs with a known
//! truth (docs/internals/causes.md).
//!
//! * A *vain* wake-up is followed within [`VAIN_NS`] by the next wait of the same task, which woke no task in
//!   between: the task found the lock taken. Both waits are one.
//! * Only waits with a known waker, which is another task, count.
//! * `overlap` is the sum over tasks of the smaller of two shares: the share of the waits that the task
//!   waited, and the share that it ended.
//! * `all_wait` is the time in which all tasks of the group wait, as a share of the time in which at least
//!   one waits.
//! * A *batch* is a run of waits of different tasks that the same task ended, with one call or each within
//!   [`BATCH_NS`] of the one before.
//! * A wait *queued* if it began before the first wait of the batch before ended. It is *relayed* if a task
//!   of that batch ended it. Where tasks exclude each other, who was woken is inside, and wakes the next:
//!   nearly all are relayed. In a pool, several tasks are inside.
//! * A wait *entered* if another one that was open at its end is still open when somebody next calls a wake.
//!   It *left* if the same task calls it. Who is inside a lock calls it, also where tasks that never wait
//!   take the lock between.

mod group;
#[cfg(test)]
mod model;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

pub(crate) use group::Group;

/// The longest time between a vain wake-up and the next wait.
pub(crate) const VAIN_NS: i64 = 50_000;

/// The longest time between two waits of a batch.
pub(crate) const BATCH_NS: i64 = 100_000;

/// The fewest waits that decide.
const MIN_WAITS: u64 = 10;

/// The relation between the tasks that wait at an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The tasks exclude each other.
    Lock,
    /// Some tasks wait for the work of others.
    Queue,
    /// All tasks wait for the last one.
    Barrier,
    /// Neither is sure.
    Undecided,
    /// There are too few waits to tell.
    TooFew,
}

/// The counts by which a role is decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Evidence {
    /// Waits with a known waker.
    pub(crate) waits: u64,
    /// Tasks that waited, with or without a known waker.
    pub(crate) tasks: u64,
    /// The sum of the smaller of waits and wakes of each task: `overlap` times `waits`.
    pub(crate) both: u64,
    /// Waits that entered.
    pub(crate) entered: u64,
    /// Waits of these that left.
    pub(crate) left: u64,
    /// The time in which a task waits.
    pub(crate) some_ns: i64,
    /// The time in which all tasks wait.
    pub(crate) all_ns: i64,
    /// Waits that queued.
    pub(crate) queued: u64,
    /// Waits of these that were relayed.
    pub(crate) relayed: u64,
    /// Waits in batches of two or more.
    pub(crate) batched: u64,
    pub(crate) batches: u64,
}

/// Facts about a group beside its waits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Context {
    /// Whether each object has one waiter, such as the word on which a thread parks. Such objects carry
    /// messages as often as locks.
    pub(crate) one_waiter_each: bool,
    /// Whether tasks wait in one function and wake in another one, as `lock` and `unlock`. Known only with
    /// stacks.
    pub(crate) wakes_elsewhere: bool,
    /// Whether it is a word of memory: who gives back a permit calls a wake if others wait. Whoever changes a
    /// condition does so, too.
    pub(crate) is_word: bool,
}

impl Evidence {
    /// Whether there are enough waits, and those who wait end half of the waits of each other or more.
    pub(crate) const fn is_mutual(&self) -> bool {
        self.waits >= MIN_WAITS && self.both * 2 >= self.waits
    }

    /// Decides.
    pub(crate) fn role(&self, context: Context) -> Role {
        let at_least = |part: u64, percent: u64, of: u64| part * 100 >= of * percent;
        if self.waits < MIN_WAITS {
            return Role::TooFew;
        }
        let all_wait = |percent: i64| self.all_ns.saturating_mul(100) >= self.some_ns.saturating_mul(percent);
        let leaves = context.is_word && self.entered >= MIN_WAITS && at_least(self.left, 60, self.entered);
        if all_wait(50) || !leaves && !at_least(self.both, 50, self.waits) {
            return Role::Queue;
        }
        // Two tasks that take turns, as a client and its server do, look like a lock of two.
        let lock = if self.tasks > 2 || context.wakes_elsewhere && !context.one_waiter_each {
            Role::Lock
        } else {
            Role::Undecided
        };
        if leaves {
            // Both sides of a bounded queue may wait at one word, and each wakes the other.
            return if at_least(self.both, 20, self.waits) { lock } else { Role::Undecided };
        }
        let is_mutual = at_least(self.both, 75, self.waits);
        let is_left_alone = context.is_word && !at_least(self.entered, 25, self.queued);
        if self.queued >= MIN_WAITS && at_least(self.queued, 10, self.waits) {
            return match () {
                () if at_least(self.relayed, 80, self.queued) => lock,
                () if !at_least(self.relayed, 50, self.queued)
                    && (context.one_waiter_each || is_left_alone || !is_mutual) =>
                {
                    Role::Queue
                }
                () => Role::Undecided,
            };
        }
        match () {
            // Most batches are of all tasks but one.
            () if at_least(self.batched, 50, self.waits)
                && at_least(self.waits, 80, self.batches * (self.tasks - 1)) =>
            {
                Role::Barrier
            }
            () if at_least(self.batched, 50, self.waits) || !is_mutual || all_wait(5) => Role::Undecided,
            () => lock,
        }
    }
}
