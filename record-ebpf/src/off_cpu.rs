//! The state of off-CPU tasks: since when, in which task state, with which stacks, and who woke them.
//!
//! An entry exists from a task's first switch to its exit and is changed in place, so that a switch does not
//! take the map's lock. Unlike the begin of a wait, the begin of off-CPU time has no record: whether it is
//! long enough to be recorded is known only at its end.

use aya_ebpf::{bindings::BPF_ANY, btf_maps::HashMap, macros::btf_map};
use trace_format::wire::{WireEvent, departure, flag, stack};

use crate::{filter::Task, guard::Run};

/// Tasks whose off-CPU time is recorded. Preallocated; the loader shrinks the map if off-CPU time is not
/// recorded.
#[btf_map]
static OFF_CPU: HashMap<u32, OffCpu, 65536> = HashMap::new();

/// `__TASK_TRACED` (`include/linux/sched.h`).
const TRACED: u32 = 8;

/// The off-CPU state of a task.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct OffCpu {
    /// Time when it left its CPU; 0 while it runs.
    off_ns: u64,
    /// Time when it became runnable; unknown if earlier than `off_ns`.
    ready_ns: u64,
    /// Key of its stacks, if they are inline.
    stack_key: u64,
    /// Key of the waker's stacks, if they are inline.
    peer_stack_key: u64,
    /// Task state when it left its CPU; 0 if runnable.
    state: u32,
    tgid: u32,
    kernel_stack: i32,
    user_stack: i32,
    /// The waker; if runnable, the task that followed it on its CPU.
    peer_tgid: u32,
    peer_tid: u32,
    peer_kernel_stack: i32,
    peer_user_stack: i32,
    /// 1 if a task or an interrupt woke it, or if the task that followed it is known.
    has_peer: u32,
    /// The system call in which it left its CPU, as in [`departure`].
    syscall: i32,
}

/// The state and the system call in which a task leaves its CPU.
#[derive(Clone, Copy)]
pub(crate) struct Departure {
    /// Task state; 0 if runnable.
    pub(crate) state: u32,
    /// The system call, as in [`departure`].
    pub(crate) syscall: i32,
    /// The `task_struct` of the task that gets the CPU.
    pub(crate) next: u64,
}

/// The kernel and user stack of a task.
#[derive(Clone, Copy)]
pub(crate) struct Stacks {
    pub(crate) kernel: i32,
    pub(crate) user: i32,
    /// Their key, if they are inline.
    pub(crate) key: u64,
}

impl Stacks {
    /// Stacks that are not recorded.
    pub(crate) const NONE: Self = Self { kernel: stack::NONE, user: stack::NONE, key: 0 };
    /// Stacks that could not be taken.
    pub(crate) const LOST: Self = Self { kernel: stack::LOST, user: stack::LOST, key: 0 };
}

impl OffCpu {
    const INITIAL: Self = Self {
        off_ns: 0,
        ready_ns: 0,
        stack_key: 0,
        peer_stack_key: 0,
        state: 0,
        tgid: 0,
        kernel_stack: stack::NONE,
        user_stack: stack::NONE,
        peer_tgid: 0,
        peer_tid: 0,
        peer_kernel_stack: stack::NONE,
        peer_user_stack: stack::NONE,
        has_peer: 0,
        syscall: departure::UNKNOWN_SYSCALL,
    };

