//! Intervals: a hold, a wait, and a share of a wait that is charged to a hold.

use trace_format::{LockId, Mode, StackId, TaskId};

/// The time during which one task owned one lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The lock.
    pub lock: LockId,
    /// Its owner.
    pub task: TaskId,
    /// Shared or exclusive.
    pub mode: Mode,
    /// The start of ownership, in ns of the trace's clock.
    pub start_ns: i64,
    /// The end of ownership; with an incomplete [`state`](Self::state), the last time at which it was
    /// observed.
    pub end_ns: i64,
    /// The stack of the acquisition.
    pub stack: Option<StackId>,
    /// Whether the lock was taken when its owner asked for it.
    pub contended: bool,
    /// The wait of the owner, in ns; 0 if the acquisition was uncontended, `None` if the start of the wait
    /// was not seen.
    pub wait_ns: Option<i64>,
    /// The part of `wait_ns` during which no other task's hold was open; `None` if unknown.
    pub gap_ns: Option<i64>,
    /// The part of `wait_ns` that the owner slept, if it waited and the source measured it.
    pub blocked_ns: Option<i64>,
    /// The part of `wait_ns` that the owner was runnable without a CPU, if it waited and the source measured
    /// it.
    pub runq_ns: Option<i64>,
    /// Waits of other tasks that began during the hold, `start_ns <= begin < end_ns`. While several shared
    /// holds are open, a wait is charged to the oldest.
    pub waits_begun: i64,
    /// The time of other tasks' waits that is charged to this hold, in ns.
    pub wait_caused_ns: i64,
    /// The highest number of tasks that waited at the same time and were charged to this hold.
    pub max_waiters: i64,
    /// Whether the hold that began before this one had another owner. Skips holds that ended in the
    /// nanosecond in which they began, and everything before lost events.
    pub owner_changed: bool,
    /// Acquisitions in this hold: 1, or more if its owner acquired a shared lock again at the same site.
    pub acquisitions: i64,
    /// Further acquisitions of an exclusive lock by its owner. They do not count as acquisitions.
    pub recursions: i64,
    /// The task that released the lock, if it was not the owner.
    pub released_by: Option<TaskId>,
    /// Whether and how the end was seen.
    pub state: HoldState,
}

impl Hold {
    /// Returns how others refer to the hold.
    pub fn id(&self) -> HoldId {
        HoldId { task: self.task, start_ns: self.start_ns, stack: self.stack, mode: self.mode }
    }

    /// Whether the hold counts in the columns of a report: it was released, or its kind of lock has no
    /// releases.
    pub fn is_credited(&self) -> bool {
        matches!(self.state, HoldState::Complete | HoldState::AcquisitionOnly)
    }

    /// Whether it was released, and no task waited: neither its owner for the lock, nor another task for the
    /// hold. Nearly all holds are plain, and all of their sums follow from their number, their length and the
    /// changes of owners.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.state == HoldState::Complete
            && self.acquisitions == 1
            && !self.contended
            && (self.wait_ns, self.gap_ns) == (Some(0), Some(0))
            && self.waits_begun | self.max_waiters | self.wait_caused_ns == 0
    }
}

/// Whether and how the end of a hold was seen. Only credited holds are in the columns of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HoldState {
    /// Acquired and released.
    Complete,
    /// An acquisition of unknown length: the source of this kind of lock sees no releases.
    AcquisitionOnly,
    /// Not released before the trace ended.
    OpenAtEnd,
    /// Events were lost during the hold, perhaps its release.
    CutByLoss,
    /// The release was not seen: the owner acquired the lock again after another task had held it.
    ReleaseUnseen,
    /// The release is earlier than the acquisition; the hold ends where it began.
    Backwards,
}

impl HoldState {
    /// Returns the word for the state.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::AcquisitionOnly => "acquisition",
            Self::OpenAtEnd => "open",
            Self::CutByLoss => "cut",
            Self::ReleaseUnseen => "release_unseen",
            Self::Backwards => "backwards",
        }
    }
}

/// Returns an uncontended exclusive hold, without an end.
#[inline]
pub fn started(lock: LockId, task: TaskId, start_ns: i64, stack: Option<StackId>) -> Hold {
    Hold {
        lock,
        task,
        mode: Mode::Exclusive,
        start_ns,
        end_ns: start_ns,
        stack,
        contended: false,
        wait_ns: Some(0),
        gap_ns: Some(0),
        blocked_ns: None,
        runq_ns: None,
        waits_begun: 0,
        wait_caused_ns: 0,
        max_waiters: 0,
        owner_changed: false,
        acquisitions: 1,
        recursions: 0,
        released_by: None,
        state: HoldState::AcquisitionOnly,
    }
}

