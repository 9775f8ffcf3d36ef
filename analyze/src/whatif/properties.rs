//! Replays against the slow model, on programs of random histories; and what makes no difference.

use proptest::{collection::vec, prelude::*, sample::Index, test_runner::Config};
use trace_format::{Event, run_info::Covers};

use super::{
    Action, Changes, MILLION, Program, Readers, ShardBy, Variant, model, replay,
    tests::{build, context},
};
use crate::{
    causes::properties::{off_cpu, with_off_cpu},
    engine::histories::{self, TASKS, history, nested_history, orderly_history, reordered},
    testing::{cases, task_row},
};

/// A change: its kind, the lock, a number.
type AnyChange = (u8, Index, i64);

fn any_changes() -> impl Strategy<Value = Vec<AnyChange>> {
    vec((0..9u8, any::<Index>(), 0..2_000_000i64), 0..3)
}

fn changes(program: &Program, all: &[AnyChange]) -> Changes {
    let mut changes = Changes::none(program);
    for (kind, lock, number) in all {
        if program.locks.is_empty() {
            break;
        }
        let lock = lock.index(program.locks.len());
        let of = &mut changes.locks[lock];
        match kind {
            0 => of.scaled.push((None, *number)),
            1 => of.scaled.push((program.locks[lock].sites.first().copied(), *number)),
            2 => of.no_sleep = true,
            3 => of.no_preempt = true,
            4 if of.shards.is_none() => {
                let by = if number % 2 == 0 { ShardBy::Draw } else { ShardBy::Task };
                changes.shard(program, lock, 1 + (number % 4) as u32, by);
            }
            5 => of.readers = Some(Readers::Share(number % MILLION)),
            6 => of.handoff_ns = Some(number % 9),
            7 => of.fifo = true,
            8 => of.removed = true,
            _ => {}
        }
    }
    changes
}

fn program(events: &[Event], covers: Covers) -> Program {
    let (info, locks) = histories::context();
    let tasks: Vec<_> = (0..TASKS).map(|id| task_row(id, ((id == 1).then_some(1003), None))).collect();
    let mut program = build(events, &context(&info, &locks, &tasks, covers), 990);
    // Short, so that slices end.
    program.slice_ns = 6;
    program
}

fn variants() -> impl Iterator<Item = Variant> {
    let all = [(false, 0, 0, true), (false, 1, 1, false), (true, 2, 2, true)];
    all.into_iter().map(|(fifo, handoff, seed, others)| Variant { fifo, handoff, seed, others })
}

fn assert_is_the_model(program: &Program, all: &[AnyChange]) {
    let changes = changes(program, all);
    for variant in variants() {
        let replayed = replay(program, &changes, variant, &[]);
        let expected = model::replay(program, &changes, variant);
        assert_eq!(replayed.is_stuck, expected.is_none(), "{program:?}");
        if let Some((ns, waited_ns)) = expected {
            assert_eq!(
                (replayed.ns, replayed.waited_ns),
                (ns, waited_ns),
                "{program:?} {changes:?} {variant:?}"
            );
        }
    }
}

fn covers() -> impl Strategy<Value = Covers> {
    prop_oneof![Just(Covers::All), Just(Covers::ContendedHolds), Just(Covers::None)]
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(cases(10_000)) })]

    #[test]
    fn a_replay_is_that_of_the_model_of_any_history(
        events in history(),
        off_cpu in off_cpu(),
        covers in covers(),
        changes in any_changes(),
    ) {
        assert_is_the_model(&program(&with_off_cpu(&events, &off_cpu), covers), &changes);
    }

    #[test]
    fn a_replay_is_that_of_the_model_where_tasks_wait_while_they_hold(
        events in nested_history(),
        off_cpu in off_cpu(),
        covers in covers(),
        changes in any_changes(),
    ) {
        assert_is_the_model(&program(&with_off_cpu(&events, &off_cpu), covers), &changes);
    }

    #[test]
    fn a_replay_is_that_of_the_model_of_orderly_histories(
        events in orderly_history(),
        off_cpu in off_cpu(),
        covers in covers(),
        changes in any_changes(),
    ) {
        assert_is_the_model(&program(&with_off_cpu(&events, &off_cpu), covers), &changes);
    }

    #[test]
    fn rows_of_equal_time_may_come_in_any_order(
        events in orderly_history(),
        choices in vec(any::<Index>(), 1..20),
    ) {
        prop_assert_eq!(program(&events, Covers::None), program(&reordered(&events, &choices), Covers::None));
    }

    #[test]
    fn without_locks_the_longest_task_is_the_length(events in orderly_history()) {
        let program = program(&events, Covers::None);
        let mut changes = Changes::none(&program);
        changes.locks.iter_mut().for_each(|change| change.removed = true);
        let replayed = replay(&program, &changes, Variant::MAIN, &[]);
        let length = |task: &super::program::TaskProgram| {
            let ns = |action: &Action| match action {
                Action::Work(ns) | Action::Sleep(ns) | Action::Ready(ns) => *ns,
                _ => 0,
            };
            task.start_ns + task.actions.iter().map(ns).sum::<i64>()
        };
        // Those that wait idly are not free of others.
        let waits = |task: &super::program::TaskProgram| {
            task.actions.iter().any(|action| matches!(action, Action::Await { .. } | Action::Meet { .. }))
        };
        if !program.tasks.iter().any(waits) {
            prop_assert_eq!(replayed.ns, program.tasks.iter().map(length).max().unwrap_or(0));
            prop_assert!(replayed.waited_ns.iter().all(|ns| *ns == 0));
        }
    }

    #[test]
    fn equal_programs_have_equal_replays_and_a_factor_of_one_changes_nothing(
        events in nested_history(),
        variant in 0..3usize,
    ) {
        let program = program(&events, Covers::None);
        let variant = variants().nth(variant).unwrap();
        let unchanged = replay(&program, &Changes::none(&program), variant, &[]);
        prop_assert_eq!(&unchanged, &replay(&program, &Changes::none(&program), variant, &[]));
        let mut changes = Changes::none(&program);
        changes.locks.iter_mut().for_each(|change| change.scaled.push((None, MILLION)));
        prop_assert_eq!(&unchanged, &replay(&program, &changes, variant, &[]));
    }

    #[test]
    fn a_recording_of_one_task_is_replayed_as_it_was(events in nested_history()) {
        let alone: Vec<Event> = events.into_iter().filter(|event| event.task.is_some_and(|task| task.0 == 0)).collect();
        let is_waiting = alone.iter().any(|event| event.kind == trace_format::EventKind::Wait);
        let program = program(&alone, Covers::None);
        let replayed = replay(&program, &Changes::none(&program), Variant::MAIN, &[]);
        if !is_waiting {
            prop_assert_eq!(replayed.ns, program.recorded_ns);
        }
    }
}
