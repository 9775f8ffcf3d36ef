//! Mutexes and condition variables by their API: calls, returns and unlocks in, the life of a lock out.
//!
//! A call is contended if another task holds the mutex when it begins, or if it waits on the mutex's futex; never
//! because it took long. A wait on a condition variable gives the mutex back and takes it again: a release, a wait
//! on the condition (idling, not contention), and a new acquisition at the place of the call.

use rustc_hash::FxHashMap;
use trace_format::{
    Event, EventKind, LockId, LockKind, Mode, StackId, TaskId,
    wire::{WireEvent, api},
};

use super::{Moment, OpenWait, Sums, TaskKey};
use crate::locks::{COND_BYTES, Locks, MUTEX_BYTES, Space};

/// Which lock of a call a futex wait is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Its mutex.
    Mutex,
    /// Its condition variable.
    Condition,
}

/// The calls that are open and the mutexes that are held.
#[derive(Debug)]
pub(super) struct Calls {
    /// What a call's futex waits add up to before the first: nothing, or unknown if they are not recorded.
    none_yet: Share,
    /// Usually one per task; a signal handler may call inside a call.
    open: FxHashMap<TaskKey, Vec<Call>>,
    held: FxHashMap<(Space, u64), Holder>,
}

#[derive(Clone, Copy, Debug)]
struct Holder {
    key: TaskKey,
    task: TaskId,
    /// How often: a recursive mutex.
    depth: u32,
}

#[derive(Debug)]
struct Call {
    api: u8,
    address: u64,
    mutex: LockId,
    ts_ns: i64,
    stack: Option<StackId>,
    /// Events were lost since it began: it may be another call by now.
    stale: bool,
    /// Since then the task waited on its mutex or condition: if it is another call, it is one on the same lock.
    same_lock: bool,
    /// Since when it waits for the mutex, if it does.
    waits_since: Option<i64>,
    for_mutex: Share,
    condition: Option<Condition>,
}

#[derive(Debug)]
struct Condition {
    address: u64,
    lock: LockId,
    share: Share,
    /// How often the task held the mutex before.
    depth: u32,
}

/// What the futex waits of a call add up to.
#[derive(Clone, Copy, Debug)]
struct Share {
    sums: Option<Sums>,
    waker: Option<(TaskId, Option<StackId>)>,
}

impl Share {
    const NOTHING: Self = Self { sums: Some(Sums { blocked_ns: 0, runq_ns: 0 }), waker: None };

    fn add(&mut self, sums: Option<Sums>, waker: Option<(TaskId, Option<StackId>)>) {
        self.sums = match (self.sums, sums) {
            (Some(a), Some(b)) => {
                Some(Sums { blocked_ns: a.blocked_ns + b.blocked_ns, runq_ns: a.runq_ns + b.runq_ns })
            }
            _ => None,
        };
        self.waker = waker.or(self.waker);
    }
}

fn is_condition_wait(function: u8) -> bool {
    matches!(function, api::COND_WAIT | api::COND_TIMEDWAIT | api::COND_CLOCKWAIT)
}

/// The lock's owner died with it: the caller owns it now all the same.
const OWNER_DEAD: i32 = libc::EOWNERDEAD;

impl Calls {
    /// Without open calls; `futexes` says whether futex waits are recorded.
    pub(super) fn new(futexes: bool) -> Self {
        let none_yet = if futexes { Share::NOTHING } else { Share { sums: None, ..Share::NOTHING } };
        Self { none_yet, open: FxHashMap::default(), held: FxHashMap::default() }
    }

    /// A function was entered.
    pub(super) fn call(
        &mut self,
        moment: &Moment,
        event: &WireEvent,
        locks: &mut Locks,
        unpaired: &mut u64,
        out: &mut Vec<Event>,
    ) {
        let address = event.address;
        let mutex = locks.id(moment.space, address, LockKind::PthreadMutex, moment.ts_ns);
        let mut call = Call {
            api: event.detail,
            address,
            mutex,
            ts_ns: moment.ts_ns,
            stack: moment.stack,
            stale: false,
            same_lock: false,
            waits_since: None,
            for_mutex: self.none_yet,
            condition: None,
        };
        if is_condition_wait(call.api) {
            let lock = locks.id(moment.space, event.extra, LockKind::CondVar, moment.ts_ns);
            let depth = self.held.remove(&(moment.space, address)).map_or(1, |holder| holder.depth);
            out.push(exclusive(moment.row(EventKind::Release, mutex)));
            out.push(moment.row(EventKind::Wait, lock));
            call.condition = Some(Condition { address: event.extra, lock, share: self.none_yet, depth });
        } else if call.api != api::MUTEX_TRYLOCK
            && let Some(owner) = self.other_holder(moment, address)
        {
            call.waits_since = Some(moment.ts_ns);
            out.push(wait_row(moment, mutex, moment.stack, Some(owner)));
        }
        let open = self.open.entry(moment.key).or_default();
        if open.len() >= MOST_NESTED {
            // Calls that were left by longjmp or by an exception never return.
            open.remove(0);
            *unpaired += 1;
        }
        open.push(call);
    }

