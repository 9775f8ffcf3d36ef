//! Holds and waits: what raw events mean.
//!
//! Events enter in the order of the trace, one pass; [`Hold`]s and [`Wait`]s leave into a [`Sink`] as they end, and who
//! made whom wait as [`Share`]s. State is kept for open holds and open waits only. No file is touched, nothing is summed
//! up and nothing is named: what an interval counts for is the business of [`report`](crate::report) and
//! [`blame`](crate::blame), how it looks that of the pictures.
//!
//! What is not known is said, never guessed: nothing is paired across a `lost` event, an interval that is open at
//! the end leaves as such, and contention is never inferred from a duration.
//!
//! # Blame
//!
//! Each instant of a wait is charged to one hold, or to nobody: to the oldest hold of another task that is open then, and
//! where there is none, to the gap. A hold that somebody else's hold has followed which excludes it is over, even if its
//! release comes late or never. Of holds that began in the same nanosecond, that of the smaller task id is the older one.
//! So for each wait that was seen to begin, on a lock whose holds are recorded,
//!
//! ```text
//! wait_ns = the shares of all holds + gap_ns
//! ```
//!
//! to the nanosecond, however the wait ended, and the same for the sums of all waits of a lock.

use trace_format::{LockId, LockKind, LockRow, Mode, RunInfo, StackId, TaskId};

mod charge;
mod engine;
#[cfg(test)]
pub(crate) mod histories;
mod lock_state;
#[cfg(test)]
pub(crate) mod model;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

pub use engine::Engine;
pub(crate) use engine::Stride;

/// One task owned one lock for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Which lock.
    pub lock: LockId,
    /// Who.
    pub task: TaskId,
    /// How.
    pub mode: Mode,
    /// When ownership began, in ns of the trace's clock.
    pub start_ns: i64,
    /// When it ended; with an incomplete [`state`](Self::state), until when it was watched.
    pub end_ns: i64,
    /// Where it was acquired.
    pub stack: Option<StackId>,
    /// Whether the lock was taken when its owner came for it.
    pub contended: bool,
    /// How long its owner waited, in ns; 0 if the lock was free, `None` if the wait's begin was not seen.
    pub wait_ns: Option<i64>,
    /// Of that: while no other task's hold was open, in ns; `None` if that is not known.
    pub gap_ns: Option<i64>,
    /// Of that: asleep, in ns, if it waited and the source measured it.
    pub blocked_ns: Option<i64>,
    /// Of that: ready to run and without a CPU, in ns, if it waited and the source measured it.
    pub runq_ns: Option<i64>,
    /// Waits of other tasks that began while it lasted, `start_ns <= begin < end_ns`. While several shared holds are
    /// open, a wait is charged to the oldest.
    pub waits_begun: i64,
    /// Of all waits of other tasks: the time that is charged to this hold, in ns.
    pub wait_caused_ns: i64,
    /// The most tasks that waited at one time while it was the hold that they were charged to.
    pub max_waiters: i64,
    /// Whether another task had the lock before: the task of the hold that began before this one is another. Holds that ended in
    /// the nanosecond of their begin are passed over, and so are all before lost events.
    pub owner_changed: bool,
    /// Acquisitions in it: 1, or more if its owner acquired a shared lock again at the same point.
    pub acquisitions: i64,
    /// How many further times its owner acquired an exclusive lock that it had: recursion, which is not counted.
    pub recursions: i64,
    /// Which other task released it: the lock was handed over.
    pub released_by: Option<TaskId>,
    /// Whether and how its end was seen.
    pub state: HoldState,
}

/// Whether and how the end of a hold was seen. Only complete holds are in the columns of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HoldState {
    /// Acquired and released.
    Complete,
    /// The source of this kind of lock sees no releases: this is an acquisition, and how long it lasted is not known.
    AcquisitionOnly,
    /// Not released before the trace ended.
    OpenAtEnd,
    /// Events were lost while it lasted, perhaps its release.
    CutByLoss,
    /// Its owner acquired the lock anew after somebody else had had it, so that its release was not seen.
    ReleaseUnseen,
    /// Its release is earlier than its acquisition; it ends where it began.
    Backwards,
}

