//! Histograms: the bucket of each time, and the same counts as the report.

use crate::testing::trace_of;
use proptest::{prelude::*, test_runner::Config};

use super::{Bucket, Buckets, Histogram, Of, Options, histogram};
use crate::{
    key::By,
    report,
    testing::{self, written},
};
use intervals::{Filter, engine::histories};
use output::Format::{Csv, Json, Text};

const TEXT: &str = "
    0 A acquire m a.c:1
    50 B wait m b.c:1
    250 A release m
    260 B acquire m b.c:1 wait=210
    261 B release m
    310 A acquire n a.c:2
    310 A release n
    320 A acquire n a.c:2
    329 A release n
";

fn of(options: &Options) -> Histogram {
    histogram(&[testing::trace(TEXT).trace], options).unwrap()
}

#[test]
fn a_bucket_is_a_power_of_two_and_zero_has_its_own() {
    let bucket = |ns| Buckets::Log2.number(ns);
    assert_eq!([-5, 0, 1, 2, 3, 4, 1023, 1024, i64::MAX].map(bucket), [0, 0, 1, 2, 2, 3, 10, 11, 63]);
}

#[test]
fn every_time_lies_in_its_bucket_and_fine_ones_are_at_most_a_64th_wide() {
    let times = (0..5000).chain((0..63).flat_map(|bit| [(1_i64 << bit) - 1, 1 << bit])).chain([i64::MAX]);
    for ns in times {
        for kind in Buckets::ALL {
            let Bucket { from_ns, to_ns, .. } = kind.bucket(kind.number(ns), 1);
            assert!(from_ns <= ns && ns <= to_ns, "{kind}: {from_ns} {ns} {to_ns}");
            assert!(to_ns == i64::MAX || kind.number(to_ns + 1) == kind.number(ns) + 1, "{kind}: {ns}");
            assert!(*kind == Buckets::Log2 || to_ns - from_ns <= from_ns / 64, "{from_ns} {to_ns}");
        }
    }
}

#[test]
fn fine_buckets_are_all_in_the_rows_and_few_in_the_text() {
    let mut history = String::new();
    for i in 0..600 {
        history += &format!("{} A acquire m\n{} A release m\n", i * 10_000, i * 10_000 + 1000 + i * 7);
    }
    let options = Options { of: Of::Hold, buckets: Buckets::Hdr, ..Options::default() };
    let found = histogram(&[testing::trace(&history).trace], &options).unwrap();
    let buckets = &found.keys[0].key.buckets;
    // 1000 .. 5200 ns: two octaves of 64, and the 1/64ths of 24 ns and 1104 ns at its ends.
    assert_eq!(buckets.iter().map(|bucket| bucket.count).sum::<u64>(), 600);
    assert!(buckets.len() > 128 && buckets.iter().all(|bucket| bucket.count > 0), "{}", buckets.len());
    let csv = written(&found, Csv, None);
    assert_eq!(csv.lines().count(), buckets.len() + 1);
    let shown = written(&found, Text, Some(80));
    assert!(shown.contains("600 holds, 1.86 ms together; a line is at most 6."), "{shown}");
    assert!(
        shown.lines().count() < 50 && shown.contains("\n 1.02 µs ..  1.09 µs         9    1.5 %  █"),
        "{shown}"
    );
}

#[test]
fn several_traces_are_counted_as_one_or_apart() {
    let (one, two) = (testing::trace(TEXT), testing::trace(TEXT));
    let traces = [one.trace, two.trace];
    let of = |by| histogram(&traces, &Options { of: Of::Hold, by, ..Options::default() }).unwrap();
    assert_eq!((of(None).keys[0]["count"], of(Some(By::Site)).keys[0]["count"]), (8, 2));
    let apart = of(Some(By::Lock));
    assert_eq!((apart.keys.len(), apart.traces, apart.trust.events), (4, 2, 18));
    let csv = written(&apart, Csv, None);
    assert!(csv.starts_with("from_ns,to_ns,count,name,lock_id,address,kind,pid,trace\n"), "{csv}");
    assert!(apart.keys.iter().all(|key| key.trace.is_some() && key.name.contains(": #")), "{apart:?}");
}

