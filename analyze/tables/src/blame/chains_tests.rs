//! The tables of chains, and their sums.

use proptest::{collection::vec, option, prelude::*, sample::Index, sample::select, test_runner::Config};
use trace_format::Mode;

use super::{By, Charged, Options, Row, blame, chains};
use crate::{
    testing::trace_of,
    testing::{self, cases, trace, written},
};
use intervals::{Filter, engine::histories, items::State};
use output::Format::{Csv, Json, Text};

/// V2 with sites and off-CPU times: A holds wal and sleeps, B holds index and waits for wal, C and D wait for
/// index.
const TEXT: &str = "
    source off_cpu kinds=none\nsource preload kinds=pthread_mutex holds=yes
    lock x pthread_mutex name=wal\nlock y pthread_mutex name=index
    100 A acquire x wal.c:9:commit\n110 B acquire y index.c:31:find\n120 B wait x wal.c:20:append
    130 C wait y index.c:31:find\n140 D wait y index.c:31:find
    190 A offcpu k:schedule<fsync<commit wait=70 blocked=70 runq=0 state=interruptible
    200 A release x wal.c:9:commit\n205 B acquire x wal.c:20:append wait=85\n230 B release x wal.c:20:append
    240 B release y index.c:31:find\n242 C acquire y index.c:31:find wait=112\n250 C release y index.c:31:find
    251 D acquire y index.c:31:find wait=111\n260 D release y index.c:31:find";

fn by(by: By) -> Options {
    Options { by, allow_loss: true, ..Options::default() }
}

#[test]
fn rows_are_the_ends_of_chains_with_the_states_of_their_tasks() {
    let table = chains(&[trace(TEXT).trace], &by(By::State)).unwrap();
    let expected = "\
root_wait  percent  direct  through_others  deepest  max_waiters    state  held at (lock)
   180 ns   58.4 %   70 ns          110 ns        2            3   asleep  wal.c:9 (commit) (pthread_mutex:wal)
      on fsync < commit
    78 ns   25.3 %   78 ns               0        1            2  running  index.c:31 (find) (pthread_mutex:index)
    30 ns    9.7 %   10 ns           20 ns        2            3  running  wal.c:9 (commit) (pthread_mutex:wal)
    15 ns    4.9 %    5 ns           10 ns        2            3           (hand-off: free, the next waiter is not running yet) (pthread_mutex:wal)
     5 ns    1.6 %    5 ns               0        1            2           (hand-off: free, the next waiter is not running yet) (pthread_mutex:index)

waited 308 ns = 288 that end at holds + 20 in hand-offs
140 ns of it in chains of more than one lock
";
    assert_eq!(written(&table, Text, None).split_inclusive("one lock\n").next().unwrap(), expected);
    let csv = written(&table, Csv, None);
    let head = "charged_to,root_wait_ns,part_ppm,direct_ns,through_others_ns,deepest,max_waiters,state,on,name,holder_file,";
    assert!(csv.starts_with(head), "{csv}");
    assert!(csv.contains("\nhold,180,584415,70,110,2,3,asleep,fsync < commit,"), "{csv}");
}

#[test]
fn holders_keep_and_pass_on_what_others_wait_for_them_and_receive_the_rest() {
    let test = trace(TEXT);
    let traces = [test.trace];
    let table = chains(&traces, &by(By::Lock)).unwrap();
    let expected = "\
root_wait  percent  wait_caused   kept  passed  received  lock
   210 ns   68.2 %        80 ns  80 ns       0    130 ns  #0 wal (pthread_mutex)
    78 ns   25.3 %       218 ns  78 ns  140 ns         0  #1 index (pthread_mutex)
      passed on to #0 wal (pthread_mutex)
";
    assert_eq!(written(&table, Text, None).lines().take(4).collect::<Vec<_>>().join("\n") + "\n", expected);
    for key in [By::Site, By::Task] {
        let table = chains(&traces, &by(key)).unwrap();
        let sums = |row: &Row| (row["root_wait_ns"], row["wait_caused_ns"], row["received_ns"]);
        let first = table.rows.iter().map(sums).next().unwrap();
        assert_eq!(first, (210, 80, 130), "{key}");
    }
    let csv = written(&chains(&traces, &by(By::Task)).unwrap(), Csv, None);
    let head =
        "root_wait_ns,part_ppm,wait_caused_ns,kept_ns,passed_ns,received_ns,passed_to,name,holder_task_id,";
    assert!(csv.starts_with(head), "{csv}");
}

#[test]
fn rows_by_depth_have_the_time_of_chains_of_each_length() {
    let table = chains(&[trace(TEXT).trace], &by(By::Depth)).unwrap();
    let expected = "\
root_wait  percent  max_waiters  chain of
   168 ns   54.5 %            2  1 lock
   140 ns   45.5 %            2  2 locks
";
    assert_eq!(written(&table, Text, None).lines().take(3).collect::<Vec<_>>().join("\n") + "\n", expected);
    assert!(written(&table, Csv, None).starts_with("root_wait_ns,part_ppm,max_waiters,name,depth\n168,"));
}