    /// Returns the state of a task, if there is one.
    #[inline(always)]
    pub(crate) fn of(tid: u32) -> Option<&'static mut Self> {
        // SAFETY: the value stays in the map's memory; fields are plain integers. The scheduler switches a
        // task on one CPU at a time; a race with a waker on another CPU costs at most the waker's name.
        OFF_CPU.get_ptr_mut(tid).map(|state| unsafe { &mut *state })
    }

    /// Returns the state of the current task, which leaves its CPU, and creates it if necessary. Inside
    /// another program of this task, too: that one was preempted (7.2 preempts tracepoint programs), and none
    /// is preempted while it modifies a map.
    #[inline(always)]
    pub(crate) fn of_or_new(tid: u32) -> Option<&'static mut Self> {
        if Self::of(tid).is_none() {
            let _ = OFF_CPU.insert(tid, Self::INITIAL, BPF_ANY as u64);
        }
        Self::of(tid)
    }

    /// Removes the state of a task that exits.
    #[inline(always)]
    pub(crate) fn forget(run: &Run, tid: u32) {
        if !run.nested {
            let _ = OFF_CPU.remove(tid);
        }
    }

    /// Records that the task leaves its CPU. `being_woken` if it is being woken since it decided to sleep.
    #[inline(always)]
    pub(crate) fn leave(
        &mut self,
        task: Task,
        departure: Departure,
        being_woken: bool,
        stacks: Stacks,
        now_ns: u64,
    ) {
        self.tgid = task.tgid;
        self.state = departure.state;
        self.syscall = departure.syscall;
        self.kernel_stack = stacks.kernel;
        self.user_stack = stacks.user;
        self.stack_key = stacks.key;
        if !being_woken {
            self.has_peer = 0;
        }
        if departure.state == 0
            && let Some(next) = Task::at(departure.next)
        {
            self.set_peer(next, Stacks::NONE);
        }
        self.off_ns = now_ns;
    }

    /// Records that the task runs again. Returns its state while it was off-CPU, once.
    #[inline(always)]
    pub(crate) fn enter(&mut self) -> Option<Self> {
        if self.off_ns == 0 {
            return None;
        }
        let left = *self;
        self.off_ns = 0;
        self.has_peer = 0;
        Some(left)
    }

    /// Records that a task or an interrupt wakes the task.
    #[inline(always)]
    pub(crate) fn woken_by(&mut self, waker: Task, stacks: Stacks) {
        // A task that was preempted before it slept has no waker.
        if self.off_ns != 0 && self.state == 0 {
            return;
        }
        self.set_peer(waker, stacks);
    }

    #[inline(always)]
    fn set_peer(&mut self, peer: Task, stacks: Stacks) {
        self.peer_tgid = peer.tgid;
        self.peer_tid = peer.tid;
        self.peer_kernel_stack = stacks.kernel;
        self.peer_user_stack = stacks.user;
        self.peer_stack_key = stacks.key;
        self.has_peer = 1;
    }

    /// Records that the task became runnable.
    #[inline(always)]
    pub(crate) fn ready(&mut self, now_ns: u64) {
        if self.off_ns != 0 {
            self.ready_ns = now_ns;
        }
    }

    /// Returns the task, given its thread id.
    #[inline(always)]
    pub(crate) fn task(&self, tid: u32) -> Task {
        Task { tgid: self.tgid, tid }
    }

    /// Whether `process` stopped the task by ptrace.
    #[inline(always)]
    pub(crate) fn was_stopped_by(&self, process: u32) -> bool {
        self.was_traced() && self.has_peer != 0 && self.peer_tgid == process
    }

    /// Whether the task was stopped by ptrace.
    #[inline(always)]
    pub(crate) fn was_traced(&self) -> bool {
        self.state & TRACED != 0
    }

    /// Returns the time off-CPU until `now_ns`.
    #[inline(always)]
    pub(crate) fn duration_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.off_ns)
    }

    /// Fills the event of the task's return to a CPU, without stacks and wake-ups.
    #[inline(always)]
    pub(crate) fn describe_plainly(&self, event: &mut WireEvent) {
        event.extra = self.off_ns;
        event.value = departure::pack(self.state, self.syscall);
        if self.state == 0 {
            self.describe_peer(event);
            event.runq_ns = event.ts_ns.saturating_sub(self.off_ns);
        } else {
            event.flags |= flag::NO_WAIT_STATE;
        }
    }

    /// Adds the waker, or the task that ran instead: the one that the task follows on its CPU, or the one
    /// that followed it. A task that is moved to an idle CPU follows none.
    #[inline(always)]
    fn describe_peer(&self, event: &mut WireEvent) {
        let previous = Task::current();
        if self.state == 0 && previous.tid != 0 {
            event.flags |= flag::OWNER;
            (event.peer_tgid, event.peer_tid) = (previous.tgid, previous.tid);
        } else if self.has_peer != 0 {
            event.flags |= if self.state == 0 { flag::OWNER } else { flag::PEER };
            event.peer_tgid = self.peer_tgid;
            event.peer_tid = self.peer_tid;
            event.peer_kernel_stack = self.peer_kernel_stack;
            event.peer_user_stack = self.peer_user_stack;
            event.caller = self.peer_stack_key;
        }
    }

    /// Fills the event of the task's return to a CPU.
    #[inline(always)]
    pub(crate) fn describe(&self, event: &mut WireEvent) {
        let ready_ns = match self.state {
            0 => self.off_ns,
            // The wake-up was not seen.
            _ if self.ready_ns < self.off_ns => event.ts_ns,
            _ => self.ready_ns,
        };
        event.extra = self.off_ns;
        event.value = departure::pack(self.state, self.syscall);
        event.blocked_ns = ready_ns.saturating_sub(self.off_ns);
        event.runq_ns = event.ts_ns.saturating_sub(ready_ns);
        event.kernel_stack = self.kernel_stack;
        event.user_stack = self.user_stack;
        event.address = self.stack_key;
        self.describe_peer(event);
    }
}
