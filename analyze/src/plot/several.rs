//! The data of a picture of several locks: what each thread held and waited for, on one axis, and the hand-overs between threads.
//!
//! A trace and the ids of locks enter, [`Several`] leaves: the chart of each lock in the same window, and the threads of all charts.

use std::{cmp::Reverse, collections::BTreeMap};

use rustc_hash::{FxHashMap, FxHashSet};
use trace_format::{LockId, TaskId, TaskRow, Trace};

use super::lanes::{Chart, Grid, LaneSubject, OfLocks, Query, of_lock, of_locks};
use crate::{
    AnalyzeError,
    engine::{Hold, Outcome, Share, Sink, Wait},
    input::{Input, filter::Filter},
    tables::report::{self, Column},
};

/// The most locks of a picture.
pub const MAX_LOCKS: usize = 6;
/// The most threads that have lanes.
pub const MAX_THREADS: usize = 16;
/// The most hand-overs that are kept.
pub const MAX_HANDOVERS: usize = 300;

/// Several locks in one window.
#[derive(Clone, Debug, PartialEq)]
pub struct Several {
    /// The chart of each lock.
    pub charts: Vec<Chart>,
    /// The names of the locks; safe to print.
    pub names: Vec<String>,
    /// The threads, the one that made others wait longest first.
    pub threads: Vec<Thread>,
    /// The number of other threads.
    pub more_threads: usize,
    /// The hand-overs in the order of their ends, the first [`MAX_HANDOVERS`].
    pub handovers: Vec<Handover>,
    /// The number of all hand-overs in the window.
    pub handovers_total: usize,
}

/// A thread and its lanes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// The thread.
    pub task: TaskRow,
    /// By lock: the index of its lane in the chart.
    pub lanes: Vec<Option<usize>>,
    /// Time that it held the locks, in ns.
    pub hold_ns: i64,
    /// Time that others waited for its holds, in ns.
    pub caused_ns: i64,
    /// Time that it waited for the locks, in ns.
    pub wait_ns: i64,
}

/// A lock goes from the thread that held it to one that waited for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handover {
    /// The index of the lock.
    pub lock: usize,
    /// The thread that held it.
    pub from: TaskId,
    /// The end of its hold, in ns.
    pub released_ns: i64,
    /// The thread that waited.
    pub to: TaskId,
    /// The end of its wait, in ns.
    pub acquired_ns: i64,
}

impl Several {
    /// Returns the window and its columns.
    pub fn grid(&self) -> Option<Grid> {
        self.charts.first().map(|chart| chart.grid)
    }
}

/// Returns the locks with the most waiting, the first `count` of them.
///
/// # Errors
///
/// The trace cannot be read or holds no events, or the filter finds nothing in it.
pub fn most_waited(trace: &Trace, filter: &Filter, count: usize) -> Result<Vec<LockId>, AnalyzeError> {
    let options = report::Options {
        sort: Column::WaitTotal,
        limit: Some(count),
        filter: filter.clone(),
        allow_loss: true,
        ..report::Options::default()
    };
    let report = report::report(std::slice::from_ref(trace), &options)?;
    let id = |row: &report::Row| match row.key {
        crate::tables::key::Key::Lock { lock_id, .. } => Some(LockId(lock_id)),
        _ => None,
    };
    Ok(report.rows.iter().filter_map(id).collect())
}

