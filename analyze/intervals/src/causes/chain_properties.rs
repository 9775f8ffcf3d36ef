//! Chains against the slow model, on random histories with nested locks; what adds up; and what makes no
//! difference.

use std::collections::BTreeMap;

use proptest::{collection::vec, prelude::*, sample::Index, test_runner::Config};
use trace_format::{Event, LockId, TaskId};

use super::{
    Pass,
    counted::CountedWaits,
    model::{self, Chained, Root},
    properties::{around_loss, end_of, info},
    tests::name,
};
use crate::{
    engine::{
        Rules,
        histories::{
            TASKS, context, history, nested_history, off_cpu, orderly_history, reordered, shaped_history,
            with_off_cpu,
        },
    },
    items::{Caused, Columns, Item, Needs, Payer, Sink, State},
    testing::cases,
};

/// Time by root, and time that is passed on, as the model has it.
#[derive(Debug, Default)]
struct Found(Chained);

/// The needs of a sink of chains.
const CHAINS: Needs = Needs { chains: true, ..Needs::columns(Columns::All) };

impl Sink for Found {
    fn needs(&self) -> Needs {
        CHAINS
    }

    fn push(&mut self, item: Item<'_>) {
        match item {
            Item::Caused(&Caused { lock, payer, depth, is_received, waiters, state, ns, .. }) => {
                let state = state.unwrap_or_default();
                let root = match payer {
                    Payer::Hold(hold) => Root::Hold(lock, hold.task, hold.start_ns, state),
                    Payer::Owner(task) => Root::Owner(lock, task, state),
                    Payer::Handoff => Root::Handoff(lock),
                    Payer::Gap => Root::Gap(lock),
                    Payer::Oneself => Root::Oneself(lock),
                    Payer::Cycle => Root::Cycle,
                    Payer::Unknown => Root::Unknown(lock),
                };
                for (depth, waiters) in [(None, waiters.all), (Some(depth), waiters.of_depth)] {
                    let most = self.0.waiters.entry((root.clone(), depth)).or_default();
                    *most = waiters.max(*most);
                }
                let is_received = is_received && root != Root::Cycle;
                *self.0.roots.entry((root, depth, is_received)).or_default() += ns;
            }
            Item::Passed(passed) => {
                if let Payer::Hold(hold) = passed.payer {
                    let key = (passed.lock, hold.task, hold.start_ns, passed.to);
                    *self.0.passed.entry(key).or_default() += passed.ns;
                }
            }
            Item::Nested(ns) => self.0.nested_ns += ns,
            _ => {}
        }
    }
}

/// Time by lock, payer and state without chains.
#[derive(Debug, Default)]
struct Direct(BTreeMap<(LockId, String, Option<State>), i64>);

impl Sink for Direct {
    fn push(&mut self, item: Item<'_>) {
        let Item::Caused(caused) = item else { return };
        *self.0.entry((caused.lock, name(&caused.payer), caused.state)).or_default() += caused.ns;
    }
}

/// The same with chains; deeper ones are in the second map.
#[derive(Debug, Default)]
struct Rooted(BTreeMap<(LockId, String, Option<State>), i64>, i64);

impl Sink for Rooted {
    fn needs(&self) -> Needs {
        CHAINS
    }

    fn push(&mut self, item: Item<'_>) {
        let Item::Caused(caused) = item else { return };
        let payer = name(&caused.payer);
        *self.0.entry((caused.lock, payer, caused.state)).or_default() += caused.ns;
        self.1 = self.1.max(caused.depth.into());
    }
}

fn run_into<R: Sink>(events: &[Event], end_ns: i64, is_covered: bool, receiver: R) -> R {
    let (info, locks) = (info(is_covered), context().1);
    let rules = Rules::new(&info, &locks).with_points(vec![0, 0, 1], Vec::new());
    let mut pass = Pass::new(&info, &locks, rules, receiver, CountedWaits::all());
    events.iter().for_each(|event| pass.push(event));
    pass.finish(end_ns).0
}

fn run(events: &[Event], end_ns: i64, is_covered: bool) -> Chained {
    run_into(events, end_ns, is_covered, Found::default()).0
}

/// Returns the length of all waits, as far as it is known.
fn waited_ns(events: &[Event], end_ns: i64) -> i64 {
    run_into(events, end_ns, false, Direct::default()).0.values().sum()
}

/// Sums per lock: kept, passed, received and root.
fn by_lock(chained: &Chained) -> BTreeMap<LockId, [i64; 4]> {
    let mut sums: BTreeMap<LockId, [i64; 4]> = BTreeMap::new();
    for ((root, _, is_received), ns) in &chained.roots {
        if let Root::Hold(lock, ..) = root {
            let of = sums.entry(*lock).or_default();
            of[if *is_received { 2 } else { 0 }] += ns;
            of[3] += ns;
        }
    }
    for ((lock, ..), ns) in &chained.passed {
        sums.entry(*lock).or_default()[1] += ns;
    }
    sums
}

