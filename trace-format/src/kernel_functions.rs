//! The kernel's lock functions, in one table for the recorder and the BPF programs.
//!
//! There is a BPF program per function, which looks up the meaning of the return value here. The recorder
//! looks up what to attach, and the lock kind of a record, which names its function by the index in
//! [`FUNCTIONS`]. Names and return values are those of
//! `include/linux/{mutex,rwsem,semaphore,rtmutex,percpu-rwsem,ww_mutex}.h`, 5.10 to 7.2. Which functions a
//! kernel has depends on its configuration.

use lcb::{MUTEX, PERCPU, READ, RT, SEMAPHORE, SPIN, WRITE};

/// The `LCB_F_*` flags of `lock:contention_begin` (`include/trace/events/lock.h`, 5.19), which tell the kind
/// of a kernel lock.
pub mod lcb {
    /// The waiter spins.
    pub const SPIN: u8 = 1;
    /// The waiter is a reader.
    pub const READ: u8 = 2;
    /// The waiter is a writer.
    pub const WRITE: u8 = 4;
    /// A lock of the rtmutex family.
    pub const RT: u8 = 8;
    /// A per-CPU reader-writer semaphore.
    pub const PERCPU: u8 = 16;
    /// A mutex.
    pub const MUTEX: u8 = 32;
    /// None of the others: a semaphore.
    pub const SEMAPHORE: u8 = 0;
}

/// Returns the kind of lock that the flags describe, one of [`kinds`]. Reader-writer locks of a PREEMPT_RT
/// kernel have the RT flag as well; RT without READ and WRITE is an rtmutex.
pub const fn kind(flags: u8) -> u32 {
    let rw = flags & (READ | WRITE) != 0;
    if flags & MUTEX != 0 {
        kinds::MUTEX
    } else if flags & PERCPU != 0 {
        kinds::PERCPU_RWSEM
    } else if flags & SPIN != 0 && (rw || flags & RT == 0) {
        if rw { kinds::RWLOCK } else { kinds::SPINLOCK }
    } else if rw {
        kinds::RWSEM
    } else if flags & RT != 0 {
        kinds::RTMUTEX
    } else {
        kinds::SEMAPHORE
    }
}

/// The kinds of kernel locks, one bit each.
pub mod kinds {
    /// `struct mutex`, also inside a ww_mutex
    pub const MUTEX: u32 = 1;
    /// `struct rt_mutex`
    pub const RTMUTEX: u32 = 2;
    /// `struct rw_semaphore`
    pub const RWSEM: u32 = 4;
    /// `struct percpu_rw_semaphore`
    pub const PERCPU_RWSEM: u32 = 8;
    /// `struct semaphore`
    pub const SEMAPHORE: u32 = 16;
    /// `spinlock_t`
    pub const SPINLOCK: u32 = 32;
    /// `rwlock_t`
    pub const RWLOCK: u32 = 64;
    /// The spinning kinds.
    pub const SPINNING: u32 = SPINLOCK | RWLOCK;
    /// All kinds.
    pub const ALL: u32 = 127;
}

/// The effect of a function on a lock, and the meaning of its return value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Acquires the lock; no return value.
    Acquire,
    /// Acquires the lock and returns 0, or gives up and returns a negative errno.
    AcquireOrFail,
    /// Tries without waiting. Returns nonzero on success, 0 on failure.
    Try,
    /// Tries without waiting. Returns 0 on success, nonzero on failure.
    TryInverted,
    /// Returns nonzero with the lock held, or 0 with the lock not held.
    AcquireConditionally,
    /// Releases the lock.
    Release,
    /// Turns a write lock into a read lock.
    Downgrade,
    /// The slow path of an acquiring function, entered after the first attempt failed. A wait begins here if
    /// there are no contention tracepoints, and always for rwsems, whose tracepoints come after the spinning.
    SlowPath,
}

/// A lock function of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelFunction {
    /// Symbol of the function.
    pub name: &'static str,
    /// Its effect on the lock.
    pub action: Action,
    /// Any of [`lcb`]: the kind of the lock, and the mode.
    pub flags: u8,
    /// Number of arguments.
    pub arguments: usize,
    /// Index of the argument that is the lock.
    pub lock: usize,
    /// Whether it may call another function of the table, which is recorded already.
    pub is_wrapper: bool,
}

