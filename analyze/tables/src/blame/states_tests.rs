//! The table by state, the columns of the report, and their sums.

use crate::testing::trace_of;
use std::collections::BTreeMap;

use proptest::{collection::vec, option, prelude::*, sample::Index, sample::select, test_runner::Config};
use trace_format::Mode;

use super::{Row, blame};
use crate::{
    blame::{By, Charged, Options},
    held::HELD,
    key, report,
    testing::{self, cases, written},
};
use intervals::{Filter, engine::histories, items::State};
use output::Format::{Csv, Text};

/// A holder of m that runs, sleeps in fsync and waits for another lock, while one other task waits for m.
const TEXT: &str = "
    source off_cpu kinds=none\nsource preload kinds=pthread_mutex holds=yes
    lock m pthread_mutex name=log\nlock n pthread_mutex name=index
    1_000 A acquire m log.c:88:log_line
    1_100 B wait m log.c:90:work
    1_000 C acquire n i.c:1:c
    1_500 A offcpu k:schedule<fsync<flush<log_line wait=300 blocked=250 runq=50 state=interruptible
    1_600 A wait n index.c:31:find
    1_900 C release n
    1_910 A acquire n index.c:31:find wait=310
    1_920 A release n
    2_000 A release m
    2_007 B acquire m log.c:90:work wait=907
    2_100 B release m
";

fn by_state() -> Options {
    Options { by: By::State, allow_loss: true, ..Options::default() }
}

#[test]
fn rows_have_the_state_and_its_circumstances() {
    let table = blame(&[testing::trace(TEXT).trace], &by_state()).unwrap();
    let expected = "\
wait_caused  percent    state  held at (lock)
     310 ns   25.5 %     lock  log.c:88 (log_line) (pthread_mutex:log)
      on index.c:31 (find) (pthread_mutex:index)
     300 ns   24.7 %  running  i.c:1 (c) (pthread_mutex:index)
";
    assert_eq!(written(&table, Text, None).lines().take(4).collect::<Vec<_>>().join("\n") + "\n", expected);
    let of_log = |row: &&Row| row.name.contains("log") && row.key.charged_to == Some(Charged::Hold);
    let figures: BTreeMap<_, _> = table
        .rows
        .iter()
        .filter(of_log)
        .map(|row| (row.key.state.unwrap(), (row["wait_caused_ns"], row.key.on.as_deref())))
        .collect();
    let expected = [
        (State::Lock, (310, Some("index.c:31 (find) (pthread_mutex:index)"))),
        (State::Asleep, (250, Some("fsync < flush"))),
        (State::Ready, (50, None)),
        (State::Running, (290, None)),
    ];
    assert_eq!(figures, expected.into());
    assert!(written(&table, Csv, None).starts_with("charged_to,wait_caused_ns,part_ppm,state,on,name,"));
}

/// A holder of m that sleeps in system calls, in a page fault, and somewhere.
const CALLS: &str = "
    source sched kinds=none\nsource preload kinds=pthread_mutex holds=yes
    1_000 A acquire m\n1_100 B wait m
    1_300 A offcpu k:schedule<fsync<flush<log_line wait=100 state=uninterruptible syscall=fsync
    1_500 A offcpu wait=90 state=asleep syscall=nanosleep
    1_600 A offcpu wait=3 blocked=0 state=runnable syscall=nanosleep
    1_700 A offcpu wait=80 state=uninterruptible syscall=-
    1_800 A offcpu wait=70 state=asleep
    2_000 A release m\n2_000 B acquire m wait=900";

#[test]
fn a_sleep_has_the_system_call_and_the_functions_that_are_known() {
    let table = blame(&[testing::trace(CALLS).trace], &by_state()).unwrap();
    let slept: Vec<_> = table
        .rows
        .iter()
        .filter(|row| row.key.state != Some(State::Running))
        .map(|row| (row["wait_caused_ns"], row.key.on.as_deref()))
        .collect();
    let calls = ["fsync (fsync < flush)", "nanosleep", "no system call"].map(Some);
    assert_eq!(slept, [(100, calls[0]), (90, calls[1]), (80, calls[2]), (70, None), (3, None)]);
}

