//! Blame: the worked example, unknown holders, and the sums of all rows.

use crate::testing::trace_of;
use proptest::{prelude::*, test_runner::Config};

use super::{Blame, By, Charged, Options, Row, Totals, blame};
use crate::{
    report,
    testing::{self, written},
};
use intervals::{Filter, engine::histories};
use output::Format::{Csv, Json, Text};

/// One exclusive lock, five tasks: A holds it, B, C and E wait for it, D only tries.
const T1: &str = "
    lock m mutex
    1_000_000 A acquire m k:mutex_lock<k:a.c:10:get<k:sys_get
    1_200_000 B wait    m k:mutex_lock<k:b.c:20:put<k:sys_put
    1_300_000 C wait    m k:mutex_lock<k:b.c:20:put<k:sys_put
    1_500_000 D try_fail m k:d.c:1 errno=16
    1_600_000 E wait    m k:e.c:1:peek
    1_700_000 E abandon m k:e.c:1:peek wait=100_000 errno=110
    2_000_500 A release m k:a.c:11
    2_003_000 B acquire m k:b.c:20:put wait=803_000
    2_503_999 B release m k:b.c:21
    2_505_000 C acquire m k:b.c:20:put wait=1_205_000
    2_505_900 C release m k:b.c:21
";

fn by(by: By) -> Options {
    Options { by, allow_loss: true, ..Options::default() }
}

fn blame_of(text: &str, options: &Options) -> Blame {
    blame(&[testing::trace(text).trace], options).unwrap()
}

fn figures(blame: &Blame) -> Vec<(&str, i64, i64, i64)> {
    fn of(row: &Row) -> (&str, i64, i64, i64) {
        (&row.name, row["wait_caused_ns"], row["shares"], row["longest_ns"])
    }
    blame.rows.iter().map(of).collect()
}

#[test]
fn the_worked_example_adds_up_to_the_nanosecond() {
    let blame = blame_of(T1, &by(By::Site));
    assert_eq!(
        figures(&blame),
        [
            ("a.c:10 (get) (mutex:m)", 800_500 + 700_500 + 100_000, 3, 800_500),
            ("b.c:20 (put) (mutex:m)", 500_999, 1, 500_999),
            (
                "(hand-off: free, the next waiter is not running yet) (mutex:m)",
                2_500 + 2_500 + 1_001,
                2,
                3_501
            ),
        ]
    );
    let totals = blame.totals;
    assert_eq!((totals.waited_ns, totals.hold_ns, totals.handoff_ns), (2_108_000, 2_101_999, 6_001));
}

#[test]
fn rows_by_task_are_the_holders_of_the_lock() {
    let blame = blame_of(T1, &by(By::Task));
    assert_eq!(
        figures(&blame),
        [
            ("A (tid 101, pid 100)", 1_601_000, 3, 800_500),
            ("B (tid 102, pid 100)", 500_999, 1, 500_999),
            ("(hand-off: free, the next waiter is not running yet)", 6_001, 2, 3_501),
        ]
    );
}

#[test]
fn a_pair_has_both_stacks_from_the_sites_outwards() {
    let blame = blame_of(T1, &by(By::Pair));
    assert_eq!(
        figures(&blame)[..3],
        [
            ("a.c:10 (get) <- b.c:20 (put) (mutex:m)", 1_501_000, 2, 800_500),
            ("b.c:20 (put) <- b.c:20 (put) (mutex:m)", 500_999, 1, 500_999),
            ("a.c:10 (get) <- e.c:1 (peek) (mutex:m)", 100_000, 1, 100_000),
        ]
    );
    let first = &blame.rows[0];
    assert_eq!(
        (first.key.holder_stack.join(" "), first.key.waiter_stack.join(" ")),
        ("get sys_get".into(), "put sys_put".into())
    );
}

