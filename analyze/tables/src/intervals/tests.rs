//! Rows of events, holds and waits against the intervals of the engine.

use proptest::{prelude::*, test_runner::Config};

use super::{Options, RowKind, Written, write};
use crate::{
    testing::trace_of,
    testing::{self, KeptRows},
};
use intervals::{
    Filter,
    engine::{Engine, histories},
    input::trust::Trust,
    testing::Intervals,
};
use output::Field;
use trace_format::Trace;

fn fields(what: RowKind) -> Vec<Field> {
    super::fields(what, false)
}

fn kept(trace: &Trace, options: &Options) -> (Vec<Vec<String>>, Trust) {
    let mut kept = KeptRows::default();
    let Written { rows: written, trust, .. } =
        write(std::slice::from_ref(trace), options, &mut kept).unwrap();
    assert_eq!(written, kept.0.len() as u64);
    assert!(kept.0.iter().all(|row| row.len() == fields(options.what).len()));
    (kept.0, trust)
}

/// These columns of the rows.
fn columns(what: RowKind, rows: &[Vec<String>], names: &[&str]) -> Vec<String> {
    let fields = fields(what);
    let at = |name: &&str| fields.iter().position(|field| field.name == *name).expect("a column");
    let at: Vec<usize> = names.iter().map(at).collect();
    rows.iter().map(|row| at.iter().map(|at| row[*at].as_str()).collect::<Vec<_>>().join(" ")).collect()
}

const TEXT: &str = "
    task A pid=1 tid=11 comm=worker
    10 A acquire m a.c:1:get
    20 B wait m b.c:2:put
    50 A release m a.c:9:drop
    53 B acquire m b.c:2:put wait=33
    60 C try_fail m c.c:1 errno=16
    70 B release m b.c:3
    80 - lost count=2
";

#[test]
fn events_have_names_and_the_order_of_the_file() {
    let test = testing::trace(TEXT);
    let (rows, trust) = kept(&test.trace, &Options::default());
    let shown =
        columns(RowKind::Events, &rows, &["time_ns", "event", "task", "lock", "wait_ns", "site", "count"]);
    assert_eq!(shown[0], "0 acquire worker 11 #0 m 0 a.c:1 (get) -");
    assert_eq!(shown[1], "10 wait B 102 #0 m - b.c:2 (put) -");
    assert_eq!(shown[6], "70 lost - - - - 2");
    assert_eq!((rows.len(), trust.events, trust.lost), (7, 7, 2));
}

#[test]
fn waits_and_holds_have_their_ends_and_causes() {
    let test = testing::trace(TEXT);
    let of = |what| kept(&test.trace, &Options { what, ..Options::default() }).0;
    let wait =
        ["start_ns", "end_ns", "wait_ns", "gap_ns", "outcome", "began_in", "holder", "hold_start_ns", "site"];
    assert_eq!(
        columns(RowKind::Waits, &of(RowKind::Waits), &wait),
        ["10 43 33 3 acquired hold worker 11 0 b.c:2 (put)"]
    );
    let hold =
        ["start_ns", "hold_ns", "wait_ns", "state", "wait_caused_ns", "max_waiters", "owner_changed", "comm"];
    assert_eq!(
        columns(RowKind::Holds, &of(RowKind::Holds), &hold),
        ["0 40 0 complete 30 1 0 worker", "43 17 33 complete 0 0 1 B"]
    );
}

#[test]
fn the_owner_by_the_lock_word_stands_for_a_holder_that_was_not_recorded_and_is_marked() {
    let text = "source kernel_contended kinds=mutex holds=no\nlock m mutex
        task A tid=11 comm=worker\n10 B wait m k:b.c:1 peer=A\n30 B acquire m k:b.c:1 wait=20";
    let test = testing::trace(text);
    let (rows, _) = kept(&test.trace, &Options { what: RowKind::Waits, ..Options::default() });
    let shown = columns(RowKind::Waits, &rows, &["began_in", "holder", "holder_task_id", "owner"]);
    assert_eq!(shown, ["unknown worker 11? - worker 11"]);
}

#[test]
fn rows_are_filtered_and_limited_and_what_is_beyond_is_not_read() {
    let test = testing::trace(TEXT);
    let count =
        |what, filter: Filter| kept(&test.trace, &Options { what, filter, ..Options::default() }).0.len();
    let by_comm = || Filter { comms: vec!["worker".into()], ..Filter::default() };
    assert_eq!((count(RowKind::Events, by_comm()), count(RowKind::Holds, by_comm())), (3, 1));
    let window = || Filter { from_ns: Some(10), to_ns: Some(43), ..Filter::default() };
    assert_eq!((count(RowKind::Events, window()), count(RowKind::Waits, window())), (2, 1));
    let (rows, trust) = kept(&test.trace, &Options { limit: Some(2), ..Options::default() });
    assert_eq!((rows.len(), trust.events), (2, 3), "one more event tells whether there are more rows");
    let one = Options { what: RowKind::Holds, limit: Some(1), ..Options::default() };
    let (rows, trust) = kept(&test.trace, &one);
    assert_eq!((rows.len(), trust.events), (1, 6));
}

