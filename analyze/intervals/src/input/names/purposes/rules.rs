//! The rules of purposes: the [`Purpose`] of a wait and its weight by the function in which the task waits. A
//! new library is one more row.

use trace_format::LockKind;

use crate::input::names::lock_functions::bare;
use output::choices;

choices! {
    /// The purpose of a wait.
    Purpose, "purpose" {
        /// A lock, or anything that is not known to be idle.
        #[default]
        Lock = "lock",
        /// A condition variable.
        CondVar = "condvar",
        /// The end of a thread.
        Exit = "exit",
        /// A thread that parked itself until another one unparks it.
        Park = "park",
        /// A thread of a runtime's scheduler that has no work: its tasks may wait for locks that are no waits
        /// of threads.
        Scheduler = "scheduler",
        /// A semaphore that counts or signals.
        Semaphore = "semaphore",
        /// A barrier.
        Barrier = "barrier",
        /// A condition variable or semaphore whose tasks may exclude each other, or be idle.
        Undecided = "undecided",
    }
}

impl Purpose {
    /// Whether the wait is idling rather than contention. Tables leave such waits out by default.
    pub const fn is_idle(self) -> bool {
        !matches!(self, Self::Lock)
    }

    /// Returns the words for several objects of waits with this purpose, and for one.
    pub const fn objects(self) -> (&'static str, &'static str) {
        match self {
            Self::Lock => ("locks", "lock"),
            Self::CondVar => ("condition variables", "condition variable"),
            Self::Exit => ("thread exits", "thread exit"),
            Self::Park => ("parked threads", "parked thread"),
            Self::Scheduler => ("idle scheduler threads", "idle scheduler thread"),
            Self::Semaphore => ("semaphores", "semaphore"),
            Self::Barrier => ("barriers", "barrier"),
            Self::Undecided => ("objects that may be locks", "object that may be a lock"),
        }
    }

    /// Returns the purpose of waits for locks of this kind whose stacks have no function with a purpose.
    pub(super) const fn of_kind(kind: LockKind) -> Self {
        match kind {
            LockKind::CondVar => Self::CondVar,
            LockKind::UserSemaphore => Self::Semaphore,
            LockKind::Barrier => Self::Barrier,
            LockKind::Thread => Self::Exit,
            _ => Self::Lock,
        }
    }
}

/// The weight of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weight {
    /// The function has one purpose: the innermost such function decides.
    Decides,
    /// The function serves others: it counts only if no caller decides. Of several that call each other, the
    /// outermost counts.
    Serves,
}

