//! Paths in single histories, case by case.

use crate::testing::V4;
use std::collections::BTreeMap;

use rustc_hash::FxHashSet;
use trace_format::{Event, LockId, LockRow, RunInfo, TaskId, run_info::Covers};

use super::{Context, Forward, Path, PathPart, PathStep, Root, model::Label, settle, walk::walk_back};
use crate::{context::TaskStart, engine::Rules, testing::Parts};

/// The steps of one path, the latest first, and its jumps.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) steps: Vec<(TaskId, i64, i64, Label)>,
    pub(super) jumps: BTreeMap<LockId, i64>,
}

impl Path for Found {
    fn step(&mut self, root: usize, step: &PathStep<'_>) {
        assert_eq!(root, 0);
        assert!(step.from_ns < step.to_ns, "{step:?} is empty");
        assert!(
            self.steps.last().is_none_or(|(_, from_ns, ..)| *from_ns == step.to_ns),
            "a hole before {step:?}"
        );
        let label = match step.part {
            PathPart::Task { held, state } => Label::Task(held.iter().map(|held| held.lock).collect(), state),
            PathPart::Handoff(lock) => Label::Handoff(lock),
            PathPart::WakeUp(lock) => Label::WakeUp(lock),
            PathPart::Waiting { lock, is_idle } => Label::Waiting(lock, is_idle),
            PathPart::Before => Label::Before,
            PathPart::Lost => Label::Lost,
        };
        self.steps.push((step.task, step.from_ns, step.to_ns, label));
    }

    fn jump(&mut self, _: usize, lock: LockId) {
        *self.jumps.entry(lock).or_default() += 1;
    }
}

/// Returns the facts about these locks and the starts of tasks.
pub(super) fn context<'a>(
    info: &RunInfo,
    locks: &'a [LockRow],
    start: impl Fn(TaskId) -> Option<TaskStart> + 'a,
) -> Context<'a> {
    let kind = |lock: LockId| locks[usize::try_from(lock.0).unwrap()].kind;
    Context {
        rules: Rules::new(info, locks),
        kind: Box::new(move |lock| Some(kind(lock))),
        idle: Box::new(move |lock, _| kind(lock).is_idle()),
        site: Box::new(|_, _| 0),
        start: Box::new(start),
        tasks: Vec::new(),
        covers: Covers::All,
        cpus: 0,
    }
}

/// Walks paths through these rows.
pub(super) fn walk<P: Path>(events: &[Event], context: &Context<'_>, roots: Vec<Root>, path: P) -> P {
    let (mut rows, mut now_ns) = (events.to_vec(), i64::MIN);
    settle(&mut rows, &mut now_ns);
    let last_ns = roots.iter().map(|root| root.to_ns).max().unwrap_or(i64::MIN);
    rows.retain(|row| row.ts_ns <= last_ns);
    let mut forward = Forward::new(context, FxHashSet::default());
    rows.iter().for_each(|row| forward.push(row.ts_ns, row));
    walk_back(forward, &roots, path)
}

/// Returns the steps of the path of a task, the latest first: `A 0..60 b`, `R 60..62 handoff b`.
fn path(text: &str, task: &str, from_ns: i64, to_ns: i64) -> Vec<String> {
    let mut parts = Parts::parse(text);
    let root = Root { task: parts.task_id(task), from_ns, to_ns };
    let start = |task| TaskStart::of(task, |task: TaskId| parts.tasks.get(usize::try_from(task.0).unwrap()));
    let context = context(&parts.info, &parts.locks, start);
    let found = walk(&parts.events, &context, vec![root], Found::default());
    let name = |lock: &LockId| parts.locks[usize::try_from(lock.0).unwrap()].name.clone().unwrap();
    let line = |(task, from_ns, to_ns, label): &(TaskId, i64, i64, Label)| {
        let task = parts.tasks[usize::try_from(task.0).unwrap()].comm.clone().unwrap();
        let label = match label {
            Label::Task(locks, state) => {
                format!("{} {state}", locks.iter().map(name).collect::<Vec<_>>().join("+"))
            }
            Label::Handoff(lock) => format!("hand-off of {}", name(lock)),
            Label::WakeUp(lock) => format!("wake-up by {}", name(lock)),
            Label::Waiting(lock, _) => format!("waits for {}", name(lock)),
            Label::Before => "before".to_owned(),
            Label::Lost => "lost".to_owned(),
        };
        format!("{task} {from_ns}..{to_ns} {}", label.trim().trim_end_matches(" running"))
    };
    found.steps.iter().map(line).collect()
}

