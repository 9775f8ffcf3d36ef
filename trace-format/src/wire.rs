//! The records that the BPF programs write to the ring buffers, shared by both sides.
//!
//! Records have a fixed size and consist of plain integers. Codes are integers, not enums, because a ring buffer may deliver
//! any bytes; the recorder counts codes that it does not know. Padding is explicit, so that no uninitialized byte leaves the
//! kernel.
//!
//! Each CPU has two rings, one for [`WireEvent`] and one for descriptors ([`WireTask`], [`WireStack`]), so that a flood of
//! events does not cost task names or stacks.

/// Codes of records.
pub mod code {
    /// A kernel lock was contended. `address` is the lock, `detail` the `LCB_F_*` flags of `include/trace/events/lock.h`
    /// (5.19). The entry of a slow-path function reports it as well.
    pub const CONTENTION_BEGIN: u8 = 1;
    /// The wait for a kernel lock ended. `value` is 0 or a negative errno. `extra` is 0, or the start time of the wait if
    /// that has no record of its own; then `detail` is as for [`CONTENTION_BEGIN`], and `blocked_ns` and `runq_ns` are the
    /// wait's own.
    pub const CONTENTION_END: u8 = 2;
    /// Entry of a futex wait call. `address` is the futex word, `detail` the futex command.
    pub const FUTEX_WAIT: u8 = 3;
    /// Return of a futex wait call. `address` and `detail` are as at entry, `value` is the return value, `extra` and the
    /// fields that depend on it are as for [`CONTENTION_END`].
    pub const FUTEX_WAIT_DONE: u8 = 4;
    /// Return of a futex wake call. `address` and `detail` are as at entry, `value` is the number of tasks woken or a
    /// negative errno, `extra` the entry time or 0.
    pub const FUTEX_WAKE: u8 = 5;
    /// Entry of a function that acquires a user lock or waits for it. `detail` is the [`api`](super::api), `address` the lock,
    /// `value` its [`lock_words`](super::lock_words). For a condition wait, `extra` is the condition variable and `address` its
    /// mutex. For other timed calls, `extra` is 1 if the clock or the timeout is invalid, so that the call does not wait.
    pub const CALL: u8 = 6;
    /// Return of such a function. `detail` is the [`api`](super::api), `value` the return value. `address` is 0 if the source
    /// does not know it (uretprobes cannot read arguments): it is the address of the task's last open call.
    pub const RETURN: u8 = 7;
    /// Entry of a function that releases a user lock, recorded before the lock is free. `address` is the lock, `value` its
    /// [`lock_words`](super::lock_words). For a mutex, `extra` is its [`mutex_state`](super::mutex_state).
    pub const UNLOCK: u8 = 8;
    /// Entry of a function that initializes a user lock. `extra` is the third argument: the count of a barrier or semaphore.
    pub const INIT: u8 = 9;
    /// Entry of a function that destroys a user lock. `extra` is as for [`UNLOCK`].
    pub const DESTROY: u8 = 10;
    /// Return of a function that acquires a kernel lock. `address` is the lock, `detail` the index of the function in
    /// [`FUNCTIONS`](crate::kernel_functions::FUNCTIONS), `value` is 0 if it has the lock, or a negative errno (`-EBUSY` for a
    /// try-lock). May follow the [`CONTENTION_END`] of the same acquisition, or replace it.
    pub const LOCK_TAKEN: u8 = 11;
    /// Entry of a function that releases a kernel lock, recorded before the lock is free. `address` and `detail` are as for
    /// [`LOCK_TAKEN`].
    pub const LOCK_RELEASED: u8 = 12;
    /// Entry of `sem_post`. `address` is the semaphore, `value` its [`lock_words`](super::lock_words).
    pub const POST: u8 = 13;
    /// The task acquired the user lock at `address` by the function in `detail`. Ends the wait of the function's [`CALL`] if
    /// there is one; otherwise the function was called just now.
    pub const TAKEN: u8 = 14;
    /// A task runs again after being off-CPU. `extra` is the time when it left its CPU, `value` [how it did](super::departure),
    /// `blocked_ns` and `runq_ns` cover the time between. The stacks were taken when
    /// it left. For inline stacks, `address` is the task's [`stack_key`](super::stack_key), and `caller` the peer's.
    pub const OFF_CPU: u8 = 15;
    /// The last code of a [`WireEvent`](super::WireEvent).
    pub const LAST_EVENT: u8 = OFF_CPU;

