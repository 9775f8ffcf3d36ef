//! What is known of a task while it waits: for how long it slept and stood in the run queue, and who woke it.
//!
//! Sums only grow while an entry lives, so a wait's own share is the difference of two readings; the host subtracts.
//! An entry lives from a task's first begin of a wait to the end of its last one.

use aya_ebpf::bindings::BPF_ANY;
use trace_format::wire::{WireEvent, flag, stack};

use crate::{filter::Task, maps::WAITING};

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
    /// The kernel locks that it waits for, innermost last.
    locks: [u64; DEPTH],
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
    padding: u32,
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
        locks: [0; DEPTH],
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

    /// Notes that the task waits for a kernel lock; true if that is known already.
    #[inline(always)]
    pub(crate) fn push_lock(&mut self, address: u64) -> bool {
        let depth = self.depth;
        if depth > 0 && self.locks[(depth as usize - 1) & (DEPTH - 1)] == address {
            return true;
        }
        if depth < DEPTH as u32 {
            self.locks[depth as usize & (DEPTH - 1)] = address;
            self.lock_wakes[depth as usize & (DEPTH - 1)] = self.wakes;
            self.depth = depth + 1;
        } else {
            self.deeper += 1;
        }
        false
    }

    /// Notes that the wait for a kernel lock is over.
    #[inline(always)]
    pub(crate) fn pop_lock(&mut self, address: u64) {
        let depth = self.depth;
        if depth > 0 && self.locks[(depth as usize - 1) & (DEPTH - 1)] == address {
            self.depth = depth - 1;
        } else if self.deeper > 0 {
            self.deeper -= 1;
        } else {
            // An end whose begin was not seen: what is on the stack can't be trusted.
            self.depth = 0;
        }
    }

    /// Notes the futex call that the task entered.
    #[inline(always)]
    pub(crate) fn enter_futex(&mut self, call: &FutexCall) {
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
        if self.depth == 0 && self.deeper == 0 && self.futex_command == NO_FUTEX {
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

    /// Puts the waker into the event that ends the wait for a kernel lock.
    #[inline(always)]
    pub(crate) fn name_waker_of_lock(&self, address: u64, event: &mut WireEvent) {
        let innermost = (self.depth as usize).wrapping_sub(1) & (DEPTH - 1);
        if self.depth > 0 && self.locks[innermost] == address {
            self.name_waker(self.lock_wakes[innermost], event);
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
