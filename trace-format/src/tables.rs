//! Rows of the three side tables: stacks, locks and tasks. Plain data.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    event::{LockId, StackId, TaskId},
    named_enum,
};

named_enum! {
    /// The kind of a lock.
    LockKind, "kind of lock" {
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
        /// User: a futex word, of which only waits and wakes are seen.
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
        /// User: the end of a thread of pthread, which others wait for to join it. Waiting for it is idling, not contention.
        Thread = "thread",
        /// User: mutex of Rust's standard library, of which only the contended path is seen.
        RustMutex = "rust_mutex",
        /// User: reader-writer lock of Rust's standard library, of which only the contended paths are seen.
        RustRwLock = "rust_rwlock",
        /// User: Go's `sync.Mutex`, of which only the contended path is seen. Its tasks are goroutines.
        GoMutex = "go_mutex",
    }
}

impl LockKind {
    /// Whether waiting for it is idling rather than contention. Lock tables leave such waits out by default.
    pub const fn is_idle(self) -> bool {
        matches!(self, Self::CondVar | Self::UserSemaphore | Self::Barrier | Self::Thread)
    }

    /// Whether it is a kernel lock.
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

named_enum! {
    /// The address space of a lock's address.
    Scope, "scope" {
        /// The kernel.
        Kernel = "kernel",
        /// The process in `pid`.
        Process = "process",
    }
}

/// A frame of a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Frame {
    /// Instruction address in memory. `None` in a redacted trace.
    pub address: Option<u64>,
    /// Path of the mapped file, `[kernel]`, or the name of a kernel module in brackets.
    pub module: Option<String>,
    /// Build id of the module, lower-case hex.
    pub build_id: Option<String>,
    /// Offset into the module's file (user), or from the start of the kernel text or the kernel module.
    pub offset: Option<u64>,
    /// Function name, demangled.
    pub symbol: Option<String>,
    /// Bytes from the start of the function.
    pub symbol_offset: Option<u64>,
    /// Source file.
    pub file: Option<String>,
    /// Source line.
    pub line: Option<i32>,
    /// Whether the function was inlined into the next frame of the list, which has the same address.
    pub inlined: bool,
    /// Whether it is a kernel frame.
    pub kernel: bool,
    /// Whether it is a guess: found by frame pointers in code that may not keep them, or a lone frame whose callers were
    /// not found.
    pub guessed: bool,
}

/// A call stack: kernel frames before user frames, leaf first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stack {
    /// Id of the stack.
    pub id: StackId,
    /// The frames; empty if the kernel found none.
    pub frames: Vec<Frame>,
}

/// A [`Stack`] that shares its frames with other stacks, which have most of them in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedStack {
    /// Id of the stack.
    pub id: StackId,
    /// The frames of each address, leaf first: several if functions were inlined there.
    pub frames: Vec<Arc<[Frame]>>,
}

impl SharedStack {
    /// Returns the stack with frames of its own.
    pub fn to_stack(&self) -> Stack {
        Stack { id: self.id, frames: self.frames.iter().flat_map(|frames| frames.iter().cloned()).collect() }
    }
}

/// A [`Stack`] whose addresses have not been resolved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BareStack {
    /// Id of the stack.
    pub id: StackId,
    /// Kernel addresses, leaf first.
    pub kernel: Vec<u64>,
    /// User addresses, leaf first.
    pub user: Vec<u64>,
    /// Number of user frames that are no guesses, from the leaf on.
    pub certain: usize,
}

impl BareStack {
    /// Returns the stack with frames.
    pub fn to_stack(&self) -> Stack {
        let bare =
            |kernel| move |&address: &u64| Frame { address: Some(address), kernel, ..Frame::default() };
        let user = self.user.iter().map(bare(false)).enumerate();
        let user = user.map(|(depth, frame)| Frame { guessed: depth >= self.certain, ..frame });
        Stack { id: self.id, frames: self.kernel.iter().map(bare(true)).chain(user).collect() }
    }
}

/// The number of stacks and of their frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackCounts {
    /// Stacks.
    pub stacks: usize,
    /// Frames of all stacks.
    pub frames: usize,
    /// Frames with the name of their function.
    pub named: usize,
}

impl StackCounts {
    /// Adds a stack.
    pub(crate) fn add(&mut self, stack: &Stack) {
        self.stacks += 1;
        self.frames += stack.frames.len();
        self.named += stack.frames.iter().filter(|frame| frame.symbol.is_some()).count();
    }
}

/// One incarnation of a lock: from its first event, or its initialisation, to its last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockRow {
    /// Id of the lock.
    pub id: LockId,
    /// Address in memory. `None` in a redacted trace.
    pub address: Option<u64>,
    /// Kind of the lock.
    pub kind: LockKind,
    /// Address space of `address`.
    pub scope: Scope,
    /// With [`Scope::Process`], the process.
    pub pid: Option<i32>,
    /// Symbol at its address, if there is one: `symbol` or `symbol+0x18`.
    pub name: Option<String>,
    /// Its place in memory that processes share, `DEVICE:INODE+OFFSET`. Rows with the same place and kind are one lock.
    pub shared: Option<String>,
    /// Call stack of its initialization, if that was seen.
    pub init_stack: Option<StackId>,
    /// Time of its first event.
    pub first_ns: i64,
    /// Time of its last event.
    pub last_ns: i64,
}

impl LockRow {
    /// Returns the row of a lock of which only the kind is known.
    pub const fn new(id: LockId, kind: LockKind) -> Self {
        let scope = if kind.is_kernel() { Scope::Kernel } else { Scope::Process };
        Self {
            id,
            address: None,
            kind,
            scope,
            pid: None,
            name: None,
            shared: None,
            init_stack: None,
            first_ns: 0,
            last_ns: 0,
        }
    }
}

/// One incarnation of a task: a thread, from its start or exec to its exit or next exec.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRow {
    /// Id of the task.
    pub id: TaskId,
    /// Process id.
    pub pid: i32,
    /// Thread id; negative for a goroutine.
    pub tid: i32,
    /// The thread's last name.
    pub comm: Option<String>,
    /// Start time, if known.
    pub start_ns: Option<i64>,
    /// Exit time, if that was seen.
    pub exit_ns: Option<i64>,
    /// cgroup (v2 path), if it was read in time.
    pub cgroup: Option<String>,
    /// The task that created it, if that was seen and has a row.
    pub parent: Option<TaskId>,
}

impl TaskRow {
    /// Returns the row of a thread of which only its ids are known.
    pub const fn new(id: TaskId, pid: i32, tid: i32) -> Self {
        Self { id, pid, tid, comm: None, start_ns: None, exit_ns: None, cgroup: None, parent: None }
    }
}

/// All rows of the side tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SideTables {
    /// In id order.
    pub(crate) stacks: Vec<Stack>,
    /// In id order.
    pub(crate) locks: Vec<LockRow>,
    /// In id order.
    pub(crate) tasks: Vec<TaskRow>,
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
    fn every_kind_parses_back_to_its_value() {
        for kind in LockKind::ALL {
            assert_eq!(kind.as_str().parse(), Ok(*kind));
        }
    }
}