#[test]
fn the_text_has_percents_stacks_the_exact_sum_and_the_trust_block() {
    let expected = "\
wait_caused  percent  shares  longest  held at <- waited for at (lock)
    1.50 ms   71.2 %       2   800 µs  a.c:10 (get) <- b.c:20 (put) (mutex:m)
      held    get < sys_get
      waited  put < sys_put
     501 µs   23.8 %       1   501 µs  b.c:20 (put) <- b.c:20 (put) (mutex:m)
      held    put
      waited  put < sys_put
     100 µs    4.7 %       1   100 µs  a.c:10 (get) <- e.c:1 (peek) (mutex:m)
      held    get < sys_get
      waited  peek
    6.00 µs    0.3 %       2  3.50 µs  (hand-off: free, the next waiter is not running yet) <- b.c:20 (put) (mutex:m)
      waited  put < sys_put

waited 2,108,000 ns = 2,101,999 charged to holds + 6,001 in hand-offs

trust: 11 events over 1.51 ms, none lost
  1 wait that ended without the lock: counted as all others
";
    let blame = blame_of(T1, &by(By::Pair));
    assert_eq!(written(&blame, Text, None), expected);
    let narrow = written(&blame, Text, Some(60));
    assert!(
        narrow.contains("\nwaited 2,108,000 ns\n  = 2,101,999 charged to holds\n  + 6,001 in hand-offs\n")
    );
    for line in narrow.lines().take_while(|line| !line.starts_with("trust")) {
        assert!(line.chars().count() <= 60, "{line}");
    }
}

#[test]
fn without_holds_the_owner_by_the_lock_word_is_charged_and_marked() {
    let text = "source kernel_contended kinds=mutex holds=no\nlock m mutex
        10 B wait m k:b.c:1 peer=A\n30 B acquire m k:b.c:1 wait=20\n40 C wait m k:b.c:1\n45 C acquire m k:b.c:1 wait=5";
    let by_task = blame_of(text, &by(By::Task));
    assert_eq!(
        figures(&by_task),
        [("A (tid 102, pid 100), the owner by the lock word", 20, 1, 20), ("(holder not recorded)", 5, 1, 5)]
    );
    assert_eq!(
        (by_task.rows[0].key.charged_to, by_task.rows[1].key.charged_to),
        (Some(Charged::Owner), Some(Charged::Unknown))
    );
    let totals = Totals { waited_ns: 25, owner_ns: 20, unknown_ns: 5, ..Totals::default() };
    assert_eq!(by_task.totals, totals);
    let by_site = blame_of(text, &by(By::Site));
    let names: Vec<&str> = by_site.rows.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["(the owner by the lock word) (mutex:m)", "(holder not recorded) (mutex:m)"]);
}

#[test]
fn until_the_first_recorded_hold_the_owner_that_the_lock_word_named_is_charged() {
    let text = "10 B wait m b.c:1 peer=A\n30 A acquire m a.c:1\n40 A release m\n45 B acquire m b.c:1 wait=35";
    let by_task = blame_of(text, &by(By::Task));
    assert_eq!(
        figures(&by_task),
        [
            ("A (tid 102, pid 100), the owner by the lock word", 20, 1, 20),
            ("A (tid 102, pid 100)", 10, 1, 10),
            ("(hand-off: free, the next waiter is not running yet)", 5, 1, 5),
        ]
    );
}

#[test]
fn a_task_that_never_releases_the_lock_is_charged_until_the_end() {
    let blame = blame_of("10 A acquire m a.c:1\n20 B wait m b.c:1\n110 C try_fail m c.c:1", &by(By::Site));
    assert_eq!(figures(&blame), [("a.c:1 (pthread_mutex:m)", 90, 1, 90)]);
    assert_eq!(blame.trust.waits_open_at_end, 1);
}

#[test]
fn idle_waits_are_charged_only_on_request() {
    let text = "lock c condvar\n10 A wait c\n30 A acquire c wait=20\n40 B try_fail m";
    let blame = blame_of(text, &by(By::Site));
    assert_eq!((blame.rows.len(), blame.trust.idle_waits), (0, 1));
    assert!(written(&blame, Text, None).starts_with("nothing to show: nobody waited"));
    let with_idle = blame_of(
        text,
        &Options { filter: Filter { include_idle: true, ..Filter::default() }, ..by(By::Site) },
    );
    assert_eq!(figures(&with_idle), [("(holder not recorded) (condvar:c)", 20, 1, 20)]);
}

