//! Turns facts about locks of programs into rows. One state machine for both decoders,
//! [`probes`](super::probes) and [`preload`](super::preload), and for locks of the C library, of Rust and of
//! Go.
//!
//! ```text
//! facts                                    rows
//! 100 A calls lock(m), 101 it returns      101 A acquire m
//! 120 B calls lock(m), which A holds       120 B wait m
//! 180 A releases m                         180 A release m
//! 195 B's call returns                     195 B acquire m, waited 75 ns
//! 200 B waits for condition c with m       200 B release m, 200 B wait c
//! 300 B's wait returns                     300 B acquire c, waited 100 ns, 300 B acquire m
//! ```
//!
//! A call is contended if its source reports that, if another task holds the lock when it begins, or if it
//! waits on the lock's futex; never because it took long. A wait on a condition variable releases the mutex
//! and takes it again: a release, a wait on the condition variable (idling, not contention), and a new
//! acquisition at the site of the call. Every caller waits at a barrier, the last one included. Semaphores,
//! barriers, condition variables and threads have no holders. Of locks of Rust and Go, only waits are
//! recorded, so their holders are not known.

use call::{Call, Condition, Sleep};
use fact::{Action, Begin, Fact, LockWord, Outcome, call_of};
use goroutines::Goroutines;
use holders::Holders;
use open_calls::OpenCalls;
use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};
use trace_format::{
    Event, EventColumns, EventKind, LockId, LockKind, Mode, TaskId,
    user_functions::is_slow_path,
    wire::{WireEvent, api},
};

use super::header::{Context, Header, OffCpuTimes, Source, TaskKey};
use crate::compose::locks::Space;

pub(crate) use call::WaitTarget;

mod call;
pub(crate) mod fact;
mod goroutines;
mod holders;
mod open_calls;

/// The calls that are open and the locks that are held.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct UserLocks {
    /// The sleep of a call before its first futex wait.
    no_sleep: Sleep,
    open: OpenCalls,
    holders: Holders,
    #[serde(skip)]
    goroutines: Goroutines,
}

impl UserLocks {
    /// Starts without open calls. `futexes` means that futex waits are recorded.
    pub(crate) fn new(futexes: bool) -> Self {
        let no_sleep = if futexes { Sleep::NONE } else { Sleep::UNKNOWN };
        Self {
            no_sleep,
            open: OpenCalls::default(),
            holders: Holders::default(),
            goroutines: Goroutines::default(),
        }
    }

    /// Adds the next fact in the order of time.
    pub(crate) fn add(&mut self, at: &Header, fact: &Fact, context: &mut Context<'_>) {
        match fact.action {
            Action::Called { word, is_refused } => self.called(at, fact, word, is_refused, context),
            Action::Waits { owner } => {
                let lock = context.lock(at, fact);
                let mut call = Call::new(at, fact, lock, self.no_sleep);
                call.waits_since = Some(at.ts_ns);
                context.out.push(call.wait(at, owner));
                self.open.push(at, call, context);
            }
            Action::ConditionWait(condition) => self.condition_wait(at, fact, condition, context),
            Action::Returned(begin, outcome) => self.returned(at, fact, begin, outcome, context),
            Action::ConditionReturned(condition, errno) => {
                self.condition_returned(at, fact, condition, errno, context);
            }
            Action::Released { mode, only_owner } => self.released(at, fact, mode, only_owner, context),
            Action::ReleasedOrInitialised { is_free } => {
                let known = context.locks.known(at.space, fact.address, fact.kind());
                let is_held = known.is_some_and(|lock| self.holders.has(at, lock));
                if !is_held && (is_free || known.is_none()) {
                    self.initialised(at, fact, context);
                } else {
                    self.released(at, fact, fact.mode(), None, context);
                }
            }
            Action::Initialised => self.initialised(at, fact, context),
            Action::Destroyed => {
                let lock = context.lock(at, fact);
                self.holders.forget(lock);
                context.out.push(at.row(EventKind::Destroy, lock));
                context.locks.end(at.space, fact.address, fact.kind());
            }
            Action::Posted => {
                let lock = context.lock(at, fact);
                context.out.push(at.row(EventKind::Wake, lock));
            }
            Action::GoroutineWaits(goroutine) => self.goroutines.wait(at, fact, goroutine, context),
            Action::GoroutineAcquired(goroutine) => self.goroutines.acquired(at, goroutine, context),
            Action::GoroutineReleased(goroutine) => self.goroutines.released(at, fact, goroutine, context),
        }
    }

