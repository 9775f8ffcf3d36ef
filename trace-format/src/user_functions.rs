//! The lock functions of the C library, and the slow paths of Rust's and Go's locks, in one table each for
//! the recorder and the BPF programs.
//!
//! Where attachments can carry a cookie ([`UserFunction::cookie`]), two BPF programs serve all functions;
//! otherwise each function has its own programs. The recorder attaches them by this table. C11 functions call
//! the functions listed here.

use crate::wire::{api, code};

/// A function that is probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserFunction {
    /// Symbol of the function, or a description of the code location if there is no symbol.
    pub symbol: &'static str,
    /// Name of the program at its entry.
    pub entry: &'static str,
    /// Name of the program at its return.
    pub exit: Option<&'static str>,
    /// The [`code`] of the record at its entry, or [`ATTEMPT`].
    pub code: u8,
    /// The [`api`] of its records.
    pub api: u8,
    /// The content of the record's `extra` field, one of [`extra`].
    pub extra: u8,
}

/// In place of a [`code`]: the probe follows an attempt to acquire. The processor flags tell whether it
/// succeeded ([`TAKEN`](code::TAKEN)) or not ([`CALL`](code::CALL)).
pub const ATTEMPT: u8 = 0;

/// Content of [`WireEvent::extra`](crate::wire::WireEvent::extra).
pub mod extra {
    /// Nothing.
    pub const NONE: u8 = 0;
    /// Argument 0, a condition variable. The lock is argument 1.
    pub const CONDITION: u8 = 1;
    /// Argument 2, a count.
    pub const COUNT: u8 = 2;
    /// The mutex's kind and number of users.
    pub const KIND: u8 = 3;
    /// Whether the time in argument 1 is invalid.
    pub const TIMEOUT: u8 = 4;
    /// Whether the clock in argument 1 or the time in argument 2 is invalid.
    pub const CLOCK_TIMEOUT: u8 = 5;
    /// The goroutine. Go passes arguments in registers of its own.
    pub const GOROUTINE: u8 = 6;
}

impl UserFunction {
    /// Packs the code, api and extra into the cookie of an attachment.
    pub const fn cookie(&self) -> u64 {
        self.code as u64 | (self.api as u64) << 8 | (self.extra as u64) << 16
    }
}

/// Returns the [`UserFunction::code`], `api` and `extra` of a cookie.
pub const fn decode_cookie(cookie: u64) -> (u8, u8, u8) {
    (cookie as u8, (cookie >> 8) as u8, (cookie >> 16) as u8)
}

/// Returns the cookie of the function with this entry program. Fails to compile in a constant if there is
/// none.
pub const fn cookie_for_entry(entry: &str) -> u64 {
    let mut index = 0;
    while index < FUNCTIONS.len() {
        if is_same(FUNCTIONS[index].entry, entry) {
            return FUNCTIONS[index].cookie();
        }
        index += 1;
    }
    index = 0;
    while !is_same(SLOW_PATHS[index].entry, entry) {
        index += 1;
    }
    SLOW_PATHS[index].cookie()
}

/// Compares strings in constants.
const fn is_same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut index = 0;
    while index < a.len() && index < b.len() && a[index] == b[index] {
        index += 1;
    }
    index == a.len() && index == b.len()
}

