//! Events, the rows of the main table, and the ids that join them to the side tables.
//!
//! Plain data: this module neither reads files nor interprets events.

use std::fmt;

use crate::syscall::Syscall;

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

/// Declares an enum whose values have a fixed name each, for files and command lines. By hand, because derive macros build more
/// slowly than this and would not list the known names in the error. That is [`UnknownName`], or a type with a function
/// `not_among` of the kind of value, the name and the known names.
#[macro_export]
macro_rules! named_enum {
    ($(#[$doc:meta])* $name:ident, $what:literal { $($values:tt)+ }) => {
        $crate::named_enum! { $(#[$doc])* $name, $what, $crate::event::UnknownName { $($values)+ } }
    };
    ($(#[$doc:meta])* $name:ident, $what:literal, $error:ty {
        $($(#[$vdoc:meta])* $variant:ident = $word:literal,)+
    }) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
        )]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            /// All values, in declaration order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Returns the name of the value.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $error;

            fn from_str(name: &str) -> Result<Self, Self::Err> {
                match name {
                    $($word => Ok(Self::$variant),)+
                    _ => Err(<$error>::not_among($what, name, &[$($word,)+])),
                }
            }
        }
    };
}

/// A name that the format does not define.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid {what} '{name}': use one of {}", known.join(", "))]
pub struct UnknownName {
    /// The kind of value.
    pub what: &'static str,
    /// The name found.
    pub name: String,
    /// The names that the format defines.
    pub known: &'static [&'static str],
}

impl UnknownName {
    pub(crate) fn not_among(what: &'static str, name: &str, known: &'static [&'static str]) -> Self {
        Self { what, name: name.to_owned(), known }
    }
}

named_enum! {
    /// The kind of an event.
    EventKind, "event" {
        /// The first attempt to acquire the lock failed. The peer is the owner, if known.
        Wait = "wait",
        /// The task acquired the lock. `wait_ns` is 0 if the lock was free; the peer is the task whose wake-up ended the wait.
        Acquire = "acquire",
        /// A wait ended without the lock; `errno` is the reason.
        Abandon = "abandon",
        /// A try-lock found the lock held.
        TryFail = "try_fail",
        /// The task released the lock.
        Release = "release",
        /// A wake call; it woke `count` tasks.
        Wake = "wake",
        /// The lock was initialized.
        Init = "init",
        /// The lock was destroyed.
        Destroy = "destroy",
        /// A task runs again after being off-CPU, for any reason. Recorded on request.
        OffCpu = "offcpu",
        /// `count` events of this CPU or task are missing before this point.
        Lost = "lost",
    }
}

named_enum! {
    /// The mode in which a lock is held.
    Mode, "mode" {
        /// By one task at a time.
        Exclusive = "exclusive",
        /// By any number of readers.
        Shared = "shared",
    }
}

named_enum! {
    /// The state of a task when it left its CPU.
    TaskState, "state" {
        /// Runnable: the task was preempted or yielded.
        Runnable = "runnable",
        /// Sleeping; signals wake it.
        Interruptible = "interruptible",
        /// Sleeping; signals do not wake it. Mostly disk I/O and kernel locks.
        Uninterruptible = "uninterruptible",
        /// A kernel thread without work.
        Idle = "idle",
        /// Stopped by a signal.
        Stopped = "stopped",
        /// Stopped by a debugger.
        Traced = "traced",
        /// A parked kernel thread.
        Parked = "parked",
        /// Not runnable, for a reason that is not known: it sleeps, or is stopped.
        Asleep = "asleep",
        /// A sum: in the last `wait_ns`, the task was off-CPU for `blocked_ns`; when, is not known.
        Mixed = "mixed",
    }
}

named_enum! {
    /// The kind of a call that tries to acquire a lock or waits, if it does not wait without limit.
    CallKind, "call" {
        /// It does not wait.
        Try = "try",
        /// It gives up at some time.
        Timed = "timed",
    }
}

/// One event. A field that the source cannot measure is `None`, never 0. Times are nanoseconds of CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Time of the event.
    pub ts_ns: i64,
    /// Kind of the event.
    pub kind: EventKind,
    /// The mode in which the lock is held or waited for.
    pub mode: Option<Mode>,
    /// The lock. `None` for [`EventKind::Lost`] and [`EventKind::OffCpu`].
    pub lock: Option<LockId>,
    /// The task. For [`EventKind::Lost`], the task whose events are missing; `None` if they are a CPU's.
    pub task: Option<TaskId>,
    /// The CPU. `None` for events of processes that record themselves.
    pub cpu: Option<i32>,
    /// The call stack.
    pub stack: Option<StackId>,
    /// For acquire and abandon, the duration of the wait: spinning + `blocked_ns` + `runq_ns`. For offcpu, the time off-CPU:
    /// `blocked_ns` + `runq_ns`. For wake, the duration of the call, if its entry was seen.
    pub wait_ns: Option<i64>,
    /// The part of `wait_ns` spent asleep.
    pub blocked_ns: Option<i64>,
    /// The part of `wait_ns` spent runnable in the run queue.
    pub runq_ns: Option<i64>,
    /// For wait, the owner. For acquire and offcpu, the waker.
    pub peer_task: Option<TaskId>,
    /// The call stack of the peer.
    pub peer_stack: Option<StackId>,
    /// For abandon and try_fail, the reason as a positive errno.
    pub errno: Option<i32>,
    /// For wake, the number of tasks woken. For lost, the number of missing events.
    pub count: Option<i64>,
    /// For offcpu, the state of the task when it left the CPU.
    pub state: Option<TaskState>,
    /// For wait, acquire and try_fail, the kind of the call; `None` if it waits without limit, or if that is not known.
    pub call: Option<CallKind>,
    /// For offcpu, the system call in which the task left the CPU; `None` if that is not known.
    pub syscall: Option<Syscall>,
}

