//! Functions that take and give back kernel locks: their returns and entries in, acquisitions and releases out.
//!
//! An acquisition is told once: by the end of its wait, if it waited, and otherwise by the function's return. Some
//! functions do their work by calling another one that is recorded as well, if the compiler left the call there.

use trace_format::{
    Event, EventKind, LockId, LockKind, Mode,
    kernel_functions::{Act, KernelFunction},
};

use super::{Waits, kind_of};
use crate::{
    compose::Moment,
    locks::{Locks, Space},
};

/// What a task did last with a kernel lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::compose) enum Last {
    /// Its wait ended with the lock.
    TakenByWait,
    /// Its wait ended without the lock.
    FailedByWait,
    /// A function returned with the lock.
    Taken,
    /// A function returned without the lock.
    Failed,
    /// A function was entered that gives the lock back by calling another one.
    ReleasedByWrapper,
}

impl Waits {
    /// A wait ended. Of a lock that spins no function tells it again.
    pub(super) fn ended(
        &mut self,
        moment: &Moment,
        (address, kind): (u64, Option<LockKind>),
        errno: Option<i32>,
    ) {
        if matches!(kind, Some(LockKind::SpinLock | LockKind::RwLock)) {
            return;
        }
        let last = if errno.is_some() { Last::FailedByWait } else { Last::TakenByWait };
        self.last.insert((moment.key, address), last);
    }

    /// A function returned, with the lock or with `errno`.
    pub(in crate::compose) fn taken(
        &mut self,
        moment: &Moment,
        address: u64,
        function: &KernelFunction,
        errno: Option<i32>,
        locks: &mut Locks,
        out: &mut Vec<Event>,
    ) {
        let key = (moment.key, address);
        if function.act == Act::TakeUnless && errno.is_some() {
            return self.not_needed(moment, address, function, locks, out);
        }
        let now = if errno.is_some() { Last::Failed } else { Last::Taken };
        let told = match self.last.insert(key, now) {
            Some(Last::TakenByWait) => errno.is_none(),
            Some(Last::FailedByWait) => errno.is_some(),
            Some(last) => function.wraps && last == now,
            None => false,
        };
        if told {
            return;
        }
        let (kind, mode) = kind_of(function.flags);
        let lock = locks.id(Space::Kernel, address, kind, moment.ts_ns);
        let row = match self.open.remove(&(moment.key, address)) {
            Some((wait, _)) => moment.end_of(&wait, errno),
            None => {
                let kind = match (errno, function.act) {
                    (None, _) => EventKind::Acquire,
                    (Some(_), Act::Try | Act::TryZero) => EventKind::TryFail,
                    (Some(_), _) => EventKind::Abandon,
                };
                let wait_ns = (kind != EventKind::TryFail).then_some(0);
                Event { errno, wait_ns, ..moment.row(kind, lock) }
            }
        };
        out.push(Event { mode: Some(mode), ..row });
    }

    /// A function returned that had no need of the lock after all. If it waited for it, it gave it back unseen.
    fn not_needed(
        &mut self,
        moment: &Moment,
        address: u64,
        function: &KernelFunction,
        locks: &mut Locks,
        out: &mut Vec<Event>,
    ) {
        if matches!(self.last.remove(&(moment.key, address)), Some(Last::TakenByWait | Last::Taken)) {
            release(moment, address, function, locks, out);
        }
    }

    /// A function was entered that gives the lock back, or its write mode.
    pub(in crate::compose) fn released(
        &mut self,
        moment: &Moment,
        address: u64,
        function: &KernelFunction,
        locks: &mut Locks,
        out: &mut Vec<Event>,
    ) {
        let key = (moment.key, address);
        let before = self.last.remove(&key);
        if function.wraps {
            self.last.insert(key, Last::ReleasedByWrapper);
        } else if before == Some(Last::ReleasedByWrapper) {
            return;
        }
        let lock = release(moment, address, function, locks, out);
        if function.act == Act::Downgrade {
            let row = moment.row(EventKind::Acquire, lock);
            out.push(Event { mode: Some(Mode::Shared), wait_ns: Some(0), ..row });
        }
    }
}

