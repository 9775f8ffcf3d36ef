//! States against the slow model, on random histories; what adds up; and what makes no difference.

use crate::testing::Intervals;
use std::collections::{BTreeMap, BTreeSet};

use proptest::{collection::vec, prelude::*, sample::Index, test_runner::Config};
use trace_format::{
    Event, EventKind, LockId, Mode, RunInfo, TaskId,
    run_info::{SCHED, Source},
};

use super::{Pass, counted::CountedWaits, model, model::States};
use crate::{
    engine::{
        Engine, Rules,
        histories::{context, history, off_cpu, orderly_history, reordered, shaped_history, with_off_cpu},
    },
    items::{ByState, Hold, Item, Needs, Payer, Sink},
    testing::cases,
};

/// Time by hold and state, holds, and time without a payer.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    states: States,
    holds: BTreeMap<(LockId, TaskId, i64), i64>,
    others_ns: i64,
}

/// Holds with the states of their tasks.
#[derive(Default)]
struct Held(Vec<(Hold, ByState)>);

impl Sink for Held {
    fn needs(&self) -> Needs {
        Needs { held: true, ..Needs::default() }
    }

    fn push(&mut self, item: Item<'_>) {
        if let Item::Held(hold, states) = item {
            self.0.push((*hold, *states));
        }
    }
}

impl Sink for Found {
    fn push(&mut self, item: Item<'_>) {
        match item {
            Item::Caused(caused) => match (caused.payer, caused.state) {
                (Payer::Hold(hold), Some(state)) => {
                    let key = (caused.lock, hold.task, hold.start_ns, state);
                    *self.states.entry(key).or_default() += caused.ns;
                }
                _ => self.others_ns += caused.ns,
            },
            Item::Hold(hold) if hold.wait_caused_ns != 0 => {
                *self.holds.entry((hold.lock, hold.task, hold.start_ns)).or_default() += hold.wait_caused_ns;
            }
            _ => {}
        }
    }
}

pub(super) fn info(is_covered: bool) -> RunInfo {
    let mut info = context().0;
    if is_covered {
        info.sources.push(Source { name: SCHED.to_owned(), ..Source::default() });
    }
    info
}

fn run(events: &[Event], end_ns: i64, is_covered: bool) -> Found {
    run_into(Found::default(), events, end_ns, is_covered)
}

fn run_into<S: Sink>(sink: S, events: &[Event], end_ns: i64, is_covered: bool) -> S {
    let (info, locks) = (info(is_covered), context().1);
    let rules = Rules::new(&info, &locks).with_points(vec![0, 0, 1], Vec::new());
    let mut pass = Pass::new(&info, &locks, rules, sink, CountedWaits::all());
    events.iter().for_each(|event| pass.push(event));
    pass.finish(end_ns).0
}

pub(super) fn end_of(events: &[Event]) -> i64 {
    events.last().map_or(0, |event| event.ts_ns) + 7
}

