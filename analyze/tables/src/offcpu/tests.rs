//! Off-CPU times: sums against a slow model, blocks, and every format.

use proptest::{collection::vec, option, prelude::*};
use trace_format::{Event, StackId, Syscall, TaskId};

use super::{NO_WAKER, *};
use crate::testing::{self, Parts, cases, text_of};
use intervals::Filter;
use output::{Format, Page};

const THREE: &str = "source off_cpu kinds=none
    task A pid=10 tid=11 comm=waiter\ntask B pid=10 tid=12 comm=waker\ntask C pid=20 tid=20 comm=sleeper
    1_000 A offcpu k:__schedule<k:futex_wait<await_turn<main wait=400 blocked=300 runq=100 state=interruptible peer=B at=k:try_to_wake_up<k:futex_wake<hand_over
    2_000 A offcpu k:__schedule<k:futex_wait<await_turn<main wait=600 blocked=600 runq=0 state=interruptible peer=B at=k:try_to_wake_up<k:futex_wake<hand_over
    2_500 C offcpu k:__schedule<k:do_nanosleep<sleep_here wait=900 blocked=890 runq=10 state=interruptible syscall=nanosleep peer=B at=k:try_to_wake_up<k:hrtimer_wakeup
    2_600 C offcpu k:__schedule<spin wait=50 blocked=0 runq=50 state=runnable syscall=-";

fn of(text: &str, options: &Options) -> OffCpu {
    offcpu(&[testing::trace(text).trace], &[], options).unwrap()
}

fn figures(by: By) -> Vec<(String, i64, i64)> {
    let table = of(THREE, &Options { by, ..Options::default() });
    table.rows.iter().map(|row| (row.name.clone(), row["off_cpu_ns"], row["count"])).collect()
}

#[test]
fn each_key_adds_up_the_same_times() {
    let row = |name: &str, ns, count| (name.to_owned(), ns, count);
    let (a, b, c) = ("waiter (tid 11, pid 10)", "waker (tid 12, pid 10)", "sleeper (pid 20)");
    assert_eq!(
        figures(By::Pair),
        [
            row(&format!("{a} woken by {b}"), 1000, 2),
            row(&format!("{c} woken by {b}"), 900, 1),
            row(c, 50, 1)
        ]
    );
    assert_eq!(figures(By::Task), [row(a, 1000, 2), row(c, 950, 2)]);
    assert_eq!(figures(By::Waker), [row(b, 1900, 3), row(NO_WAKER, 50, 1)]);
    assert_eq!(figures(By::State), [row("interruptible", 1900, 3), row("runnable", 50, 1)]);
    let calls = [row("(unknown)", 1000, 2), row("nanosleep", 900, 1), row("no system call", 50, 1)];
    assert_eq!(figures(By::Syscall), calls);
    let stacks = ["futex_wait < await_turn < main", "do_nanosleep < sleep_here", "spin"];
    assert_eq!(figures(By::Stack), [row(stacks[0], 1000, 2), row(stacks[1], 900, 1), row(stacks[2], 50, 1)]);
}

#[test]
fn a_task_that_an_interrupt_found_on_the_cpu_woke_nobody() {
    let timer = |at: i64, task: &str, stack: &str| {
        let waker = format!("peer={task} at=k:hrtimer_wakeup<k:asm_sysvec_apic_timer_interrupt<{stack}");
        format!("{at} C offcpu k:schedule<nap wait=90 blocked=90 state=interruptible {waker}\n")
    };
    let text = format!("{}{}", timer(1_000, "A", "compute<main"), timer(2_000, "B", "k:do_read<read"));
    for (by, name) in [(By::Pair, "C (tid 101, pid 100) woken by (interrupt)"), (By::Waker, "(interrupt)")] {
        let table = of(&text, &Options { by, ..Options::default() });
        let rows: Vec<_> = table.rows.iter().map(|row| (row.name.as_str(), row["off_cpu_ns"])).collect();
        assert_eq!(rows, [(name, 180)]);
    }
    let blocks = text_of(|out| of(&text, &Options::default()).write(&Page::default(), out));
    assert!(blocks.contains("asm_sysvec_apic_timer_interrupt\n    hrtimer_wakeup\n    --"), "{blocks}");
    assert!(!blocks.contains("compute"), "{blocks}");
}

