//! Rows of kernel locks: `contention_begin` becomes `wait`, `contention_end` becomes `acquire` or `abandon`.
//! If functions that acquire and release locks are recorded, too, every acquisition and release has a row
//! ([`functions`]).

use rustc_hash::FxHashMap;
use trace_format::{Event, EventKind, LockKind, Mode, kernel_functions::KernelFunction};

use super::functions::{Functions, kind_of};
use crate::compose::{
    header::{Context, Header, OffCpuTimes, OpenWait, TaskKey},
    locks::Space,
};

#[derive(Debug, Default)]
pub(crate) struct KernelWaits {
    /// By task and lock: an interrupt may wait for a spinlock inside a task's wait for another lock.
    open: FxHashMap<(TaskKey, u64), (OpenWait, Mode)>,
    functions: Functions,
    /// No function reports its acquisitions and releases.
    pub(crate) only_waits: bool,
    /// Begins may be left out on purpose, so that an end without one makes no row.
    drops_begins: bool,
}

impl KernelWaits {
    /// Starts without waits. `drops_begins` means that begins are left out on purpose.
    pub(crate) fn new(drops_begins: bool) -> Self {
        Self { drops_begins, ..Self::default() }
    }

    /// Adds a failed attempt. A mutex reports two of them in one wait, before it spins and before it sleeps:
    /// the first one begins the wait.
    pub(crate) fn begin(&mut self, at: &Header, address: u64, flags: u8, context: &mut Context<'_>) {
        let (kind, mode) = kind_of(flags);
        let lock = context.locks.id(Space::Kernel, address, kind, at.ts_ns);
        self.open.entry((at.key, address)).or_insert_with(|| {
            let row = at.row(EventKind::Wait, lock);
            context.out.push(Event { mode: Some(mode), peer_task: at.owner, ..row });
            (OpenWait { lock, ts_ns: at.ts_ns, stack: at.stack, times: at.times }, mode)
        });
    }

    /// Adds the end of a wait, with the lock or with `errno`.
    pub(crate) fn end(&mut self, at: &Header, address: u64, errno: Option<i32>, context: &mut Context<'_>) {
        if let Some((wait, mode)) = self.open.remove(&(at.key, address)) {
            self.wait_ended(at, address, context.locks.kernel_kind(address), errno);
            context.out.push(Event { mode: Some(mode), ..at.end_of(&wait, errno) });
            context.locks.touch(wait.lock, at.ts_ns);
        } else if self.drops_begins {
            // Its begin was left out, and so is the end.
        } else if let Some(kind) = context.locks.kernel_kind(address) {
            self.wait_ended(at, address, Some(kind), errno);
            let lock = context.locks.id(Space::Kernel, address, kind, at.ts_ns);
            context.out.push(at.end_of_unknown(lock, errno));
        } else {
            // The record does not name the kind of lock.
            *context.unpaired += 1;
        }
    }

    /// Notes the end of a wait for the function that may report it again.
    fn wait_ended(&mut self, at: &Header, address: u64, kind: Option<LockKind>, errno: Option<i32>) {
        if !self.only_waits {
            self.functions.wait_ended((at.key, address), kind, errno);
        }
    }

    /// Adds a wait that has only this record: it began at `begun_ns`, and the header has the times of the
    /// wait.
    pub(crate) fn whole(
        &mut self,
        at: &Header,
        (address, flags): (u64, u8),
        begun_ns: i64,
        errno: Option<i32>,
        context: &mut Context<'_>,
    ) {
        let (kind, mode) = kind_of(flags);
        let lock = context.locks.id(Space::Kernel, address, kind, at.ts_ns);
        let times = Some(OffCpuTimes::default());
        let wait = OpenWait { lock, ts_ns: begun_ns, stack: at.stack, times };
        context.out.push(Event { mode: Some(mode), ..at.end_of(&wait, errno) });
    }

    /// Adds the return of a function, with the lock or with `errno`.
    pub(crate) fn taken(
        &mut self,
        at: &Header,
        address: u64,
        function: &KernelFunction,
        errno: Option<i32>,
        context: &mut Context<'_>,
    ) {
        let wait = || self.open.remove(&(at.key, address)).map(|(wait, _)| wait);
        self.functions.returned(at, address, function, errno, wait, context);
    }

    /// Adds the entry of a function that releases the lock, or its write mode.
    pub(crate) fn released(
        &mut self,
        at: &Header,
        address: u64,
        function: &KernelFunction,
        context: &mut Context<'_>,
    ) {
        self.functions.released(at, address, function, context);
    }

    /// Forgets all waits: events are missing, so they may be over.
    pub(crate) fn lost(&mut self) {
        self.open.clear();
    }
}

#[cfg(test)]
mod tests {
    use trace_format::{
        EventKind::{Abandon, Acquire, Wait},
        LockKind, Mode,
    };

    use super::kind_of;
    use crate::compose::script::{Script, row};

