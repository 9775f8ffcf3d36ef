//! The records that the kernel side puts into the rings, one definition for both sides.
//!
//! Enter: fields that a program has at hand. Leave: fixed-size records of plain integers. Codes are integers, not
//! enums, because bytes that come out of a ring may hold anything; the host turns them into meaning and counts
//! what it does not know. Padding is written out, so that no uninitialised byte leaves the kernel.
//!
//! Two rings exist per CPU: one for [`WireEvent`], one for descriptors ([`WireTask`], [`WireStack`]), so that a
//! flood of events never costs the name of a task or the frames of a stack.

/// What a [`WireEvent`] reports.
pub mod code {
    /// A kernel lock was not free: `address` is the lock, `detail` the `LCB_F_*` flags of
    /// `include/trace/events/lock.h` (5.19). It may come at the entry of a function that waits, too.
    pub const CONTENTION_BEGIN: u8 = 1;
    /// The wait for a kernel lock ended: `value` is 0 or a negative errno. `extra` is 0, or when the wait began if that has
    /// no record of its own; then `detail` is as for the begin, and `blocked_ns` and `runq_ns` are the wait's own.
    pub const CONTENTION_END: u8 = 2;
    /// A futex wait call was entered: `address` is the futex word, `detail` the futex command.
    pub const FUTEX_WAIT: u8 = 3;
    /// A futex wait call returned: `address` and `detail` as at its entry, `value` is what it returned, `extra` and what
    /// depends on it as for [`CONTENTION_END`].
    pub const FUTEX_WAIT_DONE: u8 = 4;
    /// A futex wake call returned: `address` and `detail` as at its entry, `value` is the number of tasks woken,
    /// or a negative errno. `extra` is when it was entered, or 0.
    pub const FUTEX_WAKE: u8 = 5;
    /// A call that takes or awaits a user lock was entered: `detail` is the [`api`](super::api), `address` the lock, `value` its
    /// [`words`](super::words). `extra` of a condition wait is the condition variable, and `address` its mutex; of another
    /// call that is timed it is 1 if the clock or the time is none: the call does not wait, then. Otherwise 0.
    pub const CALL: u8 = 6;
    /// A call returned: `detail` is the [`api`](super::api), `value` what it returned. `address` is
    /// 0 where the source can't tell it (arguments can't be read at return): it is that of the task's last open call.
    pub const RETURN: u8 = 7;
    /// A function that gives a user lock back was entered: `address` is the lock, `value` its [`words`](super::words).
    /// `extra` of a mutex is its [`mutex`](super::mutex) half words. Stamped before the lock is free.
    pub const UNLOCK: u8 = 8;
    /// A user lock is about to be initialised. `extra` is the call's third argument: a barrier's or a semaphore's count.
    pub const INIT: u8 = 9;
    /// A user lock is about to be destroyed; `extra` as for [`UNLOCK`].
    pub const DESTROY: u8 = 10;
    /// A function that takes a kernel lock returned: `address` is the lock, `detail` the function's place in
    /// [`FUNCTIONS`](crate::kernel_functions::FUNCTIONS), `value` is 0 if it has the lock, or a negative errno (`-EBUSY` of
    /// one that only tries). It may come after the [`CONTENTION_END`] of the same acquisition, or in its place.
    pub const LOCK_TAKEN: u8 = 11;
    /// A function that gives a kernel lock back was entered: `address` and `detail` as above. Stamped before the lock is
    /// free.
    pub const LOCK_RELEASED: u8 = 12;
    /// A semaphore is about to be posted: `address`, and `value` its [`words`](super::words).
    pub const POST: u8 = 13;
    /// The task has the user lock at `address`, by the function in `detail`, which it called just now unless there is a
    /// [`CALL`] of its own for it: then that one's wait ends.
    pub const TAKEN: u8 = 14;
    /// A task runs again: `extra` is when it left its CPU, `value` its state then (`task_struct.__state`; 0 if it could have
    /// gone on), `blocked_ns` and `runq_ns` are those of the time between. The stacks are those with which it left; if they
    /// travel inline, it is under the CPU and number in `address`, and the peer's under those in `caller`
    /// ([`place`](super::place)).
    pub const OFF_CPU: u8 = 15;
    /// The last of the codes of a [`WireEvent`](super::WireEvent).
    pub const LAST_EVENT: u8 = OFF_CPU;

