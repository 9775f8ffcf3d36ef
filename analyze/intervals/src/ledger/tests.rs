//! Vectors of the ledger, and its parts on random histories, against the model.

use proptest::{prelude::*, test_runner::Config};

use trace_format::run_info::{SCHED, Source};

use super::{Ledger, model::Model};
use crate::{
    Filter,
    engine::histories::{history, off_cpu, shaped_history, with_off_cpu},
    input::Input,
    testing::{TestTrace, parts_of, trace},
};

fn ledger(test: &TestTrace) -> Ledger {
    Ledger::of(&Input::open(&test.trace, 0, &Filter::default()).unwrap()).unwrap()
}

const LOCKS: &str = "source off_cpu covers=all\nlock c condvar\ntask A start=0 exit=100\n0 A init m\n";

#[test]
fn the_first_state_that_applies_counts() {
    let text = format!(
        "{LOCKS}10 A wait m\n30 A offcpu wait=15 state=interruptible\n40 A acquire m wait=30\n50 A release m\n50 A wait c\n65 A acquire c wait=15\n\
         70 A try_fail m\n75 A try_fail m\n80 A acquire m\n82 A try_fail m\n84 A try_fail m\n85 A release m\n95 A offcpu wait=10 blocked=4 state=interruptible"
    );
    let expected = Ledger {
        alive_ns: 100,
        locks_ns: 30,
        idle_ns: 15,
        polling_ns: 5,
        asleep_ns: 4,
        ready_ns: 6,
        ran_ns: 40,
        ..Ledger::default()
    };
    assert_eq!(ledger(&trace(&text)), expected);
    assert!(!expected.is_closed(), "polling may be for a lock");
    assert_eq!(
        expected.shares(),
        "ran 40 %, waits for locks 30 %, idle waits 15 %, ready without a CPU 6 %, polling with failed tries 5 %, asleep elsewhere 4 %"
    );
}

#[test]
fn sleep_in_a_call_that_locks_is_for_a_lock_that_is_not_recorded() {
    let slept = |call: &str| {
        let text =
            format!("{LOCKS}60 A offcpu wait=50 blocked=50 state=interruptible syscall={call}\n99 A init m");
        ledger(&trace(&text))
    };
    let (file_lock, read) = (slept("flock"), slept("read"));
    assert!(slept("clock_nanosleep").has_naps() && !slept("clock_nanosleep").is_closed() && !read.has_naps());
    assert_eq!(file_lock.shares(), "asleep elsewhere 50 % (50 % in flock), ran 50 %");
    assert!(!file_lock.is_closed() && read.is_closed());
    let names =
        |found: &Ledger| found.unrecorded().iter().map(|call| call.name().into_owned()).collect::<Vec<_>>();
    assert_eq!((names(&file_lock), names(&read)), (vec!["flock".to_owned()], Vec::new()));
    let mut both = file_lock.clone();
    both.merge(slept("flock"));
    assert_eq!(both.asleep_in.values().copied().collect::<Vec<_>>(), [100]);
}

#[test]
fn tasks_of_a_runtime_may_wait_for_locks_of_their_own_unless_these_are_recorded() {
    let at = "futex_wait<tokio::runtime::scheduler::multi_thread::park::Inner::park_condvar";
    let text = format!(
        "source off_cpu covers=all\nlock f futex\ntask A tid=1 start=0 exit=100\n0 A init f\n10 A wait f {at}\n90 A acquire f {at} wait=80"
    );
    let found = ledger(&trace(&text));
    assert_eq!((found.idle_ns, found.scheduler_ns, found.is_closed()), (80, 80, false));
    let found = ledger(&trace(&text.replace(at, "futex_wait<rayon_core::sleep::Sleep::sleep")));
    assert_eq!((found.idle_ns, found.scheduler_ns, found.is_closed()), (80, 0, true));
    let found = ledger(&trace(&format!("source go kinds=go_mutex\n{text}")));
    assert_eq!((found.scheduler_ns, found.is_closed()), (0, true));
}

#[test]
fn threads_of_which_only_the_creation_is_on_record_lived_too() {
    let text = "source off_cpu covers=all\nlock t thread\nlock u thread\ntask A tid=1 start=0 exit=100\n0 A init m\n10 A init t\n20 A init u\n\
                90 A wait t\n95 A acquire t wait=5\n99 A acquire u";
    let found = ledger(&trace(text));
    assert_eq!((found.alive_ns, found.idle_ns, found.ran_ns, found.unknown_ns), (264, 5, 95, 85 + 79));
    assert!(!found.is_closed());
    // One of them is a task.
    let found = ledger(&trace(&text.replace("\n10 A", "\ntask T tid=2 start=10 exit=95 parent=A\n10 A")));
    assert_eq!(found.unknown_ns, 79);
}

