//! The kernel's functions that take and give back locks: one table for both sides of the kernel.
//!
//! The kernel side has a program per function and asks the table what the function's answer means; the host asks it what
//! to attach, and what kind of lock a record is about. A record names the function by its place in [`FUNCTIONS`]. Names
//! and answers are those of `include/linux/{mutex,rwsem,semaphore,rtmutex,percpu-rwsem,ww_mutex}.h`, 5.10 to 7.2; a
//! kernel has the part of them that its configuration makes.

use lcb::{MUTEX, PERCPU, READ, RT, SEMAPHORE, SPIN, WRITE};

/// The flags of `lock:contention_begin` (`include/trace/events/lock.h`, 5.19), which name the kinds of kernel locks.
pub mod lcb {
    /// The waiter spins.
    pub const SPIN: u8 = 1;
    /// It wants to read.
    pub const READ: u8 = 2;
    /// It wants to write.
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

/// Which kind of lock the flags mean, as one bit. A reader-writer lock of a PREEMPT_RT kernel says RT as well; what says
/// RT without readers and writers is the rtmutex.
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

/// The kinds of kernel locks, a bit each.
pub mod kinds {
    /// `struct mutex`, and the ww_mutex around it
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
    /// Those that spin.
    pub const SPINNING: u32 = SPINLOCK | RWLOCK;
    /// Every kind.
    pub const ALL: u32 = 127;
}

/// What a function does to a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Takes it, whatever it takes.
    Take,
    /// Takes it and answers 0, or gives up and answers a negative errno.
    TakeOrFail,
    /// Takes it and answers other than 0, or answers 0 at once.
    Try,
    /// Takes it and answers 0, or answers other than 0 at once.
    TryZero,
    /// Takes it and answers other than 0; or answers 0, having left it alone or given it back.
    TakeUnless,
    /// Gives it back.
    Release,
    /// Turns writing into reading.
    Downgrade,
    /// Is entered after the first attempt failed, by a function that takes it. A wait begins here where there are no
    /// contention tracepoints, and of rwsems everywhere: their tracepoints come after the spinning.
    Slow,
}

/// A function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelFunction {
    /// Its symbol.
    pub name: &'static str,
    /// What it does.
    pub act: Act,
    /// Any of [`lcb`]: which kind of lock, and how it is taken.
    pub flags: u8,
    /// How many arguments it has.
    pub arguments: usize,
    /// Which of them is the lock.
    pub lock: usize,
    /// It may do its work by calling another function of the table, which tells it already.
    pub wraps: bool,
}

const fn function(name: &'static str, act: Act, flags: u8, arguments: usize) -> KernelFunction {
    KernelFunction { name, act, flags, arguments, lock: 0, wraps: false }
}

const fn wrapper(name: &'static str, act: Act, flags: u8, arguments: usize) -> KernelFunction {
    KernelFunction { lock: 0, wraps: true, ..function(name, act, flags, arguments) }
}

const fn slow(name: &'static str, flags: u8) -> KernelFunction {
    function(name, Act::Slow, flags, 1)
}

macro_rules! functions {
    ($($id:ident = $function:expr,)+) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms, reason = "only its numbers are used")]
        #[allow(dead_code, reason = "as above")]
        enum Place { $($id,)+ }

        /// Places in [`FUNCTIONS`].
        pub mod id {
            use super::Place;
            $(
                #[doc = concat!("See [`FUNCTIONS`](super::FUNCTIONS): `", stringify!($id), "`.")]
                pub const $id: usize = Place::$id as usize;
            )+
        }

        /// Every function.
        pub const FUNCTIONS: &[KernelFunction] = &[$($function,)+];
    };
}