/// Computes the charts of locks in one window: the given one, in ns since the start of the trace, otherwise the busiest of the first lock.
///
/// # Errors
///
/// As [`of_lock`].
pub fn several(
    trace: &Trace,
    locks: &[LockId],
    window: Option<(i64, i64)>,
    columns: usize,
) -> Result<Several, AnalyzeError> {
    let locks = &locks[..locks.len().min(MAX_LOCKS)];
    let mut input = Input::open(trace, 0, &Filter { include_idle: true, ..Filter::default() })?;
    input.selection.select_only(locks.iter().copied());
    let names = locks.iter().map(|lock| input.names.lock_label(*lock)).collect();
    let (mut charts, mut handovers) = (Vec::new(), OfLocks(Vec::new()));
    if let Some((lock, others)) = locks.split_first() {
        // All charts have the window of the first.
        let first = of_lock(trace, &Query { lock: *lock, window, columns })?;
        let grid = first.grid;
        let since = |ns: i64| ns.saturating_sub(first.origin_ns);
        let window = window.unwrap_or((since(grid.from_ns()), since(grid.to_ns())));
        handovers.0.extend(locks.iter().zip(0..).map(|(lock, at)| (*lock, Handovers::new(at, grid))));
        charts.push(first);
        charts.extend(of_locks(&input, others, window, grid, &mut handovers)?);
    }
    let handovers: Vec<Handovers> = handovers.0.into_iter().map(|(_, handovers)| handovers).collect();
    let handovers_total = handovers.iter().map(|of| of.total).sum();
    let mut tasks: FxHashSet<TaskId> = handovers.iter().flat_map(|of| of.tasks.iter().copied()).collect();
    let mut handovers: Vec<Handover> = handovers.into_iter().flat_map(|of| of.found).collect();
    handovers.sort_by_key(|handover| (handover.acquired_ns, handover.lock, handover.to));
    handovers.truncate(MAX_HANDOVERS);
    let mut threads = threads(&charts);
    // A chart gives lanes to some of its threads only.
    tasks.extend(threads.iter().map(|thread| thread.task.id));
    threads.truncate(MAX_THREADS);
    let more_threads = tasks.len() - threads.len();
    Ok(Several { charts, names, threads, more_threads, handovers, handovers_total })
}

fn threads(charts: &[Chart]) -> Vec<Thread> {
    let mut threads: BTreeMap<TaskId, Thread> = BTreeMap::new();
    for (lock, chart) in charts.iter().enumerate() {
        for (index, lane) in chart.lanes.iter().enumerate() {
            let LaneSubject::Thread(task) = &lane.subject else { continue };
            let thread = threads.entry(task.id).or_insert_with(|| Thread {
                task: task.clone(),
                lanes: vec![None; charts.len()],
                hold_ns: 0,
                caused_ns: 0,
                wait_ns: 0,
            });
            thread.lanes[lock] = Some(index);
            thread.hold_ns = thread.hold_ns.saturating_add(lane.totals.hold_ns);
            thread.caused_ns = thread.caused_ns.saturating_add(lane.totals.caused_ns);
            thread.wait_ns = thread.wait_ns.saturating_add(lane.totals.wait_ns);
        }
    }
    let mut threads: Vec<Thread> = threads.into_values().collect();
    threads.sort_by_key(|of| (Reverse((of.caused_ns, of.hold_ns, of.wait_ns)), of.task.id));
    threads
}

/// Collects the hand-overs of one lock: the last hold that a wait was charged to, and the end of the wait with the lock.
struct Handovers {
    /// The index of the lock.
    lock: usize,
    grid: Grid,
    /// The tasks that held the lock or waited for it in the window.
    tasks: FxHashSet<TaskId>,
    /// By waiter: the holder and the end of the last share of its wait that is charged to a hold.
    last: FxHashMap<TaskId, (TaskId, i64)>,
    found: Vec<Handover>,
    total: usize,
}

impl Handovers {
    fn new(lock: usize, grid: Grid) -> Self {
        let (tasks, last) = (FxHashSet::default(), FxHashMap::default());
        Self { lock, grid, tasks, last, found: Vec::new(), total: 0 }
    }

    fn add_task(&mut self, task: TaskId, start_ns: i64, end_ns: i64) {
        if self.grid.clip(start_ns, end_ns).is_some() {
            self.tasks.insert(task);
        }
    }
}

impl Sink for Handovers {
    const SHARES: bool = true;

    fn hold(&mut self, hold: &Hold) {
        self.add_task(hold.task, hold.start_ns, hold.end_ns);
    }

    fn share(&mut self, wait: &Wait, share: &Share) {
        if let Some(payer) = share.payer {
            self.last.insert(wait.task, (payer.task, share.start_ns.saturating_add(share.ns)));
        }
    }

