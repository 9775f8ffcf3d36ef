//! The records that the BPF programs write to the ring buffers, shared by both sides.
//!
//! Records have a fixed size and consist of plain integers. Codes are integers, not enums, because a ring
//! buffer may deliver any bytes; the recorder counts codes that it does not know. Padding is explicit, so
//! that no uninitialized byte leaves the kernel.
//!
//! Each CPU has two rings, one for [`WireEvent`] and one for descriptors ([`WireTask`], [`WireStack`]), so
//! that a flood of events does not cost task names or stacks.

pub mod api;
pub mod code;
mod packed;
pub mod program;

pub use packed::{departure, lock_words, mutex_state, stack_key};

/// The `detail` of events of the `futex2` system calls, which have no command. The values are above all
/// `FUTEX_*` commands of `include/uapi/linux/futex.h`.
pub mod futex2 {
    /// `futex_wait` (6.7)
    pub const WAIT: u8 = 64;
    /// `futex_waitv` (5.16): `address` is the first of the words, `extra` the number of words.
    pub const WAITV: u8 = 65;
    /// `futex_wake` (6.7)
    pub const WAKE: u8 = 66;
    /// `futex_requeue` (6.7): `address` is the word whose waiters are woken or requeued.
    pub const REQUEUE: u8 = 67;
}

/// Flags in [`WireEvent::flags`].
pub mod flag {
    /// `blocked_ns`, `runq_ns` and the peer of this wait are unknown: the map of waiting tasks was full, or
    /// wake-ups are not recorded.
    pub const NO_WAIT_STATE: u8 = 1;
    /// The peer fields hold the task whose wake-up ended the wait or sleep. For
    /// [`OFF_CPU`](super::code::OFF_CPU) it may be an idle task.
    pub const PEER: u8 = 2;
    /// The peer fields hold the owner, according to the lock word when the wait began. For
    /// [`OFF_CPU`](super::code::OFF_CPU), they hold the task that ran instead of one that was runnable.
    pub const OWNER: u8 = 4;
    /// The words of a user lock could be read.
    pub const LOCK_WORDS: u8 = 8;
}

/// Values of the stack fields that are not ids of the stack map.
pub mod stack {
    /// Not requested.
    pub const NONE: i32 = -1;
    /// The kernel found no frames (`-EFAULT`), such as user frames of a kernel thread.
    pub const ABSENT: i32 = -14;
    /// The stack map was full; the frames are in the [`WireStack`](super::WireStack) of the same CPU and
    /// `seq`.
    pub const INLINE: i32 = -1000;
    /// The stack map was full, and so was the ring of descriptors.
    pub const LOST: i32 = -1001;
    /// The first of the values that stand for a stack that the recorder has unwound; the next ones are below
    /// it.
    const FIRST_UNWOUND: i32 = -2000;

    /// Returns the value for the unwound stack with this number; [`LOST`] if there is none, because the
    /// number is too large.
    pub const fn unwound(number: u32) -> i32 {
        match FIRST_UNWOUND.checked_sub_unsigned(number) {
            Some(value) => value,
            None => LOST,
        }
    }

    /// Returns the number of the unwound stack that a value stands for, if it is one.
    pub const fn unwound_number(value: i32) -> Option<u32> {
        if value <= FIRST_UNWOUND { Some(FIRST_UNWOUND.abs_diff(value)) } else { None }
    }
}

/// A lock event. 104 bytes, the same on every architecture with 64-bit little-endian integers.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireEvent {
    /// CLOCK_MONOTONIC (`bpf_ktime_get_ns`), taken inside the guard.
    pub ts_ns: u64,
    /// The lock or the futex word.
    pub address: u64,
    /// Time that the task has slept since it began to wait, in ns. Grows as long as the task waits for
    /// anything, so that a wait's own share is the difference between its end and its begin.
    pub blocked_ns: u64,
    /// Time that the task has spent in a run queue since it began to wait, in ns. Grows like `blocked_ns`.
    pub runq_ns: u64,
    /// See [`code`].
    pub value: i64,
    /// See [`code`].
    pub extra: u64,
    /// Return address of the function just entered; 0 if unknown or not at a function's entry. The frame
    /// pointer chain of `user_stack` does not contain this frame yet; it belongs right after the leaf.
    pub caller: u64,
    /// One of [`code`].
    pub code: u8,
    /// See [`code`].
    pub detail: u8,
    /// One of [`program`].
    pub program: u8,
    /// Any of [`flag`].
    pub flags: u8,
    /// The CPU.
    pub cpu: u32,
    /// The process (PID of `ps`), in the initial PID namespace.
    pub tgid: u32,
    /// The task (LWP of `ps`), in the initial PID namespace. 0 is the idle task of `cpu`.
    pub tid: u32,
    /// Id in the stack map, or one of [`stack`].
    pub kernel_stack: i32,
    /// Id in the stack map, or one of [`stack`]: a stack that the program recognized is [`stack::unwound`].
    pub user_stack: i32,
    /// With [`flag::PEER`], the process of the waker; with [`flag::OWNER`], of the owner.
    pub peer_tgid: u32,
    /// With [`flag::PEER`], the waker; with [`flag::OWNER`], the owner.
    pub peer_tid: u32,
    /// With [`flag::PEER`], the waker's kernel stack: id in the stack map, or one of [`stack`].
    pub peer_kernel_stack: i32,
    /// With [`flag::PEER`], the waker's user stack: id in the stack map, or one of [`stack`].
    pub peer_user_stack: i32,
    /// Number of events of this CPU lost since the last delivered one.
    pub lost_before: u32,
    /// Sequence number on this CPU. Joins a [`WireStack`] to its event.
    pub seq: u32,
}

