//! Paths against the slow model, on random histories; what adds up; and what makes no difference.

use proptest::{collection::vec, option, prelude::*, sample::Index, test_runner::Config};
use trace_format::{Event, EventKind, LockId, TaskId, TaskRow};

use super::{
    Context, Root,
    model::{self, Label},
    settle,
    tests::{self, Found},
};
use crate::{
    context::TaskStart,
    engine::histories::{
        self, TASKS, history, joins, nested_history, off_cpu, orderly_history, reordered, with_joins,
        with_off_cpu,
    },
    testing::{cases, task_row},
};

/// A task, the start and the length of a window, and the starts and creators of the tasks.
type Window = (i32, i64, i64, Vec<(Option<i64>, Option<i32>)>);

fn window() -> impl Strategy<Value = Window> {
    let tasks = usize::try_from(TASKS).unwrap();
    (0..TASKS, 980..1040i64, 0..200i64, vec((option::of(970..1050i64), option::of(0..TASKS)), tasks))
}

fn root(window: &Window) -> Root {
    Root { task: TaskId(window.0), from_ns: window.1, to_ns: window.1 + window.2 }
}

fn start(window: &Window) -> impl Fn(TaskId) -> Option<TaskStart> {
    let row = |(id, (start_ns, parent)): (i32, &(Option<i64>, Option<i32>))| TaskRow {
        parent: parent.map(TaskId),
        ..task_row(id, (*start_ns, None))
    };
    let rows: Vec<TaskRow> = (0..).zip(&window.3).map(row).collect();
    move |task| TaskStart::of(task, |task| rows.get(usize::try_from(task.0).unwrap()))
}

fn with_context<T>(window: &Window, run: impl FnOnce(&Context<'_>) -> T) -> T {
    let (info, locks) = histories::context();
    run(&tests::context(&info, &locks, start(window)))
}

fn walk(events: &[Event], window: &Window) -> Found {
    with_context(window, |context| tests::walk(events, context, vec![root(window)], Found::default()))
}

/// Returns the label of each nanosecond, the first one first.
fn labels(found: &Found) -> Vec<(TaskId, Label)> {
    let of_step = |(task, from_ns, to_ns, label): &(TaskId, i64, i64, Label)| {
        let ns = usize::try_from(to_ns - from_ns).unwrap();
        vec![(*task, label.clone()); ns]
    };
    found.steps.iter().rev().flat_map(of_step).collect()
}

fn assert_is_the_model(events: &[Event], off_cpu: &[(Index, Event)], window: &Window) {
    let events = with_off_cpu(events, off_cpu);
    let found = walk(&events, window);
    let root = root(window);
    let sum: i64 = found.steps.iter().map(|(_, from_ns, to_ns, _)| to_ns - from_ns).sum();
    assert_eq!(sum, root.to_ns - root.from_ns, "the parts add up");
    let (mut rows, mut now_ns) = (events, i64::MIN);
    settle(&mut rows, &mut now_ns);
    let (expected, jumps) = with_context(window, |context| model::path(&rows, context, root));
    assert_eq!(labels(&found), expected);
    assert_eq!(found.jumps, jumps);
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(cases(10_000)) })]

    #[test]
    fn a_path_is_that_of_the_model_in_any_history(events in history(), off_cpu in off_cpu(), window in window()) {
        assert_is_the_model(&events, &off_cpu, &window);
    }

    #[test]
    fn a_path_is_that_of_the_model_where_tasks_wait_while_they_hold(
        events in nested_history(),
        off_cpu in off_cpu(),
        window in window(),
    ) {
        assert_is_the_model(&events, &off_cpu, &window);
    }

    #[test]
    fn a_path_is_that_of_the_model_in_orderly_histories(
        events in orderly_history(),
        off_cpu in off_cpu(),
        window in window(),
    ) {
        assert_is_the_model(&events, &off_cpu, &window);
    }

    #[test]
    fn a_path_is_that_of_the_model_where_tasks_join_others(
        events in orderly_history(),
        joins in joins(),
        off_cpu in off_cpu(),
        window in window(),
    ) {
        assert_is_the_model(&with_joins(&events, &joins), &off_cpu, &window);
    }

    #[test]
    fn a_task_alone_without_a_creator_is_its_own_path(events in nested_history(), mut window in window()) {
        window.3.iter_mut().for_each(|(_, parent)| *parent = None);
        let of_task = |event: &&Event| event.task == Some(TaskId(window.0));
        let alone: Vec<Event> = events.iter().filter(of_task).copied().collect();
        let found = walk(&alone, &window);
        let is_own = |(task, .., label): &(TaskId, i64, i64, Label)| {
            *task == TaskId(window.0) && !matches!(label, Label::Handoff(_) | Label::WakeUp(_) | Label::Lost)
        };
        prop_assert!(found.steps.iter().all(is_own));
    }

    #[test]
    fn tasks_with_locks_of_their_own_change_nothing(
        events in nested_history(),
        others in nested_history(),
        window in window(),
    ) {
        // The others have their own locks and tasks, and their rows come at the same times.
        let mut all = events.clone();
        let away = |event: &Event| Event {
            lock: (event.kind != EventKind::Lost).then_some(LockId(4)),
            task: event.task.map(|task| TaskId(task.0 + TASKS)),
            peer_task: None,
            ..*event
        };
        all.extend(others.iter().map(away));
        all.sort_by_key(|event| event.ts_ns);
        let (_, from_ns, ns, mut starts) = window;
        starts.resize(2 * starts.len(), (None, None));
        let window = (window.0, from_ns, ns, starts);
        prop_assert_eq!(walk(&all, &window), walk(&events, &window));
    }

    #[test]
    fn another_clock_shifts_the_path(events in nested_history(), window in window(), by in -10_000..10_000i64) {
        let shifted: Vec<Event> = events.iter().map(|event| Event { ts_ns: event.ts_ns + by, ..*event }).collect();
        let mut other = window.clone();
        other.1 += by;
        other.3.iter_mut().filter_map(|(start_ns, _)| start_ns.as_mut()).for_each(|ns| *ns += by);
        let (found, moved) = (walk(&events, &window), walk(&shifted, &other));
        prop_assert_eq!(labels(&found), labels(&moved));
        prop_assert_eq!(found.jumps, moved.jumps);
    }

    #[test]
    fn the_order_of_rows_of_equal_time_does_not_change_a_path(
        events in nested_history(),
        off_cpu in off_cpu(),
        choices in vec(any::<Index>(), 1..20),
        window in window(),
    ) {
        let events = with_off_cpu(&events, &off_cpu);
        prop_assert_eq!(walk(&events, &window), walk(&reordered(&events, &choices), &window));
    }

    #[test]
    fn a_path_behind_a_loss_is_that_of_the_rows_behind_it(
        events in nested_history(),
        off_cpu in off_cpu(),
        at in any::<Index>(),
        window in window(),
    ) {
        let events = with_off_cpu(&events, &off_cpu);
        let at = at.index(events.len() + 1);
        let loss_ns = at.checked_sub(1).map_or(970, |before| events[before].ts_ns);
        let (before, after) = events.split_at(at);
        let lost = Event::new(loss_ns, EventKind::Lost, 0);
        let whole = walk(&[before, &[lost], after].concat(), &window);
        if window.1 + window.2 >= loss_ns {
            prop_assert!(whole.steps.iter().all(|(.., label)| *label != Label::Before));
            prop_assert_eq!(whole, walk(&[&[lost], after].concat(), &window));
        }
    }
}
