//! The locks of the C library by their functions: calls, returns and releases in, the life of a lock out.
//!
//! A call is contended if another task holds the lock when it begins, or if it waits on the lock's futex; never
//! because it took long. A wait on a condition variable gives the mutex back and takes it again: a release, a wait
//! on the condition (idling, not contention), and a new acquisition at the place of the call. A barrier is waited for by
//! every caller, the last one included. Semaphores, barriers and condition variables are held by nobody.

use rustc_hash::FxHashMap;
use trace_format::{
    Event, EventKind, Mode, TaskId,
    wire::{WireEvent, api, code},
};

use super::{Moment, TaskKey};
use crate::{locks::Locks, tasks::Tasks};

mod call;
mod futexes;
mod holders;
mod life;
mod object;

use call::{Call, Condition, Share};
pub(super) use futexes::Part;
use holders::Holders;
use object::{Says, is_full, kind_of, mode_of, says};

/// The calls that are open and the locks that are held.
#[derive(Debug)]
pub(super) struct Calls {
    /// What a call's futex waits add up to before the first: nothing, or unknown if they are not recorded.
    none_yet: Share,
    /// Usually one per task; a signal handler may call inside a call.
    open: FxHashMap<TaskKey, Vec<Call>>,
    held: Holders,
}

/// What a record meets: the tables that it is looked up in, and where its rows go.
pub(super) struct Around<'a> {
    pub(super) tasks: &'a mut Tasks,
    pub(super) locks: &'a mut Locks,
    pub(super) unpaired: &'a mut u64,
    pub(super) out: &'a mut Vec<Event>,
}

/// The lock's owner died with it: the caller owns it now all the same.
const OWNER_DEAD: i32 = libc::EOWNERDEAD;

/// Calls of one task that may be open at once.
const MOST_NESTED: usize = 16;

impl Calls {
    /// Without open calls; `futexes` says whether futex waits are recorded.
    pub(super) fn new(futexes: bool) -> Self {
        let none_yet = if futexes { Share::NOTHING } else { Share::UNKNOWN };
        Self { none_yet, open: FxHashMap::default(), held: Holders::default() }
    }

    /// Takes a record of a user lock.
    pub(super) fn record(&mut self, moment: &Moment, event: &WireEvent, around: &mut Around<'_>) {
        match event.code {
            code::CALL => self.call(moment, event, around),
            code::RETURN => self.returned(moment, event, around),
            code::TAKEN => self.taken(moment, event, around),
            code::UNLOCK => self.unlock(moment, event, around),
            code::INIT => self.init(moment, event, around),
            code::DESTROY => self.destroy(moment, event, around),
            code::POST if !is_full(event) => {
                let lock = around.lock(moment, event);
                around.out.push(moment.row(EventKind::Wake, lock));
            }
            _ => {}
        }
    }

    /// A function was entered.
    fn call(&mut self, moment: &Moment, event: &WireEvent, around: &mut Around<'_>) {
        let object = api::object(event.detail);
        if api::way(event.detail) == api::RETRIES && self.has_open(moment, event) {
            return;
        }
        let waits_for_condition = object == api::CONDITION;
        let lock = if waits_for_condition { around.mutex(moment, event) } else { around.lock(moment, event) };
        let mut call = Call::new(moment, event, lock, self.none_yet);
        call.is_refused = !waits_for_condition && event.extra != 0;
        call.takes_over = says(event) == Says::Orphaned;
        if waits_for_condition {
            let lock = around.locks.id(moment.space, event.extra, kind_of(object), moment.ts_ns);
            let depth = self.held.put_down(moment, event.address).unwrap_or(1);
            around.out.push(exclusive(moment.row(EventKind::Release, call.lock)));
            around.out.push(moment.row(EventKind::Wait, lock));
            call.condition = Some(Condition { address: event.extra, lock, share: self.none_yet, depth });
        } else if !call.tries()
            && !call.is_refused
            && let Some(owner) = self.in_the_way(moment, event, around)
        {
            call.waits_since = Some(moment.ts_ns);
            around.out.push(call.wait(moment, owner));
        }
        let open = self.open.entry(moment.key).or_default();
        if open.len() >= MOST_NESTED {
            // Calls that were left by longjmp or by an exception never return.
            open.remove(0);
            *around.unpaired += 1;
        }
        open.push(call);
    }

