//! The timeline of a page: plans the windows whose intervals are kept, by the activity of all locks, and
//! packs the levels of locks and the kept intervals.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;
use trace_format::{LockId, TaskId};

use super::{
    activity::Activity,
    data::{Intervals, Level, Timeline, Window},
    levels::{HELD, Levels, OFF, PERIODS, THREAD_PERIODS, WAITED},
    pack::Pack,
    windows::{Keep, Kept, KeptKind, NO_LOCK},
};
use intervals::input::Input;
use output::error::AnalyzeError;

/// Locks with levels.
pub(super) const MAX_LOCKS: usize = 1000;
/// Tasks whose time is added up, the first of the trace; and threads with levels.
const MAX_TASKS: usize = 4096;
const MAX_THREADS: usize = 1000;
/// Locks with the finest level.
const FINE_LOCKS: usize = 64;
/// Periods of the finest level in one of the other.
const COARSE: usize = 8;
/// Windows that are chosen.
const WINDOWS: usize = 4;

/// The sinks of a trace's intervals: one for the levels of locks, one for the levels of threads, one for the
/// kept intervals.
pub(super) type Sinks = (Levels, Levels, Keep);

/// The time and the windows of a timeline.
pub(super) struct Plan {
    /// The start and the end of the trace.
    span: (i64, i64),
    windows: Vec<Window>,
    /// The number of intervals that the windows keep.
    intervals: usize,
}

impl Plan {
    /// Plans the timeline of a trace from the start to the end, with the chosen windows or else the busiest
    /// ones.
    pub(super) fn of(
        input: &Input<'_>,
        span: (i64, i64),
        chosen: &[(i64, i64)],
        intervals: usize,
    ) -> Result<Self, AnalyzeError> {
        let windows = match chosen {
            [] => Activity::of(input, span)?.busiest(WINDOWS, intervals, span.1),
            chosen => {
                let chosen = chosen.iter().map(|window| absolute(*window, span.0, span.1));
                chosen.collect::<Result<_, _>>()?
            }
        };
        Ok(Self { span, windows, intervals })
    }

    /// Returns the receivers of all intervals. `locks` are the ids of those with levels.
    pub(super) fn sinks(&self, input: &Input<'_>, locks: impl Iterator<Item = i32>) -> Sinks {
        let keep = Keep::new(self.windows.clone(), self.intervals);
        let tasks = (0..).take(input.names.tasks().len().min(MAX_TASKS));
        (Levels::new(locks, self.span, PERIODS), Levels::new(tasks, self.span, THREAD_PERIODS), keep)
    }
}

/// Returns the timeline of the intervals that its sinks have received. `locks` are the ids of locks, the most
/// important first.
pub(super) fn timeline(
    input: &Input<'_>,
    plan: &Plan,
    locks: impl Iterator<Item = i32>,
    (sums, threads, keep): Sinks,
    pack: &mut Pack,
) -> Timeline {
    let Plan { span: (origin_ns, end_ns), windows, .. } = plan;
    let (origin_ns, end_ns) = (*origin_ns, *end_ns);
    let mut locks: Vec<i32> = locks.take(MAX_LOCKS).collect();
    let mut places: FxHashMap<i32, usize> = locks.iter().enumerate().map(|(at, lock)| (*lock, at)).collect();
    let coarse = level(&sums, &locks, COARSE, pack);
    let fine = level(&sums, &locks[..locks.len().min(FINE_LOCKS)], 1, pack);
    let (kept, left_out) = keep.finish();
    for interval in kept.iter().filter(|interval| interval.lock != NO_LOCK) {
        places.entry(interval.lock.0).or_insert_with(|| {
            locks.push(interval.lock.0);
            locks.len() - 1
        });
    }
    let mut tasks = ranked(&threads);
    let ids: Vec<i32> = tasks.iter().map(|task| task.0).collect();
    let thread_level = level(&threads, &ids, 1, pack);
    let [thread_waited, thread_off] =
        [WAITED, OFF].map(|what| pack.values(ids.iter().map(|task| total(&threads, *task, what))));
    let intervals = intervals(input, &kept, left_out, origin_ns, (&places, &mut tasks), pack);
    let threads: Vec<i64> = tasks.iter().map(|task| pack.string(&input.names.task_label(*task))).collect();
    let labels: Vec<i64> =
        locks.iter().map(|lock| pack.label(&input.names.lock_label(LockId(*lock)))).collect();
    let since = |ns: i64| ns.saturating_sub(origin_ns);
    Timeline {
        span_ns: since(end_ns).max(1),
        lock_ids: pack.values(locks.iter().map(|lock| i64::from(*lock))),
        locks: pack.values(labels),
        locks_total: input.names.locks().len(),
        levels: vec![coarse, fine],
        threads: pack.values(threads),
        thread_level,
        thread_waited,
        thread_off,
        windows: windows
            .iter()
            .map(|window| Window { from_ns: since(window.from_ns), to_ns: since(window.to_ns) })
            .collect(),
        intervals,
    }
}

/// Returns a window on the clock of the trace; an error if nothing of it is in the trace.
fn absolute((from_ns, to_ns): (i64, i64), origin_ns: i64, end_ns: i64) -> Result<Window, AnalyzeError> {
    let window = Window {
        from_ns: origin_ns.saturating_add(from_ns),
        to_ns: origin_ns.saturating_add(to_ns).min(end_ns),
    };
    if window.from_ns < window.to_ns {
        return Ok(window);
    }
    Err(AnalyzeError::WindowAfterEnd { from_ns, lasted_ns: end_ns.saturating_sub(origin_ns) })
}

