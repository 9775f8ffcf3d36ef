//! Metrics of traces made by hand: their numbers are those of the report, and what grows in a recording never
//! falls.

use std::{collections::BTreeMap, slice::from_ref};

use proptest::{prelude::*, test_runner::Config};
use trace_format::{Event, EventKind, StackId};

use super::{DEFAULT_SERIES, Live};
use crate::{
    export::{self, Format, Options},
    testing::{self, Parts, text_of},
};
use intervals::{Filter, engine::histories};
use tables::{key::By, report, testing::trace_of};

/// Returns the samples of a text by name and labels, after checking each line.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ').expect("a value");
        assert!(name.starts_with("klock_"), "{line}");
        (name.to_owned(), value.parse().expect("a number"))
    };
    let samples: Vec<(String, f64)> = lines.map(sample).collect();
    let count = samples.len();
    let samples: BTreeMap<String, f64> = samples.into_iter().collect();
    assert_eq!(samples.len(), count, "a sample is there twice");
    samples
}

fn exported(parts: &Parts, format: Format, series: usize) -> String {
    let test = parts.write();
    let options = Options { format, limit: Some(series), ..Options::default() };
    text_of(|out| export::write(from_ref(&test.trace), &options, out).map(drop))
}

/// Returns the sum of the samples of a family.
fn sum(samples: &BTreeMap<String, f64>, family: &str) -> f64 {
    let of =
        |name: &str| name.strip_prefix(family).is_some_and(|rest| rest.is_empty() || rest.starts_with('{'));
    samples.iter().filter(|(name, _)| of(name)).map(|(_, value)| value).sum()
}

const TEXT: &str = "
    lock a mutex name=hot
    lock b mutex name=warm
    lock c pthread_mutex name=cold
    1_000 A acquire a k:a.c:1
    2_000 B wait a k:a.c:2
    7_000 A release a
    7_000 B acquire a k:a.c:2 wait=5000
    9_000 B release a
    9_100 A acquire b k:a.c:1
    9_200 B wait b k:a.c:2
    9_300 A release b
    9_400 B acquire b k:a.c:2 wait=200
    9_500 B release b
    9_600 C acquire c u.c:1
    9_700 C release c
";

#[test]
fn the_text_of_a_small_trace() {
    let text = exported(&Parts::parse(TEXT), Format::Prometheus, 1);
    let expected = [
        "# HELP klock_lock_waits_total Waits that ended with the lock.",
        "# TYPE klock_lock_waits_total counter",
        "klock_lock_waits_total{kind=\"mutex\",lock=\"hot\"} 1",
        "klock_lock_waits_total{kind=\"mutex\",lock=\"(others)\"} 1",
        "klock_lock_waits_total{kind=\"pthread_mutex\",lock=\"(others)\"} 0",
    ];
    assert_eq!(text.lines().take(5).collect::<Vec<_>>(), expected);
    for line in [
        "klock_lock_wait_seconds_total{kind=\"mutex\",lock=\"hot\"} 0.000005",
        "klock_lock_hold_seconds_total{kind=\"mutex\",lock=\"hot\"} 0.000008",
        "klock_wait_duration_seconds_bucket{kind=\"mutex\",le=\"0.000001\"} 1",
        "klock_wait_duration_seconds_bucket{kind=\"mutex\",le=\"0.000016\"} 2",
        "klock_wait_duration_seconds_bucket{kind=\"mutex\",le=\"+Inf\"} 2",
        "klock_wait_duration_seconds_sum{kind=\"mutex\"} 0.0000052",
        "klock_series_cut 2",
        "klock_events_total 12",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is missing in {text}");
    }
    let strict = exported(&Parts::parse(TEXT), Format::Openmetrics, 1);
    assert!(strict.starts_with("# HELP klock_lock_waits Waits") && strict.ends_with("# EOF\n"), "{strict}");
    assert_eq!(samples(&strict), samples(&text));
}