/// The start, exec, rename or exit of a task. 56 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireTask {
    /// CLOCK_MONOTONIC.
    pub ts_ns: u64,
    /// One of the `TASK_` codes of [`code`].
    pub code: u8,
    /// Zero.
    pub padding: [u8; 3],
    /// The CPU.
    pub cpu: u32,
    /// The task's process.
    pub tgid: u32,
    /// The task.
    pub tid: u32,
    /// With [`code::TASK_FORK`], the parent's process; otherwise 0.
    pub parent_tgid: u32,
    /// With [`code::TASK_FORK`], the parent; with [`code::TASK_EXEC`], the previous thread id of the task;
    /// otherwise 0.
    pub parent_tid: u32,
    /// Name, padded with zeros.
    pub comm: [u8; 16],
    /// Zero.
    pub reserved: u64,
}

/// Maximum number of frames of a stack in the stack map and in a [`WireStack`].
pub const MAX_FRAMES: usize = 127;

/// The frames of a stack that did not fit into the stack map. 1040 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct WireStack {
    /// CLOCK_MONOTONIC.
    pub ts_ns: u64,
    /// [`code::STACK`].
    pub code: u8,
    /// 1 for a user stack, 0 for a kernel stack.
    pub user: u8,
    /// 1 for the stack of the event's peer, 0 for the stack of its task.
    pub peer: u8,
    /// Number of valid `frames`.
    pub count: u8,
    /// CPU of the event; identifies the event together with `seq`.
    pub cpu: u32,
    /// Sequence number of the event; identifies the event together with `cpu`.
    pub seq: u32,
    /// Zero.
    pub padding: u32,
    /// Instruction addresses, leaf first.
    pub frames: [u64; MAX_FRAMES],
}

/// The program that a process runs. `tgid` alone is given to other processes, and stays the same when another
/// program is executed.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Incarnation {
    /// `task_struct.start_time` of the process's first thread: CLOCK_MONOTONIC, in nanoseconds. 0 if it is
    /// not known.
    pub started_ns: u64,
    /// `task_struct.self_exec_id`, which grows with each execution of a program. A process inherits it.
    pub execs: u64,
    /// The process.
    pub tgid: u32,
    /// Zero.
    pub padding: u32,
}

/// The header of a copy of the top of a user stack, from which the recorder unwinds it. 80 bytes; `bytes`
/// bytes of the stack from `sp` on follow, and then unused bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireUserStack {
    /// CLOCK_MONOTONIC.
    pub ts_ns: u64,
    /// [`code::USER_STACK`].
    pub code: u8,
    /// 1 for the stack of the event's peer, 0 for the stack of its task.
    pub peer: u8,
    /// Zero.
    pub padding: [u8; 2],
    /// CPU of the event; identifies the event together with `seq`.
    pub cpu: u32,
    /// Sequence number of the event; identifies the event together with `cpu`.
    pub seq: u32,
    /// The same stack as the kernel walks it by frame pointers: id in the stack map, or one of [`stack`].
    pub user_stack: i32,
    /// Number of bytes of the stack.
    pub bytes: u32,
    /// Zero.
    pub reserved: u32,
    /// The program. Its process is known even if its start is not.
    pub incarnation: Incarnation,
    /// Instruction pointer at the entry to the kernel.
    pub ip: u64,
    /// Stack pointer at the entry to the kernel.
    pub sp: u64,
    /// Frame pointer at the entry to the kernel.
    pub bp: u64,
}

/// Maximum number of bytes of a [`WireUserStack`].
pub const MAX_STACK_BYTES: u32 = 16 << 10;

/// The counters of a program on a CPU. Every run of a program increments exactly one of the first five, so
/// that `runs = filtered + delivered + ring_full + guard + no_place`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireCounters {
    /// The task is not recorded, or the event needs no record.
    pub filtered: u64,
    /// The record is in the ring.
    pub delivered: u64,
    /// The ring was full.
    pub ring_full: u64,
    /// The guard kept the program out: another program of the same task was running on the same CPU.
    pub guard: u64,
    /// A map was full, so that state for a later program could not be stored.
    pub no_place: u64,
    /// Runs inside another program of the same task on the same CPU, as is allowed once.
    pub nested: u64,
    /// Delivered records with a stack that fit neither into the stack map nor into the descriptor ring.
    pub stack_lost: u64,
    /// Delivered records of a wait that did not fit into the map of waiting tasks.
    pub state_full: u64,
}

const _: () = {
    assert!(size_of::<WireEvent>() == 104);
    assert!(size_of::<WireTask>() == 56);
    assert!(size_of::<WireStack>() == 24 + 8 * MAX_FRAMES);
    assert!(size_of::<WireUserStack>() == 80);
    assert!(size_of::<WireCounters>() == 64);
    assert!(align_of::<WireEvent>() == 8);
};
