//! The facts about one lock that verdicts rest on: its use, and the parts of the waits for it.

use rustc_hash::FxHashMap;
use serde::Serialize;
use trace_format::{LockId, LockKind, TaskId};

use super::{
    fact_names::{ASLEEP, FactNames},
    herds::Herds,
    parts::{DECADES, LockParts, LongHolds, SiteParts, length, most},
    usage::LockUse,
};
use intervals::{
    engine::deadlock::DeadlockKind,
    input::Input,
    items::{ByState, State},
};
use output::units;

/// A site is long if its mean hold is this many times the mean hold of all other sites.
const LONGER_THAN_OTHERS: i128 = 4;
/// As [`LONGER_THAN_OTHERS`], of a hand-off, if there is no other site.
const LONGER_THAN_A_HANDOFF: i128 = 10;
/// As [`LONGER_THAN_A_HANDOFF`]: a mean hold of this many ns is long, however long hand-offs take on a busy
/// machine.
const LONG_NS: i128 = 100_000;
/// Long holds are few if there are this many others for each, and their mean is [`LONGER_THAN_THE_REST`]
/// times as long.
const FEW: i128 = 9;
const LONGER_THAN_THE_REST: i128 = 10;

/// The use of a lock, and the trace that it is of.
pub(super) struct UsedLock {
    pub(super) input: usize,
    pub(super) lock: LockId,
    pub(super) of_lock: LockUse,
    pub(super) herds: Herds,
    pub(super) deadlock: Option<DeadlockKind>,
    pub(super) end_ns: i64,
    /// The time in its longest hold in which its task did not run, if that is most of it.
    pub(super) stalled_ns: i64,
}

/// A hold that is much longer than the others of its lock, and the time in which its task did not run.
#[derive(Clone, Debug, Default)]
pub(super) struct Stall {
    pub(super) hold_ns: i64,
    pub(super) stalled_ns: i64,
    /// The number of the other holds, and their time.
    pub(super) others: (i64, i64),
    /// The state in which its task was longest, and for how long.
    pub(super) state: State,
    pub(super) state_ns: i64,
    /// The site and the task.
    pub(super) at: String,
    pub(super) task: String,
}

impl UsedLock {
    /// Whether tasks waited for it in any way.
    pub(super) fn is_waited_for(&self) -> bool {
        self.lost_ns() > 0 || self.deadlock.is_some()
    }

    /// Returns the stall of the lock's longest hold, without names, if its task ran for at most half of it.
    pub(super) fn stall(&self, parts: &LockParts) -> Option<Stall> {
        let (hold, states) = parts.longest.as_ref()?;
        let hold_ns = length(hold);
        let held_ns = self.of_lock.held.values().copied().fold(0, i64::saturating_add);
        let others = (self.of_lock.acquisitions - hold.acquisitions, held_ns.saturating_sub(hold_ns));
        let (holds, others_ns) = (i128::from(others.0), i128::from(others.1));
        let is_long = holds > 0 && i128::from(hold_ns) * holds >= LONGER_THAN_THE_REST * others_ns;
        let off_cpu = State::ALL.iter().filter(|state| !matches!(state, State::Running | State::Unknown));
        let times = off_cpu.map(|state| (states[*state as usize], *state));
        let stalled_ns = times.clone().map(|(ns, _)| ns).sum::<i64>();
        let (state_ns, state) = times.max_by_key(|(ns, _)| *ns)?;
        let stall = Stall { hold_ns, stalled_ns, others, state, state_ns, ..Stall::default() };
        (is_long && stalled_ns.saturating_mul(2) >= hold_ns).then_some(stall)
    }

    /// Returns the time of waits for it, of polling for it, and of condition waits that were woken in vain.
    pub(super) fn lost_ns(&self) -> i64 {
        self.of_lock.waited_ns.saturating_add(self.of_lock.polled_ns()).saturating_add(self.herds.vain_ns)
    }

    /// Returns the start and the end of a task within what was read.
    pub(super) fn lifetime(&self, task: TaskId, input: &Input<'_>) -> (i64, i64) {
        let (row, window) = (input.names.task(task), input.selection.window);
        let start_ns = window.from_ns.unwrap_or(input.selection.start_ns);
        let end_ns = window.to_ns.unwrap_or(i64::MAX).min(self.end_ns);
        let from = row.and_then(|row| row.start_ns).map_or(start_ns, |ns| ns.max(start_ns));
        let to = row.and_then(|row| row.exit_ns).map_or(end_ns, |ns| ns.min(end_ns));
        (from, to.max(from))
    }
}