#[test]
fn a_deadlock_comes_first_and_its_waits_end_in_a_cycle() {
    let text = "source preload kinds=pthread_mutex holds=yes
        100 A acquire x p.c:1\n110 B acquire y q.c:1\n120 A wait y p.c:2\n130 B wait x q.c:2\n150 C wait x r.c:1\n1000 D acquire z r.c:9";
    let table = chains(&[trace(text).trace], &by(By::State)).unwrap();
    let (cycle, hold) = (&table.rows[0], &table.rows[1]);
    assert_eq!(
        (cycle.key.charged_to, cycle["root_wait_ns"], cycle.key.state),
        (Some(Charged::Cycle), 2590, None)
    );
    assert_eq!((hold.key.charged_to, hold["root_wait_ns"], hold["direct_ns"]), (Some(Charged::Hold), 10, 10));
    assert_eq!(cycle.name, "(tasks that wait for each other)");
    let text = written(&table, Text, None);
    assert!(text.starts_with("deadlock at the end: A "), "{text}");
    assert!(text.contains("2,590 in cycles"), "{text}");
    assert!(text.contains("whether the holders ran or slept is not known: record with --off-cpu"), "{text}");
    assert_eq!(hold.key.state, None, "it was not recorded");
    let json: serde_json::Value = serde_json::from_str(&written(&table, Json, None)).unwrap();
    assert_eq!(json["totals"]["cycle_ns"], 2590);
    assert!(json["trust"]["deadlocks"][0].as_str().unwrap().ends_with("; 1 more behind it"));
}

#[test]
fn filters_choose_waits_and_never_change_who_is_at_the_end() {
    let lock = Some("wal".parse().unwrap());
    let filter = Filter { lock, ..Filter::default() };
    let table = chains(&[trace(TEXT).trace], &Options { filter, ..by(By::State) }).unwrap();
    assert_eq!((table.totals.waited_ns, table.totals.hold_ns), (85, 80));
    let filter = Filter { lock: Some("index".parse().unwrap()), ..Filter::default() };
    let table = chains(&[trace(TEXT).trace], &Options { filter, ..by(By::State) }).unwrap();
    let asleep = &table.rows[0];
    assert_eq!(
        (asleep.key.state, asleep["root_wait_ns"], asleep["direct_ns"]),
        (Some(State::Asleep), 110, 0)
    );
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(cases(300)) })]

    #[test]
    fn chains_add_up_to_blame_whatever_is_selected(
        (events, off_cpu) in (prop_oneof![histories::history().boxed(), histories::nested_history().boxed()], histories::off_cpu()),
        (mode, min_wait_ns, from_ns) in
            (option::weighted(0.2, select(vec![Mode::Exclusive, Mode::Shared])), option::weighted(0.2, 0..9i64), option::weighted(0.2, 0..90i64)),
        (include_idle, to_ns) in (any::<bool>(), option::weighted(0.2, 90..200i64)),
        group_rows in prop_oneof![Just(usize::MAX), 1..20usize],
    ) {
        let events = histories::with_off_cpu(&events, &off_cpu);
        prop_assume!(!events.is_empty());
        let filter = Filter { mode, min_wait_ns, from_ns, to_ns, include_idle, ..Filter::default() };
        let options = |by| Options { by, filter: filter.clone(), allow_loss: true, ..Options::default() };
        let test = trace_of(events.clone(), group_rows);
        let traces = [test.trace];
        let found = chains(&traces, &options(By::State)).unwrap();
        let blamed = blame(&traces, &Options { by: By::Site, ..options(By::Site) }).unwrap();
        prop_assert_eq!(found.totals.waited_ns + found.totals.chains.unwrap().nested_wait_ns, blamed.totals.waited_ns);
        prop_assert_eq!(&found.trust, &blamed.trust);
        prop_assert_eq!(found.rows.iter().map(|row| row["root_wait_ns"]).sum::<i64>(), found.totals.waited_ns);

        for key in [By::Lock, By::Site, By::Task] {
            let table = chains(&traces, &options(key)).unwrap();
            prop_assert_eq!(table.totals, found.totals);
            for row in &table.rows {
                prop_assert_eq!(row["wait_caused_ns"], row["kept_ns"] + row["passed_ns"]);
                prop_assert_eq!(row["root_wait_ns"], row["kept_ns"] + row["received_ns"]);
            }
            prop_assert_eq!(table.rows.iter().map(|row| row["root_wait_ns"]).sum::<i64>(), table.totals.hold_ns);
        }
        let by_depth = chains(&traces, &options(By::Depth)).unwrap();
        prop_assert_eq!(by_depth.rows.iter().map(|row| row["root_wait_ns"]).sum::<i64>(), found.totals.waited_ns);

        let test = trace_of(events, usize::MAX);
        let whole = [test.trace];
        prop_assert_eq!(found.rows, chains(&whole, &options(By::State)).unwrap().rows, "row groups change nothing");
    }

    #[test]
    fn the_order_of_rows_of_equal_time_does_not_change_the_tables(
        events in histories::nested_history(),
        choices in vec(any::<Index>(), 1..20),
    ) {
        prop_assume!(!events.is_empty());
        let other = histories::reordered(&events, &choices);
        let of = |events| {
            let test = trace_of(events, 7);
            let traces = [test.trace];
            (chains(&traces, &by(By::State)).unwrap(), chains(&traces, &by(By::Lock)).unwrap())
        };
        prop_assert_eq!(of(events), of(other));
    }
}

#[test]
fn several_traces_add_up() {
    let (one, other) = (trace(TEXT), testing::trace_of_host("b", TEXT));
    let traces = [one.trace, other.trace];
    let both = chains(&traces, &by(By::State)).unwrap();
    let one = chains(&traces[..1], &by(By::State)).unwrap();
    assert_eq!(both.rows.len(), one.rows.len(), "a site is the same in both");
    assert_eq!(both.totals.waited_ns, 2 * one.totals.waited_ns);
}
