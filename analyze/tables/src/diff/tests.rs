//! Diff: matching locks of two traces, the size of changes, and the test of significance.

use trace_format::{Trace, run_info::COMMAND_ENDED};

use super::{Align, Condition, Diff, DiffOptions, Metric, Per, Units, diff};
use crate::testing::{self, TestTrace, written};
use intervals::Filter;
use output::Format::{Csv, Json, Text};

/// A second of a thread that holds a lock of this name at this address for so long, so often, and one that
/// waits for half of it.
fn run(address: u32, holds: i64, ns: i64) -> TestTrace {
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

fn of(base: &TestTrace, new: &TestTrace, options: &DiffOptions) -> Diff {
    diff(std::slice::from_ref(&base.trace), std::slice::from_ref(&new.trace), options).unwrap()
}

/// Compares several recordings of each side.
fn of_all(base: &[TestTrace], new: &[TestTrace]) -> Diff {
    let opened = |side: &[TestTrace]| -> Vec<Trace> {
        side.iter().map(|run| trace_format::open(&run.trace.paths().events).unwrap()).collect()
    };
    diff(&opened(base), &opened(new), &DiffOptions::default()).unwrap()
}

#[test]
fn a_lock_at_another_address_is_matched_by_its_name_and_one_recording_cannot_say_whether_it_is_chance() {
    let found = of(&run(0x10, 400, 100_000), &run(0x5550, 400, 200_000), &DiffOptions::default());
    assert_eq!(found.rows[0].name, "mutex:hot");
    let wait = found.rows[0].change(Metric::WaitTotal);
    assert!((wait.change.unwrap() - 1.0).abs() < 0.05, "{wait:?}");
    let average = found.rows[0].change(Metric::WaitAvg);
    assert_eq!(average.base.unwrap(), wait.base.unwrap() / 800.0);
    assert!(found.rows[0].changes.iter().all(|change| change.interval.is_none() && !change.is_certain()));
    let count = found.rows[0].change(Metric::Count);
    assert_eq!((count.base, count.new), (Some(800.0), Some(800.0)));
    let p99 = found.rows[0].change(Metric::P99);
    assert!((p99.change.unwrap() - 1.0).abs() < 0.05, "{p99:?}");
    assert!(!found.is_sure());
    let text = written(&found, Text, None);
    assert!(text.contains("1 and 1 recordings cannot tell change from chance; record 3 of each"), "{text}");
    assert!(!text.contains('~'), "{text}");
}

#[test]
fn kernel_locks_that_hardly_anybody_waits_for_are_left_out_where_not_all_rows_are_shown() {
    let side = |ns: i64| {
        testing::trace(&format!(
            "lock r spinlock name=runqueue\n1 A acquire hot a.c:1\n2 B wait hot a.c:1\n{0} A release hot\n{0} B acquire hot a.c:1 wait={ns}\n\
             9_000_000 B release hot\n9_500_000 A acquire r k:r.c:1 wait=9\n9_500_001 A release r\n",
            ns + 2
        ))
    };
    let found = |limit| of(&side(50_000), &side(80_000), &DiffOptions { limit, ..DiffOptions::default() });
    let (all, limited) = (found(None), found(Some(9)));
    assert_eq!((all.rows.len(), limited.rows.len(), limited.rows_total), (2, 1, 2));
    assert_eq!(limited.rows[0], all.rows[0]);
}

#[test]
fn three_recordings_per_side_tell_a_change_from_chance() {
    let side = |lengths: [i64; 3]| lengths.map(|ns| run(0x10, 100, ns));
    let base = side([100_000, 150_000, 120_000]);
    let (alike, worse) = (
        of_all(&base, &side([140_000, 110_000, 130_000])),
        of_all(&base, &side([400_000, 500_000, 450_000])),
    );
    let wait = |diff: &Diff| *diff.all.change(Metric::WaitTotal);
    assert!(!wait(&alike).is_certain() && wait(&worse).is_certain(), "{:?} {:?}", wait(&alike), wait(&worse));
    assert_eq!((worse.recordings, worse.units, worse.per), ([3, 3], Units::Recordings, Per::Run));
    let text = written(&worse, Text, None);
    assert!(text.contains("wait_total per run of 3 and 3 recordings; with 95 % all changes"), "{text}");
    assert!(text.contains("runs took 1.00 s and 1.00 s on average (+0.0 %)"), "{text}");
    assert!(!of_all(&base[..2], &base).is_sure());
}

#[test]
fn the_intervals_of_more_rows_are_wider_because_all_of_them_hold_together() {
    let reach = |locks: usize| {
        let text = |ns: usize| {
            let hold = |lock: usize| {
                let at = lock * 1_000_000;
                format!("{at} A acquire m{lock} k:a.c:1\n{} A release m{lock}\n", at + ns)
            };
            testing::trace(&(0..locks).map(hold).collect::<String>())
        };
        let side = [100, 110, 121].map(text);
        let found = of_all(&side, &side);
        let (low, high) = found.rows[0].change(Metric::Total).interval.unwrap();
        let (all_low, all_high) = found.all.change(Metric::Total).interval.unwrap();
        (high.ln_1p() - low.ln_1p(), all_high.ln_1p() - all_low.ln_1p())
    };
    let (one, ten) = (reach(1), reach(10));
    assert!((one.0 - one.1).abs() < 1e-9 && (ten.1 - one.1).abs() < 1e-9, "{one:?} {ten:?}");
    // Student's quantiles with 4 degrees of freedom: 3.495 for 2.5 %, 6.758 for 0.25 %.
    assert!((ten.0 / one.0 - 6.758 / 3.495).abs() < 0.02, "{one:?} {ten:?}");
}

#[test]
fn runs_that_ended_are_compared_by_the_work_that_they_did_however_long_they_took() {
    // The same work: the second program holds twice as long, and so runs twice as long.
    let of_run = |factor: i64| {
        let mut text = String::new();
        for hold in 0..100 {
            let (at, held) = (hold * factor * 10_000, factor * 5_000);
            text += &format!("{at} A acquire m k:a.c:1\n{} A release m\n", at + held);
        }
        let mut parts = testing::Parts::parse(&text);
        parts.info.stop_reason = COMMAND_ENDED.to_owned();
        parts.info.clocks_end.monotonic_ns = 1_000_000_000;
        parts.write()
    };
    let found = of(&of_run(1), &of_run(2), &DiffOptions::default());
    assert_eq!(found.per, Per::Run);
    let pair = |metric| (found.all.change(metric).base.unwrap(), found.all.change(metric).new.unwrap());
    assert_eq!(pair(Metric::Total), (500_000.0, 1_000_000.0));
    assert_eq!(pair(Metric::Count), (100.0, 100.0));
    assert_eq!(pair(Metric::Avg), (5_000.0, 10_000.0));
    assert!(written(&found, Text, None).starts_with("wait_total per run; 1 and 1 recordings"));
}

#[test]
fn a_trace_is_like_itself_and_nothing_about_it_is_certain() {
    let trace = run(0x10, 100, 100_000);
    for by in Align::ALL {
        let side = [&trace, &trace, &trace].map(|run| trace_format::open(&run.trace.paths().events).unwrap());
        let found = diff(&side, &side, &DiffOptions { by: *by, ..DiffOptions::default() }).unwrap();
        assert!(found.rows_total > 0 && found.is_sure());
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
    let names = |by, base: &TestTrace, new: &TestTrace| -> Vec<String> {
        let found = of(base, new, &DiffOptions { by, ..DiffOptions::default() });
        found.rows.into_iter().map(|row| row.name).collect()
    };
    assert_eq!(names(Align::Site, &base, &new), ["put in a.c (pthread_mutex:m)"]);
    assert_eq!(names(Align::Site, &base, &at("/new/a.c:12:get")).len(), 2);
    assert_eq!(names(Align::Stack, &base, &new), ["put (pthread_mutex:m)"]);
}

#[test]
fn a_condition_is_met_by_a_change_whose_whole_interval_is_beyond_its_limit() {
    let side = |ns: i64| [ns, ns + ns / 50, ns - ns / 50].map(|ns| run(0x10, 400, ns));
    let (base, new) = (side(100_000), side(200_000));
    let worse = of_all(&base, &new);
    let met = |text: &str, diff: &Diff| text.parse::<Condition>().unwrap().met(diff).is_some();
    assert!(met("wait_total > +20%", &worse) && met("p99>50 %", &worse));
    let (low, high) = worse.all.change(Metric::WaitTotal).interval.unwrap();
    assert!(0.8 < low && low < 0.99 && 1.01 < high, "{low} {high}");
    assert!(!met("wait_total > +99%", &worse), "the change may be smaller");
    assert!(!met("wait_total > 200%", &worse) && !met("wait_total < -10%", &worse));
    assert!(met("wait_total < -10%", &of_all(&new, &base)));
    assert!(met("count > -50%", &worse), "it did not become less by half");
    assert!(!met("wait_total > +20%", &of_all(&base[..2], &new)), "two recordings cannot say");
    let free = ["0 A acquire n k:n.c:1\n1_000_000_000 A release n"; 3].map(testing::trace);
    assert!(met("wait_total > +20%", &of_all(&free, &new)), "waiting has come");
    assert_eq!("wait_total>20%".parse::<Condition>().unwrap().to_string(), "wait_total > +20%");
    for bad in ["wait_total", "wait_total > 5ms", "speed > 1%", "wait_total > %", "count > inf%"] {
        assert!(bad.parse::<Condition>().is_err(), "{bad}");
    }
}
