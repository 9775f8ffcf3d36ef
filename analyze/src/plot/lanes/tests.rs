//! Charts of hand-made histories.

use proptest::prelude::*;
use trace_format::{LockId, LockKind, LockRow, TaskId};

use super::{
    chart::LockContext,
    compute::compute,
    history::{History, hold, lock, wait, worked_example},
    replay::{Replay, Replayed},
    *,
};
use crate::testing::Parts;
use intervals::items::{Item, Outcome, Sink};
use output::AnalyzeError;

fn blockers(lane: &Lane) -> Vec<Blocker> {
    lane.wait.spans.iter().map(|span| span.blocker).collect()
}

#[test]
fn a_wait_is_blocked_by_the_holder_and_by_no_thread_in_a_hand_off_gap() {
    let chart = worked_example().chart(1_000_000);
    let expected = [Blocker::Lane(0), Blocker::Unknown, Blocker::Lane(1), Blocker::Unknown];
    assert_eq!(blockers(&chart.lanes[2]), expected);
    assert_eq!(blockers(&chart.lanes[1]), expected[..2]);
    let lengths: Vec<i64> = chart.lanes[2].wait.spans.iter().map(|span| span.to_ns - span.from_ns).collect();
    assert_eq!(lengths, [700_500, 2_500, 500_999, 1_001]);
}

#[test]
fn a_short_gap_between_holds_of_one_thread_does_not_cut_a_wait() {
    let history = History::default()
        .hold(0, 0, 1_000_000)
        .hold(0, 1_000_100, 2_000_000)
        .hold(0, 2_500_000, 3_000_000)
        .wait(1, 0, 3_000_100);
    let chart = history.chart(1_000);
    assert_eq!(
        blockers(&chart.lanes[1])[..3],
        [Blocker::Lane(0), Blocker::Unknown, Blocker::Lane(0)],
        "the first gap is too short to be seen, the second is not"
    );
}

#[test]
fn a_chart_shows_only_the_selected_lock() {
    let mut parts = Parts::parse(
        "1_000_000 A acquire m a.c:10
         1_100_000 A acquire other a.c:11
         1_200_000 B wait m b.c:20
         1_300_000 C wait m b.c:20
         1_500_000 D try_fail m
         1_600_000 E wait m
         1_700_000 E abandon m wait=100_000 errno=110
         2_000_500 A release m
         2_003_000 B acquire m b.c:20 wait=803_000
         2_503_999 B release m
         2_505_000 C acquire m b.c:20 wait=1_205_000
         2_505_900 C release m
         2_600_000 A release other",
    );
    let lock = parts.lock_id("m");
    let test = parts.write();
    let chart = of_lock(&test.trace, &Query { lock, window: None, columns: 1_000 }).unwrap();
    let summed: Vec<(u64, i64, i64)> = chart
        .lanes
        .iter()
        .map(|lane| (lane.totals.holds, lane.hold.total_ns(), lane.wait.total_ns()))
        .collect();
    assert_eq!(summed, [(1, 1_000_500, 0), (1, 500_999, 803_000), (1, 900, 1_205_000), (0, 0, 100_000)]);
    assert_eq!(chart.totals.abandoned, 1);
    assert_eq!(chart.lanes[3].abandoned.iter().sum::<u32>(), 1);
    assert_eq!(chart.waiters.iter().map(|column| column.peak).max(), Some(3));
    let wait_ns: i64 = chart.waiters.iter().map(|column| column.wait_ns).sum();
    assert_eq!(wait_ns, chart.totals.wait_ns);
}

#[test]
fn a_lane_has_the_times_in_which_its_thread_was_off_cpu_in_a_hold() {
    let mut parts = Parts::parse(
        "1_000_000 A acquire m a.c:10
         3_000_000 A offcpu wait=1_500_000 blocked=0 state=runnable
         3_500_000 A offcpu wait=10 blocked=0 state=runnable
         4_000_000 B offcpu wait=2_000_000 blocked=2_000_000 state=interruptible
         5_000_000 A release m
         6_000_000 A offcpu wait=800_000 blocked=800_000 state=interruptible
         6_100_000 A acquire m a.c:10
         6_200_000 A release m",
    );
    let lock = parts.lock_id("m");
    let chart =
        of_lock(&parts.write().trace, &Query { lock, window: Some((0, i64::MAX)), columns: 1_000 }).unwrap();
    let shown: Vec<i64> = chart.lanes[0].off_cpu.iter().map(|(from_ns, to_ns)| to_ns - from_ns).collect();
    assert_eq!((chart.lanes.len(), shown), (1, vec![1_500_000]), "{:?}", chart.lanes);
}

