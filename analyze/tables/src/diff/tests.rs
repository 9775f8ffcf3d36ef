//! Diff: matching locks of two traces, the size of changes, and the test of significance.

use super::{Align, Condition, Diff, DiffOptions, Metric, diff};
use crate::testing::{self, written};
use intervals::Filter;
use output::Format::{Csv, Json, Text};

/// A second of a thread that holds a lock of this name at this address for so long, so often, and one that waits for half of it.
fn run(address: u32, holds: i64, ns: i64) -> testing::TestTrace {
    let mut text = format!("lock m mutex name=hot address={address:x}\nlock other mutex name=- address=77\n");
    let step = 1_000_000_000 / holds;
    for hold in 0..holds {
        // Not all alike, or there would be no chance in it.
        let (at, ns) = (hold * step, ns + hold * 37 % 11 * ns / 50);
        text += &format!("{at} A acquire m k:a.c:1:put<k:run\n{} B wait m k:b.c:1\n", at + ns / 2);
        text += &format!("{} A release m\n{} B acquire m k:b.c:1 wait=1\n", at + ns, at + ns);
        text += &format!("{} B release m\n", at + ns + 1);
    }
    text += "999_999_999 A acquire other k:c.c:1\n1_000_000_000 A release other\n";
    testing::trace(&text)
}

fn of(base: &testing::TestTrace, new: &testing::TestTrace, options: &DiffOptions) -> Diff {
    diff(std::slice::from_ref(&base.trace), std::slice::from_ref(&new.trace), options).unwrap()
}

#[test]
fn a_lock_at_another_address_is_matched_by_its_name_and_its_change_has_an_interval() {
    let found = of(&run(0x10, 400, 100_000), &run(0x5550, 400, 200_000), &DiffOptions::default());
    assert_eq!(found.rows[0].name, "mutex:hot");
    let wait = found.rows[0].change(Metric::WaitTotal);
    assert!((wait.change.unwrap() - 1.0).abs() < 0.05, "{wait:?}");
    let (low, high) = wait.interval.unwrap();
    assert!(0.9 < low && low < wait.change.unwrap() && wait.change.unwrap() < high && high < 1.1, "{wait:?}");
    assert!(wait.is_certain());
    let count = found.rows[0].change(Metric::Count);
    assert_eq!((count.base, count.new, count.is_certain()), (Some(800.0), Some(800.0), false));
    let p99 = found.rows[0].change(Metric::P99);
    assert!((p99.change.unwrap() - 1.0).abs() < 0.05, "{p99:?}");
}

#[test]
fn three_recordings_per_side_are_drawn_whole_and_fewer_say_what_they_cannot_know() {
    let side = |lengths: [i64; 3]| lengths.map(|ns| run(0x10, 100, ns));
    let traces = |side: [testing::TestTrace; 3]| {
        let opened =
            side.iter().map(|run| trace_format::open(&run.trace.paths().events).unwrap()).collect::<Vec<_>>();
        (side, opened)
    };
    let (_base, base) = traces(side([100_000, 150_000, 120_000]));
    let (_same, same) = traces(side([140_000, 110_000, 130_000]));
    let (_slow, slow) = traces(side([400_000, 500_000, 450_000]));
    let of = |base: &[trace_format::Trace], new: &[trace_format::Trace]| {
        diff(base, new, &DiffOptions::default()).unwrap()
    };
    let (alike, worse) = (of(&base, &same), of(&base, &slow));
    let wait = |diff: &Diff| *diff.all.change(Metric::WaitTotal);
    assert!(!wait(&alike).is_certain() && wait(&worse).is_certain(), "{:?} {:?}", wait(&alike), wait(&worse));
    assert_eq!((worse.recordings, worse.resampling), ([3, 3], super::Resampling::Recordings));
    assert!(written(&worse, Text, None).contains("of 3 and 3 recordings; from and to hold 95 %"));
    let alone = of(&base[..1], &slow[..1]);
    assert!(
        written(&alone, Text, None)
            .contains("one recording of each: how much recordings of the same program differ")
    );
    let two = of(&base[..2], &same);
    assert_eq!((two.recordings, two.resampling), ([2, 3], super::Resampling::Periods));
    // The value of a side is that of all its time.
    let count = |diff: &Diff| diff.all.change(Metric::Count).base;
    assert_eq!(count(&two), count(&alone));
}

