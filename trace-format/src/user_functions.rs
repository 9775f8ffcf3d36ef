//! The C library's functions that take, await and give back users' locks: one table for both sides of the kernel.
//!
//! The kernel side has a program for each function, or two for them all where an attachment can bring a number along
//! ([`UserFunction::cookie`]); the host asks the table what to attach where. C11's functions call these.

use crate::wire::{api, code};

/// A function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserFunction {
    /// Its symbol, or what stands in the place of symbols.
    pub symbol: &'static str,
    /// The program at its entry.
    pub entry: &'static str,
    /// The program at its return.
    pub exit: Option<&'static str>,
    /// What its entry means: one of [`code`]; [`ATTEMPT`] is two of them.
    pub code: u8,
    /// Which function it is: one of [`api`].
    pub api: u8,
    /// What else its record tells: one of [`extra`].
    pub extra: u8,
}

/// In place of a [`code`]: an attempt has just been made, and the processor tells how it went.
/// [`TAKEN`](code::TAKEN) if well, otherwise [`CALL`](code::CALL).
pub const ATTEMPT: u8 = 0;

/// What [`WireEvent::extra`](crate::wire::WireEvent::extra) holds.
pub mod extra {
    /// Nothing.
    pub const NONE: u8 = 0;
    /// Argument 0, a condition variable. The lock is argument 1.
    pub const CONDITION: u8 = 1;
    /// Argument 2, a count.
    pub const COUNT: u8 = 2;
    /// The mutex's kind and users.
    pub const KIND: u8 = 3;
    /// Whether the time in argument 1 is none.
    pub const UNTIL: u8 = 4;
    /// Whether the clock in argument 1 or the time in argument 2 is none.
    pub const CLOCK_UNTIL: u8 = 5;
}

impl UserFunction {
    /// All that its programs need to know of it, in one number.
    pub const fn cookie(&self) -> u64 {
        self.code as u64 | (self.api as u64) << 8 | (self.extra as u64) << 16
    }
}

/// [`UserFunction::code`], `api` and `extra` of a cookie.
pub const fn of_cookie(cookie: u64) -> (u8, u8, u8) {
    (cookie as u8, (cookie >> 8) as u8, (cookie >> 16) as u8)
}

/// The cookie of the function with this program at its entry. For constants: it does not compile for a program that no
/// function has.
pub const fn cookie_of(entry: &str) -> u64 {
    let mut at = 0;
    while !is_same(FUNCTIONS[at].entry, entry) {
        at += 1;
    }
    FUNCTIONS[at].cookie()
}

const fn is_same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

macro_rules! functions {
    ($($symbol:literal, $entry:literal $(, $exit:literal)?: $code:ident $object:ident $way:ident, $extra:ident;)+) => {
        /// All of them. The ends of holds come last, so that none is seen without its begin.
        pub const FUNCTIONS: &[UserFunction] = &[$(UserFunction {
            symbol: $symbol,
            entry: $entry,
            exit: functions!(@exit $($exit)?),
            code: functions!(@code $code),
            api: api::of(api::$object, api::$way),
            extra: extra::$extra,
        },)+];
    };
    (@exit) => { None };
    (@exit $exit:literal) => { Some($exit) };
    (@code ATTEMPT) => { ATTEMPT };
    (@code $code:ident) => { code::$code };
}

/// `pthread_spin_lock` after an attempt: takes the place of its entry where no probe can be (x86).
pub const SPIN_TRIED: &str = "pthread_spin_lock after an attempt";
/// Takes the place of two functions where they are one (x86).
pub const SPIN_UNLOCK_OR_INIT: &str = "pthread_spin_unlock and pthread_spin_init";