const fn function(name: &'static str, action: Action, flags: u8, arguments: usize) -> KernelFunction {
    KernelFunction { name, action, flags, arguments, lock: 0, is_wrapper: false }
}

const fn wrapper(name: &'static str, action: Action, flags: u8, arguments: usize) -> KernelFunction {
    KernelFunction { lock: 0, is_wrapper: true, ..function(name, action, flags, arguments) }
}

const fn slow(name: &'static str, flags: u8) -> KernelFunction {
    function(name, Action::SlowPath, flags, 1)
}

macro_rules! functions {
    ($($id:ident = $function:expr,)+) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms, reason = "only the discriminants are used")]
        #[allow(dead_code, reason = "as above")]
        enum Index { $($id,)+ }

        /// Indices into [`FUNCTIONS`].
        pub mod index {
            use super::Index;
            $(
                #[doc = concat!("Index of `", stringify!($id), "`.")]
                pub const $id: usize = Index::$id as usize;
            )+
        }

        /// All functions, in attach order.
        pub const FUNCTIONS: &[KernelFunction] = &[$($function,)+];
    };
}

// Attach order: releasing functions come first, so that no acquisition is seen without its release; slow
// paths come before the functions that end them. Variants with a nesting level exist only with
// CONFIG_DEBUG_LOCK_ALLOC, where they replace the plain ones.
functions! {
    MUTEX_UNLOCK = function("mutex_unlock", Action::Release, MUTEX, 1),
    WW_MUTEX_UNLOCK = wrapper("ww_mutex_unlock", Action::Release, MUTEX, 1),
    UP_READ = function("up_read", Action::Release, READ, 1),
    UP_READ_NON_OWNER = function("up_read_non_owner", Action::Release, READ, 1),
    UP_WRITE = function("up_write", Action::Release, WRITE, 1),
    DOWNGRADE_WRITE = function("downgrade_write", Action::Downgrade, WRITE, 1),
    UP = function("up", Action::Release, SEMAPHORE, 1),
    RT_MUTEX_UNLOCK = function("rt_mutex_unlock", Action::Release, RT, 1),
    PERCPU_UP_WRITE = function("percpu_up_write", Action::Release, PERCPU | WRITE, 1),
    MUTEX_LOCK_SLOWPATH = slow("__mutex_lock_slowpath", MUTEX),
    MUTEX_LOCK_KILLABLE_SLOWPATH = slow("__mutex_lock_killable_slowpath", MUTEX),
    MUTEX_LOCK_INTERRUPTIBLE_SLOWPATH = slow("__mutex_lock_interruptible_slowpath", MUTEX),
    WW_MUTEX_LOCK_SLOWPATH = slow("__ww_mutex_lock_slowpath", MUTEX),
    WW_MUTEX_LOCK_INTERRUPTIBLE_SLOWPATH = slow("__ww_mutex_lock_interruptible_slowpath", MUTEX),
    RWSEM_DOWN_READ_SLOWPATH = slow("rwsem_down_read_slowpath", READ),
    RWSEM_DOWN_WRITE_SLOWPATH = slow("rwsem_down_write_slowpath", WRITE),
    DOWN_SLOWPATH = slow("__down", SEMAPHORE),
    DOWN_INTERRUPTIBLE_SLOWPATH = slow("__down_interruptible", SEMAPHORE),
    DOWN_KILLABLE_SLOWPATH = slow("__down_killable", SEMAPHORE),
    DOWN_TIMEOUT_SLOWPATH = slow("__down_timeout", SEMAPHORE),
    RT_MUTEX_SLOWLOCK = slow("rt_mutex_slowlock", RT),
    MUTEX_LOCK = function("mutex_lock", Action::Acquire, MUTEX, 1),
    MUTEX_LOCK_NESTED = function("mutex_lock_nested", Action::Acquire, MUTEX, 2),
    MUTEX_LOCK_NEST_LOCK = function("_mutex_lock_nest_lock", Action::Acquire, MUTEX, 2),
    MUTEX_LOCK_IO = wrapper("mutex_lock_io", Action::Acquire, MUTEX, 1),
    MUTEX_LOCK_IO_NESTED = wrapper("mutex_lock_io_nested", Action::Acquire, MUTEX, 2),
    MUTEX_LOCK_INTERRUPTIBLE = function("mutex_lock_interruptible", Action::AcquireOrFail, MUTEX, 1),
    MUTEX_LOCK_INTERRUPTIBLE_NESTED = function("mutex_lock_interruptible_nested", Action::AcquireOrFail, MUTEX, 2),
    MUTEX_LOCK_KILLABLE = function("mutex_lock_killable", Action::AcquireOrFail, MUTEX, 1),
    MUTEX_LOCK_KILLABLE_NESTED = function("mutex_lock_killable_nested", Action::AcquireOrFail, MUTEX, 2),
    MUTEX_LOCK_KILLABLE_NEST = function("_mutex_lock_killable", Action::AcquireOrFail, MUTEX, 3),
    MUTEX_TRYLOCK = function("mutex_trylock", Action::Try, MUTEX, 1),
    MUTEX_TRYLOCK_NEST_LOCK = function("_mutex_trylock_nest_lock", Action::Try, MUTEX, 2),
    ATOMIC_DEC_AND_MUTEX_LOCK =
        KernelFunction { lock: 1, ..wrapper("atomic_dec_and_mutex_lock", Action::AcquireConditionally, MUTEX, 2) },
    WW_MUTEX_LOCK = function("ww_mutex_lock", Action::AcquireOrFail, MUTEX, 2),
    WW_MUTEX_LOCK_INTERRUPTIBLE = function("ww_mutex_lock_interruptible", Action::AcquireOrFail, MUTEX, 2),
    WW_MUTEX_TRYLOCK = wrapper("ww_mutex_trylock", Action::Try, MUTEX, 2),
    DOWN_READ = function("down_read", Action::Acquire, READ, 1),
    DOWN_READ_NESTED = function("down_read_nested", Action::Acquire, READ, 2),
    DOWN_READ_NON_OWNER = function("down_read_non_owner", Action::Acquire, READ, 1),
    DOWN_READ_INTERRUPTIBLE = function("down_read_interruptible", Action::AcquireOrFail, READ, 1),
    DOWN_READ_KILLABLE = function("down_read_killable", Action::AcquireOrFail, READ, 1),
    DOWN_READ_KILLABLE_NESTED = function("down_read_killable_nested", Action::AcquireOrFail, READ, 2),
    DOWN_READ_TRYLOCK = function("down_read_trylock", Action::Try, READ, 1),
    DOWN_WRITE = function("down_write", Action::Acquire, WRITE, 1),
    DOWN_WRITE_NESTED = function("down_write_nested", Action::Acquire, WRITE, 2),
    DOWN_WRITE_NEST_LOCK = function("_down_write_nest_lock", Action::Acquire, WRITE, 2),
    DOWN_WRITE_KILLABLE = function("down_write_killable", Action::AcquireOrFail, WRITE, 1),
    DOWN_WRITE_KILLABLE_NESTED = function("down_write_killable_nested", Action::AcquireOrFail, WRITE, 2),
    DOWN_WRITE_TRYLOCK = function("down_write_trylock", Action::Try, WRITE, 1),
    DOWN = function("down", Action::Acquire, SEMAPHORE, 1),
    DOWN_INTERRUPTIBLE = function("down_interruptible", Action::AcquireOrFail, SEMAPHORE, 1),
    DOWN_KILLABLE = function("down_killable", Action::AcquireOrFail, SEMAPHORE, 1),
    DOWN_TIMEOUT = function("down_timeout", Action::AcquireOrFail, SEMAPHORE, 2),
    DOWN_TRYLOCK = function("down_trylock", Action::TryInverted, SEMAPHORE, 1),
    RT_MUTEX_LOCK = function("rt_mutex_lock", Action::Acquire, RT, 1),
    RT_MUTEX_LOCK_NESTED = function("rt_mutex_lock_nested", Action::Acquire, RT, 2),
    RT_MUTEX_LOCK_NEST_LOCK = function("_rt_mutex_lock_nest_lock", Action::Acquire, RT, 2),
    RT_MUTEX_LOCK_INTERRUPTIBLE = function("rt_mutex_lock_interruptible", Action::AcquireOrFail, RT, 1),
    RT_MUTEX_LOCK_KILLABLE = function("rt_mutex_lock_killable", Action::AcquireOrFail, RT, 1),
    RT_MUTEX_TIMED_LOCK = function("rt_mutex_timed_lock", Action::AcquireOrFail, RT, 2),
    RT_MUTEX_TRYLOCK = function("rt_mutex_trylock", Action::Try, RT, 1),
    PERCPU_DOWN_WRITE = function("percpu_down_write", Action::Acquire, PERCPU | WRITE, 1),
}
