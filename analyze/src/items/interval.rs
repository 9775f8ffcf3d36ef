//! Intervals: a hold, a wait, and a share of a wait that is charged to a hold.

use trace_format::{LockId, Mode, StackId, TaskId};

/// The time during which one task owned one lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    /// The lock.
    pub(crate) lock: LockId,
    /// Its owner.
    pub(crate) task: TaskId,
    /// Shared or exclusive.
    pub(crate) mode: Mode,
    /// The start of ownership, in ns of the trace's clock.
    pub(crate) start_ns: i64,
    /// The end of ownership; with an incomplete [`state`](Self::state), the last time at which it was observed.
    pub(crate) end_ns: i64,
    /// The stack of the acquisition.
    pub(crate) stack: Option<StackId>,
    /// Whether the lock was taken when its owner asked for it.
    pub(crate) contended: bool,
    /// The wait of the owner, in ns; 0 if the acquisition was uncontended, `None` if the start of the wait was not seen.
    pub(crate) wait_ns: Option<i64>,
    /// The part of `wait_ns` during which no other task's hold was open; `None` if unknown.
    pub(crate) gap_ns: Option<i64>,
    /// The part of `wait_ns` that the owner slept, if it waited and the source measured it.
    pub(crate) blocked_ns: Option<i64>,
    /// The part of `wait_ns` that the owner was runnable without a CPU, if it waited and the source measured it.
    pub(crate) runq_ns: Option<i64>,
    /// Waits of other tasks that began during the hold, `start_ns <= begin < end_ns`. While several shared holds are open, a
    /// wait is charged to the oldest.
    pub(crate) waits_begun: i64,
    /// The time of other tasks' waits that is charged to this hold, in ns.
    pub(crate) wait_caused_ns: i64,
    /// The highest number of tasks that waited at the same time and were charged to this hold.
    pub(crate) max_waiters: i64,
    /// Whether the hold that began before this one had another owner. Skips holds that ended in the nanosecond in which they began,
    /// and everything before lost events.
    pub(crate) owner_changed: bool,
    /// Acquisitions in this hold: 1, or more if its owner acquired a shared lock again at the same site.
    pub(crate) acquisitions: i64,
    /// Further acquisitions of an exclusive lock by its owner. They do not count as acquisitions.
    pub(crate) recursions: i64,
    /// The task that released the lock, if it was not the owner.
    pub(crate) released_by: Option<TaskId>,
    /// Whether and how the end was seen.
    pub(crate) state: HoldState,
}

impl Hold {
    /// Returns how others refer to the hold.
    pub(crate) fn id(&self) -> HoldId {
        HoldId { task: self.task, start_ns: self.start_ns, stack: self.stack, mode: self.mode }
    }

    /// Whether the hold counts in the columns of a report: it was released, or its kind of lock has no releases.
    pub(crate) fn is_credited(&self) -> bool {
        matches!(self.state, HoldState::Complete | HoldState::AcquisitionOnly)
    }

    /// Whether it was released, and no task waited: neither its owner for the lock, nor another task for the hold. Nearly all holds are
    /// plain, and all of their sums follow from their number, their length and the changes of owners.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.state == HoldState::Complete
            && self.acquisitions == 1
            && !self.contended
            && (self.wait_ns, self.gap_ns) == (Some(0), Some(0))
            && self.waits_begun | self.max_waiters | self.wait_caused_ns == 0
    }
}

