//! The rows of the three side tables: stacks, locks, tasks. Plain data; what a name means is in `docs/trace-format.md`.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::event::{LockId, StackId, TaskId, UnknownWord, words};

words! {
    /// What sort of lock it is.
    LockKind {
        /// Kernel: sleeping mutex.
        Mutex = "mutex",
        /// Kernel: mutex with priority inheritance.
        RtMutex = "rtmutex",
        /// Kernel: sleeping reader-writer lock.
        RwSem = "rwsem",
        /// Kernel: reader-writer lock with per-CPU readers.
        PercpuRwSem = "percpu_rwsem",
        /// Kernel: counting semaphore.
        Semaphore = "semaphore",
        /// Kernel: spinlock.
        SpinLock = "spinlock",
        /// Kernel: spinning reader-writer lock.
        RwLock = "rwlock",
        /// User: a futex word of which only waits and wakes are seen.
        Futex = "futex",
        /// User: POSIX mutex.
        PthreadMutex = "pthread_mutex",
        /// User: POSIX reader-writer lock.
        PthreadRwLock = "pthread_rwlock",
        /// User: POSIX spinlock.
        PthreadSpin = "pthread_spin",
        /// User: condition variable. Waiting on it is idling, not contention.
        CondVar = "condvar",
        /// User: POSIX semaphore. Waiting on it is idling, not contention.
        UserSemaphore = "user_semaphore",
        /// User: barrier. Waiting on it is idling, not contention.
        Barrier = "barrier",
    }
}

impl LockKind {
    /// Whether waiting for it is idling rather than contention; such waits stay out of the lock tables unless
    /// they are asked for.
    pub const fn is_idle(self) -> bool {
        matches!(self, Self::CondVar | Self::UserSemaphore | Self::Barrier)
    }

    /// Whether it belongs to the kernel.
    pub const fn is_kernel(self) -> bool {
        matches!(
            self,
            Self::Mutex
                | Self::RtMutex
                | Self::RwSem
                | Self::PercpuRwSem
                | Self::Semaphore
                | Self::SpinLock
                | Self::RwLock
        )
    }
}

words! {
    /// Whose address space the lock's address is of.
    Scope {
        /// The kernel's.
        Kernel = "kernel",
        /// That of the process in `pid`.
        Process = "process",
    }
}

/// One instruction of a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Frame {
    /// The address that ran, as it was in memory. `None` in a redacted trace.
    pub address: Option<u64>,
    /// The file that it was mapped from, `[kernel]`, or a kernel module in brackets.
    pub module: Option<String>,
    /// The module's build id, lower-case hex.
    pub build_id: Option<String>,
    /// Offset into the module's file (user), or from the start of the kernel's text or of the kernel module.
    pub offset: Option<u64>,
    /// The function, demangled.
    pub symbol: Option<String>,
    /// Bytes from the start of the function.
    pub symbol_offset: Option<u64>,
    /// Source file.
    pub file: Option<String>,
    /// Source line.
    pub line: Option<i32>,
    /// The function was inlined into the next frame of the list; both have the same address.
    pub inlined: bool,
    /// A kernel frame.
    pub kernel: bool,
}

/// One stack: kernel frames before user frames, leaf first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stack {
    /// Its id.
    pub id: StackId,
    /// Its frames; empty if the kernel gave none.
    pub frames: Vec<Frame>,
}

/// One incarnation of a lock: from its first event, or its initialisation, to its last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockRow {
    /// Its id.
    pub id: LockId,
    /// Where it is in memory. `None` in a redacted trace.
    pub address: Option<u64>,
    /// Its sort.
    pub kind: LockKind,
    /// Whose address it is.
    pub scope: Scope,
    /// With [`Scope::Process`]: the process.
    pub pid: Option<i32>,
    /// Its symbol, where it has one: `symbol` or `symbol+0x18`.
    pub name: Option<String>,
    /// Where it was initialised, if that was seen.
    pub init_stack: Option<StackId>,
    /// Time of its first event.
    pub first_ns: i64,
    /// Time of its last event.
    pub last_ns: i64,
}

/// One incarnation of a task: a thread, from its birth or exec to its end or next exec.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRow {
    /// Its id.
    pub id: TaskId,
    /// The process.
    pub pid: i32,
    /// The thread.
    pub tid: i32,
    /// Its last name.
    pub comm: Option<String>,
    /// When it began, if that is known.
    pub start_ns: Option<i64>,
    /// When it ended, if that was seen.
    pub exit_ns: Option<i64>,
    /// Its cgroup (v2 path), if it was read in time.
    pub cgroup: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_a_condition_is_idling_and_waiting_for_a_mutex_is_not() {
        assert!(LockKind::CondVar.is_idle());
        assert!(!LockKind::PthreadMutex.is_idle());
    }

    #[test]
    fn every_kind_is_read_back_as_the_value_that_wrote_it() {
        for kind in LockKind::ALL {
            assert_eq!(kind.as_str().parse(), Ok(*kind));
        }
    }
}
