//! One call of a lock function, from the look at the gate to the last of its records. In come a lock, what kind it is and what
//! the C library answered; out go records in the order in which things happened. While a record is under way the gate is closed;
//! it is open while the call waits, so that a signal handler that locks meanwhile is recorded.

pub(crate) mod cancelled;

use trace_format::preload::{Record, Rest, api, op};

use crate::{
    clock,
    real::Lock,
    thread::{self, Thread},
    walk::Caller,
};

/// A call that is recorded. [`Call::end`] ends it.
pub(crate) struct Call {
    thread: &'static mut Thread,
    stack_pointer: usize,
    stack: u16,
}

/// The lock was not free, and now the call waits or goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It has the lock.
    Taken,
    /// It has the lock, whose owner died.
    TakenDead,
    /// It ended without the lock, for this reason.
    Failed(i32),
}

impl Outcome {
    /// What an answer of pthread means.
    #[inline(always)]
    pub(crate) fn of(answer: i32) -> Self {
        match answer {
            0 => Self::Taken,
            libc::EOWNERDEAD => Self::TakenDead,
            error => Self::Failed(error),
        }
    }
}

impl Call {
    /// Begins a call that a record may come of; `None` if it is only to be forwarded.
    #[inline(always)]
    pub(crate) unsafe fn begin() -> Option<Self> {
        let stack_pointer = thread::stack_pointer();
        let block = thread::current();
        // SAFETY: the block is this thread's; handlers that interrupt it see the gate, and write to it only where it is open.
        unsafe {
            if !(*block).is_open() && !thread::open(block, stack_pointer) {
                return None;
            }
            let thread = &mut *block;
            thread.enter(stack_pointer);
            Some(Self { thread, stack_pointer, stack: 0 })
        }
    }

    /// As [`Call::begin`], and looks where the call came from.
    #[inline(always)]
    pub(crate) unsafe fn begin_at(caller: Caller) -> Option<Self> {
        // SAFETY: as the caller promises.
        unsafe { Self::begin() }.map(|mut call| {
            let which = call.thread.clock;
            call.note(caller, || clock::now(which));
            call
        })
    }

    /// Looks where the call came from; `time` is that of the records that say so if it is new.
    #[inline(always)]
    fn note(&mut self, caller: Caller, time: impl FnOnce() -> u64) {
        // SAFETY: the gate is closed.
        self.stack = unsafe { self.thread.stack_number(caller, self.stack_pointer, time) };
    }

    /// The thread that calls.
    pub(crate) fn tid(&self) -> u32 {
        self.thread.tid
    }

    /// The time.
    #[inline(always)]
    pub(crate) fn now(&self) -> u64 {
        clock::now(self.thread.clock)
    }

    /// A record without further units.
    #[inline(always)]
    pub(crate) fn put(&mut self, time: u64, op: u8, api: u8, lock: Lock) {
        // SAFETY: the gate is closed.
        unsafe { self.thread.ring.put(Record::new(time, op, api, lock as u64, self.stack)) };
    }

    /// A record with one further unit.
    #[inline]
    pub(crate) fn put_two(&mut self, time: u64, op: u8, api: u8, lock: Lock, first: u64, second: u64) {
        let record = Record::new(time, op, api, lock as u64, self.stack);
        // SAFETY: the gate is closed.
        unsafe { self.thread.ring.put_two(record, Rest { first, second }) };
    }

    /// The call ended without the lock.
    #[inline]
    pub(crate) fn fail(&mut self, api: u8, lock: Lock, errno: i32) {
        self.put_two(self.now(), op::FAILED, api, lock, errno as u64, 0);
    }

    /// The first attempt succeeded, or an answer came without a wait.
    #[inline(always)]
    pub(crate) fn answered(&mut self, api: u8, lock: Lock, outcome: Outcome) {
        match outcome {
            Outcome::Taken => self.put(clock::now_ordered(self.thread.clock), op::ACQUIRED, api, lock),
            Outcome::TakenDead => {
                self.put(clock::now_ordered(self.thread.clock), op::ACQUIRED_DEAD, api, lock)
            }
            Outcome::Failed(errno) => self.fail(api, lock, errno),
        }
    }

    /// The call waits from now on for who has the lock, 0 if that is not known; until [`Call::waited`].
    #[inline]
    pub(crate) fn wait(&mut self, api: u8, lock: Lock, owner: u32) {
        self.put_two(self.now(), op::WAIT, api, lock, owner.into(), 0);
        self.pause();
    }

    /// The wait is over.
    #[inline]
    pub(crate) fn waited(&mut self, api: u8, lock: Lock, outcome: Outcome) {
        if !self.go_on() {
            return;
        }
        let time = clock::now_ordered(self.thread.clock);
        match outcome {
            Outcome::Taken => self.put(time, op::WAITED, api, lock),
            Outcome::TakenDead => self.put(time, op::WAITED_DEAD, api, lock),
            Outcome::Failed(errno) => self.put_two(time, op::FAILED, api, lock, errno as u64, 0),
        }
        self.pause();
    }

