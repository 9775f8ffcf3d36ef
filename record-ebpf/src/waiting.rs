//! The state of waiting tasks: how long they slept and stood in the run queue, and who woke them.
//!
//! Sums only grow as long as an entry exists, so that a wait's own share is the difference of two readings,
//! which the recorder computes. An entry exists from the begin of a task's first wait to the end of its last
//! one; when sampling, until the function that waited returns.

use aya_ebpf::{bindings::BPF_ANY, btf_maps::HashMap, macros::btf_map};
use trace_format::wire::{WireEvent, flag, stack};

use crate::{config, filter::Task};

/// Waiting tasks. Preallocated, without eviction: waits that do not fit are counted.
#[btf_map]
static WAITING: HashMap<u32, WaitState, 65536> = HashMap::new();

/// Maximum number of kernel locks that a task waits for at once: one, and the locks of interrupts. Deeper
/// waits are only counted.
const DEPTH: usize = 4;

/// `futex_command` of a task outside of futex calls.
const NO_FUTEX: u32 = u32::MAX;

/// The state of a waiting task.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct WaitState {
    blocked_ns: u64,
    runq_ns: u64,
    /// Time when it left the CPU; 0 while it runs.
    off_ns: u64,
    /// Time when it became runnable; 0 while it sleeps.
    ready_ns: u64,
    /// The open futex call.
    futex_address: u64,
    futex_extra: u64,
    futex_begin: Begin,
    /// The kernel locks that it waits for, innermost last.
    locks: [u64; DEPTH],
    /// The begins of these waits.
    lock_begins: [Begin; DEPTH],
    /// The kernel lock of the last wait, if its end was reported but the acquiring function has not returned
    /// yet; 0 if none.
    reported_lock: u64,
    /// Values of `wakes` at the begin of each of these waits, and of the futex call.
    lock_wakes: [u32; DEPTH],
    futex_wakes: u32,
    /// Number of wake-ups.
    wakes: u32,
    depth: u32,
    /// Number of locks beyond `DEPTH`.
    deeper: u32,
    futex_command: u32,
    peer_tgid: u32,
    /// 0 if no task woke it.
    peer_tid: u32,
    peer_kernel_stack: i32,
    peer_user_stack: i32,
    /// Flags of the begin of each of these waits, and whether the wait is recorded.
    lock_flags: [u8; DEPTH],
    lock_sampled: [u8; DEPTH],
    padding: u32,
}

/// The begin of a wait: its time, and the sums then.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Begin {
    pub(crate) ts_ns: u64,
    blocked_ns: u64,
    runq_ns: u64,
}

impl Begin {
    const NONE: Self = Self { ts_ns: 0, blocked_ns: 0, runq_ns: 0 };
}

/// The wait that the return of an acquiring function ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndedWait {
    /// The function did not wait.
    None,
    /// The end of the wait has its own record, or is not recorded.
    Reported,
    /// The wait ends with the function, and is recorded.
    Recorded,
    /// The wait ends with the function, and is not recorded.
    Skipped,
}

/// An open futex call.
pub(crate) struct FutexCall {
    pub(crate) address: u64,
    pub(crate) extra: u64,
    pub(crate) command: u32,
}

/// A state without waits. A static, because it would take most of a program's memory.
static EMPTY: WaitState = WaitState {
    blocked_ns: 0,
    runq_ns: 0,
    off_ns: 0,
    ready_ns: 0,
    futex_address: 0,
    futex_extra: 0,
    futex_begin: Begin::NONE,
    locks: [0; DEPTH],
    lock_begins: [Begin::NONE; DEPTH],
    reported_lock: 0,
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
    lock_sampled: [0; DEPTH],
    padding: 0,
};