    /// A function returned.
    pub(super) fn returned(
        &mut self,
        moment: &Moment,
        event: &WireEvent,
        locks: &mut Locks,
        unpaired: &mut u64,
        out: &mut Vec<Event>,
    ) {
        let errno = Some(event.value as i32).filter(|&value| value != 0);
        let open = self.open.entry(moment.key).or_default();
        // The kernel side can't read a return's address; where another source gives one, it has to agree.
        let agrees = |call: &Call| event.address == 0 || call.address == event.address;
        let matching = open.iter().rposition(|call| call.api == event.detail && agrees(call));
        let Some(index) = matching else {
            *unpaired += 1;
            self.returned_of_unknown(moment, event.detail, event.address, errno, locks, out);
            return;
        };
        // Calls above it were left without a return.
        *unpaired += (open.len() - index - 1) as u64;
        open.truncate(index + 1);
        let Some(call) = open.pop() else { return };
        locks.touch(call.mutex, moment.ts_ns);
        if call.stale && event.address == 0 && !call.same_lock {
            // The return may be that of a call on another lock, of which nothing is known.
            *unpaired += 1;
        } else if call.stale {
            self.returned_of_unknown(moment, call.api, call.address, errno, locks, out);
        } else if let Some(condition) = &call.condition {
            locks.touch(condition.lock, moment.ts_ns);
            self.condition_returned(moment, &call, condition, errno, out);
        } else {
            self.lock_returned(moment, &call, errno, out);
        }
    }

    fn lock_returned(&mut self, moment: &Moment, call: &Call, errno: Option<i32>, out: &mut Vec<Event>) {
        match errno {
            None | Some(OWNER_DEAD) => self.acquired(moment, call, 1, errno, out),
            Some(_) if call.waits_since.is_some() => {
                let row = call.end_of_wait(moment, errno);
                out.push(Event { kind: EventKind::Abandon, peer_task: None, peer_stack: None, ..row });
            }
            Some(_) => {
                let row = Event { stack: call.stack, errno, ..moment.row(EventKind::TryFail, call.mutex) };
                out.push(exclusive(row));
            }
        }
    }

    fn condition_returned(
        &mut self,
        moment: &Moment,
        call: &Call,
        condition: &Condition,
        errno: Option<i32>,
        out: &mut Vec<Event>,
    ) {
        let sums = condition.share.sums;
        let waited = OpenWait { lock: condition.lock, ts_ns: call.ts_ns, stack: call.stack, sums: None };
        let signalled = Moment { waker: condition.share.waker, ..*moment };
        let failed = errno.filter(|&errno| errno != OWNER_DEAD);
        out.push(Event {
            blocked_ns: sums.map(|s| s.blocked_ns),
            runq_ns: sums.map(|s| s.runq_ns),
            ..signalled.end_of(&waited, failed)
        });
        // Whatever it returns, the caller has the mutex: after a signal, after a timeout, and after arguments that
        // were refused before the mutex was given back.
        self.acquired(moment, call, condition.depth, errno.filter(|&errno| errno == OWNER_DEAD), out);
    }

    fn acquired(
        &mut self,
        moment: &Moment,
        call: &Call,
        depth: u32,
        errno: Option<i32>,
        out: &mut Vec<Event>,
    ) {
        self.hold(moment, call.address, depth);
        out.push(call.end_of_wait(moment, errno));
    }

    /// The return of a call whose begin is not known, or not for certain: what it returned is, and nothing else.
    fn returned_of_unknown(
        &mut self,
        moment: &Moment,
        function: u8,
        address: u64,
        errno: Option<i32>,
        locks: &mut Locks,
        out: &mut Vec<Event>,
    ) {
        if address == 0 {
            return;
        }
        let mutex = locks.id(moment.space, address, LockKind::PthreadMutex, moment.ts_ns);
        if matches!(errno, None | Some(OWNER_DEAD)) || is_condition_wait(function) {
            self.hold(moment, address, 1);
            let row = moment.end_of_unknown(mutex, None);
            let errno = errno.filter(|&errno| errno == OWNER_DEAD);
            out.push(exclusive(Event { errno, peer_task: None, peer_stack: None, ..row }));
        } else {
            let row = Event { stack: None, errno, ..moment.row(EventKind::TryFail, mutex) };
            out.push(exclusive(row));
        }
    }

    /// A mutex was given back.
    pub(super) fn unlock(&mut self, moment: &Moment, address: u64, locks: &mut Locks, out: &mut Vec<Event>) {
        let mutex = locks.id(moment.space, address, LockKind::PthreadMutex, moment.ts_ns);
        out.push(exclusive(moment.row(EventKind::Release, mutex)));
        match self.held.get_mut(&(moment.space, address)) {
            Some(holder) if holder.key == moment.key && holder.depth > 1 => holder.depth -= 1,
            _ => {
                self.held.remove(&(moment.space, address));
            }
        }
    }

