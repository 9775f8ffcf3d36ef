//! Replays against the slow model, on programs of random histories; and what makes no difference.

use proptest::{collection::vec, option, prelude::*, sample::Index, test_runner::Config};
use trace_format::{Event, EventKind, LockId, LockKind, LockRow, RunInfo, TaskId, TaskRow, run_info::Covers};

use super::{
    Action, Changes, HeldSleep, MILLION, Program, Readers, ShardBy, Variant, model, replay,
    tests::{build, context},
};
use crate::{
    engine::histories::{
        self, TASKS, history, joins, nested_history, off_cpu, orderly_history, reordered, shaped_history,
        with_joins, with_off_cpu,
    },
    testing::{cases, task_row},
};

/// A change: its kind, the lock, a number.
type AnyChange = (u8, Index, i64);

fn any_changes() -> impl Strategy<Value = Vec<AnyChange>> {
    vec((0..10u8, any::<Index>(), 0..2_000_000i64), 0..3)
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
            2 => of.sleep = HeldSleep::LeftOut,
            3 => of.no_preempt = true,
            4 if of.shards.is_none() => {
                let by = if number % 2 == 0 { ShardBy::Draw } else { ShardBy::Task };
                changes.shard(program, lock, 1 + (number % 4) as u32, by);
            }
            5 => of.readers = Some(Readers::Share(number % MILLION)),
            6 => of.handoff_ns = Some(number % 9),
            7 => of.fifo = true,
            8 => of.removed = true,
            9 => of.sleep = HeldSleep::Later,
            _ => {}
        }
    }
    changes
}

fn program(events: &[Event], covers: Covers) -> Program {
    program_with(events, covers, &[(None, None), (Some(1003), None)])
}

/// The start of a task and its creator.
type AnyStart = (Option<i64>, Option<i32>);

fn program_with(events: &[Event], covers: Covers, starts: &[AnyStart]) -> Program {
    let (info, locks) = histories::context();
    let task = |id: i32| {
        let (start_ns, parent) = starts.get(id.unsigned_abs() as usize).copied().unwrap_or_default();
        TaskRow { parent: parent.map(TaskId), ..task_row(id, (start_ns, None)) }
    };
    let tasks: Vec<_> = (0..TASKS).map(task).collect();
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
        if let Some((ns, waited_ns, taken_ns)) = expected {
            let since_first =
                |times: &Vec<i64>| times.iter().map(|ns| i128::from(ns - times[0])).sum::<i128>();
            assert_eq!(
                (
                    replayed.ns,
                    replayed.waited_ns,
                    replayed.taken.iter().map(|taken| taken.since_first_ns()).collect::<Vec<_>>()
                ),
                (ns, waited_ns, taken_ns.iter().map(since_first).collect()),
                "{program:?} {changes:?} {variant:?}"
            );
        }
    }
}

fn covers() -> impl Strategy<Value = Covers> {
    prop_oneof![Just(Covers::All), Just(Covers::ContendedHolds), Just(Covers::None)]
}

/// Threads of a phase: work, a hold of a lock of its own, and work. The main thread creates one after the
/// other, one ns apart, and joins them in that order.
type Phase = Vec<[i64; 3]>;

fn phase() -> impl Strategy<Value = Phase> {
    // A hold of no length at a thread's end would have the release, the end and the join in one ns, whose
    // order no row tells.
    vec([0..50i64, 1..50i64, 0..50i64], 1..5)
}

/// The length of phases whose holds take so many times as long.
fn phases_length(phases: &[Phase], factor: i64) -> i64 {
    phases.iter().fold(0, |now, phase| {
        let end = |(at, [before, hold, after]): (i64, &[i64; 3])| now + at + before + hold * factor + after;
        // The main thread takes a ns to create each thread.
        (1..).zip(phase).map(end).max().unwrap_or(now).max(now + phase.len() as i64)
    })
}

/// The program of a recording of these phases. A join of a thread that has ended does not wait.
fn phases_program(phases: &[Phase]) -> Program {
    let (mut events, mut tasks, mut locks) = (Vec::new(), vec![task_row(0, (Some(0), None))], Vec::new());
    let mut now = 0;
    for phase in phases {
        let main_ns = now + phase.len() as i64;
        let mut joined_ns = main_ns;
        for (at, [before, hold, after]) in (1..).zip(phase) {
            let (start_ns, id) = (now + at, tasks.len() as i32);
            tasks.push(TaskRow { parent: Some(TaskId(0)), ..task_row(id, (Some(start_ns), None)) });
            let (lock, thread) = (LockId(locks.len() as i32), LockId(locks.len() as i32 + 1));
            locks
                .extend([LockRow::new(lock, LockKind::PthreadMutex), LockRow::new(thread, LockKind::Thread)]);
            let (acquired_ns, released_ns) = (start_ns + before, start_ns + before + hold);
            let end_ns = released_ns + after;
            let mut row = |ts_ns, kind, task: i32, lock, wait_ns| {
                let (task, lock) = (Some(TaskId(task)), Some(lock));
                events.push(Event { task, lock, wait_ns, ..Event::new(ts_ns, kind, 0) });
            };
            row(start_ns, EventKind::Init, 0, thread, None);
            row(acquired_ns, EventKind::Acquire, id, lock, Some(0));
            row(released_ns, EventKind::Release, id, lock, None);
            row(end_ns, EventKind::Wake, id, thread, None);
            if joined_ns < end_ns {
                row(joined_ns, EventKind::Wait, 0, thread, None);
            }
            row(joined_ns.max(end_ns), EventKind::Acquire, 0, thread, Some((end_ns - joined_ns).max(0)));
            joined_ns = joined_ns.max(end_ns);
        }
        now = joined_ns;
    }
    events.sort_by_key(|event| event.ts_ns);
    build(&events, &context(&RunInfo::default(), &locks, &tasks, Covers::None), 0)
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
        events in shaped_history(),
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
    fn a_replay_is_that_of_the_model_where_tasks_create_and_join_others(
        events in orderly_history(),
        joins in joins(),
        starts in vec((option::of(985..1030i64), option::of(0..TASKS)), usize::try_from(TASKS).unwrap()),
        covers in covers(),
        changes in any_changes(),
    ) {
        let events = with_off_cpu(&with_joins(&events, &joins), &[]);
        assert_is_the_model(&program_with(&events, covers, &starts), &changes);
    }

    #[test]
    fn phases_of_threads_take_as_long_as_the_longest_thread_of_each(phases in vec(phase(), 1..5), factor in 0..3i64) {
        let program = phases_program(&phases);
        prop_assert_eq!((program.facts.later_tasks, program.facts.unknown_wakers), (0, 0));
        let mut changes = Changes::none(&program);
        changes.locks.iter_mut().for_each(|change| change.scaled.push((None, factor * MILLION)));
        let replayed = replay(&program, &changes, Variant::MAIN, &[]);
        prop_assert_eq!(replayed.ns, phases_length(&phases, factor));
        prop_assert_eq!(program.recorded_ns, phases_length(&phases, 1));
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
        let is_waiting = alone.iter().any(|event| event.kind == EventKind::Wait);
        let program = program(&alone, Covers::None);
        let replayed = replay(&program, &Changes::none(&program), Variant::MAIN, &[]);
        if !is_waiting {
            prop_assert_eq!(replayed.ns, program.recorded_ns);
        }
    }
}
