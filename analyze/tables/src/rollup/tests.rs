//! Rollups of small traces and of random histories: their rows are compared with expected ones, and their
//! sums with the report, the timeline, the histograms and blame of the same trace.

use crate::testing::trace_of;
use std::collections::BTreeMap;

use proptest::{prelude::*, test_runner::Config};
use trace_format::run_info::Clocks;

use super::*;
use crate::{
    Table as _, blame as blame_table,
    frame::Sums as _,
    hist,
    key::{By, Key},
    report::{self, HoldSums},
    testing, timeline as timeline_table,
};
use intervals::{Filter, engine::histories};
use output::{Cell, Column, Merge, Role, Visibility};

const HOUR_NS: i64 = 3_600_000_000_000;

/// Merges the values of a column as `GROUP BY` does: nulls are left out, and null is what has nothing else.
fn merged<'r, R: 'r>(columns: &[Column<R>], word: &str, rows: impl Iterator<Item = &'r R>) -> Option<i64> {
    let column = columns.iter().find(|column| column.is_called(word)).expect("a column");
    let number = |row| match column.cell(row) {
        Cell::Int(number) => Some(number),
        _ => None,
    };
    rows.filter_map(number).reduce(|one, other| match column.merge {
        Some(Merge::Max) => one.max(other),
        _ => one + other,
    })
}

fn all_of(trace: &Trace, options: &Options) -> Rollup {
    rollup(trace, options).unwrap()
}

/// Options of a rollup of everything.
pub(super) fn whole(period_ns: i64, long_period_ns: i64) -> Options {
    let filter = Filter { include_idle: true, ..Filter::default() };
    Options { period_ns, long_period_ns, keys: None, filter, ..Options::default() }
}

const TWO_PERIODS: &str = "
    lock m mutex name=hot
    100 A acquire m a.c:1:f
    150 B wait m b.c:2:g
    230 A release m
    240 B acquire m b.c:2:g wait=90
    260 B release m
    261 C acquire n c.c:3:h
    262 C release n";

#[test]
fn a_hold_counts_in_the_period_of_its_release_and_its_time_in_each_that_it_spans() {
    let test = testing::trace(TWO_PERIODS);
    let rollup = all_of(&test.trace, &whole(100, 1000));
    let columns = rows::fact_columns();
    let cells = |row: &FactRow| {
        ["count", "total", "wait_total", "wait_caused", "waiting", "holding", "max"]
            .map(|word| merged(&columns, word, [row].into_iter()))
    };
    let found: Vec<_> =
        rollup.facts.iter().map(|row| (row.period_ns, row.key.align.as_str(), cells(row))).collect();
    let known = |cells: [i64; 7]| cells.map(Some);
    assert_eq!(
        found,
        [
            (100, "mutex:hot", [Some(0), None, None, None, Some(0), Some(100), None]),
            (100, "mutex:hot", [Some(0), None, None, None, Some(50), Some(0), None]),
            (200, "mutex:hot", known([1, 130, 0, 80, 0, 30, 130])),
            (200, "mutex:hot", known([1, 20, 90, 0, 40, 20, 20])),
            (200, "pthread_mutex:n", known([1, 1, 0, 0, 0, 1, 1])),
        ]
    );
}

#[test]
fn periods_are_those_of_the_wall_clock() {
    let mut parts = testing::Parts::parse(TWO_PERIODS);
    let clocks =
        |monotonic_ns| Clocks { monotonic_ns, realtime_ns: HOUR_NS + monotonic_ns - 50, boottime_ns: 0 };
    (parts.info.clocks_start, parts.info.clocks_end) = (clocks(50), clocks(400));
    let rollup = all_of(&parts.write().trace, &whole(100, HOUR_NS));
    let periods: Vec<i64> = rollup.facts.iter().map(|row| row.period_ns - HOUR_NS).collect();
    assert_eq!(periods, [0, 100, 100, 200, 200]);
    assert!(rollup.buckets.iter().all(|row| row.period_ns == HOUR_NS));
    assert_eq!((rollup.trace.from_ns, rollup.trace.to_ns), (HOUR_NS, HOUR_NS + 350));
}

#[test]
fn the_states_of_a_holder_count_where_its_hold_does_and_are_null_without_off_cpu_times() {
    let off_cpu = "source off_cpu kinds=none\nsource preload kinds=pthread_mutex holds=yes
        100 A acquire m a.c:1:f
        110 B wait m b.c:2:g
        150 A offcpu leaf wait=30 blocked=20 runq=10 state=interruptible
        230 A release m
        240 B acquire m b.c:2:g wait=130
        260 B release m";
    let columns = rows::fact_columns();
    let states = |text: &str, keys| {
        let rollup = all_of(&testing::trace(text).trace, &Options { keys, ..whole(100, 1000) });
        ["caused_asleep", "caused_ready", "caused_running", "caused_lock"].map(|word| {
            let rows = || rollup.facts.iter().filter(|row| row.period_ns == 200);
            assert_eq!(merged(&columns, word, rollup.facts.iter()), merged(&columns, word, rows()), "{word}");
            merged(&columns, word, rows())
        })
    };
    for keys in [None, Some(0)] {
        assert_eq!(states(off_cpu, keys), [Some(20), Some(10), Some(90), Some(0)]);
        assert_eq!(states(TWO_PERIODS, keys), [None; 4]);
    }
}