    /// A mutex was initialised.
    pub(super) fn init(&mut self, moment: &Moment, address: u64, locks: &mut Locks, out: &mut Vec<Event>) {
        self.held.remove(&(moment.space, address));
        let kind = LockKind::PthreadMutex;
        let mutex = locks.begin(moment.space, address, kind, moment.ts_ns, moment.stack);
        out.push(moment.row(EventKind::Init, mutex));
    }

    /// A mutex was destroyed.
    pub(super) fn destroy(&mut self, moment: &Moment, address: u64, locks: &mut Locks, out: &mut Vec<Event>) {
        self.held.remove(&(moment.space, address));
        let mutex = locks.id(moment.space, address, LockKind::PthreadMutex, moment.ts_ns);
        out.push(moment.row(EventKind::Destroy, mutex));
        locks.end(moment.space, address, LockKind::PthreadMutex);
    }

    /// A futex wait began. Says of what it is a part, if the task is in a call that uses this word; the first wait
    /// for a mutex that seemed free is the begin of the call's wait.
    pub(super) fn futex_wait(&mut self, moment: &Moment, word: u64, out: &mut Vec<Event>) -> Option<Part> {
        let call = self.open.get(&moment.key)?.last()?;
        if call.condition.as_ref().is_some_and(|c| within(word, c.address, COND_BYTES)) {
            return Some(Part::Condition);
        }
        if !within(word, call.address, MUTEX_BYTES) {
            return None;
        }
        if !call.stale && call.waits_since.is_none() {
            let owner = self.other_holder(moment, call.address);
            out.push(wait_row(moment, call.mutex, call.stack, owner));
            let call = self.open.get_mut(&moment.key)?.last_mut()?;
            call.waits_since = Some(moment.ts_ns);
        }
        Some(Part::Mutex)
    }

    /// The task's futex wait on `word` began or ended: its open call is about the lock around that word.
    pub(super) fn futex_seen(&mut self, moment: &Moment, word: u64) {
        let Some(call) = self.open.get_mut(&moment.key).and_then(|open| open.last_mut()) else { return };
        let condition = call.condition.as_ref().map(|condition| condition.address);
        call.same_lock |= within(word, call.address, MUTEX_BYTES)
            || condition.is_some_and(|address| within(word, address, COND_BYTES));
    }

    /// A futex wait that is a part of a call ended.
    pub(super) fn futex_wait_done(&mut self, moment: &Moment, part: Part, sums: Option<Sums>) {
        let Some(call) = self.open.get_mut(&moment.key).and_then(|open| open.last_mut()) else { return };
        match (part, &mut call.condition) {
            (Part::Condition, Some(condition)) => condition.share.add(sums, moment.waker),
            _ => call.for_mutex.add(sums, moment.waker),
        }
    }

    /// The task is gone. Returns how many calls it leaves open.
    pub(super) fn forget(&mut self, key: TaskKey) -> u64 {
        self.open.remove(&key).map_or(0, |open| open.len() as u64)
    }

    /// Events are missing: a call that is open may be another one by now, and a mutex may have another holder.
    pub(super) fn lost(&mut self) {
        self.held.clear();
        for call in self.open.values_mut().flatten() {
            (call.stale, call.same_lock) = (true, false);
        }
    }

    fn hold(&mut self, moment: &Moment, address: u64, depth: u32) {
        let mine = Holder { key: moment.key, task: moment.task, depth };
        self.held
            .entry((moment.space, address))
            .and_modify(|holder| if holder.key == mine.key { holder.depth += depth } else { *holder = mine })
            .or_insert(mine);
    }

    fn other_holder(&self, moment: &Moment, address: u64) -> Option<TaskId> {
        let holder = self.held.get(&(moment.space, address))?;
        (holder.key != moment.key).then_some(holder.task)
    }
}

/// Calls of one task that may be open at once.
const MOST_NESTED: usize = 16;

impl Call {
    /// The acquisition of the mutex, or with the kind changed, the end of the wait for it.
    fn end_of_wait(&self, moment: &Moment, errno: Option<i32>) -> Event {
        let waited = self.waits_since.map(|since| (moment.ts_ns - since).max(0));
        let share = if waited.is_some() { self.for_mutex } else { Share::NOTHING };
        exclusive(Event {
            stack: self.stack,
            wait_ns: Some(waited.unwrap_or(0)),
            blocked_ns: share.sums.map(|s| s.blocked_ns),
            runq_ns: share.sums.map(|s| s.runq_ns),
            peer_task: share.waker.map(|(task, _)| task),
            peer_stack: share.waker.and_then(|(_, stack)| stack),
            errno,
            ..moment.row(EventKind::Acquire, self.mutex)
        })
    }
}

fn wait_row(moment: &Moment, mutex: LockId, stack: Option<StackId>, owner: Option<TaskId>) -> Event {
    exclusive(Event { stack, peer_task: owner, ..moment.row(EventKind::Wait, mutex) })
}

fn exclusive(row: Event) -> Event {
    Event { mode: Some(Mode::Exclusive), ..row }
}

fn within(word: u64, start: u64, bytes: u64) -> bool {
    word.wrapping_sub(start) < bytes
}

#[cfg(test)]
mod tests;