    #[test]
    fn flags_mean_the_same_kinds_as_in_perf_lock() {
        use LockKind::{Mutex, PercpuRwSem, RtMutex, RwLock, RwSem, Semaphore, SpinLock};
        use Mode::{Exclusive, Shared};
        for (flags, expected) in [
            (0, (Semaphore, Exclusive)),
            (1, (SpinLock, Exclusive)),
            (2, (RwSem, Shared)),
            (4, (RwSem, Exclusive)),
            (1 | 2, (RwLock, Shared)),
            (1 | 4, (RwLock, Exclusive)),
            (8, (RtMutex, Exclusive)),
            (8 | 2, (RwSem, Shared)),
            (8 | 1 | 4, (RwLock, Exclusive)),
            (16 | 2, (PercpuRwSem, Shared)),
            (16 | 4, (PercpuRwSem, Exclusive)),
            (32, (Mutex, Exclusive)),
            (32 | 1, (Mutex, Exclusive)),
        ] {
            assert_eq!(kind_of(flags), expected, "flags {flags}");
        }
    }

    #[test]
    fn a_wait_that_succeeds_is_split_into_sleep_and_run_queue_and_names_the_waker() {
        let mut s = Script::new();
        s.at(1_000).task(11).stack(7).sums(500, 50).contention_begin(0xf0, 32);
        s.at(4_000).task(11).sums(2_500, 250).woken_by(12, 9).contention_end(0xf0, 0);
        s.expect([
            row(1_000, Wait).task(11).lock(0xf0).exclusive().stack(7),
            row(4_000, Acquire)
                .task(11)
                .lock(0xf0)
                .exclusive()
                .stack(7)
                .waited(3_000, 2_000, 200)
                .peer(12)
                .peer_stack(9),
        ]);
        assert_eq!(s.kind(0xf0), [LockKind::Mutex]);
    }

    #[test]
    fn a_mutex_that_spins_and_then_sleeps_is_one_wait_from_the_first_attempt() {
        let mut s = Script::new();
        s.at(100).task(11).stack(1).contention_begin(0xf0, 32 | 1);
        s.at(200).task(11).stack(1).contention_begin(0xf0, 32);
        s.at(500).task(11).contention_end(0xf0, 0);
        s.expect([
            row(100, Wait).task(11).lock(0xf0).exclusive().stack(1),
            row(500, Acquire).task(11).lock(0xf0).exclusive().stack(1).waited(400, 0, 0),
        ]);
    }

    #[test]
    fn a_wait_that_a_signal_ends_is_abandoned_with_its_errno() {
        let mut s = Script::new();
        s.at(100).task(11).contention_begin(0xf0, 2);
        s.at(500).task(11).contention_end(0xf0, -4);
        s.expect([
            row(100, Wait).task(11).lock(0xf0).mode(Mode::Shared),
            row(500, Abandon).task(11).lock(0xf0).mode(Mode::Shared).waited(400, 0, 0).errno(4),
        ]);
    }

    #[test]
    fn an_interrupt_may_wait_inside_a_wait_of_the_task_that_it_interrupts() {
        let mut s = Script::new();
        s.at(100).task(11).contention_begin(0xf0, 32);
        s.at(150).task(11).contention_begin(0xa0, 1);
        s.at(170).task(11).contention_end(0xa0, 0);
        s.at(300).task(11).contention_end(0xf0, 0);
        assert_eq!(s.waits(), [(0xa0, Some(20)), (0xf0, Some(200))]);
    }

    #[test]
    fn the_idle_tasks_of_two_cpus_wait_separately() {
        let mut s = Script::new();
        s.at(100).task(0).cpu(0).contention_begin(0xa0, 1);
        s.at(110).task(0).cpu(1).contention_begin(0xa0, 1);
        s.at(120).task(0).cpu(0).contention_end(0xa0, 0);
        s.at(150).task(0).cpu(1).contention_end(0xa0, 0);
        assert_eq!(s.waits(), [(0xa0, Some(20)), (0xa0, Some(40))]);
    }

    #[test]
    fn an_end_whose_begin_was_not_recorded_is_an_acquisition_of_unknown_wait() {
        let mut s = Script::new();
        s.at(50).task(12).contention_begin(0xf0, 32);
        s.at(100).task(11).contention_end(0xf0, 0);
        assert_eq!(s.waits(), [(0xf0, None)]);
        assert_eq!(s.unpaired(), 0);
    }

    #[test]
    fn an_end_on_an_unknown_lock_is_counted_and_makes_no_row() {
        let mut s = Script::new();
        s.at(100).task(11).contention_end(0xf0, 0);
        s.expect([]);
        assert_eq!(s.unpaired(), 1);
    }

    #[test]
    fn without_wait_state_the_sleep_in_a_wait_is_unknown() {
        let mut s = Script::new();
        s.at(100).task(11).contention_begin(0xf0, 4);
        s.at(500).task(11).no_wait_state().contention_end(0xf0, 0);
        s.expect([
            row(100, Wait).task(11).lock(0xf0).exclusive(),
            row(500, Acquire).task(11).lock(0xf0).exclusive().wait(400),
        ]);
    }

    #[test]
    fn a_wait_is_not_paired_across_lost_events() {
        let mut s = Script::new();
        s.at(100).task(11).contention_begin(0xf0, 32);
        s.at(900).task(12).lost(5).contention_begin(0xf8, 32);
        s.at(950).task(11).contention_end(0xf0, 0);
        assert_eq!(s.waits(), [(0xf0, None)]);
        assert_eq!(s.lost_rows(), [(900, 0, 5)]);
    }
}
