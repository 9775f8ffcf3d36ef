//! Events, the rows of the main table, and the ids that join them to the side tables.
//!
//! Plain data: this module neither reads files nor interprets events.

use std::{borrow::Cow, fmt, sync::Arc};

use arrow_array::{Array as _, ArrayRef, Int32Array};

use crate::{
    FormatError,
    field::{
        ColumnType, EventField, Field, Source, Values, encode_words, event_words, numbers, table, word_at,
        words,
    },
    syscall::Syscall,
};

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

/// Declares an enum whose values have a fixed name each, for files and command lines. By hand, because derive
/// macros build more slowly than this and would not list the known names in the error. That is
/// [`UnknownName`], or a type with a function `not_among` of the kind of value, the name and the known names.
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
        /// The task acquired the lock. `wait_ns` is 0 if the lock was free; the peer is the task whose
        /// wake-up ended the wait.
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

numbers! {
    LockId: Int32 Int32Array i32, |id: LockId| id.0, LockId;
    TaskId: Int32 Int32Array i32, |id: TaskId| id.0, TaskId;
    StackId: Int32 Int32Array i32, |id: StackId| id.0, StackId;
}

words!(EventKind Mode TaskState CallKind Syscall);

event_words! {
    EventKind: |kind: Self| Some(kind as u16), |index| word_at(Self::ALL, index).unwrap_or(Self::Lost), |kind: Self| kind.as_str().into();
    Option<Mode>: |mode: Self| mode.map(|mode| mode as u16), |index| word_at(Mode::ALL, index), |mode: Self| mode.map_or("", Mode::as_str).into();
    Option<TaskState>: |state: Self| state.map(|state| state as u16), |index| word_at(TaskState::ALL, index), |state: Self| state.map_or("", TaskState::as_str).into();
    Option<CallKind>: |call: Self| call.map(|call| call as u16), |index| word_at(CallKind::ALL, index), |call: Self| call.map_or("", CallKind::as_str).into();
    Option<Syscall>: |call: Self| call.map(Syscall::index), |index: Option<u16>| index.map(Syscall::at), |call: Self| call.map_or(Cow::Borrowed(""), Syscall::name);
}

/// Calls a macro with the declaration of the events table: the one list that [`Event`], its column buffers,
/// its reader and the documentation follow from.
macro_rules! with_events_table {
    ($callback:ident) => {
        $callback! {
            "events",
            /// `trace.parquet`: one row per event, ordered by time.
            EVENTS,
            /// One event. A field that the source cannot measure is `None`, never 0. Times are nanoseconds of
            /// CLOCK_MONOTONIC.
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            Event,
            /// A batch of events, stored column by column. A column that was not requested is `None`.
            pub Batch {
                ts_ns "ts_ns": i64 = "time of the event, in nanoseconds of CLOCK_MONOTONIC";
                kind "event": EventKind = "`wait`, `acquire`, `abandon`, `try_fail`, `release`, `wake`, `init`, `destroy`, `offcpu` or `lost`";
                mode "mode": Option<Mode> = "`exclusive` or `shared`";
                lock "lock_id": Option<LockId> = "the lock; null for `lost` and `offcpu`";
                task "task_id": Option<TaskId> = "the task; `lost`: the task whose events are missing, null if they are events of a CPU";
                cpu "cpu": Option<i32> = "the CPU; null where a process recorded itself";
                stack "stack_id": Option<StackId> = "the stack of the task";
                wait_ns "wait_ns": Option<i64> = "`acquire`, `abandon`: the whole wait, 0 if the lock was free, null if its start was not seen; `offcpu`: the whole time off-CPU; `wake`: the length of the call, null if unknown";
                blocked_ns "blocked_ns": Option<i64> = "the part of `wait_ns` spent asleep";
                runq_ns "runq_ns": Option<i64> = "the part of `wait_ns` spent ready to run, waiting for a CPU";
                peer_task "peer_task_id": Option<TaskId> = "`wait`: the owner, or the thread that is joined; `acquire`, `offcpu`: the task whose wake-up ended the wait; `offcpu` of a `runnable` task: the task that ran instead";
                peer_stack "peer_stack_id": Option<StackId> = "the stack of the peer at that time";
                errno "errno": Option<i32> = "`abandon`, `try_fail`: the reason, as a positive errno";
                count "count": Option<i64> = "`wake`: tasks woken; `lost`: events of this CPU or task missing before this point";
                state "state" since 1: Option<TaskState> = "`offcpu`: the state of the task when it left the CPU: `runnable`, `interruptible`, `uninterruptible`, `idle`, `stopped`, `traced`, `parked` or `asleep` (it left to sleep; how, is not known)";
                call "call" since 3: Option<CallKind> = "`wait`, `acquire`, `try_fail`: the kind of the call, `try` (it does not wait) or `timed` (it gives up at some time); null if it waits without limit or is not known, as for `wait` of kernel locks and futexes";
                syscall "syscall" since 4: Option<Syscall> = "`offcpu`: the system call in which the task left the CPU; `-` in none (a page fault of the program's own code, or preempted there), `syscall_NUMBER` if it has no name; null if not known, as in 32-bit code";
            }
        }
    };
}
pub(crate) use with_events_table;

with_events_table!(table);

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

/// Times and lengths of events are at most this far from 0: 36 years. So sums and differences of some of them
/// are numbers of 64 bits.
pub const MAX_TIME_NS: i64 = 1 << 60;

/// Declares the access to the fields of events.
macro_rules! event_rows {
    ($table:literal, $(#[$doc:meta])* $columns:ident, $(#[$row_doc:meta])* $row:ident, $(#[$arrays_doc:meta])* $vis:vis $arrays:ident {
        $($field:ident $name:literal $(since $minor:literal)?: $type:ty = $description:literal;)+
    }) => {
        /// Access to the fields of an event, stored as an [`Event`] or in the columns of a [`Batch`].
        pub trait EventRow {
            $(#[doc = $description] fn $field(&self) -> $type;)+

            /// Returns the task whose wake-up ended the wait or the sleep. A task that stayed runnable has
            /// none.
            #[inline]
            fn waker(&self) -> Option<TaskId> {
                let was_runnable =
                    self.kind() == EventKind::OffCpu && self.state() == Some(TaskState::Runnable);
                self.peer_task().filter(|_| !was_runnable)
            }

            /// Copies all fields.
            fn to_event(&self) -> Event {
                Event { $($field: self.$field(),)+ }
            }
        }

        impl EventRow for Event {
            $(#[inline] fn $field(&self) -> $type { self.$field })+
        }
    };
}

with_events_table!(event_rows);

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
