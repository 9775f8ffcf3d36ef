//! Every table against the slow model, on random histories with random options: every column, by every key.
//! Row groups, the number of readers and the order of events of equal time must not make a difference.

use std::collections::BTreeMap;

use proptest::{collection::vec, prelude::*, sample::Index, test_runner::Config};
use trace_format::Event;

use super::{
    Seen,
    context::{ModelContext, START_NS, file},
    fit,
    report::Numbers,
    request::{Request, Tables, any_request, in_memory, of_file},
};
use crate::{
    blame, hist,
    intervals::{self, RowKind},
    report, timeline,
};
use ::intervals::{
    Filter,
    engine::{Charge, HoldState, Outcome, histories},
};
use output::Visibility;

/// These columns of rows of this kind, in an order that is the rows' own.
fn columns_of(what: RowKind, rows: &[Vec<String>], names: &[&str]) -> Vec<Vec<String>> {
    let fields = intervals::fields(what, false);
    let at = |name: &&str| fields.iter().position(|field| field.name == *name).expect("a column");
    let at: Vec<usize> = names.iter().map(at).collect();
    let mut rows: Vec<Vec<String>> =
        rows.iter().map(|row| at.iter().map(|at| row[*at].clone()).collect()).collect();
    rows.sort();
    rows
}

fn text(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(crate::testing::cases(10_000)) })]

    #[test]
    fn every_column_of_every_table_is_that_of_the_model(
        events in prop_oneof![histories::history().boxed(), histories::shaped_history().boxed()],
        request in any_request(),
    ) {
        thread_local!(static CONTEXT: ModelContext = ModelContext::new());
        CONTEXT.with(|context| check(context, &events, &request))?;
    }
}

fn check(context: &ModelContext, events: &[Event], request: &Request) -> Result<(), TestCaseError> {
    let tables = in_memory(context, events, request);
    let seen = Seen::of(events, request.filter.clone());
    check_report(&tables.report, &seen, request)?;
    check_blame(&tables.blame, &seen, request)?;
    check_timeline(&tables.timeline, &seen, request)?;
    check_hist(&tables.hist, &seen, request)?;
    check_rows(&tables, &seen)
}

fn check_report(report: &report::Report, seen: &Seen, request: &Request) -> Result<(), TestCaseError> {
    let expected = seen.report(request.by);
    prop_assert_eq!(report.rows_total, expected.len());
    prop_assert_eq!(report.rows.len(), expected.len().min(request.limit.unwrap_or(usize::MAX)));
    let declared = report::columns(request.by, false);
    let adds_up = declared.iter().any(|column| column.is_called(&request.sort) && column.merge.is_some());
    let sort = declared.iter().find(|column| column.is_called(&request.sort)).unwrap().field.name.clone();
    let totals = seen.totals();
    for column in declared.iter().filter(|column| column.visibility != Visibility::OnRequest) {
        let name = &*column.field.name;
        prop_assert_eq!(report.totals.get(name), totals.get(name).copied().flatten(), "{}", name);
    }
    for row in &report.rows {
        let (columns, cut) = &expected[&row.key.column_values()];
        for (name, value) in columns {
            prop_assert_eq!(row.get(name), *value, "{} of {}", name, row.name);
        }
        prop_assert_eq!(row["cut_by_loss"] as u64, *cut, "{}", row.name);
    }
    // Sorted, the largest first, and nothing larger is left out.
    let values: Vec<Option<i64>> = report.rows.iter().map(|row| row.get(&sort)).collect();
    prop_assert!(values.is_sorted_by(|a, b| a >= b), "{:?}", values);
    for pair in report.rows.windows(2).filter(|pair| pair[0].get(&sort) == pair[1].get(&sort)) {
        prop_assert!((&pair[0].name, &pair[0].key) < (&pair[1].name, &pair[1].key));
    }
    let shown: Vec<Vec<String>> = report.rows.iter().map(|row| row.key.column_values()).collect();
    let mut hidden = expected.iter().filter(|(key, _)| !shown.contains(key));
    let value = |columns: &Numbers| columns.get(&*sort).copied().flatten();
    let least = values.last().copied().unwrap_or(None);
    prop_assert!(request.limit == Some(0) || hidden.all(|(_, (columns, _))| value(columns) <= least));
    // Parts of the whole.
    let all: i128 = expected.values().filter_map(|(columns, _)| value(columns)).map(i128::from).sum();
    let mut before = 0;
    for row in &report.rows {
        let value = row.get(&sort).map(i128::from).filter(|_| adds_up);
        before += value.unwrap_or(0);
        let part = |of: i128| value.filter(|_| all != 0).map(|_| (of * 1_000_000 / all) as i64);
        prop_assert_eq!(
            (row.get("pct_ppm"), row.get("cum_pct_ppm")),
            (part(value.unwrap_or(0)), part(before))
        );
    }
    // Every wait is somewhere, if nothing was chosen among them.
    let Filter { task: None, mode: None, min_wait_ns: None, from_ns: None, .. } = request.filter else {
        return Ok(());
    };
    let (trust, counts) = (&report.trust, &seen.counts);
    prop_assert_eq!(trust.waits_begun, counts.waits_begun);
    let charged = report.totals.get("cnt_hold").unwrap_or(0) as u64;
    let somewhere = charged + trust.gap_waits + trust.unmeasured_waits + trust.uncounted_waits;
    prop_assert_eq!(somewhere, counts.waits_begun);
    let charged_ns =
        report.totals.get("wait_caused_ns").unwrap_or(0) + trust.gap_ns + trust.uncounted_wait_ns;
    prop_assert_eq!(charged_ns, counts.waited_ns);
    // The contended holds that are credited are the waits that ended with the lock and those whose begin was
    // not seen, but for holds that are not credited or began within another.
    let acquired = seen.waits.iter().filter(|wait| wait.outcome == Outcome::Acquired).count() as u64;
    prop_assert!(report.totals["cnt_lock"] as u64 <= acquired + counts.begin_unseen);
    Ok(())
}

