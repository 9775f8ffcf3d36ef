//! Acquisitions by period: what is in which, the orders, and that nothing is missing.

use proptest::prelude::*;

use super::{Options, Periods, Sort, by_period, write};
use crate::{
    report::{self, By},
    rows::Format,
    testing::{self, skin},
};

const TEXT: &str = "
    lock m mutex
    10_000_000 A acquire m k:a wait=0
    30_000_000 B acquire m k:b wait=6_000_000
    60_000_000 A acquire m k:a wait=30_000_000
    160_000_000 A acquire n c wait=1_000
    161_000_000 A acquire n c wait=?
";

fn of(text: &str, options: &Options) -> Periods {
    by_period(&testing::trace(text).trace, options).unwrap()
}

#[test]
fn an_acquisition_is_with_its_whole_wait_in_the_period_in_which_it_was_done() {
    let found = of(TEXT, &Options { sort: Sort::Time, ..Options::default() });
    let rows: Vec<(i64, i64, i64, i64, i64)> = found
        .rows
        .iter()
        .map(|row| (row.start_ns, row.threads, row.count, row.wait_total_ns, row.wait_avg_ns))
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
fn orders_are_descending_and_time_is_not() {
    let first = |sort| of(TEXT, &Options { sort, limit: Some(1), ..Options::default() }).rows[0].start_ns;
    assert_eq!(first(Sort::WaitAvg), 50_000_000);
    assert_eq!([first(Sort::Threads), first(Sort::Count), first(Sort::Time)], [0, 0, 0]);
    assert_eq!([first(Sort::WaitMax), first(Sort::WaitTotal)], [50_000_000; 2]);
}

#[test]
fn every_skin_has_every_row() {
    let found = of(TEXT, &Options { by: By::TaskLock, ..Options::default() });
    assert_eq!(found.rows_total, 4);
    for format in Format::ALL.iter().filter(|format| !format.is_binary()) {
        let text = skin(|out| write(&found, *format, None, out));
        assert_eq!(text.matches("1 n (pthread").count(), 1, "{format}: {text}");
    }
    let text = skin(|out| write(&found, Format::Text, Some(80), out));
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
        let found = by_period(&test.trace, &Options { period_ns, ..Options::default() }).unwrap();
        let report = report::report(&test.trace, &report::Options::default()).unwrap();
        let sum = |value: fn(&super::Row) -> i64| found.rows.iter().map(value).sum::<i64>();
        prop_assert_eq!(sum(|row| row.count), report.totals.count);
        prop_assert_eq!(Some(sum(|row| row.wait_total_ns)), report.totals.wait_total_ns);
        prop_assert!(found.rows.iter().all(|row| row.start_ns % period_ns == 0 && row.threads <= row.count));
    }
}
