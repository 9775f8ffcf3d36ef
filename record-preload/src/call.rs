//! A recorded call of a lock function. Turns what the C library returned into records, in the order of
//! events. While a call writes records, signal handlers cannot; writing is paused while the call waits, so
//! that handlers are recorded then.

pub(crate) mod cancel;

use trace_format::preload::{Payload, Record, api, call, op};

use crate::{
    clock, last_release,
    mutex_fields::MutexFields,
    real::Lock,
    sampling::Draw,
    thread::{self, Thread},
    walk::Caller,
};

/// A recorded call. Ends with [`Call::end`], or with a wait.
pub(crate) struct Call {
    thread: &'static mut Thread,
    stack_pointer: usize,
    stack: u16,
}

/// The outcome of an attempt or a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The lock was acquired.
    Acquired,
    /// A robust mutex was acquired whose owner died.
    AcquiredOwnerDied,
    /// The lock was not acquired; the errno is the reason.
    Failed(i32),
}

impl Outcome {
    /// Converts the return value of a pthread function.
    #[inline(always)]
    pub(crate) fn of(result: i32) -> Self {
        match result {
            0 => Self::Acquired,
            libc::EOWNERDEAD => Self::AcquiredOwnerDied,
            error => Self::Failed(error),
        }
    }
}

impl Call {
    /// Begins a call; `None` if the call is to be forwarded without recording.
    #[inline(always)]
    pub(crate) unsafe fn begin() -> Option<Self> {
        let stack_pointer = thread::stack_pointer();
        let block = thread::current();
        // SAFETY: the block belongs to this thread. Signal handlers check its state, and write only while it
        // records.
        unsafe {
            if !(*block).is_recording() && !thread::try_start(block, stack_pointer) {
                return None;
            }
            let thread = &mut *block;
            thread.begin_writing(stack_pointer);
            Some(Self { thread, stack_pointer, stack: 0 })
        }
    }

    /// Begins a call and captures its stack.
    #[inline(always)]
    pub(crate) unsafe fn begin_at(caller: Caller) -> Option<Self> {
        // SAFETY: the caller's obligation.
        unsafe { Self::begin() }.map(|mut call| {
            let which = call.thread.clock;
            call.capture_stack(caller, || clock::now(which));
            call
        })
    }

    /// Captures the stack of the call; `time` is the time of its record if the stack is new.
    #[inline(always)]
    fn capture_stack(&mut self, caller: Caller, time: impl FnOnce() -> u64) {
        // SAFETY: this thread is writing.
        self.stack = unsafe { self.thread.stack_number(caller, self.stack_pointer, time) };
    }

    /// Returns the thread id of the caller.
    pub(crate) fn tid(&self) -> u32 {
        self.thread.tid
    }

    /// Returns the time.
    #[inline(always)]
    pub(crate) fn now(&self) -> u64 {
        clock::now(self.thread.clock)
    }

    /// Returns the time after all preceding memory accesses.
    #[inline(always)]
    fn now_ordered(&self) -> u64 {
        clock::now_ordered(self.thread.clock)
    }

    /// Returns the time of an acquisition: not before the release by another thread that allowed it.
    #[inline(always)]
    fn now_acquired(&self, api: u8, lock: Lock) -> u64 {
        // SAFETY: the pointer is a mutex.
        let is_again = is_of_mutex(api)
            && last_release::was_by(lock, self.tid())
            && unsafe { !MutexFields::of(lock).is_shared() };
        if is_again { self.now() } else { self.now_ordered() }
    }

    /// Writes a record without payload.
    #[inline(always)]
    pub(crate) fn put(&mut self, time: u64, op: u8, api: u8, lock: Lock) {
        // SAFETY: this thread is writing.
        unsafe { self.thread.writer.put(Record::new(time, op, api, lock as u64, self.stack)) };
    }

    /// Writes a record with a payload.
    #[inline]
    pub(crate) fn put_with_payload(
        &mut self,
        time: u64,
        op: u8,
        api: u8,
        lock: Lock,
        first: u64,
        second: u64,
    ) {
        let record = Record::new(time, op, api, lock as u64, self.stack);
        // SAFETY: this thread is writing.
        unsafe { self.thread.writer.put_with_payload(record, Payload { first, second }) };
    }

    /// Records that the call ended without the lock.
    #[inline]
    pub(crate) fn fail(&mut self, api: u8, lock: Lock, errno: i32) {
        self.put_with_payload(self.now(), op::FAILED, api, lock, errno as u64, 0);
    }

    /// Remembers a recorded acquisition, if its release would not be recorded otherwise.
    #[inline(always)]
    fn hold(&mut self, api: u8, lock: Lock) {
        if !self.thread.records_all && is_held(api) {
            self.thread.sampling.hold(lock);
        }
    }