    fn wait(&mut self, wait: &Wait) {
        self.add_task(wait.task, wait.start_ns, wait.end_ns);
        let Some((from, released_ns)) = self.last.remove(&wait.task) else { return };
        let grid = self.grid;
        let is_inside = released_ns >= grid.from_ns() && wait.end_ns < grid.to_ns();
        if wait.outcome == Outcome::Acquired && is_inside {
            self.total += 1;
            if self.found.len() < MAX_HANDOVERS {
                let (lock, to, acquired_ns) = (self.lock, wait.task, wait.end_ns);
                self.found.push(Handover { lock, from, released_ns, to, acquired_ns });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Parts, committed};

    #[test]
    fn a_handover_goes_from_the_release_to_the_end_of_the_wait() {
        let mut parts = Parts::parse(
            "1_000 A acquire m a.c:1\n1_100 B wait m b.c:2\n1_200 A acquire n a.c:3\n1_300 C wait n c.c:4
             2_000 A release n\n2_050 C acquire n c.c:4 wait=750\n2_100 C release n\n3_000 A release m
             3_200 B acquire m b.c:2 wait=2_100\n3_300 B release m",
        );
        let locks = [parts.lock_id("m"), parts.lock_id("n")];
        let task = |several: &Several, name: &str| {
            let of = |thread: &&Thread| thread.task.comm.as_deref() == Some(name);
            several.threads.iter().find(of).unwrap().task.id
        };
        let test = parts.write();
        let several = several(&test.trace, &locks, None, 400).unwrap();
        let [a, b, c] = ["A", "B", "C"].map(|name| task(&several, name));
        let expected = [
            Handover { lock: 1, from: a, released_ns: 2_000, to: c, acquired_ns: 2_050 },
            Handover { lock: 0, from: a, released_ns: 3_000, to: b, acquired_ns: 3_200 },
        ];
        assert_eq!((several.handovers.as_slice(), several.handovers_total), (&expected[..], 2));
        assert_eq!(several.threads[0].task.id, a, "the thread that made others wait comes first");
    }

    #[test]
    fn threads_without_a_lane_are_counted_once_however_many_locks_they_use() {
        // 100 threads use both locks; a chart has at most 40 lanes.
        let mut text = String::new();
        for thread in 0..100 {
            let at = 1_000 + thread * 100;
            for (lock, at) in [("m", at), ("n", at + 50)] {
                text.push_str(&format!(
                    "{at} T{thread} acquire {lock}\n{} T{thread} release {lock}\n",
                    at + 20
                ));
            }
        }
        let mut parts = Parts::parse(&text);
        let locks = [parts.lock_id("m"), parts.lock_id("n")];
        let several = several(&parts.write().trace, &locks, Some((0, i64::MAX)), 400).unwrap();
        assert_eq!((several.threads.len(), several.more_threads), (MAX_THREADS, 100 - MAX_THREADS));
    }

    #[test]
    fn times_of_threads_are_those_of_the_report_of_each_lock() {
        for name in ["shop", "demo", "redis", "memcached", "threads_64"] {
            assert_times_are_those_of_the_report(&committed(name));
        }
    }

    fn assert_times_are_those_of_the_report(trace: &Trace) {
        let locks = most_waited(trace, &Filter::default(), 3).unwrap();
        let several = several(trace, &locks, Some((0, i64::MAX)), 800).unwrap();
        let options = report::Options { allow_loss: true, ..report::Options::default() };
        let report = report::report(std::slice::from_ref(trace), &options).unwrap();
        assert_eq!(several.charts.len(), 3);
        for (lock, chart) in several.charts.iter().enumerate() {
            let row = report.rows.iter().find(|row| row.name == several.names[lock]).unwrap();
            // The last lane may be that of all other threads.
            let held: i64 = chart.lanes.iter().map(|lane| lane.totals.hold_ns).sum();
            for (lane, thread) in several.threads.iter().filter_map(|of| Some((of.lanes[lock]?, of))) {
                let is_same = |subject: &LaneSubject| matches!(subject, LaneSubject::Thread(task) if *task == thread.task);
                assert!(is_same(&chart.lanes[lane].subject), "{:?}", thread.task);
            }
            // The report counts holds that are open at the end in a column of their own.
            let columns = &row.columns;
            let expected = columns.total_ns.unwrap_or(0) + columns.open_hold_ns;
            assert_eq!(held, expected, "{}", row.name);
        }
        assert!(several.charts.iter().all(|chart| chart.grid == several.charts[0].grid));
    }
}