macro_rules! functions {
    ($(#[$meta:meta])* $name:ident: $($symbol:expr, $entry:literal $(, $exit:literal)?: $code:ident $object:ident $variant:ident, $extra:ident;)+) => {
        $(#[$meta])*
        pub const $name: &[UserFunction] = &[$(UserFunction {
            symbol: $symbol,
            entry: $entry,
            exit: functions!(@exit $($exit)?),
            code: functions!(@code $code),
            api: api::pack(api::$object, api::$variant),
            extra: extra::$extra,
        },)+];
    };
    (@exit) => { None };
    (@exit $exit:literal) => { Some($exit) };
    (@code ATTEMPT) => { ATTEMPT };
    (@code $code:ident) => { code::$code };
}

/// `pthread_spin_lock` after an attempt. Probed instead of the entry where the entry cannot be probed (x86).
pub const SPIN_TRIED: &str = "pthread_spin_lock after an attempt";
/// Two functions with the same code (x86).
pub const SPIN_UNLOCK_OR_INIT: &str = "pthread_spin_unlock and pthread_spin_init";

functions! {
    /// The functions of the C library, in attach order. Unlock functions come last, so that no release is
    /// seen without its acquisition.
    FUNCTIONS:
    "pthread_mutex_init", "mutex_init": INIT MUTEX NONE, NONE;
    "pthread_mutex_destroy", "mutex_destroy": DESTROY MUTEX NONE, KIND;
    "pthread_rwlock_init", "rwlock_init": INIT RWLOCK NONE, NONE;
    "pthread_rwlock_destroy", "rwlock_destroy": DESTROY RWLOCK NONE, NONE;
    "pthread_spin_init", "spin_init": INIT SPIN NONE, NONE;
    "pthread_spin_destroy", "spin_destroy": DESTROY SPIN NONE, NONE;
    "pthread_cond_init", "cond_init": INIT CONDITION NONE, NONE;
    "pthread_cond_destroy", "cond_destroy": DESTROY CONDITION NONE, NONE;
    "pthread_barrier_init", "barrier_init": INIT BARRIER NONE, COUNT;
    "pthread_barrier_destroy", "barrier_destroy": DESTROY BARRIER NONE, NONE;
    "sem_init", "sem_init": INIT SEMAPHORE NONE, COUNT;
    "sem_destroy", "sem_destroy": DESTROY SEMAPHORE NONE, NONE;
    "pthread_mutex_lock", "mutex_lock", "mutex_lock_ret": CALL MUTEX BLOCKING, NONE;
    "pthread_mutex_trylock", "mutex_trylock", "mutex_trylock_ret": CALL MUTEX TRY, NONE;
    "pthread_mutex_timedlock", "mutex_timedlock", "mutex_timedlock_ret": CALL MUTEX TIMED, TIMEOUT;
    "pthread_mutex_clocklock", "mutex_clocklock", "mutex_clocklock_ret": CALL MUTEX CLOCK, CLOCK_TIMEOUT;
    "pthread_cond_wait", "cond_wait", "cond_wait_ret": CALL CONDITION BLOCKING, CONDITION;
    "pthread_cond_timedwait", "cond_timedwait", "cond_timedwait_ret": CALL CONDITION TIMED, CONDITION;
    "pthread_cond_clockwait", "cond_clockwait", "cond_clockwait_ret": CALL CONDITION CLOCK, CONDITION;
    "pthread_rwlock_rdlock", "rwlock_rdlock", "rwlock_rdlock_ret": CALL RWLOCK_READ BLOCKING, NONE;
    "pthread_rwlock_tryrdlock", "rwlock_tryrdlock", "rwlock_tryrdlock_ret": CALL RWLOCK_READ TRY, NONE;
    "pthread_rwlock_timedrdlock", "rwlock_timedrdlock", "rwlock_timedrdlock_ret": CALL RWLOCK_READ TIMED, TIMEOUT;
    "pthread_rwlock_clockrdlock", "rwlock_clockrdlock", "rwlock_clockrdlock_ret": CALL RWLOCK_READ CLOCK, CLOCK_TIMEOUT;
    "pthread_rwlock_wrlock", "rwlock_wrlock", "rwlock_wrlock_ret": CALL RWLOCK_WRITE BLOCKING, NONE;
    "pthread_rwlock_trywrlock", "rwlock_trywrlock", "rwlock_trywrlock_ret": CALL RWLOCK_WRITE TRY, NONE;
    "pthread_rwlock_timedwrlock", "rwlock_timedwrlock", "rwlock_timedwrlock_ret": CALL RWLOCK_WRITE TIMED, TIMEOUT;
    "pthread_rwlock_clockwrlock", "rwlock_clockwrlock", "rwlock_clockwrlock_ret": CALL RWLOCK_WRITE CLOCK, CLOCK_TIMEOUT;
    "pthread_spin_lock", "spin_lock", "spin_lock_ret": CALL SPIN BLOCKING, NONE;
    "pthread_spin_trylock", "spin_trylock", "spin_trylock_ret": CALL SPIN TRY, NONE;
    "pthread_barrier_wait", "barrier_wait", "barrier_wait_ret": CALL BARRIER BLOCKING, NONE;
    "sem_wait", "sem_wait", "sem_wait_ret": CALL SEMAPHORE BLOCKING, NONE;
    "sem_trywait", "sem_trywait", "sem_trywait_ret": CALL SEMAPHORE TRY, NONE;
    "sem_timedwait", "sem_timedwait", "sem_timedwait_ret": CALL SEMAPHORE TIMED, TIMEOUT;
    "sem_clockwait", "sem_clockwait", "sem_clockwait_ret": CALL SEMAPHORE CLOCK, CLOCK_TIMEOUT;
    "pthread_spin_lock after an attempt", "spin_lock_tried": ATTEMPT SPIN RETRY, NONE;
    "sem_post", "sem_post": POST SEMAPHORE NONE, NONE;
    "pthread_cond_signal", "cond_signal": POST CONDITION NONE, NONE;
    "pthread_cond_broadcast", "cond_broadcast": POST CONDITION NONE, NONE;
    "pthread_spin_unlock and pthread_spin_init", "spin_unlock_or_init": UNLOCK SPIN_UNLOCK_OR_INIT NONE, NONE;
    "pthread_spin_unlock", "spin_unlock": UNLOCK SPIN NONE, NONE;
    "pthread_rwlock_unlock", "rwlock_unlock": UNLOCK RWLOCK NONE, NONE;
    "pthread_mutex_unlock", "mutex_unlock": UNLOCK MUTEX NONE, KIND;
}

/// `lock_contended` of a mutex of Rust.
pub const RUST_MUTEX: &str = "lock_contended";
/// `read_contended` of a reader-writer lock of Rust.
pub const RUST_READ: &str = "read_contended";
/// `write_contended` of a reader-writer lock of Rust.
pub const RUST_WRITE: &str = "write_contended";
/// The entry of `lockSlow` of a mutex of Go.
pub const GO_LOCK: &str = "lockSlow";
/// The return instructions of `lockSlow`. A uretprobe would change return addresses, and Go copies its
/// stacks.
pub const GO_LOCK_RETURNS: &str = "the returns of lockSlow";
/// `unlockSlow` of a mutex of Go, which wakes a goroutine.
pub const GO_UNLOCK: &str = "unlockSlow";

functions! {
    /// The functions in which locks of other libraries wait, in attach order.
    SLOW_PATHS:
    RUST_MUTEX, "rust_mutex", "rust_mutex_ret": CALL RUST_MUTEX BLOCKING, NONE;
    RUST_READ, "rust_read", "rust_read_ret": CALL RUST_RWLOCK_READ BLOCKING, NONE;
    RUST_WRITE, "rust_write", "rust_write_ret": CALL RUST_RWLOCK_WRITE BLOCKING, NONE;
    GO_LOCK_RETURNS, "go_lock_returned": RETURN GO_MUTEX BLOCKING, GOROUTINE;
    GO_UNLOCK, "go_unlock": POST GO_MUTEX NONE, GOROUTINE;
    GO_LOCK, "go_lock": CALL GO_MUTEX BLOCKING, GOROUTINE;
}

/// Whether waits in these functions are all that is recorded of a lock.
pub const fn is_slow_path(api: u8) -> bool {
    api::object(api) >= api::RUST_MUTEX
}

const _: () = {
    // Both names are in the table.
    let (mut index, mut found) = (0, 0);
    while index < FUNCTIONS.len() {
        let symbol = FUNCTIONS[index].symbol;
        found += (is_same(symbol, SPIN_TRIED) || is_same(symbol, SPIN_UNLOCK_OR_INIT)) as usize;
        index += 1;
    }
    assert!(found == 2);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_decodes_to_the_functions_fields() {
        for function in FUNCTIONS.iter().chain(SLOW_PATHS) {
            assert_eq!(
                decode_cookie(cookie_for_entry(function.entry)),
                (function.code, function.api, function.extra)
            );
            assert!(api::is_known(function.api), "{}", function.symbol);
            assert_eq!(is_slow_path(function.api), SLOW_PATHS.contains(function), "{}", function.symbol);
        }
    }

    #[test]
    fn no_two_functions_share_a_program() {
        let all = FUNCTIONS.iter().chain(SLOW_PATHS);
        let programs = all.flat_map(|function| [Some(function.entry), function.exit]).flatten();
        let mut programs: Vec<&str> = programs.collect();
        programs.sort_unstable();
        assert!(programs.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
