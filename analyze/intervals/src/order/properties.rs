//! Lock orders against the slow model, on random histories; what leaves no inversion; and what makes no
//! difference.

use std::{collections::BTreeMap, sync::Arc};

use proptest::{
    collection::vec,
    option,
    prelude::*,
    sample::Index,
    strategy::ValueTree as _,
    test_runner::{Config, TestRunner},
};
use trace_format::{
    Event, EventKind, Frame, LockId, LockKind, LockRow, RunInfo, Scope, Stack, StackId, TaskRow,
};

use super::{
    Collector, FoundCycles, Lifetimes, Nodes, Verdict,
    model::{self, Signature},
    node::By,
    programs::{KINDS, Move, Program, TASKS, moves, program, with_loss},
    search,
};
use crate::engine::deadlock::{Deadlock, Has};
use crate::{
    engine::{Rules, histories},
    input::names::Names,
    testing::{cases, task_row},
};

/// The site of each stack: the first two have the same.
const SITES: [i32; 3] = [0, 0, 1];

fn locks(kinds: &[LockKind]) -> Vec<LockRow> {
    let lock =
        |(id, kind): (i32, &LockKind)| LockRow { scope: Scope::Kernel, ..LockRow::new(LockId(id), *kind) };
    (0..).zip(kinds).map(lock).collect()
}

fn stacks() -> Vec<Stack> {
    let stack = |(id, site): (i32, &i32)| {
        let frame = |symbol: String| Frame { symbol: Some(symbol), kernel: true, ..Frame::default() };
        Stack { id: StackId(id), frames: vec![frame(format!("site{site}")), frame(format!("caller{id}"))] }
    };
    (0..).zip(&SITES).map(stack).collect()
}

fn tasks(lifetimes: &[(Option<i64>, Option<i64>)]) -> Vec<TaskRow> {
    (0..).zip(lifetimes).map(|(id, lifetime)| task_row(id, *lifetime)).collect()
}

const FOREVER: [(Option<i64>, Option<i64>); TASKS as usize] = [(None, None); TASKS as usize];

fn found(events: &[Event], locks: &[LockRow], tasks: &[TaskRow]) -> FoundCycles {
    let names = Names::of_rows(locks.to_vec(), &stacks());
    let rules = Arc::new(Rules::new(&RunInfo::default(), locks));
    let nodes = Nodes::new(By::Lock, &names, &rules);
    let mut collector = Collector::new(&names, &nodes, Arc::clone(&rules), |_| true);
    events.iter().for_each(|event| collector.push(event));
    search(&collector.finish(), &nodes, &Lifetimes::of(tasks), 4)
}

/// Returns the verdict on each cycle.
fn verdicts(found: &FoundCycles, names: &Names) -> BTreeMap<Signature, Verdict> {
    let taking = |of: super::Acquisition| {
        let site = names.point_of_number(of.site).function.clone().unwrap_or_default();
        (of.node.lock(), of.mode, site.trim_start_matches("site").parse().unwrap())
    };
    let cycle = |cycle: &super::Cycle| {
        let steps = cycle.steps.iter().map(|step| (taking(step.held), taking(step.wanted)));
        (steps.collect(), cycle.verdict)
    };
    found.cycles.iter().map(cycle).collect()
}

fn inversions(events: &[Event], locks: &[LockRow]) -> BTreeMap<Signature, Verdict> {
    let names = Names::of_rows(locks.to_vec(), &stacks());
    let mut found = verdicts(&found(events, locks, &tasks(&FOREVER)), &names);
    found.retain(|_, verdict| verdict.is_inversion());
    found
}

fn lifetimes() -> impl Strategy<Value = Vec<(Option<i64>, Option<i64>)>> {
    let lifetime = (option::weighted(0.3, 1000..1100i64), option::weighted(0.3, 1..60i64));
    let lifetime =
        lifetime.prop_map(|(start_ns, length)| (start_ns, length.map(|ns| start_ns.unwrap_or(1000) + ns)));
    vec(lifetime, TASKS as usize)
}