    /// A task was created ([`WireTask`](super::WireTask)): `comm` is what it inherited, `parent_*` who made it.
    pub const TASK_FORK: u8 = 32;
    /// A task runs a new program; `comm` is the new name.
    pub const TASK_EXEC: u8 = 33;
    /// A task changed its name; `comm` is the new name.
    pub const TASK_RENAME: u8 = 34;
    /// A task ended; `comm` is its last name.
    pub const TASK_EXIT: u8 = 35;

    /// The frames of a stack that found no place in the stack map ([`WireStack`](super::WireStack)).
    pub const STACK: u8 = 48;
}

/// Which function of the C library a record from [`code::CALL`] to [`code::DESTROY`], or of [`code::POST`] or
/// [`code::TAKEN`], is about: what it
/// is for, and, of a call that takes or awaits it, in which way. C11's functions are calls of these.
pub mod api {
    pub use crate::preload::api::{
        BARRIER, CONDITION, MUTEX, RWLOCK, RWLOCK_READ, RWLOCK_WRITE, SEMAPHORE, SPIN,
    };

    /// A spin lock, by a function that initialises and gives back alike: glibc has one for both on x86.
    pub const SPIN_UNLOCK_OR_INIT: u8 = 9;
    /// The last of what functions are for.
    pub const LAST: u8 = SPIN_UNLOCK_OR_INIT;

    /// No way: the function takes nothing.
    pub const NONE: u8 = 0;
    /// As long as it takes: `_lock`, `_wait`.
    pub const WAITS: u8 = 1;
    /// Not at all: `_try`.
    pub const TRIES: u8 = 2;
    /// Until a time of the clock that the lock has: `_timed`.
    pub const TIMED: u8 = 3;
    /// Until a time of a clock that the caller names: `_clock`.
    pub const CLOCKED: u8 = 4;
    /// As long as it takes, told after its first attempt has failed, and perhaps again after further ones.
    pub const RETRIES: u8 = 5;

    /// Both in one byte.
    pub const fn of(object: u8, way: u8) -> u8 {
        object << 4 | way
    }

    /// What the function is for.
    pub const fn object(api: u8) -> u8 {
        api >> 4
    }

    /// How it takes it.
    pub const fn way(api: u8) -> u8 {
        api & 15
    }

    /// Whether there is such a function.
    pub const fn is_known(api: u8) -> bool {
        object(api) >= MUTEX && object(api) <= LAST && way(api) <= RETRIES
    }
}

/// What the kernel side reads in a user lock: the first word in the low half, the owner's thread id as the lock names it, of
/// locks that have such a word, in the high half. Known only with [`flag::WORDS`]. Places are those of glibc on 64-bit
/// machines (`sysdeps/nptl/bits/struct_mutex.h`, `struct_rwlock.h`).
pub mod words {
    /// Both in one.
    pub const fn of(first: u32, owner: u32) -> u64 {
        first as u64 | (owner as u64) << 32
    }

    /// The first word.
    pub const fn first(words: u64) -> u32 {
        words as u32
    }

    /// The owner.
    pub const fn owner(words: u64) -> u32 {
        (words >> 32) as u32
    }
}

/// What else is read in a mutex that is given back or destroyed.
pub mod mutex {
    /// The kind in the low half, the number of its users in the high half.
    pub const fn of(kind: u32, users: u32) -> u64 {
        kind as u64 | (users as u64) << 32
    }

    /// `__kind`: the type in the low two bits, and flags.
    pub const fn kind(both: u64) -> u32 {
        both as u32
    }

    /// `__nusers`.
    pub const fn users(both: u64) -> u32 {
        (both >> 32) as u32
    }
}

/// Under which CPU and number stacks travel inline that are older than their event.
pub mod place {
    /// Both in one.
    pub const fn of(cpu: u32, seq: u32) -> u64 {
        cpu as u64 | (seq as u64) << 32
    }

    /// The CPU, which is also where it happened.
    pub const fn cpu(place: u64) -> u32 {
        place as u32
    }

    /// The number.
    pub const fn seq(place: u64) -> u32 {
        (place >> 32) as u32
    }
}

/// The `detail` of futex events that the calls of `futex2` made; they have no command of their own. Above every
/// `FUTEX_*` command of `include/uapi/linux/futex.h`.
pub mod futex2 {
    /// `futex_wait` (6.7)
    pub const WAIT: u8 = 64;
    /// `futex_waitv` (5.16): `address` is the first word that is waited for, `extra` how many there are.
    pub const WAITV: u8 = 65;
    /// `futex_wake` (6.7)
    pub const WAKE: u8 = 66;
    /// `futex_requeue` (6.7): `address` is the word whose waiters are woken or moved.
    pub const REQUEUE: u8 = 67;
}