    /// Returns the locks for which tasks have waited since `before_ns`.
    pub(crate) fn awaited(&self, before_ns: i64) -> FxHashSet<(Space, u64)> {
        self.open.awaited(before_ns)
    }

    /// Forgets the open calls of a task that exited. Returns how many there are.
    pub(crate) fn forget(&mut self, key: TaskKey) -> u64 {
        self.open.forget(key)
    }

    /// Records of the kernel side are missing: a call that is open may be another one by now, and a lock may
    /// have another holder.
    pub(crate) fn lost(&mut self) {
        self.holders.lost();
        self.open.lost();
        self.goroutines.lost();
    }

    /// Nothing was recorded for a while.
    pub(crate) fn lost_all(&mut self) {
        *self = Self::new(self.no_sleep.is_known());
    }

    /// Records of a thread that records itself are missing: whatever was open may be over. Returns the number
    /// of locks that were examined for it.
    pub(crate) fn lost_by(&mut self, key: TaskKey) -> usize {
        self.open.forget(key);
        self.holders.forget_task(key)
    }

    fn called(
        &mut self,
        at: &Header,
        fact: &Fact,
        word: LockWord,
        is_refused: bool,
        context: &mut Context<'_>,
    ) {
        let is_again = self.open.last(at.key).is_some_and(|call| call.matches(fact) && !call.is_stale);
        if api::variant(fact.function) == api::RETRY && is_again {
            return;
        }
        let lock = context.lock(at, fact);
        let mut call = Call::new(at, fact, lock, self.no_sleep);
        call.is_refused = is_refused;
        call.takes_over = word == LockWord::OwnerDied;
        let may_wait = !is_refused && api::variant(fact.function) != api::TRY;
        if may_wait && let Some(owner) = self.waits_for(at, fact, lock, word, context) {
            call.waits_since = Some(at.ts_ns);
            context.out.push(call.wait(at, owner));
        }
        self.open.push(at, call, context);
    }

    /// Returns whether the call that begins has to wait, and for which task, if that is known.
    fn waits_for(
        &self,
        at: &Header,
        fact: &Fact,
        lock: LockId,
        word: LockWord,
        context: &mut Context<'_>,
    ) -> Option<Option<TaskId>> {
        let Some(mode) = fact.mode() else {
            let waits = fact.kind() == LockKind::Barrier || word == LockWord::Taken(0);
            return waits.then_some(None);
        };
        let holder = self.holders.blocker(at, lock, mode);
        if api::variant(fact.function) == api::RETRY {
            return Some(holder);
        }
        if matches!(word, LockWord::Free | LockWord::OwnerDied) {
            return None;
        }
        if holder.is_some() {
            return Some(holder);
        }
        // If the records show no holder, the word may still be set because the release is under way.
        let LockWord::Taken(owner) = word else { return None };
        if self.holders.are_known(lock) {
            return None;
        }
        // The lock was taken before the recording began, or the record of that is lost.
        if fact.kind() == LockKind::PthreadSpin {
            return Some(None);
        }
        let is_other = owner != 0 && TaskKey::of_thread(owner) != at.key;
        is_other.then(|| context.thread(at, owner)).flatten().map(Some)
    }

    fn condition_wait(&mut self, at: &Header, fact: &Fact, address: u64, context: &mut Context<'_>) {
        let mutex = context.lock(at, fact);
        let lock = context.locks.id(at.space, address, LockKind::CondVar, at.ts_ns);
        let depth = self.holders.released_completely(at, mutex).unwrap_or(1);
        context.out.push(Event { mode: fact.mode(), ..at.row(EventKind::Release, mutex) });
        context.out.push(Event { call: call_of(fact.function), ..at.row(EventKind::Wait, lock) });
        let mut call = Call::new(at, fact, mutex, self.no_sleep);
        call.condition = Some(Condition { address, lock, sleep: self.no_sleep, depth });
        self.open.push(at, call, context);
    }

