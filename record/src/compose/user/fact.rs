//! The facts that both decoders of user locks emit, and that [`UserLocks`](super::UserLocks) turns into rows.

use trace_format::{CallKind, LockKind, Mode, TaskId, wire::api};

/// One thing that a task did with a user lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fact {
    /// The function, as in [`api`]; the begin and the end of a call name the same one.
    pub(crate) function: u8,
    /// The address of the lock; in a wait on a condition variable, of the mutex. 0 if it is unknown.
    pub(crate) address: u64,
    pub(crate) action: Action,
}

/// A task's action on a user lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// A call began. Whether it waits follows from the lock's words, its holders, and futex waits.
    Called {
        word: LockWord,
        /// The call refuses its arguments.
        is_refused: bool,
    },
    /// A call waits from now on.
    Waits {
        owner: Option<TaskId>,
    },
    /// A wait on the condition variable at this address began, which releases the mutex.
    ConditionWait(u64),
    Returned(Begin, Outcome),
    /// A wait on a condition variable, at this address if it is known, ended with this errno.
    ConditionReturned(Option<u64>, Option<i32>),
    Released {
        /// The mode in which the lock was held, if the record shows it.
        mode: Option<Mode>,
        /// The only thread that can release the lock (0: none can), if the lock checks that.
        only_owner: Option<u32>,
    },
    /// A function was called that both initialises and releases. `is_free` means that the lock is certainly
    /// free.
    ReleasedOrInitialised {
        is_free: bool,
    },
    Initialised,
    Destroyed,
    /// A semaphore was posted, a condition variable signalled, or a thread is about to end.
    Posted,
    /// This goroutine waits from now on.
    GoroutineWaits(u64),
    /// A wait of this goroutine ended with the lock.
    GoroutineAcquired(u64),
    /// This goroutine released a lock for which others wait.
    GoroutineReleased(u64),
}

/// Whether a call was reported when it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begin {
    /// It was, unless the record is lost.
    Reported,
    /// It was if the first attempt failed.
    ReportedIfContended,
    /// It was not: the call did not wait.
    NotReported,
}

/// The result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The caller has the lock, or may pass. The errno is `EOWNERDEAD` if the lock's owner died.
    Acquired(Option<i32>),
    /// The call failed, with this errno if it is known.
    Failed(Option<i32>),
}

/// The state of a lock when a call began, according to its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockWord {
    /// It could not be read, or this kind of lock does not show its state.
    Unknown,
    /// The call can have the lock.
    Free,
    /// The call can have the lock; its owner died.
    OwnerDied,
    /// The call cannot have the lock. The value is the owner's thread id as its process sees it, or 0.
    Taken(u32),
}

impl Outcome {
    pub(crate) fn of_errno(errno: Option<i32>) -> Self {
        match errno {
            None | Some(libc::EOWNERDEAD) => Self::Acquired(errno),
            _ => Self::Failed(errno),
        }
    }
}

impl Fact {
    pub(crate) fn kind(&self) -> LockKind {
        if self.is_condition_wait() { LockKind::PthreadMutex } else { kind_of(api::object(self.function)) }
    }

    /// The mode in which the function takes the lock; `None` if locks of this kind are not held.
    pub(crate) fn mode(&self) -> Option<Mode> {
        if self.is_condition_wait() { Some(Mode::Exclusive) } else { mode_of(api::object(self.function)) }
    }

    /// The kind of call, if it does not wait without limit. A wait on a condition variable takes its mutex
    /// without a limit.
    pub(crate) fn call(&self) -> Option<CallKind> {
        if self.is_condition_wait() { None } else { call_of(self.function) }
    }

    /// Whether a thread was joined. Its address may belong to another one from now on.
    pub(crate) fn is_join(&self) -> bool {
        matches!(self.action, Action::Returned(_, Outcome::Acquired(_))) && self.kind() == LockKind::Thread
    }

    fn is_condition_wait(&self) -> bool {
        matches!(self.action, Action::ConditionWait(_) | Action::ConditionReturned(..))
    }
}

/// The kind of lock that these functions are for.
fn kind_of(object: u8) -> LockKind {
    match object {
        api::RWLOCK | api::RWLOCK_READ | api::RWLOCK_WRITE => LockKind::PthreadRwLock,
        api::SPIN | api::SPIN_UNLOCK_OR_INIT => LockKind::PthreadSpin,
        api::CONDITION => LockKind::CondVar,
        api::BARRIER => LockKind::Barrier,
        api::SEMAPHORE => LockKind::UserSemaphore,
        api::THREAD => LockKind::Thread,
        api::RUST_MUTEX => LockKind::RustMutex,
        api::RUST_RWLOCK_READ | api::RUST_RWLOCK_WRITE => LockKind::RustRwLock,
        api::GO_MUTEX => LockKind::GoMutex,
        _ => LockKind::PthreadMutex,
    }
}

/// The kind of call of this function, if it does not wait without limit.
pub(crate) fn call_of(function: u8) -> Option<CallKind> {
    match api::variant(function) {
        api::TRY => Some(CallKind::Try),
        api::TIMED | api::CLOCK => Some(CallKind::Timed),
        _ => None,
    }
}

/// The mode in which these functions take the lock, if they name one.
pub(crate) fn mode_of(object: u8) -> Option<Mode> {
    match object {
        api::RWLOCK_READ | api::RUST_RWLOCK_READ => Some(Mode::Shared),
        api::RWLOCK | api::CONDITION | api::BARRIER | api::SEMAPHORE | api::THREAD => None,
        _ => Some(Mode::Exclusive),
    }
}
