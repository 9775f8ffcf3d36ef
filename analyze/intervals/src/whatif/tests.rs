//! Replays of single histories, case by case.

use trace_format::{Event, LockRow, Mode, RunInfo, TaskRow, run_info::Covers};

use super::{
    Action, Baseline, Builder, Changes, HeldSleep, MILLION, Prediction, Program, Readers, Refusal, ShardBy,
    Variant, replay,
};
use crate::{
    context::{Context, TaskStart},
    critical::settle,
    engine::Rules,
    testing::{Parts, V6},
};

/// Returns facts about these locks and tasks; the stack of an acquisition is its site.
pub(super) fn context<'a>(
    info: &RunInfo,
    locks: &'a [LockRow],
    tasks: &'a [TaskRow],
    covers: Covers,
) -> Context<'a> {
    let lock = |id: trace_format::LockId| locks.get(usize::try_from(id.0).ok()?);
    let row = |task: trace_format::TaskId| tasks.get(usize::try_from(task.0).ok()?);
    let start = move |task| TaskStart::of(task, row);
    Context {
        rules: Rules::new(info, locks),
        kind: Box::new(move |id| lock(id).map(|row| row.kind)),
        idle: Box::new(move |id, _| lock(id).is_some_and(|row| row.kind.is_idle())),
        site: Box::new(|_, stack| stack.map_or(0, |stack| stack.0.unsigned_abs())),
        start: Box::new(start),
        tasks: tasks.iter().map(|task| task.id).collect(),
        covers,
        cpus: if covers == Covers::All { 2 } else { 0 },
    }
}

pub(super) fn build(events: &[Event], context: &Context<'_>, from_ns: i64) -> Program {
    let (mut rows, mut now_ns) = (events.to_vec(), i64::MIN);
    settle(&mut rows, &mut now_ns);
    let mut builder = Builder::new(context, false, from_ns);
    rows.iter().for_each(|row| builder.push(row));
    builder.finish()
}

/// Returns the program of these rows, in the order of their times.
fn program_with(text: &str, covers: Covers) -> Program {
    let parts = parts(text);
    build(&parts.events, &context(&parts.info, &parts.locks, &parts.tasks, covers), 0)
}

fn parts(text: &str) -> Parts {
    let mut lines: Vec<&str> = text.lines().collect();
    // Locks and tasks have no time.
    lines.sort_by_key(|line| line.split_whitespace().next().and_then(|word| word.parse::<i64>().ok()));
    Parts::parse(&lines.join("\n"))
}

fn program(text: &str) -> Program {
    program_with(text, Covers::None)
}

fn predict(program: &Program, change: impl FnOnce(&mut Changes)) -> Prediction {
    let mut changes = Changes::none(program);
    change(&mut changes);
    let locks: Vec<usize> = (0..program.locks.len()).collect();
    Baseline::new(program, &[]).predict(&changes, &locks)
}

/// Returns the length of the changed run and the waits for its first lock.
fn changed(program: &Program, change: impl FnOnce(&mut Changes)) -> (i64, i64) {
    let prediction = predict(program, change);
    (prediction.run.changed_ns, prediction.waits[0].changed_ns)
}

#[test]
fn v6_has_the_times_of_the_definition() {
    let program = program(V6);
    assert_eq!(program.recorded_ns, 145);
    assert_eq!((program.locks[0].waited_ns, program.locks[0].handoff_ns), (186, [3; 3]));
    let unchanged = predict(&program, |_| {});
    assert_eq!((unchanged.run.replayed_ns, unchanged.waits[0].replayed_ns), (145, 186));
    assert_eq!((unchanged.run.fit_ppm(0), unchanged.run.ratio_ppm()), (0, MILLION));
    assert_eq!(unchanged.refusal, None);

    let half = predict(&program, |changes| changes.locks[0].scaled.push((None, 500_000)));
    assert_eq!((half.run.changed_ns, half.waits[0].changed_ns), (85, 96));
    assert_eq!(half.run.ratio_ppm(), 586_206);
    assert_eq!(changed(&program, |changes| changes.locks[0].handoff_ns = Some(0)), (130, 150));
    assert_eq!(changed(&program, |changes| changes.locks[0].removed = true), (60, 0));
    assert_eq!(changed(&program, |changes| changes.shard(&program, 0, 3, ShardBy::Task)), (60, 0));
    let same = predict(&program, |changes| changes.locks[0].scaled.push((None, MILLION)));
    assert_eq!(same.run.ratio_ppm(), MILLION);
}