#[test]
fn a_trace_is_like_itself_and_nothing_about_it_is_certain() {
    let trace = run(0x10, 100, 100_000);
    for by in Align::ALL {
        let found = of(&trace, &trace, &DiffOptions { by: *by, ..DiffOptions::default() });
        assert!(found.rows_total > 0);
        for change in found.rows.iter().chain([&found.all]).flat_map(|row| &row.changes) {
            assert!(change.change.is_none_or(|by| by == 0.0) && !change.is_certain(), "{by}: {change:?}");
        }
    }
}

#[test]
fn keys_add_up_to_all_and_what_is_in_one_trace_only_has_come_or_gone() {
    let (base, new) =
        (run(0x10, 100, 100_000), testing::trace("0 A acquire n k:n.c:1\n1_000_000_000 A release n"));
    let found = of(&base, &new, &DiffOptions { metric: Metric::Count, ..DiffOptions::default() });
    let sum = |of: fn(&super::Change) -> Option<f64>| -> f64 {
        found.rows.iter().filter_map(|row| of(row.change(Metric::Count))).sum()
    };
    let all = found.all.change(Metric::Count);
    assert_eq!((Some(sum(|c| c.base)), Some(sum(|c| c.new))), (all.base, all.new));
    let shown = written(&found, Text, Some(80));
    assert!(shown.contains("-100 %") && shown.contains("  new  "), "{shown}");
    let csv = written(&found, Csv, None);
    assert!(csv.contains("\ncount,0,1,,,,pthread_mutex:n,0\n"), "{csv}");
    let json: serde_json::Value = serde_json::from_str(&written(&found, Json, None)).unwrap();
    assert_eq!(json["all"]["changes"][2]["metric"], "count");
    let filter = Filter { lock: "hot".parse().ok(), ..Filter::default() };
    let gone = of(&base, &new, &DiffOptions { filter, ..DiffOptions::default() });
    assert_eq!(gone.all.change(Metric::Count).new, Some(0.0));
}

#[test]
fn holds_that_are_not_recorded_are_neither_nothing_nor_news() {
    let text = |holds: &str| {
        format!(
            "source s kinds=mutex holds={holds}\nlock m mutex\n0 A acquire m k:a.c:1\n9 A release m\n1_000_000_000 A acquire m k:a.c:1"
        )
    };
    let (base, new) = (testing::trace(&text("no")), testing::trace(&text("yes")));
    let found = of(&base, &new, &DiffOptions::default());
    assert_eq!(
        (found.all.change(Metric::Total).base, found.all.change(Metric::Total).new),
        (None, Some(9.0))
    );
    assert!("total > 1%".parse::<Condition>().unwrap().met(&found).is_none());
}

#[test]
fn a_place_is_the_same_on_another_line_and_in_another_directory() {
    let at = |place: &str| {
        testing::trace(&format!("0 A acquire m {place}\n9 A release m\n1_000_000_000 A try_fail m"))
    };
    let (base, new) = (at("/old/src/a.c:10:put"), at("/new/a.c:12:put"));
    let names = |by, base: &testing::TestTrace, new: &testing::TestTrace| -> Vec<String> {
        let found = of(base, new, &DiffOptions { by, ..DiffOptions::default() });
        found.rows.into_iter().map(|row| row.name).collect()
    };
    assert_eq!(names(Align::Site, &base, &new), ["put in a.c (pthread_mutex:m)"]);
    assert_eq!(names(Align::Site, &base, &at("/new/a.c:12:get")).len(), 2);
    assert_eq!(names(Align::Stack, &base, &new), ["put (pthread_mutex:m)"]);
}

#[test]
fn a_condition_is_met_by_what_is_beyond_its_limit_and_more_than_chance() {
    let (base, new) = (run(0x10, 400, 100_000), run(0x10, 400, 200_000));
    let worse = of(&base, &new, &DiffOptions::default());
    let met = |text: &str, diff: &Diff| text.parse::<Condition>().unwrap().met(diff).is_some();
    assert!(met("wait_total > +20%", &worse) && met("p99>50 %", &worse));
    assert!(!met("wait_total > 200%", &worse) && !met("wait_total < -10%", &worse));
    assert!(met("wait_total < -10%", &of(&new, &base, &DiffOptions::default())));
    assert!(!met("count > -50%", &worse), "no change is within chance");
    assert_eq!("wait_total>20%".parse::<Condition>().unwrap().to_string(), "wait_total > +20%");
    for bad in ["wait_total", "wait_total > 5ms", "speed > 1%", "wait_total > %", "count > inf%"] {
        assert!(bad.parse::<Condition>().is_err(), "{bad}");
    }
}
