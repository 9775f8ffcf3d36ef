//! The states of payers in single histories, case by case.

use std::collections::BTreeMap;

use trace_format::LockId;

use super::{Pass, PassStats, counted::CountedWaits};
use crate::{
    engine::Rules,
    items::{Caused, Item, Payer, Sink, State},
    testing::Parts,
};

/// Time by payer and state.
#[derive(Debug, Default)]
pub(super) struct Found(pub(super) BTreeMap<(LockId, String, Option<State>), i64>);

impl Sink for Found {
    fn push(&mut self, item: Item<'_>) {
        let Item::Caused(&Caused { lock, payer, state, ns, .. }) = item else { return };
        *self.0.entry((lock, name(&payer), state)).or_default() += ns;
    }
}

/// Returns a payer as `1@100`: its task and the begin of its hold.
pub(super) fn name(payer: &Payer) -> String {
    match payer {
        Payer::Hold(hold) => format!("{}@{}", hold.task.0, hold.start_ns),
        Payer::Owner(task) => format!("owner {}", task.0),
        Payer::Handoff | Payer::Gap => "gap".to_owned(),
        Payer::Oneself => "self".to_owned(),
        Payer::Cycle => "cycle".to_owned(),
        Payer::Unknown => "unknown".to_owned(),
    }
}

fn run(text: &str, end_ns: i64) -> (Found, PassStats) {
    let parts = Parts::parse(text);
    let rules = Rules::new(&parts.info, &parts.locks);
    let mut pass = Pass::new(&parts.info, &parts.locks, rules, Found::default(), CountedWaits::all());
    parts.events.iter().for_each(|event| pass.push(event));
    pass.finish(end_ns)
}

/// Returns the time by payer and state: `0@100 running 90`.
fn states(text: &str, end_ns: i64) -> Vec<String> {
    let line = |((_, payer, state), ns): (&(LockId, String, Option<State>), &i64)| {
        format!("{payer} {} {ns}", state.map_or("-", State::as_str))
    };
    run(text, end_ns).0.0.iter().map(line).collect()
}

const V1: &str = "
    100 A acquire m\n120 B wait m\n150 C wait m
    170 A offcpu wait=30 blocked=0 state=runnable
    240 A offcpu wait=50 blocked=40 runq=10 state=uninterruptible
    260 A release m\n265 B acquire m wait=145\n280 B release m\n283 C acquire m wait=133\n290 C release m";
const SCHED: &str = "source sched kinds=none\nsource preload kinds=pthread_mutex holds=yes\n";

#[test]
fn v1_a_hold_is_parted_by_the_states_of_its_task() {
    assert_eq!(
        states(&format!("{SCHED}{V1}"), 300),
        [
            "0@100 preempted 50",
            "0@100 uninterruptible 80",
            "0@100 ready 20",
            "0@100 running 100",
            "1@265 running 15",
            "gap - 13",
        ]
    );
}

#[test]
fn v1_without_off_cpu_rows_and_their_source_the_state_is_unknown() {
    let without: Vec<&str> = V1.lines().filter(|line| !line.contains("offcpu")).collect();
    assert_eq!(states(&without.join("\n"), 300), ["0@100 unknown 250", "1@265 unknown 15", "gap - 13"]);
}

#[test]
fn a_holder_is_covered_by_the_source_that_covers_holders_only_and_by_the_one_of_older_traces() {
    let of = |source: &str| states(&format!("{}{V1}", SCHED.replace("source sched kinds=none", source)), 300);
    let covered = of("source sched kinds=none");
    assert_eq!(of("source sched kinds=none covers=contended_holds"), covered);
    assert_eq!(of("source off_cpu kinds=none"), covered);
    let unknown = of("source sched kinds=none covers=none");
    assert!(unknown.contains(&"0@100 unknown 100".to_owned()), "{unknown:?}");
}

#[test]
fn v1_after_the_last_row_of_a_task_its_state_is_unknown() {
    let cut: Vec<&str> = V1.lines().take(5).collect();
    let cut: Vec<&str> = cut.into_iter().take_while(|line| !line.contains("240")).collect();
    let text = format!("{SCHED}{}", cut.join("\n"));
    let expected = ["0@100 preempted 50", "0@100 running 20", "0@100 unknown 60"];
    assert_eq!(states(&text, 200), expected);
    assert_eq!(states(&format!("{text}\n200 - lost count=1"), 300), expected, "a loss cuts as the end does");
}

#[test]
fn a_task_that_waits_while_it_holds_is_in_that_wait_until_the_end() {
    let text = format!(
        "{SCHED}source preload kinds=condvar holds=yes\nlock c condvar\n100 A acquire m\n110 B wait m\n120 A wait c\n130 A acquire c wait=10\n140 A wait n"
    );
    let found = states(&text, 200);
    assert_eq!(
        found,
        ["unknown - 10", "0@100 lock 60", "0@100 idle 10", "0@100 running 20", "gap - 60"],
        "the wait for c is unowned, that for n in a gap"
    );
}

#[test]
fn the_owner_that_the_lock_word_named_has_states_too() {
    let text = "source off_cpu kinds=none\nsource kernel_contended kinds=mutex holds=no\nlock m mutex
        100 A try_fail m\n110 B wait m peer=A\n150 A offcpu wait=20 state=interruptible\n160 B acquire m wait=50";
    assert_eq!(states(text, 200), ["owner 0 asleep 20", "owner 0 running 20", "owner 0 unknown 10"]);
}

#[test]
fn a_late_row_counts_at_the_time_of_the_row_before_it() {
    let (_, stats) = run("100 A acquire m\n120 B wait m\n110 A release m\n130 B acquire m wait=10", 200);
    assert_eq!(stats.late_rows, 1);
}