#[test]
fn holds_of_each_lock_are_counted_and_empty_buckets_between_are_kept() {
    let found = of(&Options { of: Of::Hold, by: Some(By::Lock), ..Options::default() });
    let [m, n] = found.keys.as_slice() else { panic!("{found:?}") };
    assert_eq!((m.name.as_str(), m["count"], m["total_ns"]), ("#0 m (pthread_mutex)", 2, 251));
    let counts = |buckets: &[Bucket]| buckets.iter().map(|b| (b.from_ns, b.count)).collect::<Vec<_>>();
    assert_eq!(counts(&m.key.buckets), [(1, 1), (2, 0), (4, 0), (8, 0), (16, 0), (32, 0), (64, 0), (128, 1)]);
    assert_eq!(counts(&n.key.buckets), [(0, 1), (1, 0), (2, 0), (4, 0), (8, 1)]);
    let shown = written(&found, Text, Some(80));
    assert!(shown.contains("  128 ns ..   256 ns         1   50.0 %  █"), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
}

#[test]
fn waits_are_those_that_ended_with_the_lock_and_all_keys_are_one_by_default() {
    let found = of(&Options::default());
    assert_eq!((found.keys[0].name.as_str(), found.keys[0]["total_ns"]), ("all", 210));
    assert_eq!(found.keys[0].key.buckets, [Bucket { from_ns: 128, to_ns: 255, count: 1 }]);
    let csv = written(&found, Csv, None);
    assert_eq!(csv, "from_ns,to_ns,count,name\n128,255,1,all\n");
    let json: serde_json::Value = serde_json::from_str(&written(&found, Json, None)).unwrap();
    assert_eq!((&json["of"], &json["keys"][0]["count"]), (&"wait".into(), &1.into()));
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(testing::cases(50)) })]

    #[test]
    fn all_that_a_report_adds_up_is_in_one_bucket(events in histories::history()) {
        prop_assume!(!events.is_empty());
        let test = trace_of(events, 9);
        let filter = Filter { include_idle: true, ..Filter::default() };
        for by in By::all() {
            let options = report::Options { by, filter: filter.clone(), ..report::Options::default() };
            let report = report::report(std::slice::from_ref(&test.trace), &options).unwrap();
            for of in Of::ALL {
                let options = Options { of: *of, by: Some(by), filter: filter.clone(), ..Options::default() };
                let found = histogram(std::slice::from_ref(&test.trace), &options).unwrap();
                for key in &found.keys {
                    prop_assert_eq!(key.key.buckets.iter().map(|bucket| bucket.count as i64).sum::<i64>(), key["count"]);
                    let same = |row: &&report::Row| Some(&row.key) == key.key.key.as_ref();
                    let row = report.rows.iter().find(same).expect("a row of the key");
                    let (total_ns, most) = match of {
                        Of::Hold => (row.get("total_ns"), row["count"]),
                        Of::Wait => (row.get("wait_total_ns"), row["cnt_lock"]),
                    };
                    prop_assert_eq!(Some(key["total_ns"]), total_ns);
                    prop_assert!(key["count"] <= most);
                    let ends = (key.key.buckets.first().unwrap(), key.key.buckets.last().unwrap());
                    prop_assert!(ends.0.count > 0 && ends.1.count > 0);
                }
                let all: i64 = found.keys.iter().map(|key| key["total_ns"]).sum();
                let expected = match of {
                    Of::Hold => report.totals.get("total_ns"),
                    Of::Wait => report.totals.get("wait_total_ns"),
                };
                prop_assert_eq!(all, expected.unwrap_or(0));
            }
        }
    }
}
