//! The columns of a report against the sums of intervals of random histories.

use crate::testing::Intervals;
use std::collections::{BTreeMap, BTreeSet};

use proptest::{prelude::*, test_runner::Config};
use trace_format::{EventKind, Mode};

use super::super::Options;
use super::{by, report_by};
use crate::testing::trace_of;
use crate::{
    key::By,
    model::report::{Numbers, percentile},
    testing,
};
use intervals::{
    Filter, engine,
    input::source,
    items::{HoldState, Outcome, Wait},
};

#[test]
fn the_number_of_readers_does_not_change_the_result() {
    let mut history = String::new();
    for i in 0..300 {
        let (task, lock, t) = (["A", "B", "C"][i % 3], ["m", "n"][i % 2], i * 100);
        history += &format!("{t} {task} acquire {lock} a.c:{} wait={}\n", i % 5, i % 7);
        history += &format!("{} {task} release {lock}\n", t + i % 90);
    }
    let test = testing::trace(&history);
    for key in By::all() {
        let whole = report_by(1, &test.trace, &by(key));
        assert_eq!(whole.totals["count"], 300);
        for readers in [2, 3, 7] {
            assert_eq!(report_by(readers, &test.trace, &by(key)), whole, "{key}, {readers}");
        }
    }
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(testing::cases(100)) })]

    #[test]
    fn the_columns_are_the_sums_of_the_intervals(events in engine::histories::history(), readers in 1..5usize) {
        prop_assume!(!events.is_empty());
        let mut tries: BTreeMap<i32, i64> = BTreeMap::new();
        for event in events.iter().filter(|event| event.kind == EventKind::TryFail && event.task.is_some()) {
            *tries.entry(event.lock.unwrap().0).or_default() += 1;
        }
        let mut modes: BTreeMap<i32, Vec<Mode>> = BTreeMap::new();
        for event in events.iter().filter(|event| event.kind == EventKind::TryFail && event.task.is_some()) {
            modes.entry(event.lock.unwrap().0).or_default().push(event.mode.unwrap_or(Mode::Exclusive));
        }
        let test = trace_of(events, usize::MAX);
        let rules = test.rules();
        let mut engine = engine::Engine::new(test.rules());
        let (mut found, mut last_ns) = (Intervals::default(), 0);
        source::for_each(&test.trace, |event| {
            last_ns = last_ns.max(event.ts_ns);
            engine.push(event, &mut found);
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
        engine.finish(last_ns, &mut found);

        let mut expected: BTreeMap<i32, Vec<_>> = BTreeMap::new();
        for hold in &found.holds {
            if matches!(hold.state, HoldState::Complete | HoldState::AcquisitionOnly) {
                expected.entry(hold.lock.0).or_default().push(hold);
            }
        }
        let options = Options { filter: Filter { include_idle: true, ..Filter::default() }, columns: vec!["p99".to_owned()], ..by(By::Lock) };
        let report = report_by(readers, &test.trace, &options);
        let mut rows: BTreeSet<i32> = expected.keys().chain(tries.keys()).copied().collect();
        rows.extend(found.holds.iter().filter(|hold| hold.state == HoldState::OpenAtEnd).map(|hold| hold.lock.0));
        let has_row = |wait: &&Wait| matches!(wait.outcome, Outcome::Abandoned(_) | Outcome::OpenAtEnd);
        rows.extend(found.waits.iter().filter(has_row).map(|wait| wait.lock.0));
        for wait in found.waits.iter().filter(has_row) {
            modes.entry(wait.lock.0).or_default().push(wait.mode);
        }
        for hold in found.holds.iter().filter(|hold| hold.state == HoldState::OpenAtEnd) {
            modes.entry(hold.lock.0).or_default().push(hold.mode);
        }
        prop_assert_eq!(report.rows.len(), rows.len());
        for row in &report.rows {
            let lock_id = row.key.number("lock_id").unwrap();
            prop_assert!(rows.contains(&lock_id));
            let holds = expected.get(&lock_id).map_or(&[][..], Vec::as_slice);
            let complete = || holds.iter().filter(|hold| hold.state == HoldState::Complete);
            let measured: Vec<i64> = complete().map(|hold| hold.end_ns - hold.start_ns).collect();
            let contended = holds.iter().filter(|hold| hold.contended);
            let contended: Vec<i64> = contended.filter_map(|hold| hold.wait_ns).collect();
            let states: Vec<[i64; 3]> = holds
                .iter()
                .filter(|hold| hold.contended)
                .filter_map(|hold| Some([hold.wait_ns?, hold.blocked_ns?, hold.runq_ns?]))
                .collect();
            let spent = |of: fn(&[i64; 3]) -> i64| {
                (!states.is_empty()).then(|| states.iter().map(of).sum::<i64>())
            };
            let gaps: Vec<i64> = holds.iter().filter_map(|hold| hold.gap_ns).collect();
            let waits: Vec<i64> = holds.iter().filter_map(|hold| hold.wait_ns).collect();
            let count: i64 = holds.iter().map(|hold| hold.acquisitions).sum();
            // A row without an acquisition has no waits for one.
            let waited = |value: i64| (!waits.is_empty() || count == 0).then_some(value);
            let of = |values: &[i64]| (values.iter().max().copied(), values.iter().sum::<i64>());
            let ((max, total), (wait_max, wait_total)) = (of(&measured), of(&waits));
            let of_wait = |w: &&Wait| w.lock.0 == lock_id;
            let abandoned = |w: &&Wait| matches!(w.outcome, Outcome::Abandoned(_));
            let abandoned = found.waits.iter().filter(of_wait).filter(abandoned);
            let open_waits = found.waits.iter().filter(of_wait).filter(|w| w.outcome == Outcome::OpenAtEnd);
            let open_holds = found.holds.iter().filter(|h| h.lock.0 == lock_id && h.state == HoldState::OpenAtEnd);
            let [abandoned_count, open_count] = [abandoned.clone().count(), open_waits.clone().count()].map(|n| n as i64);
            let try_failed = tries.get(&lock_id).copied().unwrap_or(0);
            // Nor has it holds, if those are recorded.
            let recorded = |mode| rules.measures(trace_format::LockId(lock_id), mode);
            let attempted = modes.get(&lock_id).into_iter().flatten().any(|mode| recorded(*mode));
            let none = holds.is_empty() && attempted;
            let held = |value: i64| (!measured.is_empty() || none).then_some(value);
            let columns = Numbers::from([
                ("attempts", Some(count + abandoned_count + open_count + try_failed)),
                ("abandoned", Some(abandoned_count)),
                ("abandoned_wait_ns", Some(abandoned.map(|w| w.wait_ns).sum())),
                ("try_failed", Some(try_failed)),
                ("open_holds", Some(open_holds.clone().count() as i64)),
                ("open_hold_ns", Some(open_holds.map(|h| h.end_ns - h.start_ns).sum())),
                ("open_waits", Some(open_count)),
                ("open_wait_ns", Some(open_waits.map(|w| w.wait_ns).sum())),
                ("max_ns", held(max.unwrap_or(0))),
                ("wait_max_ns", waited(wait_max.unwrap_or(0))),
                ("total_ns", held(total)),
                ("wait_total_ns", waited(wait_total)),
                ("count", Some(count)),
                ("avg_ns", held(total.checked_div(complete().map(|h| h.acquisitions).sum()).unwrap_or(0))),
                ("wait_avg_ns", waited(wait_total.checked_div(count).unwrap_or(0))),
                ("cnt_hold", held(holds.iter().map(|hold| hold.waits_begun).sum())),
                ("cnt_lock", Some(holds.iter().filter(|hold| hold.contended).count() as i64)),
                ("wait_caused_ns", held(holds.iter().map(|hold| hold.wait_caused_ns).sum())),
                ("holds_contended", held(holds.iter().filter(|hold| hold.waits_begun > 0).count() as i64)),
                ("gap_ns", (!gaps.is_empty() || count == 0).then(|| gaps.iter().sum())),
                ("contention_ppm", held(0).filter(|_| count > 0).map(|_| holds.iter().filter(|hold| hold.contended).count() as i64 * 1_000_000 / count)),
                ("owner_changes", held(holds.iter().filter(|hold| hold.owner_changed).count() as i64)),
                ("max_waiters", held(holds.iter().map(|hold| hold.max_waiters).max().unwrap_or(0))),
                ("min_ns", measured.iter().min().copied()),
                ("p50_ns", percentile(&measured, 500)),
                ("p90_ns", percentile(&measured, 900)),
                ("p99_ns", percentile(&measured, 990)),
                ("p999_ns", percentile(&measured, 999)),
                ("wait_min_ns", contended.iter().min().copied()),
                ("wait_p50_ns", percentile(&contended, 500)),
                ("wait_p90_ns", percentile(&contended, 900)),
                ("wait_p99_ns", percentile(&contended, 990)),
                ("wait_p999_ns", percentile(&contended, 999)),
                ("threads", Some(holds.iter().map(|hold| hold.task).collect::<BTreeSet<_>>().len() as i64)),
                ("spin_ns", spent(|[wait, blocked, runq]| wait - blocked - runq)),
                ("blocked_ns", spent(|[_, blocked, _]| *blocked)),
                ("runq_ns", spent(|[_, _, runq]| *runq))
            ]);
            for (name, value) in columns {
                prop_assert_eq!(row.get(name), value, "{}", name);
            }
            let of_lock = |lock: trace_format::LockId| lock.0 == lock_id;
            let holds = found.holds.iter().filter(|h| of_lock(h.lock) && h.state == HoldState::CutByLoss);
            let waits = found.waits.iter().filter(|w| of_lock(w.lock) && w.outcome == Outcome::CutByLoss);
            prop_assert_eq!(row["cut_by_loss"] as usize, holds.count() + waits.count());
        }

        // Every wait is somewhere.
        let trust = &report.trust;
        let charged = report.totals.get("cnt_hold").unwrap_or(0) as u64;
        let somewhere = charged + trust.gap_waits + trust.unmeasured_waits + trust.uncounted_waits;
        prop_assert_eq!(somewhere, trust.waits_begun);
        let charged_ns = report.totals.get("wait_caused_ns").unwrap_or(0) + trust.gap_ns + trust.uncounted_wait_ns;
        prop_assert_eq!(charged_ns, trust.waited_ns);
        let ended = found.waits.iter().filter(|w| matches!(w.outcome, Outcome::Acquired | Outcome::Abandoned(_)));
        let known = trust.waits_begun + trust.inferred_waits;
        prop_assert_eq!(ended.count() as u64 + trust.waits_open_at_end + trust.waits_cut_by_loss, known);
    }
}
