//! One event, the row of the main table in Rust clothes, and the ids that join it to the side tables.
//!
//! Nothing here reads or writes files, and nothing interprets: a row says what was seen.

use std::{fmt, str::FromStr};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub i32);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "#{}", self.0)
            }
        }
    };
}

id! {
    /// A row of the locks table: one incarnation of a lock. Dense from 0, never reused.
    LockId
}
id! {
    /// A row of the tasks table: one incarnation of a task. Dense from 0, never reused.
    TaskId
}
id! {
    /// A row of the stacks table. Dense from 0, never reused.
    StackId
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
        )]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            /// Every value, in the order of the declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The word that stands for it in the trace.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = UnknownWord;

            fn from_str(word: &str) -> Result<Self, UnknownWord> {
                match word {
                    $($word => Ok(Self::$variant),)+
                    _ => Err(UnknownWord { word: word.to_owned(), known: &[$($word,)+] }),
                }
            }
        }
    };
}
pub(crate) use words;

/// A word that the format does not define.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown word '{word}', expected one of {}", known.join(", "))]
pub struct UnknownWord {
    /// What was found.
    pub word: String,
    /// What would have been understood.
    pub known: &'static [&'static str],
}

words! {
    /// What happened.
    EventKind {
        /// The first failed attempt. The peer is the owner, where it is known.
        Wait = "wait",
        /// Ownership. `wait_ns` is 0 if the lock was free; the peer is the task whose wake-up ended the wait.
        Acquire = "acquire",
        /// A wait that ended without the lock; `errno` says why.
        Abandon = "abandon",
        /// An attempt that does not wait found the lock taken.
        TryFail = "try_fail",
        /// The end of ownership.
        Release = "release",
        /// A wake call; `count` tasks were woken.
        Wake = "wake",
        /// The lock was initialised.
        Init = "init",
        /// The lock was destroyed.
        Destroy = "destroy",
        /// A task runs again that was off the CPU, for any reason. Recorded on request.
        OffCpu = "offcpu",
        /// `count` events of this CPU or task are missing before this point.
        Lost = "lost",
    }
}

words! {
    /// How a lock is held.
    Mode {
        /// By one task at a time.
        Exclusive = "exclusive",
        /// By any number of readers.
        Shared = "shared",
    }
}

words! {
    /// How a task left its CPU.
    TaskState {
        /// It could have gone on: it was preempted, or gave the CPU up.
        Runnable = "runnable",
        /// It sleeps until something happens, or a signal comes.
        Interruptible = "interruptible",
        /// It sleeps until something happens, and no signal ends that: mostly disks and locks of the kernel.
        Uninterruptible = "uninterruptible",
        /// A thread of the kernel that has nothing to do.
        Idle = "idle",
        /// A signal stopped it.
        Stopped = "stopped",
        /// A debugger stopped it.
        Traced = "traced",
        /// A thread of the kernel that was put aside.
        Parked = "parked",
    }
}

/// One raw event. A field that the source can't measure is `None`, never 0. Times are nanoseconds of
/// CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub ts_ns: i64,
    /// What.
    pub kind: EventKind,
    /// How the lock is held or wanted.
    pub mode: Option<Mode>,
    /// Which lock. `None` for [`EventKind::Lost`] and [`EventKind::OffCpu`].
    pub lock: Option<LockId>,
    /// Who. With [`EventKind::Lost`]: whose events are missing, where it is those of one task and not of a CPU.
    pub task: Option<TaskId>,
    /// Where. `None` where a process recorded itself.
    pub cpu: Option<i32>,
    /// From where in the code.
    pub stack: Option<StackId>,
    /// With acquire and abandon: how long the task waited, = spinning + `blocked_ns` + `runq_ns`. With offcpu: how long it was
    /// off the CPU, = `blocked_ns` + `runq_ns`. With wake: how long the call took, if its entry was seen.
    pub wait_ns: Option<i64>,
    /// Of `wait_ns`: asleep.
    pub blocked_ns: Option<i64>,
    /// Of `wait_ns`: ready, in the run queue.
    pub runq_ns: Option<i64>,
    /// With wait: the owner. With acquire and offcpu: the waker.
    pub peer_task: Option<TaskId>,
    /// Where the peer was.
    pub peer_stack: Option<StackId>,
    /// With abandon and try_fail: why, as a positive errno.
    pub errno: Option<i32>,
    /// With wake: tasks woken. With lost: events missing.
    pub count: Option<i64>,
    /// With offcpu: how the task left.
    pub state: Option<TaskState>,
}