/// The row of a lock that is given back by, or inside, this function.
fn release(
    moment: &Moment,
    address: u64,
    function: &KernelFunction,
    locks: &mut Locks,
    out: &mut Vec<Event>,
) -> LockId {
    let (kind, mode) = kind_of(function.flags);
    let lock = locks.id(Space::Kernel, address, kind, moment.ts_ns);
    let row = moment.row(EventKind::Release, lock);
    out.push(Event { mode: Some(mode), stack: None, ..row });
    lock
}

#[cfg(test)]
mod tests {
    use trace_format::{
        EventKind::{Abandon, Acquire, Release, TryFail, Wait},
        LockKind, Mode,
        kernel_functions::id,
    };

    use crate::compose::script::{Script, row};

    #[test]
    fn a_free_mutex_is_acquired_without_a_wait_and_released() {
        let mut s = Script::new();
        s.at(100).task(11).stack(7).taken(id::MUTEX_LOCK, 0xf0, 0);
        s.at(400).task(11).released(id::MUTEX_UNLOCK, 0xf0);
        s.says([
            row(100, Acquire).task(11).lock(0xf0).exclusive().stack(7).wait(0),
            row(400, Release).task(11).lock(0xf0).exclusive(),
        ]);
        assert_eq!(s.kind(0xf0), [LockKind::Mutex]);
    }

    #[test]
    fn a_wait_is_ended_once_although_the_function_says_it_again() {
        let mut s = Script::new();
        s.at(100).task(11).owned_by(12).contention_begin(0xf0, 32);
        s.at(300).task(11).contention_end(0xf0, 0);
        s.at(310).task(11).taken(id::MUTEX_LOCK, 0xf0, 0);
        s.at(320).task(11).taken(id::MUTEX_LOCK_IO, 0xf0, 0);
        s.at(400).task(11).released(id::MUTEX_UNLOCK, 0xf0);
        s.says([
            row(100, Wait).task(11).lock(0xf0).exclusive().peer(12),
            row(300, Acquire).task(11).lock(0xf0).exclusive().waited(200, 0, 0),
            row(400, Release).task(11).lock(0xf0).exclusive(),
        ]);
    }

    #[test]
    fn a_function_that_calls_another_one_takes_the_lock_once_and_gives_it_back_once() {
        let mut s = Script::new();
        s.at(100).task(11).taken(id::MUTEX_TRYLOCK, 0xf0, 0);
        s.at(101).task(11).taken(id::WW_MUTEX_TRYLOCK, 0xf0, 0);
        s.at(200).task(11).released(id::WW_MUTEX_UNLOCK, 0xf0);
        s.at(201).task(11).released(id::MUTEX_UNLOCK, 0xf0);
        assert_eq!(s.story(0xf0), [Acquire, Release]);
    }

    #[test]
    fn a_function_whose_inner_call_the_compiler_left_out_tells_for_itself() {
        let mut s = Script::new();
        s.at(100).task(11).taken(id::MUTEX_LOCK_IO, 0xf0, 0);
        s.at(200).task(11).released(id::WW_MUTEX_UNLOCK, 0xf0);
        s.at(300).task(11).taken(id::MUTEX_LOCK_IO, 0xf0, 0);
        s.at(400).task(11).released(id::MUTEX_UNLOCK, 0xf0);
        assert_eq!(s.story(0xf0), [Acquire, Release, Acquire, Release]);
    }

    #[test]
    fn what_happens_between_the_end_of_a_wait_and_the_return_makes_no_second_acquisition() {
        let mut s = Script::new();
        s.at(100).task(11).contention_begin(0xf0, 32);
        s.at(300).task(11).contention_end(0xf0, 0);
        s.at(301).task(11).contention_begin(0xa0, 1);
        s.at(302).task(11).contention_end(0xa0, 0);
        s.at(303).task(11).released(id::UP, 0xb0);
        s.at(310).task(11).taken(id::MUTEX_LOCK, 0xf0, 0);
        assert_eq!(s.story(0xf0), [Wait, Acquire]);
    }