    /// Records the outcome of a call that did not wait.
    #[inline(always)]
    pub(crate) fn report(&mut self, api: u8, lock: Lock, outcome: Outcome) {
        if !matches!(outcome, Outcome::Failed(_)) {
            self.hold(api, lock);
        }
        match outcome {
            Outcome::Acquired => self.put(self.now_acquired(api, lock), op::ACQUIRED, api, lock),
            Outcome::AcquiredOwnerDied => self.put(self.now_ordered(), op::ACQUIRED_OWNER_DIED, api, lock),
            Outcome::Failed(errno) => self.fail(api, lock, errno),
        }
    }

    /// Records that the call starts to wait for `owner`, 0 if unknown, and pauses writing until
    /// [`Call::waited`].
    #[inline]
    pub(crate) fn wait(&mut self, api: u8, lock: Lock, owner: u32) {
        self.put_with_payload(self.now(), op::WAIT, api, lock, owner.into(), 0);
        self.pause();
    }

    /// Records the end of the wait.
    #[inline]
    pub(crate) fn waited(&mut self, api: u8, lock: Lock, outcome: Outcome) {
        if !self.resume() {
            return;
        }
        let time = self.now_ordered();
        if !matches!(outcome, Outcome::Failed(_)) {
            self.hold(api, lock);
        }
        match outcome {
            Outcome::Acquired => self.put(time, op::WAITED, api, lock),
            Outcome::AcquiredOwnerDied => self.put(time, op::WAITED_OWNER_DIED, api, lock),
            Outcome::Failed(errno) => self.put_with_payload(time, op::FAILED, api, lock, errno as u64, 0),
        }
        self.pause();
    }

    /// Records that the C library failed the call immediately. Success is not recorded. Writing must be
    /// paused.
    #[cold]
    pub(crate) fn fail_immediately(&mut self, api: u8, lock: Lock, errno: i32) {
        if errno != 0 && self.resume() {
            self.fail(api, lock, errno);
            self.pause();
        }
    }

    /// Records the end of a wait on a condition variable. `api` is
    /// [`api::CONDITION`](trace_format::preload::api::CONDITION) with the call.
    #[inline]
    pub(crate) fn condition_waited(&mut self, api: u8, mutex: Lock, condition: Lock, errno: i32) {
        if self.resume() {
            let time = self.now_ordered();
            let (first, second) = (condition as u64, errno as u64);
            // The mutex stays among the holds during the wait.
            if !self.thread.records_all && !self.thread.sampling.has(mutex) {
                self.thread.sampling.hold(mutex);
            }
            self.put_with_payload(time, op::CONDITION_WAITED, api, mutex, first, second);
            self.pause();
        }
    }

    /// Pauses writing during a part of the call that may take long.
    #[inline]
    pub(crate) fn pause(&mut self) {
        // SAFETY: this thread is writing.
        unsafe { self.thread.end_writing() };
    }

    /// Resumes writing. Returns `false` if the recording has ended or this is another process now.
    #[inline]
    pub(crate) fn resume(&mut self) -> bool {
        // SAFETY: the block belongs to this thread, and its region is mapped while it records.
        unsafe {
            let is_recording = self.thread.is_recording();
            if is_recording {
                self.thread.begin_writing(self.stack_pointer);
            }
            is_recording
        }
    }

    /// Ends a call that did not wait.
    #[inline(always)]
    pub(crate) fn end(mut self) {
        self.pause();
    }
}

/// Whether a call is one on a mutex, in whatever way it waits.
#[inline(always)]
fn is_of_mutex(api: u8) -> bool {
    api & !call::MASK == api::MUTEX
}

/// Whether a thread holds the lock of a call after it.
#[inline(always)]
fn is_held(api: u8) -> bool {
    matches!(api & !call::MASK, api::MUTEX | api::RWLOCK_READ | api::RWLOCK_WRITE | api::SPIN)
}

/// Whether calls of this kind are not recorded.
#[inline(always)]
fn is_left_out(api: u8) -> bool {
    if api & !call::MASK != api::SPIN {
        return false;
    }
    // SAFETY: the block belongs to this thread.
    unsafe {
        let block = thread::current();
        if (*block).records_spins {
            return false;
        }
        // Before the session starts, that is not known.
        let starts = !(*block).is_recording() && thread::try_start(block, thread::stack_pointer());
        !(starts && (*block).records_spins)
    }
}

/// Forwards the initialization of a lock and records its success afterwards.
#[inline]
pub(crate) unsafe fn initialize(caller: Caller, api: u8, lock: Lock, make: impl FnOnce() -> i32) -> i32 {
    let result = make();
    if result == 0 && !is_left_out(api) {
        // SAFETY: the caller's obligation.
        if let Some(mut call) = unsafe { Call::begin_at(caller) } {
            call.put(call.now(), op::INIT, api, lock);
            call.end();
        }
    }
    result
}

