//! Codes of records.

/// A kernel lock was contended. `address` is the lock, `detail` the `LCB_F_*` flags of
/// `include/trace/events/lock.h` (5.19). The entry of a slow-path function reports it as well.
pub const CONTENTION_BEGIN: u8 = 1;
/// The wait for a kernel lock ended. `value` is 0 or a negative errno. `extra` is 0, or the start time of the
/// wait if that has no record of its own; then `detail` is as for [`CONTENTION_BEGIN`], and `blocked_ns` and
/// `runq_ns` are the wait's own.
pub const CONTENTION_END: u8 = 2;
/// Entry of a futex wait call. `address` is the futex word, `detail` the futex command.
pub const FUTEX_WAIT: u8 = 3;
/// Return of a futex wait call. `address` and `detail` are as at entry, `value` is the return value, `extra`
/// and the fields that depend on it are as for [`CONTENTION_END`].
pub const FUTEX_WAIT_DONE: u8 = 4;
/// Return of a futex wake call. `address` and `detail` are as at entry, `value` is the number of tasks woken
/// or a negative errno, `extra` the entry time or 0.
pub const FUTEX_WAKE: u8 = 5;
/// Entry of a function that acquires a user lock or waits for it. `detail` is the [`api`](super::api),
/// `address` the lock, `value` its [`lock_words`](super::lock_words). For a condition wait, `extra` is the
/// condition variable and `address` its mutex. For other timed calls, `extra` is 1 if the clock or the
/// timeout is invalid, so that the call does not wait.
pub const CALL: u8 = 6;
/// Return of such a function. `detail` is the [`api`](super::api), `value` the return value. `address` is 0
/// if the source does not know it (uretprobes cannot read arguments): it is the address of the task's last
/// open call.
pub const RETURN: u8 = 7;
/// Entry of a function that releases a user lock, recorded before the lock is free. `address` is the lock,
/// `value` its [`lock_words`](super::lock_words). For a mutex, `extra` is its
/// [`mutex_state`](super::mutex_state).
pub const UNLOCK: u8 = 8;
/// Entry of a function that initializes a user lock. `extra` is the third argument: the count of a barrier or
/// semaphore.
pub const INIT: u8 = 9;
/// Entry of a function that destroys a user lock. `extra` is as for [`UNLOCK`].
pub const DESTROY: u8 = 10;
/// Return of a function that acquires a kernel lock. `address` is the lock, `detail` the index of the
/// function in [`FUNCTIONS`](crate::kernel_functions::FUNCTIONS), `value` is 0 if it has the lock, or a
/// negative errno (`-EBUSY` for a try-lock). May follow the [`CONTENTION_END`] of the same acquisition, or
/// replace it.
pub const LOCK_TAKEN: u8 = 11;
/// Entry of a function that releases a kernel lock, recorded before the lock is free. `address` and `detail`
/// are as for [`LOCK_TAKEN`].
pub const LOCK_RELEASED: u8 = 12;
/// Entry of `sem_post`. `address` is the semaphore, `value` its [`lock_words`](super::lock_words).
pub const POST: u8 = 13;
/// The task acquired the user lock at `address` by the function in `detail`. Ends the wait of the function's
/// [`CALL`] if there is one; otherwise the function was called just now.
pub const TAKEN: u8 = 14;
/// A task runs again after being off-CPU. `extra` is the time when it left its CPU, `value` [how it
/// did](super::departure), `blocked_ns` and `runq_ns` cover the time between. The stacks were taken when it
/// left. For inline stacks, `address` is the task's [`stack_key`](super::stack_key), and `caller` the peer's.
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
