//! The second reading, which splits the waits for the chosen locks by cause. Causes of waits enter; parts of each lock's waits leave.

use rustc_hash::FxHashMap;
use trace_format::{LockId, TaskId};

use crate::{
    causes::{Caused, Detail, Payer, Receiver, State},
    engine::Hold,
    input::names::Names,
    tables::{by_row::ByRow, key::RowKey},
};

/// Times by state.
pub(super) type ByState = [i64; State::ALL.len()];

/// The holds from one acquisition site.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SiteParts {
    /// Holds of which both ends were seen.
    pub(super) holds: i64,
    pub(super) hold_ns: i64,
    /// Those of them that others waited for.
    pub(super) awaited: i64,
    pub(super) awaited_ns: i64,
    /// The waiting that they caused, by the state of their tasks.
    pub(super) caused: ByState,
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
    /// Where the holders slept: by the number of the functions.
    pub(super) slept_in: FxHashMap<u32, i64>,
    /// The locks that the holders waited for, and the site at which they did.
    pub(super) nested_in: FxHashMap<(LockId, u32), i64>,
}

/// The parts of the chosen locks.
pub(crate) struct Parts<'a> {
    names: &'a Names,
    by_lock: ByRow<LockParts>,
}

impl<'a> Parts<'a> {
    pub(super) fn of(locks: impl Iterator<Item = LockId>, names: &'a Names) -> Self {
        let mut by_lock = ByRow::new(names.locks().len());
        for lock in locks {
            by_lock.of(RowKey::Lock(lock));
        }
        Self { names, by_lock }
    }

    /// Returns the parts of a chosen lock.
    #[inline]
    pub(super) fn of_lock(&mut self, lock: LockId) -> Option<&mut LockParts> {
        self.by_lock.find(RowKey::Lock(lock))
    }
}

impl Receiver for Parts<'_> {
    fn caused(&mut self, caused: &Caused) {
        let names = self.names;
        let Some(parts) = self.of_lock(caused.lock) else { return };
        let state = caused.state.unwrap_or_default();
        add(
            match caused.payer {
                Payer::Hold(hold) => {
                    add(parts.by_task.entry(hold.task).or_default(), caused.ns);
                    let site = names.point_number(caused.lock, hold.stack);
                    &mut parts.sites.entry(site).or_default().caused[state as usize]
                }
                Payer::Owner(_) => &mut parts.owners[state as usize],
                Payer::Handoff | Payer::Gap | Payer::Oneself | Payer::Cycle => &mut parts.free_ns,
                Payer::Unknown => &mut parts.nobody_ns,
            },
            caused.ns,
        );
        match caused.detail {
            Detail::None => {}
            Detail::Lock(lock, stack) => {
                let site = names.point_number(lock, stack);
                add(parts.nested_in.entry((lock, site)).or_default(), caused.ns);
            }
            Detail::Stack(stack) => {
                // A task that left the CPU did so in the function that it called, whatever the kernel did for it.
                let user = LockId(-1);
                add(parts.slept_in.entry(names.chain_number(user, stack)).or_default(), caused.ns);
            }
        }
    }

    fn hold(&mut self, hold: &Hold) {
        let names = self.names;
        let Some(parts) = self.of_lock(hold.lock).filter(|_| hold.is_credited()) else { return };
        let site = parts.sites.entry(names.point_number(hold.lock, hold.stack)).or_default();
        site.holds += 1;
        let ns = hold.end_ns.saturating_sub(hold.start_ns);
        add(&mut site.hold_ns, ns);
        if hold.wait_caused_ns > 0 {
            site.awaited += 1;
            add(&mut site.awaited_ns, ns);
        }
    }
}

fn add(sum: &mut i64, ns: i64) {
    *sum = sum.saturating_add(ns);
}

/// Returns the key with the greatest sum; of equal ones the smallest.
pub(super) fn most<K: Copy + Ord>(sums: &FxHashMap<K, i64>) -> Option<K> {
    sums.iter().max_by(|(a, x), (b, y)| x.cmp(y).then_with(|| b.cmp(a))).map(|(key, _)| *key)
}