#[test]
fn rows_are_hidden_only_if_there_are_more_than_the_limit() {
    let test = testing::trace(TEXT);
    for what in [RowKind::Events, RowKind::Waits, RowKind::Holds] {
        let hidden = |limit| {
            let options = Options { what, limit, ..Options::default() };
            write(std::slice::from_ref(&test.trace), &options, &mut KeptRows::default()).unwrap()
        };
        let all = hidden(None);
        assert!(all.rows > 0 && all.hidden == Some(0));
        for (limit, expected) in [(all.rows + 1, Some(0)), (all.rows, Some(0)), (all.rows - 1, None)] {
            let written = hidden(Some(limit));
            assert_eq!((written.rows, written.hidden), (limit.min(all.rows), expected), "{what:?}");
        }
    }
}

#[test]
fn sorted_rows_are_the_first_by_their_column_and_the_rest_is_counted() {
    let test = testing::trace(TEXT);
    let of = |what, sort: &str, limit| {
        let mut kept = KeptRows::default();
        let options = Options { what, limit, sort: Some(sort.to_owned()), ..Options::default() };
        let written = write(std::slice::from_ref(&test.trace), &options, &mut kept).unwrap();
        (
            columns(
                what,
                &kept.0,
                &["time_ns", "hold_ns"].map(|name| if what == RowKind::Events { "time_ns" } else { name })
                    [1..],
            ),
            written.hidden,
        )
    };
    assert_eq!(of(RowKind::Holds, "hold", Some(1)), (vec!["40".to_owned()], Some(1)));
    assert_eq!(of(RowKind::Holds, "begin", None).0, ["40", "17"]);
    assert_eq!(of(RowKind::Holds, "caused", None).0, ["40", "17"]);
    assert_eq!(of(RowKind::Events, "time", Some(2)).0, ["0", "10"]);
}

#[test]
fn rows_of_several_traces_say_which_one_they_are_of() {
    let (one, two) = (testing::trace_of_host("one", TEXT), testing::trace_of_host("two", TEXT));
    let traces = [one.trace, two.trace];
    let of = |limit| {
        let mut kept = KeptRows::default();
        let options = Options { what: RowKind::Waits, limit, ..Options::default() };
        let Written { rows: written, trust, .. } = write(&traces, &options, &mut kept).unwrap();
        assert_eq!(written, kept.0.len() as u64);
        assert!(kept.0.iter().all(|row| row.len() == super::fields(RowKind::Waits, true).len()));
        (kept.0.iter().map(|row| row[..3].join(" ")).collect::<Vec<_>>(), trust)
    };
    let (rows, trust) = of(None);
    assert_eq!((rows.len() % 2, trust.events), (0, 2 * kept(&traces[0], &Options::default()).1.events));
    assert_eq!((rows[0].as_str(), rows[rows.len() / 2].as_str()), ("one one 10", "two two 10"));
    assert_eq!(of(Some(rows.len() as u64 - 1)).0, rows[..rows.len() - 1]);
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(testing::cases(200)) })]

    #[test]
    fn the_rows_are_the_events_and_the_intervals_of_the_engine_however_the_file_is_cut(
        events in histories::history(),
        group_rows in 1..20usize,
    ) {
        prop_assume!(!events.is_empty());
        let test = trace_of(events.clone(), group_rows);
        let mut engine = Engine::new(test.rules());
        let mut found = Intervals::default();
        events.iter().for_each(|event| engine.push(event, &mut found));
        engine.finish(events.last().unwrap().ts_ns.max(events.iter().map(|e| e.ts_ns).max().unwrap()), &mut found);
        let filter = Filter { include_idle: true, ..Filter::default() };
        let of = |what| {
            let rows = kept(&test.trace, &Options { what, filter: filter.clone(), ..Options::default() }).0;
            let numbers: &[&str] = match what {
                RowKind::Events => &["event", "wait_ns", "task_id", "lock_id", "stack_id"],
                RowKind::Waits => &["wait_ns", "gap_ns", "task_id", "lock_id", "stack_id"],
                RowKind::Holds => &["hold_ns", "wait_caused_ns", "max_waiters", "owner_changed", "acquisitions"],
            };
            columns(what, &rows, numbers)
        };
        let or = |number: Option<i64>| number.map_or("-".to_owned(), |number| number.to_string());
        let id = |id: Option<i32>| or(id.map(i64::from));
        let expected: Vec<String> = events.iter().map(|e| {
            let ids = (id(e.task.map(|t| t.0)), id(e.lock.map(|l| l.0)), id(e.stack.map(|s| s.0)));
            format!("{} {} {} {} {}", e.kind, or(e.wait_ns), ids.0, ids.1, ids.2)
        }).collect();
        // An event without a lock is shown only if all locks are.
        let of_locks = events.iter().all(|event| event.kind == trace_format::EventKind::Lost || event.lock.is_some());
        prop_assume!(of_locks);
        prop_assert_eq!(of(RowKind::Events), expected);
        let waits: Vec<String> = found.waits.iter().map(|w| {
            let ids = (w.task.0, w.lock.0, id(w.stack.map(|s| s.0)));
            format!("{} {} {} {} {}", w.wait_ns, or(w.gap_ns), ids.0, ids.1, ids.2)
        }).collect();
        prop_assert_eq!(of(RowKind::Waits), waits);
        let holds: Vec<String> = found.holds.iter().map(|h| {
            let known = |ns: i64| or((h.state != intervals::engine::HoldState::AcquisitionOnly).then_some(ns));
            let of = (known(h.end_ns - h.start_ns), known(h.wait_caused_ns), known(h.max_waiters));
            format!("{} {} {} {} {}", of.0, of.1, of.2, known(h.owner_changed.into()), h.acquisitions)
        }).collect();
        prop_assert_eq!(of(RowKind::Holds), holds);
    }
}
