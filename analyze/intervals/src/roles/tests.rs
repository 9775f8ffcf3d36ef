//! Vectors: small histories of locks and of what looks like one.

use trace_format::TaskId;

use super::{Context, Role, model::Row, properties::evidence};

/// The rows of a history, as its generator adds them, and the time of the last one.
struct Script {
    rows: Vec<(i64, Row)>,
    now_ns: i64,
}

impl Script {
    fn new() -> Self {
        Self { rows: Vec::new(), now_ns: 1_000_000 }
    }

    fn waits(&mut self, task: i32) -> &mut Self {
        self.at(1_000, Row::Begin(TaskId(task)))
    }

    fn all_wait(&mut self, tasks: &[i32]) -> &mut Self {
        for task in tasks {
            self.waits(*task);
        }
        self
    }

    fn wakes(&mut self, waker: i32, tasks: &[i32]) -> &mut Self {
        self.at(1_000_000, Row::Wake(TaskId(waker), 500));
        for task in tasks {
            self.at(1_000, Row::End(TaskId(*task), Some(TaskId(waker))));
        }
        self
    }

    fn at(&mut self, after_ns: i64, row: Row) -> &mut Self {
        self.now_ns += after_ns;
        self.rows.push((self.now_ns, row));
        self
    }

    fn role(&mut self, context: Context) -> Role {
        self.at(1_000, Row::Lose);
        evidence(&self.rows).role(context)
    }
}

const ALONE: Context = Context { one_waiter_each: true, wakes_elsewhere: false, is_word: false };
const UNLOCKS: Context = Context { one_waiter_each: false, wakes_elsewhere: true, is_word: false };

/// Tasks 0 to 2 take turns; who was woken wakes the next and queues again.
fn relay(rounds: i32) -> Script {
    let mut script = Script::new();
    script.waits(1).waits(2);
    for round in 0..rounds {
        let (inside, next) = (round % 3, (round + 1) % 3);
        script.wakes(inside, &[next]).at(100_000, Row::Begin(TaskId(inside)));
    }
    script
}

#[test]
fn tasks_that_wake_each_other_in_turn_exclude_each_other() {
    assert_eq!(relay(12).role(Context::default()), Role::Lock);
    assert_eq!(relay(12).role(ALONE), Role::Lock);
    assert_eq!(relay(9).role(Context::default()), Role::TooFew);
}

#[test]
fn tasks_that_another_one_wakes_wait_for_its_work() {
    let mut script = Script::new();
    script.all_wait(&[1, 2, 3]);
    for round in 0..12 {
        let worker = 1 + round % 3;
        script.wakes(0, &[worker]).at(100_000, Row::Begin(TaskId(worker)));
    }
    assert_eq!(script.role(Context::default()), Role::Queue);
}

/// All of four tasks but the last wait; the last one, each in turn, wakes them, and all work for a while.
#[test]
fn tasks_that_all_wait_for_the_last_one_are_at_a_barrier() {
    let mut script = Script::new();
    for round in 0..6 {
        let last = round % 4;
        let others: Vec<i32> = (0..4).filter(|task| *task != last).collect();
        script.all_wait(&others);
        script.wakes(last, &others).now_ns += 400_000;
    }
    assert_eq!(script.role(Context::default()), Role::Barrier);
}

/// The tasks get a CPU one after another. In every fifth round one of them does not sleep.
#[test]
fn tasks_that_one_call_ends_the_waits_of_are_a_batch_however_late_they_run() {
    let mut script = Script::new();
    for round in 0..20 {
        let last = round % 4;
        let mut others: Vec<i32> = (0..4).filter(|task| *task != last).collect();
        others.truncate(if round % 5 == 0 { 2 } else { 3 });
        script.all_wait(&others).wakes(last, &others[..1]);
        for task in &others[1..] {
            script.at(200_000, Row::End(TaskId(*task), Some(TaskId(last))));
        }
        script.now_ns += 400_000;
    }
    assert_eq!(script.role(WORD), Role::Barrier);
}

/// The one inside wakes all; one gets in, and the others find the lock taken.
#[test]
fn a_wake_up_that_finds_the_lock_taken_is_no_wake_up() {
    let mut script = Script::new();
    script.all_wait(&[1, 2, 3]);
    for round in 0..12 {
        let (inside, next) = (round % 4, (round + 1) % 4);
        let others: Vec<i32> = (0..4).filter(|task| *task != inside).collect();
        script.wakes(inside, &others);
        let losers: Vec<i32> = others.into_iter().filter(|task| *task != next).collect();
        script.all_wait(&losers);
        script.at(100_000, Row::Begin(TaskId(inside)));
    }
    assert_eq!(script.role(Context::default()), Role::Lock);
}

