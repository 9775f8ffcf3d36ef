//! Chains in single histories, case by case.

use std::collections::BTreeMap;

use trace_format::LockId;

use super::{Pass, counted::CountedWaits, tests::name};
use crate::{
    engine::Rules,
    items::{Caused, Item, Needs, Sink},
    testing::Parts,
};

/// Time by root and depth, passed time by lock, payer and next lock, and the time of nested waits.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    roots: BTreeMap<(LockId, String, &'static str, u32), i64>,
    waiters: BTreeMap<(LockId, String), i64>,
    passed: BTreeMap<(LockId, String, LockId), i64>,
    nested_ns: i64,
}

impl Sink for Found {
    fn needs(&self) -> Needs {
        Needs { chains: true, ..Needs::default() }
    }

    fn push(&mut self, item: Item<'_>) {
        match item {
            Item::Caused(&Caused { lock, payer, depth, waiters, state, ns, .. }) => {
                let (root, state) = (name(&payer), state.map_or("-", |state| state.as_str()));
                let most = self.waiters.entry((lock, root.clone())).or_default();
                *most = waiters.all.max(*most);
                *self.roots.entry((lock, root, state, depth)).or_default() += ns;
            }
            Item::Passed(passed) => {
                *self.passed.entry((passed.lock, name(&passed.payer), passed.to)).or_default() += passed.ns;
            }
            Item::Nested(ns) => self.nested_ns += ns,
            _ => {}
        }
    }
}

fn run(text: &str, end_ns: i64) -> (Parts, Found) {
    let parts = Parts::parse(text);
    let rules = Rules::new(&parts.info, &parts.locks);
    let mut pass = Pass::new(&parts.info, &parts.locks, rules, Found::default(), CountedWaits::all());
    parts.events.iter().for_each(|event| pass.push(event));
    let (found, _) = pass.finish(end_ns);
    (parts, found)
}

/// Returns the time by root: `x 0@100 unknown, depth 1: 80`.
fn roots(text: &str, end_ns: i64) -> Vec<String> {
    let (parts, found) = run(text, end_ns);
    let lock = |lock: &LockId| parts.locks[usize::try_from(lock.0).unwrap()].name.clone().unwrap();
    let line = |((at, root, state, depth), ns): (&(LockId, String, &str, u32), &i64)| {
        format!("{} {root} {state}, depth {depth}: {ns}", lock(at))
    };
    found.roots.iter().map(line).collect()
}

const V2: &str = "
    100 A acquire x\n110 B acquire y\n120 B wait x\n130 C wait y\n140 D wait y\n200 A release x\n205 B acquire x wait=85
    230 B release x\n240 B release y\n242 C acquire y wait=112\n250 C release y\n251 D acquire y wait=111\n260 D release y";

#[test]
fn v2_a_wait_for_a_holder_that_waits_is_caused_by_the_holder_at_the_end() {
    let expected = [
        "x 0@100 unknown, depth 1: 80",
        "x 0@100 unknown, depth 2: 130",
        "x gap -, depth 1: 5",
        "x gap -, depth 2: 10",
        "y 1@110 unknown, depth 1: 70",
        "y 2@242 unknown, depth 1: 8",
        "y gap -, depth 1: 5",
    ];
    assert_eq!(roots(V2, 260), expected);
    let (_, found) = run(V2, 260);
    let (x, y) = (LockId(0), LockId(1));
    assert_eq!(found.passed, [((y, "1@110".to_owned(), x), 140)].into());
    assert_eq!(found.waiters[&(x, "0@100".to_owned())], 3, "B, C and D wait for A at one time");
    assert_eq!((found.roots.values().sum::<i64>(), found.nested_ns), (308, 0));
}

const V3: &str = "100 A acquire x\n110 B acquire y\n120 A wait y\n130 B wait x\n150 C wait x";

#[test]
fn v3_tasks_that_wait_for_each_other_are_a_cycle_and_so_are_those_behind_them() {
    let expected = ["x cycle -, depth 2: 1720", "y 1@110 unknown, depth 1: 10", "y cycle -, depth 2: 870"];
    assert_eq!(roots(V3, 1000), expected);
}