/// The programs of the kernel side, as indices into the counters. Order is part of the interface between the
/// two sides; names are those of the footer's loss table.
pub mod program {
    /// `lock:contention_begin`
    pub const CONTENTION_BEGIN: u32 = 0;
    /// `lock:contention_end`
    pub const CONTENTION_END: u32 = 1;
    /// entry of `futex` and of the futex2 calls
    pub const FUTEX_ENTER: u32 = 2;
    /// exit of `futex` and of the futex2 calls
    pub const FUTEX_EXIT: u32 = 3;
    /// `sched:sched_switch`
    pub const SCHED_SWITCH: u32 = 4;
    /// `sched:sched_waking`
    pub const SCHED_WAKING: u32 = 5;
    /// `sched:sched_wakeup`
    pub const SCHED_WAKEUP: u32 = 6;
    /// entry of a function of user locks
    pub const PTHREAD_CALL: u32 = 7;
    /// return of a function of user locks
    pub const PTHREAD_RETURN: u32 = 8;
    /// `sched:sched_process_fork`, `sched_process_exec`, `sched_process_exit`, `task:task_rename`
    pub const TASK: u32 = 9;
    /// return of a kernel function that takes a lock
    pub const LOCK_TAKEN: u32 = 10;
    /// entry of a kernel function that gives a lock back
    pub const LOCK_RELEASED: u32 = 11;
    /// entry of a kernel function that takes a lock, where its return can't tell the lock
    pub const LOCK_ENTERED: u32 = 12;
    /// entry of a kernel function that waits for a lock, where there are no contention tracepoints
    pub const LOCK_SLOW: u32 = 13;
    /// `sched:sched_switch`, for the task that leaves its CPU, where off-CPU time is recorded
    pub const OFF_CPU_OUT: u32 = 14;
    /// `sched:sched_switch`, for the task that comes, where off-CPU time is recorded
    pub const OFF_CPU_IN: u32 = 15;
    /// `sched:sched_waking`, where off-CPU time is recorded
    pub const OFF_CPU_WAKING: u32 = 16;
    /// `sched:sched_wakeup`, where off-CPU time is recorded
    pub const OFF_CPU_WAKEUP: u32 = 17;
    /// How many there are.
    pub const COUNT: usize = 18;
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
    ];
}

/// Marks in [`WireEvent::flags`].
pub mod flag {
    /// The map of waiting tasks was full: `blocked_ns`, `runq_ns` and the peer of this wait are not known.
    pub const NO_WAIT_STATE: u8 = 1;
    /// The peer fields hold the task whose wake-up ended the wait or the sleep; of [`code::OFF_CPU`] it may be an idle task.
    pub const PEER: u8 = 2;
    /// The peer fields hold the task that the lock word named as the owner when the wait began.
    pub const OWNER: u8 = 4;
    /// The words of a user lock could be read.
    pub const WORDS: u8 = 8;
}

/// Values of the four stack fields that are no id of the stack map.
pub mod stack {
    /// Not asked for.
    pub const NONE: i32 = -1;
    /// The kernel found no frames (`-EFAULT`): a kernel thread has no user stack.
    pub const ABSENT: i32 = -14;
    /// The stack map had no place; the frames are in the [`WireStack`](super::WireStack) of the same CPU and `seq`.
    pub const INLINE: i32 = -1000;
    /// The stack map had no place, and neither had the ring of descriptors.
    pub const LOST: i32 = -1001;
}