#[test]
fn hostile_names_stay_in_their_line() {
    for name in ["a\"} 1\nklock_evil 2", "\\", "\u{202e}\u{0}", "(others)", "x\r# TYPE", "\"", "a\\\"b"] {
        let mut parts = Parts::parse(TEXT);
        parts.locks[0].name = Some(name.to_owned());
        let text = exported(&parts, Format::Prometheus, DEFAULT_SERIES);
        assert_eq!(
            text.lines().count(),
            exported(&Parts::parse(TEXT), Format::Prometheus, DEFAULT_SERIES).lines().count()
        );
        samples(&text);
    }
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(testing::cases(60)) })]

    #[test]
    fn metrics_add_up_to_the_report(events in histories::history(), series in 0..4usize) {
        prop_assume!(!events.is_empty());
        let test = trace_of(events, 9);
        let filter = Filter::default();
        let asked = report::Options { by: By::Kind, filter: filter.clone(), allow_loss: true, ..report::Options::default() };
        let report = report::report(from_ref(&test.trace), &asked).unwrap();
        let options = Options { format: Format::Prometheus, filter, allow_loss: true, limit: Some(series), ..Options::default() };
        let text = text_of(|out| export::write(from_ref(&test.trace), &options, out).map(drop));
        let samples = samples(&text);
        prop_assert_eq!(sum(&samples, "klock_lock_acquisitions_total") as i64, report.totals["count"]);
        let holds = (sum(&samples, "klock_lock_hold_seconds_total") * 1e9).round() as i64;
        prop_assert_eq!(holds, report.totals.get("total_ns").unwrap_or(0));
        let own = samples.keys().filter(|name| name.starts_with("klock_lock_waits_total") && !name.contains("(others)"));
        prop_assert!(own.count() <= series);
    }

    #[test]
    fn counters_of_a_recording_never_fall_and_end_as_those_of_the_trace(
        events in histories::history(),
        cuts in prop::collection::vec(1..9usize, 1..9),
        series in 0..4usize,
    ) {
        prop_assume!(!events.is_empty());
        // Sites are not known while recording, and two stacks of these histories have the same one.
        let one_site = |stack| if stack == StackId(1) { StackId(0) } else { stack };
        let events: Vec<_> =
            events.into_iter().map(|event| Event { stack: event.stack.map(one_site), ..event }).collect();
        let test = trace_of(events.clone(), 9);
        let locks = test.trace.locks().unwrap();
        let mut live = Live::new(test.trace.info().clone(), series);
        let mut before: BTreeMap<String, f64> = BTreeMap::new();
        let mut rest = &events[..];
        let mut cuts = cuts.into_iter().cycle();
        while !rest.is_empty() {
            let (now, later) = rest.split_at(cuts.next().unwrap_or(1).min(rest.len()));
            // Names come late.
            let bare: Vec<_> = locks.iter().map(|lock| trace_format::LockRow { name: None, ..lock.clone() }).collect();
            live.add_locks(&bare);
            live.add_events(now);
            rest = later;
            let text = text_of(|out| live.write(out));
            let after = samples(&text);
            for (name, value) in &before {
                prop_assert!(after.get(name).is_some_and(|now| now >= value) || name.contains("series_cut"), "{} fell", name);
            }
            let own = after.keys().filter(|name| name.starts_with("klock_lock_waits_total") && !name.contains("(others)"));
            prop_assert!(own.count() <= series);
            before = after;
        }
        let stacks = test.trace.stacks().unwrap();
        live.add_locks(&locks);
        live.add_stacks(&stacks);
        live.end();
        let last = samples(&text_of(|out| live.write(out)));
        let options = Options { format: Format::Prometheus, allow_loss: true, limit: Some(series), ..Options::default() };
        let whole = samples(&text_of(|out| export::write(from_ref(&test.trace), &options, out).map(drop)));
        for family in ["klock_lock_waits_total", "klock_lock_waits_abandoned_total", "klock_lock_wait_seconds_total", "klock_events_total", "klock_lock_acquisitions_total"] {
            let (live, whole) = (sum(&last, family), sum(&whole, family));
            prop_assert!((live - whole).abs() < 1e-12, "{}: {} and {}", family, live, whole);
        }
    }
}

#[test]
fn skipped_events_are_counted_and_nothing_is_paired_across_them() {
    let parts = Parts::parse("1_000 A acquire m\n2_000 A release m\n3_000 A acquire m\n4_000 A release m");
    let test = parts.write();
    let mut live = Live::new(test.trace.info().clone(), 5);
    live.add_locks(&parts.locks);
    let events = &parts.events;
    assert!(events.iter().all(|event| event.kind != EventKind::Lost));
    live.add_events(&events[..1]);
    live.skip_events(2);
    live.add_events(&events[3..]);
    live.end();
    let samples = samples(&text_of(|out| live.write(out)));
    assert_eq!(
        (sum(&samples, "klock_events_total"), sum(&samples, "klock_events_skipped_total")),
        (4.0, 2.0)
    );
    assert_eq!(sum(&samples, "klock_lock_acquisitions_total"), 0.0);
}
