//! Rows of the three side tables: stacks, locks and tasks. Plain data.

use std::sync::Arc;

use arrow_array::{ArrayRef, ListArray, RecordBatch, StructArray};
use arrow_buffer::OffsetBuffer;
use arrow_schema::DataType;
use serde::{Deserialize, Serialize};

use crate::{
    FormatError,
    event::{LockId, StackId, TaskId},
    field::{ColumnType, Field, Source, TableRow as _, encode_words, table, words},
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
        /// User: the end of a thread of pthread, which others wait for to join it. Waiting for it is idling,
        /// not contention.
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

table! {
    "frame",
    /// The fields of a frame.
    FRAME,
    /// A frame of a stack.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(default)]
    Frame,
    /// The decoded columns of frames.
    pub(crate) FrameArrays {
        address "address": Option<u64> = "address of the instruction in memory, bits of an unsigned 64-bit number; of the kernel, an opaque number unless recorded with `--kernel-addresses`";
        module "module": Option<String> = "path of the mapped file, `[kernel]`, a kernel module's name in brackets, or `[anon]`: code in anonymous memory";
        build_id "build_id": Option<String> = "the module's build id, lower-case hex";
        offset "offset": Option<u64> = "offset into the module's file (user)";
        symbol "symbol": Option<String> = "function, demangled; a local function without a name of its own has that of the exported function that ends with a jump to it";
        symbol_offset "symbol_offset": Option<u64> = "bytes from the function's start";
        file "file": Option<String> = "source file";
        line "line": Option<i32> = "source line";
        inlined "inlined": bool = "inlined into the frame that follows";
        kernel "kernel": bool = "a kernel frame";
        guessed "guessed" since 2: bool = "a guess: found by frame pointers in code that may not keep them, or a lone frame whose callers were not found; false where that is not known";
    }
}

words!(LockKind Scope);

impl Field for Vec<Frame> {
    const TYPE: ColumnType = ColumnType::Frames;
    const NULLABLE: bool = false;
    type Column = (OffsetBuffer<i32>, FrameArrays);

    fn decode(source: &Source<'_>, name: &'static str) -> Result<Self::Column, FormatError> {
        let (lists, frames) = source.frames(name)?;
        let frames = RecordBatch::from(frames);
        Ok((lists.offsets().clone(), Frame::decode(&Source { batch: &frames, ..*source })?))
    }

    fn get((offsets, frames): &Self::Column, row: usize) -> Self {
        let (start, end) = (offsets[row], offsets[row + 1]);
        (start..end).map(|at| Frame::row(frames, at as usize)).collect()
    }

    fn encode<'a>(values: impl Iterator<Item = &'a Self>) -> ArrayRef {
        let DataType::List(element) = Self::TYPE.arrow() else { unreachable!("frames are a list") };
        let stacks: Vec<&Self> = values.collect();
        let DataType::Struct(fields) = element.data_type() else { unreachable!("a frame is a struct") };
        let frames = StructArray::new(fields.clone(), Frame::encode(stacks.iter().copied().flatten()), None);
        let lengths = OffsetBuffer::from_lengths(stacks.iter().map(|frames| frames.len()));
        Arc::new(ListArray::new(element, lengths, Arc::new(frames), None))
    }
}

table! {
    "stacks",
    /// `trace.stacks.parquet`: one row per stack.
    STACKS,
    /// A call stack. Its frames are empty if the kernel found none.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    Stack,
    /// The decoded columns of stacks.
    pub(crate) StackArrays {
        id "stack_id": StackId = "dense from 0";
        frames "frames": Vec<Frame> = "leaf first, kernel frames before user frames";
    }
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
    pub(crate) fn add(&mut self, stack: &Stack) {
        self.stacks += 1;
        self.frames += stack.frames.len();
        self.named += stack.frames.iter().filter(|frame| frame.symbol.is_some()).count();
    }
}