    /// An answer that came at once, of a call that would have waited otherwise; nothing if it succeeded all the same.
    #[cold]
    pub(crate) fn refused(&mut self, api: u8, lock: Lock, errno: i32) {
        if errno != 0 && self.go_on() {
            self.fail(api, lock, errno);
            self.pause();
        }
    }

    /// A wait on a condition variable ended, with this answer.
    #[inline]
    pub(crate) fn condition_done(&mut self, mutex: Lock, condition: Lock, errno: i32) {
        if self.go_on() {
            let time = clock::now_ordered(self.thread.clock);
            let (first, second) = (condition as u64, errno as u64);
            self.put_two(time, op::CONDITION_DONE, api::CONDITION, mutex, first, second);
            self.pause();
        }
    }

    /// The call does something that may take long and be interrupted.
    #[inline]
    pub(crate) fn pause(&mut self) {
        // SAFETY: the gate is closed.
        unsafe { self.thread.leave() };
    }

    /// And goes on; `false` if it is not recorded any more, because meanwhile the recording ended or this is another process.
    #[inline]
    pub(crate) fn go_on(&mut self) -> bool {
        // SAFETY: the block is this thread's, and the gate says whether its ring is there.
        unsafe {
            let open = self.thread.is_open();
            if open {
                self.thread.enter(self.stack_pointer);
            }
            open
        }
    }

    /// Ends a call that does not wait.
    #[inline(always)]
    pub(crate) fn end(self) {
        // SAFETY: the gate is closed.
        unsafe { self.thread.leave() };
    }
}

/// Forwards what changes a lock at once and is worth a record if it succeeds: `init`, whose time is when it is done.
#[inline]
pub(crate) unsafe fn made(caller: Caller, api: u8, lock: Lock, make: impl FnOnce() -> i32) -> i32 {
    let answer = make();
    if answer == 0 {
        // SAFETY: as the caller promises.
        if let Some(mut call) = unsafe { Call::begin_at(caller) } {
            call.put(call.now(), op::INIT, api, lock);
            call.end();
        }
    }
    answer
}

/// Forwards what gives a lock away: the time is from before that, since others may have the lock, or its memory, when the C
/// library comes back. Recorded if it succeeds.
#[inline(always)]
pub(crate) unsafe fn given(caller: Caller, op: u8, api: u8, lock: Lock, give: impl FnOnce() -> i32) -> i32 {
    // SAFETY: as the caller promises.
    let Some(mut call) = (unsafe { Call::begin() }) else { return give() };
    let time = call.now();
    let answer = give();
    if answer == 0 {
        call.note(caller, || time);
        call.put(time, op, api, lock);
    }
    call.end();
    answer
}

/// Forwards an attempt that never waits.
#[inline(always)]
pub(crate) unsafe fn tried(caller: Caller, api: u8, lock: Lock, attempt: impl FnOnce() -> i32) -> i32 {
    // SAFETY: as the caller promises.
    let Some(mut call) = (unsafe { Call::begin_at(caller) }) else { return attempt() };
    let answer = attempt();
    call.answered(api, lock, Outcome::of(answer));
    call.end();
    answer
}

/// Tries, and waits if that fails. `refused` says of a lock that is not free whether the C library will answer at once all the
/// same; otherwise the lock's owner, 0 if nobody knows, is what it waits for.
#[inline(always)]
pub(crate) unsafe fn taken(
    caller: Caller,
    api: u8,
    lock: Lock,
    attempt: impl FnOnce() -> i32,
    owner: impl FnOnce(&Call) -> Option<u32>,
    wait: impl FnOnce() -> i32,
) -> i32 {
    // SAFETY: as the caller promises.
    let Some(mut call) = (unsafe { Call::begin_at(caller) }) else { return wait() };
    let answer = attempt();
    if answer == 0 {
        call.put(clock::now_ordered(call.thread.clock), op::ACQUIRED, api, lock);
        call.end();
        return 0;
    }
    taken_later(call, api, lock, answer, owner, wait)
}

#[cold]
#[inline(never)]
fn taken_later(
    mut call: Call,
    api: u8,
    lock: Lock,
    answer: i32,
    owner: impl FnOnce(&Call) -> Option<u32>,
    wait: impl FnOnce() -> i32,
) -> i32 {
    if answer == libc::EOWNERDEAD {
        call.answered(api, lock, Outcome::TakenDead);
        call.end();
        return answer;
    }
    let owner = if answer == libc::EBUSY { owner(&call) } else { None };
    let Some(owner) = owner else {
        let answer = wait();
        call.answered(api, lock, Outcome::of(answer));
        call.end();
        return answer;
    };
    call.wait(api, lock, owner);
    let answer = wait();
    call.waited(api, lock, Outcome::of(answer));
    answer
}