#[test]
fn a_join_is_an_idle_wait_for_the_thread_that_is_joined() {
    let text = "lock t thread\n10 A init t\n20 A wait t peer=B\n40 B wake t\n45 A acquire t wait=25\n50 B try_fail m";
    let blame = blame_of(text, &by(By::Site));
    assert_eq!((blame.rows.len(), blame.trust.idle_waits), (0, 1));
    let exits = vec![intervals::input::names::purposes::Purpose::Exit];
    let filter = Filter { purposes: exits, ..Filter::default() };
    let with_idle = blame_of(text, &Options { filter, ..by(By::Task) });
    assert_eq!(with_idle.totals.waited_ns, 25);
    assert_eq!(with_idle.rows.iter().map(|row| row["wait_caused_ns"]).sum::<i64>(), 25);
}

#[test]
fn rows_are_limited_and_the_sum_is_of_all() {
    let blame = blame_of(T1, &Options { limit: Some(1), ..by(By::Pair) });
    assert_eq!((blame.rows.len(), blame.rows_total, blame.totals.waited_ns), (1, 4, 2_108_000));
    assert!(written(&blame, Text, Some(100)).contains("... 3 more rows\n"));
}

#[test]
fn the_csv_has_a_column_for_all_that_identifies_holder_and_waiter() {
    let text = written(&blame_of(T1, &by(By::Pair)), Csv, None);
    let mut lines = text.lines();
    assert_eq!(
        lines.next().unwrap(),
        "charged_to,wait_caused_ns,part_ppm,shares,longest_ns,cut_by_loss,name,holder_file,holder_line,holder_function,holder_place,\
         holder_kind,holder_lock_name,waiter_file,waiter_line,waiter_function,waiter_place,waiter_kind,\
         waiter_lock_name,holder_stack,waiter_stack"
    );
    assert_eq!(
        lines.next().unwrap(),
        "hold,1501000,712049,2,800500,0,a.c:10 (get) <- b.c:20 (put) (mutex:m),a.c,10,get,a.c:10,mutex,m,b.c,20,put,b.c:20,\
         mutex,m,get;sys_get,put;sys_put"
    );
    assert!(
        text.contains("handoff,6001,2846,2,3501,0,\"(hand-off: free, the next waiter is not running yet) <- b.c:20 (put) (mutex:m)\",,,,,mutex,m,b.c")
    );
    for key in By::ALL.iter().filter(|key| key.is_of(false)) {
        let text = written(&blame_of(T1, &by(*key)), Csv, None);
        let fields: Vec<usize> =
            ::csv::Reader::from_reader(text.as_bytes()).records().map(|r| r.unwrap().len()).collect();
        assert!(fields.len() >= 2, "{text}");
    }
}

#[test]
fn the_json_has_rows_totals_and_trust() {
    let text = written(&blame_of(T1, &by(By::Pair)), Json, None);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["by"], "pair");
    assert_eq!(value["rows"][0]["holder"]["function"], "get");
    assert_eq!(value["rows"][0]["waiter_stack"][1], "sys_put");
    assert_eq!(
        (&value["totals"]["waited_ns"], &value["rows"][3]["charged_to"]),
        (&2_108_000.into(), &"handoff".into())
    );
}

#[test]
fn names_that_could_drive_a_terminal_are_escaped_in_every_format() {
    let evil = "x\u{1b}[2J\u{202e}\u{9b}";
    let test = testing::trace(&format!(
        "lock m pthread_mutex name={evil}\ntask A comm={evil}\n1 A acquire m {evil}.c:1:{evil}\n2 B wait m {evil}\n9 A release m"
    ));
    for key in By::ALL.iter().filter(|key| key.is_of(false)) {
        let blame = blame(std::slice::from_ref(&test.trace), &by(*key)).unwrap();
        let styles =
            [written(&blame, Text, Some(80)), written(&blame, Csv, None), written(&blame, Json, None)];
        for text in styles {
            assert!(
                text.chars().all(|c| c == '\n' || !intervals::input::names::is_unsafe(c)),
                "{key}: {text:?}"
            );
        }
    }
}