#[test]
fn tasks_of_other_programs_that_woke_recorded_ones_are_not_counted() {
    let tasks = "task I tid=0 pid=0\ntask P tid=9 pid=9\ntask B tid=2 pid=1\ntask C tid=3 pid=3 parent=B\ntask D tid=4 pid=4 parent=C\n";
    let text = format!("{LOCKS}20 I wake m\n50 B wake m\n99 A init m")
        .replace("task A", &format!("{tasks}task A tid=1 pid=1"));
    let found = ledger(&trace(&text));
    assert_eq!(
        found.alive_ns,
        100 + 3 * 99,
        "A, B of its process, and the processes of C and D, but not I and P"
    );
}

#[test]
fn without_all_off_cpu_times_what_is_in_no_wait_is_not_seen() {
    let text =
        format!("{LOCKS}10 A wait m\n12 A acquire m wait=2").replace("covers=all", "covers=contended_holds");
    let found = ledger(&trace(&text));
    assert_eq!((found.locks_ns, found.ran_ns, found.unknown_ns), (2, 0, 98));
    assert!(!found.is_closed());
}

#[test]
fn without_off_cpu_times_a_process_ran_for_as_long_as_the_kernel_counted() {
    let text = "lock m mutex\nlock t thread\ntask A pid=7 tid=7 start=0 exit=100 cpu=150\ntask B pid=7 tid=8 start=0 exit=100\n\
                task C pid=9 tid=9 start=0 exit=100 cpu=500\n0 A init m\n10 A wait m\n30 A acquire m wait=20\n50 B init m\n60 C init m";
    let found = ledger(&trace(text));
    assert_eq!((found.alive_ns, found.locks_ns, found.ran_ns, found.unknown_ns), (300, 20, 150 + 100, 30));
    // The trace has only the creation of one thread. The processor time of the process includes that thread.
    let found = ledger(&trace(&text.replace("\n50 B", "\n40 A init t\n50 B").replace("cpu=150", "cpu=190")));
    assert_eq!((found.alive_ns, found.ran_ns, found.unknown_ns), (320, 190 + 100, 10));
    // With all off-CPU times the ledger ignores the processor time.
    let found = ledger(&trace(&format!("source off_cpu covers=all\n{}", text.replace("cpu=500", "cpu=-5"))));
    assert_eq!((found.ran_ns, found.unknown_ns), (280, 0));
}

#[test]
fn nothing_is_known_across_a_loss_and_after_the_last_row_of_a_task_that_did_not_end() {
    let found = ledger(&trace(&format!("{LOCKS}10 A wait m\n60 - lost count=2")));
    assert_eq!((found.locks_ns, found.ran_ns, found.unknown_ns), (0, 50, 50));
    let found =
        ledger(&trace(&format!("{LOCKS}50 A wait m\n60 A acquire m wait=10").replace("exit=100", "")));
    assert_eq!((found.alive_ns, found.ran_ns, found.unknown_ns), (60, 50, 0));
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(crate::testing::cases(10_000)) })]

    #[test]
    fn the_parts_are_what_the_model_says_of_every_nanosecond(
        events in prop_oneof![history().boxed(), shaped_history().boxed()],
        off_cpu in off_cpu(),
        covers_all in any::<bool>(),
        ended in proptest::array::uniform4(any::<bool>()),
    ) {
        let events = with_off_cpu(&events, &off_cpu);
        prop_assume!(!events.is_empty());
        let mut parts = parts_of(events.clone());
        let (start_ns, end_ns) = (events[0].ts_ns, events.iter().map(|event| event.ts_ns).max().unwrap());
        for (task, _) in parts.tasks.iter_mut().zip(ended).filter(|(_, ended)| *ended) {
            task.exit_ns = Some(end_ns);
        }
        if covers_all {
            parts.info.sources.push(Source { name: SCHED.to_owned(), ..Source::default() });
        }
        let test = parts.write_in_groups(7);
        let input = Input::open(&test.trace, 0, &Filter::default()).unwrap();
        let purpose = |lock, stack| input.names.purposes().of(lock, stack);
        let model = Model { events: &events, tasks: &parts.tasks, start_ns, end_ns, covers_all, purpose };
        prop_assert_eq!(Ledger::of(&input).unwrap(), model.ledger());
    }
}