/// Functions in which tasks wait, without leading underscores as [`bare`] returns them, and the purpose. A
/// `*` stands for any ending.
const RULES: &[(&str, Purpose, Weight)] = {
    use Purpose::{Barrier, CondVar, Exit, Lock, Park, Scheduler, Semaphore, Undecided};
    use Weight::{Decides, Serves};
    &[
        // glibc and musl
        ("pthread_join*", Exit, Decides),
        ("pthread_tryjoin*", Exit, Decides),
        ("pthread_timedjoin*", Exit, Decides),
        ("pthread_clockjoin*", Exit, Decides),
        ("pthread_mutex_*", Lock, Decides),
        ("pthread_rwlock_*", Lock, Decides),
        ("pthread_once*", Lock, Decides),
        ("lll_lock_wait*", Lock, Decides),
        ("pthread_cond_*", CondVar, Serves),
        ("cnd_*", CondVar, Serves),
        ("pthread_barrier_wait*", Barrier, Decides),
        ("sem_wait*", Semaphore, Serves),
        ("sem_timedwait*", Semaphore, Serves),
        ("sem_clockwait*", Semaphore, Serves),
        ("new_sem_*", Semaphore, Serves),
        // libgomp
        ("GOMP_critical*", Lock, Decides),
        ("omp_set_lock*", Lock, Decides),
        ("GOMP_barrier*", Barrier, Decides),
        ("GOMP_parallel*", Barrier, Serves),
        // The C++ library
        ("std::condition_variable*", CondVar, Serves),
        ("std::_V2::condition_variable*", CondVar, Serves),
        ("std::thread::join", Exit, Decides),
        ("cxa_guard_acquire", Lock, Decides),
        ("std::__detail::__platform_wait*", Semaphore, Serves),
        ("std::__atomic_futex_unsigned_base::*", Semaphore, Serves),
        // Rust. Runtimes build on condition variables and parking.
        ("std::sys::sync::mutex::*", Lock, Decides),
        ("std::sys::sync::rwlock::*", Lock, Decides),
        ("std::sys::sync::once::*", Lock, Decides),
        ("std::sys::sync::condvar::*", CondVar, Serves),
        ("std::sync::condvar::*", CondVar, Serves),
        ("std::sync::poison::condvar::*", CondVar, Serves),
        ("std::sys::sync::thread_parking::*", Park, Serves),
        ("std::thread::park*", Park, Serves),
        ("std::thread::functions::park*", Park, Serves),
        ("std::thread::thread::Thread>::park*", Park, Serves),
        ("std::thread::Join*", Exit, Decides),
        ("std::thread::scoped::scope", Exit, Serves),
        ("parking_lot::raw_mutex::*", Lock, Decides),
        ("parking_lot::raw_rwlock::*", Lock, Decides),
        ("parking_lot::condvar::*", CondVar, Serves),
        ("rayon_core::sleep::*", Park, Decides),
        ("tokio::runtime::*::park*", Scheduler, Decides),
        // Go: notes are how threads of the scheduler sleep; goroutines that wait for sync.Mutex are parked
        // and in no futex.
        ("runtime.lock2", Lock, Decides),
        ("runtime.notesleep", Scheduler, Decides),
        ("runtime.notetsleep*", Scheduler, Decides),
        ("runtime.mPark", Scheduler, Decides),
        ("runtime.stopm", Scheduler, Decides),
        ("runtime.findRunnable", Scheduler, Decides),
        // HotSpot
        ("Parker::park*", Park, Serves),
        ("Unsafe_Park", Park, Serves),
        ("ObjectMonitor::enter*", Lock, Decides),
        ("ObjectMonitor::EnterI", Lock, Decides),
        ("ObjectMonitor::wait*", CondVar, Decides),
        ("JavaThread::sleep*", Park, Decides),
        // Erlang
        ("ethr_event_*", Scheduler, Decides),
        // CPython: its locks are semaphores, also as signals, and a condition variable guards the
        // interpreter.
        ("PyThread_acquire_lock*", Lock, Serves),
        ("PyMutex_Lock*", Lock, Decides),
        ("take_gil", Lock, Decides),
        // Ruby: its threads sleep in one function for a Mutex, a Queue or another thread. Debian's has no
        // frame pointers for the callers.
        ("rb_mutex_lock*", Lock, Decides),
        ("rb_native_cond_wait", Undecided, Serves),
        // PostgreSQL
        ("LWLockAcquire*", Lock, Decides),
        // libuv
        ("uv_cond_*", CondVar, Serves),
        ("uv_sem_wait", Semaphore, Serves),
        ("uv_barrier_wait", Barrier, Decides),
    ]
};

/// Returns the rule for a function.
pub(super) fn rule(symbol: &str) -> Option<(Purpose, Weight)> {
    let name = bare(symbol);
    let matches = |pattern: &str| match pattern.strip_suffix('*') {
        // One more star stands for any modules in between.
        Some(begin) => match begin.split_once('*') {
            Some((begin, part)) => name.strip_prefix(begin).is_some_and(|rest| rest.contains(part)),
            None => name.starts_with(begin),
        },
        None => name == pattern,
    };
    RULES.iter().find(|(pattern, ..)| matches(pattern)).map(|(_, purpose, weight)| (*purpose, *weight))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_rule_is_hidden_by_an_earlier_one() {
        for (at, (pattern, ..)) in RULES.iter().enumerate() {
            let name = pattern.trim_end_matches('*').replace('*', "x");
            let first = RULES.iter().position(|(other, ..)| rule_matches(other, &name));
            assert_eq!(first, Some(at), "{pattern}");
        }
    }

    fn rule_matches(pattern: &str, name: &str) -> bool {
        match pattern.strip_suffix('*') {
            Some(begin) => name.starts_with(begin.split_once('*').map_or(begin, |(begin, _)| begin)),
            None => name == pattern,
        }
    }
}