/// The facts about one lock. Times are in ns, and names are safe to print.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    pub(super) deadlock: Option<DeadlockKind>,
    /// Whether off-CPU time was recorded. If not, a holder's state is known only while it waits for a lock.
    pub(super) is_covered: bool,
    /// Whether the program ran for nearly all the time of its processors.
    pub(super) is_busy: bool,
    /// Whether its holds were not recorded.
    pub(super) is_unmeasured: bool,
    /// Whether its kind of lock can be shared.
    pub(super) can_be_shared: bool,
    /// The tasks that waited.
    pub(super) waiters: i64,
    /// The lifetimes of the tasks that waited.
    pub(super) lifetimes_ns: i64,
    /// The time from the start of the first of these tasks to the end of the last, and the time with an open
    /// hold.
    pub(super) span_ns: i64,
    pub(super) held_ns: i64,
    /// The waits by the state of the holder, and by whose hold it was: see [`LockParts`].
    pub(super) sites: Vec<SiteParts>,
    pub(super) owners: ByState,
    pub(super) free_ns: i64,
    pub(super) nobody_ns: i64,
    /// The waiting until tasks passed it on, if its holds were not recorded.
    pub(super) passed_on_ns: i64,
    pub(super) acquisitions: i64,
    pub(super) shared: i64,
    /// Acquisitions that waited.
    pub(super) contended: i64,
    pub(super) exclusive_by_shared_ns: i64,
    pub(super) shared_by_exclusive_ns: i64,
    pub(super) convoy_wait_ns: i64,
    pub(super) overtaken_max: i64,
    /// Hold time of the task with the most, the waiting that is charged to its holds, and hold time of all.
    pub(super) hog_ns: i64,
    pub(super) hog_caused_ns: i64,
    pub(super) all_held_ns: i64,
    pub(super) stall: Option<Stall>,
    /// Failed tries of tasks that polled for it, the time in which they did, and their lifetimes.
    pub(super) tries: i64,
    pub(super) polled_ns: i64,
    pub(super) polled_lifetimes_ns: i64,
    /// The time in which waiters were ready to run, without a CPU, as far as it was measured.
    pub(super) runq_ns: i64,
    /// The share of its lifetime that the task waited for it which waited longest, in millionths.
    pub(super) longest_ppm: i64,
    /// The same; 0 if that wait is below 1 % of the trace.
    pub(super) victim_ppm: i64,
    /// The signals that woke herds, the condition waits that these signals ended, and how many of these waits
    /// were in vain.
    pub(super) herds: (i64, i64, i64),
    /// The time from a wake-up in vain until its task had the lock, which is no wait for the lock; the
    /// lifetimes of these tasks.
    pub(super) herd_ns: i64,
    pub(super) herd_lifetimes_ns: i64,
    pub(super) names: FactNames,
}

/// The waiting for a lock by what the holders did. The parts add up to `waited_ns`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WaitParts {
    /// All waits, however they ended.
    pub waited_ns: i64,
    /// A holder ran; where off-CPU time was not recorded, it ran or slept.
    pub holding_ns: i64,
    /// It was runnable without a CPU.
    pub off_cpu_ns: i64,
    /// It slept, or waited for a condition variable or the like.
    pub asleep_ns: i64,
    /// It waited for another lock.
    pub nested_ns: i64,
    /// Nobody had the lock.
    pub handoff_ns: i64,
    /// The holder or its state was not recorded.
    pub not_known_ns: i64,
}

