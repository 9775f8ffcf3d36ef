//! Turns returns and entries of functions of kernel locks into rows of acquisitions and releases.
//!
//! An acquisition is reported once: by the end of its wait if it waited, otherwise by the function's return.
//! Some functions do their work by calling another one that is recorded as well, if the compiler did not
//! inline that call.

use rustc_hash::FxHashMap;
use trace_format::{
    CallKind, Event, EventKind, LockId, LockKind, Mode,
    kernel_functions::{self, Action, KernelFunction, kinds, lcb},
};

use crate::compose::{
    header::{Context, Header, OpenWait, TaskKey},
    locks::Space,
};

/// The last action of each task on each lock that it holds or failed to get.
#[derive(Debug, Default)]
pub(crate) struct Functions {
    last: FxHashMap<(TaskKey, u64), Last>,
}

/// A task's last action on a kernel lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    /// Its wait ended with the lock.
    TakenByWait,
    /// Its wait ended without the lock.
    FailedByWait,
    /// A function returned with the lock.
    Taken,
    /// A function returned without the lock.
    Failed,
    /// A function was entered that releases the lock by calling another one.
    ReleasedByWrapper,
}

impl Functions {
    /// Adds the end of a wait. For spinning locks, no function reports it again.
    pub(crate) fn wait_ended(&mut self, key: (TaskKey, u64), kind: Option<LockKind>, errno: Option<i32>) {
        if matches!(kind, Some(LockKind::SpinLock | LockKind::RwLock)) {
            return;
        }
        let last = if errno.is_some() { Last::FailedByWait } else { Last::TakenByWait };
        self.last.insert(key, last);
    }

    /// Adds the return of a function, with the lock or with `errno`. `wait` takes the open wait that the
    /// return ends.
    pub(crate) fn returned(
        &mut self,
        at: &Header,
        address: u64,
        function: &KernelFunction,
        errno: Option<i32>,
        wait: impl FnOnce() -> Option<OpenWait>,
        context: &mut Context<'_>,
    ) {
        let key = (at.key, address);
        if function.action == Action::AcquireConditionally && errno.is_some() {
            // The function did not need the lock. If it waited for it, it released it unseen.
            if matches!(self.last.remove(&key), Some(Last::TakenByWait | Last::Taken)) {
                release(at, address, function, context);
            }
            return;
        }
        let now = if errno.is_some() { Last::Failed } else { Last::Taken };
        let is_reported = match self.last.insert(key, now) {
            Some(Last::TakenByWait) => errno.is_none(),
            Some(Last::FailedByWait) => errno.is_some(),
            Some(last) => function.is_wrapper && last == now,
            None => false,
        };
        if is_reported {
            return;
        }
        let (lock, mode) = lock(at, address, function, context);
        let row = match wait() {
            Some(wait) => at.end_of(&wait, errno),
            None => {
                let kind = match (errno, function.action) {
                    (None, _) => EventKind::Acquire,
                    (Some(_), Action::Try | Action::TryInverted) => EventKind::TryFail,
                    (Some(_), _) => EventKind::Abandon,
                };
                let wait_ns = (kind != EventKind::TryFail).then_some(0);
                Event { errno, wait_ns, ..at.row(kind, lock) }
            }
        };
        let call = call_of(function).filter(|_| row.kind != EventKind::Abandon);
        context.out.push(Event { mode: Some(mode), call, ..row });
    }

    /// Adds the entry of a function that releases the lock, or its write mode.
    pub(crate) fn released(
        &mut self,
        at: &Header,
        address: u64,
        function: &KernelFunction,
        context: &mut Context<'_>,
    ) {
        let key = (at.key, address);
        let before = self.last.remove(&key);
        if function.is_wrapper {
            self.last.insert(key, Last::ReleasedByWrapper);
        } else if before == Some(Last::ReleasedByWrapper) {
            return;
        }
        let lock = release(at, address, function, context);
        if function.action == Action::Downgrade {
            let row = at.row(EventKind::Acquire, lock);
            context.out.push(Event { mode: Some(Mode::Shared), wait_ns: Some(0), ..row });
        }
    }
}

/// The kind of call of a function, if it does not wait without limit.
fn call_of(function: &KernelFunction) -> Option<CallKind> {
    match function.action {
        Action::Try | Action::TryInverted => Some(CallKind::Try),
        _ => matches!(function.name, "down_timeout" | "rt_mutex_timed_lock").then_some(CallKind::Timed),
    }
}

/// Adds the release of a lock by, or inside, this function.
fn release(at: &Header, address: u64, function: &KernelFunction, context: &mut Context<'_>) -> LockId {
    let (lock, mode) = lock(at, address, function, context);
    let row = at.row(EventKind::Release, lock);
    context.out.push(Event { mode: Some(mode), stack: None, ..row });
    lock
}

fn lock(at: &Header, address: u64, function: &KernelFunction, context: &mut Context<'_>) -> (LockId, Mode) {
    let (kind, mode) = kind_of(function.flags);
    (context.locks.id(Space::Kernel, address, kind, at.ts_ns), mode)
}

