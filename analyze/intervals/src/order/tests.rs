//! Lock orders in single histories, case by case.

use std::sync::Arc;

use super::{Collector, CycleCounts, CycleStep, FoundCycles, Lifetimes, Node, Nodes, node::By, search};
use crate::{engine::Rules, input::names::Names, testing::Parts};

/// The cycles of a history, in words.
struct Result {
    /// `inversion: x p.c:1 -> y p.c:2, y q.c:1 -> x q.c:2`.
    cycles: Vec<String>,
    counts: CycleCounts,
    found: FoundCycles,
}

fn of_parts(parts: &Parts, by: By, length: usize) -> Result {
    let names = Names::of_rows(parts.locks.clone(), &parts.stacks);
    let rules = Arc::new(Rules::new(&parts.info, &parts.locks));
    let nodes = Nodes::new(by, &names, &rules);
    let mut collector = Collector::new(&names, &nodes, Arc::clone(&rules), |_| true);
    parts.events.iter().for_each(|event| collector.push(event));
    let found = search(&collector.finish(), &nodes, &Lifetimes::of(&parts.tasks), length);
    let node = |node: Node| match node {
        Node::Lock(lock) => parts.locks[lock.0 as usize].name.clone().unwrap_or_else(|| lock.to_string()),
        Node::Class(_) => node.label(&names),
    };
    let step = |CycleStep { held, wanted, .. }: &CycleStep| {
        let [held_at, wanted_at] = [held, wanted].map(|of| names.point_of_number(of.site).place());
        format!("{} {held_at} -> {} {wanted_at}", node(held.node), node(wanted.node))
    };
    let cycle = |cycle: &super::Cycle| {
        let steps: Vec<String> = cycle.steps.iter().map(step).collect();
        format!("{}: {}", cycle.verdict, steps.join(", "))
    };
    Result { cycles: found.cycles.iter().map(cycle).collect(), counts: found.counts, found }
}

fn of(text: &str) -> Result {
    of_parts(&Parts::parse(text), By::Lock, 4)
}

/// Returns the numbers of inversions, and of shared, gated, one-thread and never-together cycles.
fn counts(text: &str) -> [u64; 5] {
    let CycleCounts { inversions, shared, gated, one_thread, never_together } = of(text).counts;
    [inversions, shared, gated, one_thread, never_together]
}

const V9_A: &str = "100 A acquire x p.c:1\n110 A acquire y p.c:2\n120 A release y\n130 A release x\n";
const V9_B: &str = "200 B acquire y q.c:1\n210 B acquire x q.c:2\n220 B release x\n230 B release y\n";

fn v9() -> String {
    format!("{V9_A}{V9_B}")
}

/// Returns the rows of a task that takes a lock inside another one, at `LOCK SITE`, from a time on.
fn nested(at: i64, task: &str, outer: &str, inner: &str) -> String {
    let lock = |taking: &str| taking.split(' ').next().unwrap_or_default().to_owned();
    format!(
        "{at} {task} acquire {outer}\n{} {task} acquire {inner}\n{} {task} release {}\n{} {task} release {}\n",
        at + 1,
        at + 2,
        lock(inner),
        at + 3,
        lock(outer)
    )
}

#[test]
fn v9_two_tasks_that_take_two_locks_in_opposite_orders_are_an_inversion() {
    let Result { cycles, found, .. } = of(&v9());
    assert_eq!(cycles, ["inversion: x p.c:1 -> y p.c:2, y q.c:1 -> x q.c:2"]);
    assert_eq!(counts(&v9()), [1, 0, 0, 0, 0]);
    let steps = &found.cycles[0].steps;
    assert_eq!(steps.iter().map(|step| (step.count, step.tasks.len())).collect::<Vec<_>>(), [(1, 1); 2]);
    assert!(!found.cycles[0].has_deadlocked && !found.is_cut);
}

#[test]
fn v9_both_inside_one_lock_are_gated() {
    let text =
        format!("90 A acquire g p.c:0\n{V9_A}140 A release g\n190 B acquire g q.c:0\n{V9_B}240 B release g");
    assert_eq!(counts(&text), [0, 0, 1, 0, 0]);
    // Two readers of the further lock can be inside of it together.
    let readers = text.replace("g p.c:0", "g shared p.c:0").replace("g q.c:0", "g shared q.c:0");
    let readers = format!("lock g pthread_rwlock\n{}", readers.replace("release g", "release g shared"));
    assert_eq!(counts(&readers), [1, 0, 0, 0, 0]);
}

#[test]
fn v9_one_task_that_does_both_is_one_thread() {
    assert_eq!(counts(&v9().replace('B', "A")), [0, 0, 0, 1, 0]);
}

