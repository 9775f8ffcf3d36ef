//! Changes of a program: the rules that a replay follows instead of the rules of the recording.

use trace_format::Mode;

use super::program::{Action, Program, TaskProgram};

/// Parts of a million.
pub const MILLION: i64 = 1_000_000;

/// The rules of a replay that differ for one lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockChange {
    /// Scales the work of holds: the site, or all of them, and the factor in millionths. The last one that
    /// applies counts.
    pub scaled: Vec<(Option<u32>, i64)>,
    /// The rule for sleep of a task that holds the lock.
    pub sleep: HeldSleep,
    /// Leaves out time without a processor inside of holds.
    pub no_preempt: bool,
    pub shards: Option<Shards>,
    pub readers: Option<Readers>,
    /// The time of a hand-off in ns.
    pub handoff_ns: Option<i64>,
    /// Nobody overtakes.
    pub fifo: bool,
    /// It never blocks.
    pub removed: bool,
}

/// A rule for recorded sleep of a task that holds a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeldSleep {
    /// They sleep, and keep the lock.
    #[default]
    Stays,
    /// They do not sleep.
    LeftOut,
    /// They sleep after they release the lock.
    Later,
}

/// Several locks in place of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shards {
    pub count: u32,
    pub by: ShardBy,
    /// The index of the second one among the locks of the replay; the first is the lock itself.
    first: usize,
    /// By task: its rank among those that use the lock.
    ranks: Vec<u32>,
}

/// The choice of the lock of an acquisition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShardBy {
    /// It is drawn.
    #[default]
    Draw,
    /// Each task has one.
    Task,
}

/// Acquisitions that are shared instead of exclusive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readers {
    /// Those at these sites, sorted.
    Sites(Vec<u32>),
    /// So many of a million, which are drawn.
    Share(i64),
}

/// Changes of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// By lock.
    pub locks: Vec<LockChange>,
    /// The number of processors; `None` as in the program.
    pub cpus: Option<u32>,
    /// The number of locks with all shards.
    pub lock_count: usize,
}

impl Changes {
    /// Returns no changes.
    pub fn none(program: &Program) -> Self {
        let locks = vec![LockChange::default(); program.locks.len()];
        Self { lock_count: locks.len(), locks, cpus: None }
    }

    /// Splits a lock.
    pub fn shard(&mut self, program: &Program, lock: usize, count: u32, by: ShardBy) {
        let uses = |task: &TaskProgram| {
            let is_it =
                |action: &Action| matches!(action, Action::Acquire { lock: of, .. } if *of as usize == lock);
            by == ShardBy::Task && task.actions.iter().any(is_it)
        };
        let mut next = 0;
        let rank = |task| {
            let rank = next;
            next += u32::from(uses(task));
            rank
        };
        let ranks = program.tasks.iter().map(rank).collect();
        self.locks[lock].shards = Some(Shards { count, by, first: self.lock_count, ranks });
        self.lock_count += count as usize - 1;
    }

    /// Whether anything is drawn, so that other seeds have other results.
    pub fn are_drawn(&self) -> bool {
        let is_drawn = |change: &LockChange| {
            change.shards.as_ref().is_some_and(|shards| shards.by == ShardBy::Draw)
                || matches!(change.readers, Some(Readers::Share(_)))
        };
        self.locks.iter().any(is_drawn)
    }
}

impl LockChange {
    /// Whether it changes what its holders do while they are not on a processor.
    pub fn is_pausing(&self) -> bool {
        self.no_preempt || self.sleep != HeldSleep::Stays
    }

    /// Returns the work of a hold of this site that takes `ns` in the recording.
    pub fn scale(&self, site: u32, ns: i64) -> i64 {
        let applies = |(of, _): &&(Option<u32>, i64)| of.is_none_or(|of| of == site);
        match self.scaled.iter().rev().find(applies) {
            Some((_, factor)) => {
                let scaled = i128::from(ns) * i128::from(*factor) / i128::from(MILLION);
                i64::try_from(scaled).unwrap_or(i64::MAX)
            }
            None => ns,
        }
    }

    /// Returns the lock of the acquisition with this number.
    pub fn target(&self, lock: usize, task: usize, number: u64, seed: u64) -> usize {
        let Some(shards) = &self.shards else { return lock };
        let at = match shards.by {
            ShardBy::Draw => (draw(number, seed) % u64::from(shards.count.max(1))) as usize,
            ShardBy::Task => (shards.ranks[task] % shards.count.max(1)) as usize,
        };
        if at == 0 { lock } else { shards.first + at - 1 }
    }

    /// Returns the mode of the acquisition with this number.
    pub fn mode(&self, mode: Mode, site: u32, number: u64, seed: u64) -> Mode {
        let is_reader = match &self.readers {
            Some(Readers::Sites(sites)) => sites.binary_search(&site).is_ok(),
            // Not the bits that choose a shard.
            Some(Readers::Share(share)) => {
                (draw(number, seed) >> 32) % MILLION as u64 >= (MILLION - share) as u64
            }
            None => false,
        };
        if is_reader { Mode::Shared } else { mode }
    }
}

/// Returns the number that belongs to an index: splitmix64.
fn draw(index: u64, seed: u64) -> u64 {
    let mut z = index.wrapping_add(seed.rotate_left(32)).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_those_of_splitmix64() {
        // The first numbers of the reference implementation with the seed 0.
        assert_eq!([draw(0, 0), draw(1, 0)], [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4]);
    }

    #[test]
    fn as_many_readers_are_drawn_as_were_asked_for() {
        let change = LockChange { readers: Some(Readers::Share(700_000)), ..LockChange::default() };
        let is_shared = |number: &u64| change.mode(Mode::Exclusive, 0, *number, 1) == Mode::Shared;
        let shared = (0..10_000).filter(is_shared).count();
        assert!((6_800..7_200).contains(&shared), "{shared}");
        for (share, shared) in [(0, 0), (MILLION, 1000)] {
            let change = LockChange { readers: Some(Readers::Share(share)), ..LockChange::default() };
            let is_shared = |number: &u64| change.mode(Mode::Exclusive, 0, *number, 1) == Mode::Shared;
            assert_eq!((0..1000).filter(is_shared).count(), shared);
        }
    }
}