/// The properties below would hold of histories without cycles, too.
#[test]
fn the_random_histories_have_cycles_of_every_verdict() {
    let mut runner = TestRunner::deterministic();
    let mut counts: BTreeMap<Verdict, u64> = BTreeMap::new();
    for _ in 0..4000 {
        let moves = moves(50).new_tree(&mut runner).unwrap().current();
        let lifetimes = lifetimes().new_tree(&mut runner).unwrap().current();
        for cycle in found(&program(&moves, &KINDS), &locks(&KINDS), &tasks(&lifetimes)).cycles {
            *counts.entry(cycle.verdict).or_default() += 1;
        }
    }
    assert!(Verdict::ALL.iter().all(|verdict| counts.get(verdict) > Some(&20)), "{counts:?}");
}

proptest! {
    #![proptest_config(Config::with_cases(cases(20_000)))]

    #[test]
    fn cycles_and_their_verdicts_are_those_of_the_slow_model(
        moves in moves(50), loss in option::weighted(0.2, 0..40usize), lifetimes in lifetimes(),
    ) {
        let mut events = program(&moves, &KINDS);
        if let Some(at) = loss {
            events = with_loss(events, at);
        }
        let (locks, tasks) = (locks(&KINDS), tasks(&lifetimes));
        let names = Names::of_rows(locks.clone(), &stacks());
        let found = found(&events, &locks, &tasks);
        prop_assert!(!found.is_cut);
        let site = |stack: Option<StackId>| SITES[stack.unwrap().0 as usize];
        let expected = model::verdicts(&events, &locks, &tasks, &site, 4);
        let count = |is: &dyn Fn(Verdict) -> bool| expected.values().filter(|v| is(**v)).count() as u64;
        prop_assert_eq!(found.counts.inversions, count(&|v| v.is_inversion()));
        prop_assert_eq!(found.counts.gated, count(&|v| v == Verdict::Gated));
        prop_assert_eq!(verdicts(&found, &names), expected);
    }

    #[test]
    fn one_lock_around_everything_leaves_no_inversion(moves in moves(50)) {
        let mut program = Program::new(&[LockKind::Mutex; KINDS.len()]);
        for step in &moves {
            // Lock 0 is the outer one: it is taken first and released last.
            let held = &program.held[step.task as usize];
            let lock = if held.is_empty() { 0 } else { step.lock };
            let releases_outer = step.lets_go && held.len() > 1 && held[step.which.index(held.len())].0 == 0;
            if !releases_outer {
                program.make(&Move { lock, ..step.clone() });
            }
        }
        let found = found(&program.events, &locks(&[LockKind::Mutex; KINDS.len()]), &tasks(&FOREVER));
        prop_assert_eq!(found.counts.inversions, 0);
    }

    #[test]
    fn ascending_orders_leave_no_cycle(moves in moves(60)) {
        let mut program = Program::new(&KINDS);
        for step in &moves {
            let highest = program.held[step.task as usize].iter().map(|(lock, ..)| *lock).max();
            if step.lets_go || highest.is_none_or(|highest| step.lock > highest) {
                program.make(step);
            }
        }
        let found = found(&program.events, &locks(&KINDS), &tasks(&FOREVER));
        prop_assert_eq!(found, FoundCycles::default());
    }

    #[test]
    fn histories_of_tasks_that_follow_each_other_can_be_moved_in_time(
        moves in moves(60), order in Just((0..TASKS).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        // Each task runs alone, so that no hold depends on another task.
        let one_by_one = |order: &[i32]| -> Vec<Event> {
            let mut now_ns = 0;
            let mut all = Vec::new();
            for task in order {
                let own: Vec<Move> = moves.iter().filter(|step| step.task == *task).cloned().collect();
                let mut program = Program::new(&KINDS);
                own.iter().for_each(|step| program.make(step));
                while let Some((lock, mode, depth)) = program.held[*task as usize].pop() {
                    (0..depth).for_each(|_| program.push(*task as usize, EventKind::Release, lock, mode, (0, None)));
                }
                now_ns += 10_000;
                all.extend(program.events.iter().map(|event| Event { ts_ns: event.ts_ns + now_ns, ..*event }));
            }
            all
        };
        let locks = locks(&KINDS);
        let given: Vec<i32> = (0..TASKS).collect();
        prop_assert_eq!(inversions(&one_by_one(&given), &locks), inversions(&one_by_one(&order), &locks));
    }

    #[test]
    fn the_order_of_rows_of_equal_time_makes_no_difference(moves in moves(50), choices in vec(any::<Index>(), 1..20)) {
        let events = program(&moves, &KINDS);
        let reordered = histories::reordered(&events, &choices);
        let (locks, tasks) = (locks(&KINDS), tasks(&FOREVER));
        let names = Names::of_rows(locks.clone(), &stacks());
        let [one, other] = [&events, &reordered].map(|events| verdicts(&found(events, &locks, &tasks), &names));
        prop_assert_eq!(one, other);
    }

    #[test]
    fn a_deadlock_between_exclusive_locks_is_an_inversion(moves in moves(60)) {
        let kinds = [LockKind::Mutex; KINDS.len()];
        let stuck = moves.iter().map(|step| Move { lets_go: step.lets_go && step.which.index(3) == 0, ..step.clone() });
        let events = program(&stuck.collect::<Vec<_>>(), &kinds);
        let locks = locks(&kinds);
        let names = Names::of_rows(locks.clone(), &stacks());
        let rules = Arc::new(Rules::new(&RunInfo::default(), &locks));
        let nodes = Nodes::new(By::Lock, &names, &rules);
        let mut collector = Collector::new(&names, &nodes, Arc::clone(&rules), |_| true);
        events.iter().for_each(|event| collector.push(event));
        let collected = collector.finish();
        let found = search(&collected, &nodes, &Lifetimes::default(), 4);
        let is_of_holds = |deadlock: &&Deadlock| deadlock.members.iter().all(|member| matches!(member.has, Has::Hold(_)));
        for deadlock in collected.deadlocks.iter().filter(is_of_holds).filter(|deadlock| deadlock.members.len() <= 4) {
            let mut expected: Vec<(LockId, LockId)> =
                deadlock.members.iter().map(|member| (member.has.lock().unwrap_or(member.wants.lock), member.wants.lock)).collect();
            expected.sort_unstable();
            let is_it = |cycle: &super::Cycle| {
                let mut steps: Vec<(LockId, LockId)> =
                    cycle.steps.iter().map(|step| (step.held.node.lock(), step.wanted.node.lock())).collect();
                steps.sort_unstable();
                steps == expected && cycle.verdict == Verdict::Inversion && cycle.has_deadlocked
            };
            prop_assert!(found.cycles.iter().any(is_it), "{:?}", deadlock);
        }
    }

    #[test]
    fn arbitrary_histories_do_not_fail(events in histories::history()) {
        let (_, locks) = histories::context();
        let rules = Arc::new(Rules::new(&histories::context().0, &locks));
        let names = Names::of_rows(locks, &stacks());
        for by in [By::Lock, By::Class] {
            let nodes = Nodes::new(by, &names, &rules);
            let mut collector = Collector::new(&names, &nodes, Arc::clone(&rules), |_| true);
            events.iter().for_each(|event| collector.push(event));
            let found = search(&collector.finish(), &nodes, &Lifetimes::default(), 4);
            for cycle in &found.cycles {
                let next = cycle.steps.iter().cycle().skip(1);
                prop_assert!(cycle.steps.iter().zip(next).all(|(step, next)| step.wanted.node == next.held.node));
            }
        }
    }
}