// The order is that of attaching: who gives back first, so that no hold is seen to begin whose end is not; the slow
// ways before the functions that end them. Variants with a nesting level exist with CONFIG_DEBUG_LOCK_ALLOC only,
// and there they stand in for the plain ones.
functions! {
    MUTEX_UNLOCK = function("mutex_unlock", Act::Release, MUTEX, 1),
    WW_MUTEX_UNLOCK = wrapper("ww_mutex_unlock", Act::Release, MUTEX, 1),
    UP_READ = function("up_read", Act::Release, READ, 1),
    UP_READ_NON_OWNER = function("up_read_non_owner", Act::Release, READ, 1),
    UP_WRITE = function("up_write", Act::Release, WRITE, 1),
    DOWNGRADE_WRITE = function("downgrade_write", Act::Downgrade, WRITE, 1),
    UP = function("up", Act::Release, SEMAPHORE, 1),
    RT_MUTEX_UNLOCK = function("rt_mutex_unlock", Act::Release, RT, 1),
    PERCPU_UP_WRITE = function("percpu_up_write", Act::Release, PERCPU | WRITE, 1),
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
    MUTEX_LOCK = function("mutex_lock", Act::Take, MUTEX, 1),
    MUTEX_LOCK_NESTED = function("mutex_lock_nested", Act::Take, MUTEX, 2),
    MUTEX_LOCK_NEST_LOCK = function("_mutex_lock_nest_lock", Act::Take, MUTEX, 2),
    MUTEX_LOCK_IO = wrapper("mutex_lock_io", Act::Take, MUTEX, 1),
    MUTEX_LOCK_IO_NESTED = wrapper("mutex_lock_io_nested", Act::Take, MUTEX, 2),
    MUTEX_LOCK_INTERRUPTIBLE = function("mutex_lock_interruptible", Act::TakeOrFail, MUTEX, 1),
    MUTEX_LOCK_INTERRUPTIBLE_NESTED = function("mutex_lock_interruptible_nested", Act::TakeOrFail, MUTEX, 2),
    MUTEX_LOCK_KILLABLE = function("mutex_lock_killable", Act::TakeOrFail, MUTEX, 1),
    MUTEX_LOCK_KILLABLE_NESTED = function("mutex_lock_killable_nested", Act::TakeOrFail, MUTEX, 2),
    MUTEX_LOCK_KILLABLE_NEST = function("_mutex_lock_killable", Act::TakeOrFail, MUTEX, 3),
    MUTEX_TRYLOCK = function("mutex_trylock", Act::Try, MUTEX, 1),
    MUTEX_TRYLOCK_NEST_LOCK = function("_mutex_trylock_nest_lock", Act::Try, MUTEX, 2),
    ATOMIC_DEC_AND_MUTEX_LOCK =
        KernelFunction { lock: 1, ..wrapper("atomic_dec_and_mutex_lock", Act::TakeUnless, MUTEX, 2) },
    WW_MUTEX_LOCK = function("ww_mutex_lock", Act::TakeOrFail, MUTEX, 2),
    WW_MUTEX_LOCK_INTERRUPTIBLE = function("ww_mutex_lock_interruptible", Act::TakeOrFail, MUTEX, 2),
    WW_MUTEX_TRYLOCK = wrapper("ww_mutex_trylock", Act::Try, MUTEX, 2),
    DOWN_READ = function("down_read", Act::Take, READ, 1),
    DOWN_READ_NESTED = function("down_read_nested", Act::Take, READ, 2),
    DOWN_READ_NON_OWNER = function("down_read_non_owner", Act::Take, READ, 1),
    DOWN_READ_INTERRUPTIBLE = function("down_read_interruptible", Act::TakeOrFail, READ, 1),
    DOWN_READ_KILLABLE = function("down_read_killable", Act::TakeOrFail, READ, 1),
    DOWN_READ_KILLABLE_NESTED = function("down_read_killable_nested", Act::TakeOrFail, READ, 2),
    DOWN_READ_TRYLOCK = function("down_read_trylock", Act::Try, READ, 1),
    DOWN_WRITE = function("down_write", Act::Take, WRITE, 1),
    DOWN_WRITE_NESTED = function("down_write_nested", Act::Take, WRITE, 2),
    DOWN_WRITE_NEST_LOCK = function("_down_write_nest_lock", Act::Take, WRITE, 2),
    DOWN_WRITE_KILLABLE = function("down_write_killable", Act::TakeOrFail, WRITE, 1),
    DOWN_WRITE_KILLABLE_NESTED = function("down_write_killable_nested", Act::TakeOrFail, WRITE, 2),
    DOWN_WRITE_TRYLOCK = function("down_write_trylock", Act::Try, WRITE, 1),
    DOWN = function("down", Act::Take, SEMAPHORE, 1),
    DOWN_INTERRUPTIBLE = function("down_interruptible", Act::TakeOrFail, SEMAPHORE, 1),
    DOWN_KILLABLE = function("down_killable", Act::TakeOrFail, SEMAPHORE, 1),
    DOWN_TIMEOUT = function("down_timeout", Act::TakeOrFail, SEMAPHORE, 2),
    DOWN_TRYLOCK = function("down_trylock", Act::TryZero, SEMAPHORE, 1),
    RT_MUTEX_LOCK = function("rt_mutex_lock", Act::Take, RT, 1),
    RT_MUTEX_LOCK_NESTED = function("rt_mutex_lock_nested", Act::Take, RT, 2),
    RT_MUTEX_LOCK_NEST_LOCK = function("_rt_mutex_lock_nest_lock", Act::Take, RT, 2),
    RT_MUTEX_LOCK_INTERRUPTIBLE = function("rt_mutex_lock_interruptible", Act::TakeOrFail, RT, 1),
    RT_MUTEX_LOCK_KILLABLE = function("rt_mutex_lock_killable", Act::TakeOrFail, RT, 1),
    RT_MUTEX_TIMED_LOCK = function("rt_mutex_timed_lock", Act::TakeOrFail, RT, 2),
    RT_MUTEX_TRYLOCK = function("rt_mutex_trylock", Act::Try, RT, 1),
    PERCPU_DOWN_WRITE = function("percpu_down_write", Act::Take, PERCPU | WRITE, 1),
}
