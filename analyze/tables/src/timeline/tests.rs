//! Timelines: the cells of each interval, and sums across the borders of periods.

use crate::testing::Intervals;
use std::collections::BTreeMap;

use proptest::{prelude::*, test_runner::Config};

use super::{Cell, Options, Timeline, round_period, timeline};
use crate::{
    Table as _,
    key::By,
    testing::trace_of,
    testing::{self, text_of, written},
};
use intervals::{
    Filter,
    engine::{Engine, histories},
    items::{HoldState, Outcome},
};
use output::{
    AnalyzeError,
    Format::{Csv, Json, Text},
    Page,
    layout::TextStyle,
};

const TEXT: &str = "
    0 A acquire m a.c:1
    50 B wait m b.c:1
    250 A release m
    260 B acquire m b.c:1 wait=210
    300 B release m
    310 A acquire n a.c:2
    390 A release n
";

fn of(text: &str, options: &Options) -> Timeline {
    timeline(&[testing::trace(text).trace], &Options { allow_loss: true, ..options.clone() }).unwrap()
}

fn cells(timeline: &Timeline, at: usize) -> Vec<(i64, i64, i64, i64, i64)> {
    let cell = |(number, c): (&i64, &Cell)| (*number, c.wait_ns, c.hold_ns.unwrap_or(-1), c.waits, c.holds);
    timeline.keys[at].cells.iter().map(cell).collect()
}

#[test]
fn a_wait_and_a_hold_are_split_at_the_borders_and_counted_where_they_begin() {
    let timeline = of(TEXT, &Options { period_ns: Some(100), ..Options::default() });
    assert_eq!(
        cells(&timeline, 0),
        [(0, 50, 100, 1, 1), (1, 100, 100, 0, 0), (2, 60, 50 + 40, 0, 1)],
        "{timeline:?}"
    );
    assert_eq!(cells(&timeline, 1), [(3, 0, 80, 0, 1)]);
    assert_eq!((timeline.period(3), timeline.periods()), ((300, 390), 4));
}

#[test]
fn a_terminal_shows_no_bars_of_kernel_locks_that_hardly_anybody_waited_for() {
    let text = "lock r spinlock name=runqueue\nlock s rwsem name=mmap_lock\n\
                1 A acquire m a.c:1\n2 B wait m b.c:1\n300_000 A release m\n300_000 B acquire m b.c:1 wait=299998\n\
                300_010 B release m\n300_020 A acquire r k:r.c:1 wait=1\n300_021 A release r\n\
                300_030 A acquire s k:m.c:1 wait=5\n300_031 A release s\n";
    let timeline = of(text, &Options::default());
    let shown = |hides_zeros| {
        let style = TextStyle { is_terminal: true, ..TextStyle::default() };
        let page = Page { style, hides_zeros, ..Page::default() };
        text_of(|out| timeline.write(&page, out))
    };
    let (short, all) = (shown(true), shown(false));
    assert!(short.contains(" m") && !short.contains("mmap_lock"), "{short}");
    assert!(short.contains("... 2 more keys of kernel locks with less than 0.1 % of the waiting"), "{short}");
    assert!(all.contains("runqueue") && all.contains("mmap_lock"), "{all}");
}

#[test]
fn times_cut_off_what_is_outside_of_them() {
    let filter = Filter { from_ns: Some(60), to_ns: Some(255), ..Filter::default() };
    let timeline = of(TEXT, &Options { period_ns: Some(100), filter, ..Options::default() });
    assert_eq!(cells(&timeline, 0), [(0, 100, 100, 0, 0), (1, 95, 90, 0, 0)]);
    assert_eq!((timeline.period(1), timeline.keys.len()), ((160, 255), 1));
}