    /// Whether the call that begins has to wait, and for whom, if that is known.
    fn in_the_way(
        &self,
        moment: &Moment,
        event: &WireEvent,
        around: &mut Around<'_>,
    ) -> Option<Option<TaskId>> {
        let object = api::object(event.detail);
        let Some(mode) = mode_of(object) else {
            let waits = object == api::BARRIER || says(event) == Says::Taken(0);
            return waits.then_some(None);
        };
        let (says, holder) = (says(event), self.held.in_the_way(moment, event.address, mode));
        if api::way(event.detail) == api::RETRIES {
            return Some(holder);
        }
        if matches!(says, Says::Free | Says::Orphaned) {
            return None;
        }
        if holder.is_some() {
            return Some(holder);
        }
        // Of a lock that nobody holds by the records, the word may still say so while its release is under way.
        let Says::Taken(owner) = says else { return None };
        if self.held.are_known(moment, event.address) {
            return None;
        }
        // It was taken before the recording began, or the record of that is lost.
        if object == api::SPIN {
            return Some(None);
        }
        let is_other = owner != 0 && owner != event.tid;
        is_other.then(|| around.tasks.thread(event.tgid, owner)).flatten().map(Some)
    }

    /// A function returned.
    fn returned(&mut self, moment: &Moment, event: &WireEvent, around: &mut Around<'_>) {
        let open = self.open.entry(moment.key).or_default();
        // The kernel side can't read a return's address; where another source gives one, it has to agree.
        let agrees = |call: &Call| event.address == 0 || call.address == event.address;
        let matching = open.iter().rposition(|call| call.api == event.detail && agrees(call));
        let Some(index) = matching else {
            *around.unpaired += 1;
            self.returned_of_unknown(moment, event, event.address, around);
            return;
        };
        // Calls above it were left without a return.
        *around.unpaired += (open.len() - index - 1) as u64;
        open.truncate(index + 1);
        let Some(call) = open.pop() else { return };
        around.locks.touch(call.lock, moment.ts_ns);
        if call.stale && event.address == 0 && !call.same_lock {
            // The return may be that of a call on another lock, of which nothing is known.
            *around.unpaired += 1;
        } else if call.stale {
            self.returned_of_unknown(moment, event, call.address, around);
        } else if let Some(condition) = &call.condition {
            around.locks.touch(condition.lock, moment.ts_ns);
            self.condition_returned(moment, &call, condition, errno_of(event), around.out);
        } else {
            self.lock_returned(moment, &call, event, around.out);
        }
    }

    /// Whether the task's last call is the one of this record.
    fn has_open(&self, moment: &Moment, event: &WireEvent) -> bool {
        let last = self.open.get(&moment.key).and_then(|open| open.last());
        last.is_some_and(|call| call.api == event.detail && call.address == event.address && !call.stale)
    }

    /// A lock was taken by a function of which neither the begin nor the return is recorded.
    fn taken(&mut self, moment: &Moment, event: &WireEvent, around: &mut Around<'_>) {
        let waited = if self.has_open(moment, event) {
            self.open.get_mut(&moment.key).and_then(Vec::pop)
        } else {
            // A call that is stale may be this one: then it waited, who knows for how long.
            let open = self.open.entry(moment.key).or_default();
            let stale = open.pop_if(|call| call.api == event.detail && call.stale);
            if stale.is_some() {
                return self.returned_of_unknown(moment, event, event.address, around);
            }
            None
        };
        let lock = around.lock(moment, event);
        let call = waited.unwrap_or_else(|| Call::new(moment, event, lock, self.none_yet));
        self.lock_returned(moment, &call, event, around.out);
    }

    fn lock_returned(&mut self, moment: &Moment, call: &Call, event: &WireEvent, out: &mut Vec<Event>) {
        if has_it(event) {
            if let Some(mode) = call.mode() {
                self.held.acquired(moment, call.address, mode, 1);
            }
            out.push(call.acquisition(moment, errno_of(event).filter(|&errno| errno == OWNER_DEAD)));
            return;
        }
        let is_semaphore = api::object(call.api) == api::SEMAPHORE;
        let errno = if is_semaphore { semaphore_errno(call) } else { errno_of(event) };
        let waited = call.waits_since.is_some();
        out.push(if waited { call.abandonment(moment, errno) } else { call.failure(moment, errno) });
    }