    /// A task was created ([`WireTask`](super::WireTask)). `comm` is the inherited name, `parent_*` the creator.
    pub const TASK_FORK: u8 = 32;
    /// A task executed a new program; `comm` is the new name.
    pub const TASK_EXEC: u8 = 33;
    /// A task was renamed; `comm` is the new name.
    pub const TASK_RENAME: u8 = 34;
    /// A task exited; `comm` is its last name.
    pub const TASK_EXIT: u8 = 35;

    /// The frames of a stack that did not fit into the stack map ([`WireStack`](super::WireStack)).
    pub const STACK: u8 = 48;
    /// The top of a user stack ([`WireUserStack`](super::WireUserStack)).
    pub const USER_STACK: u8 = 49;
}

/// Identifies the C library function of a record from [`code::CALL`] to [`code::DESTROY`], [`code::POST`] or [`code::TAKEN`]:
/// the object that the function works on and, for functions that acquire or wait, the variant. C11 functions call these.
pub mod api {
    pub use crate::preload::api::{
        BARRIER, CONDITION, MUTEX, RWLOCK, RWLOCK_READ, RWLOCK_WRITE, SEMAPHORE, SPIN, THREAD,
    };

    /// A spinlock, by a function that both initializes and unlocks: glibc has one for both on x86.
    pub const SPIN_UNLOCK_OR_INIT: u8 = 9;
    /// A mutex of Rust's standard library, by the function that waits for it.
    pub const RUST_MUTEX: u8 = 10;
    /// A reader-writer lock of Rust's standard library, by the function in which a reader waits for it.
    pub const RUST_RWLOCK_READ: u8 = 11;
    /// As [`RUST_RWLOCK_READ`], for a writer.
    pub const RUST_RWLOCK_WRITE: u8 = 12;
    /// A mutex of Go. `extra` is the goroutine: the address of its `runtime.g`.
    pub const GO_MUTEX: u8 = 13;
    /// The last object.
    pub const LAST: u8 = GO_MUTEX;

    /// The function acquires nothing.
    pub const NONE: u8 = 0;
    /// Waits without limit: `_lock`, `_wait`.
    pub const BLOCKING: u8 = 1;
    /// Does not wait: `_try`.
    pub const TRY: u8 = 2;
    /// Waits until a time of the lock's clock: `_timed`.
    pub const TIMED: u8 = 3;
    /// Waits until a time of a clock that the caller names: `_clock`.
    pub const CLOCK: u8 = 4;
    /// Waits without limit; reported after the first attempt failed, and possibly again after further ones.
    pub const RETRY: u8 = 5;

    /// Packs both into a byte.
    pub const fn pack(object: u8, variant: u8) -> u8 {
        object << 4 | variant
    }

    /// Returns the object.
    pub const fn object(api: u8) -> u8 {
        api >> 4
    }

    /// Returns the variant.
    pub const fn variant(api: u8) -> u8 {
        api & 15
    }

    /// Whether the value is valid.
    pub const fn is_known(api: u8) -> bool {
        object(api) >= MUTEX && object(api) <= LAST && variant(api) <= RETRY
    }
}

/// Two words of a user lock, as the BPF program read them: the first word in the low half, the owner's thread id in the high
/// half for locks that store one. Valid only with [`flag::LOCK_WORDS`]. Offsets are those of glibc on 64-bit machines
/// (`sysdeps/nptl/bits/struct_mutex.h`, `struct_rwlock.h`).
pub mod lock_words {
    /// Packs both words.
    pub const fn pack(first: u32, owner: u32) -> u64 {
        first as u64 | (owner as u64) << 32
    }

