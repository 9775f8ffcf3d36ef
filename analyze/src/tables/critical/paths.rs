//! The sums of one path: steps enter, sums by lock and by kind of step leave.

use rustc_hash::FxHashMap;
use trace_format::LockId;

use super::totals::Parts;
use crate::{
    causes::State,
    critical::{Part, Path, Step},
};

/// The sums of a path.
#[derive(Debug, Default)]
pub(super) struct PathSums {
    pub(super) by_lock: FxHashMap<LockId, LockSums>,
    pub(super) parts: Parts,
}

/// The part of a path that one lock has.
#[derive(Debug, Default)]
pub(super) struct LockSums {
    /// Time on the path with a hold of the lock that was acquired last of all open holds of the task.
    pub(super) path_ns: i64,
    /// Time on the path with any hold of the lock.
    pub(super) held_ns: i64,
    pub(super) handoff_ns: i64,
    pub(super) jumps: i64,
}

impl Path for PathSums {
    fn step(&mut self, _root: usize, step: &Step<'_>) {
        let ns = step.to_ns - step.from_ns;
        let Self { by_lock, parts } = self;
        let part = match step.part {
            Part::Task { held: [others @ .., last], .. } => {
                let of_last = by_lock.entry(last.lock).or_default();
                of_last.path_ns += ns;
                of_last.held_ns += ns;
                // A task may hold a lock more than once.
                for (at, held) in others.iter().enumerate() {
                    let is_again = others[at + 1..].iter().chain([last]).any(|other| other.lock == held.lock);
                    if !is_again {
                        by_lock.entry(held.lock).or_default().held_ns += ns;
                    }
                }
                &mut parts.in_locks_ns
            }
            Part::Task { held: [], state } => match state {
                State::Preempted | State::Ready => &mut parts.off_cpu_ns,
                State::Asleep | State::Uninterruptible | State::Stopped => &mut parts.asleep_ns,
                State::Lock | State::Idle | State::Running | State::Unknown => &mut parts.no_lock_ns,
            },
            Part::Handoff(lock) => {
                by_lock.entry(lock).or_default().handoff_ns += ns;
                &mut parts.handoff_ns
            }
            Part::WakeUp(_) => &mut parts.wake_up_ns,
            Part::Waiting { is_idle: false, .. } => &mut parts.waiting_ns,
            Part::Waiting { is_idle: true, .. } => &mut parts.idle_ns,
            Part::Before => &mut parts.before_ns,
            Part::Lost => &mut parts.lost_ns,
        };
        *part += ns;
    }

    fn jump(&mut self, _root: usize, lock: LockId) {
        self.by_lock.entry(lock).or_default().jumps += 1;
    }
}