#[test]
fn v4_a_lock_that_is_waited_for_longest_need_not_be_on_the_path() {
    let expected = ["R 80..120 running", "R 62..80 b", "R 60..62 hand-off of b", "A 0..60 b"];
    assert_eq!(path(V4, "R", 0, 120), expected);
}

#[test]
fn v5_a_path_goes_on_at_the_task_that_ends_an_idle_wait_up_to_its_start() {
    let text = "lock t user_semaphore\ntask M\ntask W start=2
        0 M init t\n5 W acquire m\n10 M wait t\n30 W release m\n40 W wake t\n42 M acquire t\n50 M destroy t";
    let expected = [
        "M 42..50 running",
        "M 40..42 wake-up by t",
        "W 30..40 running",
        "W 5..30 m",
        "W 2..5 running",
        "W 0..2 before",
    ];
    assert_eq!(path(text, "M", 0, 50), expected);
}

#[test]
fn a_path_goes_on_at_the_creator_of_a_task() {
    let text = "task M\ntask W start=12 parent=M\ntask X start=20 parent=W
        5 M acquire m\n10 M release m\n15 W acquire x\n16 M acquire m\n18 M release m\n20 W release x\n30 X try_fail x";
    let expected = [
        "X 30..40 running",
        "X 20..30 running",
        "W 15..20 x",
        "W 12..15 running",
        "M 10..12 running",
        "M 5..10 m",
        "M 0..5 before",
    ];
    assert_eq!(path(text, "X", 0, 40), expected);
    let silent = "task M start=3\ntask W start=12 parent=M\n30 W try_fail x";
    assert_eq!(
        path(silent, "W", 0, 40),
        ["W 30..40 running", "W 12..30 running", "M 3..12 running", "M 0..3 before"]
    );
    let lost = "task M\ntask W start=12 parent=M\n5 M try_fail x\n8 - lost count=1\n30 W try_fail x";
    assert_eq!(path(lost, "W", 0, 40), ["W 30..40 running", "W 12..30 running", "M 0..12 lost"]);
}

#[test]
fn a_creator_that_was_born_later_is_none() {
    let text = "task M start=12\ntask W start=12 parent=M\n5 M try_fail x\n30 W try_fail x";
    assert_eq!(path(text, "W", 0, 40), ["W 30..40 running", "W 12..30 running", "W 0..12 before"]);
}

#[test]
fn an_instant_belongs_to_the_hold_that_was_acquired_last_whatever_is_released_first() {
    let text = "0 A acquire x\n10 A acquire y\n20 A release x\n30 A release y\n40 A try_fail z";
    let expected = ["A 30..40 running", "A 20..30 y", "A 10..20 x+y", "A 0..10 x"];
    assert_eq!(path(text, "A", 0, 40), expected);
}

#[test]
fn a_path_ends_at_a_loss() {
    let text = "0 A acquire x\n10 B wait x\n15 - lost count=1\n20 A release x\n22 B acquire x wait=12\n30 B release x";
    assert_eq!(path(text, "B", 0, 30), ["B 22..30 x", "B 0..22 lost"]);
}

#[test]
fn a_wait_that_nothing_ends_is_waiting() {
    let given_up = "0 A acquire x\n10 B wait x\n20 B abandon x wait=10 errno=110\n30 B try_fail x";
    assert_eq!(path(given_up, "B", 5, 30), ["B 20..30 running", "B 10..20 waits for x", "B 5..10 before"]);
    let open = "0 A acquire x\n0 B try_fail x\n10 B wait x\n15 B offcpu wait=4 state=interruptible";
    assert_eq!(path(open, "B", 0, 30), ["B 10..30 waits for x", "B 0..10 running"]);
}