    fn condition_returned(
        &mut self,
        moment: &Moment,
        call: &Call,
        condition: &Condition,
        errno: Option<i32>,
        out: &mut Vec<Event>,
    ) {
        let failed = errno.filter(|&errno| errno != OWNER_DEAD);
        out.push(call.condition_end(moment, condition, failed));
        // The caller has the mutex after a signal, after a timeout, and after arguments that were refused before the
        // mutex was given back; not if it never had it, or if nobody can have it any more.
        if !matches!(failed, Some(libc::EPERM | libc::ENOTRECOVERABLE)) {
            self.held.acquired(moment, call.address, Mode::Exclusive, condition.depth);
            out.push(call.acquisition(moment, errno.filter(|&errno| errno == OWNER_DEAD)));
        }
    }

    /// The return of a call whose begin is not known, or not for certain: what it returned is, and nothing else.
    fn returned_of_unknown(
        &mut self,
        moment: &Moment,
        event: &WireEvent,
        address: u64,
        around: &mut Around<'_>,
    ) {
        if address == 0 {
            return;
        }
        let of_condition = api::object(event.detail) == api::CONDITION;
        let object = if of_condition { api::MUTEX } else { api::object(event.detail) };
        let (lock, mode) =
            (around.locks.id(moment.space, address, kind_of(object), moment.ts_ns), mode_of(object));
        let errno = errno_of(event);
        if has_it(event) || of_condition {
            if let Some(mode) = mode {
                self.held.acquired(moment, address, mode, 1);
            }
            let row = moment.end_of_unknown(lock, None);
            let errno = errno.filter(|&errno| errno == OWNER_DEAD);
            around.out.push(Event { errno, mode, peer_task: None, peer_stack: None, ..row });
        } else {
            let errno = errno.filter(|&errno| errno > 0);
            around.out.push(Event { stack: None, errno, mode, ..moment.row(EventKind::TryFail, lock) });
        }
    }

    /// The task is gone. Returns how many calls it leaves open.
    pub(super) fn forget(&mut self, key: TaskKey) -> u64 {
        self.open.remove(&key).map_or(0, |open| open.len() as u64)
    }

    /// Events are missing: a call that is open may be another one by now, and a lock may have another holder.
    pub(super) fn lost(&mut self) {
        self.held.lost();
        for call in self.open.values_mut().flatten() {
            (call.stale, call.same_lock) = (true, false);
        }
    }
}

impl Around<'_> {
    /// The lock that a record is about.
    fn lock(&mut self, moment: &Moment, event: &WireEvent) -> trace_format::LockId {
        let kind = kind_of(api::object(event.detail));
        self.locks.id(moment.space, event.address, kind, moment.ts_ns)
    }

    /// The mutex of a condition wait.
    fn mutex(&mut self, moment: &Moment, event: &WireEvent) -> trace_format::LockId {
        self.locks.id(moment.space, event.address, kind_of(api::MUTEX), moment.ts_ns)
    }
}

/// Whether what the function returned means that the caller has the lock, or may pass.
fn has_it(event: &WireEvent) -> bool {
    match api::object(event.detail) {
        // One of the callers gets `PTHREAD_BARRIER_SERIAL_THREAD`, which is -1.
        api::BARRIER => matches!(event.value, 0 | -1),
        _ => matches!(errno_of(event), None | Some(OWNER_DEAD)),
    }
}

/// What the function returned, if not 0: an errno, but of semaphores and barriers.
fn errno_of(event: &WireEvent) -> Option<i32> {
    Some(event.value as i32).filter(|&value| value != 0)
}

/// Why a call on a semaphore failed: it returns -1, and the errno is the thread's own. `None` if nothing tells.
fn semaphore_errno(call: &Call) -> Option<i32> {
    if call.is_refused {
        return Some(libc::EINVAL);
    }
    match (api::way(call.api), call.share.errno) {
        (api::TRIES, _) => Some(libc::EAGAIN),
        (_, Some(errno)) => Some(errno),
        // No signal means that the time was over, if signals are seen.
        (api::WAITS, None) => Some(libc::EINTR),
        (_, None) => call.share.sums.map(|_| libc::ETIMEDOUT),
    }
}

fn exclusive(row: Event) -> Event {
    Event { mode: Some(Mode::Exclusive), ..row }
}

#[cfg(test)]
mod tests;