    /// Returns the first word.
    pub const fn first(words: u64) -> u32 {
        words as u32
    }

    /// Returns the owner.
    pub const fn owner(words: u64) -> u32 {
        (words >> 32) as u32
    }
}

/// Further fields of a mutex, read when it is unlocked or destroyed.
pub mod mutex_state {
    /// Packs the kind into the low half and the number of users into the high half.
    pub const fn pack(kind: u32, users: u32) -> u64 {
        kind as u64 | (users as u64) << 32
    }

    /// Returns `__kind`: the type in the low two bits, and flags.
    pub const fn kind(state: u64) -> u32 {
        state as u32
    }

    /// Returns `__nusers`.
    pub const fn users(state: u64) -> u32 {
        (state >> 32) as u32
    }
}

/// The state and the system call in which a task left its CPU.
pub mod departure {
    /// The task was in no system call.
    pub const NO_SYSCALL: i32 = -1;
    /// The call is not known.
    pub const UNKNOWN_SYSCALL: i32 = -2;

    /// Packs the state (`task_struct.__state`; 0 if runnable) into the low half and the number of the call into the high half.
    pub const fn pack(state: u32, syscall: i32) -> i64 {
        state as i64 | (syscall as i64) << 32
    }

    /// Returns the state.
    pub const fn state(departure: i64) -> u32 {
        departure as u32
    }

    /// Returns the number of the call in the table of the machine's architecture, or [`NO_SYSCALL`] or [`UNKNOWN_SYSCALL`].
    pub const fn syscall(departure: i64) -> i32 {
        (departure >> 32) as i32
    }
}

/// The key of inline stacks that were taken before their event: the CPU and sequence number of their [`WireStack`].
pub mod stack_key {
    /// Packs both into a key.
    pub const fn pack(cpu: u32, seq: u32) -> u64 {
        cpu as u64 | (seq as u64) << 32
    }

    /// Returns the CPU on which the stacks were taken.
    pub const fn cpu(key: u64) -> u32 {
        key as u32
    }

    /// Returns the sequence number.
    pub const fn seq(key: u64) -> u32 {
        (key >> 32) as u32
    }
}

/// The `detail` of events of the `futex2` system calls, which have no command. The values are above all `FUTEX_*` commands of
/// `include/uapi/linux/futex.h`.
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

/// The BPF programs, as indices into the counters. Both sides rely on the order; the names appear in the footer's loss table.
pub mod program {
    /// `lock:contention_begin`
    pub const CONTENTION_BEGIN: u32 = 0;
    /// `lock:contention_end`
    pub const CONTENTION_END: u32 = 1;
    /// Entry of `futex` and of the futex2 calls.
    pub const FUTEX_ENTER: u32 = 2;
    /// Exit of `futex` and of the futex2 calls.
    pub const FUTEX_EXIT: u32 = 3;
    /// `sched:sched_switch`
    pub const SCHED_SWITCH: u32 = 4;
    /// `sched:sched_waking`
    pub const SCHED_WAKING: u32 = 5;
    /// `sched:sched_wakeup`
    pub const SCHED_WAKEUP: u32 = 6;
    /// Entry of a user lock function.
    pub const PTHREAD_CALL: u32 = 7;
    /// Return of a user lock function.
    pub const PTHREAD_RETURN: u32 = 8;
    /// `sched:sched_process_fork`, `sched_process_exec`, `sched_process_exit`, `task:task_rename`
    pub const TASK: u32 = 9;
    /// Return of a kernel function that acquires a lock.
    pub const LOCK_TAKEN: u32 = 10;
    /// Entry of a kernel function that releases a lock.
    pub const LOCK_RELEASED: u32 = 11;
    /// Entry of a kernel function that acquires a lock, if the lock cannot be read at its return.
    pub const LOCK_ENTERED: u32 = 12;
    /// Entry of a slow-path function of the kernel, if there are no contention tracepoints.
    pub const LOCK_SLOW: u32 = 13;
    /// `sched:sched_switch` for the task that leaves the CPU, when recording off-CPU time.
    pub const OFF_CPU_OUT: u32 = 14;
    /// `sched:sched_switch` for the task that enters the CPU, when recording off-CPU time.
    pub const OFF_CPU_IN: u32 = 15;
    /// `sched:sched_waking`, when recording off-CPU time.
    pub const OFF_CPU_WAKING: u32 = 16;
    /// `sched:sched_wakeup`, when recording off-CPU time.
    pub const OFF_CPU_WAKEUP: u32 = 17;
    /// `sched:sched_switch` for both of its tasks, when recording off-CPU time without stacks.
    pub const SWITCH: u32 = 18;
    /// Number of programs.
    pub const COUNT: usize = 19;
    /// Names, by index.
    pub const NAMES: [&str; COUNT] = [
        "contention_begin",
        "contention_end",
        "futex_enter",
        "futex_exit",
        "sched_switch",
        "sched_waking",
        "sched_wakeup",
        "pthread_call",
        "pthread_return",
        "task",
        "lock_taken",
        "lock_released",
        "lock_entered",
        "lock_slow",
        "off_cpu_out",
        "off_cpu_in",
        "off_cpu_waking",
        "off_cpu_wakeup",
        "switch",
    ];
}