/// Whether and how the end of a hold was seen. Only credited holds are in the columns of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum HoldState {
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
    pub(crate) const fn as_str(self) -> &'static str {
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
pub(crate) fn started(lock: LockId, task: TaskId, start_ns: i64, stack: Option<StackId>) -> Hold {
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
pub(crate) struct Wait {
    /// The lock.
    pub(crate) lock: LockId,
    /// The waiting task.
    pub(crate) task: TaskId,
    /// Shared or exclusive.
    pub(crate) mode: Mode,
    /// The first failed attempt, in ns of the trace's clock.
    pub(crate) start_ns: i64,
    /// Whether the start was seen. If not, it is the end less the length that the source measured.
    pub(crate) start_seen: bool,
    /// The end of the wait; with an incomplete [`outcome`](Self::outcome), the last time at which it was observed.
    pub(crate) end_ns: i64,
    /// The stack at the start of the wait, or if that is unknown, at its end.
    pub(crate) stack: Option<StackId>,
    /// The outcome of the wait.
    pub(crate) outcome: Outcome,
    /// The length of the wait, in ns: `end_ns - start_ns`.
    pub(crate) wait_ns: i64,
    /// The part of `wait_ns` during which no other task's hold was open. The rest is charged to holds. `None` if the holds of
    /// this lock, or the start of the wait, were not recorded.
    pub(crate) gap_ns: Option<i64>,
    /// The part of `wait_ns` that the task slept, if the source measured it.
    pub(crate) blocked_ns: Option<i64>,
    /// The part of `wait_ns` that the task was runnable without a CPU, if the source measured it.
    pub(crate) runq_ns: Option<i64>,
    /// The owner of the lock at the start of the wait, if the lock word named it.
    pub(crate) owner: Option<TaskId>,
    /// The task whose wake-up ended the wait.
    pub(crate) waker: Option<TaskId>,
    /// The stack of the waker.
    pub(crate) waker_stack: Option<StackId>,
    /// The hold in which the wait began.
    pub(crate) charge: Charge,
}

/// The outcome of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Outcome {
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
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Acquired => "acquired",
            Self::Abandoned(_) => "abandoned",
            Self::OpenAtEnd => "open",
            Self::CutByLoss => "cut",
        }
    }

    /// Returns the errno of an abandoned wait.
    pub(crate) const fn errno(self) -> Option<i32> {
        match self {
            Self::Abandoned(errno) => errno,
            _ => None,
        }
    }
}

/// An attempt that found the lock taken and did not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TryFailure {
    /// The lock.
    pub(crate) lock: LockId,
    /// The task.
    pub(crate) task: TaskId,
    /// Shared or exclusive.
    pub(crate) mode: Mode,
    /// The time, in ns of the trace's clock.
    pub(crate) ts_ns: i64,
    /// The stack of the attempt.
    pub(crate) stack: Option<StackId>,
}

/// The hold in which a wait began, and in which it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Charge {
    /// A hold of the same lock.
    Hold {
        /// Its owner.
        task: TaskId,
        /// Its begin.
        start_ns: i64,
    },
    /// No hold of another task was open: the lock was in a hand-off gap, or its owner acquired it before the recording.
    Gap,
    /// The holds of this lock, or the start of the wait, were not recorded.
    Unknown,
}

impl Wait {
    /// Returns the task and the start of the hold in which the wait began.
    pub(crate) const fn holder(&self) -> Option<(TaskId, i64)> {
        match self.charge {
            Charge::Hold { task, start_ns } => Some((task, start_ns)),
            Charge::Gap | Charge::Unknown => None,
        }
    }
}

impl Share {
    /// Returns whether it is charged to the owner that the lock word named: that owner pays until the first recorded hold.
    pub(crate) fn is_owners(&self, wait: &Wait) -> bool {
        self.payer.is_none() && wait.owner.is_some() && self.start_ns == wait.start_ns
    }
}

/// A part of a wait that is charged to one hold, or to no hold. The shares of a wait follow each other without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    /// The hold; `None` if no other task's hold was open.
    pub(crate) payer: Option<HoldId>,
    /// Whether the lock was free: the start of every hold was seen, and none was open.
    pub(crate) free: bool,
    /// The begin, on the clock of the wait.
    pub(crate) start_ns: i64,
    /// The length, in ns.
    pub(crate) ns: i64,
}

/// A hold, as other locks and tasks refer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct HoldId {
    /// Its owner.
    pub(crate) task: TaskId,
    /// Its begin, in ns of the trace's clock.
    pub(crate) start_ns: i64,
    /// The stack of its acquisition.
    pub(crate) stack: Option<StackId>,
    /// Shared or exclusive.
    pub(crate) mode: Mode,
}