impl Facts {
    /// Returns the facts about a lock of an input.
    pub(super) fn of(
        used: &UsedLock,
        input: &Input<'_>,
        parts: &LockParts,
        (is_covered, is_busy): (bool, bool),
    ) -> Self {
        let UsedLock { lock, of_lock, herds, deadlock, .. } = used;
        let lived = |tasks: &mut dyn Iterator<Item = &TaskId>| {
            let lifetimes = tasks.map(|task| used.lifetime(*task, input));
            lifetimes.map(|(from, to)| to - from).fold(0, i64::saturating_add)
        };
        // A task that is not known lived all the time.
        let all = used.lifetime(TaskId(-1), input);
        let waiters = || of_lock.waiters.keys().map(|task| used.lifetime(*task, input));
        let born_ns = waiters().map(|(from, _)| from).min().unwrap_or(all.0);
        let gone_ns = waiters().map(|(_, to)| to).max().unwrap_or(all.1);
        let mut queue = of_lock.queue.clone();
        queue.finish();
        let hog = most(&of_lock.held);
        let waiter = most(&of_lock.waiters);
        let (longest_ns, (from, to)) =
            waiter.map_or((0, (0, 0)), |task| (of_lock.waiters[&task], used.lifetime(task, input)));
        let longest_ppm = units::ppm(longest_ns, to - from).unwrap_or(0);
        let is_long = longest_ns.saturating_mul(100) >= all.1.saturating_sub(all.0);
        let of_hog =
            |times: &FxHashMap<TaskId, i64>| hog.and_then(|task| times.get(&task)).copied().unwrap_or(0);
        let mut sites: Vec<(u32, SiteParts)> =
            parts.sites.iter().map(|(site, parts)| (*site, parts.clone())).collect();
        sites.sort_unstable_by_key(|(site, _)| *site);
        Self {
            deadlock: *deadlock,
            is_covered,
            is_busy,
            is_unmeasured: !input.rules().measures_holds(*lock),
            can_be_shared: input.names.lock(*lock).is_some_and(|lock| can_be_shared(lock.kind)),
            // A wait that is open at the end counts until then, a little longer than its process may have
            // lived.
            waiters: i64::try_from(of_lock.waiters.len()).unwrap_or(i64::MAX),
            lifetimes_ns: lived(&mut of_lock.waiters.keys()).max(of_lock.waited_ns),
            tries: of_lock.tries,
            polled_ns: of_lock.polled_ns(),
            polled_lifetimes_ns: lived(&mut of_lock.polled.keys()),
            runq_ns: of_lock.runq_ns,
            longest_ppm,
            victim_ppm: if is_long { longest_ppm } else { 0 },
            herds: (herds.wakes, herds.woken, herds.vain),
            herd_ns: herds.vain_ns,
            herd_lifetimes_ns: lived(&mut herds.by_task.keys()),
            span_ns: gone_ns.saturating_sub(born_ns),
            held_ns: of_lock.held_ns,
            sites: sites.iter().map(|(_, parts)| parts.clone()).collect(),
            owners: parts.owners,
            free_ns: parts.free_ns,
            nobody_ns: parts.nobody_ns,
            passed_on_ns: parts.passed_on.values().copied().fold(0, i64::saturating_add),
            acquisitions: of_lock.acquisitions,
            shared: of_lock.shared,
            contended: of_lock.contended,
            exclusive_by_shared_ns: of_lock.exclusive_by_shared_ns,
            shared_by_exclusive_ns: of_lock.shared_by_exclusive_ns,
            convoy_wait_ns: queue.sums.convoy_wait_ns,
            overtaken_max: queue.sums.overtaken_max,
            hog_ns: of_hog(&of_lock.held),
            hog_caused_ns: of_hog(&parts.by_task),
            all_held_ns: of_lock.held.values().copied().fold(0, i64::saturating_add),
            stall: used.stall(parts).zip(parts.longest).map(|(stall, (hold, _))| {
                let point = input.names.point_number(hold.lock, hold.stack);
                let at = input.names.point_of_number(point).label();
                Stall { at, task: input.names.task_label(hold.task), ..stall }
            }),
            names: FactNames::of(*lock, input, parts, &sites, (waiter, hog)),
        }
    }

    /// Returns the time in which the holders of a site ran, or held the lock in a state that was not
    /// recorded.
    pub(super) fn holding_ns(&self, site: &SiteParts) -> i64 {
        let unknown_ns = if self.is_covered { 0 } else { site.caused[State::Unknown as usize] };
        site.caused[State::Running as usize] + unknown_ns
    }

    /// Returns the parts of the waits.
    pub(super) fn parts(&self) -> WaitParts {
        let of = |state: State| {
            let sites = self.sites.iter().map(|site| site.caused[state as usize]);
            sites.fold(self.owners[state as usize], i64::saturating_add)
        };
        let sum = |parts: &[i64]| parts.iter().copied().fold(0, i64::saturating_add);
        let unknown_ns =
            if self.is_covered { of(State::Unknown) } else { self.owners[State::Unknown as usize] };
        let holding_ns = sum(&[of(State::Running), of(State::Unknown) - unknown_ns]);
        let off_cpu_ns = sum(&[State::Preempted, State::Ready].map(of));
        let asleep_ns = sum(&ASLEEP.map(of));
        let (nested_ns, handoff_ns) = (of(State::Lock), self.free_ns);
        let not_known_ns = sum(&[self.nobody_ns, unknown_ns]);
        let waited_ns = sum(&[holding_ns, off_cpu_ns, asleep_ns, nested_ns, handoff_ns, not_known_ns]);
        WaitParts { waited_ns, holding_ns, off_cpu_ns, asleep_ns, nested_ns, handoff_ns, not_known_ns }
    }

