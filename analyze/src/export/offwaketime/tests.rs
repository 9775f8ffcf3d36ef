//! The worked example of offwaketime's folded output, byte for byte, and its options.

use std::slice::from_ref;

use trace_format::{Event, Stack, TaskState};

use super::super::{Format, Of, Options, Written, write};
use super::*;
use crate::testing::{Parts, TestTrace, trace};
use output::AnalyzeError;

/// The stacks of the vector, leaf first as a trace has them, kernel frames first.
const TARGET: &str = "k:finish_task_switch<k:__schedule<k:schedule<k:futex_wait_queue<k:do_syscall_64<__lll_lock_wait<pthread_mutex_lock<work<start_thread";
const WAKER: &str =
    "k:try_to_wake_up<k:wake_up_q<k:futex_wake<k:do_syscall_64<__lll_unlock_wake<unlock<work2<start_thread";

/// The vector: two times off the CPU, 1 000 999 ns and 233 500 ns.
fn vector() -> TestTrace {
    trace(&format!(
        "source off_cpu kinds= holds=no
         task worker tid=11\ntask holder tid=12
         2000999 worker offcpu {TARGET} wait=1000999 peer=holder at={WAKER}
         3000000 worker offcpu {TARGET} wait=233500 peer=holder at={WAKER}"
    ))
}

fn export(trace: &TestTrace, format: Format, options: Options) -> (String, Written) {
    let options = Options { format, ..options };
    let mut out = Vec::new();
    let written = write(from_ref(&trace.trace), &options, &mut out).unwrap();
    (String::from_utf8(out).unwrap(), written)
}

fn seed(trace: &TestTrace, options: Options) -> String {
    export(trace, Format::Offwaketime, options).0
}

fn modern(trace: &TestTrace, options: Options) -> String {
    export(trace, Format::Offwaketime2, options).0
}

fn delimited() -> Options {
    Options { delimited: true, ..Options::default() }
}

#[test]
fn the_vector_comes_out_byte_for_byte_in_both_grammars_delimited_or_not() {
    let line = |delimiter: &str| {
        format!(
            "worker;start_thread;work;pthread_mutex_lock{delimiter}do_syscall_64;futex_wait_queue;schedule;__schedule;--;\
             wake_up_q;futex_wake;do_syscall_64{delimiter}unlock;work2;start_thread;holder 1233\n"
        )
    };
    let trace = vector();
    assert_eq!(seed(&trace, Options::default()), line(";;"));
    assert_eq!(seed(&trace, delimited()), line(";-;"));
    assert_eq!(modern(&trace, Options::default()), line(";"));
    assert_eq!(modern(&trace, delimited()), line(";-;"));
}

#[test]
fn the_form_without_folding_has_a_line_per_function_and_the_same_options() {
    let trace = vector();
    let text = |options: Options| {
        let (text, _) = export(&trace, Format::OffwaketimeText, options);
        text.lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect::<Vec<_>>()
            .join(";")
    };
    let of = |[waker_user, waker_kernel, kernel, user]: [&str; 4]| {
        format!("waker: holder 12;{waker_user}{waker_kernel}-- --;{kernel}{user}target: worker 11;1233;")
    };
    let [waker_user, waker_kernel] = ["start_thread;work2;unlock;", "do_syscall_64;futex_wake;wake_up_q;"];
    let [kernel, user] =
        ["__schedule;schedule;futex_wait_queue;do_syscall_64;", "pthread_mutex_lock;work;start_thread;"];
    assert_eq!(text(Options::default()), of([waker_user, waker_kernel, kernel, user]));
    let with = |half: &str| format!("{half}-;");
    let both = of([&with(waker_user), waker_kernel, &with(kernel), user]);
    assert_eq!(text(delimited()), both);
    let only = |space| Options { stacks: Some(space), ..Options::default() };
    assert_eq!(text(only(Space::User)), of([waker_user, "", "", user]));
    assert_eq!(text(only(Space::Kernel)), of(["", waker_kernel, kernel, ""]));
    let (bytes, _) = export(&trace, Format::OffwaketimeText, only(Space::User));
    assert!(bytes.starts_with("    waker:           holder 12\n    start_thread\n"), "{bytes}");
    assert!(bytes.ends_with("    target:          worker 11\n        1233\n\n"), "{bytes}");
}

