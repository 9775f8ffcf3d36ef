//! The facts about one lock that verdicts rest on: its use, and the parts of the waits for it.

use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;
use trace_format::{LockId, LockKind, Syscall, TaskId, text::shell_word};

use super::{
    herds::Herds,
    parts::{DECADES, LockParts, LongHolds, SiteParts, length, most},
    usage::LockUse,
};
use crate::key::syscall_label;
use intervals::{
    engine::deadlock::DeadlockKind,
    input::Input,
    input::names::{Names, printable},
    items::{ByState, State},
};
use output::{layout::STACK_SEPARATOR, units};

/// The functions of a stack in which a holder slept: the innermost ones are often of the C library.
pub(super) const FRAMES: usize = 4;
/// A site is long if its mean hold is this many times the mean hold of all other sites.
const LONGER_THAN_OTHERS: i128 = 4;
/// As [`LONGER_THAN_OTHERS`], of a hand-off, if there is no other site.
const LONGER_THAN_A_HANDOFF: i128 = 10;
/// As [`LONGER_THAN_A_HANDOFF`]: a mean hold of this many ns is long, however long hand-offs take on a busy machine.
const LONG_NS: i128 = 100_000;
/// Long holds are few if there are this many others for each, and their mean is [`LONGER_THAN_THE_REST`] times as long.
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
    /// The time from the start of the first of these tasks to the end of the last, and the time with an open hold.
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
    /// The signals that woke herds, the condition waits that these signals ended, and how many of these waits were in vain.
    pub(super) herds: (i64, i64, i64),
    /// The time from a wake-up in vain until its task had the lock, which is no wait for the lock; the lifetimes of these tasks.
    pub(super) herd_ns: i64,
    pub(super) herd_lifetimes_ns: i64,
    pub(super) names: FactNames,
}

/// The names that sentences and changes need.
#[derive(Clone, Debug, Default)]
pub(super) struct FactNames {
    /// `#3`.
    pub(super) id: String,
    /// The trace as a word of a command, with a space before it; empty for the one that commands read by default.
    pub(super) trace: String,
    /// The lock as a word of a command: its name, or its id.
    pub(super) lock: String,
    /// The word of `--locks` that records locks of its kind.
    pub(super) source: &'static str,
    /// Whether its holds cannot be recorded: a condition variable, a semaphore or a futex with which a program builds a lock.
    pub(super) has_no_holds: bool,
    pub(super) is_semaphore: bool,
    /// The kind of what is waited for, if tasks are idle there.
    pub(super) idle: Option<LockKind>,
    /// By site, as in the facts.
    pub(super) sites: Vec<String>,
    /// The system call and the functions in which its holders slept.
    pub(super) slept_in: Option<String>,
    /// Whether its holders were stopped for longer than they slept anywhere.
    pub(super) were_stopped: bool,
    /// The site whose holders slept longest.
    pub(super) slept_at: Option<String>,
    /// The site of most waiting, if the lock has no name of its own.
    pub(super) waited_at: Option<String>,
    /// The task that waited longest.
    pub(super) waiter: Option<String>,
    /// The task whose holds others waited for longest.
    pub(super) holder: Option<String>,
    /// The name that ran longest instead of holders, if it was not the idle task, and that waiting.
    pub(super) preempted_by: Option<(Option<String>, i64)>,
    /// The waiting during which klock ran instead of holders.
    pub(super) klock_ns: i64,
    /// How often the group of its holders had used up its quota of processor time, and for how long; `None` if that is not known.
    pub(super) throttled: Option<(i64, i64)>,
    /// The lock that its holders waited for.
    pub(super) nested: Option<NestedLock>,
    /// The task that held it longest.
    pub(super) hog: Option<String>,
    /// The task that passed it on after the longest waiting, with that waiting, the number of others, and the site where most was.
    pub(super) passed_on: Option<(String, i64, usize, String)>,
}

/// A lock that holders of another lock waited for.
#[derive(Clone, Debug)]
pub(super) struct NestedLock {
    pub(super) id: LockId,
    /// The name with the site at which they waited.
    pub(super) name: String,
    /// The lock as a word of a command.
    pub(super) word: String,
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
            // A wait that is open at the end counts until then, a little longer than its process may have lived.
            waiters: i64::try_from(of_lock.waiters.len()).unwrap_or(i64::MAX),
            lifetimes_ns: lived(&mut of_lock.waiters.keys()).max(of_lock.waited_ns),
            tries: of_lock.tries,
            polled_ns: of_lock.polled_ns(),
            polled_lifetimes_ns: lived(&mut of_lock.polled.keys()),
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
            names: FactNames::of(*lock, input, parts, &sites, (most(&of_lock.waiters), hog)),
        }
    }

    /// Returns the time in which the holders of a site ran, or held the lock in a state that was not recorded.
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

    /// Returns the number and the time of the holds of all other sites.
    pub(super) fn other_holds(&self, site: usize) -> (i64, i64) {
        let others = self.sites.iter().enumerate().filter(|(at, _)| *at != site);
        others.fold((0, 0), |(holds, ns), (_, other)| (holds + other.holds, ns + other.hold_ns))
    }

    /// Returns the holds from a length on that are few, much longer than all others, and caused half of the waiting, and all others.
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

