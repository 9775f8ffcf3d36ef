//! What is known of a task while it waits: for how long it slept and stood in the run queue, and who woke it.
//!
//! Sums only grow while an entry lives, so a wait's own share is the difference of two readings; the host subtracts.
//! An entry lives from a task's first begin of a wait to the end of its last one; where only some acquisitions are
//! recorded, until the function that waited has returned.

use aya_ebpf::bindings::BPF_ANY;
use trace_format::wire::{WireEvent, flag, stack};

use crate::{config, filter::Task, maps::WAITING};

/// Kernel locks that a task waits for at once: one, and those that interrupts want on top. Deeper ones are counted.
const DEPTH: usize = 4;

/// `futex_command` of a task that is in no futex call.
const NO_FUTEX: u32 = u32::MAX;

/// A task that waits.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct WaitState {
    blocked_ns: u64,
    runq_ns: u64,
    /// When it left the CPU; 0 while it is on one.
    off_ns: u64,
    /// When it became ready to run; 0 while it sleeps.
    ready_ns: u64,
    /// The futex call that it is in.
    futex_address: u64,
    futex_extra: u64,
    /// What the sums were when the futex call began, and when that was.
    futex_begin: Begin,
    /// The kernel locks that it waits for, innermost last.
    locks: [u64; DEPTH],
    /// The same for each of these waits.
    lock_begins: [Begin; DEPTH],
    /// The kernel lock that it waited for last, if the function that takes it has not returned yet: 0 is none.
    told_lock: u64,
    /// How often it had been woken when each of those waits began, and when the futex call did.
    lock_wakes: [u32; DEPTH],
    futex_wakes: u32,
    /// How often it was woken.
    wakes: u32,
    depth: u32,
    /// Locks beyond `DEPTH`.
    deeper: u32,
    futex_command: u32,
    peer_tgid: u32,
    /// 0: nobody.
    peer_tid: u32,
    peer_kernel_stack: i32,
    peer_user_stack: i32,
    /// Of each wait for a kernel lock: the flags of its begin, and whether it is recorded.
    lock_flags: [u8; DEPTH],
    lock_chosen: [u8; DEPTH],
    padding: u32,
}

/// The begin of a wait: when, and what the sums were.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Begin {
    pub(crate) ts_ns: u64,
    blocked_ns: u64,
    runq_ns: u64,
}

impl Begin {
    const NEVER: Self = Self { ts_ns: 0, blocked_ns: 0, runq_ns: 0 };
}

/// How a function that takes a lock ended a wait.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It did not wait.
    Nothing,
    /// The end of its wait has its own record, or is not recorded.
    Told,
    /// Its wait ends with it, and is recorded.
    Wait,
    /// Its wait ends with it, and is not recorded.
    Unchosen,
}

/// A futex call under way.
pub(crate) struct FutexCall {
    pub(crate) address: u64,
    pub(crate) extra: u64,
    pub(crate) command: u32,
}

impl WaitState {
    const EMPTY: Self = Self {
        blocked_ns: 0,
        runq_ns: 0,
        off_ns: 0,
        ready_ns: 0,
        futex_address: 0,
        futex_extra: 0,
        futex_begin: Begin::NEVER,
        locks: [0; DEPTH],
        lock_begins: [Begin::NEVER; DEPTH],
        told_lock: 0,
        lock_wakes: [0; DEPTH],
        futex_wakes: 0,
        wakes: 0,
        depth: 0,
        deeper: 0,
        futex_command: NO_FUTEX,
        peer_tgid: 0,
        peer_tid: 0,
        peer_kernel_stack: stack::NONE,
        peer_user_stack: stack::NONE,
        lock_flags: [0; DEPTH],
        lock_chosen: [0; DEPTH],
        padding: 0,
    };

