//! Timelines of histories made by hand.

use proptest::prelude::*;
use trace_format::{LockKind, Scope};

use super::*;
use crate::intervals::Charge;

/// A lock's history in words.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    holds: Vec<Hold>,
    waits: Vec<Wait>,
    losses: Vec<(i64, i64)>,
}

impl History {
    pub(crate) fn hold(mut self, task: i32, start_ns: i64, end_ns: i64) -> Self {
        self.holds.push(hold(task, start_ns, end_ns));
        self
    }

    pub(crate) fn unreleased(mut self, task: i32, start_ns: i64, end_ns: i64) -> Self {
        self.holds.push(Hold { state: HoldState::OpenAtEnd, ..hold(task, start_ns, end_ns) });
        self
    }

    pub(crate) fn shared(mut self, task: i32, start_ns: i64, end_ns: i64) -> Self {
        self.holds.push(Hold { mode: Mode::Shared, ..hold(task, start_ns, end_ns) });
        self
    }

    pub(crate) fn wait(self, task: i32, start_ns: i64, end_ns: i64) -> Self {
        self.wait_with(task, start_ns, end_ns, Outcome::Acquired, None)
    }

    pub(crate) fn wait_with(
        mut self,
        task: i32,
        start_ns: i64,
        end_ns: i64,
        outcome: Outcome,
        owner: Option<i32>,
    ) -> Self {
        self.waits.push(Wait { outcome, owner: owner.map(TaskId), ..wait(task, start_ns, end_ns) });
        self
    }

    pub(crate) fn lost(mut self, ts_ns: i64, count: i64) -> Self {
        self.losses.push((ts_ns, count));
        self
    }

    pub(crate) fn without_holds(mut self) -> Self {
        self.holds.clear();
        self
    }

    pub(crate) fn timeline(&self, columns: usize) -> Timeline {
        self.timeline_of(lock(LockKind::PthreadMutex), true, None, columns)
    }

    pub(crate) fn timeline_of(
        &self,
        lock: LockRow,
        holds_recorded: bool,
        window: Option<(i64, i64)>,
        columns: usize,
    ) -> Timeline {
        let about = About { origin_ns: 1_000_000_000, holds_recorded, lock };
        let tasks: Vec<TaskRow> = (0..1_000).map(|id| task(id, "worker")).collect();
        let query = Query { lock: LockId(3), window, columns };
        compute(about, &tasks, &query, self).unwrap()
    }
}

impl Replay for History {
    fn replay<S: Pass>(&self, sink: &mut S) -> Result<(), AnalyzeError> {
        let (mut holds, mut waits) = (self.holds.clone(), self.waits.clone());
        holds.sort_by_key(|hold| hold.end_ns);
        waits.sort_by_key(|wait| wait.end_ns);
        holds.iter().for_each(|hold| sink.hold(hold));
        waits.iter().for_each(|wait| sink.wait(wait));
        self.losses.iter().for_each(|(ts_ns, count)| sink.lost(*ts_ns, *count));
        Ok(())
    }
}

pub(crate) fn lock(kind: LockKind) -> LockRow {
    LockRow {
        id: LockId(3),
        address: Some(0x7f3a_1c00_4520),
        kind,
        scope: if kind.is_kernel() { Scope::Kernel } else { Scope::Process },
        pid: (!kind.is_kernel()).then_some(4_000),
        name: Some("queue_lock".to_owned()),
        init_stack: None,
        first_ns: 1_001_000_000,
        last_ns: 1_002_500_000,
    }
}

pub(crate) fn task(id: i32, comm: &str) -> TaskRow {
    TaskRow {
        id: TaskId(id),
        pid: 4_000,
        tid: 4_001 + id,
        comm: Some(comm.to_owned()),
        start_ns: None,
        exit_ns: None,
        cgroup: None,
    }
}

fn hold(task: i32, start_ns: i64, end_ns: i64) -> Hold {
    Hold {
        lock: LockId(3),
        task: TaskId(task),
        mode: Mode::Exclusive,
        start_ns,
        end_ns,
        stack: None,
        contended: false,
        wait_ns: Some(0),
        waits_begun: 0,
        acquisitions: 1,
        recursions: 0,
        state: HoldState::Complete,
    }
}

fn wait(task: i32, start_ns: i64, end_ns: i64) -> Wait {
    Wait {
        lock: LockId(3),
        task: TaskId(task),
        mode: Mode::Exclusive,
        start_ns,
        end_ns,
        stack: None,
        outcome: Outcome::Acquired,
        wait_ns: end_ns - start_ns,
        blocked_ns: None,
        runq_ns: None,
        owner: None,
        waker: None,
        waker_stack: None,
        charge: Charge::Unknown,
    }
}