/// Returns rounds of tasks that compute for `work` and hold a lock for `hold`, without hand-offs.
fn rounds(tasks: usize, rounds: usize, work: i64, hold: i64) -> Program {
    let names: Vec<String> = (0..tasks).map(|task| format!("T{task}")).collect();
    let mut text: String = names.iter().map(|name| format!("task {name} start=0\n")).collect();
    let mut rows: Vec<(i64, String)> = Vec::new();
    // One after the other: what the tasks do is the same in any order.
    let mut now = 0;
    for name in &names {
        let mut at = 0;
        for _ in 0..rounds {
            at += work;
            rows.push((now + at, format!("{name} acquire m")));
            at += hold;
            rows.push((now + at, format!("{name} release m")));
        }
        text = text.replace(&format!("task {name} start=0"), &format!("task {name} start={now}"));
        now += at;
    }
    rows.iter().for_each(|(ns, row)| text.push_str(&format!("{ns} {row}\n")));
    let mut program = program(&text);
    program.tasks.iter_mut().for_each(|task| task.start_ns = 0);
    program
}

#[test]
fn a_round_takes_the_longer_of_all_holds_and_of_work_and_hold() {
    for (factor, round) in [(1_000_000, 800), (500_000, 400), (250_000, 325)] {
        let length = |count: usize| {
            let program = rounds(8, count, 300, 100);
            changed(&program, |changes| changes.locks[0].scaled.push((None, factor))).0
        };
        assert_eq!(length(41) - length(40), round);
    }
}

#[test]
fn the_hold_that_was_taken_last_is_scaled_and_only_at_its_site() {
    let text = "0 A acquire x a.c:1\n10 A acquire y a.c:2\n30 A release y\n40 A release x
        50 A acquire x a.c:3\n90 A release x";
    let program = program(text);
    let scaled = |lock: usize, site: Option<u32>| {
        changed(&program, |changes| changes.locks[lock].scaled.push((site, 0))).0
    };
    let site = |at: usize| {
        let is_it = |action: &&Action| matches!(action, Action::Acquire { .. });
        match program.tasks[0].actions.iter().filter(is_it).nth(at) {
            Some(Action::Acquire { site, .. }) => Some(*site),
            _ => None,
        }
    };
    assert_eq!(program.recorded_ns, 90);
    assert_eq!((scaled(0, None), scaled(1, None)), (30, 70));
    assert_eq!((scaled(0, site(0)), scaled(0, site(2))), (70, 50));
}

#[test]
fn sleep_and_time_without_a_processor_are_apart() {
    let text = "0 A acquire x\n40 A offcpu wait=30 blocked=20 runq=10 state=interruptible\n50 A release x
        70 A offcpu wait=15 state=runnable\n80 A acquire x\n90 A release x";
    let program = program_with(text, Covers::ContendedHolds);
    let run = |change: fn(&mut Changes)| changed(&program, change).0;
    assert_eq!(run(|_| {}), 90);
    assert_eq!(run(|changes| changes.locks[0].sleep = HeldSleep::LeftOut), 70);
    assert_eq!(run(|changes| changes.locks[0].sleep = HeldSleep::Later), 90, "the task sleeps as long");
    assert_eq!(run(|changes| changes.locks[0].no_preempt = true), 80, "not outside of holds");
    assert_eq!(run(|changes| changes.locks[0].scaled.push((None, 0))), 60, "sleep is not work");
    // The processors are part of the replay then, and others have them while the only task is ready.
    let program = program_with(text, Covers::All);
    assert_eq!(
        (program.cpus, program.others.as_slice()),
        (Some(2), &[(30, 2), (40, 0), (55, 2), (70, 0)][..])
    );
    assert_eq!(program.facts.others_ns, 2 * (10 + 15));
    let mut half = Changes::none(&program);
    half.locks[0].scaled.push((None, 500_000));
    let length = |changes: &Changes, variant| replay(&program, changes, variant, &[]).ns;
    let none = Changes::none(&program);
    assert_eq!([Variant::AS_RECORDED, Variant::MAIN].map(|variant| length(&none, variant)), [90, 65]);
    // 5, 20 asleep, 5; others until 40; 15; others from 55 to 70; 5.
    assert_eq!([Variant::AS_RECORDED, Variant::MAIN].map(|variant| length(&half, variant)), [75, 50]);
    let prediction = predict(&program, |changes| changes.locks[0].scaled.push((None, 500_000)));
    assert_eq!((prediction.run.fit_ppm(0), prediction.run.changed_ns), (0, 90 * 50 / 65));
    assert_eq!(
        (prediction.least_ppm, prediction.greatest_ppm),
        (769_230, 833_333),
        "alone, and beside others"
    );
}