#[test]
fn a_task_that_an_interrupt_found_on_its_cpu_is_no_waker_in_a_flame_graph() {
    let test = trace(
        "source off_cpu kinds= holds=no
         task sleeper tid=11\ntask other tid=12
         2000999 sleeper offcpu k:__schedule<nap<main wait=1000999 peer=other at=k:try_to_wake_up<k:asm_sysvec_timer<spin<main",
    );
    assert_eq!(
        modern(&test, Options { of: Of::OffCpu, ..Options::default() }),
        "sleeper;main;nap;__schedule;--;try_to_wake_up;asm_sysvec_timer;(interrupt) 1000\n"
    );
    assert!(modern(&test, Options::default()).contains("asm_sysvec_timer;spin;main;other"));
}

#[test]
fn stacks_that_were_lost_are_a_warning_with_their_number() {
    let mut parts = Parts::parse(
        "source off_cpu kinds= holds=no\ntask a tid=11\ntask b tid=12\n9000 a offcpu wait=5000 peer=b",
    );
    assert_eq!(export(&parts.write(), Format::Offwaketime2, Options::default()).1.notes, [""; 0]);
    parts.info.loss.stacks = 2;
    let (_, written) = export(&parts.write(), Format::Offwaketime2, Options::default());
    assert_eq!(written.notes, ["WARNING: 2 stack traces could not be displayed."]);
}

#[test]
fn with_stacks_of_one_space_only_the_seed_grammar_keeps_delimiters() {
    let trace = vector();
    let of = |space, delimited| Options { stacks: Some(space), delimited, ..Options::default() };
    let user = "worker;start_thread;work;pthread_mutex_lock;;--;;unlock;work2;start_thread;holder 1233\n";
    assert_eq!(seed(&trace, of(Space::User, false)), user);
    assert_eq!(seed(&trace, of(Space::User, true)), user.replace(";;", ";-;"));
    let kernel = "worker;;do_syscall_64;futex_wait_queue;schedule;__schedule;--;wake_up_q;futex_wake;do_syscall_64;;holder 1233\n";
    assert_eq!(seed(&trace, of(Space::Kernel, false)), kernel);
    for delimited in [false, true] {
        assert_eq!(modern(&trace, of(Space::User, delimited)), user.replace(";;", ";"));
        assert_eq!(modern(&trace, of(Space::Kernel, delimited)), kernel.replace(";;", ";"));
    }
}

#[test]
fn without_a_waker_only_empty_elements_follow_the_dashes() {
    let trace = trace(&format!(
        "source off_cpu kinds= holds=no\ntask worker tid=11\n9000 worker offcpu {TARGET} wait=5000"
    ));
    let target =
        "worker;start_thread;work;pthread_mutex_lock;;do_syscall_64;futex_wait_queue;schedule;__schedule";
    assert_eq!(seed(&trace, Options::default()), format!("{target};--;; 5\n"));
    assert_eq!(seed(&trace, delimited()), format!("{};--;-; 5\n", target.replace(";;", ";-;")));
    assert_eq!(modern(&trace, Options::default()), format!("{};--; 5\n", target.replace(";;", ";")));
}