fn check_blame(blame: &blame::Blame, seen: &Seen, request: &Request) -> Result<(), TestCaseError> {
    let key =
        |key: &Option<crate::key::Key>| key.as_ref().map_or_else(Vec::new, crate::key::Key::column_values);
    let rows = blame.rows.iter().map(|row| {
        let sums = (row["wait_caused_ns"], row["shares"], row["longest_ns"], row["cut_by_loss"]);
        ((row.key.charged_to.unwrap().as_str(), key(&row.key.holder), key(&row.key.waiter)), sums)
    });
    let found: BTreeMap<_, _> = rows.collect();
    prop_assert_eq!(found.len(), blame.rows.len(), "no two rows are of the same");
    prop_assert_eq!(&found, &seen.blame(request.blame_by));
    let waited: i64 = seen.selected_waits().map(|wait| wait.wait_ns).sum();
    let sum = |charged: Option<&str>| -> i64 {
        let rows = found.iter().filter(|((is, ..), _)| charged.is_none_or(|charged| *is == charged));
        rows.map(|(_, (ns, ..))| *ns).sum()
    };
    let totals = &blame.totals;
    prop_assert_eq!((totals.waited_ns, sum(None)), (waited, waited));
    let parts = [totals.hold_ns, totals.handoff_ns, totals.gap_ns, totals.owner_ns];
    prop_assert_eq!(parts, ["hold", "handoff", "gap", "owner"].map(|charged| sum(Some(charged))));
    prop_assert_eq!(totals.unknown_ns, sum(Some("waker")) + sum(Some("unknown")));
    prop_assert!(blame.rows.is_sorted_by(|a, b| a["wait_caused_ns"] >= b["wait_caused_ns"]));
    Ok(())
}

fn check_timeline(
    timeline: &timeline::Timeline,
    seen: &Seen,
    request: &Request,
) -> Result<(), TestCaseError> {
    let series = timeline.keys.iter().map(|series| {
        let cell = |cell: &timeline::Cell| (cell.wait_ns, cell.hold_ns, cell.waits, cell.holds);
        let cells: BTreeMap<i64, super::Cell> = series.cells.iter().map(|(n, c)| (*n, cell(c))).collect();
        (
            series.key.as_ref().map_or_else(Vec::new, crate::key::Key::column_values),
            (cells, series.cut_by_loss),
        )
    });
    let found: BTreeMap<_, _> = series.collect();
    prop_assert_eq!(found, seen.timeline(request.by, request.period_ns));
    prop_assert!(timeline.keys.is_sorted_by(|a, b| a.total.wait_ns >= b.total.wait_ns));
    Ok(())
}

fn check_hist(found: &hist::Histogram, seen: &Seen, request: &Request) -> Result<(), TestCaseError> {
    let expected = seen.times(request.of, request.of_key.then_some(request.by));
    prop_assert_eq!(found.keys.len(), expected.len());
    for key in &found.keys {
        let times = &expected[&key.key.key.as_ref().map_or_else(Vec::new, crate::key::Key::column_values)];
        prop_assert_eq!((key["count"], key["total_ns"]), (times.len() as i64, times.iter().sum::<i64>()));
        prop_assert!(fit(&key.key.buckets, times), "{:?} {:?}", key.key.buckets, times);
    }
    Ok(())
}