#[test]
fn work_needs_a_processor() {
    let task = |name: &str| format!("0 {name} acquire {name}x\n100 {name} release {name}x\n");
    let text = format!("{}{}{}", task("A"), task("B"), task("C"));
    let mut program = program(&text);
    assert_eq!(changed(&program, |_| {}).0, 100);
    assert_eq!(changed(&program, |changes| changes.cpus = Some(2)).0, 200);
    assert_eq!(changed(&program, |changes| changes.cpus = Some(1)).0, 300);
    program.slice_ns = 10;
    assert_eq!(changed(&program, |changes| changes.cpus = Some(2)).0, 150);
}

#[test]
fn a_program_has_the_processors_on_which_its_tasks_were_seen_if_they_had_to_wait_for_them() {
    let program_on = |row: fn(i64) -> String, cpu: fn(usize) -> i32, covers| {
        let rows: String = (1..60).map(row).collect();
        let mut parts = parts(&format!("0 A acquire x\n{rows}700 A release x"));
        parts.events.iter_mut().enumerate().for_each(|(at, event)| event.cpu = Some(cpu(at)));
        let context = Context { cpus: 4, ..context(&parts.info, &parts.locks, &parts.tasks, covers) };
        build(&parts.events, &context, 0).cpus
    };
    let ready = |at: i64| format!("{} A offcpu wait=5 state=runnable\n", 10 * at);
    let asleep = |at: i64| format!("{} A offcpu wait=5 state=interruptible\n", 10 * at);
    assert_eq!(program_on(ready, |_| 3, Covers::All), Some(1));
    assert_eq!(program_on(ready, |at| (at % 2) as i32, Covers::ContendedHolds), Some(2));
    assert_eq!(program_on(asleep, |_| 3, Covers::All), Some(4), "it needed no other");
    assert_eq!(
        program_on(
            |at| if at < 10 { format!("{at} A offcpu wait=1 state=runnable\n") } else { String::new() },
            |_| 3,
            Covers::All
        ),
        Some(4),
        "too few"
    );
}

#[test]
fn without_off_cpu_times_work_needs_the_processors_of_the_machine_and_a_replay_that_takes_longer_is_refused()
{
    let task = |name: &str| format!("0 {name} acquire {name}x\n100 {name} release {name}x\n");
    let parts = parts(&format!("{}{}{}", task("A"), task("B"), task("C")));
    let predict_on = |cpus| {
        let context = Context { cpus, ..context(&parts.info, &parts.locks, &parts.tasks, Covers::None) };
        predict(&build(&parts.events, &context, 0), |changes| changes.locks[0].scaled.push((None, 500_000)))
    };
    assert_eq!(predict_on(3).refusal, None);
    assert_eq!(
        predict_on(1).refusal,
        Some(Refusal::Run { fit_ppm: 2_000_000, has_all_states: false }),
        "300 of 100 ns: they slept, or had no processor"
    );
}

#[test]
fn a_task_that_was_signalled_goes_on_when_it_is_signalled() {
    let text = "lock c condvar\n0 A acquire x\n50 A wake c\n50 A release x\n10 B wait c\n54 B acquire c\n60 B acquire x\n70 B release x";
    let program = program(text);
    let run = |change: fn(&mut Changes)| changed(&program, change).0;
    assert_eq!(program.recorded_ns, 70);
    assert_eq!(run(|_| {}), 70);
    assert_eq!(run(|changes| changes.locks[0].scaled.push((None, 500_000))), 40, "25 + 4 + 6 + 5");
    let unknown = text.replace("50 A wake c\n", "");
    let program = self::program(&unknown);
    assert_eq!(program.facts.unknown_wakers, 1);
    assert_eq!(changed(&program, |changes| changes.locks[0].scaled.push((None, 500_000))).0, 65);
}

const PHASES: &str =
    "lock t thread\nlock u thread\ntask M start=0\ntask A start=10 parent=M\ntask B start=80 parent=M
    10 M init t\n15 M wait t\n20 A acquire x\n60 A release x\n70 A wake t\n72 M acquire t wait=57
    80 M init u\n85 M wait u\n90 B acquire y\n100 B release y\n110 B wake u\n111 M acquire u wait=26";