/// Any of the tasks that are inside wakes the next, as in a pool that feeds itself.
#[test]
fn a_pool_with_several_tasks_inside_is_not_sure_to_be_a_lock() {
    let mut script = Script::new();
    script.all_wait(&[3, 4, 5]);
    for round in 0..30 {
        // Task 0 wakes 3, task 1 wakes 4, task 2 wakes 5, and the waker waits.
        let (inside, next) = (round % 6, (round + 3) % 6);
        script.wakes(inside, &[next]).at(100_000, Row::Begin(TaskId(inside)));
    }
    assert_eq!(script.role(Context::default()), Role::Undecided);
    assert_eq!(script.role(ALONE), Role::Queue);
}

#[test]
fn two_tasks_that_alternate_are_a_lock_only_if_the_code_says_so() {
    let mut script = Script::new();
    script.waits(1);
    for round in 0..12 {
        let (inside, next) = (round % 2, (round + 1) % 2);
        script.wakes(inside, &[next]).at(100_000, Row::Begin(TaskId(inside)));
    }
    assert_eq!(script.role(Context::default()), Role::Undecided);
    assert_eq!(script.role(UNLOCKS), Role::Lock);
    assert_eq!(script.role(Context { one_waiter_each: true, ..UNLOCKS }), Role::Undecided);
}

#[test]
fn tasks_that_mostly_wait_all_at_once_are_idle() {
    let mut script = relay(12);
    // The task inside waits, too, for as long as all of it lasted: nobody is inside.
    script.waits(0).at(20_000_000, Row::Wake(TaskId(9), 0));
    script.waits(1).waits(2).at(40_000_000, Row::Wake(TaskId(9), 0));
    assert_eq!(script.role(Context::default()), Role::Queue);
}

const WORD: Context = Context { one_waiter_each: false, wakes_elsewhere: false, is_word: true };

/// Task 0 waits once, then takes the lock again and again without a wait; of the others, each gets in once in
/// a while, and `leaves` says who calls next.
fn hog(rounds: i32, wakers: i32, leaves: impl Fn(i32) -> i32) -> Script {
    let mut script = Script::new();
    script.all_wait(&[0, 1, 2, 3]).wakes(9, &[0]);
    for round in 0..rounds {
        let inside = 1 + round % 3;
        let waker = if round % wakers == 0 { 0 } else { 1 + (round + 2) % 3 };
        script.wakes(waker, &[inside]).at(100_000, Row::Wake(TaskId(leaves(inside)), 500));
        script.at(100_000, Row::Begin(TaskId(inside)));
    }
    script
}

#[test]
fn tasks_that_leave_a_word_before_others_call_a_wake_exclude_each_other() {
    assert_eq!(hog(30, 2, |inside| inside).role(WORD), Role::Lock);
    assert_eq!(hog(8, 2, |inside| inside).role(WORD), Role::TooFew);
    // One that never waits ends nearly all waits: a lock with a hog, or both sides of a queue.
    assert_eq!(hog(30, 1, |inside| inside).role(WORD), Role::Undecided);
    assert_eq!(hog(30, 1, |inside| inside).role(Context::default()), Role::Queue);
    // A producer wakes again while the first consumer works.
    assert_eq!(hog(30, 1, |_| 0).role(WORD), Role::Queue);
}

#[test]
fn a_wake_that_was_called_before_a_wait_ended_does_not_leave() {
    let mut script = Script::new();
    script.all_wait(&[1, 2, 3]);
    for round in 0..12 {
        let inside = 1 + round % 3;
        // The row of the call is behind the wait that it ends.
        script
            .at(1_000_000, Row::End(TaskId(inside), Some(TaskId(0))))
            .at(1_000, Row::Wake(TaskId(0), 5_000));
        script.at(100_000, Row::Wake(TaskId(inside), 500)).at(60_000, Row::Begin(TaskId(inside)));
    }
    script.at(1_000, Row::Lose);
    let found = evidence(&script.rows);
    assert_eq!((found.entered, found.left), (12, 12));
}