// The kind and the mode of a kernel lock, from the flags of `contention_begin`.

/// The kind of lock that the flags mean and the mode in which it is wanted, as `perf lock contention` reads
/// them.
pub(crate) fn kind_of(flags: u8) -> (LockKind, Mode) {
    let mode = if flags & lcb::READ != 0 { Mode::Shared } else { Mode::Exclusive };
    let kind = match kernel_functions::kind(flags) {
        kinds::MUTEX => LockKind::Mutex,
        kinds::RTMUTEX => LockKind::RtMutex,
        kinds::RWSEM => LockKind::RwSem,
        kinds::PERCPU_RWSEM => LockKind::PercpuRwSem,
        kinds::SPINLOCK => LockKind::SpinLock,
        kinds::RWLOCK => LockKind::RwLock,
        _ => LockKind::Semaphore,
    };
    (kind, mode)
}

#[cfg(test)]
mod tests {
    use trace_format::{
        EventKind::{Abandon, Acquire, Release, TryFail, Wait},
        LockKind, Mode,
        kernel_functions::index,
    };

    use crate::compose::script::{Script, row};

    #[test]
    fn an_uncontended_mutex_is_acquired_without_a_wait_and_released() {
        let mut s = Script::new();
        s.at(100).task(11).stack(7).taken(index::MUTEX_LOCK, 0xf0, 0);
        s.at(400).task(11).released(index::MUTEX_UNLOCK, 0xf0);
        s.expect([
            row(100, Acquire).task(11).lock(0xf0).exclusive().stack(7).wait(0),
            row(400, Release).task(11).lock(0xf0).exclusive(),
        ]);
        assert_eq!(s.kind(0xf0), [LockKind::Mutex]);
    }

    #[test]
    fn a_wait_ends_once_although_the_function_reports_it_again() {
        let mut s = Script::new();
        s.at(100).task(11).owned_by(12).contention_begin(0xf0, 32);
        s.at(300).task(11).contention_end(0xf0, 0);
        s.at(310).task(11).taken(index::MUTEX_LOCK, 0xf0, 0);
        s.at(320).task(11).taken(index::MUTEX_LOCK_IO, 0xf0, 0);
        s.at(400).task(11).released(index::MUTEX_UNLOCK, 0xf0);
        s.expect([
            row(100, Wait).task(11).lock(0xf0).exclusive().peer(12),
            row(300, Acquire).task(11).lock(0xf0).exclusive().waited(200, 0, 0),
            row(400, Release).task(11).lock(0xf0).exclusive(),
        ]);
    }

    #[test]
    fn a_wrapper_acquires_the_lock_once_and_releases_it_once() {
        let mut s = Script::new();
        s.at(100).task(11).taken(index::MUTEX_TRYLOCK, 0xf0, 0);
        s.at(101).task(11).taken(index::WW_MUTEX_TRYLOCK, 0xf0, 0);
        s.at(200).task(11).released(index::WW_MUTEX_UNLOCK, 0xf0);
        s.at(201).task(11).released(index::MUTEX_UNLOCK, 0xf0);
        assert_eq!(s.kinds_of_rows(0xf0), [Acquire, Release]);
    }

    #[test]
    fn a_wrapper_with_an_inlined_inner_call_reports_for_itself() {
        let mut s = Script::new();
        s.at(100).task(11).taken(index::MUTEX_LOCK_IO, 0xf0, 0);
        s.at(200).task(11).released(index::WW_MUTEX_UNLOCK, 0xf0);
        s.at(300).task(11).taken(index::MUTEX_LOCK_IO, 0xf0, 0);
        s.at(400).task(11).released(index::MUTEX_UNLOCK, 0xf0);
        assert_eq!(s.kinds_of_rows(0xf0), [Acquire, Release, Acquire, Release]);
    }

    #[test]
    fn records_between_the_end_of_a_wait_and_the_return_make_no_second_acquisition() {
        let mut s = Script::new();
        s.at(100).task(11).contention_begin(0xf0, 32);
        s.at(300).task(11).contention_end(0xf0, 0);
        s.at(301).task(11).contention_begin(0xa0, 1);
        s.at(302).task(11).contention_end(0xa0, 0);
        s.at(303).task(11).released(index::UP, 0xb0);
        s.at(310).task(11).taken(index::MUTEX_LOCK, 0xf0, 0);
        assert_eq!(s.kinds_of_rows(0xf0), [Wait, Acquire]);
    }

    #[test]
    fn a_function_that_did_not_need_the_lock_leaves_no_hold() {
        let mut s = Script::new();
        s.at(50).task(11).taken(index::ATOMIC_DEC_AND_MUTEX_LOCK, 0xf0, -11);
        s.at(100).task(11).contention_begin(0xf0, 32);
        s.at(300).task(11).contention_end(0xf0, 0);
        s.at(310).task(11).taken(index::ATOMIC_DEC_AND_MUTEX_LOCK, 0xf0, -11);
        s.at(400).task(11).taken(index::ATOMIC_DEC_AND_MUTEX_LOCK, 0xf0, 0);
        s.at(500).task(11).released(index::MUTEX_UNLOCK, 0xf0);
        assert_eq!(s.kinds_of_rows(0xf0), [Wait, Acquire, Release, Acquire, Release]);
    }