#[test]
fn a_phase_begins_when_the_threads_of_the_one_before_are_joined() {
    let program = program(PHASES);
    let run = |name: &str, factor: i64| {
        let lock = program.lock_index(parts(PHASES).lock_id(name)).unwrap();
        changed(&program, |changes| changes.locks[lock].scaled.push((None, factor))).0
    };
    assert_eq!((program.recorded_ns, program.facts.later_tasks, program.facts.unknown_wakers), (111, 0, 0));
    assert_eq!(run("x", MILLION), 111);
    assert_eq!(run("x", 500_000), 91, "the second phase begins 20 earlier");
    assert_eq!([run("x", 0), run("y", 0), run("x", 2 * MILLION)], [71, 101, 151]);
    // Without the creator of B, it starts when it did.
    let unknown = program_with(&PHASES.replace("start=80 parent=M", "start=80"), Covers::None);
    assert_eq!(unknown.facts.later_tasks, 1);
    assert_eq!(changed(&unknown, |changes| changes.locks[0].scaled.push((None, 500_000))).0, 111);
}

#[test]
fn a_join_of_a_thread_that_has_ended_waits_for_it_if_it_ends_later() {
    let text =
        "lock t thread\nlock u thread\ntask M start=0\ntask A start=10 parent=M\ntask B start=12 parent=M
        15 M wait t\n20 A acquire x\n60 A release x\n60 A wake t\n12 B acquire y\n40 B release y\n40 B wake u
        62 M acquire t wait=47\n63 M acquire u wait=0";
    let program = program(text);
    let x = program.lock_index(parts(text).lock_id("x")).unwrap();
    assert_eq!(changed(&program, |_| {}).0, 63);
    assert_eq!(changed(&program, |changes| changes.locks[x].scaled.push((None, 0))).0, 40, "B ends at 40");
}

#[test]
fn a_thread_may_hold_a_lock_from_its_start_and_its_creator_may_have_no_rows() {
    let text = "task M start=0\ntask A start=10 parent=M\n5 M acquire z\n8 M release z\n20 A release x\n30 A try_fail x";
    let held = program(text);
    let a = &held.tasks[1];
    assert!(matches!(a.actions[..2], [Action::Await { .. }, Action::Acquire { .. }]), "{a:?}");
    assert_eq!(changed(&held, |_| {}).0, 20);
    let alone = program("task M start=0\ntask A start=10 parent=M\n20 A acquire x\n30 A release x");
    assert_eq!((alone.tasks[0].start_ns, alone.recorded_ns), (0, 20));
    assert_eq!(alone.tasks[0].actions[0], Action::Work(10));
    assert_eq!(changed(&alone, |_| {}).0, 20);
}

#[test]
fn all_leave_a_barrier_when_the_last_one_comes() {
    let text = "lock c barrier\n0 A acquire x\n40 A release x\n5 B acquire y\n20 B release y\n20 B wait c\n40 A wait c\n40 A acquire c\n43 B acquire c\n50 B acquire y\n51 B release y\n50 A acquire x\n60 A release x";
    let program = program(text);
    assert_eq!((program.rounds.clone(), program.latency_ns.clone()), (vec![2], vec![3]));
    let run = |lock: usize| changed(&program, |changes| changes.locks[lock].scaled.push((None, 0))).0;
    let index = |name| program.lock_index(parts(text).lock_id(name)).unwrap();
    assert_eq!(changed(&program, |_| {}).0, 60);
    assert_eq!(run(index("x")), 33, "B comes last at 20, A leaves at 23 and works for 10");
}

#[test]
fn readers_share_and_what_is_drawn_has_an_interval() {
    let program = program(V6);
    let all = predict(&program, |changes| changes.locks[0].readers = Some(Readers::Share(MILLION)));
    assert_eq!((all.run.changed_ns, all.waits[0].changed_ns), (60, 0));
    let half = predict(&program, |changes| changes.locks[0].readers = Some(Readers::Share(500_000)));
    assert!(half.least_ppm < half.greatest_ppm, "{half:?}");
    let site = Readers::Sites(program.locks[0].sites.clone());
    assert_eq!(changed(&program, |changes| changes.locks[0].readers = Some(site)), (60, 0));
}

#[test]
fn a_lock_that_is_locked_again_by_its_owner_does_not_block_it() {
    let program = program(
        "0 A acquire x\n10 A acquire x\n20 A release x\n30 A release x\n15 B wait x\n30 B acquire x\n40 B release x",
    );
    assert_eq!(changed(&program, |_| {}), (40, 15));
}

#[test]
fn a_hold_from_before_the_start_is_one_from_the_start() {
    let program = program("5 B wait x\n20 A release x\n22 B acquire x\n30 B release x");
    assert_eq!(changed(&program, |_| {}), (30, 17));
}

