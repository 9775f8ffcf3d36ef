//! The table of lock orders: its text, its names, and several traces. `order/tests.rs` has the orders
//! themselves.

use std::slice::from_ref;

use super::*;
use crate::testing::{TestTrace, trace, trace_of_host, written};
use intervals::input::filter::LockSelector;
use output::Format;

const INVERSION: &str =
    "100 A acquire x p.c:1:f<main\n110 A acquire y p.c:2:g<main\n120 A release y\n130 A release x
    200 B acquire y q.c:1\n210 B acquire x q.c:2\n220 B release x\n230 B release y";

fn of(test: &TestTrace, options: &OrderOptions) -> LockOrder {
    order(from_ref(&test.trace), options).unwrap()
}

fn text(test: &TestTrace, options: &OrderOptions) -> String {
    let text = written(&of(test, options), Format::Text, None);
    text.split("\ntrust: ").next().unwrap().to_owned()
}

#[test]
fn a_block_names_locks_modes_places_stacks_and_threads() {
    let shared = INVERSION
        .replace("acquire x p.c:1", "acquire x shared p.c:1")
        .replace("A release x", "A release x shared");
    let test = trace(&format!("lock x pthread_rwlock\n{shared}"));
    assert_eq!(
        text(&test, &OrderOptions::default()),
        "1. can deadlock if both happen at once; has not in this recording
   once by A (tid 101, pid 100)
     holds #0 x (pthread_rwlock), shared, taken at p.c:1 (f)
           f < main
     wants #1 y (pthread_mutex) at p.c:2 (g)
           g < main
   once by B (tid 102, pid 100)
     holds #1 y (pthread_mutex), taken at q.c:1
     wants #0 x (pthread_rwlock) at q.c:2

1 inversion
"
    );
}

#[test]
fn a_deadlock_at_the_end_is_not_called_one_that_has_not_happened() {
    let test = trace("100 A acquire x p.c:1\n110 B acquire y q.c:1\n120 A wait y p.c:2\n130 B wait x q.c:2");
    let text = text(&test, &OrderOptions::default());
    assert!(text.starts_with("deadlock at the end: "), "{text}");
    assert!(
        text.contains("1. can deadlock if both happen at once; the recording ended in this deadlock"),
        "{text}"
    );
}

#[test]
fn threads_that_did_not_meet_are_not_said_to_be_unable_to_deadlock() {
    let test = trace(&format!("task A start=1 exit=150\ntask B start=160\n{INVERSION}"));
    let (counted, all) =
        (text(&test, &OrderOptions::default()), OrderOptions { all: true, ..OrderOptions::default() });
    let expected = "1 other cycle of threads that were never alive at the same time in this recording: never_together (--all lists them)";
    assert!(counted.contains(expected) && !counted.contains("cannot deadlock"), "{counted}");
    assert!(text(&test, &all).starts_with("1. no inversion in this recording: the threads were never"));
}

#[test]
fn of_many_threads_four_are_named() {
    let task = |at: i64| {
        let time = 1000 + 10 * at;
        format!(
            "{time} T{at} acquire x p.c:1\n{} T{at} acquire y p.c:2\n{} T{at} release y\n{} T{at} release x\n",
            time + 1,
            time + 2,
            time + 3
        )
    };
    let all: String = (0..7).map(task).collect();
    let table =
        of(&trace(&format!("{all}2000 B acquire y q.c:1\n2010 B acquire x q.c:2")), &OrderOptions::default());
    assert_eq!((table.rows[0].count, table.rows[0].threads, table.rows[0].by.len()), (7, 7, 4));
    let text = written(&table, Format::Text, None);
    assert!(
        text.contains("7 times by T0 (tid 101, pid 100), ") && text.contains(" and 3 more threads\n"),
        "{text}"
    );
}