    #[test]
    fn two_acquisitions_without_a_release_between_them_stay_two() {
        // A reader may take the lock again, and an interrupt may hide the release.
        let mut s = Script::new();
        s.at(100).task(11).taken(index::DOWN_READ, 0xf0, 0);
        s.at(200).task(11).taken(index::DOWN_READ, 0xf0, 0);
        assert_eq!(s.kinds_of_rows(0xf0), [Acquire, Acquire]);
    }

    #[test]
    fn a_failed_attempt_is_a_try_fail_and_an_interrupted_one_is_abandoned() {
        let mut s = Script::new();
        s.at(100).task(11).stack(3).taken(index::DOWN_WRITE_TRYLOCK, 0xf0, -16);
        s.at(200).task(11).stack(4).taken(index::DOWN_READ_KILLABLE, 0xf0, -4);
        s.expect([
            row(100, TryFail).task(11).lock(0xf0).exclusive().stack(3).errno(16).by_try(),
            row(200, Abandon).task(11).lock(0xf0).mode(Mode::Shared).stack(4).wait(0).errno(4),
        ]);
    }

    #[test]
    fn an_acquisition_says_whether_it_was_a_try_or_had_a_time_out() {
        let mut s = Script::new();
        s.at(100).task(11).taken(index::MUTEX_TRYLOCK, 0xf0, 0);
        s.at(200).task(11).taken(index::DOWN_TRYLOCK, 0xf1, 0);
        s.at(300).task(11).taken(index::DOWN_TIMEOUT, 0xf2, 0);
        s.at(400).task(11).taken(index::RT_MUTEX_TIMED_LOCK, 0xf3, 0);
        s.at(500).task(11).taken(index::DOWN, 0xf4, 0);
        let acquired = |ns, lock| row(ns, Acquire).task(11).lock(lock).exclusive().wait(0);
        s.expect([
            acquired(100, 0xf0).by_try(),
            acquired(200, 0xf1).by_try(),
            acquired(300, 0xf2).timed(),
            acquired(400, 0xf3).timed(),
            acquired(500, 0xf4),
        ]);
    }

    #[test]
    fn a_wait_that_a_signal_ends_is_abandoned_once() {
        let mut s = Script::new();
        s.at(100).task(11).contention_begin(0xf0, 32);
        s.at(300).task(11).contention_end(0xf0, -4);
        s.at(310).task(11).taken(index::MUTEX_LOCK_INTERRUPTIBLE, 0xf0, -4);
        assert_eq!(s.kinds_of_rows(0xf0), [Wait, Abandon]);
    }

    #[test]
    fn a_downgrade_ends_one_hold_and_begins_another() {
        let mut s = Script::new();
        s.at(100).task(11).taken(index::DOWN_WRITE, 0xf0, 0);
        s.at(200).task(11).stack(5).released(index::DOWNGRADE_WRITE, 0xf0);
        s.at(300).task(11).released(index::UP_READ, 0xf0);
        s.expect([
            row(100, Acquire).task(11).lock(0xf0).exclusive().wait(0),
            row(200, Release).task(11).lock(0xf0).exclusive(),
            row(200, Acquire).task(11).lock(0xf0).mode(Mode::Shared).stack(5).wait(0),
            row(300, Release).task(11).lock(0xf0).mode(Mode::Shared),
        ]);
        assert_eq!(s.kind(0xf0), [LockKind::RwSem]);
    }

    #[test]
    fn without_contention_tracepoints_the_function_ends_the_wait() {
        let mut s = Script::new();
        s.at(100).task(11).stack(1).sums(10, 1).contention_begin(0xf0, 32);
        s.at(900).task(11).sums(510, 21).woken_by(12, 9).taken(index::MUTEX_LOCK, 0xf0, 0);
        s.expect([
            row(100, Wait).task(11).lock(0xf0).exclusive().stack(1),
            row(900, Acquire)
                .task(11)
                .lock(0xf0)
                .exclusive()
                .stack(1)
                .waited(800, 500, 20)
                .peer(12)
                .peer_stack(9),
        ]);
    }

    #[test]
    fn a_wait_with_only_an_end_record_has_its_whole_length() {
        let mut s = Script::with_filters();
        s.at(900).task(11).stack(1).sums(500, 20).woken_by(12, 9).whole_wait(0xf0, 32, 100);
        s.expect([row(900, Acquire)
            .task(11)
            .lock(0xf0)
            .exclusive()
            .stack(1)
            .waited(800, 500, 20)
            .peer(12)
            .peer_stack(9)]);
    }

    #[test]
    fn an_end_without_a_begin_makes_no_row_if_begins_are_left_out() {
        let mut s = Script::with_filters();
        s.at(50).task(12).contention_begin(0xf0, 1);
        s.at(100).task(11).contention_end(0xf0, 0);
        s.at(110).task(11).contention_end(0xa0, 0);
        assert_eq!((s.kinds_of_rows(0xf0), s.unpaired()), (vec![Wait], 0));
    }
}