#[test]
fn a_replay_that_differs_from_the_recording_is_refused() {
    // B was woken late by chance; the median says otherwise.
    let late = "0 A acquire x\n0 B wait x\n10 A release x\n12 B acquire x\n20 B release x\n20 A wait x\n90 A acquire x wait=70\n95 A release x";
    let prediction = predict(&program(late), |_| {});
    assert!(matches!(prediction.refusal, Some(Refusal::Run { .. })), "{prediction:?}");
    assert_eq!(predict(&program("0 A init x"), |_| {}).refusal, Some(Refusal::Empty));
}

#[test]
fn tasks_that_take_locks_in_opposite_orders_may_end_in_a_deadlock() {
    let text = "0 A acquire x\n10 A acquire y\n20 A release y\n30 A release x\n0 B acquire z\n40 B release z\n40 B acquire y\n50 B acquire x\n60 B release x\n70 B release y";
    let program = program(text);
    let z = program.lock_index(parts(text).lock_id("z")).unwrap();
    assert_eq!(predict(&program, |_| {}).refusal, None);
    let refusal = predict(&program, |changes| changes.locks[z].scaled.push((None, 125_000))).refusal;
    assert_eq!(refusal, Some(Refusal::Stuck));
}

#[test]
fn a_replay_that_is_stuck_before_any_task_ended_is_not_one_without_time() {
    // A was woken late for x by chance. In the replay it has y before B, and waits for B, which wants y.
    let text = "lock c condvar\n0 A acquire x\n0 B wait x\n10 A release x\n11 B acquire x\n11 A wait x\n20 B release x\n21 A acquire x\n21 B wait x\n\
                30 A release x\n31 B acquire x\n31 A wait x\n40 B release x\n90 B acquire y\n100 B release y\n110 A acquire x wait=79\n\
                111 A acquire y\n112 A wait c\n120 B wake c\n121 A acquire c wait=9\n130 A release y\n131 A release x";
    let refusal = predict(&program(text), |_| {}).refusal;
    assert_eq!(refusal, Some(Refusal::Stuck));
}

#[test]
fn who_waits_first_is_first_where_nobody_overtakes() {
    let text = "0 A acquire x\n10 B wait x\n20 A release x\n21 A acquire x\n30 A release x\n35 B acquire x\n40 B release x\n50 A acquire x\n51 A release x";
    let program = program(text);
    assert_eq!(program.locks[0].handoff_ns, [5; 3]);
    let replayed = replay(&program, &Changes::none(&program), Variant::MAIN, &[]);
    assert_eq!(
        replayed.waited_ns,
        [25],
        "A takes it again at 21, and frees it at 30; B tried at 25 and again at 35"
    );
    let fifo = replay(&program, &Changes::none(&program), Variant { fifo: true, ..Variant::MAIN }, &[]);
    assert_eq!(fifo.waited_ns, [29], "B has it from 25 to 30, and A waits from 21 to 35");
}

#[test]
fn a_hand_off_takes_the_time_until_the_woken_waiter_runs() {
    // B is woken at 10, runs at 40 and is too late; the release at 50 wakes it again, and it runs at 80.
    let text = "0 A acquire x\n5 B wait x\n10 A release x\n12 A acquire x\n20 A release x\n30 A acquire x\n50 A release x
        55 A acquire x\n78 A release x\n40 B offcpu wait=30 state=interruptible\n80 B offcpu wait=35 state=interruptible
        81 B acquire x\n90 B release x";
    assert_eq!(program_with(text, Covers::All).locks[0].handoff_ns, [30; 3]);
    let unknown: String = text.lines().filter(|line| !line.contains("offcpu")).collect::<Vec<_>>().join("\n");
    assert_eq!(program(&unknown).locks[0].handoff_ns, [3; 3], "since the last release");
}

#[test]
fn a_writer_keeps_new_readers_out_of_a_kernel_semaphore_only() {
    let text = |kind: &str| {
        format!(
            "lock x {kind}\n0 A acquire x shared\n5 B wait x\n10 C acquire x shared\n15 C release x shared\n20 A release x shared\n20 B acquire x\n30 B release x"
        )
    };
    let waited = |kind: &str| changed(&program(&text(kind)), |_| {}).1;
    assert_eq!(waited("pthread_rwlock"), 15);
    assert_eq!(waited("rwsem"), 15 + 20);
}

#[test]
fn the_modes_of_holds_are_in_the_steps() {
    let program = program("lock x pthread_rwlock\n0 A acquire x shared\n10 A release x shared");
    let expected = [
        Action::Acquire { lock: 0, site: 0, mode: Mode::Shared },
        Action::Work(10),
        Action::Release { lock: 0, mode: Mode::Shared },
    ];
    assert_eq!(program.tasks[0].actions, expected);
}
