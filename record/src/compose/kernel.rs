//! Kernel locks: `contention_begin` and `contention_end` in, `wait` and `acquire` or `abandon` out; and where the
//! functions that take and give back locks are recorded, too, every acquisition and release ([`functions`]).

use rustc_hash::FxHashMap;
use trace_format::{
    Event, EventKind, LockKind, Mode,
    kernel_functions::{self, kinds, lcb},
};

use super::{Moment, OpenWait, Sums, TaskKey};
use crate::locks::{Locks, Space};

mod functions;

use functions::Last;

/// What kind of lock the flags mean, and how it is wanted, as `perf lock contention` reads them.
pub(super) fn kind_of(flags: u8) -> (LockKind, Mode) {
    let mode = if flags & lcb::READ != 0 { Mode::Shared } else { Mode::Exclusive };
    let kind = match kernel_functions::kind(flags) {
        kinds::MUTEX => LockKind::Mutex,
        kinds::RTMUTEX => LockKind::RtMutex,
        kinds::RWSEM => LockKind::RwSem,
        kinds::PERCPU_RWSEM => LockKind::PercpuRwSem,
        kinds::SPINLOCK => LockKind::SpinLock,
        kinds::RWLOCK => LockKind::RwLock,
        _ => LockKind::Semaphore,
    };
    (kind, mode)
}

/// The waits that are open, by task and lock: an interrupt may wait for a spinlock inside a task's wait for another.
#[derive(Debug, Default)]
pub(super) struct Waits {
    open: FxHashMap<(TaskKey, u64), (OpenWait, Mode)>,
    /// What each task did last with a lock that it has, or failed to get: a function may tell what was told already.
    last: FxHashMap<(TaskKey, u64), Last>,
    /// Begins may be left out on purpose, so that an end without one is nothing.
    drops_begins: bool,
}

impl Waits {
    /// Without waits. `drops_begins` says whether begins are left out on purpose.
    pub(super) fn new(drops_begins: bool) -> Self {
        Self { drops_begins, ..Self::default() }
    }

    /// The lock was not free. A mutex says so twice in one wait, before it spins and before it sleeps: the first
    /// time is the begin of the wait.
    pub(super) fn begin(
        &mut self,
        moment: &Moment,
        address: u64,
        flags: u8,
        locks: &mut Locks,
        out: &mut Vec<Event>,
    ) {
        let (kind, mode) = kind_of(flags);
        let lock = locks.id(Space::Kernel, address, kind, moment.ts_ns);
        self.open.entry((moment.key, address)).or_insert_with(|| {
            let peer_task = moment.owner;
            out.push(Event { mode: Some(mode), peer_task, ..moment.row(EventKind::Wait, lock) });
            (OpenWait { lock, ts_ns: moment.ts_ns, stack: moment.stack, sums: moment.sums }, mode)
        });
    }

    /// The wait is over: the lock is taken, or it was given up with `errno`.
    pub(super) fn end(
        &mut self,
        moment: &Moment,
        address: u64,
        errno: Option<i32>,
        locks: &mut Locks,
        unpaired: &mut u64,
        out: &mut Vec<Event>,
    ) {
        if let Some((wait, mode)) = self.open.remove(&(moment.key, address)) {
            self.ended(moment, (address, locks.kernel_kind(address)), errno);
            out.push(Event { mode: Some(mode), ..moment.end_of(&wait, errno) });
            locks.touch(wait.lock, moment.ts_ns);
        } else if self.drops_begins {
            // Its begin was left out, and so is it.
        } else if let Some(kind) = locks.kernel_kind(address) {
            self.ended(moment, (address, Some(kind)), errno);
            let lock = locks.id(Space::Kernel, address, kind, moment.ts_ns);
            out.push(moment.end_of_unknown(lock, errno));
        } else {
            // The end does not say what kind of lock it is.
            *unpaired += 1;
        }
    }

    /// A wait of which there is no other record: it began at `begun_ns`, and the moment's sums are its own.
    pub(super) fn whole(
        &mut self,
        moment: &Moment,
        (address, flags): (u64, u8),
        begun_ns: i64,
        errno: Option<i32>,
        locks: &mut Locks,
        out: &mut Vec<Event>,
    ) {
        let (kind, mode) = kind_of(flags);
        let lock = locks.id(Space::Kernel, address, kind, moment.ts_ns);
        let sums = Some(Sums::default());
        let wait = OpenWait { lock, ts_ns: begun_ns, stack: moment.stack, sums };
        out.push(Event { mode: Some(mode), ..moment.end_of(&wait, errno) });
    }

    /// Events are missing: what is open may be over.
    pub(super) fn lost(&mut self) {
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
    fn every_flag_of_the_kernel_means_the_kind_that_perf_lock_says() {
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
        s.says([
            row(1_000, Wait).task(11).lock(0xf0).mode(Mode::Exclusive).stack(7),
            row(4_000, Acquire)
                .task(11)
                .lock(0xf0)
                .mode(Mode::Exclusive)
                .stack(7)
                .wait(3_000)
                .blocked(2_000)
                .runq(200)
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
        s.says([
            row(100, Wait).task(11).lock(0xf0).mode(Mode::Exclusive).stack(1),
            row(500, Acquire).task(11).lock(0xf0).mode(Mode::Exclusive).stack(1).wait(400).blocked(0).runq(0),
        ]);
    }

    #[test]
    fn a_wait_that_a_signal_ends_is_abandoned_with_its_errno() {
        let mut s = Script::new();
        s.at(100).task(11).contention_begin(0xf0, 2);
        s.at(500).task(11).contention_end(0xf0, -4);
        s.says([
            row(100, Wait).task(11).lock(0xf0).mode(Mode::Shared),
            row(500, Abandon).task(11).lock(0xf0).mode(Mode::Shared).wait(400).blocked(0).runq(0).errno(4),
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
    fn the_idle_tasks_of_two_cpus_wait_each_for_itself() {
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
    fn an_end_on_a_lock_of_which_nothing_is_known_is_counted_and_makes_no_row() {
        let mut s = Script::new();
        s.at(100).task(11).contention_end(0xf0, 0);
        s.says([]);
        assert_eq!(s.unpaired(), 1);
    }

    #[test]
    fn without_wait_state_the_shares_of_a_wait_are_unknown_and_not_zero() {
        let mut s = Script::new();
        s.at(100).task(11).contention_begin(0xf0, 4);
        s.at(500).task(11).no_wait_state().contention_end(0xf0, 0);
        s.says([
            row(100, Wait).task(11).lock(0xf0).mode(Mode::Exclusive),
            row(500, Acquire).task(11).lock(0xf0).mode(Mode::Exclusive).wait(400),
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