#[test]
fn filters_choose_waits_as_wholes() {
    let waited = |filter: Filter| blame_of(T1, &Options { filter, ..by(By::Site) }).totals.waited_ns;
    let all = Filter::default;
    assert_eq!(waited(Filter { min_wait_ns: Some(803_000), ..all() }), 803_000 + 1_205_000);
    assert_eq!(waited(Filter { comms: vec!["E".into()], ..all() }), 100_000);
    assert_eq!(waited(Filter { symbol: Some("sys_pu".into()), ..all() }), 803_000 + 1_205_000);
    assert_eq!(waited(Filter { to_ns: Some(1_100_000), ..all() }), 803_000 + 800_000 + 100_000);
    assert_eq!(waited(Filter { from_ns: Some(1_300_000), ..all() }), 1_205_000);
}

#[test]
fn a_trace_that_lost_too_much_is_refused_and_rows_that_loss_touched_are_marked() {
    let text =
        "10 A acquire m a.c:1\n20 B wait m b.c:1\n40 - lost count=9\n50 A acquire m a.c:1\n60 A release m";
    let test = testing::trace(text);
    assert!(blame(std::slice::from_ref(&test.trace), &Options::default()).unwrap_err().too_much_lost());
    let blame = blame_of(text, &by(By::Site));
    assert_eq!((blame.rows[0]["wait_caused_ns"], blame.rows[0]["cut_by_loss"]), (20, 1));
    let shown = written(&blame, Text, None);
    assert!(shown.starts_with("warning: 64.3 %") && shown.contains("! a.c:1 (pthread_mutex:m)"), "{shown}");
}

#[test]
fn several_traces_blame_the_same_places_together_and_other_tasks_apart() {
    let one = testing::trace_of_host(
        "one",
        "1 A acquire m a.c:1\n3 B wait m b.c:1\n7 A release m\n7 B acquire m b.c:1",
    );
    let two = testing::trace_of_host(
        "two",
        "1 X acquire n x.c:1\n2 A acquire m a.c:1\n4 B wait m b.c:1\n14 A release m",
    );
    let traces = [one.trace, two.trace];
    let of = |key| {
        let blame = blame(&traces, &by(key)).unwrap();
        let rows = blame.rows.iter().map(|row| (row.name.clone(), row["wait_caused_ns"], row.trace.clone()));
        (rows.collect::<Vec<_>>(), blame)
    };
    let (sites, blame) = of(By::Site);
    assert_eq!(sites, [("a.c:1 (pthread_mutex:m)".to_owned(), 4 + 10, None)]);
    assert_eq!(
        (blame.totals.waited_ns, blame.trust.events, blame.rows[0].key.holder_stack.len()),
        (14, 8, 1)
    );
    let task = |host: &str, tid, ns| (format!("{host}: A (tid {tid}, pid 100)"), ns, Some(host.to_owned()));
    assert_eq!(of(By::Task).0, [task("two", 102, 10), task("one", 101, 4)]);
    let host = |name: &str, ns| (name.to_owned(), ns, None);
    assert_eq!(of(By::Host).0, [host("two", 10), host("one", 4)]);
    assert_eq!(of(By::Pair).0[0].0, "a.c:1 <- b.c:1 (pthread_mutex:m)");
    let csv = written(&of(By::Task).1, Csv, None);
    assert!(csv.lines().nth(1).unwrap().ends_with(",A,two"), "{csv}");
}

#[test]
fn time_in_no_hold_is_a_hand_off_only_if_all_holds_were_seen() {
    // The first holder of m acquired it before the recording; its first wait has two stretches without a
    // hold.
    let found = blame_of(
        "
        1_000 B wait m b.c:1
        2_000 B acquire m b.c:1 wait=1_000
        2_500 C wait m c.c:1
        3_000 B release m
        3_200 A acquire m a.c:1
        4_000 A release m
        4_300 C acquire m c.c:1 wait=1_800
        5_000 C release m
    ",
        &by(By::Site),
    );
    let figures = |row: &Row| {
        (row.key.charged_to.unwrap().as_str(), row["wait_caused_ns"], row["shares"], row["longest_ns"])
    };
    let mut rows: Vec<_> = found.rows.iter().map(figures).collect();
    rows.sort_unstable();
    assert_eq!(
        rows,
        [("gap", 1_000, 1, 1_000), ("handoff", 500, 1, 500), ("hold", 500, 1, 500), ("hold", 800, 1, 800)]
    );
    let totals = found.totals;
    assert_eq!(
        (totals.handoff_ns, totals.gap_ns, totals.hold_ns, totals.waited_ns),
        (500, 1_000, 1_300, 2_800)
    );
}