#[test]
fn a_missing_stack_has_no_frames_and_keeps_its_delimiter_in_the_seed_grammar() {
    let trace = trace(&format!(
        "source off_cpu kinds= holds=no\ntask worker tid=11\ntask holder tid=12
         9000 worker offcpu wait=5000 peer=holder
         9500 worker offcpu k:finish_task_switch<k:schedule wait=6000 peer=holder at={WAKER}"
    ));
    assert_eq!(
        seed(&trace, Options::default()),
        "worker;;--;;holder 5\n\
         worker;;schedule;--;wake_up_q;futex_wake;do_syscall_64;;unlock;work2;start_thread;holder 6\n"
    );
    assert_eq!(
        modern(&trace, delimited()),
        "worker;--;holder 5\n\
         worker;schedule;--;wake_up_q;futex_wake;do_syscall_64;-;unlock;work2;start_thread;holder 6\n"
    );
}

#[test]
fn the_modern_grammar_marks_lost_stacks() {
    let mut parts = Parts::parse(
        "source off_cpu kinds= holds=no\ntask worker tid=11\ntask holder tid=12\ntask kthread tid=13
         8000 worker offcpu k:__schedule<work wait=4000 peer=holder at=k:try_to_wake_up<work2
         9000 worker offcpu wait=5000 peer=holder
         9500 kthread offcpu k:__schedule wait=6000",
    );
    parts.info.loss.stacks = 1;
    let trace = parts.write();
    assert_eq!(
        modern(&trace, Options::default()),
        "worker;work;__schedule;--;try_to_wake_up;work2;holder 4\n\
         worker;[Missed User Stack] -17;[Missed Kernel Stack];--;[Missed Kernel Stack];[Missed User Stack];holder 5\n\
         kthread;__schedule;--; 6\n"
    );
    assert!(seed(&trace, Options::default()).contains("worker;;--;;holder 5\n"));
}

#[test]
fn times_count_in_whole_microseconds_between_the_bounds() {
    let trace = trace(
        "source off_cpu kinds= holds=no\ntask a tid=11
         1000 a offcpu f wait=999\n3000 a offcpu g wait=1000\n9000 a offcpu h wait=5999\n99000 a offcpu i wait=60000",
    );
    assert_eq!(seed(&trace, Options::default()), "a;g;;--;; 1\na;h;;--;; 5\na;i;;--;; 60\n");
    let between = |min_us: i64, max_us: i64| {
        let filter = intervals::Filter { min_wait_ns: Some(min_us * 1000), ..intervals::Filter::default() };
        Options { filter, max_wait_ns: Some(max_us * 1000), ..Options::default() }
    };
    assert_eq!(seed(&trace, between(5, 60)), "a;h;;--;; 5\na;i;;--;; 60\n");
    assert_eq!(seed(&trace, between(2, 59)), "a;h;;--;; 5\n");
}

#[test]
fn lines_are_sorted_by_value_and_equal_lines_are_added_up() {
    // Two threads of one name, with stacks that differ in lines of the source alone.
    let trace = trace(
        "source off_cpu kinds= holds=no\ntask a tid=11 comm=w\ntask b tid=12 comm=w
         1000000 a offcpu x.c:10:f wait=30000\n2000000 b offcpu x.c:20:f wait=25000\n3000000 a offcpu g wait=40000",
    );
    assert_eq!(seed(&trace, Options::default()), "w;g;;--;; 40\nw;f;;--;; 55\n");
}

#[test]
fn stacks_of_klock_keep_all_frames_and_those_of_a_probe_lose_the_first() {
    let own = trace(
        "source off_cpu kinds= holds=no\ntask a tid=11\ntask b tid=12
         9000 a offcpu k:__schedule<k:schedule<read<main wait=5000 peer=b at=k:try_to_wake_up<k:pipe_write<write<main",
    );
    let whole = "a;main;read;;schedule;__schedule;--;try_to_wake_up;pipe_write;;write;main;b 5\n";
    assert_eq!(seed(&own, Options::default()), whole);
    let isra = trace(
        "source off_cpu kinds= holds=no\ntask a tid=11
         9000 a offcpu k:finish_task_switch.isra.0<k:__schedule<read<main wait=5000",
    );
    assert_eq!(seed(&isra, Options::default()), "a;main;;__schedule;--;; 5\n");
}