#[test]
fn what_is_cut_off_is_one_row_of_the_period() {
    let test = testing::trace(TWO_PERIODS);
    let rollup = all_of(&test.trace, &Options { keys: Some(1), ..whole(1000, 1000) });
    let names: Vec<&str> = rollup.facts.iter().map(|row| row.key.align.as_str()).collect();
    assert_eq!(names, ["(others)", "mutex:hot"]);
    let columns = rows::fact_columns();
    assert_eq!(merged(&columns, "total", rollup.facts.iter()), Some(130 + 20 + 1));
    assert!(rollup.facts[0].key.site.is_none());
}

#[test]
fn more_periods_than_anybody_reads_are_refused() {
    let test = testing::trace("0 A acquire m\n1_000_000 A release m");
    let error = rollup(&test.trace, &whole(1, 1000));
    assert!(matches!(error, Err(AnalyzeError::TooManyPeriods { .. })), "{error:?}");
}

#[test]
fn a_trace_that_lost_too_much_is_rolled_up_and_marked() {
    let test = testing::trace("1 A acquire m\n2 A release m\n3 - lost count=7\n4 A acquire m\n5 A release m");
    let rollup = all_of(&test.trace, &Options::default());
    assert!(!rollup.trace.is_ranked);
    assert_eq!(merged(&traces::columns(), "lost", [&rollup.trace].into_iter()), Some(7));
}

#[test]
fn files_are_named_by_host_trace_and_day_and_hold_the_host_as_text() {
    let options = Options { labels: vec!["version=2=1".parse().unwrap()], ..whole(100, 1000) };
    for (host, name) in [
        ("0012", "0012"),
        ("a=b", "a%3Db"),
        ("x/../y", "x%2F..%2Fy"),
        ("b\u{7}\n", "b%5Cx07%5Cn"),
        ("1e5", "1e5"),
    ] {
        let test = testing::trace_of_host(host, TWO_PERIODS);
        let rollup = all_of(&test.trace, &options);
        let id = &test.trace.info().trace_id;
        let paths: Vec<String> = rollup.files().iter().map(|file| file.path.display().to_string()).collect();
        let expected: Vec<String> = ["facts", "buckets", "blame", "traces", "labels"]
            .iter()
            .map(|table| format!("{table}/date=1970-01-01/{name}-{id}.parquet"))
            .collect();
        // Control characters become what is printed of them.
        let escaped = host.contains('\n');
        assert!(paths == expected || escaped, "{paths:?}");
        assert!(paths.iter().all(|path| path.matches('/').count() == 2), "{paths:?}");
    }
    let test = testing::trace("1 A acquire m\n2 A release m");
    assert_eq!(all_of(&test.trace, &whole(100, 1000)).files().len(), 5);
    assert!("=1".parse::<Label>().is_err() && "version".parse::<Label>().is_err());
}