#[test]
fn where_holds_are_not_recorded_those_who_pass_the_lock_on_during_a_wait_share_it() {
    // A has the lock until 50, B until 70, C until 90.
    let text = "source futex kinds=futex holds=no\nlock f futex\n10 B wait f\n20 C wait f\n30 D wait f\n40 E wait f\n\
                50 B acquire f wait=40 peer=A\n70 C acquire f wait=50 peer=B\n90 D acquire f wait=60 peer=C\n95 - lost count=1";
    let found = blame_of(text, &Options { allow_loss: true, ..by(By::Task) });
    let rows = |prefix: &str| {
        let row = found.rows.iter().find(|row| row.name.contains(prefix)).unwrap();
        (row["wait_caused_ns"], row["shares"])
    };
    // Of A: 40 of B, 30 of C, 20 of D, 10 of E. The end of the wait of E was not seen.
    assert_eq!(rows("woken by A"), (100, 4));
    assert_eq!(rows("woken by B"), (60, 3));
    assert_eq!(rows("woken by C"), (40, 2));
    assert_eq!(rows("(holder not recorded)"), (5, 1));
    // A task that passed the lock on before it waits again does not pay for itself.
    let again = "source futex kinds=futex holds=no\nlock f futex\n10 B wait f\n20 A wait f\n30 B acquire f wait=20 peer=A\n\
                 60 A acquire f wait=40 peer=B";
    let found = blame_of(again, &by(By::Task));
    let of_b = found.rows.iter().find(|row| row.name.contains("woken by B")).unwrap();
    assert_eq!(of_b["wait_caused_ns"], 40);
}

#[test]
fn where_holds_are_not_recorded_the_waits_are_divided_by_who_woke_the_waiter() {
    const FUTEX: &str = "
        source futex kinds=futex holds=no\nlock f futex name=-
        1_000 B wait f lll_lock_wait<b.c:1\n2_000 B acquire f lll_lock_wait<b.c:1 wait=1_000 peer=A at=unlock<a.c:7:work
        3_000 B wait f lll_lock_wait<b.c:1\n3_500 B acquire f lll_lock_wait<b.c:1 wait=500 peer=A at=unlock<a.c:7:work
        4_000 C wait f lll_lock_wait<c.c:1\n4_200 C acquire f lll_lock_wait<c.c:1 wait=200
        5_000 C wait f lll_lock_wait<c.c:1 peer=B\n5_100 C acquire f lll_lock_wait<c.c:1 wait=100 peer=A at=a.c:9
    ";
    let names = |key| {
        let found = blame_of(FUTEX, &by(key));
        assert_eq!(
            (found.totals.unknown_ns, found.totals.owner_ns, found.totals.waited_ns),
            (1_700, 100, 1_800)
        );
        found
            .rows
            .into_iter()
            .map(|row| (row.name.clone(), row.key.charged_to.unwrap().as_str(), row["wait_caused_ns"]))
            .collect::<Vec<_>>()
    };
    let by_task = names(By::Task);
    assert_eq!(by_task[0].1, "waker");
    assert!(by_task[0].0.starts_with("holder not recorded; woken by A ("), "{by_task:?}");
    let by_site = names(By::Site);
    assert_eq!(by_site[0], ("holder not recorded; woken by unlock (futex)".to_owned(), "waker", 1_500));
    assert_eq!((by_site[1].1, by_site[1].2), ("unknown", 200));
    let by_pair = names(By::Pair);
    assert!(by_pair[0].0.contains(" <- b.c:1 (futex)"), "{by_pair:?}");
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(testing::cases(100)) })]

    #[test]
    fn the_rows_add_up_to_all_that_was_waited_however_the_file_is_cut(
        events in histories::history(),
        group_rows in 1..20usize,
    ) {
        prop_assume!(!events.is_empty());
        let (test, cut) = (trace_of(events.clone(), usize::MAX), trace_of(events, group_rows));
        let options = report::Options { filter: Filter { include_idle: true, ..Filter::default() }, allow_loss: true, ..report::Options::default() };
        let report = report::report(std::slice::from_ref(&test.trace), &options).unwrap();
        // Rows that are out of order have other times where states are followed.
        for key in &[By::Site, By::Task, By::Pair, By::Host] {
            let options = Options { filter: Filter { include_idle: true, ..Filter::default() }, ..by(*key) };
            let blame = blame(std::slice::from_ref(&test.trace), &options).unwrap();
            let Totals { waited_ns, hold_ns, handoff_ns, gap_ns, owner_ns, unknown_ns, .. } = blame.totals;
            let gap_ns = handoff_ns + gap_ns;
            prop_assert_eq!(hold_ns + gap_ns + owner_ns + unknown_ns, waited_ns);
            prop_assert_eq!(blame.rows.iter().map(|row| row["wait_caused_ns"]).sum::<i64>(), waited_ns);
            let (charged, gaps) = (report.trust.waited_ns - report.trust.gap_ns, report.trust.gap_ns);
            prop_assert_eq!(hold_ns, charged);
            prop_assert!(gap_ns <= gaps && gaps <= gap_ns + owner_ns, "{} {} {}", gap_ns, gaps, owner_ns);

            let in_groups = super::blame(std::slice::from_ref(&cut.trace), &options).unwrap();
            prop_assert_eq!((in_groups.rows, in_groups.totals, in_groups.trust), (blame.rows, blame.totals, blame.trust));
        }
        let in_groups = report::report(std::slice::from_ref(&cut.trace), &options).unwrap();
        prop_assert_eq!(in_groups, report);
    }
}

