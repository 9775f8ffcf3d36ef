//! The sums of one path, by lock and by kind of step.

use rustc_hash::FxHashMap;
use trace_format::{LockId, TaskId};

use super::totals::PathParts;
use intervals::{
    critical::{Path, PathPart, PathStep},
    items::State,
};

#[derive(Debug, Default)]
pub(super) struct PathSums {
    /// By group of roots and lock.
    pub(super) by_lock: FxHashMap<(usize, LockId), LockSums>,
    pub(super) parts: PathParts,
    /// The group of each root, if they are spans.
    groups: Vec<usize>,
    /// Of spans: `path_ns` by root and lock.
    by_span: FxHashMap<(usize, LockId), i64>,
    /// Of the present root: by task, the time on the path in which it held any lock.
    clocks: FxHashMap<TaskId, i64>,
    /// The locks that tasks hold: how often, and the time of the task's clock at the last end of the holds.
    open: FxHashMap<(TaskId, LockId), (u32, i64)>,
    /// By lock, the time on the path of the present root with any hold of it.
    held_ns: FxHashMap<LockId, i64>,
}

/// The part of a path that one lock has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LockSums {
    /// Time on the path with a hold of the lock that was acquired last of all open holds of the task.
    pub(super) path_ns: i64,
    /// Time on the path with any hold of the lock.
    pub(super) held_ns: i64,
    pub(super) handoff_ns: i64,
    pub(super) jumps: i64,
}

/// The distribution of the part of a lock over the spans of a group.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OverSpans {
    /// The spans whose path has the lock.
    pub(super) spans: i64,
    pub(super) p50_ns: i64,
    pub(super) p99_ns: i64,
}

impl PathSums {
    /// Returns sums of spans of these groups.
    pub(super) fn of_spans(groups: Vec<usize>) -> Self {
        Self { groups, ..Self::default() }
    }

    /// Returns the distribution of `path_ns` over the spans of each group, by lock. A span without the lock
    /// counts as 0.
    pub(super) fn over_spans(&self) -> FxHashMap<(usize, LockId), OverSpans> {
        let mut sizes: FxHashMap<usize, usize> = FxHashMap::default();
        self.groups.iter().for_each(|group| *sizes.entry(*group).or_default() += 1);
        let mut times: FxHashMap<(usize, LockId), Vec<i64>> = FxHashMap::default();
        for ((root, lock), ns) in &self.by_span {
            times.entry((self.groups[*root], *lock)).or_default().push(*ns);
        }
        let distribution = |(key, mut times): ((usize, LockId), Vec<i64>)| {
            times.sort_unstable();
            let size = sizes[&key.0];
            // The nearest rank, of all spans of the group.
            let percentile = |percent: usize| {
                let zeros = size - times.len();
                let rank = (size * percent).div_ceil(100);
                rank.checked_sub(zeros + 1).map_or(0, |at| times[at])
            };
            let (p50_ns, p99_ns) = (percentile(50), percentile(99));
            (key, OverSpans { spans: times.len() as i64, p50_ns, p99_ns })
        };
        times.into_iter().map(distribution).collect()
    }
}

impl Path for PathSums {
    fn step(&mut self, root: usize, step: &PathStep<'_>) {
        let ns = step.to_ns.saturating_sub(step.from_ns);
        let add = |sum: &mut i64| *sum = sum.saturating_add(ns);
        let Self { by_lock, parts, groups, by_span, clocks, .. } = self;
        let group = groups.get(root).copied();
        let of = |lock| (group.unwrap_or_default(), lock);
        let part = match step.part {
            PathPart::Task { held: [.., last], .. } => {
                if group.is_some() {
                    add(by_span.entry((root, last.lock)).or_default());
                }
                let of_last = by_lock.entry(of(last.lock)).or_default();
                add(&mut of_last.path_ns);
                add(clocks.entry(step.task).or_default());
                &mut parts.in_locks_ns
            }
            PathPart::Task { held: [], state } => match state {
                State::Preempted | State::Ready => &mut parts.off_cpu_ns,
                State::Asleep | State::Uninterruptible | State::Stopped => &mut parts.asleep_ns,
                State::Lock | State::Idle | State::Running | State::Unknown => &mut parts.no_lock_ns,
            },
            PathPart::Handoff(lock) => {
                add(&mut by_lock.entry(of(lock)).or_default().handoff_ns);
                &mut parts.handoff_ns
            }
            PathPart::WakeUp(_) => &mut parts.wake_up_ns,
            PathPart::Waiting { is_idle: false, .. } => &mut parts.waiting_ns,
            PathPart::Waiting { is_idle: true, .. } => &mut parts.idle_ns,
            PathPart::Before => &mut parts.before_ns,
            PathPart::Lost => &mut parts.lost_ns,
        };
        add(part);
    }

    fn hold(&mut self, task: TaskId, lock: LockId, is_held: bool) {
        let now_ns = self.clocks.get(&task).copied().unwrap_or_default();
        let (count, since_ns) = self.open.entry((task, lock)).or_insert((0, now_ns));
        // A task may hold a lock more than once.
        *count = if is_held { *count + 1 } else { count.saturating_sub(1) };
        if *count == 0 {
            add_to(&mut self.held_ns, lock, now_ns - *since_ns);
            self.open.remove(&(task, lock));
        }
    }

    fn end(&mut self, root: usize) {
        for ((task, lock), (_, since_ns)) in self.open.drain() {
            let now_ns = self.clocks.get(&task).copied().unwrap_or_default();
            add_to(&mut self.held_ns, lock, now_ns - since_ns);
        }
        let group = self.groups.get(root).copied().unwrap_or_default();
        for (lock, ns) in self.held_ns.drain().filter(|(_, ns)| *ns > 0) {
            let of = self.by_lock.entry((group, lock)).or_default();
            of.held_ns = of.held_ns.saturating_add(ns);
        }
        self.clocks.clear();
    }

    fn jump(&mut self, root: usize, lock: LockId) {
        let group = self.groups.get(root).copied().unwrap_or_default();
        self.by_lock.entry((group, lock)).or_default().jumps += 1;
    }
}

fn add_to(sums: &mut FxHashMap<LockId, i64>, lock: LockId, ns: i64) {
    let sum = sums.entry(lock).or_default();
    *sum = sum.saturating_add(ns);
}