impl WaitState {
    /// Returns the state of a waiting task.
    #[inline(always)]
    pub(crate) fn of(tid: u32) -> Option<&'static mut Self> {
        // SAFETY: the value stays in the map's memory; fields are plain integers. A race with the scheduler
        // programs of another CPU costs at most one wrong duration of a task that is being woken.
        WAITING.get_ptr_mut(tid).map(|state| unsafe { &mut *state })
    }

    /// Returns the state of the current task and creates it if necessary. The idle task never sleeps and has
    /// none.
    #[inline(always)]
    pub(crate) fn begin(task: Task) -> Option<&'static mut Self> {
        if task.tid == 0 {
            return None;
        }
        if Self::of(task.tid).is_none() {
            let _ = WAITING.insert(task.tid, &EMPTY, BPF_ANY as u64);
        }
        Self::of(task.tid)
    }

    /// Whether the innermost wait of the task is for this kernel lock.
    #[inline(always)]
    pub(crate) fn waits_for(&self, address: u64) -> bool {
        self.depth > 0 && self.locks[self.innermost()] == address
    }

    /// Whether it waits for more than `DEPTH` locks.
    #[inline(always)]
    pub(crate) fn is_deeper(&self) -> bool {
        self.deeper > 0
    }

    #[inline(always)]
    fn innermost(&self) -> usize {
        (self.depth as usize).wrapping_sub(1) & (DEPTH - 1)
    }

    /// Starts a wait for a kernel lock; `sampled` if it is recorded.
    #[inline(always)]
    pub(crate) fn push_lock(&mut self, address: u64, flags: u8, sampled: bool, now_ns: u64) {
        let depth = self.depth;
        if depth < DEPTH as u32 {
            let index = depth as usize & (DEPTH - 1);
            self.locks[index] = address;
            self.lock_wakes[index] = self.wakes;
            self.lock_begins[index] = self.begin_at(now_ns);
            self.lock_flags[index] = flags;
            self.lock_sampled[index] = u8::from(sampled);
            self.depth = depth + 1;
        } else {
            self.deeper += 1;
        }
    }

    /// Whether the innermost wait is recorded.
    #[inline(always)]
    pub(crate) fn is_sampled(&self) -> bool {
        self.lock_sampled[self.innermost()] != 0
    }

    /// Returns the flags of the begin of the innermost wait.
    #[inline(always)]
    pub(crate) fn flags(&self) -> u8 {
        self.lock_flags[self.innermost()]
    }

    /// Returns the begin of the innermost wait.
    #[inline(always)]
    pub(crate) fn begin_of_wait(&self) -> Begin {
        self.lock_begins[self.innermost()]
    }

    /// Returns the begin of the futex call.
    #[inline(always)]
    pub(crate) fn begin_of_futex(&self) -> Begin {
        self.futex_begin
    }

    /// Ends the wait for a kernel lock.
    #[inline(always)]
    pub(crate) fn pop_lock(&mut self, address: u64) {
        if self.waits_for(address) {
            self.depth -= 1;
        } else if self.deeper > 0 {
            self.deeper -= 1;
        } else {
            // The begin of this wait was not seen, so the stored waits are not reliable.
            self.depth = 0;
        }
    }

    /// Records that the end of the wait for this lock was reported before the acquiring function returned.
    #[inline(always)]
    pub(crate) fn set_reported(&mut self, address: u64) {
        self.reported_lock = address;
    }

    /// Returns the wait that ends when a function that acquires this lock returns.
    #[inline(always)]
    pub(crate) fn function_returned(&mut self, address: u64) -> EndedWait {
        if self.reported_lock == address {
            self.reported_lock = 0;
            return EndedWait::Reported;
        }
        if config::slow_path_kinds() != 0 && self.waits_for(address) {
            return if self.is_sampled() { EndedWait::Recorded } else { EndedWait::Skipped };
        }
        EndedWait::None
    }

    /// Creates a begin with the current sums.
    #[inline(always)]
    fn begin_at(&self, ts_ns: u64) -> Begin {
        Begin { ts_ns, blocked_ns: self.blocked_ns, runq_ns: self.runq_ns }
    }

    /// Stores the futex call that the task entered.
    #[inline(always)]
    pub(crate) fn enter_futex(&mut self, call: &FutexCall, now_ns: u64) {
        self.futex_begin = self.begin_at(now_ns);
        self.futex_address = call.address;
        self.futex_extra = call.extra;
        self.futex_command = call.command;
        self.futex_wakes = self.wakes;
    }

    /// Removes and returns the open futex call.
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

    /// Removes the state if the task does not wait any more.
    #[inline(always)]
    pub(crate) fn end_if_idle(&self, tid: u32) {
        if self.depth == 0 && self.deeper == 0 && self.futex_command == NO_FUTEX && self.reported_lock == 0 {
            Self::forget(tid);
        }
    }

    /// Removes the state of a task.
    #[inline(always)]
    pub(crate) fn forget(tid: u32) {
        let _ = WAITING.remove(tid);
    }

    /// Records that the task leaves the CPU, runnable (`ready`) or asleep. `being_woken` if it is being woken
    /// since it decided to sleep; that waker ends this sleep.
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

    /// Records that the task runs again.
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

    /// Records that the task became runnable.
    #[inline(always)]
    pub(crate) fn ready(&mut self, now_ns: u64) {
        if self.off_ns != 0 {
            self.ready_ns = now_ns;
        }
    }

    /// Records that another task wakes this one.
    #[inline(always)]
    pub(crate) fn woken_by(&mut self, waker: Task, kernel_stack: i32, user_stack: i32) {
        self.wakes = self.wakes.wrapping_add(1);
        self.peer_tgid = waker.tgid;
        self.peer_tid = waker.tid;
        self.peer_kernel_stack = kernel_stack;
        self.peer_user_stack = user_stack;
    }

    /// Stores the sums in an event.
    #[inline(always)]
    pub(crate) fn describe(&self, event: &mut WireEvent) {
        event.blocked_ns = self.blocked_ns;
        event.runq_ns = self.runq_ns;
    }

    /// Stores a wait's own share of the sums and its begin in the event that ends it, for waits with a single
    /// record.
    #[inline(always)]
    pub(crate) fn describe_whole(&self, begin: Begin, event: &mut WireEvent) {
        event.extra = begin.ts_ns;
        event.blocked_ns = self.blocked_ns.wrapping_sub(begin.blocked_ns);
        event.runq_ns = self.runq_ns.wrapping_sub(begin.runq_ns);
    }

    /// Stores the waker in the event that ends the wait for a kernel lock.
    #[inline(always)]
    pub(crate) fn describe_waker_of_lock(&self, address: u64, event: &mut WireEvent) {
        if self.waits_for(address) {
            self.describe_waker(self.lock_wakes[self.innermost()], event);
        }
    }

    /// Stores the waker in the event that ends a futex wait.
    #[inline(always)]
    pub(crate) fn describe_waker_of_futex(&self, event: &mut WireEvent) {
        self.describe_waker(self.futex_wakes, event);
    }

    /// Stores the last waker, unless its wake-up came before the wait. Such a wake-up belongs to an outer
    /// wait: a task that leaves a futex wait still acquires the spinlock of the futex's queue.
    #[inline(always)]
    fn describe_waker(&self, wakes_before: u32, event: &mut WireEvent) {
        if self.peer_tid != 0 && self.wakes != wakes_before {
            event.flags |= flag::PEER;
            event.peer_tgid = self.peer_tgid;
            event.peer_tid = self.peer_tid;
            event.peer_kernel_stack = self.peer_kernel_stack;
            event.peer_user_stack = self.peer_user_stack;
        }
    }
}