#[test]
fn a_terminal_shows_the_ends_of_a_long_stack() {
    let stack = (0..12).map(|at| format!("f{at}_")).collect::<Vec<_>>().join("<");
    let table = of(&format!("1_000 A offcpu {stack} wait=400 state=idle\n"), &Options::default());
    let written = |is_terminal, full| {
        let style = TextStyle { is_terminal, full, ..TextStyle::default() };
        text_of(|out| table.write(&Page { style, ..Page::default() }, out))
    };
    let short = written(true, false);
    assert!(short.contains("    f3_\n    ... 4 more frames; --full shows them\n    f8_\n"), "{short}");
    for whole in [written(true, true), written(false, false)] {
        assert!((0..12).all(|at| whole.contains(&format!("    f{at}_\n"))), "{whole}");
    }
}

#[test]
fn text_has_a_block_per_pair_and_other_formats_have_a_row() {
    let table = of(THREE, &Options { limit: Some(1), ..Options::default() });
    let text = text_of(|out| table.write(&Page::default(), out));
    let block = "1.95 µs off the CPU; each block: who woke, its stack, --, the stack that slept, its times

    waker:           waker (tid 12, pid 10)
    hand_over
    futex_wake
    try_to_wake_up
    --               --
    __schedule
    futex_wait
    await_turn
    main
    target:          waiter (tid 11, pid 10)
        1 µs (51.3 %), 2 times, at most 600 ns; asleep 900 ns, run queue 100 ns

... 2 more pairs
";
    let text = text.replace("1.00 µs", "1 µs");
    assert!(text.starts_with(block), "{text}");
    let csv = text_of(|out| table.write(&Format::Csv.into(), out));
    assert!(
        csv.starts_with(
            "off_cpu_ns,share_ppm,blocked_ns,runq_ns,runq_avg_ns,count,avg_ns,max_ns,name,pid,tid,comm,stack,"
        ),
        "{csv}"
    );
    assert!(csv.contains(",11,waiter,__schedule;futex_wait;await_turn;main,10,12,waker,"), "{csv}");
    for by in By::ALL {
        let table = of(THREE, &Options { by: *by, ..Options::default() });
        for format in Format::ALL.iter().filter(|format| !format.is_binary()) {
            let text = text_of(|out| table.write(&Page::from(*format), out));
            assert!(!text.is_empty(), "{by} {format}");
        }
    }
}

#[test]
fn states_and_filters_select_times() {
    let test = testing::trace(THREE);
    let traces = [test.trace];
    let preempted = offcpu(&traces, &[TaskState::Runnable], &Options::default()).unwrap();
    assert_eq!((preempted.rows.len(), preempted.total_ns), (1, 50));
    let task = Some("waiter".parse().unwrap());
    let waiter = of(THREE, &Options { filter: Filter { task, ..Filter::default() }, ..Options::default() });
    assert_eq!((waiter.rows.len(), waiter.total_ns), (1, 1000));
    let long = Filter { min_wait_ns: Some(600), ..Filter::default() };
    assert_eq!(of(THREE, &Options { filter: long, ..Options::default() }).total_ns, 1500);
}

#[test]
fn without_the_time_of_the_wake_up_all_of_a_sleep_counts_as_asleep() {
    let text = "source off_cpu kinds=none\n1000 A offcpu wait=400 state=interruptible syscall=flock\n2000 A offcpu wait=50 state=runnable";
    let table = of(text, &Options { by: By::State, ..Options::default() });
    let parts = table.rows.iter().map(|row| (row["off_cpu_ns"], row["blocked_ns"], row["runq_ns"]));
    assert_eq!(parts.collect::<Vec<_>>(), [(400, 400, 0), (50, 0, 50)]);
}