/// The time during which one task waited for one lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The lock.
    pub lock: LockId,
    /// The waiting task.
    pub task: TaskId,
    /// Shared or exclusive.
    pub mode: Mode,
    /// The first failed attempt, in ns of the trace's clock.
    pub start_ns: i64,
    /// Whether the start was seen. If not, it is the end less the length that the source measured.
    pub start_seen: bool,
    /// The end of the wait; with an incomplete [`outcome`](Self::outcome), the last time at which it was
    /// observed.
    pub end_ns: i64,
    /// The stack at the start of the wait, or if that is unknown, at its end.
    pub stack: Option<StackId>,
    /// The outcome of the wait.
    pub outcome: Outcome,
    /// The length of the wait, in ns: `end_ns - start_ns`.
    pub wait_ns: i64,
    /// The part of `wait_ns` during which no other task's hold was open. The rest is charged to holds. `None`
    /// if the holds of this lock, or the start of the wait, were not recorded.
    pub gap_ns: Option<i64>,
    /// The part of `wait_ns` that the task slept, if the source measured it.
    pub blocked_ns: Option<i64>,
    /// The part of `wait_ns` that the task was runnable without a CPU, if the source measured it.
    pub runq_ns: Option<i64>,
    /// The owner of the lock at the start of the wait, if the lock word named it.
    pub owner: Option<TaskId>,
    /// The task whose wake-up ended the wait.
    pub waker: Option<TaskId>,
    /// The stack of the waker.
    pub waker_stack: Option<StackId>,
    /// The hold in which the wait began.
    pub charge: Charge,
}

/// The outcome of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The task got the lock.
    Acquired,
    /// The task gave up; the errno, if the source gave one.
    Abandoned(Option<i32>),
    /// The task still waited when the trace ended.
    OpenAtEnd,
    /// Events were lost during the wait, perhaps its end.
    CutByLoss,
}

impl Outcome {
    /// Returns the word for the outcome.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Acquired => "acquired",
            Self::Abandoned(_) => "abandoned",
            Self::OpenAtEnd => "open",
            Self::CutByLoss => "cut",
        }
    }

    /// Returns the errno of an abandoned wait.
    pub const fn errno(self) -> Option<i32> {
        match self {
            Self::Abandoned(errno) => errno,
            _ => None,
        }
    }
}

/// An attempt that found the lock taken and did not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TryFailure {
    /// The lock.
    pub lock: LockId,
    /// The task.
    pub task: TaskId,
    /// Shared or exclusive.
    pub mode: Mode,
    /// The time, in ns of the trace's clock.
    pub ts_ns: i64,
    /// The stack of the attempt.
    pub stack: Option<StackId>,
}

/// The time in which a task tries for a lock again and again without waiting for it, from its first failed
/// try to its success or, if it gave up, to its last try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Polling {
    /// The lock.
    pub lock: LockId,
    /// The task.
    pub task: TaskId,
    /// Shared or exclusive.
    pub mode: Mode,
    /// The stack of the first try.
    pub stack: Option<StackId>,
    pub start_ns: i64,
    pub end_ns: i64,
    /// The number of failed tries, two or more.
    pub tries: i64,
}

/// The hold in which a wait began, and in which it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Charge {
    /// A hold of the same lock.
    Hold {
        /// Its owner.
        task: TaskId,
        /// Its begin.
        start_ns: i64,
    },
    /// No hold of another task was open: the lock was in a hand-off gap, or its owner acquired it before the
    /// recording.
    Gap,
    /// The holds of this lock, or the start of the wait, were not recorded.
    Unknown,
}

impl Wait {
    /// Returns the task and the start of the hold in which the wait began.
    pub const fn holder(&self) -> Option<(TaskId, i64)> {
        match self.charge {
            Charge::Hold { task, start_ns } => Some((task, start_ns)),
            Charge::Gap | Charge::Unknown => None,
        }
    }
}

impl Share {
    /// Returns whether it is charged to the owner that the lock word named: that owner pays until the first
    /// recorded hold.
    pub fn is_owners(&self, wait: &Wait) -> bool {
        self.payer.is_none() && wait.owner.is_some() && self.start_ns == wait.start_ns
    }
}

/// A part of a wait that is charged to one hold, or to no hold. The shares of a wait follow each other
/// without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The hold; `None` if no other task's hold was open.
    pub payer: Option<HoldId>,
    /// Whether the lock was free: the start of every hold was seen, and none was open.
    pub free: bool,
    /// The begin, on the clock of the wait.
    pub start_ns: i64,
    /// The length, in ns.
    pub ns: i64,
}

/// A time during which waits for a lock are charged to the same hold, or to no hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The lock.
    pub lock: LockId,
    /// As in [`Share`].
    pub payer: Option<HoldId>,
    /// As in [`Share`].
    pub free: bool,
    /// The begin, on the clock of the waits.
    pub start_ns: i64,
    /// The length, in ns.
    pub ns: i64,
    /// The number of waits.
    pub waits: i64,
    /// The number of waits for a shared hold, which are among `waits`.
    pub shared_waits: i64,
}

/// A hold, as other locks and tasks refer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HoldId {
    /// Its owner.
    pub task: TaskId,
    /// Its begin, in ns of the trace's clock.
    pub start_ns: i64,
    /// The stack of its acquisition.
    pub stack: Option<StackId>,
    /// Shared or exclusive.
    pub mode: Mode,
}