#[test]
fn without_waits_the_busiest_window_has_the_longest_hold() {
    let mut history = History::default();
    for at in 0..1_000 {
        history = history.hold(0, at * 1_000, at * 1_000 + 100);
    }
    let chart = history.hold(0, 3_000_000, 3_400_000).chart(400);
    let longest = chart.lanes[0].hold.spans.iter().map(|span| span.to_ns - span.from_ns).max();
    assert!(chart.busiest && longest == Some(400_000), "{longest:?} of {:?}", chart.grid);
}

#[test]
fn an_unknown_lock_is_an_error_that_names_it() {
    let test = Parts::parse("1 A acquire m").write();
    let query = Query { lock: LockId(7), window: None, columns: 10 };
    let error = of_lock(&test.trace, &query).unwrap_err();
    assert!(error.to_string().starts_with("cannot find lock '#7': "), "{error}");
}

#[test]
fn a_loss_cuts_open_intervals() {
    let mut parts = Parts::parse(
        "1_000 A acquire m
         2_000 B wait m
         5_000 - lost count=3
         8_000 B acquire m wait=6_000
         9_000 B release m",
    );
    let lock = parts.lock_id("m");
    let test = parts.write();
    let chart = of_lock(&test.trace, &Query { lock, window: None, columns: 1_000 }).unwrap();
    let cut = chart.lanes[0].hold.spans[0];
    assert_eq!((cut.from_ns, cut.to_ns, cut.open_end), (1_000, 5_000, true));
    assert_eq!(chart.totals.cut, 2);
    assert_eq!(chart.losses, [(chart.grid.column_of(5_000), 3)]);
    let between = |span: &&Span| span.from_ns < 7_999 && span.to_ns > 5_000;
    assert_eq!(chart.lanes[1].wait.spans.iter().filter(between).count(), 0);
}

#[test]
fn one_hold_gives_one_lane_with_one_span() {
    let chart = History::default().hold(0, 1_001_000_000, 1_001_000_700).chart(100);
    assert_eq!(chart.lanes.len(), 1);
    assert_eq!(chart.lanes[0].hold.total_ns(), 700);
    assert_eq!(chart.totals, Totals { holds: 1, hold_ns: 700, ..Totals::default() });
    assert!(chart.grid.from_ns() < 1_001_000_000 && chart.grid.to_ns() > 1_001_000_700);
}

#[test]
fn an_interval_that_the_window_cuts_is_open_there() {
    let at = |ns: i64| 1_000_000_000 + ns;
    let history = History::default().hold(0, at(1_000), at(9_000)).wait(1, at(2_000), at(3_000));
    let chart = history.chart_of(lock(LockKind::PthreadMutex), true, Some((2_500, 5_000)), 10);
    let span = chart.lanes[0].hold.spans[0];
    assert_eq!((span.from_ns, span.to_ns), (at(2_500), at(5_000)));
    assert!(span.open_start && span.open_end);
    assert_eq!((chart.totals.hold_ns, chart.totals.wait_ns), (2_500, 500));
}

#[test]
fn a_window_ends_with_the_trace() {
    let history = History::default().hold(0, 1_000_000_000, 1_000_009_000);
    let chart = history.chart_of(lock(LockKind::Mutex), true, Some((2_000, i64::MAX)), 10);
    assert_eq!((chart.grid.from_ns(), chart.grid.to_ns()), (1_000_002_000, 1_000_009_000));
}

#[test]
fn an_unreleased_hold_is_open_at_the_end_of_the_trace() {
    let chart = History::default().unreleased(0, 1_001_000_000, 1_009_000_000).chart(100);
    assert_eq!(chart.grid.to_ns(), 1_009_000_000);
    assert!(chart.lanes[0].hold.spans[0].open_end);
    assert_eq!(chart.totals.open_holds, 1);
}

#[test]
fn more_threads_than_lanes_leave_the_busiest_and_one_lane_for_the_rest() {
    let history = (0..60).fold(History::default(), |history, task| {
        let start = i64::from(task) * 100_000;
        history.hold(task, start, start + 1_000 + i64::from(task))
    });
    let all = Some((-1_000_000_000, i64::MAX));
    let chart = history.chart_of(lock(LockKind::PthreadMutex), true, all, 100);
    assert_eq!(chart.lanes.len(), MAX_LANES + 1);
    assert_eq!(chart.lanes[MAX_LANES].subject, LaneSubject::Others(20));
    assert_eq!(chart.lanes[MAX_LANES].totals.hold_ns, (0..20).map(|task| 1_000 + task).sum::<i64>());
    assert!(matches!(&chart.lanes[0].subject, LaneSubject::Thread(row) if row.id == TaskId(59)));
}

#[test]
fn without_recorded_holds_a_wait_is_blocked_by_the_named_owner() {
    let history = History::default().wait_with(0, 0, 1_000, Outcome::Acquired, Some(1)).wait_with(
        1,
        2_000,
        3_000,
        Outcome::Acquired,
        None,
    );
    let chart = history.chart_of(lock(LockKind::Mutex), false, None, 100);
    assert_eq!(blockers(&chart.lanes[0]), [Blocker::Lane(1)]);
    assert_eq!(blockers(&chart.lanes[1]), [Blocker::Unknown]);
}