/// One task waited for one lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Which lock.
    pub lock: LockId,
    /// Who.
    pub task: TaskId,
    /// How the lock was wanted.
    pub mode: Mode,
    /// The first failed attempt, in ns of the trace's clock.
    pub start_ns: i64,
    /// When the wait ended; with an incomplete [`outcome`](Self::outcome), until when it was watched.
    pub end_ns: i64,
    /// Where the task was when it began to wait, or if that is not known, when it stopped.
    pub stack: Option<StackId>,
    /// How it ended.
    pub outcome: Outcome,
    /// How long the task waited, in ns: `end_ns - start_ns`.
    pub wait_ns: i64,
    /// Of that: while no other task's hold was open, in ns. The rest is charged to holds. `None` if the holds of this lock,
    /// or the wait's begin, were not recorded.
    pub gap_ns: Option<i64>,
    /// Of the wait: asleep, in ns, if the source measured it.
    pub blocked_ns: Option<i64>,
    /// Of the wait: ready to run and without a CPU, in ns, if the source measured it.
    pub runq_ns: Option<i64>,
    /// Who owned the lock when the wait began, if the lock word named it.
    pub owner: Option<TaskId>,
    /// Whose wake-up ended the wait.
    pub waker: Option<TaskId>,
    /// Where the waker was.
    pub waker_stack: Option<StackId>,
    /// Which hold it began in.
    pub charge: Charge,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The task got the lock.
    Acquired,
    /// The task gave up; the errno, if the source gave one.
    Abandoned(Option<i32>),
    /// The task still waited when the trace ended.
    OpenAtEnd,
    /// Events were lost while it waited, perhaps the end.
    CutByLoss,
}

/// Which hold a wait began in, and is counted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Charge {
    /// For this hold of the same lock.
    Hold {
        /// Its owner.
        task: TaskId,
        /// Its begin.
        start_ns: i64,
    },
    /// For nobody: no hold of another task was open. The lock was being handed over, or its holder came before the
    /// recording.
    Gap,
    /// For nobody: the holds of this lock, or the wait's begin, were not recorded.
    Unknown,
}

/// A part of a wait that is charged to one hold, or to nobody. Those of one wait follow each other without a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Whom the hold belongs to; `None` is the gap.
    pub payer: Option<Payer>,
    /// When it began, on the clock of its wait.
    pub start_ns: i64,
    /// How long, in ns.
    pub ns: i64,
}

/// The hold that a share of a wait is charged to: of the same lock, by another task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payer {
    /// Its owner.
    pub task: TaskId,
    /// Its begin, in ns of the trace's clock.
    pub start_ns: i64,
    /// Where it was acquired.
    pub stack: Option<StackId>,
}

/// Where intervals go.
pub trait Sink {
    /// Whether shares are wanted. The sums that holds and waits carry come without: making shares takes a step per
    /// waiter whenever something happens to a lock.
    const SHARES: bool = false;

    /// A hold began: it is told as far as it is known then. One more acquisition of a shared lock within a hold is told the same way, with the
    /// hold that it is a part of.
    fn acquired(&mut self, hold: &Hold) {
        let _ = hold;
    }
    /// A wait began; it ends in [`wait`](Self::wait). Not told of waits that are known only from their end.
    fn wait_begins(&mut self, wait: &Wait) {
        let _ = wait;
    }
    /// A hold ended.
    fn hold(&mut self, hold: &Hold);
    /// A wait ended.
    fn wait(&mut self, wait: &Wait);
    /// A share of `wait`, which may not have ended.
    fn share(&mut self, wait: &Wait, share: &Share) {
        let _ = (wait, share);
    }
    /// Whether the rest of the trace need not be read.
    fn has_enough(&self) -> bool {
        false
    }
}

impl<S: Sink> Sink for &mut S {
    const SHARES: bool = S::SHARES;

    fn acquired(&mut self, hold: &Hold) {
        S::acquired(self, hold);
    }

    fn wait_begins(&mut self, wait: &Wait) {
        S::wait_begins(self, wait);
    }

    fn hold(&mut self, hold: &Hold) {
        S::hold(self, hold);
    }

    fn wait(&mut self, wait: &Wait) {
        S::wait(self, wait);
    }

    fn share(&mut self, wait: &Wait, share: &Share) {
        S::share(self, wait, share);
    }

    fn has_enough(&self) -> bool {
        S::has_enough(self)
    }
}

/// Every interval, kept. For one lock, or for tests: it grows with the trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Intervals {
    /// In the order of their ends.
    pub holds: Vec<Hold>,
    /// In the order of their ends.
    pub waits: Vec<Wait>,
}

impl Sink for Intervals {
    fn hold(&mut self, hold: &Hold) {
        self.holds.push(*hold);
    }

    fn wait(&mut self, wait: &Wait) {
        self.waits.push(*wait);
    }
}