    fn returned(
        &mut self,
        at: &Header,
        fact: &Fact,
        begin: Begin,
        outcome: Outcome,
        context: &mut Context<'_>,
    ) {
        let was_reported = match begin {
            Begin::Reported => true,
            Begin::ReportedIfContended => self.open.has(at, fact),
            Begin::NotReported => false,
        };
        if !was_reported {
            return self.returned_alone(at, fact, fact.address, outcome, Some(Sleep::NONE), context);
        }
        match (self.open.close(at, fact, context), outcome) {
            (Err(address), _) => self.returned_alone(at, fact, address, outcome, None, context),
            (Ok(call), Outcome::Acquired(errno)) => {
                self.acquired(at, fact, call.lock, 1);
                context.out.push(call.acquisition(at, errno));
                context.joined(at, fact, call.address, call.lock);
            }
            (Ok(call), Outcome::Failed(errno)) => context.out.push(call.failure(at, errno)),
        }
    }

    /// Adds the return of a call without a begin. `sleep` is the sleep in its wait, if that is known.
    fn returned_alone(
        &mut self,
        at: &Header,
        fact: &Fact,
        address: u64,
        outcome: Outcome,
        sleep: Option<Sleep>,
        context: &mut Context<'_>,
    ) {
        if address == 0 {
            return;
        }
        let lock = context.locks.id(at.space, address, fact.kind(), at.ts_ns);
        let row = match outcome {
            Outcome::Acquired(errno) => {
                self.acquired(at, fact, lock, 1);
                let row = Event { errno, ..at.row(EventKind::Acquire, lock) };
                sleep.map_or(row, |sleep| sleep.add_to(0, row))
            }
            Outcome::Failed(errno) => Event { errno, ..at.row(EventKind::TryFail, lock) },
        };
        context.out.push(Event { mode: fact.mode(), call: fact.call(), ..row });
        context.joined(at, fact, address, lock);
    }

    /// Adds the end of a wait on a condition variable. The caller has the mutex after a signal, after a
    /// timeout, and after arguments that were refused before the mutex was released; not if it never had it,
    /// or if no task can have it any more.
    fn condition_returned(
        &mut self,
        at: &Header,
        fact: &Fact,
        address: Option<u64>,
        errno: Option<i32>,
        context: &mut Context<'_>,
    ) {
        let dead = errno.filter(|&errno| errno == libc::EOWNERDEAD);
        let failed = errno.filter(|_| dead.is_none());
        let has_mutex = !matches!(failed, Some(libc::EPERM | libc::ENOTRECOVERABLE));
        match self.open.close(at, fact, context) {
            Ok(call) => {
                let depth = call.condition.as_ref().map_or(1, |condition| condition.depth);
                if let Some(condition) = &call.condition {
                    context.locks.touch(condition.lock, at.ts_ns);
                    context.out.push(call.condition_end(at, condition, failed));
                }
                if has_mutex {
                    self.acquired(at, fact, call.lock, depth);
                    context.out.push(call.acquisition(at, dead));
                }
            }
            Err(mutex) => {
                if let Some(address) = address {
                    let lock = context.locks.id(at.space, address, LockKind::CondVar, at.ts_ns);
                    let (kind, call) = match failed {
                        Some(_) => (EventKind::Abandon, None),
                        None => (EventKind::Acquire, call_of(fact.function)),
                    };
                    context.out.push(Event { errno: failed, call, ..at.row(kind, lock) });
                }
                if has_mutex {
                    self.returned_alone(at, fact, mutex, Outcome::Acquired(dead), None, context);
                }
            }
        }
    }

    fn released(
        &mut self,
        at: &Header,
        fact: &Fact,
        mode: Option<Mode>,
        only_owner: Option<u32>,
        context: &mut Context<'_>,
    ) {
        if only_owner.is_some_and(|owner| !self.can_release(at, fact, owner, context)) {
            return;
        }
        let lock = context.lock(at, fact);
        let held = tracks_holders(at, fact).then(|| self.holders.released(at, lock)).flatten();
        context.out.push(Event { mode: held.or(mode), ..at.row(EventKind::Release, lock) });
    }