/// The worked example of LOCK_PROFILING: A holds, B and C wait and get the lock one after the other, E gives up.
pub(crate) fn worked_example() -> History {
    let at = |ns: i64| 1_000_000_000 + ns;
    History::default()
        .hold(0, at(1_000_000), at(2_000_500))
        .hold(1, at(2_003_000), at(2_503_999))
        .hold(2, at(2_505_000), at(2_505_900))
        .wait(1, at(1_200_000), at(2_003_000))
        .wait(2, at(1_300_000), at(2_505_000))
        .wait_with(3, at(1_600_000), at(1_700_000), Outcome::Abandoned(Some(110)), None)
}

/// `threads` tasks take turns: each waits from its last release until its next turn. `holds` holds of `hold_ns` with a
/// hand-off of `gap_ns` between them.
pub(crate) fn taking_turns(threads: i32, holds: i32, hold_ns: i64, gap_ns: i64) -> History {
    let mut history = History::default();
    let period = hold_ns + gap_ns;
    for turn in 0..holds {
        let start = 1_000_500_000 + i64::from(turn) * period;
        let last = start - i64::from(threads) * period + hold_ns;
        history = history.hold(turn % threads, start, start + hold_ns);
        if turn >= threads {
            history = history.wait(turn % threads, last + gap_ns, start);
        }
    }
    history
}

fn blockers(lane: &Lane) -> Vec<Blocker> {
    lane.wait.spans.iter().map(|span| span.blocker).collect()
}

#[test]
fn a_wait_is_for_whoever_holds_the_lock_at_the_time_and_for_nobody_while_it_is_handed_over() {
    let timeline = worked_example().timeline(1_000_000);
    let expected = [Blocker::Lane(0), Blocker::Unknown, Blocker::Lane(1), Blocker::Unknown];
    assert_eq!(blockers(&timeline.lanes[2]), expected);
    assert_eq!(blockers(&timeline.lanes[1]), expected[..2]);
    let lengths: Vec<i64> =
        timeline.lanes[2].wait.spans.iter().map(|span| span.to_ns - span.from_ns).collect();
    assert_eq!(lengths, [700_500, 2_500, 500_999, 1_001]);
}

#[test]
fn one_hold_gives_one_lane_with_one_span() {
    let timeline = History::default().hold(0, 1_001_000_000, 1_001_000_700).timeline(100);
    assert_eq!(timeline.lanes.len(), 1);
    assert_eq!(timeline.lanes[0].hold.total_ns(), 700);
    assert_eq!(timeline.totals, Totals { holds: 1, hold_ns: 700, ..Totals::default() });
    assert!(timeline.grid.from_ns() < 1_001_000_000 && timeline.grid.to_ns() > 1_001_000_700);
}

#[test]
fn an_interval_that_the_window_cuts_is_open_there() {
    let history = History::default().hold(0, 1_000, 9_000).wait(1, 2_000, 3_000);
    let timeline = history.timeline_of(lock(LockKind::PthreadMutex), true, Some((2_500, 5_000)), 10);
    let span = timeline.lanes[0].hold.spans[0];
    assert_eq!((span.from_ns, span.to_ns, span.open_start, span.open_end), (2_500, 5_000, true, true));
    assert_eq!((timeline.totals.hold_ns, timeline.totals.wait_ns), (2_500, 500));
}

#[test]
fn what_was_not_released_reaches_the_end_of_the_trace_and_is_open_there() {
    let timeline = History::default().unreleased(0, 1_001_000_000, 1_009_000_000).timeline(100);
    assert_eq!(timeline.grid.to_ns(), 1_009_000_000);
    assert!(timeline.lanes[0].hold.spans[0].open_end);
    assert_eq!(timeline.totals.open_holds, 1);
}

#[test]
fn more_threads_than_lanes_leave_the_busiest_and_one_lane_for_the_rest() {
    let history = (0..60).fold(History::default(), |history, task| {
        let start = i64::from(task) * 100_000;
        history.hold(task, start, start + 1_000 + i64::from(task))
    });
    let timeline = history.timeline(100);
    assert_eq!(timeline.lanes.len(), MAX_LANES + 1);
    assert_eq!(timeline.lanes[MAX_LANES].who, Who::Others(20));
    assert_eq!(timeline.lanes[MAX_LANES].totals.hold_ns, (0..20).map(|task| 1_000 + task).sum::<i64>());
    assert!(matches!(&timeline.lanes[0].who, Who::Thread(row) if row.id == TaskId(20)));
}