/// The states that are asleep in [`WaitParts`].
const ASLEEP: [State; 4] = [State::Asleep, State::Uninterruptible, State::Stopped, State::Idle];

impl FactNames {
    fn of(
        id: LockId,
        input: &Input<'_>,
        parts: &LockParts,
        sites: &[(u32, SiteParts)],
        (waiter, hog): (Option<TaskId>, Option<TaskId>),
    ) -> Self {
        let names = &input.names;
        let site = |number: u32| names.point_of_number(number).label();
        // A page knows more functions of each stack.
        let mut slept_in = FxHashMap::<(Option<Syscall>, &[String]), i64>::default();
        for ((syscall, chain), ns) in &parts.slept_in {
            let functions = names.chain_of_number(*chain);
            *slept_in.entry((*syscall, &functions[..functions.len().min(FRAMES)])).or_default() += ns;
        }
        let place = |(syscall, functions): (Option<Syscall>, &[String])| match syscall {
            Some(syscall) => syscall_label(syscall, functions),
            None => printable(&functions.join(STACK_SEPARATOR)).into_owned(),
        };
        let slept = |(_, parts): &&(u32, SiteParts)| {
            ASLEEP.iter().map(|state| parts.caused[*state as usize]).fold(0, i64::saturating_add)
        };
        let slept_at = sites.iter().rev().max_by_key(slept).filter(|site| slept(site) > 0);
        let stopped = State::Stopped as usize;
        let stopped_ns = sites.iter().map(|(_, parts)| parts.caused[stopped]);
        let stopped_ns = stopped_ns.fold(parts.owners[stopped], i64::saturating_add);
        let were_stopped = stopped_ns > slept_in.values().copied().max().unwrap_or(0);
        let row = names.lock(id);
        Self {
            id: id.to_string(),
            trace: trace_word(input),
            lock: lock_word(names, id),
            source: row.map_or("pthread", |lock| source(lock.kind)),
            has_no_holds: row.is_some_and(|lock| has_no_holds(lock.kind, input)),
            // The semaphores of waiters at one site, which have no address together, are no semaphore.
            is_semaphore: row
                .is_some_and(|lock| lock.kind == LockKind::UserSemaphore && lock.address.is_some()),
            idle: row
                .filter(|_| {
                    parts.idle_ns.saturating_mul(2)
                        > parts.waited_at.values().copied().fold(0, i64::saturating_add)
                })
                .map(|row| row.kind),
            sites: sites.iter().map(|(number, _)| site(*number)).collect(),
            slept_in: most(&slept_in).map(place).filter(|place| !place.is_empty()),
            were_stopped,
            slept_at: slept_at.map(|(number, _)| site(*number)),
            waited_at: most(&parts.waited_at)
                .filter(|_| row.is_some_and(|row| row.name.as_ref().is_none_or(|name| name.contains("+0x"))))
                .map(site)
                .filter(|site| !names.lock_label(id).contains(site.as_str())),
            waiter: waiter.map(|task| names.task_label(task)),
            holder: most(&parts.by_task).map(|task| names.task_label(task)),
            preempted_by: preempted_by(parts, names),
            klock_ns: klock_ns(parts, names),
            throttled: throttled(parts, names),
            nested: most(&parts.nested_in).map(|(lock, number)| {
                let name = format!("{} at {}", names.lock_label(lock), site(number));
                NestedLock { id: lock, name, word: lock_word(names, lock) }
            }),
            hog: hog.map(|task| names.task_label(task)),
            passed_on: passed_on(parts, names, site),
        }
    }
}

/// Returns the trace as suggested commands name it, after a space; nothing for the default one.
pub(super) fn trace_word(input: &Input<'_>) -> String {
    let path = input.trace.paths().events.to_string_lossy();
    if path == "trace.parquet" { String::new() } else { format!(" {}", shell_word(&path)) }
}