#[test]
fn the_report_has_the_states_of_the_holders_on_request() {
    let test = testing::trace(TEXT);
    let columns = vec!["caused_running".to_owned()];
    let options = report::Options { by: key::By::Class, columns, ..report::Options::default() };
    let report = report::report(&[test.trace], &options).unwrap();
    let row = report.rows.iter().find(|row| row.name.contains("log")).unwrap();
    let of = |state: &str| row[&*format!("caused_{state}_ns")];
    assert_eq!(row["wait_caused_ns"], 900);
    assert_eq!(["running", "lock", "asleep", "ready"].map(of), [290, 310, 250, 50]);
    assert_eq!(["idle", "unknown"].map(of), [0, 0]);
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(cases(500)) })]

    #[test]
    fn states_add_up_to_blame_and_to_wait_caused_whatever_is_selected(
        (events, off_cpu) in (histories::history(), histories::off_cpu()),
        (mode, min_wait_ns, from_ns) in
            (option::weighted(0.2, select(vec![Mode::Exclusive, Mode::Shared])), option::weighted(0.2, 0..9i64), option::weighted(0.2, 0..90i64)),
        (include_idle, to_ns) in (any::<bool>(), option::weighted(0.2, 90..200i64)),
        by in select(key::By::all()),
        group_rows in prop_oneof![Just(usize::MAX), 1..20usize],
    ) {
        let events = histories::with_off_cpu(&events, &off_cpu);
        prop_assume!(!events.is_empty());
        let test = trace_of(events, group_rows);
        let filter = Filter { mode, min_wait_ns, from_ns, to_ns, include_idle, ..Filter::default() };
        let options = Options { filter: filter.clone(), ..by_state() };
        let traces = [test.trace];
        let found = blame(&traces, &options).unwrap();
        let blamed = blame(&traces, &Options { by: By::Site, ..options }).unwrap();
        prop_assert_eq!(found.totals, blamed.totals);
        prop_assert_eq!(&found.trust, &blamed.trust);
        let mut by_site: BTreeMap<(Charged, String), i64> = BTreeMap::new();
        for row in &found.rows {
            *by_site.entry((row.key.charged_to.unwrap(), row.name.clone())).or_default() += row["wait_caused_ns"];
        }
        let rows = blamed.rows.into_iter().filter(|row| row["wait_caused_ns"] != 0);
        let mut expected: BTreeMap<_, i64> = BTreeMap::new();
        for row in rows {
            let key = match row.key.charged_to.unwrap() {
                // A holder that was not recorded has no state, so its waits are not divided by who woke the
                // waiter.
                Charged::Waker => {
                    let class = &row.name[row.name.rfind('(').unwrap()..];
                    (Charged::Unknown, format!("(holder not recorded) {class}"))
                }
                charged => (charged, row.name.clone()),
            };
            *expected.entry(key).or_default() += row["wait_caused_ns"];
        }
        prop_assert_eq!(by_site, expected);

        let columns = ["caused_lock", "running"].map(str::to_owned).to_vec();
        let options = report::Options { by, filter, columns, allow_loss: true, ..report::Options::default() };
        for row in report::report(&traces, &options).unwrap().rows {
            let sum = report::STATES.iter().filter_map(|(word, _)| row.get(&format!("{word}_ns"))).reduce(|a, b| a + b);
            prop_assert_eq!(sum, row.get("wait_caused_ns"));
            let held = HELD.iter().filter_map(|(word, _)| row.get(&format!("{word}_ns"))).reduce(|a, b| a + b);
            prop_assert_eq!(held, row.get("total_ns"));
        }
    }

    #[test]
    fn the_order_of_rows_of_equal_time_does_not_change_the_table(
        events in histories::orderly_history(),
        choices in vec(any::<Index>(), 1..20),
    ) {
        prop_assume!(!events.is_empty());
        let other = histories::reordered(&events, &choices);
        let of = |events| blame(&[trace_of(events, 7).trace], &by_state()).unwrap();
        prop_assert_eq!(of(events), of(other));
    }
}