#[test]
fn user_frames_distinguish_threads_of_programs_from_kernel_threads() {
    let trace = trace(
        "source off_cpu kinds= holds=no\ntask prog tid=11\ntask kworker/0:1 tid=12
         9000 prog offcpu k:__schedule<main wait=5000\n9100 kworker/0:1 offcpu k:__schedule wait=6000
         9200 prog offcpu k:do_exit wait=7000",
    );
    let of = |space| Options { threads: Some(space), ..Options::default() };
    assert_eq!(seed(&trace, of(Space::User)), "prog;main;;__schedule;--;; 5\nprog;;do_exit;--;; 7\n");
    assert_eq!(seed(&trace, of(Space::Kernel)), "kworker/0:1;;__schedule;--;; 6\n");
}

#[test]
fn preemption_is_included_and_can_be_left_out() {
    let trace = trace(
        "source off_cpu kinds= holds=no\ntask a tid=11
         9000 a offcpu f wait=5000 state=runnable\n9100 a offcpu g wait=6000 state=interruptible",
    );
    assert_eq!(seed(&trace, Options::default()), "a;f;;--;; 5\na;g;;--;; 6\n");
    let asleep =
        Options { states: vec![TaskState::Interruptible, TaskState::Uninterruptible], ..Options::default() };
    assert_eq!(seed(&trace, asleep), "a;g;;--;; 6\n");
}

#[test]
fn a_trace_of_locks_gives_waits_with_their_waker_or_releaser() {
    let trace = trace(
        "source futex kinds=futex holds=no\nsource preload kinds=pthread_mutex
         lock word futex\nlock m pthread_mutex\ntask worker tid=11\ntask holder tid=12
         1000 worker wait word k:futex_wait<work\n9000 worker acquire word wait=8000 peer=holder at=unlock<work2
         10000 holder acquire m main\n11000 worker wait m lock<work\n20000 holder release m main
         21000 worker acquire m lock<work wait=10000
         30000 holder wait m give_up\n45000 holder abandon m give_up wait=15000 errno=110
         50000 holder wait m never",
    );
    let (text, written) = export(&trace, Format::Offwaketime, Options::default());
    assert_eq!(
        text,
        "worker;work;;futex_wait;--;;unlock;work2;holder 8\n\
         worker;work;lock;;--;;holder 10\n\
         holder;give_up;;--;; 15\n"
    );
    assert!(written.notes[0].contains("--off-cpu"), "{:?}", written.notes);
    assert_eq!((written.items, written.trust.waits_open_at_end), (3, 1));
}

#[test]
fn filters_select_off_cpu_times_as_they_select_waits() {
    let trace = vector();
    let of = |filter| Options { format: Format::Offwaketime, filter, ..Options::default() };
    let lines = |filter| {
        let mut out = Vec::new();
        let written = write(from_ref(&trace.trace), &of(filter), &mut out);
        written.map(|_| String::from_utf8(out).unwrap().lines().count())
    };
    use intervals::Filter;
    assert_eq!(lines(Filter { comms: vec!["worker".to_owned()], ..Filter::default() }).unwrap(), 1);
    assert_eq!(lines(Filter { comms: vec!["holder".to_owned()], ..Filter::default() }).unwrap(), 0);
    assert_eq!(lines(Filter { symbol: Some("mutex_lock".to_owned()), ..Filter::default() }).unwrap(), 1);
    assert_eq!(lines(Filter { min_wait_ns: Some(2_000_000), ..Filter::default() }).unwrap(), 0);
    assert_eq!(lines(Filter { to_ns: Some(0), ..Filter::default() }).unwrap(), 0);
    let kinds = vec![trace_format::LockKind::Mutex];
    assert_eq!(lines(Filter { kinds, ..Filter::default() }).unwrap(), 0, "it is not a wait for a mutex");
}

