//! What is known of a task that is off its CPU, where that is recorded: since when, in which state, with which stacks, and who
//! woke it.
//!
//! An entry lives from a task's first switch to its last one and is changed in place, so that a switch takes no lock of the
//! map. The kernel side keeps this begin, unlike that of a wait, because it is only known at the end whether the time was long
//! enough to be recorded.

use aya_ebpf::bindings::BPF_ANY;
use trace_format::wire::{WireEvent, flag, stack};

use crate::{filter::Task, guard::Run, maps::OFF_CPU};

/// A task that is off its CPU, or was.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct OffCpu {
    /// When it left; 0 while it is on one.
    off_ns: u64,
    /// When it became ready to run; not known if that is before it left.
    ready_ns: u64,
    /// Where its stacks travel, if they do inline.
    place: u64,
    /// The same of the waker's.
    peer_place: u64,
    /// As it left; 0 if it could have gone on.
    state: u32,
    tgid: u32,
    kernel_stack: i32,
    user_stack: i32,
    peer_tgid: u32,
    peer_tid: u32,
    peer_kernel_stack: i32,
    peer_user_stack: i32,
    /// 1: somebody woke it.
    woken: u32,
    padding: u32,
}

/// Stacks of one moment.
#[derive(Clone, Copy)]
pub(crate) struct Stacks {
    pub(crate) kernel: i32,
    pub(crate) user: i32,
    /// Where they travel, if they do inline.
    pub(crate) place: u64,
}

impl Stacks {
    /// There was no way to take them.
    pub(crate) const LOST: Self = Self { kernel: stack::LOST, user: stack::LOST, place: 0 };
}

impl OffCpu {
    const NEVER: Self = Self {
        off_ns: 0,
        ready_ns: 0,
        place: 0,
        peer_place: 0,
        state: 0,
        tgid: 0,
        kernel_stack: stack::NONE,
        user_stack: stack::NONE,
        peer_tgid: 0,
        peer_tid: 0,
        peer_kernel_stack: stack::NONE,
        peer_user_stack: stack::NONE,
        woken: 0,
        padding: 0,
    };

    /// That of a task, if it is recorded.
    #[inline(always)]
    pub(crate) fn of(tid: u32) -> Option<&'static mut Self> {
        // SAFETY: the value stays in the map's memory; fields are plain integers. The scheduler switches a task on one CPU
        // at a time; a waker on another one that comes in between costs at most its own name.
        OFF_CPU.get_ptr_mut(tid).map(|state| unsafe { &mut *state })
    }

    /// The same, made if there is none yet; nothing can be made inside another program, which may be in the middle of the map.
    #[inline(always)]
    pub(crate) fn of_or_new(run: &Run, tid: u32) -> Option<&'static mut Self> {
        if Self::of(tid).is_none() && !run.nested {
            let _ = OFF_CPU.insert(tid, Self::NEVER, BPF_ANY as u64);
        }
        Self::of(tid)
    }

    /// The task is gone.
    #[inline(always)]
    pub(crate) fn forget(run: &Run, tid: u32) {
        if !run.nested {
            let _ = OFF_CPU.remove(tid);
        }
    }

    /// It leaves its CPU. `being_woken`: somebody wakes it already, between its going to sleep and now.
    #[inline(always)]
    pub(crate) fn leave(&mut self, task: Task, state: u32, being_woken: bool, stacks: Stacks, now_ns: u64) {
        self.tgid = task.tgid;
        self.state = state;
        self.kernel_stack = stacks.kernel;
        self.user_stack = stacks.user;
        self.place = stacks.place;
        if !being_woken {
            self.woken = 0;
        }
        self.off_ns = now_ns;
    }

    /// It runs again, or somebody looks after it has: gives how it left, once.
    #[inline(always)]
    pub(crate) fn come_back(&mut self) -> Option<Self> {
        if self.off_ns == 0 {
            return None;
        }
        let left = *self;
        self.off_ns = 0;
        self.woken = 0;
        Some(left)
    }

    /// Another task wakes it, or an interrupt does.
    #[inline(always)]
    pub(crate) fn woken_by(&mut self, waker: Task, stacks: Stacks) {
        self.peer_tgid = waker.tgid;
        self.peer_tid = waker.tid;
        self.peer_kernel_stack = stacks.kernel;
        self.peer_user_stack = stacks.user;
        self.peer_place = stacks.place;
        self.woken = 1;
    }

    /// It became ready to run.
    #[inline(always)]
    pub(crate) fn ready(&mut self, now_ns: u64) {
        if self.off_ns != 0 {
            self.ready_ns = now_ns;
        }
    }

    /// The task, given its number.
    #[inline(always)]
    pub(crate) fn task(&self, tid: u32) -> Task {
        Task { tgid: self.tgid, tid }
    }

    /// Whether the recorder itself held it, as it does at the begin and the end of a command that it starts.
    #[inline(always)]
    pub(crate) fn was_held_by(&self, process: u32) -> bool {
        /// `__TASK_TRACED` (`include/linux/sched.h`).
        const TRACED: u32 = 8;
        self.state & TRACED != 0 && self.woken != 0 && self.peer_tgid == process
    }

    /// How long it was off, at this time.
    #[inline(always)]
    pub(crate) fn off_for(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.off_ns)
    }

    /// Puts all into the event of its return.
    #[inline(always)]
    pub(crate) fn describe(&self, event: &mut WireEvent) {
        let ready_ns = match self.state {
            0 => self.off_ns,
            // Its wake-up was not seen.
            _ if self.ready_ns < self.off_ns => event.ts_ns,
            _ => self.ready_ns,
        };
        event.extra = self.off_ns;
        event.value = i64::from(self.state);
        event.blocked_ns = ready_ns.saturating_sub(self.off_ns);
        event.runq_ns = event.ts_ns.saturating_sub(ready_ns);
        event.kernel_stack = self.kernel_stack;
        event.user_stack = self.user_stack;
        event.address = self.place;
        if self.woken != 0 {
            event.flags |= flag::PEER;
            event.peer_tgid = self.peer_tgid;
            event.peer_tid = self.peer_tid;
            event.peer_kernel_stack = self.peer_kernel_stack;
            event.peer_user_stack = self.peer_user_stack;
            event.caller = self.peer_place;
        }
    }
}
