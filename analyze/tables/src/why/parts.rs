//! The parts of the waits for each lock, by their causes, and the herds that came for each mutex.

use std::mem;

use rustc_hash::{FxHashMap, FxHashSet};
use trace_format::{LockId, StackId, Syscall, TaskId};

use super::herds::{self, Herds};
use crate::{blame::Passes, cells::Cells, key::Ids};
use intervals::{
    engine::Rules,
    input::{
        Input,
        names::{Names, purposes::Purpose},
        selection::Selection,
    },
    items::{ByState, Caused, Detail, Hold, Item, Needs, Payer, Sink, Wait},
};

/// The holds from one acquisition site.
#[derive(Clone, Debug, Default)]
pub(super) struct SiteParts {
    /// Holds of which both ends were seen.
    pub(super) holds: i64,
    pub(super) hold_ns: i64,
    /// Those of 10 us and more: from 10 us, 100 us, 1 ms, 10 ms, 100 ms, 1 s on.
    pub(super) long: Option<Box<[LongHolds; DECADES]>>,
    /// The waiting that they caused, by the state of their tasks.
    pub(super) caused: ByState,
}

pub(super) const DECADES: usize = 6;
/// A holder that loses its CPU has it back after some 10 us at the earliest.
const LONG_FROM_NS: i64 = 10_000;

/// Holds of a certain length.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LongHolds {
    pub(super) holds: i64,
    pub(super) ns: i64,
    /// The waiting that they caused.
    pub(super) caused_ns: i64,
}

impl LongHolds {
    pub(super) fn add(&mut self, other: &Self) {
        self.holds += other.holds;
        add(&mut self.ns, other.ns);
        add(&mut self.caused_ns, other.caused_ns);
    }
}

/// The waits for one lock. All parts together are the time of the waits.
#[derive(Debug, Default)]
pub(super) struct LockParts {
    /// By acquisition site, numbered.
    pub(super) sites: FxHashMap<u32, SiteParts>,
    /// Charged to holds, by their task.
    pub(super) by_task: FxHashMap<TaskId, i64>,
    /// Charged to owners that the lock word named.
    pub(super) owners: ByState,
    /// No task had the lock.
    pub(super) free_ns: i64,
    /// The holder was not seen.
    pub(super) nobody_ns: i64,
    /// Where the holders slept: by the system call, and the number of the functions.
    pub(super) slept_in: FxHashMap<(Option<Syscall>, u32), i64>,
    /// The holders that were without a CPU, by the task that ran instead.
    pub(super) preempted_by: FxHashMap<TaskId, i64>,
    /// The locks that the holders waited for, and the site at which they did.
    pub(super) nested_in: FxHashMap<(LockId, u32), i64>,
    /// The time of the selected waits by their site, numbered, and of those in which the tasks were idle.
    pub(super) waited_at: FxHashMap<u32, i64>,
    pub(super) idle_ns: i64,
    /// The longest of the selected holds, if it is long, with the states of its task.
    pub(super) longest: Option<(Hold, ByState)>,
    /// Of a lock without recorded holds: the time until each task passed it on, and the site at which it did.
    pub(super) passed_on: FxHashMap<(TaskId, u32), i64>,
}

impl SiteParts {
    pub(super) fn add_hold(&mut self, ns: i64, caused_ns: i64) {
        self.holds += 1;
        add(&mut self.hold_ns, ns);
        if let Some(decade) = (ns / LONG_FROM_NS).checked_ilog10() {
            let long = self.long.get_or_insert_default();
            long[(decade as usize).min(DECADES - 1)].add(&LongHolds { holds: 1, ns, caused_ns });
        }
    }

    fn merge(&mut self, other: &Self) {
        self.holds += other.holds;
        add(&mut self.hold_ns, other.hold_ns);
        if let Some(long) = &other.long {
            let sums = self.long.get_or_insert_default();
            sums.iter_mut().zip(long.as_slice()).for_each(|(sum, holds)| sum.add(holds));
        }
        self.caused.iter_mut().zip(other.caused).for_each(|(sum, ns)| add(sum, ns));
    }
}

/// A hold is long, in ns, if it lasted as long as some turns of other tasks on its CPU.
pub(super) const LONG_HOLD_NS: i64 = 1_000_000;

/// The parts of all locks.
pub struct PartsByLock<'a> {
    names: &'a Names,
    selection: &'a Selection,
    rules: Rules,
    passes: Passes,
    herds: Option<herds::Finder<'a>>,
    by_lock: Cells<LockParts, LockId>,
    /// The holds of each lock from each site, which are not in `by_lock` yet.
    of_sites: Cells<SiteParts, (LockId, u32)>,
}

impl<'a> PartsByLock<'a> {
    pub fn new(input: &'a Input<'_>) -> Self {
        let Input { names, selection, .. } = input;
        let (by_lock, of_sites) = (Cells::new(Ids::Lock, names), Cells::new(Ids::LockAndStack, names));
        let (rules, passes) = (input.rules(), Passes::default());
        Self { names, selection, rules, passes, herds: herds::finder(names), by_lock, of_sites }
    }

    /// Returns the herds by mutex: no more rows follow.
    pub(super) fn herds(&mut self) -> FxHashMap<LockId, Herds> {
        self.herds.take().map(herds::Finder::finish).unwrap_or_default()
    }

    /// Adds the holds to the parts of these locks, once: no more follow.
    pub(super) fn finish(&mut self, locks: impl Iterator<Item = LockId>) {
        let locks: FxHashSet<LockId> = locks.collect();
        let of_sites = mem::replace(&mut self.of_sites, Cells::new(Ids::None, self.names));
        for ((lock, site), of_site) in of_sites.into_values() {
            if locks.contains(&lock) {
                self.of_lock(lock).sites.entry(site).or_default().merge(&of_site);
            }
        }
    }