#[test]
fn v9_what_is_taken_by_a_try_makes_no_order_but_is_held() {
    let by_try = v9().replace("acquire x q.c:2", "acquire x pthread_mutex_trylock<q.c:2");
    assert_eq!(counts(&by_try), [0, 0, 0, 0, 0]);
    let outer = v9().replace("acquire y q.c:1", "acquire y pthread_mutex_trylock<q.c:1");
    assert_eq!(counts(&outer), [1, 0, 0, 0, 0]);
    // The row says so, whatever its stack.
    let by_column = v9().replace("acquire x q.c:2", "acquire x q.c:2 call=try");
    assert_eq!(counts(&by_column), [0, 0, 0, 0, 0]);
    let timed = by_try.replace("trylock<q.c:2", "trylock<q.c:2 call=timed");
    assert_eq!(counts(&timed), [1, 0, 0, 0, 0]);
    // One that waited was no try, whatever its stack.
    let waited = by_try.replace("210 B acquire x", "205 B wait x q.c:2\n210 B acquire x wait=5");
    assert_eq!(counts(&waited), [1, 0, 0, 0, 0]);
}

#[test]
fn v9_tasks_that_never_lived_together_cannot_deadlock() {
    let lifetimes = |exit: i64, start: i64| format!("task A exit={exit}\ntask B start={start}\n{}", v9());
    assert_eq!(counts(&lifetimes(150, 180)), [0, 0, 0, 0, 1]);
    assert_eq!(counts(&lifetimes(181, 180)), [1, 0, 0, 0, 0]);
}

#[test]
fn v9_readers_of_one_lock_cannot_deadlock_unless_a_writer_waits_between_them() {
    let shared = v9().replace("acquire x", "acquire x shared").replace("release x", "release x shared");
    assert_eq!(counts(&format!("lock x pthread_rwlock\n{shared}")), [0, 1, 0, 0, 0]);
    let of_kernel = format!("lock x rwsem\nlock y mutex\n{shared}");
    let result = of(&of_kernel);
    assert_eq!(result.counts.inversions, 1);
    assert!(result.cycles[0].starts_with("needs_writer: "), "{:?}", result.cycles);
    // One writer is enough.
    let one = shared.replacen("x shared", "x", 1).replacen("release x shared", "release x", 1);
    assert_eq!(counts(&format!("lock x pthread_rwlock\n{one}")), [1, 0, 0, 0, 0]);
}

#[test]
fn v9_nothing_is_held_across_a_loss() {
    let lost = |at: i64, before: &str| v9().replace(before, &format!("{at} - lost count=1\n{before}"));
    assert_eq!(counts(&lost(105, "110 A acquire y")), [0; 5]);
    assert_eq!(counts(&lost(115, "120 A release y")), [1, 0, 0, 0, 0]);
}

#[test]
fn v9_three_tasks_in_a_ring_are_one_inversion_of_three_locks() {
    let text = nested(100, "A", "x A.c:1", "y A.c:2")
        + &nested(200, "B", "y B.c:1", "z B.c:2")
        + &nested(300, "C", "z C.c:1", "x C.c:2");
    let Result { cycles, .. } = of(&text);
    assert_eq!(cycles, ["inversion: x A.c:1 -> y A.c:2, y B.c:1 -> z B.c:2, z C.c:1 -> x C.c:2"]);
    assert_eq!(of_parts(&Parts::parse(&text), By::Lock, 2).counts, CycleCounts::default());
}

#[test]
fn a_wait_that_was_given_up_and_one_that_ended_count_once_each() {
    let text = v9().replace("210 B acquire x q.c:2", "205 B wait x q.c:2\n210 B abandon x wait=5");
    assert_eq!(counts(&text), [1, 0, 0, 0, 0]);
    let text = v9().replace("210 B acquire x q.c:2", "205 B wait x q.c:2\n210 B acquire x wait=5");
    let result = of(&text);
    assert_eq!(result.cycles, ["inversion: x p.c:1 -> y p.c:2, y q.c:1 -> x q.c:2"]);
    assert_eq!(result.found.cycles[0].steps[1].count, 1);
}

#[test]
fn equal_nestings_are_counted_and_their_tasks_named_once() {
    let again = |at: i64| nested(at, "C", "x p.c:1", "y p.c:2");
    let result = of(&format!("{}{}{}", v9(), again(300), again(400)));
    assert_eq!(result.counts.inversions, 1);
    let step = &result.found.cycles[0].steps[0];
    assert_eq!((step.count, step.tasks.len()), (3, 2));
}