#[test]
fn readers_that_hold_together_share_their_columns() {
    let chart = History::default().shared(0, 0, 1_000_000).shared(1, 500_000, 1_000_000).chart(100);
    let busiest = chart.holders.iter().max_by_key(|owner| owner.lanes.len()).unwrap();
    assert_eq!(busiest.lanes.len(), 2);
    assert_eq!(chart.totals.hold_ns, 1_500_000);
}

#[test]
fn a_loss_is_in_its_column() {
    let chart = History::default().hold(0, 0, 1_000_000).lost(500_000, 7).lost(500_001, 2).chart(100);
    assert_eq!(chart.losses, [(chart.grid.column_of(500_000), 9)]);
}

#[test]
fn intervals_at_the_limits_of_i64_do_not_overflow() {
    let ends = [(i64::MIN, i64::MAX), (i64::MIN, i64::MIN), (i64::MAX, i64::MAX), (-5, i64::MAX)];
    for columns in [1, 7, MAX_COLUMNS, usize::MAX] {
        let history = ends.iter().fold(History::default(), |history, (start, end)| {
            history.hold(0, *start, *end).shared(1, *start, *end).wait(2, *start, *end).wait(3, *start, *end)
        });
        for window in [None, Some((i64::MIN, i64::MAX)), Some((i64::MAX, i64::MIN)), Some((0, 1))] {
            let chart = history.chart_of(lock(LockKind::RwSem), true, window, columns);
            assert!(chart.grid.columns() <= MAX_COLUMNS);
            let options = crate::plot::Options::default();
            assert!(!crate::plot::svg(&chart, &options).unwrap().contains("NaN"));
        }
    }
}

#[test]
fn a_window_without_events_has_no_lanes() {
    let chart = History::default().chart(100);
    assert!(chart.lanes.is_empty() && chart.holders.is_empty());
    assert_eq!(chart.totals, Totals::default());
}

#[test]
fn a_million_holds_keep_their_time_in_bounded_memory() {
    let mut sum = 0;
    struct Million;
    impl Replay for Million {
        fn replay(&self, _: Option<i64>, sink: &mut impl Sink) -> Result<Replayed, AnalyzeError> {
            for turn in 0..1_000_000_i64 {
                let task = i32::try_from(turn % 8).unwrap();
                let start = turn * 1_000;
                sink.push(Item::Wait(&wait(task, (start - 5_000).max(0), start)));
                sink.push(Item::Hold(&hold(task, start, start + 100 + turn % 7)));
            }
            Ok(Replayed { end_ns: 1_000_000_000, cut_short: false })
        }
    }
    let lock = LockRow { first_ns: 0, last_ns: 999_999_106, ..lock(LockKind::PthreadMutex) };
    let context = LockContext { origin_ns: 0, holds_recorded: true, lock, tasks: &[], names: None };
    let query = Query { lock: LockId(3), window: Some((0, 1_000_000_000)), columns: 900 };
    let chart = compute(&context, &query, &Million).unwrap();
    for lane in &chart.lanes {
        let LaneSubject::Thread(row) = &lane.subject else { panic!("no lane for the rest") };
        let turns = (0..1_000_000_i64).filter(|turn| turn % 8 == i64::from(row.id.0));
        let expected: i64 = turns.map(|turn| 100 + turn % 7).sum();
        assert_eq!((lane.hold.total_ns(), lane.totals.hold_ns), (expected, expected));
        assert_eq!(lane.hold.spans.len() + lane.wait.spans.len(), 0);
        sum += lane.hold.total_ns();
    }
    assert_eq!(sum, chart.totals.hold_ns);
    assert!(chart.holders.len() <= 900);
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
        let all = Some((-1_000_000_000, i64::MAX));
        let chart = history.chart_of(lock(LockKind::PthreadMutex), true, all, columns);
        for lane in &chart.lanes {
            let LaneSubject::Thread(row) = &lane.subject else { panic!("no lane for the rest") };
            prop_assert_eq!(lane.hold.total_ns(), expected[row.id.0 as usize]);
            prop_assert_eq!(lane.wait.total_ns(), lane.totals.wait_ns);
            for cell in cells(&chart.grid, &lane.hold, &lane.wait) {
                let mut spans = lane.hold.spans.iter().chain(&lane.wait.spans);
                prop_assert!(spans.all(|span| cell.to_ns <= span.from_ns || span.to_ns <= cell.from_ns));
                prop_assert!(cell.hold + cell.wait <= 1.0 + 1e-9, "{:?}", cell);
            }
        }
    }
}