fn check_rows(tables: &Tables, seen: &Seen) -> Result<(), TestCaseError> {
    let since = |ns: i64| (ns - START_NS).to_string();
    let names = [
        "start_ns",
        "end_ns",
        "wait_ns",
        "outcome",
        "errno",
        "mode",
        "gap_ns",
        "blocked_ns",
        "runq_ns",
        "task_id",
        "lock_id",
        "began_in",
        "holder_task_id",
        "hold_start_ns",
        "owner_task_id",
        "waker_task_id",
        "stack_id",
    ];
    let mut waits: Vec<Vec<String>> = seen
        .selected_waits()
        .map(|wait| {
            let (outcome, errno) = match wait.outcome {
                Outcome::Acquired => ("acquired", None),
                Outcome::Abandoned(errno) => ("abandoned", errno),
                Outcome::OpenAtEnd => ("open", None),
                Outcome::CutByLoss => ("cut", None),
            };
            let (began_in, holder, hold_start) = match wait.charge {
                Charge::Hold { task, start_ns } => ("hold", Some(task.0), Some(start_ns - START_NS)),
                Charge::Gap => ("gap", None, None),
                Charge::Unknown => ("unknown", None, None),
            };
            vec![
                since(wait.start_ns),
                since(wait.end_ns),
                wait.wait_ns.to_string(),
                outcome.to_owned(),
                text(errno),
                wait.mode.as_str().to_owned(),
                text(wait.gap_ns),
                text(wait.blocked_ns),
                text(wait.runq_ns),
                wait.task.0.to_string(),
                wait.lock.0.to_string(),
                began_in.to_owned(),
                text(holder),
                text(hold_start),
                text(wait.owner.map(|task| task.0)),
                text(wait.waker.map(|task| task.0)),
                text(wait.stack.map(|stack| stack.0)),
            ]
        })
        .collect();
    waits.sort();
    prop_assert_eq!(columns_of(RowKind::Waits, &tables.waits, &names), waits);
    let names = [
        "start_ns",
        "end_ns",
        "hold_ns",
        "wait_ns",
        "state",
        "mode",
        "contended",
        "gap_ns",
        "blocked_ns",
        "runq_ns",
        "waits_begun",
        "wait_caused_ns",
        "max_waiters",
        "owner_changed",
        "acquisitions",
        "recursions",
        "task_id",
        "lock_id",
        "released_by_task_id",
        "stack_id",
    ];
    let mut holds: Vec<Vec<String>> = seen
        .selected_holds()
        .map(|hold| {
            let state = match hold.state {
                HoldState::Complete => "complete",
                HoldState::AcquisitionOnly => "acquisition",
                HoldState::OpenAtEnd => "open",
                HoldState::CutByLoss => "cut",
                HoldState::ReleaseUnseen => "release_unseen",
                HoldState::Backwards => "backwards",
            };
            let known = |value: i64| text((state != "acquisition").then_some(value));
            vec![
                since(hold.start_ns),
                known(hold.end_ns - START_NS),
                known(hold.end_ns - hold.start_ns),
                text(hold.wait_ns),
                state.to_owned(),
                hold.mode.as_str().to_owned(),
                i64::from(hold.contended).to_string(),
                text(hold.gap_ns),
                text(hold.blocked_ns),
                text(hold.runq_ns),
                known(hold.waits_begun),
                known(hold.wait_caused_ns),
                known(hold.max_waiters),
                known(i64::from(hold.owner_changed)),
                hold.acquisitions.to_string(),
                hold.recursions.to_string(),
                hold.task.0.to_string(),
                hold.lock.0.to_string(),
                text(hold.released_by.map(|task| task.0)),
                text(hold.stack.map(|stack| stack.0)),
            ]
        })
        .collect();
    holds.sort();
    prop_assert_eq!(columns_of(RowKind::Holds, &tables.holds, &names), holds);
    Ok(())
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(crate::testing::cases(40)) })]

    #[test]
    fn a_file_gives_what_its_events_give_however_it_is_cut(
        (events, request, group_rows) in (histories::history(), any_request(), 1..20usize),
    ) {
        prop_assume!(!events.is_empty());
        let context = ModelContext::new();
        let mut expected = in_memory(&context, &events, &request);
        let mut found = of_file(&file(&events, group_rows).trace, &request).unwrap();
        // The trace in memory does not know how many events it has.
        for trust in [&mut expected.report.trust, &mut expected.blame.trust, &mut expected.timeline.trust, &mut expected.hist.trust] {
            trust.recorded = events.len() as u64;
        }
        (expected.waits, found.waits) = (sorted(expected.waits), sorted(found.waits));
        (expected.holds, found.holds) = (sorted(expected.holds), sorted(found.holds));
        prop_assert_eq!(found, expected);
    }
}

fn sorted(mut rows: Vec<Vec<String>>) -> Vec<Vec<String>> {
    rows.sort();
    rows
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(crate::testing::cases(1000)) })]

    #[test]
    fn neither_readers_nor_the_order_of_events_of_equal_time_make_a_difference(
        (events, choices, request, readers) in (histories::orderly_history(), vec(any::<Index>(), 1..20), any_request(), 1..7usize),
    ) {
        thread_local!(static CONTEXT: ModelContext = ModelContext::new());
        let other = histories::reordered(&events, &choices);
        let asked_otherwise = Request { readers, ..request.clone() };
        let (one, two) = CONTEXT.with(|context| {
            (in_memory(context, &events, &request), in_memory(context, &other, &asked_otherwise))
        });
        let rows = |tables: Tables| Tables { waits: sorted(tables.waits), holds: sorted(tables.holds), ..tables };
        prop_assert_eq!(rows(one), rows(two));
    }
}