/// Returns who ran longest instead of holders, by name: workers of one program are one; `None` within it for the idle task.
fn preempted_by(parts: &LockParts, names: &Names) -> Option<(Option<String>, i64)> {
    let mut by_comm = FxHashMap::<Option<&str>, (i64, usize, TaskId)>::default();
    for (task, ns) in &parts.preempted_by {
        let is_idle = names.task(*task).is_some_and(|row| row.tid == 0);
        let comm = names.task(*task).and_then(|row| row.comm.as_deref()).unwrap_or("?");
        let comm = if is_klock(comm) { KLOCK } else { comm };
        let (sum, tasks, _) = by_comm.entry((!is_idle).then_some(comm)).or_insert((0, 0, *task));
        (*sum, *tasks) = (sum.saturating_add(*ns), *tasks + 1);
    }
    let (comm, (ns, tasks, task)) = by_comm.into_iter().max_by_key(|(comm, (ns, ..))| (*ns, *comm))?;
    let name = |comm| {
        if tasks == 1 && comm != KLOCK { names.task_label(task) } else { printable(comm).into_owned() }
    };
    Some((comm.map(name), ns))
}

/// Returns the waiting during which threads of klock ran instead of holders.
fn klock_ns(parts: &LockParts, names: &Names) -> i64 {
    let of_klock =
        |task: &TaskId| names.task(*task).and_then(|row| row.comm.as_deref()).is_some_and(is_klock);
    let times = parts.preempted_by.iter().filter(|(task, _)| of_klock(task)).map(|(_, ns)| *ns);
    times.fold(0, i64::saturating_add)
}

const KLOCK: &str = "klock";

/// Returns whether a name is that of klock, whose threads have names of their own: `klock-drain`.
pub(super) fn is_klock(comm: &str) -> bool {
    comm.starts_with(KLOCK)
}

/// Returns how often the group of a holder's process had used up its quota, and for how long.
fn throttled(parts: &LockParts, names: &Names) -> Option<(i64, i64)> {
    let holders: FxHashSet<i32> =
        parts.by_task.keys().filter_map(|task| Some(names.task(*task)?.pid)).collect();
    let processes = names.tasks().iter().filter(|row| holders.contains(&row.pid));
    // Processes of one group have the same periods.
    processes.filter_map(|row| row.throttled_periods.zip(row.throttled_ns)).max()
}

/// Returns who passed a lock on, and where.
fn passed_on(
    parts: &LockParts,
    names: &Names,
    site: impl Fn(u32) -> String,
) -> Option<(String, i64, usize, String)> {
    let (mut by_task, mut by_site) = (FxHashMap::<TaskId, i64>::default(), FxHashMap::<u32, i64>::default());
    for ((task, site), ns) in &parts.passed_on {
        *by_task.entry(*task).or_default() += ns;
        *by_site.entry(*site).or_default() += ns;
    }
    let (task, place) = (most(&by_task)?, most(&by_site)?);
    Some((names.task_label(task), by_task[&task], by_task.len() - 1, site(place)))
}

/// Returns the lock as a word of a command: its name if no other lock has it, otherwise its id.
fn lock_word(names: &Names, lock: LockId) -> String {
    let name = names.lock(lock).and_then(|row| row.name.as_deref());
    let has_it =
        |name: &&str| names.locks().iter().filter(|row| row.name.as_deref() == Some(*name)).count() == 1;
    shell_word(name.filter(has_it).unwrap_or(&lock.to_string()))
}

/// Returns the word of `klock record --locks` that records locks of a kind.
const fn source(kind: LockKind) -> &'static str {
    match kind {
        LockKind::Futex => "futex",
        LockKind::RustMutex | LockKind::RustRwLock => "rust",
        LockKind::GoMutex => "go",
        kind if kind.is_kernel() => "kernel",
        _ => "pthread",
    }
}

/// Whether holds of locks of this kind cannot be recorded. A futex may be a part of a pthread lock, unless these are recorded, too.
fn has_no_holds(kind: LockKind, input: &Input<'_>) -> bool {
    let pthread = input.trace.info().source_of(LockKind::PthreadMutex);
    kind.is_idle()
        || matches!(kind, LockKind::RustMutex | LockKind::RustRwLock | LockKind::GoMutex)
        || kind == LockKind::Futex && pthread.is_some_and(|source| source.holds)
}

const fn can_be_shared(kind: LockKind) -> bool {
    use LockKind::{PercpuRwSem, PthreadRwLock, RustRwLock, RwLock, RwSem};
    matches!(kind, RwSem | PercpuRwSem | RwLock | PthreadRwLock | RustRwLock)
}