impl Event {
    /// An event of which only the time, the kind and the CPU are known.
    pub const fn new(ts_ns: i64, kind: EventKind, cpu: i32) -> Self {
        Self {
            ts_ns,
            kind,
            mode: None,
            lock: None,
            task: None,
            cpu: Some(cpu),
            stack: None,
            wait_ns: None,
            blocked_ns: None,
            runq_ns: None,
            peer_task: None,
            peer_stack: None,
            errno: None,
            count: None,
            state: None,
        }
    }
}

/// What an event says, wherever it lies: in an [`Event`] or in the columns of a [`Batch`](crate::Batch).
pub trait EventRow {
    /// [`Event::ts_ns`].
    fn ts_ns(&self) -> i64;
    /// [`Event::kind`].
    fn kind(&self) -> EventKind;
    /// [`Event::mode`].
    fn mode(&self) -> Option<Mode>;
    /// [`Event::lock`].
    fn lock(&self) -> Option<LockId>;
    /// [`Event::task`].
    fn task(&self) -> Option<TaskId>;
    /// [`Event::cpu`].
    fn cpu(&self) -> Option<i32>;
    /// [`Event::stack`].
    fn stack(&self) -> Option<StackId>;
    /// [`Event::wait_ns`].
    fn wait_ns(&self) -> Option<i64>;
    /// [`Event::blocked_ns`].
    fn blocked_ns(&self) -> Option<i64>;
    /// [`Event::runq_ns`].
    fn runq_ns(&self) -> Option<i64>;
    /// [`Event::peer_task`].
    fn peer_task(&self) -> Option<TaskId>;
    /// [`Event::peer_stack`].
    fn peer_stack(&self) -> Option<StackId>;
    /// [`Event::errno`].
    fn errno(&self) -> Option<i32>;
    /// [`Event::count`].
    fn count(&self) -> Option<i64>;
    /// [`Event::state`].
    fn state(&self) -> Option<TaskState>;

    /// All of it.
    fn to_event(&self) -> Event {
        Event {
            ts_ns: self.ts_ns(),
            kind: self.kind(),
            mode: self.mode(),
            lock: self.lock(),
            task: self.task(),
            cpu: self.cpu(),
            stack: self.stack(),
            wait_ns: self.wait_ns(),
            blocked_ns: self.blocked_ns(),
            runq_ns: self.runq_ns(),
            peer_task: self.peer_task(),
            peer_stack: self.peer_stack(),
            errno: self.errno(),
            count: self.count(),
            state: self.state(),
        }
    }
}

impl EventRow for Event {
    #[inline]
    fn ts_ns(&self) -> i64 {
        self.ts_ns
    }

    #[inline]
    fn kind(&self) -> EventKind {
        self.kind
    }

    #[inline]
    fn mode(&self) -> Option<Mode> {
        self.mode
    }

    #[inline]
    fn lock(&self) -> Option<LockId> {
        self.lock
    }

    #[inline]
    fn task(&self) -> Option<TaskId> {
        self.task
    }

    #[inline]
    fn cpu(&self) -> Option<i32> {
        self.cpu
    }

    #[inline]
    fn stack(&self) -> Option<StackId> {
        self.stack
    }

    #[inline]
    fn wait_ns(&self) -> Option<i64> {
        self.wait_ns
    }

    #[inline]
    fn blocked_ns(&self) -> Option<i64> {
        self.blocked_ns
    }

    #[inline]
    fn runq_ns(&self) -> Option<i64> {
        self.runq_ns
    }

    #[inline]
    fn peer_task(&self) -> Option<TaskId> {
        self.peer_task
    }

    #[inline]
    fn peer_stack(&self) -> Option<StackId> {
        self.peer_stack
    }

    #[inline]
    fn errno(&self) -> Option<i32> {
        self.errno
    }

    #[inline]
    fn count(&self) -> Option<i64> {
        self.count
    }

    fn state(&self) -> Option<TaskState> {
        self.state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read_back_as_the_value_that_wrote_it() {
        for kind in EventKind::ALL {
            assert_eq!(kind.as_str().parse(), Ok(*kind));
        }
        for mode in Mode::ALL {
            assert_eq!(mode.as_str().parse(), Ok(*mode));
        }
        for state in TaskState::ALL {
            assert_eq!(state.as_str().parse(), Ok(*state));
        }
    }

    #[test]
    fn an_unknown_word_is_an_error_that_names_it_and_the_known_ones() {
        let error = "borrowed".parse::<Mode>().unwrap_err();
        assert_eq!(error.to_string(), "unknown word 'borrowed', expected one of exclusive, shared");
    }
}
