//! Checks tables against each other: counts of the same events by different rules must agree where the rules
//! do.

use std::collections::BTreeMap;

use ::intervals::{
    Filter,
    engine::{HoldState, Outcome, histories},
};
use proptest::{prelude::*, test_runner::Config};

use super::{
    Seen,
    context::{ModelContext, any_key},
};
use crate::{
    key::By,
    report::{self, Options},
    testing::MemoryEvents,
    timeline,
};

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(crate::testing::cases(500)) })]

    #[test]
    fn the_rows_of_all_periods_add_up_to_the_rows_of_the_report(
        events in histories::history(), by in any_key(), period_ns in 1..50i64, readers in 1..4usize,
    ) {
        thread_local!(static CONTEXT: ModelContext = ModelContext::new());
        let (report, periods) = CONTEXT.with(|context| {
            let memory = MemoryEvents(events.clone());
            let part = [context.input(&memory, &Filter::default()).unwrap()];
            let options = Options { by, allow_loss: true, ..Options::default() };
            let report = report::of_inputs(&part, &options, 1).unwrap();
            let options = timeline::Options { by, period_ns: Some(period_ns), allow_loss: true, ..timeline::Options::default() };
            (report, timeline::worst_of_inputs(&part, &options, readers).unwrap())
        });
        let mut found: BTreeMap<Vec<String>, [i64; 5]> = BTreeMap::new();
        for row in &periods.rows {
            let [count, wait, abandoned, try_failed, longest] = found.entry(row.key.column_values()).or_default();
            *count += row["count"];
            *wait += row["wait_total_ns"];
            *abandoned += row["abandoned"];
            *try_failed += row["try_failed"];
            *longest = row["wait_max_ns"].max(*longest);
            prop_assert!(row["from_ns"] >= 0 && row["start_ns"] % period_ns == 0 && row["threads"] <= row["count"]);
        }
        let columns = |row: &report::Row| {
            let ns = |ns: Option<i64>| ns.unwrap_or(0);
            let sums = [row["count"], ns(row.get("wait_total_ns")), row["abandoned"], row["try_failed"]];
            let [count, wait, abandoned, try_failed] = sums;
            (row.key.column_values(), [count, wait, abandoned, try_failed, ns(row.get("wait_max_ns"))])
        };
        let is_used = |(_, sums): &(_, [i64; 5])| sums[0] + sums[2] + sums[3] > 0;
        let expected: BTreeMap<_, _> = report.rows.iter().map(columns).filter(is_used).collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn contended_holds_are_waits_that_ended_with_the_lock_and_waits_begin_in_a_hold_or_in_none(
        events in histories::orderly_history(),
    ) {
        thread_local!(static CONTEXT: ModelContext = ModelContext::new());
        let options = Options { by: By::Lock, allow_loss: true, ..Options::default() };
        let report = CONTEXT.with(|context| {
            let memory = MemoryEvents(events.clone());
            let part = [context.input(&memory, &options.filter).unwrap()];
            report::of_inputs(&part, &options, 1).unwrap()
        });
        let seen = Seen::of(&events, Filter::default());
        // Each wait that ended with the lock led to one contended hold, which is credited if it was seen to
        // end.
        let at = |lock: trace_format::LockId, task: trace_format::TaskId, ns: i64| (lock.0, task.0, ns);
        let acquired = seen.waits.iter().filter(|wait| wait.outcome == Outcome::Acquired);
        let mut acquired: Vec<_> = acquired.map(|wait| at(wait.lock, wait.task, wait.end_ns)).collect();
        let contended = || seen.holds.iter().filter(|hold| hold.contended);
        let mut led_to: Vec<_> = contended().map(|hold| at(hold.lock, hold.task, hold.start_ns)).collect();
        acquired.sort_unstable();
        led_to.sort_unstable();
        prop_assert_eq!(acquired, led_to);
        let credited = contended().filter(|hold| hold.state == HoldState::Complete).count();
        prop_assert_eq!(report.totals["cnt_lock"] as usize, credited);
        let begun = report.totals.get("cnt_hold").unwrap_or(0) as u64 + report.trust.gap_waits + report.trust.uncounted_waits;
        prop_assert_eq!((begun, report.trust.waits_begun), (seen.waits.len() as u64, seen.waits.len() as u64));
        // For each lock, waiting is charged to holds or to hand-off gaps.
        for lock in 0..2 {
            let of = |id: trace_format::LockId| id.0 == lock;
            let waited: i64 = seen.waits.iter().filter(|w| of(w.lock)).map(|w| w.wait_ns).sum();
            let gaps: i64 = seen.waits.iter().filter(|w| of(w.lock)).filter_map(|w| w.gap_ns).sum();
            let caused: i64 = seen.holds.iter().filter(|h| of(h.lock)).map(|h| h.wait_caused_ns).sum();
            prop_assert_eq!(waited, caused + gaps);
        }
    }
}