/// Returns the waiting time that the engine charges to each hold.
fn caused_by(events: &[Event], end_ns: i64) -> BTreeMap<(LockId, TaskId, i64), i64> {
    let (info, locks) = context();
    let mut engine = Engine::new(Rules::new(&info, &locks).with_points(vec![0, 0, 1], Vec::new()));
    let mut found = Intervals::default();
    events.iter().for_each(|event| engine.push(event, &mut found));
    engine.finish(end_ns, &mut found);
    let mut caused = BTreeMap::new();
    for hold in found.holds.iter().filter(|hold| hold.wait_caused_ns != 0) {
        *caused.entry((hold.lock, hold.task, hold.start_ns)).or_default() += hold.wait_caused_ns;
    }
    caused
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(cases(10_000)) })]

    #[test]
    fn the_states_of_a_hold_are_those_of_every_nanosecond_and_add_up_to_wait_caused(
        events in prop_oneof![history().boxed(), shaped_history().boxed()],
        off_cpu in off_cpu(),
        is_covered in any::<bool>(),
    ) {
        let events = with_off_cpu(&events, &off_cpu);
        let end_ns = end_of(&events);
        let found = run(&events, end_ns, is_covered);
        prop_assert_eq!(&found.states, &model::states(&events, end_ns, is_covered));

        let mut sums: BTreeMap<(LockId, TaskId, i64), i64> = BTreeMap::new();
        for ((lock, task, start_ns, _), ns) in &found.states {
            *sums.entry((*lock, *task, *start_ns)).or_default() += ns;
        }
        prop_assert_eq!(&sums, &found.holds);
        prop_assert_eq!(&sums, &caused_by(&events, end_ns), "off-CPU rows change no wait_caused");
    }

    #[test]
    fn the_states_of_a_task_in_its_hold_are_those_of_every_nanosecond_whoever_waits(
        events in prop_oneof![history().boxed(), shaped_history().boxed()],
        off_cpu in off_cpu(),
        is_covered in any::<bool>(),
        at in any::<Index>(),
    ) {
        let events = with_off_cpu(&events, &off_cpu);
        let end_ns = end_of(&events);
        let of = |(hold, states): &(Hold, ByState)| {
            (hold.lock, hold.task, hold.start_ns, hold.end_ns, hold.mode == Mode::Shared, *states)
        };
        let sorted = |held: &[(Hold, ByState)]| held.iter().map(of).collect::<BTreeSet<_>>();
        let Held(found) = run_into(Held::default(), &events, end_ns, is_covered);
        prop_assert_eq!(sorted(&found), sorted(&model::held(&events, end_ns, is_covered)));

        let [(with_loss, end_ns), ..] = around_loss(&events, at);
        let Held(found) = run_into(Held::default(), &with_loss, end_ns, is_covered);
        for (hold, states) in found {
            prop_assert_eq!(states.iter().sum::<i64>(), hold.end_ns - hold.start_ns, "{:?}", hold);
        }
    }
}

/// Returns the history with a loss before one of its events or at its end, the part before the loss, and the
/// loss with the part after it, each with its end: a wait that is known only from its end is known only if it
/// began after the loss.
pub(super) fn around_loss(events: &[Event], at: Index) -> [(Vec<Event>, i64); 3] {
    let at = at.index(events.len() + 1);
    let loss_ns = at.checked_sub(1).map_or(990, |before| events[before].ts_ns);
    let (before, after) = events.split_at(at);
    let lost = Event::new(loss_ns, EventKind::Lost, 0);
    let (end_ns, whole) = (end_of(events), [before, &[lost], after].concat());
    [(whole, end_ns), (before.to_vec(), loss_ns), ([&[lost], after].concat(), end_ns)]
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(cases(10_000)) })]

    #[test]
    fn a_loss_splits_a_trace_into_two(
        events in history(),
        off_cpu in off_cpu(),
        at in any::<Index>(),
    ) {
        let events = with_off_cpu(&events, &off_cpu);
        let [whole, first, second] = around_loss(&events, at).map(|(part, end_ns)| run(&part, end_ns, true));
        let mut sum = first.states;
        for (key, ns) in second.states {
            *sum.entry(key).or_default() += ns;
        }
        prop_assert_eq!(whole.states, sum);
        prop_assert_eq!(whole.others_ns, first.others_ns + second.others_ns);
    }

    #[test]
    fn the_order_of_rows_of_equal_time_does_not_matter(
        events in orderly_history(),
        off_cpu in off_cpu(),
        choices in vec(any::<Index>(), 1..20),
    ) {
        let events = with_off_cpu(&events, &off_cpu);
        let end_ns = end_of(&events);
        prop_assert_eq!(run(&events, end_ns, true), run(&reordered(&events, &choices), end_ns, true));
    }

    #[test]
    fn without_off_cpu_rows_a_payer_is_running_or_waiting_between_its_rows(events in orderly_history()) {
        use crate::items::State::{Lock, Running, Unknown};
        let found = run(&events, end_of(&events), true);
        prop_assert!(found.states.keys().all(|(.., state)| [Lock, Running, Unknown].contains(state)));
    }
}