/// Flags in [`WireEvent::flags`].
pub mod flag {
    /// `blocked_ns`, `runq_ns` and the peer of this wait are unknown: the map of waiting tasks was full, or wake-ups are not recorded.
    pub const NO_WAIT_STATE: u8 = 1;
    /// The peer fields hold the task whose wake-up ended the wait or sleep. For [`OFF_CPU`](super::code::OFF_CPU) it may be an
    /// idle task.
    pub const PEER: u8 = 2;
    /// The peer fields hold the owner, according to the lock word when the wait began.
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
    /// The stack map was full; the frames are in the [`WireStack`](super::WireStack) of the same CPU and `seq`.
    pub const INLINE: i32 = -1000;
    /// The stack map was full, and so was the ring of descriptors.
    pub const LOST: i32 = -1001;
    /// The first of the values that stand for a stack that the recorder has unwound; the next ones are below it.
    const FIRST_UNWOUND: i32 = -2000;

    /// Returns the value for the unwound stack with this number; [`LOST`] if there is none, because the number is too large.
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
    /// Time that the task has slept since it began to wait, in ns. Grows as long as the task waits for anything, so that a
    /// wait's own share is the difference between its end and its begin.
    pub blocked_ns: u64,
    /// Time that the task has spent in a run queue since it began to wait, in ns. Grows like `blocked_ns`.
    pub runq_ns: u64,
    /// See [`code`].
    pub value: i64,
    /// See [`code`].
    pub extra: u64,
    /// Return address of the function just entered; 0 if unknown or not at a function's entry. The frame pointer chain of
    /// `user_stack` does not contain this frame yet; it belongs right after the leaf.
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
    /// With [`code::TASK_FORK`], the parent; with [`code::TASK_EXEC`], the previous thread id of the task; otherwise 0.
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

/// The program that a process runs. `tgid` alone is given to other processes, and stays the same when another program is executed.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Incarnation {
    /// `task_struct.start_time` of the process's first thread: CLOCK_MONOTONIC, in nanoseconds. 0 if it is not known.
    pub started_ns: u64,
    /// `task_struct.self_exec_id`, which grows with each execution of a program. A process inherits it.
    pub execs: u64,
    /// The process.
    pub tgid: u32,
    /// Zero.
    pub padding: u32,
}

/// The header of a copy of the top of a user stack, from which the recorder unwinds it. 80 bytes; `bytes` bytes of the stack
/// from `sp` on follow, and then unused bytes.
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

/// The counters of a program on a CPU. Every run of a program increments exactly one of the first five, so that
/// `runs = filtered + delivered + ring_full + guard + no_place`.
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