fn assert_is_the_model(events: &[Event], off_cpu: &[(Index, Event)], is_covered: bool) {
    let events = with_off_cpu(events, off_cpu);
    let end_ns = end_of(&events);
    let found = run(&events, end_ns, is_covered);
    assert_eq!(found, model::chains(&events, end_ns, is_covered));

    let roots_ns: i64 = found.roots.values().sum();
    assert_eq!(roots_ns + found.nested_ns, waited_ns(&events, end_ns), "every nanosecond has one root");
    for (lock, [kept, passed, received, root]) in by_lock(&found) {
        assert_eq!(root, kept + received, "{lock}");
        // Without nested waits, the engine charges the same.
        if found.nested_ns == 0 {
            let direct = run_into(&events, end_ns, is_covered, Direct::default()).0;
            let is_hold = |of: LockId, payer: &str| of == lock && payer.contains('@');
            let of_lock = direct.iter().filter(|((of, payer, _), _)| is_hold(*of, payer));
            assert_eq!(kept + passed, of_lock.map(|(_, ns)| ns).sum::<i64>(), "{lock}");
        }
    }
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(cases(10_000)) })]

    #[test]
    fn roots_are_those_of_every_nanosecond_in_any_history(
        events in history(),
        off_cpu in off_cpu(),
        is_covered in any::<bool>(),
    ) {
        assert_is_the_model(&events, &off_cpu, is_covered);
    }

    #[test]
    fn roots_are_those_of_every_nanosecond_where_tasks_wait_while_they_hold(
        events in shaped_history(),
        off_cpu in off_cpu(),
        is_covered in any::<bool>(),
    ) {
        assert_is_the_model(&events, &off_cpu, is_covered);
    }

    #[test]
    fn a_loss_splits_the_chains_of_a_trace(
        events in nested_history(),
        off_cpu in off_cpu(),
        at in any::<Index>(),
    ) {
        let events = with_off_cpu(&events, &off_cpu);
        let [whole, mut sum, second] =
            around_loss(&events, at).map(|(part, end_ns)| run(&part, end_ns, true));
        second.roots.into_iter().for_each(|(root, ns)| *sum.roots.entry(root).or_default() += ns);
        second.passed.into_iter().for_each(|(key, ns)| *sum.passed.entry(key).or_default() += ns);
        for (key, waits) in second.waiters {
            let most = sum.waiters.entry(key).or_default();
            *most = waits.max(*most);
        }
        sum.nested_ns += second.nested_ns;
        prop_assert_eq!(whole, sum);
    }

    #[test]
    fn the_order_of_rows_of_equal_time_does_not_change_chains(
        events in nested_history(),
        off_cpu in off_cpu(),
        choices in vec(any::<Index>(), 1..20),
    ) {
        let events = with_off_cpu(&events, &off_cpu);
        let end_ns = end_of(&events);
        prop_assert_eq!(run(&events, end_ns, true), run(&reordered(&events, &choices), end_ns, true));
    }

    #[test]
    fn if_nobody_waits_while_holding_roots_are_payers_and_chains_have_one_lock(
        events in orderly_history(),
        off_cpu in off_cpu(),
    ) {
        // A task of one lock waits only while it does not hold it.
        let of_one_lock: Vec<Event> = events.into_iter().filter(|event| event.lock == Some(LockId(0))).collect();
        let events = with_off_cpu(&of_one_lock, &off_cpu);
        let end_ns = end_of(&events);
        let Rooted(roots, depth) = run_into(&events, end_ns, true, Rooted::default());
        prop_assert_eq!(&roots, &run_into(&events, end_ns, true, Direct::default()).0);
        prop_assert_eq!(depth, i64::from(!roots.is_empty()));
    }

    #[test]
    fn other_names_of_locks_and_tasks_permute_the_rows(events in nested_history()) {
        // Ids decide only between equal times.
        let apart: Vec<Event> =
            (0..).zip(&events).map(|(at, event)| Event { ts_ns: 3 * event.ts_ns + at, ..*event }).collect();
        let (other_lock, other_task) = (|lock: LockId| LockId(7 - lock.0), |task: TaskId| TaskId(TASKS - 1 - task.0));
        let renamed: Vec<Event> = apart
            .iter()
            .map(|event| Event { lock: event.lock.map(other_lock), task: event.task.map(other_task), ..*event })
            .collect();
        let end_ns = end_of(&apart);
        let (found, other) = (run(&apart, end_ns, true), run(&renamed, end_ns, true));
        let root = |root: &Root| match *root {
            Root::Hold(lock, task, start_ns, state) => Root::Hold(other_lock(lock), other_task(task), start_ns, state),
            Root::Owner(lock, task, state) => Root::Owner(other_lock(lock), other_task(task), state),
            Root::Handoff(lock) => Root::Handoff(other_lock(lock)),
            Root::Gap(lock) => Root::Gap(other_lock(lock)),
            Root::Oneself(lock) => Root::Oneself(other_lock(lock)),
            Root::Cycle => Root::Cycle,
            Root::Unknown(lock) => Root::Unknown(other_lock(lock)),
        };
        let roots = found.roots.iter().map(|((of, depth, is_received), ns)| ((root(of), *depth, *is_received), *ns));
        let waiters = found.waiters.iter().map(|((of, depth), waits)| ((root(of), *depth), *waits));
        let passed = found.passed.iter().map(|((lock, task, start_ns, to), ns)| {
            ((other_lock(*lock), other_task(*task), *start_ns, other_lock(*to)), *ns)
        });
        let (roots, waiters) = (roots.collect(), waiters.collect());
        let expected = Chained { roots, waiters, passed: passed.collect(), nested_ns: found.nested_ns };
        prop_assert_eq!(other, expected);
    }
}
