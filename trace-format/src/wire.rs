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
    /// or a negative errno.
    pub const FUTEX_WAKE: u8 = 5;
    /// A pthread call was entered: `detail` is the [`api`](super::api), `address` the mutex, `extra` the
    /// condition variable of a condition wait, otherwise 0.
    pub const CALL: u8 = 6;
    /// A pthread call returned: `detail` is the [`api`](super::api), `value` what it returned. `address` is
    /// 0 where the source can't tell it (arguments can't be read at return): it is that of the task's last open call.
    pub const RETURN: u8 = 7;
    /// `pthread_mutex_unlock` was entered: `address` is the mutex. Stamped before the lock word is cleared.
    pub const UNLOCK: u8 = 8;
    /// `pthread_mutex_init` was entered.
    pub const INIT: u8 = 9;
    /// `pthread_mutex_destroy` was entered.
    pub const DESTROY: u8 = 10;
    /// A function that takes a kernel lock returned: `address` is the lock, `detail` the function's place in
    /// [`FUNCTIONS`](crate::kernel_functions::FUNCTIONS), `value` is 0 if it has the lock, or a negative errno (`-EBUSY` of
    /// one that only tries). It may come after the [`CONTENTION_END`] of the same acquisition, or in its place.
    pub const LOCK_TAKEN: u8 = 11;
    /// A function that gives a kernel lock back was entered: `address` and `detail` as above. Stamped before the lock is
    /// free.
    pub const LOCK_RELEASED: u8 = 12;
    /// The last of the codes of a [`WireEvent`](super::WireEvent).
    pub const LAST_EVENT: u8 = LOCK_RELEASED;

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

/// Which pthread function a [`code::CALL`] or [`code::RETURN`] is about.
pub mod api {
    /// `pthread_mutex_lock`
    pub const MUTEX_LOCK: u8 = 1;
    /// `pthread_mutex_trylock`
    pub const MUTEX_TRYLOCK: u8 = 2;
    /// `pthread_mutex_timedlock`
    pub const MUTEX_TIMEDLOCK: u8 = 3;
    /// `pthread_mutex_clocklock`
    pub const MUTEX_CLOCKLOCK: u8 = 4;
    /// `pthread_cond_wait`: releases and re-acquires the mutex
    pub const COND_WAIT: u8 = 5;
    /// `pthread_cond_timedwait`
    pub const COND_TIMEDWAIT: u8 = 6;
    /// `pthread_cond_clockwait`
    pub const COND_CLOCKWAIT: u8 = 7;
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
    /// entry of a pthread function
    pub const PTHREAD_CALL: u32 = 7;
    /// return of a pthread function
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
    /// How many there are.
    pub const COUNT: usize = 14;
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
    ];
}

/// Marks in [`WireEvent::flags`].
pub mod flag {
    /// The map of waiting tasks was full: `blocked_ns`, `runq_ns` and the peer of this wait are not known.
    pub const NO_WAIT_STATE: u8 = 1;
    /// The peer fields hold the task whose wake-up ended the wait.
    pub const PEER: u8 = 2;
    /// The peer fields hold the task that the lock word named as the owner when the wait began.
    pub const OWNER: u8 = 4;
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
