//! Acquisitions by period: what is in which, the orders, and that nothing is missing.

use proptest::prelude::*;

use super::{Options, Row, WorstPeriods, worst, worst_of_inputs};
use crate::{
    Table,
    key::By,
    report,
    testing::{self, text_of},
};
use intervals::input::Input;
use output::{Format, Page};

const TEXT: &str = "
    source s kinds=mutex,pthread_mutex holds=no
    lock m mutex
    10_000_000 A acquire m k:a wait=0
    30_000_000 B acquire m k:b wait=6_000_000
    60_000_000 A acquire m k:a wait=30_000_000
    160_000_000 A acquire n c wait=1_000
    161_000_000 A acquire n c wait=?
";

fn of(text: &str, options: &Options) -> WorstPeriods {
    worst(&[testing::trace(text).trace], options).unwrap()
}

#[test]
fn an_acquisition_is_with_its_whole_wait_in_the_period_in_which_it_was_done() {
    let found = of(TEXT, &Options { sort: "time".to_owned(), ..Options::default() });
    let rows: Vec<(i64, i64, i64, i64, i64)> = found
        .rows
        .iter()
        .map(|row| (row["start_ns"], row["threads"], row["count"], row["wait_total_ns"], row["wait_avg_ns"]))
        .collect();
    assert_eq!(
        rows,
        [
            (0, 2, 2, 6_000_000, 3_000_000),
            (50_000_000, 1, 1, 30_000_000, 30_000_000),
            (150_000_000, 1, 2, 1_000, 500)
        ]
    );
    assert_eq!((found.rows_total, found.unknown), (3, 1));
}

#[test]
fn a_recursive_lock_counts_once_and_a_reader_that_reenters_counts_in_the_period_of_each_acquisition() {
    let found = of(
        "lock m mutex\nlock r rwsem
         1_000_000 A acquire m k:a\n2_000_000 A acquire m k:a\n3_000_000 A release m\n4_000_000 A release m
         10_000_000 A acquire r shared k:b wait=2_000\n60_000_000 A acquire r shared k:b wait=1_000
         61_000_000 A release r shared\n62_000_000 A release r shared
         70_000_000 A acquire m k:a",
        &Options { sort: "time".to_owned(), by: By::Kind, ..Options::default() },
    );
    let rows: Vec<_> = found
        .rows
        .iter()
        .map(|row| (&*row.name, row["start_ns"], row["count"], row["wait_total_ns"]))
        .collect();
    assert_eq!(
        rows,
        [("mutex", 0, 1, 0), ("rwsem", 0, 1, 2_000), ("rwsem", 50_000_000, 1, 0)],
        "the hold that is open at the end is in no row, as in the report"
    );
}

#[test]
fn a_period_that_begins_before_the_trace_is_shown_from_its_start() {
    let test = testing::trace("source s kinds=mutex holds=no\nlock m mutex\n70_000_000 A acquire m k:a");
    let found = worst(&[test.trace], &Options::default()).unwrap();
    assert_eq!((found.rows[0]["start_ns"], found.rows[0]["from_ns"]), (50_000_000, 0));
    let csv = testing::written(&found, Format::Csv, None);
    assert!(csv.starts_with("from_ns,start_ns,threads,count,"), "{csv}");
}

#[test]
fn orders_are_descending_and_time_is_not() {
    let first = |sort: &str| {
        of(TEXT, &Options { sort: sort.to_owned(), limit: Some(1), ..Options::default() }).rows[0]["start_ns"]
    };
    assert_eq!(first("wait_avg"), 50_000_000);
    assert_eq!([first("threads"), first("count"), first("time")], [0, 0, 0]);
    assert_eq!([first("wait_max"), first("wait_total")], [50_000_000; 2]);
}

#[test]
fn rows_with_equal_values_are_in_the_order_of_time_and_then_of_names_whatever_the_number_of_readers() {
    // Each lock is acquired once, in the order 7, 6, ... 0, without a wait.
    let locks: String = (0..8).map(|lock| format!("lock m{lock} mutex\n")).collect();
    let events: String =
        (0..8).map(|lock| format!("{} A acquire m{lock} k:a wait=0\n", 100 - lock)).collect();
    let events: Vec<&str> = events.lines().rev().collect();
    let test = testing::trace(&format!("source s kinds=mutex holds=no\n{locks}{}", events.join("\n")));
    let options = Options::default();
    let inputs = [Input::open(&test.trace, 0, &options.filter).unwrap()];
    for readers in 1..5 {
        let found = worst_of_inputs(&inputs, &options, readers).unwrap();
        let names: Vec<&str> = found.rows.iter().map(|row| row.name.as_str()).collect();
        assert!(names.is_sorted() && names.len() == 8, "{readers} readers: {names:?}");
    }
}

#[test]
fn every_format_has_every_row() {
    let found = of(TEXT, &Options { by: By::TaskLock, ..Options::default() });
    assert_eq!(found.rows_total, 4);
    for format in Format::ALL.iter().filter(|format| !format.is_binary()) {
        let text = text_of(|out| found.write(&Page::from(*format), out));
        assert_eq!(text.matches("1 n (pthread").count(), 1, "{format}: {text}");
    }
    let text = text_of(|out| found.write(&Page { style: Some(80).into(), ..Page::default() }, out));
    assert!(text.lines().take(8).all(|line| line.chars().count() <= 80), "{text}");
}

proptest! {
    #[test]
    fn the_rows_add_up_to_all_acquisitions_and_waits_of_the_report(
        acquisitions in proptest::collection::vec((1_i64..400_000_000, 0_i64..1_000_000, 0..3_usize, 0..3_usize), 1..40),
        period_ns in 1_i64..100_000_000,
    ) {
        let mut acquisitions = acquisitions;
        acquisitions.sort_unstable();
        let source = "source s kinds=mutex holds=no\nlock m0 mutex\nlock m1 mutex\nlock m2 mutex\n";
        let events: String = acquisitions
            .iter()
            .map(|(ts, wait, task, lock)| format!("{} T{task} acquire m{lock} wait={wait}\n", ts + 300_000_000))
            .collect();
        let test = testing::trace(&format!("{source}{events}"));
        let found = worst(std::slice::from_ref(&test.trace), &Options { period_ns: Some(period_ns), ..Options::default() }).unwrap();
        let report = report::report(std::slice::from_ref(&test.trace), &report::Options::default()).unwrap();
        let sum = |value: fn(&Row) -> i64| found.rows.iter().map(value).sum::<i64>();
        prop_assert_eq!(sum(|row| row["count"]), report.totals["count"]);
        prop_assert_eq!(Some(sum(|row| row["wait_total_ns"])), report.totals.get("wait_total_ns"));
        prop_assert!(found.rows.iter().all(|row| row["start_ns"] % period_ns == 0 && row["threads"] <= row["count"]));
    }
}
