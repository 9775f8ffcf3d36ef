//! Groups against the slow model, on random histories.

use proptest::{collection::vec, option, prelude::*, test_runner::Config};
use trace_format::TaskId;

use super::{
    Evidence, Group,
    model::{self, Row},
};

/// Returns the evidence of rows, whose last one is a `Lose`.
pub(super) fn evidence(rows: &[(i64, Row)]) -> Evidence {
    let mut group = Group::default();
    for (ts_ns, row) in rows {
        match *row {
            Row::Begin(task) => group.begin(task, *ts_ns),
            Row::Wake(task, length_ns) => group.call(task, ts_ns - length_ns),
            Row::End(task, waker) => group.end(task, *ts_ns, waker),
            Row::Lose => group.lose(*ts_ns),
        }
    }
    group.evidence(rows.last().map_or(0, |(ts_ns, _)| *ts_ns))
}

fn history() -> impl Strategy<Value = Vec<(i64, Row)>> {
    let task = || (0..4).prop_map(TaskId);
    let row = prop_oneof![
        10 => task().prop_map(Row::Begin),
        10 => (task(), option::weighted(0.9, task())).prop_map(|(task, waker)| Row::End(task, waker)),
        4 => (task(), prop_oneof![Just(0), Just(500), Just(20_000)]).prop_map(|(task, ns)| Row::Wake(task, ns)),
        1 => Just(Row::Lose),
    ];
    // Times on both sides of what is vain, and of a batch.
    let gap = prop_oneof![3 => Just(0), 6 => Just(7_000), 3 => 20_000..60_000i64, 2 => 90_000..110_000i64];
    vec((gap, row), 1..60).prop_map(|rows| {
        let mut now_ns = 1_000_000;
        let mut timed: Vec<(i64, Row)> = rows
            .into_iter()
            .map(|(gap, row)| {
                now_ns += gap;
                (now_ns, row)
            })
            .collect();
        timed.push((now_ns + 5_000, Row::Lose));
        timed
    })
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(crate::testing::cases(10_000)) })]

    #[test]
    fn a_group_counts_what_the_model_counts(rows in history()) {
        prop_assert_eq!(evidence(&rows), model::evidence(&rows));
    }

    #[test]
    fn parts_are_not_more_than_the_whole(rows in history()) {
        let found = evidence(&rows);
        prop_assert!(found.both <= found.waits && found.queued <= found.waits);
        prop_assert!(found.left <= found.entered);
        prop_assert!(found.relayed <= found.queued && found.batched <= found.waits);
        prop_assert!(found.all_ns <= found.some_ns && found.batches <= found.waits);
    }
}