/// Forwards a call that releases, posts or destroys a lock, and records its success. The recorded time is
/// from before the call, because other threads may already use the lock, or its memory, when the call
/// returns.
#[inline(always)]
pub(crate) unsafe fn release(caller: Caller, op: u8, api: u8, lock: Lock, give: impl FnOnce() -> i32) -> i32 {
    let is_mutex = op == op::RELEASED && api == api::MUTEX;
    // SAFETY: as below.
    if is_left_out(api) || op == op::RELEASED && unsafe { skips_release(lock) } {
        return give();
    }
    // SAFETY: the caller's obligation.
    let Some(mut call) = (unsafe { Call::begin() }) else {
        if is_mutex {
            last_release::forget(lock);
        }
        return give();
    };
    let time = call.now();
    if is_mutex {
        last_release::note(lock, call.tid());
    }
    let result = give();
    if result == 0 {
        call.capture_stack(caller, || time);
        call.put(time, op, api, lock);
    } else if is_mutex {
        last_release::forget(lock);
    }
    call.end();
    result
}

/// Forwards a try-lock and records its outcome.
#[inline(always)]
pub(crate) unsafe fn try_acquire(caller: Caller, api: u8, lock: Lock, attempt: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the caller's obligation.
    unsafe { acquire_at_once(caller, api | call::TRY, lock, attempt) }
}

/// Forwards a call that does not wait, and records its outcome.
#[inline(always)]
pub(crate) unsafe fn acquire_at_once(
    caller: Caller,
    api: u8,
    lock: Lock,
    attempt: impl FnOnce() -> i32,
) -> i32 {
    // SAFETY: as below.
    if is_left_out(api) || is_held(api) && unsafe { draw(api, lock) } != Draw::Record {
        return attempt();
    }
    // SAFETY: the caller's obligation.
    let Some(mut call) = (unsafe { Call::begin_at(caller) }) else { return attempt() };
    let result = attempt();
    call.report(api, lock, Outcome::of(result));
    call.end();
    result
}

/// Acquires a lock: tries first, and waits if that fails. `owner` returns the owner that the call waits for,
/// 0 if unknown, or `None` if the C library will fail the call immediately although the lock is held.
#[inline(always)]
pub(crate) unsafe fn acquire(
    caller: Caller,
    api: u8,
    lock: Lock,
    attempt: impl FnOnce() -> i32,
    owner: impl FnOnce(&Call) -> Option<u32>,
    wait: impl FnOnce() -> i32,
) -> i32 {
    // SAFETY: as below.
    match if is_left_out(api) { Draw::Forward } else { unsafe { draw(api, lock) } } {
        Draw::Record => {}
        Draw::Forward => return wait(),
        Draw::Skip => {
            let result = attempt();
            if matches!(result, 0 | libc::EOWNERDEAD) {
                return result;
            }
            // SAFETY: as below.
            return match unsafe { (result == libc::EBUSY).then(|| Call::begin_at(caller)) }.flatten() {
                Some(call) => acquire_contended(call, api, lock, result, owner, wait),
                None => wait(),
            };
        }
    }
    // SAFETY: the caller's obligation.
    let Some(mut call) = (unsafe { Call::begin_at(caller) }) else { return wait() };
    if is_of_mutex(api) {
        last_release::prefetch(lock);
    }
    let result = attempt();
    if result == 0 {
        call.hold(api, lock);
        call.put(call.now_acquired(api, lock), op::ACQUIRED, api, lock);
        call.end();
        return 0;
    }
    acquire_contended(call, api, lock, result, owner, wait)
}

/// Decides whether a call that takes a lock is recorded if it does not wait.
#[inline(always)]
unsafe fn draw(api: u8, lock: Lock) -> Draw {
    // SAFETY: the block belongs to this thread; the lock is of the kind of the api.
    unsafe {
        let block = thread::current();
        if (*block).records_all {
            return Draw::Record;
        }
        if !(*block).is_recording() && !thread::try_start(block, thread::stack_pointer()) {
            return Draw::Forward;
        }
        // It may have started with this call.
        if (*block).records_all {
            return Draw::Record;
        }
        let tid = (*block).tid;
        (*block).sampling.draw(lock, is_of_mutex(api), tid)
    }
}

/// Whether a release is not recorded, because its acquisition is not.
#[inline(always)]
unsafe fn skips_release(lock: Lock) -> bool {
    // SAFETY: the block belongs to this thread.
    unsafe {
        let block = thread::current();
        // Also while the recording is paused, a hold ends.
        !(*block).records_all && !(*block).sampling.release(lock) && (*block).is_recording()
    }
}

#[cold]
#[inline(never)]
fn acquire_contended(
    mut call: Call,
    api: u8,
    lock: Lock,
    result: i32,
    owner: impl FnOnce(&Call) -> Option<u32>,
    wait: impl FnOnce() -> i32,
) -> i32 {
    if result == libc::EOWNERDEAD {
        call.report(api, lock, Outcome::AcquiredOwnerDied);
        call.end();
        return result;
    }
    let owner = if result == libc::EBUSY { owner(&call) } else { None };
    let Some(owner) = owner else {
        // The call ends at once, unless another thread has taken the lock meanwhile.
        call.pause();
        let result = wait();
        if call.resume() {
            call.report(api, lock, Outcome::of(result));
            call.end();
        }
        return result;
    };
    call.wait(api, lock, owner);
    let result = wait();
    call.waited(api, lock, Outcome::of(result));
    result
}