#[test]
fn classes_have_names_of_kind_and_name_or_of_the_place_of_initialisation() {
    let text = "lock p1 pthread_mutex name=parent\nlock c1 pthread_mutex name=child\nlock c2 pthread_mutex name=child
        100 A acquire p1 p.c:1\n110 A acquire c1 p.c:2\n120 A release c1\n130 A release p1
        200 B acquire c2 q.c:1\n210 B acquire p1 q.c:2\n220 B release p1\n230 B release c2";
    let test = trace(text);
    assert!(of(&test, &OrderOptions::default()).rows.is_empty());
    let table = of(&test, &OrderOptions { by: By::Class, ..OrderOptions::default() });
    assert_eq!(
        (table.rows[0].held.name.as_str(), table.rows[0].taken.name.as_str()),
        ("pthread_mutex:parent", "pthread_mutex:child")
    );
    let csv = written(&table, Format::Csv, None);
    assert!(
        csv.lines().next().unwrap().ends_with(
            ",held_lock,held_kind,held_lock_name,held_stack,taken_lock,taken_kind,taken_lock_name,taken_stack"
        ),
        "{csv}"
    );
}

#[test]
fn cycles_of_several_traces_are_apart_and_named_by_their_trace() {
    let (one, other) = (trace_of_host("web-1", INVERSION), trace_of_host("web-2", INVERSION));
    let table = order(&[one.trace, other.trace], &OrderOptions::default()).unwrap();
    assert_eq!((table.cycles_total, table.counts.inversions), (2, 2));
    let traces: Vec<_> = table.rows.iter().map(|row| (row.cycle, row.trace.clone().unwrap())).collect();
    assert_eq!(
        traces,
        [(1, "web-1"), (1, "web-1"), (2, "web-2"), (2, "web-2")].map(|(n, t)| (n, t.to_owned()))
    );
    assert!(written(&table, Format::Text, None).contains("2. web-2: can deadlock"));
    // Orders of two traces make no cycle.
    let halves = INVERSION.split_once("\n    200").unwrap();
    let (one, other) =
        (trace_of_host("web-1", halves.0), trace_of_host("web-2", &format!("200{}", halves.1)));
    assert!(order(&[one.trace, other.trace], &OrderOptions::default()).unwrap().rows.is_empty());
}

#[test]
fn a_limit_a_condition_and_an_order_keep_whole_cycles() {
    let again = "300 C acquire y r.c:1\n310 C acquire x r.c:2\n320 C release x\n330 C release y
        400 C acquire y r.c:1\n410 C acquire x r.c:2\n420 C release x\n430 C release y";
    let test = trace(&format!("{INVERSION}\n{again}"));
    let cycles = |options: &OrderOptions| {
        let table = of(&test, options);
        (table.rows.iter().map(|row| row.cycle).collect::<Vec<_>>(), table.hidden_rows())
    };
    assert_eq!(cycles(&OrderOptions::default()), (vec![1, 1, 2, 2], 0));
    assert_eq!(cycles(&OrderOptions { limit: Some(1), ..OrderOptions::default() }), (vec![1, 1], 2));
    let sorted = OrderOptions { sort: "times".to_owned(), limit: Some(1), ..OrderOptions::default() };
    assert_eq!(cycles(&sorted), (vec![2, 2], 2));
    let mut table = of(&test, &OrderOptions::default());
    table.retain_having(&["times >= 2".parse().unwrap()], None).unwrap();
    assert_eq!((table.rows.len(), table.cycles_total), (2, 1));
}

#[test]
fn a_filter_by_lock_leaves_the_held_locks_as_they_are() {
    let test = trace(&format!("source preload kinds=pthread_mutex\nlock z pthread_mutex\n{INVERSION}"));
    let options = |lock: &str| {
        let lock = Some(LockSelector::Name(lock.to_owned()));
        OrderOptions { filter: Filter { lock, ..Filter::default() }, ..OrderOptions::default() }
    };
    assert_eq!(of(&test, &options("x")).rows, of(&test, &OrderOptions::default()).rows);
    assert!(of(&test, &options("z")).rows.is_empty());
}

#[test]
fn locks_without_releases_are_refused_unless_others_have_them() {
    let sources = "source futex kinds=futex holds=no uncontended=no\nlock f futex\n";
    let contended = "100 A wait f p.c:1\n110 A acquire f wait=10\n";
    let test = trace(&format!("{sources}{contended}"));
    let refused = order(from_ref(&test.trace), &OrderOptions::default()).unwrap_err();
    assert!(refused.not_recorded() && refused.to_string().contains("--locks pthread"), "{refused}");
    let test = trace(&format!(
        "{sources}lock x pthread_mutex\nlock y pthread_mutex\n50 A acquire x p.c:0\n60 A release x\n{contended}{INVERSION}"
    ));
    assert_eq!(of(&test, &OrderOptions::default()).counts.inversions, 1);
}