#[test]
fn a_row_is_in_the_file_of_its_day() {
    let day = 24 * HOUR_NS;
    let test =
        testing::trace(&format!("1 A acquire m\n2 A release m\n{day} A acquire m\n{} A release m", day + 1));
    let rollup = all_of(&test.trace, &whole(HOUR_NS, HOUR_NS));
    let facts: Vec<(String, usize)> = rollup
        .files()
        .iter()
        .filter(|file| file.path.starts_with("facts"))
        .map(|file| {
            (file.path.components().nth(1).unwrap().as_os_str().to_string_lossy().into_owned(), file.rows)
        })
        .collect();
    assert_eq!(facts, [("date=1970-01-01".to_owned(), 1), ("date=1970-01-02".to_owned(), 1)]);
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(testing::cases(60)) })]

    #[test]
    fn a_rollup_adds_up_to_the_tables_of_the_trace(
        events in histories::history(),
        period_ns in 1..60i64,
        long_period_ns in 1..200i64,
        readers in 1..4usize,
        keys in prop::option::of(0..3usize),
    ) {
        prop_assume!(!events.is_empty());
        let test = trace_of(events, 9);
        let traces = std::slice::from_ref(&test.trace);
        let options = Options { keys, ..whole(period_ns, long_period_ns) };
        let filter = options.filter.clone();
        let input = Input::open(&test.trace, 0, &filter).unwrap();
        let rollup = of_input(&input, &options, readers).unwrap();
        let facts = rows::fact_columns();

        // The report: each key if none is cut off, and the totals in any case.
        let of_report = report::Options { by: By::Site, filter: filter.clone(), allow_loss: true, ..report::Options::default() };
        let report = report::report(traces, &of_report).unwrap();
        let shared: Vec<_> = report::columns(By::Site, false).into_iter()
            .filter(|column| column.visibility != Visibility::OnRequest && column.role == Role::Value)
            .filter(|column| facts.iter().any(|fact| fact.merge.is_some() && fact.is_called(column.word())))
            .collect();
        prop_assert!(shared.len() >= 11, "{shared:?}");
        for column in shared {
            let (word, name) = (column.word(), &*column.field.name);
            if keys.is_none() {
                for row in &report.rows {
                    let of_key = rollup.facts.iter().filter(|fact| fact.key.site.as_ref() == Some(&row.key));
                    let (found, expected) = (merged(&facts, word, of_key), row.get(name));
                    if row["count"] == 0 {
                        // A row of what is in no sum: nothing was measured, and the report shows 0 for it.
                        prop_assert_eq!(found.unwrap_or(0), expected.unwrap_or(0), "{} of {:?}", word, row.key);
                    } else {
                        prop_assert_eq!(found, expected, "{} of {:?}", word, row.key);
                    }
                }
            }
            let total = report.totals.get(name);
            prop_assert_eq!(merged(&facts, word, rollup.facts.iter()).unwrap_or(0), total.unwrap_or(0), "{}", word);
        }

        // The timeline: its totals.
        let of_timeline = timeline_table::Options { filter: filter.clone(), allow_loss: true, ..timeline_table::Options::default() };
        let timeline = timeline_table::timeline(traces, &of_timeline).unwrap();
        let total = timeline.series().fold(timeline_table::Cell::default(), |sum, series| sum.merge(series.total));
        prop_assert_eq!(merged(&facts, "waiting", rollup.facts.iter()).unwrap_or(0), total.wait_ns);
        prop_assert_eq!(merged(&facts, "holding", rollup.facts.iter()).unwrap_or(0), total.hold_ns.unwrap_or(0));

        // The histograms: every bucket, over all keys and by key.
        for of in hist::Of::ALL {
            let options = hist::Options { of: *of, by: Some(By::Site), buckets: hist::Buckets::Hdr, filter: filter.clone(), allow_loss: true, ..hist::Options::default() };
            let histogram = hist::histogram(traces, &options).unwrap();
            let mut expected: BTreeMap<(Option<Key>, i64), i64> = BTreeMap::new();
            for counts in &histogram.keys {
                for bucket in counts.key.buckets.iter().filter(|bucket| bucket.count > 0) {
                    let key = counts.key.key.clone().filter(|_| keys.is_none());
                    *expected.entry((key, bucket.to_ns)).or_default() += bucket.count as i64;
                }
            }
            let mut found: BTreeMap<(Option<Key>, i64), i64> = BTreeMap::new();
            for row in rollup.buckets.iter().filter(|row| row.of == *of) {
                let key = row.key.site.clone().filter(|_| keys.is_none());
                *found.entry((key, row.le_ns)).or_default() += row.n;
            }
            prop_assert_eq!(found, expected);
        }

        // Blame by pair.
        let of_blame = blame_table::Options { by: blame_table::By::Pair, filter, allow_loss: true, ..blame_table::Options::default() };
        let blame = blame_table::blame(traces, &of_blame).unwrap();
        let columns = rows::blame_columns();
        if keys.is_none() {
            for row in blame.rows() {
                let row: &blame_table::Row = std::borrow::Borrow::borrow(&row);
                let same = rollup.blame.iter().filter(|pair| {
                    (pair.charged_to, &pair.holder, &pair.waiter) == (row.key.charged_to, &row.key.holder, &row.key.waiter)
                });
                let values = ["wait_caused", "shares", "longest", "cut_by_loss"].map(|word| merged(&columns, word, same.clone()));
                let expected = ["wait_caused_ns", "shares", "longest_ns", "cut_by_loss"].map(|column| row.get(column));
                prop_assert_eq!(values, expected);
            }
        }
        prop_assert_eq!(merged(&columns, "wait_caused", rollup.blame.iter()).unwrap_or(0), blame.totals.waited_ns);
    }

    #[test]
    fn long_periods_are_the_sums_of_short_ones(events in histories::history(), short_ns in 1..20i64, factor in 1..9i64) {
        prop_assume!(!events.is_empty());
        let test = trace_of(events, 9);
        let by_key = |rollup: &Rollup, period_ns: i64| {
            let mut sums: BTreeMap<(i64, FactKey), gather::FactSums> = BTreeMap::new();
            for row in &rollup.facts {
                let period = row.period_ns.div_euclid(period_ns);
                sums.entry((period, row.key.clone())).or_default().merge(&row.sums);
            }
            sums.into_iter().map(|(key, sums)| {
                let fields = (0..HoldSums::FIELDS.len()).map(|at| sums.holds.get(at)).chain((0..3).map(|at| sums.spans.get(at)));
                (key, fields.collect::<Vec<i64>>())
            }).collect::<Vec<_>>()
        };
        let long_ns = short_ns * factor;
        let (short, long) = (all_of(&test.trace, &whole(short_ns, short_ns)), all_of(&test.trace, &whole(long_ns, long_ns)));
        prop_assert_eq!(by_key(&short, long_ns), by_key(&long, long_ns));
    }
}