#[test]
fn a_waiter_whose_holder_is_not_recorded_waits_for_the_owner_that_the_lock_named() {
    let history = History::default().wait_with(0, 0, 1_000, Outcome::Acquired, Some(1)).wait_with(
        1,
        2_000,
        3_000,
        Outcome::Acquired,
        None,
    );
    let timeline = history.timeline_of(lock(LockKind::Mutex), false, None, 100);
    assert_eq!(blockers(&timeline.lanes[0]), [Blocker::Lane(1)]);
    assert_eq!(blockers(&timeline.lanes[1]), [Blocker::Unknown]);
}

#[test]
fn readers_that_hold_together_share_their_columns() {
    let timeline = History::default().shared(0, 0, 1_000_000).shared(1, 500_000, 1_000_000).timeline(100);
    let busiest = timeline.owners.iter().max_by_key(|owner| owner.holders.len()).unwrap();
    assert_eq!(busiest.holders.len(), 2);
    assert_eq!(timeline.totals.hold_ns, 1_500_000);
}

#[test]
fn losses_are_in_the_column_in_which_they_happened() {
    let timeline = History::default().hold(0, 0, 1_000_000).lost(500_000, 7).lost(500_001, 2).timeline(100);
    assert_eq!(timeline.losses, [(timeline.grid.column_of(500_000), 9)]);
}

#[test]
fn a_window_without_events_has_no_lanes() {
    let timeline = History::default().timeline(100);
    assert!(timeline.lanes.is_empty() && timeline.owners.is_empty());
    assert_eq!(timeline.totals, Totals::default());
}

#[test]
fn a_million_holds_keep_their_time_and_take_no_more_room_than_columns() {
    let mut sum = 0;
    struct Million;
    impl Replay for Million {
        fn replay<S: Pass>(&self, sink: &mut S) -> Result<(), AnalyzeError> {
            for turn in 0..1_000_000_i64 {
                let task = i32::try_from(turn % 8).unwrap();
                let start = turn * 1_000;
                sink.wait(&wait(task, (start - 5_000).max(0), start));
                sink.hold(&hold(task, start, start + 100 + turn % 7));
            }
            Ok(())
        }
    }
    let about = About { origin_ns: 0, holds_recorded: true, lock: lock(LockKind::PthreadMutex) };
    let query = Query { lock: LockId(3), window: None, columns: 900 };
    let timeline = compute(about, &[], &query, &Million).unwrap();
    for (index, lane) in timeline.lanes.iter().enumerate() {
        let turns = (0..1_000_000_i64).filter(|turn| turn % 8 == index as i64);
        let expected: i64 = turns.map(|turn| 100 + turn % 7).sum();
        assert_eq!((lane.hold.total_ns(), lane.totals.hold_ns), (expected, expected));
        assert_eq!(lane.hold.spans.len() + lane.wait.spans.len(), 0);
        sum += lane.hold.total_ns();
    }
    assert_eq!(sum, timeline.totals.hold_ns);
    assert!(timeline.owners.len() <= 900);
}

proptest! {
    #[test]
    fn painted_time_is_the_time_of_the_intervals_and_cells_stay_out_of_spans(
        lengths in prop::collection::vec((0i64..400, 0i64..400, 0i32..4), 1..60), columns in 1usize..50,
    ) {
        let (mut history, mut now, mut expected) = (History::default(), 0, [0; 4]);
        for (gap, length, task) in lengths {
            history = history.hold(task, now + gap, now + gap + length).wait(task, now, now + gap);
            expected[task as usize] += length;
            now += gap + length;
        }
        let timeline = history.timeline(columns);
        for lane in &timeline.lanes {
            let Who::Thread(row) = &lane.who else { panic!("no lane for the rest") };
            prop_assert_eq!(lane.hold.total_ns(), expected[row.id.0 as usize]);
            prop_assert_eq!(lane.wait.total_ns(), lane.totals.wait_ns);
            for cell in cells(&timeline.grid, &lane.hold, &lane.wait) {
                let mut spans = lane.hold.spans.iter().chain(&lane.wait.spans);
                prop_assert!(spans.all(|span| cell.to_ns <= span.from_ns || span.to_ns <= cell.from_ns));
                prop_assert!(cell.hold + cell.wait <= 1.0 + 1e-9, "{:?}", cell);
            }
        }
    }
}