#[test]
fn v3_a_cycle_ends_when_a_member_gives_up() {
    let text = V3.replace("150", "135 B abandon x wait=5\n150");
    let expected = [
        "x cycle -, depth 2: 5",
        "y 1@110 unknown, depth 1: 875",
        "y 1@110 unknown, depth 2: 850",
        "y cycle -, depth 2: 5",
    ];
    assert_eq!(roots(&text, 1000), expected);
}

#[test]
fn v3_a_task_that_waits_for_its_own_lock_causes_that_wait_itself() {
    let text = "100 A acquire x\n120 A wait x";
    assert_eq!(roots(text, 1000), ["x self -, depth 1: 880"]);
    let (_, found) = run(&format!("{text}\n150 B wait x"), 1000);
    let itself: i64 = found.roots.iter().filter(|((_, root, ..), _)| root == "self").map(|(_, ns)| *ns).sum();
    assert_eq!(itself, 880 + 850, "B waits for A, which waits for itself");
}

#[test]
fn a_wait_inside_another_one_is_left_out_and_so_is_its_time() {
    let text =
        "lock f futex\n100 A acquire m\n120 B wait m\n130 B wait f\n150 B acquire f wait=20\n200 A release m";
    let (_, found) = run(text, 200);
    assert_eq!(found.nested_ns, 20);
    assert_eq!(roots(text, 200), ["m 0@100 unknown, depth 1: 80"]);
}

#[test]
fn a_chain_ends_at_the_hold_of_a_task_in_an_idle_wait() {
    let text = "source preload kinds=pthread_mutex,condvar holds=yes\nlock c condvar\n100 A acquire m\n110 A wait c\n120 B wait m\n200 A acquire c wait=90";
    let (_, found) = run(text, 300);
    let of_hold: Vec<_> = found.roots.iter().filter(|((_, root, ..), _)| root == "0@100").collect();
    assert_eq!(of_hold.len(), 2, "idle, and unknown after the last row of A: {of_hold:?}");
    assert_eq!(found.roots[&(LockId(1), "0@100".to_owned(), "idle", 1)], 80);
}

#[test]
fn a_chain_goes_through_the_owner_that_the_lock_word_named() {
    let text = "source kernel_contended kinds=mutex holds=no\nsource preload kinds=pthread_mutex holds=yes\nlock k mutex
        100 A acquire m\n110 B wait m\n120 C wait k peer=B\n150 A release m\n155 B acquire m wait=45";
    let expected = [
        "k owner 1 unknown, depth 1: 45",
        "m 0@100 unknown, depth 1: 40",
        "m 0@100 unknown, depth 2: 30",
        "m gap -, depth 1: 5",
        "m gap -, depth 2: 5",
    ];
    assert_eq!(roots(text, 200), expected);
}

#[test]
fn an_end_without_a_begin_ends_no_wait_that_began_in_the_same_nanosecond() {
    let text = "100 B wait x peer=A\n100 B abandon x wait=0\n100 B abandon x wait=0\n100 B wait x peer=A\n107 A init y";
    assert_eq!(roots(text, 107), ["x owner 1 unknown, depth 1: 7"]);
}

#[test]
fn the_root_has_the_states_of_its_task() {
    let text = format!("source off_cpu kinds=none\nsource preload kinds=pthread_mutex holds=yes\n{V2}")
        .replace("200 A", "190 A offcpu wait=50 blocked=30 runq=20 state=interruptible\n200 A");
    let of_a: Vec<String> = roots(&text, 260).into_iter().filter(|root| root.contains("0@100")).collect();
    let expected = [
        "x 0@100 asleep, depth 1: 30",
        "x 0@100 asleep, depth 2: 60",
        "x 0@100 ready, depth 1: 20",
        "x 0@100 ready, depth 2: 40",
        "x 0@100 running, depth 1: 30",
        "x 0@100 running, depth 2: 30",
    ];
    assert_eq!(of_a, expected);
}