/// What became of the events that make no interval, or no whole one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Waits that began in the trace.
    pub waits_begun: u64,
    /// How long those lasted together, in ns, where holds are recorded: however they ended, or until they were last seen.
    pub waited_ns: i64,
    /// Of that time: while no other task's hold was open. The rest is charged to holds.
    pub gap_ns: i64,
    /// Of the waits begun: counted for nobody, because no hold of another task was open.
    pub gap_waits: u64,
    /// Of those: counted for nobody, because the source records no holds of this kind of lock.
    pub unmeasured_waits: u64,
    /// Waits that are known only from their end and length. They are not among `waits_begun`.
    pub inferred_waits: u64,
    /// Ends of waits whose begin was not seen.
    pub begin_unseen: u64,
    /// Releases by a task that held nothing, and that no other task's hold explains.
    pub unpaired_releases: u64,
    /// Holds that another task released.
    pub hand_overs: u64,
    /// Holds whose release was not seen, because their owner acquired the lock anew after somebody else had had it.
    pub releases_unseen: u64,
    /// Holds that were dropped because their release is earlier than their acquisition.
    pub backwards: u64,
    /// Attempts that did not wait and found the lock taken.
    pub try_failures: u64,
    /// `lost` events.
    pub losses: u64,
}

impl Counts {
    /// Those of two engines that had different locks of the same trace.
    #[must_use]
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            waits_begun: self.waits_begun + other.waits_begun,
            waited_ns: self.waited_ns.saturating_add(other.waited_ns),
            gap_ns: self.gap_ns.saturating_add(other.gap_ns),
            gap_waits: self.gap_waits + other.gap_waits,
            unmeasured_waits: self.unmeasured_waits + other.unmeasured_waits,
            inferred_waits: self.inferred_waits + other.inferred_waits,
            begin_unseen: self.begin_unseen + other.begin_unseen,
            unpaired_releases: self.unpaired_releases + other.unpaired_releases,
            hand_overs: self.hand_overs + other.hand_overs,
            releases_unseen: self.releases_unseen + other.releases_unseen,
            backwards: self.backwards + other.backwards,
            try_failures: self.try_failures + other.try_failures,
            // All engines see all losses.
            losses: self.losses.max(other.losses),
        }
    }
}

/// What the engine must know of the locks and stacks of a trace.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// By lock id.
    locks: Vec<LockRule>,
    /// By stack id: the acquisition point, for a kernel lock. Equal numbers are equal points.
    kernel_points: Vec<u32>,
    /// By stack id: the acquisition point, for a user lock.
    user_points: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct LockRule {
    measures_holds: bool,
    /// Any number of tasks may hold it exclusively: a semaphore counts.
    counts: bool,
    /// Readers take it without any function that could be recorded: of their holds only those that waited are seen to begin,
    /// and none to end.
    exclusive_only: bool,
    kernel: bool,
}

impl Rules {
    /// The rules of a trace. A kind of lock that no source lists is taken as fully recorded, as in traces made by hand.
    pub fn new(info: &RunInfo, locks: &[LockRow]) -> Self {
        let rule = |lock: &LockRow| LockRule {
            // What is waited for idly belongs to nobody.
            measures_holds: !lock.kind.is_idle()
                && info.source_of(lock.kind).is_none_or(|source| source.holds),
            counts: lock.kind == LockKind::Semaphore,
            exclusive_only: lock.kind == LockKind::PercpuRwSem,
            kernel: lock.kind.is_kernel(),
        };
        Self { locks: locks.iter().map(rule).collect(), ..Self::default() }
    }

    /// The same with acquisition points, by stack id: equal numbers are equal points. Without, every stack is a
    /// point of its own.
    #[must_use]
    pub fn with_points(self, kernel_points: Vec<u32>, user_points: Vec<u32>) -> Self {
        Self { kernel_points, user_points, ..self }
    }

    /// Whether the source records how long `lock` is held.
    pub fn measures_holds(&self, lock: LockId) -> bool {
        self.lock(lock).is_none_or(|rule| rule.measures_holds)
    }

    /// The same of holds of one mode.
    fn measures(&self, lock: LockId, mode: Mode) -> bool {
        let rule = self.lock(lock);
        rule.is_none_or(|rule| rule.measures_holds && !(rule.exclusive_only && mode == Mode::Shared))
    }

    /// Whether a hold of this mode can only begin when all others have ended.
    fn excludes(&self, lock: LockId, mode: Mode) -> bool {
        mode == Mode::Exclusive && !self.lock(lock).is_some_and(|rule| rule.counts)
    }

    fn lock(&self, lock: LockId) -> Option<LockRule> {
        index(lock.0).and_then(|at| self.locks.get(at)).copied()
    }

    fn point(&self, lock: LockId, stack: Option<StackId>) -> Option<i64> {
        let kernel = self.lock(lock).is_some_and(|rule| rule.kernel);
        let points = if kernel { &self.kernel_points } else { &self.user_points };
        let stack = stack?;
        let point = index(stack.0).and_then(|at| points.get(at));
        // A stack without a point is one of its own; negative numbers can't meet those of points.
        Some(point.map_or_else(|| -1 - i64::from(stack.0), |point| i64::from(*point)))
    }
}

fn index(id: i32) -> Option<usize> {
    usize::try_from(id).ok()
}