    /// Returns the parts of a lock.
    #[inline]
    pub(super) fn of_lock(&mut self, lock: LockId) -> &mut LockParts {
        self.by_lock.of(lock, |subject| subject.lock)
    }

    /// Returns the parts of a lock that was acquired with a stack.
    #[inline]
    fn of_stack(&mut self, lock: LockId, stack: Option<StackId>) -> &mut SiteParts {
        let names = self.names;
        self.of_sites.of((lock, TaskId(-1), stack), |_| (lock, names.point_number(lock, stack)))
    }
}

impl Sink for PartsByLock<'_> {
    fn needs(&self) -> Needs {
        Needs { rows: true, held: true, ..Needs::default() }
    }

    #[inline]
    fn push(&mut self, item: Item<'_>) {
        match item {
            Item::Row(row) => {
                self.passes.row(row);
                if let Some(herds) = &mut self.herds {
                    herds.push(row);
                }
            }
            Item::Caused(caused) => self.caused(caused),
            Item::Hold(hold) => self.hold(hold),
            Item::Held(hold, states) if length(hold) >= LONG_HOLD_NS => self.held(hold, states),
            Item::WaitBegins(wait) if !self.rules.measures_holds(wait.lock) => self.passes.begin(wait),
            Item::Wait(wait) => {
                let is_selected = self.selection.selects_wait(wait);
                if is_selected && wait.wait_ns > 0 {
                    let site = self.names.point_number(wait.lock, wait.stack);
                    let purpose = self.names.purposes().of(wait.lock, wait.stack);
                    let is_idle = !matches!(purpose, Purpose::Lock | Purpose::Undecided);
                    let parts = self.of_lock(wait.lock);
                    add(parts.waited_at.entry(site).or_default(), wait.wait_ns);
                    add(&mut parts.idle_ns, if is_idle { wait.wait_ns } else { 0 });
                }
                if wait.gap_ns.is_some() {
                    return;
                }
                let parts = self.passes.end(wait);
                for (waker, ns) in parts.into_iter().filter(|_| is_selected) {
                    let Some((task, stack)) = waker.filter(|(task, _)| self.may_have(*task, wait)) else {
                        continue;
                    };
                    let place = (task, self.names.point_number(wait.lock, stack));
                    add(self.of_lock(wait.lock).passed_on.entry(place).or_default(), ns);
                }
            }
            _ => {}
        }
    }
}

impl PartsByLock<'_> {
    /// Whether a task may have had the lock that another one waited for: an interrupted task wakes others,
    /// too.
    fn may_have(&self, task: TaskId, wait: &Wait) -> bool {
        let pid = |task: TaskId| self.names.task(task).map(|row| row.pid);
        let is_of_process =
            self.names.lock(wait.lock).is_some_and(|row| row.pid.is_some() && row.shared.is_none());
        task != wait.task && (!is_of_process || pid(task) == pid(wait.task))
    }

    fn caused(&mut self, caused: &Caused) {
        let (names, state) = (self.names, caused.state.unwrap_or_default() as usize);
        if let Payer::Hold(hold) = caused.payer {
            add(&mut self.of_stack(caused.lock, hold.stack).caused[state], caused.ns);
        }
        let parts = self.of_lock(caused.lock);
        let sum = match caused.payer {
            Payer::Hold(hold) => parts.by_task.entry(hold.task).or_default(),
            Payer::Owner(_) => &mut parts.owners[state],
            Payer::Handoff | Payer::Gap | Payer::Oneself | Payer::Cycle => &mut parts.free_ns,
            Payer::Unknown => &mut parts.nobody_ns,
        };
        add(sum, caused.ns);
        match caused.detail {
            Detail::None => {}
            Detail::Preempted(by) => add(parts.preempted_by.entry(by).or_default(), caused.ns),
            Detail::Lock(lock, stack) => {
                let site = names.point_number(lock, stack);
                add(parts.nested_in.entry((lock, site)).or_default(), caused.ns);
            }
            Detail::Asleep(syscall, stack) => {
                // A task that left the CPU did so in the function that it called, whatever the kernel did for
                // it.
                let user = LockId(-1);
                let place = (syscall, names.chain_number(user, stack));
                add(parts.slept_in.entry(place).or_default(), caused.ns);
            }
        }
    }

    fn hold(&mut self, hold: &Hold) {
        if !hold.is_credited() {
            return;
        }
        self.of_stack(hold.lock, hold.stack).add_hold(length(hold), hold.wait_caused_ns);
    }

    fn held(&mut self, hold: &Hold, states: &ByState) {
        if hold.is_credited() && self.selection.selects_hold(hold) {
            let longest = &mut self.of_lock(hold.lock).longest;
            if longest.as_ref().is_none_or(|(longest, _)| length(longest) < length(hold)) {
                *longest = Some((*hold, *states));
            }
        }
    }
}

pub(super) fn length(hold: &Hold) -> i64 {
    hold.end_ns.saturating_sub(hold.start_ns)
}

fn add(sum: &mut i64, ns: i64) {
    *sum = sum.saturating_add(ns);
}

/// Returns the key with the greatest sum; of equal ones the smallest.
pub(super) fn most<K: Copy + Ord>(sums: &FxHashMap<K, i64>) -> Option<K> {
    sums.iter().max_by(|(a, x), (b, y)| x.cmp(y).then_with(|| b.cmp(a))).map(|(key, _)| *key)
}
