//! Episodes and overtaking in single histories, and what holds for all.

use std::collections::BTreeMap;

use proptest::{prelude::*, test_runner::Config};
use trace_format::{Event, LockId, TaskId};

use super::{Episode, LockQueue};
use crate::{
    report::fairness::jain,
    testing::{Parts, cases},
};
use intervals::{
    engine::{Engine, Rules, histories},
    items::{Item, Needs, Sink},
};

/// The queue of one lock, the time that tasks waited for it, and that each held it.
struct One(LockId, LockQueue, i64, BTreeMap<TaskId, i64>);

impl Sink for One {
    fn needs(&self) -> Needs {
        Needs { acquired: true, ..Needs::default() }
    }

    fn push(&mut self, item: Item<'_>) {
        match item {
            Item::Acquired(hold) if hold.lock == self.0 => self.1.acquired(hold),
            Item::WaitBegins(wait) if wait.lock == self.0 => self.1.wait_begins(wait),
            Item::Hold(hold) if hold.lock == self.0 => {
                self.1.hold(hold);
                *self.3.entry(hold.task).or_default() += hold.end_ns - hold.start_ns;
            }
            Item::Wait(wait) if wait.lock == self.0 => {
                self.1.wait(wait);
                self.2 += wait.wait_ns;
            }
            _ => {}
        }
    }
}

fn run(rules: Rules, events: &[Event], min: i64, lock: LockId, end_ns: i64) -> One {
    let mut one = One(lock, LockQueue::new(min), 0, BTreeMap::new());
    let mut engine = Engine::new(rules);
    events.iter().for_each(|event| engine.push(event, &mut one));
    engine.finish(end_ns, &mut one);
    one.1.finish();
    one
}

fn rules() -> Rules {
    let (info, locks) = histories::context();
    Rules::new(&info, &locks)
}

fn of(text: &str, min: i64) -> LockQueue {
    history(text, min).1
}

fn history(text: &str, min: i64) -> One {
    let parts = Parts::parse(text);
    run(Rules::new(&parts.info, &parts.locks), &parts.events, min, LockId(0), 200)
}

const V7: &str = "
    100 A acquire m\n101 B wait m\n102 C wait m\n110 A release m\n115 B acquire m wait=14\n116 A wait m
    118 B release m\n123 C acquire m wait=21\n124 B wait m\n126 C release m\n131 A acquire m wait=15
    132 C wait m\n134 A release m\n139 B acquire m wait=15\n142 B release m\n147 C acquire m wait=15\n150 C release m";

#[test]
fn v7_a_queue_that_never_empties_although_the_lock_is_often_free_is_a_convoy() {
    let queue = of(V7, 5);
    let [Episode { start_ns: 101, end_ns: 147, acquisitions: 5, hold_ns: 21, .. }] = queue.episodes[..]
    else {
        panic!("{:?}", queue.episodes);
    };
    assert_eq!((queue.sums.convoys, queue.sums.convoy_wait_ns, queue.sums.overtakes), (1, 80, 0));
    assert_eq!(of(V7, 6).sums.convoys, 0);
}

#[test]
fn v8_a_task_that_takes_the_lock_again_overtakes_those_that_wait() {
    let text = "100 A acquire m\n105 B wait m\n110 A release m\n111 A acquire m\n120 A release m
        121 C acquire m\n130 C release m\n133 B acquire m wait=28\n140 B release m";
    let One(_, queue, _, held) = history(text, 8);
    assert_eq!((queue.sums.overtakes, queue.sums.overtaken_max), (2, 2));
    let of_task = |task| held[&TaskId(task)];
    let held = [0, 1, 2].map(of_task);
    assert_eq!((held, jain(&held)), ([19, 7, 9], 831_636));
}

#[test]
fn jains_index_is_a_million_if_all_are_equal_and_its_share_if_one_has_all() {
    assert_eq!([jain(&[5, 5, 5]), jain(&[9, 0, 0]), jain(&[])], [1_000_000, 333_333, 1_000_000]);
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(cases(10_000)) })]

    #[test]
    fn waits_lie_in_episodes_and_the_order_of_rows_of_equal_time_does_not_matter(
        events in histories::orderly_history(),
        choices in proptest::collection::vec(any::<prop::sample::Index>(), 1..20),
    ) {
        let end_ns = events.last().map_or(0, |event| event.ts_ns) + 7;
        let other = histories::reordered(&events, &choices);
        for lock in [LockId(0), LockId(1)] {
            let One(_, queue, waited_ns, held) = run(rules(), &events, 2, lock, end_ns);
            prop_assert_eq!(queue.episodes.iter().map(|episode| episode.wait_ns).sum::<i64>(), waited_ns);
            for Episode { start_ns, end_ns, hold_ns, .. } in &queue.episodes {
                prop_assert!((0..=end_ns - start_ns).contains(hold_ns));
            }
            let times: Vec<i64> = held.values().copied().collect();
            if !times.is_empty() {
                prop_assert!((1_000_000 / times.len() as i64..=1_000_000).contains(&jain(&times)));
            }
            let One(_, same, _, same_held) = run(rules(), &other, 2, lock, end_ns);
            prop_assert_eq!((queue.episodes, held), (same.episodes, same_held));
            prop_assert_eq!(queue.sums.overtakes, same.sums.overtakes);
            prop_assert_eq!(queue.sums.overtaken_max, same.sums.overtaken_max);
        }
    }
}