impl Event {
    /// Creates an event of which only the time, the kind and the CPU are known.
    #[inline]
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
            call: None,
            syscall: None,
        }
    }
}

/// Access to the fields of an event, stored as an [`Event`] or in the columns of a [`Batch`](crate::Batch).
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
    /// [`Event::call`].
    fn call(&self) -> Option<CallKind>;
    /// [`Event::syscall`].
    fn syscall(&self) -> Option<Syscall>;

    /// Copies all fields.
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
            call: self.call(),
            syscall: self.syscall(),
        }
    }
}

/// Calls a macro with all fields of an [`Event`] and their types, in the order of the columns of [`EVENTS`](crate::schema::EVENTS).
macro_rules! with_event_fields {
    ($callback:ident) => {
        $callback! {
            ts_ns: i64,
            kind: EventKind,
            mode: Option<Mode>,
            lock: Option<LockId>,
            task: Option<TaskId>,
            cpu: Option<i32>,
            stack: Option<StackId>,
            wait_ns: Option<i64>,
            blocked_ns: Option<i64>,
            runq_ns: Option<i64>,
            peer_task: Option<TaskId>,
            peer_stack: Option<StackId>,
            errno: Option<i32>,
            count: Option<i64>,
            state: Option<TaskState>,
            call: Option<CallKind>,
            syscall: Option<Syscall>,
        }
    };
}
pub(crate) use with_event_fields;

/// Implements [`EventRow`] for [`Event`], a getter for each field.
macro_rules! getters {
    ($($field:ident: $type:ty,)+) => {
        impl EventRow for Event {
            $(
                #[inline]
                fn $field(&self) -> $type {
                    self.$field
                }
            )+
        }
    };
}

with_event_fields!(getters);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_parses_back_to_its_value() {
        for kind in EventKind::ALL {
            assert_eq!(kind.as_str().parse(), Ok(*kind));
        }
        for mode in Mode::ALL {
            assert_eq!(mode.as_str().parse(), Ok(*mode));
        }
        for state in TaskState::ALL {
            assert_eq!(state.as_str().parse(), Ok(*state));
        }
        for call in CallKind::ALL {
            assert_eq!(call.as_str().parse(), Ok(*call));
        }
    }

    #[test]
    fn an_unknown_name_is_an_error_that_lists_the_known_names() {
        let error = "borrowed".parse::<Mode>().unwrap_err();
        assert_eq!(error.to_string(), "invalid mode 'borrowed': use one of exclusive, shared");
    }
}