table! {
    "locks",
    /// `trace.locks.parquet`: one row per lock incarnation.
    LOCKS,
    /// One incarnation of a lock: from its first event, or its initialisation, to its last.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    LockRow,
    /// The decoded columns of locks.
    pub(crate) LockArrays {
        id "lock_id": LockId = "dense from 0, never reused";
        address "address": Option<u64> = "address of the lock, bits of an unsigned 64-bit number; of a kernel lock, an opaque number unless recorded with `--kernel-addresses`";
        kind "kind": LockKind = "`mutex`, `rwsem`, `spinlock`, `futex`, `pthread_mutex`, ...";
        scope "scope": Scope = "`kernel` or `process`";
        pid "pid": Option<i32> = "with scope `process`: the process that the address belongs to";
        name "name": Option<String> = "a symbol, or a member of a structure (see below); null if nothing is known";
        init_stack "init_stack_id": Option<StackId> = "the stack of its initialisation, if that was seen";
        first_ns "first_ns": i64 = "time of its first event";
        last_ns "last_ns": i64 = "time of its last event";
        shared "shared" since 2: Option<String> = "its place in memory that processes share, `DEVICE:INODE+OFFSET`; rows with the same place and kind are one lock";
    }
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

table! {
    "tasks",
    /// `trace.tasks.parquet`: one row per task incarnation.
    TASKS,
    /// One incarnation of a task: a thread, from its start or exec to its exit or next exec.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    TaskRow,
    /// The decoded columns of tasks.
    pub(crate) TaskArrays {
        id "task_id": TaskId = "dense from 0, never reused";
        pid "pid": i32 = "the process";
        tid "tid": i32 = "the thread; negative: a goroutine";
        comm "comm": Option<String> = "the thread's last name";
        start_ns "start_ns": Option<i64> = "time of its start";
        exit_ns "exit_ns": Option<i64> = "time of its exit, if that was seen";
        cgroup "cgroup": Option<String> = "its cgroup (v2 path)";
        parent "parent_task_id" since 3: Option<TaskId> = "the task that created it; null if that was not seen, if the creator has no rows, or after an exec";
        process_cpu_ns "process_cpu_ns" since 5: Option<i64> = "of a process's first thread: the processor time of the process until its exit, or the end of the recording; null if not known";
        throttled_periods "throttled_periods" since 6: Option<i64> = "of a process's first thread: how often its control group used up its quota of processor time; null without a quota";
        throttled_ns "throttled_ns" since 6: Option<i64> = "how long processors did not run that group then, added up over processors";
    }
}

impl TaskRow {
    /// Returns the row of a thread of which only its ids are known.
    pub const fn new(id: TaskId, pid: i32, tid: i32) -> Self {
        let (comm, start_ns, exit_ns, cgroup, parent) = (None, None, None, None, None);
        let (process_cpu_ns, throttled_periods, throttled_ns) = (None, None, None);
        Self {
            id,
            pid,
            tid,
            comm,
            start_ns,
            exit_ns,
            cgroup,
            parent,
            process_cpu_ns,
            throttled_periods,
            throttled_ns,
        }
    }
}

/// Rows of the side tables that are new or changed since the last checkpoint. The later of two rows with the
/// same id wins, and a symbolized stack wins over a bare one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SideRows {
    /// Symbolized stacks.
    pub stacks: Vec<SharedStack>,
    /// Stacks that are not symbolized yet.
    pub bare_stacks: Vec<BareStack>,
    /// Locks. `last_ns` may be too early.
    pub locks: Vec<LockRow>,
    /// Tasks.
    pub tasks: Vec<TaskRow>,
}

/// The rows of a checkpoint, which are new or changed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NewRows {
    /// Whether the lists of frames of earlier checkpoints are forgotten.
    pub(crate) forgets: bool,
    /// Lists of frames, numbered on from the lists of earlier checkpoints.
    pub(crate) lists: Vec<Arc<[Frame]>>,
    /// Stacks, with the numbers of their lists.
    pub(crate) stacks: Vec<(StackId, Vec<u32>)>,
    pub(crate) bare_stacks: Vec<BareStack>,
    pub(crate) locks: Vec<LockRow>,
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