    /// Returns the index of the site whose holders kept others waiting longest while they ran.
    pub(super) fn worst_site(&self) -> Option<usize> {
        let time = |at: &usize| self.holding_ns(&self.sites[*at]);
        (0..self.sites.len()).rev().max_by_key(time).filter(|at| time(at) > 0)
    }

    /// Returns the index of the site whose holds take most of the time.
    pub(super) fn most_held_site(&self) -> Option<usize> {
        let held_ns = |at: &usize| self.sites[*at].hold_ns;
        (0..self.sites.len()).rev().max_by_key(held_ns).filter(|at| held_ns(at) > 0)
    }

    /// Returns the number and the time of the holds of all other sites.
    pub(super) fn other_holds(&self, site: usize) -> (i64, i64) {
        let others = self.sites.iter().enumerate().filter(|(at, _)| *at != site);
        others.fold((0, 0), |(holds, ns), (_, other)| (holds + other.holds, ns + other.hold_ns))
    }

    /// Returns the holds from a length on that are few, much longer than all others, and caused half of the
    /// waiting, and all others.
    pub(super) fn few_long_holds<'a>(
        &self,
        sites: impl IntoIterator<Item = &'a SiteParts>,
    ) -> Option<[LongHolds; 2]> {
        let (mut long, mut all) = ([LongHolds::default(); DECADES], LongHolds::default());
        for site in sites {
            all.add(&LongHolds { holds: site.holds, ns: site.hold_ns, caused_ns: 0 });
            if let Some(holds) = &site.long {
                long.iter_mut().zip(holds.as_slice()).for_each(|(sum, holds)| sum.add(holds));
            }
        }
        (0..DECADES).find_map(|from| {
            let mut few = LongHolds::default();
            long[from..].iter().for_each(|holds| few.add(holds));
            let rest =
                LongHolds { holds: all.holds - few.holds, ns: all.ns.saturating_sub(few.ns), caused_ns: 0 };
            let [few_ns, rest_ns, holds, others] = [few.ns, rest.ns, few.holds, rest.holds].map(i128::from);
            let are_few = holds > 0 && others >= FEW * holds;
            let are_long = few_ns * others >= LONGER_THAN_THE_REST * rest_ns * holds;
            let are_awaited = few.caused_ns.saturating_mul(2) >= self.parts().waited_ns;
            (are_few && are_long && are_awaited).then_some([few, rest])
        })
    }

    /// Whether the mean hold is long, whoever has the lock.
    pub(super) fn are_all_long(&self) -> bool {
        let sum = |of: fn(&SiteParts) -> i64| self.sites.iter().map(of).fold(0, i64::saturating_add);
        let (holds, hold_ns) = (sum(|site| site.holds), sum(|site| site.hold_ns));
        holds > 0 && i128::from(hold_ns) >= LONG_NS * i128::from(holds)
    }

    /// Whether the mean hold of a site is much longer than the mean hold of the others.
    pub(super) fn is_long(&self, site: usize) -> bool {
        let SiteParts { holds, hold_ns, .. } = &self.sites[site];
        let (holds, hold_ns) = (i128::from(*holds), i128::from(*hold_ns));
        let (others, others_ns) = self.other_holds(site);
        if holds == 0 {
            // Its only hold has no end.
            return true;
        }
        if others > 0 {
            return hold_ns * i128::from(others) >= LONGER_THAN_OTHERS * i128::from(others_ns) * holds;
        }
        hold_ns >= LONG_NS * holds
            || hold_ns * i128::from(self.contended)
                >= LONGER_THAN_A_HANDOFF * i128::from(self.free_ns) * holds
    }

    /// Returns how often it was taken, per second.
    pub(super) fn rate(&self) -> String {
        let rate = i128::from(self.acquisitions) * 1_000_000_000 / i128::from(self.span_ns.max(1));
        units::count(i64::try_from(rate).unwrap_or(i64::MAX))
    }
}

const fn can_be_shared(kind: LockKind) -> bool {
    use LockKind::{PercpuRwSem, PthreadRwLock, RustRwLock, RwLock, RwSem};
    matches!(kind, RwSem | PercpuRwSem | RwLock | PthreadRwLock | RustRwLock)
}