#[test]
fn a_trace_that_lost_too_much_is_not_ranked_unless_allowed() {
    let mut parts = Parts::parse(
        "source off_cpu kinds= holds=no\ntask a tid=11\n9000 a offcpu f wait=5000\n9100 - lost count=1",
    );
    parts.info.loss.ring_full = 1;
    let trace = parts.write();
    let options = Options { format: Format::Offwaketime2, ..Options::default() };
    let mut out = Vec::new();
    assert!(matches!(
        write(from_ref(&trace.trace), &options, &mut out),
        Err(AnalyzeError::TooMuchLost { .. })
    ));
    assert!(out.is_empty(), "an answer that is refused is not begun");
    let allowed = Options { allow_loss: true, ..options };
    assert_eq!(write(from_ref(&trace.trace), &allowed, &mut out).unwrap().items, 1);
}

#[test]
fn hostile_names_break_no_line() {
    let hostile = [
        "a;b",
        "two\nlines",
        "\u{1b}[2J",
        "=cmd|' /C calc'!A0",
        "</script>",
        "--",
        "-",
        " 7",
        "x 9",
        "\u{202e}",
    ];
    let long = "n".repeat(64 << 10);
    let mut parts = Parts::default();
    parts.info.loss.stacks = 1;
    let names = hostile.iter().copied().chain([long.as_str(), ""]);
    for (at, name) in (0..).zip(names) {
        let task = parts.task_id("t");
        let id = TaskId(at + 1);
        let row =
            trace_format::TaskRow { id, comm: Some(name.to_owned()), ..parts.tasks[task.0 as usize].clone() };
        parts.tasks.push(row);
        let frame =
            |kernel| trace_format::Frame { symbol: Some(name.to_owned()), kernel, ..Default::default() };
        parts.stacks.push(Stack { id: StackId(at), frames: vec![frame(true), frame(false)] });
        let mut event = Event::new(10_000 * i64::from(at + 1), EventKind::OffCpu, 0);
        (event.task, event.stack, event.wait_ns) =
            (Some(id), Some(StackId(at)), Some(5_000 + 1_000 * i64::from(at)));
        (event.peer_task, event.peer_stack) = (Some(id), Some(StackId(at)));
        parts.events.push(event);
    }
    let trace = parts.write();
    for (text, elements) in [(seed(&trace, Options::default()), 9), (modern(&trace, Options::default()), 7)] {
        assert_eq!(text.lines().count(), hostile.len() + 2);
        for line in text.lines() {
            let (stack, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<u64>().is_ok_and(|us| us >= 5), "{line}");
            assert_eq!(stack.split(';').count(), elements, "{line}");
            assert_eq!(stack.split(';').filter(|element| *element == "--").count(), 1, "{line}");
            assert!(!line.contains(char::is_control), "{line:?}");
        }
    }
}

#[test]
fn a_flame_graph_has_grey_dashes_and_coloured_wakers() {
    use inferno::flamegraph::{self, Palette, color::MultiPalette};
    /// The colour in which inferno draws `--` and `-`.
    const GREYS: [(&str, &str); 2] = [("--", "rgb(160,160,160)"), ("-", "rgb(200,200,200)")];
    let trace = vector();
    for text in [seed(&trace, delimited()), modern(&trace, delimited())] {
        let mut options = flamegraph::Options::default();
        options.colors = Palette::Multi(MultiPalette::Wakeup);
        let mut svg = Vec::new();
        flamegraph::from_lines(&mut options, text.lines(), &mut svg).unwrap();
        let svg = String::from_utf8(svg).unwrap();
        let fill = |name: &str| {
            let (_, rest) = svg.split_once(&format!("<title>{name} (1,233 samples")).unwrap();
            rest.split_once("fill=\"").unwrap().1.split_once('"').unwrap().0
        };
        for (name, grey) in GREYS {
            assert_eq!(fill(name), grey);
        }
        assert!(!GREYS.iter().any(|(_, grey)| *grey == fill("futex_wake")));
    }
}