    /// The state of a task that waits.
    #[inline(always)]
    pub(crate) fn of(tid: u32) -> Option<&'static mut Self> {
        // SAFETY: the value stays in the map's memory; fields are plain integers, and a race with the scheduler
        // programs of another CPU costs at most one wrong duration of a task that is being woken that very moment.
        WAITING.get_ptr_mut(tid).map(|state| unsafe { &mut *state })
    }

    /// The state of the current task, made if it has none. The idle task never sleeps and needs none.
    #[inline(always)]
    pub(crate) fn begin(task: Task) -> Option<&'static mut Self> {
        if task.tid == 0 {
            return None;
        }
        if Self::of(task.tid).is_none() {
            let _ = WAITING.insert(task.tid, Self::EMPTY, BPF_ANY as u64);
        }
        Self::of(task.tid)
    }

    /// Whether the task waits for this kernel lock, and for no other one inside that.
    #[inline(always)]
    pub(crate) fn waits_for(&self, address: u64) -> bool {
        self.depth > 0 && self.locks[self.innermost()] == address
    }

    /// Whether it waits for more locks than are kept apart.
    #[inline(always)]
    pub(crate) fn is_deeper(&self) -> bool {
        self.deeper > 0
    }

    #[inline(always)]
    fn innermost(&self) -> usize {
        (self.depth as usize).wrapping_sub(1) & (DEPTH - 1)
    }

    /// Notes that the task waits for a kernel lock from now on, and whether that is recorded.
    #[inline(always)]
    pub(crate) fn push_lock(&mut self, address: u64, flags: u8, chosen: bool, now_ns: u64) {
        let depth = self.depth;
        if depth < DEPTH as u32 {
            let at = depth as usize & (DEPTH - 1);
            self.locks[at] = address;
            self.lock_wakes[at] = self.wakes;
            self.lock_begins[at] = self.now(now_ns);
            self.lock_flags[at] = flags;
            self.lock_chosen[at] = u8::from(chosen);
            self.depth = depth + 1;
        } else {
            self.deeper += 1;
        }
    }

    /// Whether the innermost wait is recorded.
    #[inline(always)]
    pub(crate) fn is_chosen(&self) -> bool {
        self.lock_chosen[self.innermost()] != 0
    }

    /// The flags of the begin of the innermost wait.
    #[inline(always)]
    pub(crate) fn flags(&self) -> u8 {
        self.lock_flags[self.innermost()]
    }

    /// The begin of the innermost wait.
    #[inline(always)]
    pub(crate) fn begin_of_wait(&self) -> Begin {
        self.lock_begins[self.innermost()]
    }

    /// The begin of the futex call.
    #[inline(always)]
    pub(crate) fn begin_of_futex(&self) -> Begin {
        self.futex_begin
    }

    /// Notes that the wait for a kernel lock is over.
    #[inline(always)]
    pub(crate) fn pop_lock(&mut self, address: u64) {
        if self.waits_for(address) {
            self.depth -= 1;
        } else if self.deeper > 0 {
            self.deeper -= 1;
        } else {
            // An end whose begin was not seen: what is on the stack can't be trusted.
            self.depth = 0;
        }
    }

    /// Notes that the end of a wait was told, while the function that waited goes on.
    #[inline(always)]
    pub(crate) fn tell(&mut self, address: u64) {
        self.told_lock = address;
    }

    /// A function that takes this lock returns: what that means for the waits that are known.
    #[inline(always)]
    pub(crate) fn function_returned(&mut self, address: u64) -> Ended {
        if self.told_lock == address {
            self.told_lock = 0;
            return Ended::Told;
        }
        if config::slow_kinds() != 0 && self.waits_for(address) {
            return if self.is_chosen() { Ended::Wait } else { Ended::Unchosen };
        }
        Ended::Nothing
    }

    /// A moment with the present sums.
    #[inline(always)]
    fn now(&self, ts_ns: u64) -> Begin {
        Begin { ts_ns, blocked_ns: self.blocked_ns, runq_ns: self.runq_ns }
    }

    /// Notes the futex call that the task entered.
    #[inline(always)]
    pub(crate) fn enter_futex(&mut self, call: &FutexCall, now_ns: u64) {
        self.futex_begin = self.now(now_ns);
        self.futex_address = call.address;
        self.futex_extra = call.extra;
        self.futex_command = call.command;
        self.futex_wakes = self.wakes;
    }

    /// The futex call that the task leaves.
    #[inline(always)]
    pub(crate) fn leave_futex(&mut self) -> Option<FutexCall> {
        if self.futex_command == NO_FUTEX {
            return None;
        }
        let call =
            FutexCall { address: self.futex_address, extra: self.futex_extra, command: self.futex_command };
        self.futex_command = NO_FUTEX;
        Some(call)
    }

    /// Removes the state if the task waits for nothing any more.
    #[inline(always)]
    pub(crate) fn end_if_idle(&self, tid: u32) {
        if self.depth == 0 && self.deeper == 0 && self.futex_command == NO_FUTEX && self.told_lock == 0 {
            Self::forget(tid);
        }
    }

    /// Removes the state of a task.
    #[inline(always)]
    pub(crate) fn forget(tid: u32) {
        let _ = WAITING.remove(tid);
    }

    /// The task leaves the CPU, asleep or still ready to run. `being_woken`: somebody wakes it already, between its
    /// going to sleep and now, and is the one who ends this sleep.
    #[inline(always)]
    pub(crate) fn switched_out(&mut self, now_ns: u64, ready: bool, being_woken: bool) {
        self.off_ns = now_ns;
        if ready {
            self.ready_ns = now_ns;
        } else {
            self.ready_ns = 0;
            if !being_woken {
                self.peer_tid = 0;
            }
        }
    }

    /// The task is on a CPU again.
    #[inline(always)]
    pub(crate) fn switched_in(&mut self, now_ns: u64) {
        if self.off_ns == 0 {
            return;
        }
        let ready_ns = if self.ready_ns < self.off_ns { now_ns } else { self.ready_ns };
        self.blocked_ns += ready_ns.wrapping_sub(self.off_ns);
        self.runq_ns += now_ns.saturating_sub(ready_ns);
        self.off_ns = 0;
        self.ready_ns = 0;
    }

    /// The task became ready to run.
    #[inline(always)]
    pub(crate) fn ready(&mut self, now_ns: u64) {
        if self.off_ns != 0 {
            self.ready_ns = now_ns;
        }
    }

    /// Another task wakes this one.
    #[inline(always)]
    pub(crate) fn woken_by(&mut self, waker: Task, kernel_stack: i32, user_stack: i32) {
        self.wakes = self.wakes.wrapping_add(1);
        self.peer_tgid = waker.tgid;
        self.peer_tid = waker.tid;
        self.peer_kernel_stack = kernel_stack;
        self.peer_user_stack = user_stack;
    }

    /// Puts the sums into an event.
    #[inline(always)]
    pub(crate) fn describe(&self, event: &mut WireEvent) {
        event.blocked_ns = self.blocked_ns;
        event.runq_ns = self.runq_ns;
    }

    /// Puts a wait's own share of the sums and its begin into the event that ends it, which is then its only one.
    #[inline(always)]
    pub(crate) fn describe_whole(&self, begin: Begin, event: &mut WireEvent) {
        event.extra = begin.ts_ns;
        event.blocked_ns = self.blocked_ns.wrapping_sub(begin.blocked_ns);
        event.runq_ns = self.runq_ns.wrapping_sub(begin.runq_ns);
    }

    /// Puts the waker into the event that ends the wait for a kernel lock.
    #[inline(always)]
    pub(crate) fn name_waker_of_lock(&self, address: u64, event: &mut WireEvent) {
        if self.waits_for(address) {
            self.name_waker(self.lock_wakes[self.innermost()], event);
        }
    }

    /// Puts the waker into the event that ends a futex wait.
    #[inline(always)]
    pub(crate) fn name_waker_of_futex(&self, event: &mut WireEvent) {
        self.name_waker(self.futex_wakes, event);
    }

    /// A wake-up from before the wait began belongs to one around it: a task that comes out of a futex wait still has to
    /// take the spinlock of the futex's queue.
    #[inline(always)]
    fn name_waker(&self, wakes_before: u32, event: &mut WireEvent) {
        if self.peer_tid != 0 && self.wakes != wakes_before {
            event.flags |= flag::PEER;
            event.peer_tgid = self.peer_tgid;
            event.peer_tid = self.peer_tid;
            event.peer_kernel_stack = self.peer_kernel_stack;
            event.peer_user_stack = self.peer_user_stack;
        }
    }
}