functions! {
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
    "pthread_mutex_lock", "mutex_lock", "mutex_lock_ret": CALL MUTEX WAITS, NONE;
    "pthread_mutex_trylock", "mutex_trylock", "mutex_trylock_ret": CALL MUTEX TRIES, NONE;
    "pthread_mutex_timedlock", "mutex_timedlock", "mutex_timedlock_ret": CALL MUTEX TIMED, UNTIL;
    "pthread_mutex_clocklock", "mutex_clocklock", "mutex_clocklock_ret": CALL MUTEX CLOCKED, CLOCK_UNTIL;
    "pthread_cond_wait", "cond_wait", "cond_wait_ret": CALL CONDITION WAITS, CONDITION;
    "pthread_cond_timedwait", "cond_timedwait", "cond_timedwait_ret": CALL CONDITION TIMED, CONDITION;
    "pthread_cond_clockwait", "cond_clockwait", "cond_clockwait_ret": CALL CONDITION CLOCKED, CONDITION;
    "pthread_rwlock_rdlock", "rwlock_rdlock", "rwlock_rdlock_ret": CALL RWLOCK_READ WAITS, NONE;
    "pthread_rwlock_tryrdlock", "rwlock_tryrdlock", "rwlock_tryrdlock_ret": CALL RWLOCK_READ TRIES, NONE;
    "pthread_rwlock_timedrdlock", "rwlock_timedrdlock", "rwlock_timedrdlock_ret": CALL RWLOCK_READ TIMED, UNTIL;
    "pthread_rwlock_clockrdlock", "rwlock_clockrdlock", "rwlock_clockrdlock_ret": CALL RWLOCK_READ CLOCKED, CLOCK_UNTIL;
    "pthread_rwlock_wrlock", "rwlock_wrlock", "rwlock_wrlock_ret": CALL RWLOCK_WRITE WAITS, NONE;
    "pthread_rwlock_trywrlock", "rwlock_trywrlock", "rwlock_trywrlock_ret": CALL RWLOCK_WRITE TRIES, NONE;
    "pthread_rwlock_timedwrlock", "rwlock_timedwrlock", "rwlock_timedwrlock_ret": CALL RWLOCK_WRITE TIMED, UNTIL;
    "pthread_rwlock_clockwrlock", "rwlock_clockwrlock", "rwlock_clockwrlock_ret": CALL RWLOCK_WRITE CLOCKED, CLOCK_UNTIL;
    "pthread_spin_lock", "spin_lock", "spin_lock_ret": CALL SPIN WAITS, NONE;
    "pthread_spin_trylock", "spin_trylock", "spin_trylock_ret": CALL SPIN TRIES, NONE;
    "pthread_barrier_wait", "barrier_wait", "barrier_wait_ret": CALL BARRIER WAITS, NONE;
    "sem_wait", "sem_wait", "sem_wait_ret": CALL SEMAPHORE WAITS, NONE;
    "sem_trywait", "sem_trywait", "sem_trywait_ret": CALL SEMAPHORE TRIES, NONE;
    "sem_timedwait", "sem_timedwait", "sem_timedwait_ret": CALL SEMAPHORE TIMED, UNTIL;
    "sem_clockwait", "sem_clockwait", "sem_clockwait_ret": CALL SEMAPHORE CLOCKED, CLOCK_UNTIL;
    "pthread_spin_lock after an attempt", "spin_lock_tried": ATTEMPT SPIN RETRIES, NONE;
    "sem_post", "sem_post": POST SEMAPHORE NONE, NONE;
    "pthread_spin_unlock and pthread_spin_init", "spin_unlock_or_init": UNLOCK SPIN_UNLOCK_OR_INIT NONE, NONE;
    "pthread_spin_unlock", "spin_unlock": UNLOCK SPIN NONE, NONE;
    "pthread_rwlock_unlock", "rwlock_unlock": UNLOCK RWLOCK NONE, NONE;
    "pthread_mutex_unlock", "mutex_unlock": UNLOCK MUTEX NONE, KIND;
}

const _: () = {
    // The two names stand in the table.
    let (mut at, mut found) = (0, 0);
    while at < FUNCTIONS.len() {
        let symbol = FUNCTIONS[at].symbol;
        found += (is_same(symbol, SPIN_TRIED) || is_same(symbol, SPIN_UNLOCK_OR_INIT)) as usize;
        at += 1;
    }
    assert!(found == 2);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_says_all_that_a_program_needs() {
        for function in FUNCTIONS {
            assert_eq!(of_cookie(cookie_of(function.entry)), (function.code, function.api, function.extra));
            assert!(api::is_known(function.api), "{}", function.symbol);
        }
    }

    #[test]
    fn no_two_functions_share_a_program() {
        let programs = FUNCTIONS.iter().flat_map(|function| [Some(function.entry), function.exit]).flatten();
        let mut programs: Vec<&str> = programs.collect();
        programs.sort_unstable();
        assert!(programs.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