#[test]
fn a_lock_that_a_task_has_already_makes_no_order() {
    let text = v9().replace("220 B release x", "215 B acquire y q.c:3\n216 B release y\n220 B release x");
    assert_eq!(of(&text).cycles, ["inversion: x p.c:1 -> y p.c:2, y q.c:1 -> x q.c:2"]);
    // A hold that is turned into a shared one does not wait.
    let text = "lock x rwsem\nlock y mutex
        100 A acquire x k:p.c:1\n110 A acquire y k:p.c:2\n115 A release x exclusive\n115 A acquire x shared k:p.c:3\n120 A release y\n130 A release x shared
        200 B acquire x k:q.c:1\n210 B acquire y k:q.c:2\n220 B release y\n230 B release x";
    assert_eq!(counts(text), [0; 5]);
}

#[test]
fn a_hold_whose_release_was_not_seen_ends_when_another_task_has_the_lock() {
    let text = "100 A acquire x p.c:1\n150 B acquire x q.c:0\n160 B release x\n170 A acquire y p.c:2\n180 A release y\n".to_owned()
        + V9_B;
    assert_eq!(counts(&text), [0; 5]);
    // The order of rows of one nanosecond does not matter.
    let text = "100 A acquire x p.c:1\n110 B acquire x q.c:0\n110 A acquire y p.c:2\n110 A release y\n110 A release x\n115 B release x\n".to_owned()
        + V9_B;
    assert_eq!(counts(&text), [1, 0, 0, 0, 0]);
}

#[test]
fn locks_of_two_processes_and_of_the_kernel_do_not_meet() {
    let locks = |x: &str, y: &str| format!("lock x {x}\nlock y {y}\n{}", v9());
    assert_eq!(counts(&locks("pthread_mutex pid=1", "pthread_mutex pid=2")), [0; 5]);
    assert_eq!(counts(&locks("pthread_mutex pid=1", "mutex")), [0; 5]);
    assert_eq!(counts(&locks("rwsem", "mutex")), [1, 0, 0, 0, 0]);
    // A lock of the program around locks of the kernel is a gate.
    let gated =
        format!("90 A acquire g p.c:0\n{V9_A}140 A release g\n190 B acquire g q.c:0\n{V9_B}240 B release g");
    assert_eq!(counts(&format!("lock x rwsem\nlock y mutex\n{gated}")), [0, 0, 1, 0, 0]);
}

#[test]
fn counting_semaphores_and_idle_locks_make_no_inversion() {
    let locks = |kind: &str| format!("lock x {kind}\nlock y mutex\n{}", v9());
    assert_eq!(counts(&locks("semaphore")), [0, 1, 0, 0, 0]);
    for idle in ["condvar", "thread"] {
        assert_eq!(counts(&format!("lock x {idle}\n{}", v9())), [0; 5], "{idle}");
    }
}

#[test]
fn a_lock_that_tasks_hold_while_they_wait_for_the_workers_is_a_gate() {
    let behind = |a: &str, b: &str| {
        let boss = |at: i64, boss: &str, work: &str| {
            format!(
                "{at} {boss} acquire g p.c:0\n{} {boss} wait s{boss} p.c:9\n{work}{} {boss} acquire s{boss} p.c:9 wait=49\n{} {boss} release g\n",
                at + 1,
                at + 50,
                at + 51
            )
        };
        let locks = "lock x mutex\nlock y mutex\nlock sT barrier\nlock sU barrier\n";
        counts(&format!("{locks}{}{}", boss(90, a, V9_A), boss(190, b, V9_B)))
    };
    assert_eq!(behind("T", "U"), [0, 0, 1, 0, 0]);
    assert_eq!(behind("T", "T"), [1, 0, 0, 0, 0], "one task may wait for both");
}

#[test]
fn tasks_that_hold_their_locks_at_a_barrier_and_go_on_behind_it_can_deadlock() {
    let text = "lock b barrier\n100 A acquire x p.c:1\n101 B acquire y q.c:1\n110 A wait b p.c:2\n111 B wait b q.c:2\n\
                120 A acquire b p.c:2 wait=10\n121 A wait y p.c:3\n122 B acquire b q.c:2 wait=11\n123 B wait x q.c:3\n";
    let result = of(text);
    assert_eq!(result.cycles, ["inversion: x p.c:1 -> y p.c:3, y q.c:1 -> x q.c:3"]);
    assert!(result.found.cycles[0].has_deadlocked);
}