#[test]
fn all_tasks_leave_a_barrier_by_the_last_that_came() {
    let text = "lock c barrier\n0 A try_fail x\n0 B try_fail x\n10 A wait c\n20 B wait c\n21 B acquire c\n25 B wait c\n30 A acquire c\n40 A try_fail x";
    let expected = ["A 30..40 running", "A 20..30 wake-up by c", "B 0..20 running"];
    assert_eq!(path(text, "A", 0, 40), expected);
}

#[test]
fn a_join_goes_on_at_the_thread_that_ended_and_that_at_its_creator() {
    let text = "lock t thread\nlock u thread\ntask M\ntask W start=6 parent=M\ntask X start=8 parent=M
        2 M acquire m\n3 M release m\n5 M init t\n7 M init u\n9 M wait t peer=W\n10 W acquire m\n30 W release m
        32 X wake u\n40 W wake t\n42 M acquire t wait=33\n44 M acquire u wait=0\n50 M try_fail m";
    let expected = [
        "M 44..50 running",
        "M 42..44 running",
        "M 40..42 wake-up by t",
        "W 30..40 running",
        "W 10..30 m",
        "W 6..10 running",
        "M 5..6 running",
        "M 3..5 running",
        "M 2..3 m",
        "M 0..2 before",
    ];
    assert_eq!(path(text, "M", 0, 50), expected);
    // The thread was on its way out when the other one began to wait.
    let late =
        text.replace("9 M wait t peer=W\n", "").replace("42 M acquire t", "41 M wait t\n42 M acquire t");
    assert_eq!(path(&late, "M", 0, 50)[2..4], ["M 40..42 wake-up by t", "W 30..40 running"]);
    let unrecorded = text.replace("40 W wake t\n", "");
    assert_eq!(path(&unrecorded, "M", 0, 50)[2], "M 9..42 waits for t");
    let timed_out = text.replace("42 M acquire t", "42 M abandon t errno=110");
    assert_eq!(path(&timed_out, "M", 0, 50)[2], "M 9..42 waits for t");
}

#[test]
fn a_condition_wait_ends_at_the_signal_or_when_its_mutex_is_free_and_a_time_out_at_neither() {
    let text =
        "lock c condvar\n0 B acquire m\n2 B release m\n2 B wait c\n5 A acquire m\n10 A wake c\n20 A release m
        22 B acquire c wait=20\n22 B acquire m\n30 B release m";
    let expected = ["B 22..30 m", "B 20..22 wake-up by c", "A 10..20 m", "A 5..10 m", "A 0..5 before"];
    assert_eq!(path(text, "B", 0, 30), expected);
    let after = text.replace("10 A wake c\n20 A release m", "10 A release m\n20 A wake c");
    let expected = ["B 22..30 m", "B 20..22 wake-up by c", "A 10..20 running", "A 5..10 m", "A 0..5 before"];
    assert_eq!(path(&after, "B", 0, 30), expected);
    let timed_out = text.replace("22 B acquire c wait=20", "22 B abandon c wait=20 errno=110");
    let expected = ["B 22..30 m", "B 2..22 waits for c", "B 0..2 m"];
    assert_eq!(path(&timed_out, "B", 0, 30), expected);
}

#[test]
fn a_sleep_is_followed_to_the_task_that_ended_it() {
    let text = "0 A try_fail x\n5 B acquire x\n30 B release x\n35 A offcpu wait=30 blocked=28 runq=2 state=interruptible peer=B\n40 A try_fail x";
    let expected = ["A 35..40 running", "A 33..35 ready", "B 30..33 running", "B 5..30 x", "B 0..5 before"];
    assert_eq!(path(text, "A", 0, 40), expected);
    let alone = text.replace(" peer=B", "");
    let expected = ["A 35..40 running", "A 33..35 ready", "A 5..33 asleep", "A 0..5 running"];
    assert_eq!(path(&alone, "A", 0, 40), expected);
}