    /// Whether a mutex that only `owner` can release lets the record's task do it.
    fn can_release(&self, at: &Header, fact: &Fact, owner: u32, context: &mut Context<'_>) -> bool {
        if owner == 0 {
            return false;
        }
        let lock = context.locks.known(at.space, fact.address, fact.kind());
        if TaskKey::of_thread(owner) == at.key || lock.is_some_and(|lock| self.holders.has(at, lock)) {
            return true;
        }
        // In a PID namespace, the lock names its owner by a thread id that no thread has here.
        context.thread(at, owner).is_none()
            && lock.is_none_or(|lock| self.holders.blocker(at, lock, Mode::Exclusive).is_none())
    }

    fn initialised(&mut self, at: &Header, fact: &Fact, context: &mut Context<'_>) {
        if let Some(previous) = context.locks.known(at.space, fact.address, fact.kind()) {
            self.holders.forget(previous);
        }
        let lock = context.locks.start(at.space, fact.address, fact.kind(), at.ts_ns, at.stack);
        context.out.push(at.row(EventKind::Init, lock));
    }

    fn acquired(&mut self, at: &Header, fact: &Fact, lock: LockId, depth: u32) {
        if let Some(mode) = fact.mode().filter(|_| tracks_holders(at, fact)) {
            self.holders.acquired(at, lock, mode, depth);
        }
    }
}

/// Whether the holders of this lock are needed: to infer whether calls wait, or to know the mode of an
/// rwlock's release.
fn tracks_holders(at: &Header, fact: &Fact) -> bool {
    at.source == Source::Kernel && !is_slow_path(fact.function) || fact.kind() == LockKind::PthreadRwLock
}

impl Context<'_> {
    fn lock(&mut self, at: &Header, fact: &Fact) -> LockId {
        self.locks.id(at.space, fact.address, fact.kind(), at.ts_ns)
    }

    /// Ends the lock of a thread that was joined, unless another thread has its address already.
    fn joined(&mut self, at: &Header, fact: &Fact, address: u64, lock: LockId) {
        if fact.is_join() && self.locks.known(at.space, address, LockKind::Thread) == Some(lock) {
            self.locks.end(at.space, address, LockKind::Thread);
        }
    }

    /// A thread of the record's process, by its id.
    fn thread(&mut self, at: &Header, tid: u32) -> Option<TaskId> {
        let Space::Process(_, pid) = at.space else { return None };
        self.tasks.thread(pid, tid)
    }
}

// Futex waits inside calls. They are parts of these calls, and the first one may be the begin of a call's
// wait.

/// `include/uapi/linux/futex.h` (5.14)
const FUTEX_LOCK_PI2: i32 = 13;

impl UserLocks {
    /// Adds a futex wait that began. Returns the part of the task's open call that it belongs to. The first
    /// wait for a lock that seemed free begins the call's wait.
    pub(crate) fn futex_wait(
        &mut self,
        at: &Header,
        event: &WireEvent,
        out: &mut EventColumns,
    ) -> Option<WaitTarget> {
        let Self { open, holders, .. } = self;
        let call = open.last(at.key)?;
        let target = call.target_of(at, event.address)?;
        call.same_lock = true;
        if target == WaitTarget::Condition {
            return Some(target);
        }
        let asks_kernel = matches!(i32::from(event.detail), libc::FUTEX_LOCK_PI | FUTEX_LOCK_PI2);
        if std::mem::take(&mut call.takes_over) && asks_kernel {
            // The kernel hands over what the dead owner left, without a wait.
        } else if !call.is_stale && !call.is_refused && call.waits_since.is_none() {
            let owner = call.mode.and_then(|mode| holders.blocker(at, call.lock, mode));
            out.push(call.wait(at, owner));
            call.waits_since = Some(at.ts_ns);
        }
        Some(target)
    }

    /// Notes that the task's futex wait on `word` ended: its open call is about the lock around that word.
    pub(crate) fn futex_wait_seen(&mut self, at: &Header, word: u64) {
        if let Some(call) = self.open.last(at.key) {
            call.same_lock |= call.target_of(at, word).is_some();
        }
    }

    /// Adds the end of a futex wait that is a part of a call.
    pub(crate) fn futex_wait_done(
        &mut self,
        at: &Header,
        target: WaitTarget,
        times: Option<OffCpuTimes>,
        errno: Option<i32>,
    ) {
        let Some(call) = self.open.last(at.key) else { return };
        match (target, &mut call.condition) {
            (WaitTarget::Condition, Some(condition)) => condition.sleep.merge(at, times, errno),
            _ => call.sleep.merge(at, times, errno),
        }
    }
}