#[test]
fn a_trace_without_off_cpu_times_says_how_to_record_them() {
    let table = of(
        "source futex kinds=futex\nlock f futex\n100 A wait f\n200 A acquire f wait=100",
        &Options::default(),
    );
    assert!(table.rows.is_empty() && table.nothing().unwrap().contains("--off-cpu"));
    let limited = of(THREE, &Options::default());
    assert_eq!(limited.nothing(), None);
}

/// An off-CPU time: task, stack, waker, stack of the waker, state and system call, length.
type Time = (i32, Option<i32>, Option<i32>, Option<i32>, (Option<usize>, Option<i32>), i64);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(200)))]
    #[test]
    fn the_sums_of_each_key_are_those_of_a_slow_model(
        times in vec((0..3_i32, option::of(0..3_i32), option::of(0..3_i32), option::of(0..3_i32), (option::of(0..3_usize), option::of(-1..3_i32)), 1..5000_i64), 1..60),
    ) {
        // Stacks 0 and 2 have the same functions.
        let mut parts = Parts::parse(
            "source off_cpu kinds=none\ntask A comm=a\ntask B comm=b\ntask C comm=c
            10 A offcpu x<y wait=1\n11 A offcpu z wait=1\n12 A offcpu x<y<w wait=1",
        );
        parts.stacks[2].frames.truncate(2);
        parts.events.clear();
        for (at, (task, stack, waker, waker_stack, (state, syscall), ns)) in (0..).zip(&times) {
            let mut event = Event::new(100_000 + at, EventKind::OffCpu, 0);
            event.task = Some(TaskId(*task));
            event.stack = stack.map(StackId);
            event.peer_task = waker.map(TaskId);
            event.peer_stack = waker_stack.map(StackId);
            event.state = state.map(|at| TaskState::ALL[at]);
            event.syscall = syscall.and_then(Syscall::of_number);
            event.wait_ns = Some(*ns);
            parts.events.push(event);
        }
        let test = parts.write();
        let same = |stack: Option<i32>| stack.map(|stack| stack % 2);
        for by in By::ALL {
            let key = |(task, stack, waker, waker_stack, (state, syscall), _): &Time| {
                // The peer of a runnable task ran instead of it, and woke nobody.
                let was_runnable = state.is_some_and(|at| TaskState::ALL[at] == TaskState::Runnable);
                let waker = waker.filter(|_| !was_runnable);
                match by {
                By::Pair => format!("{task:?} {:?} {waker:?} {:?}", same(*stack), same(*waker_stack)),
                By::Stack => format!("{:?}", same(*stack)),
                By::Waker => format!("{waker:?}"),
                By::Task => format!("{task:?}"),
                By::State => format!("{state:?}"),
                By::Syscall => format!("{syscall:?}"),
            }};
            let mut model: Vec<(i64, i64, i64)> = Vec::new();
            let mut keys: Vec<String> = times.iter().map(key).collect();
            keys.sort();
            keys.dedup();
            for one in keys {
                let of_key: Vec<i64> = times.iter().filter(|time| key(time) == one).map(|time| time.5).collect();
                model.push((of_key.iter().sum(), of_key.len() as i64, *of_key.iter().max().unwrap()));
            }
            let table = offcpu(std::slice::from_ref(&test.trace), &[], &Options { by: *by, ..Options::default() }).unwrap();
            prop_assert!(table.rows.windows(2).all(|rows| rows[0]["off_cpu_ns"] >= rows[1]["off_cpu_ns"]));
            let mut found: Vec<_> = table.rows.iter().map(|row| (row["off_cpu_ns"], row["count"], row["max_ns"])).collect();
            found.sort_unstable();
            model.sort_unstable();
            prop_assert_eq!(found, model, "{}", by);
        }
    }
}