/// Returns the threads that did something, the one that waited longest first, then the one that held locks
/// longest.
fn ranked(sums: &Levels) -> Vec<TaskId> {
    let totals = |task: i32| [WAITED, HELD, OFF].map(|what| Reverse(total(sums, task, what)));
    let all = sums.ids().map(|task| (totals(task), TaskId(task)));
    let mut ranked: Vec<_> = all.filter(|(totals, _)| totals.iter().any(|Reverse(ns)| *ns > 0)).collect();
    ranked.sort_unstable();
    ranked.into_iter().take(MAX_THREADS).map(|(_, task)| task).collect()
}

/// Returns what a lock or a thread has of something in all periods.
fn total(sums: &Levels, id: i32, what: usize) -> i64 {
    sums.of(id).iter().map(|sums| sums[what]).sum()
}

/// Returns the level of these locks or threads, in periods of `merged` of the finest ones.
fn level(sums: &Levels, ids: &[i32], merged: usize, pack: &mut Pack) -> Level {
    let period_ns = sums.period_ns().saturating_mul(i64::try_from(merged).unwrap_or(1));
    let mean = |what: usize| {
        let mut means = Vec::new();
        for id in ids {
            means.extend(sums.of(*id).chunks(merged).map(|chunk| {
                let sum: i128 = chunk.iter().map(|sums| i128::from(sums[what])).sum();
                // Whatever happened is seen: no more than nothing becomes 0.
                let thousandths = (sum * 1000 + i128::from(period_ns) - 1) / i128::from(period_ns);
                i64::try_from(thousandths).unwrap_or(i64::MAX)
            }));
        }
        means
    };
    let [held, waiting, off] = [HELD, WAITED, OFF].map(|what| pack.values(mean(what)));
    Level { period_ns, periods: sums.count / merged, locks: ids.len(), held, waiting, off }
}

fn intervals(
    input: &Input<'_>,
    kept: &[Kept],
    left_out: u64,
    origin_ns: i64,
    (places, threads): (&FxHashMap<i32, usize>, &mut Vec<TaskId>),
    pack: &mut Pack,
) -> Intervals {
    let names = &input.names;
    let mut holds: FxHashMap<(LockId, TaskId, i64), i64> = FxHashMap::default();
    for (at, hold) in kept.iter().enumerate().filter(|(_, kept)| kept.kind == KeptKind::Hold) {
        holds.insert((hold.lock, hold.task, hold.start_ns), at as i64);
    }
    let holder = |kept: &Kept| {
        kept.holder.and_then(|(task, start_ns)| holds.get(&(kept.lock, task, start_ns)).copied())
    };
    let mut tasks: FxHashMap<TaskId, i64> = threads.iter().copied().zip(0..).collect();
    let mut task = |id: TaskId| {
        *tasks.entry(id).or_insert_with(|| {
            threads.push(id);
            threads.len() as i64 - 1
        })
    };
    let kept_tasks: Vec<i64> = kept.iter().map(|kept| task(kept.task)).collect();
    let holder_tasks: Vec<Option<i64>> =
        kept.iter().map(|kept| kept.holder.map(|(id, _)| task(id))).collect();
    let mut sites: FxHashMap<u32, i64> = FxHashMap::default();
    let mut stack_places: FxHashMap<u32, i64> = FxHashMap::default();
    let (mut site_labels, mut stack_indexes, mut stacks) = (Vec::new(), Vec::new(), Vec::new());
    for Kept { lock, stack, .. } in kept {
        let point = names.point_number(*lock, *stack);
        site_labels
            .push(*sites.entry(point).or_insert_with(|| pack.string(&names.point_of_number(point).label())));
        let chain = names.chain_number(*lock, *stack);
        let place = *stack_places.entry(chain).or_insert_with(|| {
            stacks.push(names.chain_of_number(chain).iter().map(|frame| pack.string(frame)).collect());
            stacks.len() as i64 - 1
        });
        stack_indexes.push(place);
    }
    let mut state = |kept: &Kept| match kept.syscall {
        Some(call) => pack.string(&format!("{} in {}", kept.state, call.name())),
        None => pack.string(kept.state),
    };
    let states: Vec<i64> = kept.iter().map(&mut state).collect();
    let modes: Vec<i64> = kept.iter().map(|kept| pack.string(kept.mode.as_str())).collect();
    Intervals {
        count: kept.len(),
        left_out,
        kind: pack.values(kept.iter().map(|kept| kept.kind as i64)),
        start: pack.deltas(kept.iter().map(|kept| kept.start_ns.saturating_sub(origin_ns))),
        length: pack.values(kept.iter().map(|kept| kept.end_ns.saturating_sub(kept.start_ns))),
        lock: pack.values(kept.iter().map(|kept| places.get(&kept.lock.0).map(|place| *place as i64))),
        task: pack.values(kept_tasks),
        mode: pack.values(modes),
        state: pack.values(states),
        site: pack.values(site_labels),
        stack: pack.values(stack_indexes),
        holder: pack.deltas(kept.iter().map(holder)),
        holder_task: pack.values(holder_tasks),
        stacks,
    }
}