#[test]
fn a_deadlock_at_the_end_is_said_first() {
    let text = "100 A acquire x p.c:1\n110 B acquire y q.c:1\n120 A wait y p.c:2\n130 B wait x q.c:2\n150 C wait x r.c:1";
    let blame = blame_of(text, &by(By::Site));
    let expected = "\
deadlock at the end: A (tid 101, pid 100) has #0 x (pthread_mutex) (p.c:1), waits for #1 y (pthread_mutex) (p.c:2) for 30 ns; \
B (tid 102, pid 100) has #1 y (pthread_mutex) (q.c:1), waits for #0 x (pthread_mutex) (q.c:2) for 20 ns; 1 more behind it
";
    let text = written(&blame, Text, None);
    assert!(text.starts_with(expected), "{text}");
    assert!(!written(&blame, Csv, None).contains("deadlock"));
}

#[test]
fn a_deadlock_that_a_time_out_ends_says_so() {
    let text = "100 A acquire x\n110 B acquire y\n120 A wait y\n130 B wait x call=timed";
    let deadlock = &blame_of(text, &by(By::Site)).trust.deadlocks[0];
    assert!(
        deadlock.contains("for 10 ns; B") && deadlock.ends_with("for 0, until its time-out"),
        "{deadlock}"
    );
}

#[test]
fn a_deadlock_with_locks_that_the_filter_leaves_out_is_said_too() {
    let text = "100 A acquire x p.c:1\n110 B acquire y q.c:1\n120 A wait y p.c:2\n130 B wait x q.c:2\n\
                131 C acquire z r.c:1\n140 D wait z r.c:1\n150 C release z r.c:1\n151 D acquire z r.c:1 wait=11";
    let deadlocks = |name: &str| {
        let Ok(lock) = name.parse();
        let filter = Filter { lock: Some(lock), ..Filter::default() };
        blame_of(text, &Options { filter, ..by(By::Site) }).trust.deadlocks
    };
    assert_eq!(deadlocks("x"), deadlocks("y"));
    assert!(deadlocks("x")[0].starts_with("deadlock at the end: A (tid"), "{:?}", deadlocks("x"));
    assert!(deadlocks("z").is_empty(), "nobody waits for it at the end");
}