#[test]
fn other_held_locks_do_not_make_another_cycle_unless_they_all_are_gates() {
    // A holds g the first time only.
    let first = format!("90 A acquire g p.c:0\n{V9_A}140 A release g\n");
    let again = "150 A acquire x p.c:1\n160 A acquire y p.c:2\n170 A release y\n180 A release x\n";
    let second = format!("190 B acquire g q.c:0\n{V9_B}240 B release g");
    assert_eq!(counts(&format!("{first}{second}")), [0, 0, 1, 0, 0]);
    let result = of(&format!("{first}{again}{second}"));
    assert_eq!(result.cycles, ["inversion: x p.c:1 -> y p.c:2, y q.c:1 -> x q.c:2"]);
    assert_eq!(result.found.cycles[0].steps[0].count, 2);
}

#[test]
fn a_deadlock_at_the_end_is_named_in_its_inversion() {
    let text = "100 A acquire x p.c:1\n110 B acquire y q.c:1\n120 A wait y p.c:2\n130 B wait x q.c:2\n";
    let result = of(text);
    assert_eq!(result.cycles, ["inversion: x p.c:1 -> y p.c:2, y q.c:1 -> x q.c:2"]);
    assert!(result.found.cycles[0].has_deadlocked);
    let ended = of(&format!("{text}140 B abandon x wait=10\n"));
    assert!(ended.counts.inversions == 1 && !ended.found.cycles[0].has_deadlocked);
}

/// Two parents and two children: each task locks another pair of them.
const CLASSES: &str = "lock p1 pthread_mutex name=parent\nlock p2 pthread_mutex name=parent\nlock c1 pthread_mutex name=child\nlock c2 pthread_mutex name=child
    100 A acquire p1 p.c:1\n110 A acquire c1 p.c:2\n120 A release c1\n130 A release p1
    200 B acquire c2 q.c:1\n210 B acquire p2 q.c:2\n220 B release p2\n230 B release c2";

#[test]
fn classes_are_in_opposite_orders_though_no_two_locks_are() {
    let parts = Parts::parse(CLASSES);
    assert_eq!(of_parts(&parts, By::Lock, 4).counts, CycleCounts::default());
    let classes = of_parts(&parts, By::Class, 4);
    let [parent, child] = ["pthread_mutex:parent", "pthread_mutex:child"];
    assert_eq!(
        classes.cycles,
        [format!("inversion: {parent} p.c:1 -> {child} p.c:2, {child} q.c:1 -> {parent} q.c:2")]
    );
    // Another process has classes of its own.
    let other = CLASSES
        .replace("c2 pthread_mutex", "c2 pthread_mutex pid=7")
        .replace("p2 pthread_mutex", "p2 pthread_mutex pid=7");
    assert_eq!(of_parts(&Parts::parse(&other), By::Class, 4).counts, CycleCounts::default());
}

#[test]
fn a_class_inside_itself_counts_only_if_two_locks_were_taken_in_both_orders() {
    let locks =
        "lock x pthread_mutex name=node\nlock y pthread_mutex name=node\nlock z pthread_mutex name=node\n";
    let once = of_parts(&Parts::parse(&format!("{locks}{V9_A}{}", V9_B.replace('x', "z"))), By::Class, 4);
    assert_eq!(once.counts, CycleCounts::default());
    let both = of_parts(&Parts::parse(&format!("{locks}{}", v9())), By::Class, 4);
    assert_eq!(both.counts.inversions, 1);
}

#[test]
fn a_class_is_gated_by_a_lock_that_is_always_held() {
    let gated = |one: &str, other: &str| {
        format!(
            "90 A acquire {one} p.c:0\n{V9_A}140 A release {one}\n190 B acquire {other} q.c:0\n{V9_B}240 B release {other}"
        )
    };
    let class = |text: &str| of_parts(&Parts::parse(text), By::Class, 4).counts;
    assert_eq!(class(&gated("g", "g")).gated, 1);
    let two = "lock g pthread_mutex name=gate\nlock h pthread_mutex name=gate\n";
    assert_eq!(class(&format!("{two}{}", gated("g", "h"))).inversions, 1);
    // The same nesting without the lock of the other task: it is not always held.
    let sometimes = format!("{two}{}", gated("g", "g"));
    let more = "300 A acquire h p.c:0\n301 A acquire x p.c:1\n302 A acquire y p.c:2\n303 A release y\n304 A release x\n305 A release h";
    assert_eq!(class(&sometimes).gated, 1);
    assert_eq!(class(&format!("{sometimes}\n{more}")).inversions, 1);
}

#[test]
fn a_search_without_an_end_is_cut() {
    let mut text = String::new();
    for at in 0..40 {
        text += &nested(100 + 20 * at, "A", &format!("x p.c:{at}"), "y p.c:99");
        text += &nested(110 + 20 * at, "B", &format!("y q.c:{at}"), "x q.c:99");
    }
    let result = of(&text);
    assert_eq!(
        (result.counts.inversions, result.found.cycles.len(), result.found.is_cut),
        (1000, 1000, true)
    );
}