    #[test]
    fn a_function_that_needed_the_lock_in_vain_leaves_no_hold_behind() {
        let mut s = Script::new();
        s.at(50).task(11).taken(id::ATOMIC_DEC_AND_MUTEX_LOCK, 0xf0, -11);
        s.at(100).task(11).contention_begin(0xf0, 32);
        s.at(300).task(11).contention_end(0xf0, 0);
        s.at(310).task(11).taken(id::ATOMIC_DEC_AND_MUTEX_LOCK, 0xf0, -11);
        s.at(400).task(11).taken(id::ATOMIC_DEC_AND_MUTEX_LOCK, 0xf0, 0);
        s.at(500).task(11).released(id::MUTEX_UNLOCK, 0xf0);
        assert_eq!(s.story(0xf0), [Wait, Acquire, Release, Acquire, Release]);
    }

    #[test]
    fn two_acquisitions_of_a_task_are_two_although_nothing_was_between_them() {
        // A reader may take the lock again, and an interrupt may hide what was between.
        let mut s = Script::new();
        s.at(100).task(11).taken(id::DOWN_READ, 0xf0, 0);
        s.at(200).task(11).taken(id::DOWN_READ, 0xf0, 0);
        assert_eq!(s.story(0xf0), [Acquire, Acquire]);
    }

    #[test]
    fn an_attempt_that_does_not_wait_fails_and_one_that_a_signal_ends_is_abandoned() {
        let mut s = Script::new();
        s.at(100).task(11).stack(3).taken(id::DOWN_WRITE_TRYLOCK, 0xf0, -16);
        s.at(200).task(11).stack(4).taken(id::DOWN_READ_KILLABLE, 0xf0, -4);
        s.says([
            row(100, TryFail).task(11).lock(0xf0).exclusive().stack(3).errno(16),
            row(200, Abandon).task(11).lock(0xf0).mode(Mode::Shared).stack(4).wait(0).errno(4),
        ]);
    }

    #[test]
    fn a_wait_that_a_signal_ends_is_abandoned_once() {
        let mut s = Script::new();
        s.at(100).task(11).contention_begin(0xf0, 32);
        s.at(300).task(11).contention_end(0xf0, -4);
        s.at(310).task(11).taken(id::MUTEX_LOCK_INTERRUPTIBLE, 0xf0, -4);
        assert_eq!(s.story(0xf0), [Wait, Abandon]);
    }

    #[test]
    fn a_writer_that_becomes_a_reader_ends_one_hold_and_begins_another() {
        let mut s = Script::new();
        s.at(100).task(11).taken(id::DOWN_WRITE, 0xf0, 0);
        s.at(200).task(11).stack(5).released(id::DOWNGRADE_WRITE, 0xf0);
        s.at(300).task(11).released(id::UP_READ, 0xf0);
        s.says([
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
        s.at(900).task(11).sums(510, 21).woken_by(12, 9).taken(id::MUTEX_LOCK, 0xf0, 0);
        s.says([
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
    fn a_wait_of_which_only_the_end_is_recorded_has_its_whole_length() {
        let mut s = Script::with_filters();
        s.at(900).task(11).stack(1).sums(500, 20).woken_by(12, 9).whole_wait(0xf0, 32, 100);
        s.says([row(900, Acquire)
            .task(11)
            .lock(0xf0)
            .exclusive()
            .stack(1)
            .waited(800, 500, 20)
            .peer(12)
            .peer_stack(9)]);
    }

    #[test]
    fn where_begins_are_left_out_an_end_without_one_is_nothing() {
        let mut s = Script::with_filters();
        s.at(50).task(12).contention_begin(0xf0, 1);
        s.at(100).task(11).contention_end(0xf0, 0);
        s.at(110).task(11).contention_end(0xa0, 0);
        assert_eq!((s.story(0xf0), s.unpaired()), (vec![Wait], 0));
    }
}