#[test]
fn the_keys_with_the_most_waiting_are_shown_and_the_others_are_one() {
    let timeline =
        of(TEXT, &Options { period_ns: Some(100), limit: Some(1), by: By::Site, ..Options::default() });
    assert_eq!(timeline.keys[0].name, "b.c:1 (pthread_mutex:m)");
    let others = timeline.others.as_ref().unwrap();
    assert_eq!((timeline.others_count, others.total.hold_ns), (2, Some(250 + 80)));
    let shown = written(&timeline, Text, Some(80));
    assert!(shown.contains("\n2 other keys\n"), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    let csv = written(&timeline, Csv, None);
    assert!(csv.contains("\n100,200,100,0,0,0,b.c:1 (pthread_mutex:m),b.c,1,"), "{csv}");
    assert!(csv.contains("\n100,200,0,100,0,0,(others),,,"), "{csv}");
    let json: serde_json::Value = serde_json::from_str(&written(&timeline, Json, None)).unwrap();
    assert_eq!(json["keys"][0]["cells"]["1"]["wait_ns"], 100);
}

#[test]
fn holds_that_are_not_recorded_are_not_zero() {
    let timeline = of(
        "source kernel_contended kinds=mutex holds=no\nlock m mutex\n1 A wait m k:a.c:1\n9 A acquire m k:a.c:1 wait=8",
        &Options::default(),
    );
    assert_eq!((timeline.keys[0].total.hold_ns, timeline.keys[0].total.wait_ns), (None, 8));
    let csv = written(&timeline, Csv, None);
    assert!(csv.contains("\n0,1,1,,1,0,#0 m (mutex),"), "{csv}");
    assert!(written(&timeline, Text, None).contains("      all      8 ns         -        1        1"));
}

#[test]
fn a_period_is_a_round_time_and_never_too_short() {
    assert_eq!([0, 19, 40, 1_000, 2_310_000_000].map(round_period), [1, 1, 2, 50, 100_000_000]);
    assert!(round_period(i64::MAX) > 0);
    let error = timeline(
        &[testing::trace("0 A acquire m\n1_000_000 A release m").trace],
        &Options { period_ns: Some(1), ..Options::default() },
    );
    assert!(matches!(error, Err(AnalyzeError::TooManyPeriods { .. })));
}

#[test]
fn what_was_cut_by_loss_is_in_no_cell_and_marks_its_key() {
    let timeline = of(
        "10 A acquire m\n20 B wait m\n50 - lost count=1\n60 A acquire m\n70 A release m",
        &Options::default(),
    );
    assert_eq!((timeline.keys[0].cut_by_loss, timeline.keys[0].total.wait_ns), (2, 0));
    let shown = written(&timeline, Text, None);
    assert!(shown.contains("\n! #0 m"), "{shown}");
}

#[test]
fn several_traces_count_time_from_their_own_begin() {
    let one = testing::trace_of_host("one", "1000 A acquire m a.c:1\n1150 A release m");
    let two = testing::trace_of_host(
        "two",
        "70 A acquire n\n100 A acquire m a.c:1\n350 A release m\n370 A release n",
    );
    let traces = [one.trace, two.trace];
    let of = |by| {
        let options = Options { by, period_ns: Some(100), ..Options::default() };
        timeline(&traces, &options).unwrap()
    };
    let sites = of(By::Site);
    assert_eq!((sites.from_ns, sites.to_ns, sites.traces, sites.periods()), (0, 300, 2, 3));
    assert_eq!(cells(&sites, 0), [(0, 0, 100 + 70, 0, 2), (1, 0, 50 + 100, 0, 0), (2, 0, 80, 0, 0)]);
    assert_eq!(cells(&of(By::Host), 1), [(0, 0, 100, 0, 1), (1, 0, 50, 0, 0)]);
    let locks = of(By::Lock);
    assert_eq!(locks.keys[0].name, "two: #0 n (pthread_mutex)");
    let csv = written(&locks, Csv, None);
    assert!(
        csv.contains("\n100,200,0,50,0,0,one: #0 m (pthread_mutex),0,0x1000,pthread_mutex,100,one\n"),
        "{csv}"
    );
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(testing::cases(100)) })]

    #[test]
    fn every_nanosecond_of_every_interval_is_in_its_period_once(
        events in histories::history(),
        period_ns in 1..40i64,
        limit in 0..4usize,
    ) {
        prop_assume!(!events.is_empty());
        // A late event would end before the start of the trace.
        prop_assume!(events.iter().all(|event| event.ts_ns >= events[0].ts_ns));
        let test = trace_of(events.clone(), 7);
        let mut engine = Engine::new(test.rules());
        let mut found = Intervals::default();
        events.iter().for_each(|event| engine.push(event, &mut found));
        let last_ns = events.iter().map(|event| event.ts_ns).max().unwrap();
        engine.finish(last_ns, &mut found);

        // Nanosecond by nanosecond.
        let start_ns = events[0].ts_ns;
        let mut expected: BTreeMap<(i32, i64), (i64, i64)> = BTreeMap::new();
        let mut each = |lock: i32, from_ns: i64, to_ns: i64, is_wait: bool| {
            for ns in from_ns.max(start_ns)..to_ns.min(last_ns) {
                let cell = expected.entry((lock, (ns - start_ns) / period_ns)).or_default();
                if is_wait { cell.0 += 1 } else { cell.1 += 1 }
            }
        };
        for hold in &found.holds {
            if matches!(hold.state, HoldState::Complete | HoldState::OpenAtEnd) {
                each(hold.lock.0, hold.start_ns, hold.end_ns, false);
            }
        }
        for wait in found.waits.iter().filter(|wait| wait.outcome != Outcome::CutByLoss) {
            each(wait.lock.0, wait.start_ns, wait.end_ns, true);
        }
        let options = Options {
            period_ns: Some(period_ns),
            filter: Filter { include_idle: true, ..Filter::default() },
            ..Options::default()
        };
        let whole = of_trace(&test.trace, &options);
        let mut cells: BTreeMap<(i32, i64), (i64, i64)> = BTreeMap::new();
        for series in &whole.keys {
            let lock_id = series.key.as_ref().unwrap().number("lock_id").unwrap();
            for (number, cell) in &series.cells {
                let hold_ns = cell.hold_ns.unwrap_or(0);
                if (cell.wait_ns, hold_ns) != (0, 0) {
                    cells.insert((lock_id, *number), (cell.wait_ns, hold_ns));
                }
            }
        }
        prop_assert_eq!(cells, expected);

        // The same however many keys are shown, and by whatever key.
        let sum = |timeline: &Timeline| timeline.series().fold(Cell::default(), |sum, series| sum.merge(series.total));
        for by in By::all() {
            let other = of_trace(&test.trace, &Options { by, limit: Some(limit), ..options.clone() });
            prop_assert_eq!(sum(&other), sum(&whole), "{}", by);
            prop_assert!(other.keys.len() <= limit);
        }
    }
}

fn of_trace(trace: &trace_format::Trace, options: &Options) -> Timeline {
    timeline(std::slice::from_ref(trace), &Options { allow_loss: true, ..options.clone() }).unwrap()
}