/// One lock event. 104 bytes, the same on every architecture with 64-bit little-endian integers.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireEvent {
    /// CLOCK_MONOTONIC (`bpf_ktime_get_ns`), taken inside the guard.
    pub ts_ns: u64,
    /// The lock or the futex word.
    pub address: u64,
    /// How long this task has slept since it began to wait, in ns. It only grows while the task waits for
    /// anything, so that a wait's own share is the difference between its end and its begin.
    pub blocked_ns: u64,
    /// How long this task stood in a run queue since it began to wait, in ns. Grows as `blocked_ns` does.
    pub runq_ns: u64,
    /// See [`code`].
    pub value: i64,
    /// See [`code`].
    pub extra: u64,
    /// Where the function that was just entered returns to, 0 if not known or not at a function's entry. The frame
    /// pointers of `user_stack` do not show this one frame yet; it belongs right after the leaf.
    pub caller: u64,
    /// One of [`code`].
    pub code: u8,
    /// See [`code`].
    pub detail: u8,
    /// One of [`program`].
    pub program: u8,
    /// Any of [`flag`].
    pub flags: u8,
    /// Where it happened.
    pub cpu: u32,
    /// The process (what `ps` calls PID), in the first PID namespace.
    pub tgid: u32,
    /// The task (what `ps` calls LWP), in the first PID namespace. 0 is the idle task of `cpu`.
    pub tid: u32,
    /// Id in the stack map, or one of [`stack`].
    pub kernel_stack: i32,
    /// Id in the stack map, or one of [`stack`].
    pub user_stack: i32,
    /// With [`flag::PEER`]: the process of the waker; with [`flag::OWNER`]: that of the owner.
    pub peer_tgid: u32,
    /// With [`flag::PEER`]: the waker; with [`flag::OWNER`]: the owner.
    pub peer_tid: u32,
    /// With [`flag::PEER`]: where the waker was. Id in the stack map, or one of [`stack`].
    pub peer_kernel_stack: i32,
    /// With [`flag::PEER`]: where the waker was. Id in the stack map, or one of [`stack`].
    pub peer_user_stack: i32,
    /// How many events of this CPU were lost since the last one that got through.
    pub lost_before: u32,
    /// Counts the events of this CPU; joins a [`WireStack`] to its event.
    pub seq: u32,
}

/// The birth, new program, new name or end of a task. 56 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireTask {
    /// CLOCK_MONOTONIC.
    pub ts_ns: u64,
    /// One of the `TASK_` codes of [`code`].
    pub code: u8,
    /// Zero.
    pub padding: [u8; 3],
    /// Where it happened.
    pub cpu: u32,
    /// The task's process.
    pub tgid: u32,
    /// The task.
    pub tid: u32,
    /// With [`code::TASK_FORK`]: the parent's process, otherwise 0.
    pub parent_tgid: u32,
    /// With [`code::TASK_FORK`]: the parent, otherwise 0. With [`code::TASK_EXEC`]: the thread id that the task had before.
    pub parent_tid: u32,
    /// Name, padded with zeros.
    pub comm: [u8; 16],
    /// Zero.
    pub reserved: u64,
}

/// The most frames that a stack may have in the stack map and in a [`WireStack`].
pub const MAX_FRAMES: usize = 127;

/// The frames of one stack that found no place in the stack map. 1048 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct WireStack {
    /// CLOCK_MONOTONIC.
    pub ts_ns: u64,
    /// [`code::STACK`].
    pub code: u8,
    /// 1 for a user stack, 0 for a kernel stack.
    pub user: u8,
    /// 1 if it belongs to the peer of the event, 0 if to its task.
    pub peer: u8,
    /// How many of `frames` are filled.
    pub count: u8,
    /// With `seq`, the event that it belongs to.
    pub cpu: u32,
    /// With `cpu`, the event that it belongs to.
    pub seq: u32,
    /// Zero.
    pub padding: u32,
    /// Instruction addresses, leaf first.
    pub frames: [u64; MAX_FRAMES],
}

/// What one program counted on one CPU. Every entry of a program ends in exactly one of the first five, so
/// `entries = filtered + delivered + ring_full + guard + no_place` without a remainder.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireCounters {
    /// The event was of a task that is not recorded, or called for no record.
    pub filtered: u64,
    /// The record is in the ring.
    pub delivered: u64,
    /// The ring had no place.
    pub ring_full: u64,
    /// The program came upon another program of the same task on the same CPU, and left.
    pub guard: u64,
    /// What the program has to remember until a later one found no place in a map.
    pub no_place: u64,
    /// Of all: inside another program of the same task on the same CPU, as is allowed once.
    pub nested: u64,
    /// Of the delivered: a stack found no place, neither in the stack map nor inline.
    pub stack_lost: u64,
    /// Of the delivered: the wait found no place in the map of waiting tasks.
    pub state_full: u64,
}

const _: () = {
    assert!(size_of::<WireEvent>() == 104);
    assert!(size_of::<WireTask>() == 56);
    assert!(size_of::<WireStack>() == 24 + 8 * MAX_FRAMES);
    assert!(size_of::<WireCounters>() == 64);
    assert!(align_of::<WireEvent>() == 8);
};
