//! Each rule at its limit and a nanosecond below it, the sentences, and the sums of the parts on random
//! histories.

use proptest::{prelude::*, test_runner::Config};
use trace_format::LockId;

use super::{
    Prediction, Verdict, WhyOptions,
    fact_names::{FactNames, NestedLock},
    facts::Facts,
    parts::SiteParts,
    verdicts::judge,
    why,
};
use crate::{
    blame,
    testing::trace_of,
    testing::{self, cases, written},
};
use intervals::{
    Filter,
    engine::{deadlock::DeadlockKind, histories},
    items::State,
};
use output::Format::{Csv, Json, Text};

/// A lock that was waited for 1,000 ns by tasks that lived for 1,000 ns.
fn facts() -> Facts {
    let nested = NestedLock { id: LockId(9), name: "db_lock".to_owned(), word: "db_lock".to_owned() };
    let names = FactNames { nested: Some(nested), ..FactNames::default() };
    Facts {
        is_covered: true,
        can_be_shared: true,
        lifetimes_ns: 1_000,
        span_ns: 1_000,
        names,
        ..Facts::default()
    }
}

/// Adds a site whose holders made others wait for so long in this state, after this many holds of this
/// length.
fn site(mut facts: Facts, state: State, caused_ns: i64, (holds, each_ns): (i64, i64)) -> Facts {
    let mut parts = SiteParts { holds, hold_ns: holds * each_ns, ..SiteParts::default() };
    parts.caused[state as usize] = caused_ns;
    facts.sites.push(parts);
    facts
}

fn holds(facts: &Facts, verdict: Verdict) -> bool {
    judge(facts).iter().any(|finding| finding.verdict == verdict && finding.holds)
}

fn verdicts(facts: &Facts) -> Vec<Verdict> {
    judge(facts).iter().filter(|finding| finding.said).map(|finding| finding.verdict).collect()
}

/// Returns facts in which holders in a state cause `ns` of 1,000 ns of waiting, and hand-offs the rest.
fn with_state(state: State, ns: i64) -> Facts {
    Facts { free_ns: 1_000 - ns, ..site(facts(), state, ns, (10, 1)) }
}

#[test]
fn a_share_at_the_limit_holds_and_a_nanosecond_less_does_not() {
    let rules = [
        (Verdict::Nested, State::Lock, 300),
        (Verdict::HolderAsleep, State::Asleep, 300),
        (Verdict::HolderAsleep, State::Uninterruptible, 300),
        (Verdict::HolderAsleep, State::Stopped, 300),
        (Verdict::HolderAsleep, State::Idle, 300),
        (Verdict::HolderPreempted, State::Preempted, 200),
        (Verdict::HolderPreempted, State::Ready, 200),
        (Verdict::NotRecorded, State::Unknown, 500),
    ];
    for (verdict, state, limit) in rules {
        assert!(holds(&with_state(state, limit), verdict), "{verdict} at {limit}");
        assert!(!holds(&with_state(state, limit - 1), verdict), "{verdict} below {limit}");
    }
    let free = |ns: i64| with_state(State::Running, 1_000 - ns);
    assert!(holds(&free(500), Verdict::Handoff) && !holds(&free(499), Verdict::Handoff));
    let nobody = |ns: i64| Facts { nobody_ns: ns, ..with_state(State::Running, 1_000 - ns) };
    let nobody = |ns: i64| Facts { free_ns: 0, ..nobody(ns) };
    assert!(holds(&nobody(500), Verdict::NotRecorded) && !holds(&nobody(499), Verdict::NotRecorded));
}

#[test]
fn a_lock_that_takes_less_than_a_hundredth_of_its_waiters_time_is_quiet_and_nothing_else() {
    let quiet = Facts { lifetimes_ns: 100_001, ..with_state(State::Asleep, 900) };
    assert_eq!(verdicts(&quiet), [Verdict::Quiet]);
    assert!(
        !holds(&Facts { lifetimes_ns: 100_000, ..quiet.clone() }, Verdict::Quiet),
        "1 % is not less than 1 %"
    );
    let hurts = |victim_ppm| Facts { victim_ppm, ..quiet.clone() };
    assert_eq!(verdicts(&hurts(99_999)), [Verdict::Quiet]);
    assert_eq!(verdicts(&hurts(100_000)), [Verdict::HolderAsleep], "one of many tasks waits for long");
    let deadlocked = Facts { deadlock: Some(DeadlockKind::Order), ..quiet };
    assert_eq!(verdicts(&deadlocked), [Verdict::Deadlock]);
}

#[test]
fn polling_is_a_cause_from_half_of_the_waiting_on_and_a_lock_that_is_polled_is_not_quiet() {
    let polled =
        |polled_ns| Facts { polled_ns, polled_lifetimes_ns: 1_000, ..with_state(State::Running, 900) };
    assert!(holds(&polled(500), Verdict::Polled) && !holds(&polled(499), Verdict::Polled));
    let only = |polled_ns| Facts { polled_ns, polled_lifetimes_ns: 1_000, ..facts() };
    assert_eq!(verdicts(&only(10)), [Verdict::Polled]);
    assert_eq!(verdicts(&only(9)), [Verdict::Quiet]);
    let evidence = |facts: &Facts| judge(facts)[0].evidence.clone();
    let sites = site(site(only(500), State::Running, 0, (10, 7)), State::Running, 0, (2, 90));
    let names = FactNames { sites: vec!["get a.c:1".into(), "put a.c:2".into()], ..FactNames::default() };
    let held = evidence(&Facts { names, ..sites });
    assert!(held.ends_with("50 % of their time; put a.c:2 has the lock for 90 ns on average"), "{held}");
    assert!(evidence(&only(500)).ends_with("50 % of their time"), "nobody was seen to have it");
}

#[test]
fn a_lock_without_recorded_holds_has_neither_convoys_nor_hand_offs() {
    let convoy = Facts { convoy_wait_ns: 1_000, ..with_state(State::Running, 0) };
    assert!(holds(&convoy, Verdict::Convoy));
    let unmeasured = Facts { is_unmeasured: true, nobody_ns: 1_000, free_ns: 0, ..convoy };
    assert_eq!(verdicts(&unmeasured), [Verdict::NotRecorded]);
}

#[test]
fn only_holds_that_can_be_recorded_are_asked_for() {
    let of = |recorded: &str| {
        let history = "lock f futex\n10 A wait f lll_lock_wait\n900 A acquire f lll_lock_wait wait=890\n1000 A wake f unlock";
        let test = testing::trace(&format!("{recorded}\n{history}"));
        why(&[test.trace], &WhyOptions::default()).unwrap().locks.remove(0).findings.remove(0).advice
    };
    assert!(
        of("source futex kinds=futex holds=no")
            .contains("`klock record COMMAND`, or `-p PID --locks pthread`, has those of pthread locks")
    );
    let command = "source futex kinds=futex holds=no\nsource pthread kinds=pthread_mutex holds=yes";
    assert!(of(command).starts_with("klock cannot see who holds it, if it is a lock"), "{}", of(command));
}

#[test]
fn a_site_is_long_beside_four_times_shorter_ones_or_ten_times_shorter_hand_offs() {
    let two =
        |each_ns| site(site(facts(), State::Running, 500, (10, each_ns)), State::Running, 500, (10, 10));
    assert!(holds(&two(40), Verdict::LongSite) && !holds(&two(39), Verdict::LongSite));
    let share =
        |ns| Facts { free_ns: 1_000 - ns, contended: 1, ..site(facts(), State::Running, ns, (10, 90_000)) };
    assert!(holds(&share(300), Verdict::LongSite) && !holds(&share(299), Verdict::LongSite));
    let beside_sleep =
        |ns| site(site(facts(), State::Running, ns, (10, 90_000)), State::Asleep, 1_000 - ns, (10, 10));
    assert!(holds(&beside_sleep(500), Verdict::LongSite) && !holds(&beside_sleep(499), Verdict::LongSite));
    // 400 ns of hand-offs before 4 acquisitions: 100 ns each.
    let alone =
        |each_ns| Facts { free_ns: 400, contended: 4, ..site(facts(), State::Running, 600, (10, each_ns)) };
    assert!(holds(&alone(1_000), Verdict::LongSite) && !holds(&alone(999), Verdict::LongSite));
    let slow = |each_ns| Facts {
        free_ns: 400_000_000,
        contended: 1,
        ..site(facts(), State::Running, 600_000_000, (10, each_ns))
    };
    assert!(holds(&slow(100_000), Verdict::LongSite) && !holds(&slow(99_999), Verdict::LongSite));
    let open = site(facts(), State::Running, 1_000, (0, 0));
    assert!(holds(&open, Verdict::LongSite), "its only hold has no end");
}

#[test]
fn short_holds_are_too_often_if_the_lock_is_held_a_fifth_of_the_time() {
    let often = |held_ns| Facts {
        held_ns,
        ..site(site(facts(), State::Running, 250, (10, 10)), State::Running, 250, (10, 10))
    };
    let often = |held_ns| Facts { free_ns: 500, ..often(held_ns) };
    assert!(holds(&often(200), Verdict::TooOften) && !holds(&often(199), Verdict::TooOften));
    assert!(!holds(&Facts { free_ns: 501, ..often(200) }, Verdict::TooOften));
    let long = Facts { held_ns: 900, ..site(facts(), State::Running, 1_000, (1, 900)) };
    assert!(holds(&long, Verdict::LongSite) && !holds(&long, Verdict::TooOften));
}

/// A lock with these holds at one place: a number, their length and the waiting that each caused. It is taken
/// often.
fn with_holds(holds: &[(i64, i64, i64)]) -> Facts {
    let caused = holds.iter().map(|(n, _, caused_ns)| n * caused_ns).sum();
    let mut facts = site(facts(), State::Running, caused, (0, 0));
    for &(n, ns, caused_ns) in holds {
        (0..n).for_each(|_| facts.sites[0].add_hold(ns, caused_ns));
    }
    Facts { contended: 1, free_ns: caused / 2, held_ns: 900, ..facts }
}

#[test]
fn few_holds_that_are_ten_times_longer_than_the_rest_and_are_waited_for_are_told() {
    let few = with_holds(&[(10, 10_000, 900), (90, 1_000, 10)]);
    assert!(holds(&few, Verdict::FewLongHolds) && !holds(&few, Verdict::TooOften));
    for (holds_of, why) in [
        ([(11, 10_000, 900), (89, 1_000, 10)], "one in nine is not few"),
        ([(10, 10_000, 900), (90, 1_001, 10)], "not ten times as long"),
        ([(10, 9_999, 900), (90, 900, 10)], "a holder that lost its CPU is without it for longer"),
        ([(10, 10_000, 10), (90, 1_000, 900)], "the short ones are waited for"),
    ] {
        let often = with_holds(&holds_of);
        assert!(!holds(&often, Verdict::FewLongHolds) && holds(&often, Verdict::TooOften), "{why}");
    }
}

#[test]
fn a_lock_whose_holds_are_all_long_is_held_too_long_and_not_taken_too_often() {
    let mut long = with_holds(&[(50, 100_000, 900)]);
    long.sites.push(long.sites[0].clone());
    long.names.sites = vec!["load".to_owned(), "store".to_owned()];
    assert!(holds(&long, Verdict::LongSite) && !holds(&long, Verdict::TooOften));
    let finding = judge(&long).into_iter().find(|finding| finding.verdict == Verdict::LongSite).unwrap();
    assert_eq!(finding.evidence, "load holds it for 100 µs on average, store holds it for 100 µs on average");
    let mut short = with_holds(&[(50, 99_999, 900)]);
    short.sites.push(short.sites[0].clone());
    assert!(!holds(&short, Verdict::LongSite) && holds(&short, Verdict::TooOften));
}

#[test]
fn a_convoy_is_said_instead_of_hand_offs() {
    let convoy = |ns| Facts { convoy_wait_ns: ns, ..with_state(State::Running, 100) };
    assert!(holds(&convoy(500), Verdict::Convoy) && !holds(&convoy(500), Verdict::Handoff));
    assert!(!holds(&convoy(499), Verdict::Convoy) && holds(&convoy(499), Verdict::Handoff));
}

#[test]
fn readers_and_writers_are_told() {
    let base = || with_state(State::Running, 1_000);
    let mode = |shared, exclusive| Facts {
        exclusive_by_shared_ns: shared,
        shared_by_exclusive_ns: exclusive,
        ..base()
    };
    assert!(
        holds(&mode(500, 0), Verdict::ReadersBlockWriter)
            && !holds(&mode(499, 0), Verdict::ReadersBlockWriter)
    );
    assert!(
        holds(&mode(0, 500), Verdict::WriterBlocksReaders)
            && !holds(&mode(0, 499), Verdict::WriterBlocksReaders)
    );
    let written = |acquisitions, shared| Facts { acquisitions, shared, ..base() };
    assert!(
        holds(&written(1_000, 9), Verdict::OnlyWritten) && !holds(&written(1_000, 10), Verdict::OnlyWritten)
    );
    assert!(!holds(&written(99, 0), Verdict::OnlyWritten), "too few");
    assert!(!holds(&Facts { can_be_shared: false, ..written(1_000, 0) }, Verdict::OnlyWritten));
}

#[test]
fn a_hog_is_told_if_most_wait_for_it_and_then_the_lock_is_not_taken_too_often() {
    let hog = |hog_ns, hog_caused_ns, overtaken_max| Facts {
        hog_ns,
        hog_caused_ns,
        all_held_ns: 1_000_000,
        overtaken_max,
        held_ns: 900,
        ..Facts { free_ns: 500, contended: 1, ..site(facts(), State::Running, 500, (10, 10)) }
    };
    assert_eq!(verdicts(&hog(750_000, 500, 100)), [Verdict::Hog, Verdict::Handoff]);
    for no_hog in [hog(749_999, 500, 100), hog(750_000, 499, 100), hog(750_000, 500, 99)] {
        assert_eq!(verdicts(&no_hog), [Verdict::TooOften, Verdict::Handoff]);
    }
}

#[test]
fn a_herd_is_told_if_it_takes_half_as_long_as_all_waits_and_its_lock_is_not_quiet_then() {
    let herd = |herd_ns| Facts { herd_ns, herd_lifetimes_ns: 10_000, ..with_state(State::Asleep, 600) };
    assert!(holds(&herd(500), Verdict::Herd) && !holds(&herd(499), Verdict::Herd));
    assert_eq!(verdicts(&herd(500)), [Verdict::HolderAsleep, Verdict::Herd]);
    assert_eq!(verdicts(&herd(601)), [Verdict::Herd, Verdict::HolderAsleep]);
    let nobody_waits = |herd_ns| Facts { herd_ns, herd_lifetimes_ns: 10_000, ..facts() };
    assert_eq!(verdicts(&nobody_waits(100)), [Verdict::Herd]);
    assert_eq!(verdicts(&nobody_waits(99)), [Verdict::Quiet]);
    assert_eq!(verdicts(&nobody_waits(0)), [Verdict::Quiet]);
    let hardly_waits = Facts { lifetimes_ns: 100_001, ..herd(601) };
    assert_eq!(verdicts(&hardly_waits), [Verdict::Herd], "the waiting is not worth a word");
}

/// B, C and D wait for work; A wakes all, and B gets it.
const HERD: &str = "
    source preload kinds=pthread_mutex,condvar holds=yes\nlock m pthread_mutex name=jobs\nlock c condvar
    1 B acquire m\n2 B release m\n2 B wait c\n3 C acquire m\n4 C release m\n4 C wait c\n5 D acquire m\n6 D release m\n6 D wait c
    40 A acquire m\n50 A wake c\n52 A release m\n55 B acquire c wait=53\n55 B acquire m\n58 B release m
    60 C acquire c wait=56\n60 C acquire m\n62 C release m\n62 C wait c\n65 D acquire c wait=59\n65 D acquire m\n66 D release m\n66 D wait c";

#[test]
fn a_lock_that_nobody_waits_for_outside_of_condition_waits_may_have_a_herd() {
    let table = why(&[testing::trace(HERD).trace], &WhyOptions::default()).unwrap();
    assert_eq!(table.locks.len(), 1);
    let text = written(&table, Text, None);
    assert!(text.contains("1. a wake-up wakes many threads, and most find nothing to do"), "{text}");
    assert!(
        text.starts_with("#0 jobs (pthread_mutex): threads woken in vain took 25 ns to get it\n"),
        "{text}"
    );
    assert!(
        text.contains(
            "on average a signal woke 3 threads, and 67 % of them waited again at once (signals: 1)"
        ),
        "{text}"
    );
}

#[test]
fn of_verdicts_that_explain_as_much_the_one_about_readers_and_writers_comes_first() {
    let mode = |shared, exclusive| Facts {
        exclusive_by_shared_ns: shared,
        shared_by_exclusive_ns: exclusive,
        held_ns: 900,
        ..with_state(State::Running, 1_000)
    };
    assert_eq!(verdicts(&mode(1_000, 0)), [Verdict::ReadersBlockWriter]);
    assert_eq!(verdicts(&mode(0, 1_000)), [Verdict::WriterBlocksReaders, Verdict::LongSite]);
}

#[test]
fn without_off_cpu_times_a_holder_whose_state_is_unknown_counts_as_holding() {
    let unknown = site(facts(), State::Unknown, 1_000, (1, 900));
    assert!(holds(&unknown, Verdict::NotRecorded) && !holds(&unknown, Verdict::LongSite));
    let not_covered = Facts { is_covered: false, ..unknown };
    assert!(!holds(&not_covered, Verdict::NotRecorded) && holds(&not_covered, Verdict::LongSite));
}

/// A holds m across a sleep while B waits; then B waits for C's n.
const TEXT: &str = "
    source off_cpu kinds=none\nsource preload kinds=pthread_mutex holds=yes
    lock m pthread_mutex name=log
    0 A acquire m log.c:88:log_line
    100 B wait m log.c:90:work
    900 A offcpu k:schedule<fsync<flush<log_line wait=700 blocked=690 runq=10 state=interruptible
    1_000 A release m
    1_007 B acquire m log.c:90:work wait=907
    1_100 B release m
";

#[test]
fn a_sleep_in_a_call_that_waits_for_the_disk_is_predicted_for_a_disk_that_serves_several_at_once() {
    let said = |state: &str| {
        let trace = testing::trace(&TEXT.replace("state=interruptible", state));
        written(&why(&[trace.trace], &WhyOptions::default()).unwrap(), Text, None)
    };
    let flushed = said("state=uninterruptible syscall=fsync");
    let change = "with that sleep after the release, if the disk serves several at once: length";
    assert!(flushed.contains(change), "{flushed}");
    let read = said("state=interruptible syscall=read");
    assert!(read.contains("with that sleep after the release: length"), "{read}");
}

#[test]
fn text_says_what_the_holder_did_and_the_next_step() {
    let table = why(&[testing::trace(TEXT).trace], &WhyOptions::default()).unwrap();
    let expected = "\
#0 log (pthread_mutex): 1 thread waited 907 ns for it, 82 % of its time
1. its holders sleep (explains 76 % of the waiting)
   for 76 % of the waiting, its holder slept, most in fsync < flush < log_line; it had taken the lock at log.c:88 (log_line)
   -> do that before the lock is taken, or after it is released
      with that sleep after the release: length of the run -9 % (-11 % .. -8 %), waits for it -77 %
of the waiting: holders slept 76 %, holders ran 22 %, holders without a CPU 1 %
";
    assert!(written(&table, Text, None).starts_with(expected), "{}", written(&table, Text, None));
    let csv = written(&table, Csv, None);
    assert!(csv.contains("holder_asleep,yes,690,760749,300000,907,"), "{csv}");
    assert!(written(&table, Json, None).contains("\"handoff_ns\": 7"), "{}", written(&table, Json, None));
    let prediction = table.locks[0].findings[0].prediction.as_ref().unwrap();
    assert_eq!((prediction.change.as_str(), prediction.change_ppm), ("--no-sleep '#0=later'", Some(-91_744)));
}

#[test]
fn a_gain_whose_interval_has_0_is_not_certain() {
    let of = |change_ppm, low_ppm, high_ppm| {
        let ends = [change_ppm, low_ppm, high_ppm].map(Some);
        let [change_ppm, low_ppm, high_ppm] = ends;
        Prediction { change_ppm, low_ppm, high_ppm, does: "half as long", ..Prediction::default() }
            .to_string()
    };
    assert_eq!(of(-60_000, -80_000, -5_001), "half as long: length of the run -6 % (-8 % .. -1 %)");
    assert_eq!(
        of(-60_000, -80_000, -5_000),
        "half as long: no certain gain: length of the run -6 % (-8 % .. 0 %)"
    );
    assert_eq!(of(-4_000, -80_000, 0), "half as long: no certain gain: length of the run 0 % (-8 % .. 0 %)");
    assert_eq!(of(60_000, 10_000, 80_000), "half as long: a loss: length of the run +6 % (+1 % .. +8 %)");
}

#[test]
fn a_program_that_runs_for_a_fixed_time_does_the_same_work_in_less_of_it() {
    // Main sleeps for 10 us, and lets A and B go on for so long.
    let mut text = "source off_cpu kinds=none\nsource preload kinds=pthread_mutex holds=yes\nlock m pthread_mutex name=log\n\
                    lock n pthread_mutex name=end\ntask main start=0\n1 main acquire n\n2 main release n\n"
        .to_owned();
    for from in (0..10).map(|at| 10 + 820 * at) {
        for (from, (holder, waiter)) in [(from, ("A", "B")), (from + 410, ("B", "A"))] {
            let waited = if from == 10 { "" } else { " wait=400" };
            text += &format!(
                "{from} {holder} acquire m log.c:88:log_line{waited}\n{} {waiter} wait m log.c:88:log_line\n\
                 {} {holder} offcpu k:schedule<fsync<log_line wait=390 blocked=390 state=interruptible\n\
                 {} {holder} release m\n",
                from + 10,
                from + 400,
                from + 401
            );
        }
    }
    text += "10_000 main offcpu wait=9_900 blocked=9_900 state=interruptible\n10_001 main acquire n\n10_002 main release n\n";
    let said = written(&why(&[testing::trace(&text).trace], &WhyOptions::default()).unwrap(), Text, None);
    assert!(said.contains("time for the same acquisitions -"), "{said}");
    assert!(said.contains("length of the run 0 % ("), "{said}");
}

#[test]
fn a_part_in_which_no_wait_ends_predicts_nothing() {
    let open = TEXT.split("    1_007").next().unwrap();
    let text = written(&why(&[testing::trace(open).trace], &WhyOptions::default()).unwrap(), Text, None);
    assert!(text.contains("its holders sleep") && !text.contains("length of the run"), "{text}");
}

#[test]
fn text_names_the_system_call_in_which_the_holder_slept() {
    for (departure, place) in [
        ("syscall=fsync", "fsync"),
        ("k:schedule<write_all<flush<log_line syscall=fsync", "fsync (write_all < flush < log_line)"),
        ("syscall=-", "no system call"),
        ("syscall=syscall_600", "syscall_600"),
    ] {
        let text = TEXT.replace("k:schedule<fsync<flush<log_line", departure);
        let table = why(&[testing::trace(&text).trace], &WhyOptions::default()).unwrap();
        let text = written(&table, Text, None);
        assert!(text.contains(&format!("its holder slept, most in {place}; it had taken")), "{text}");
    }
}

#[test]
fn text_names_the_task_that_ran_instead_of_the_holder() {
    let text = TEXT.replace("state=interruptible", "state=runnable peer=mid");
    assert_ne!(text, TEXT);
    let text = written(&why(&[testing::trace(&text).trace], &WhyOptions::default()).unwrap(), Text, None);
    assert!(text.contains("its holders are without a CPU") && text.contains("most while mid "), "{text}");
    assert!(
        text.contains(" has a lower priority than B (tid 102, pid 100), let the holder inherit that"),
        "{text}"
    );
    let of_klock = TEXT.replace("state=interruptible", "state=runnable peer=klock-drain");
    let of_klock =
        written(&why(&[testing::trace(&of_klock).trace], &WhyOptions::default()).unwrap(), Text, None);
    assert!(of_klock.contains("most while klock ran instead of"), "{of_klock}");
    assert!(of_klock.contains("-> klock itself took the CPU"), "{of_klock}");
    let text = TEXT.replace("state=interruptible", "state=runnable peer=idle");
    let text = format!("task idle pid=0 tid=0\n{text}");
    let text = written(&why(&[testing::trace(&text).trace], &WhyOptions::default()).unwrap(), Text, None);
    assert!(text.contains("most while no task ran instead of") && text.contains("`cpu.max`"), "{text}");
}

#[test]
fn a_program_that_keeps_all_processors_busy_is_said_to_gain_little_from_any_lock() {
    // The recording is of 1,100 ns.
    let said = |cpu_ns: i64| {
        let mut parts = testing::Parts::parse(&format!("task main pid=100 tid=100 cpu={cpu_ns}\n{TEXT}"));
        parts.info.host.cpus = 2;
        written(&why(&[parts.write().trace], &WhyOptions::default()).unwrap(), Text, None)
    };
    let busy = said(1_980);
    let expected = "-> the program ran for 90 % of the time of its 2 processors: without any wait it would do at most 11 % more\n";
    assert!(busy.starts_with(expected), "{busy}");
    assert!(!said(1_979).contains("the program ran"));
}

#[test]
fn of_threads_that_are_idle_is_said_who_ends_that() {
    let text = "lock b barrier name=meeting\n1 A wait b a.c:1\n2 B wait b a.c:1\n900 C wake b\n900 A acquire b a.c:1 wait=899\n901 B acquire b a.c:1 wait=899\n";
    let filter = Filter { include_idle: true, ..Filter::default() };
    let options = WhyOptions { filter, ..WhyOptions::default() };
    let said = written(&why(&[testing::trace(text).trace], &options).unwrap(), Text, None);
    assert!(
        said.contains("1. threads are idle here") && said.contains("C (tid 103, pid 100) came last"),
        "{said}"
    );
    let said = written(&why(&[testing::trace(text).trace], &WhyOptions::default()).unwrap(), Text, None);
    assert!(said.contains("threads waited 1.80 µs at barriers for the thread that came last: "), "{said}");
}

#[test]
fn waiting_that_is_spread_over_many_locks_is_not_said_to_be_no_cause() {
    // 100 locks, one after the other, each of which B waits for 8 of 1,000 ns.
    let mut text = "source preload kinds=pthread_mutex holds=yes\n".to_owned();
    for at in 0..100 {
        let lock = format!("m{at}");
        text += &format!("lock {lock} pthread_mutex name={lock}\n");
    }
    for (at, lock) in (0..100).map(|at| (10 * at, format!("m{at}"))) {
        text += &format!(
            "{at} A acquire {lock} a.c:1\n{} B wait {lock} a.c:2\n{} A release {lock}\n{} B acquire {lock} a.c:2 wait=8\n{} B release {lock}\n",
            at + 1,
            at + 9,
            at + 9,
            at + 9
        );
    }
    let options = WhyOptions { limit: Some(3), ..WhyOptions::default() };
    let said = written(&why(&[testing::trace(&text).trace], &options).unwrap(), Text, None);
    assert!(said.starts_with("-> threads waited 800 ns for 100 locks; those below have 3 %\n"), "{said}");
    assert!(said.contains("--by site` adds up locks") && !said.contains("not the cause"), "{said}");
}

#[test]
fn text_says_how_long_the_group_of_the_holder_had_used_up_its_quota() {
    let said = |throttled: &str| {
        let text = TEXT.replace("state=interruptible", "state=runnable peer=mid");
        let text = format!("task main pid=100 tid=100 {throttled}\ntask mid pid=7 tid=7\n{text}");
        written(&why(&[testing::trace(&text).trace], &WhyOptions::default()).unwrap(), Text, None)
    };
    let used_up = said("throttled=3/640");
    assert!(used_up.contains("had used up its quota (throttled) in 3 periods, for 640 ns"), "{used_up}");
    assert!(used_up.contains("-> raise `cpu.max` of the group"), "{used_up}");
    let in_part = said("throttled=2/120");
    assert!(in_part.contains("most while mid ") && in_part.contains("(throttled) in 2 periods"), "{in_part}");
    assert!(in_part.contains("more CPU time (`cpu.max` of the group)"), "{in_part}");
    // Too short for a tenth of these waits, and none.
    for throttled in ["throttled=1/60", "throttled=0/0"] {
        let other = said(throttled);
        assert!(other.contains("most while mid ") && !other.contains("quota"), "{other}");
    }
    assert!(said("").contains("more CPU time (a quota?)"));
}

#[test]
fn sleep_for_locks_that_are_not_recorded_is_said_before_locks_of_the_kernel_and_without_any_lock() {
    let off_cpu = "source off_cpu covers=all\ntask A start=0\n1 A offcpu wait=1 blocked=1 state=interruptible syscall=read\n900 A offcpu wait=800 blocked=800 state=interruptible syscall=flock\n\
                   1_000 A init m";
    let kernel = "lock m rwsem name=mmap_lock\n950 A acquire m wait=40\n";
    let user = "lock m pthread_mutex name=hot\n950 A acquire m wait=40\n";
    let text = |locks: &str| {
        let test = testing::trace(&off_cpu.replacen("1_000 A", &format!("{locks}1_000 A"), 1));
        written(&why(&[test.trace], &WhyOptions::default()).unwrap(), Text, None)
    };
    let (of_kernel, of_user) = (text(kernel), text(user));
    assert!(of_kernel.starts_with("-> not seen: whether a lock is the cause"), "{of_kernel}");
    assert!(of_kernel.contains("cause\n   - of the 999 ns that all threads together lived: "), "{of_kernel}");
    assert!(of_kernel.contains("80 % in flock") && of_kernel.contains("mmap_lock"), "{of_kernel}");
    assert!(!of_user.contains("not seen: whether"), "{of_user}");
    let test = testing::trace(&off_cpu.replace("\n1_000 A init m", ""));
    let nothing = written(&why(&[test.trace], &WhyOptions::default()).unwrap(), Text, None);
    assert!(
        nothing.contains("no locks were recorded; not seen") && nothing.contains("in flock"),
        "{nothing}"
    );
}

#[test]
fn processor_time_of_processes_says_that_waits_are_not_the_cause_and_that_a_program_may_spin() {
    let text = "task A start=0 cpu=980\nlock m pthread_mutex name=hot\n10 A acquire m\n1_000 A release m";
    let text = |cpu: &str| {
        let test = testing::trace(&text.replace("cpu=980", cpu));
        written(&why(&[test.trace], &WhyOptions::default()).unwrap(), Text, None)
    };
    let ran = text("cpu=980");
    assert!(
        ran.contains("waits for locks are not the cause") && ran.contains("spinlocks of its own"),
        "{ran}"
    );
    assert!(ran.contains("ran 98 %, not seen 1 %") && ran.contains("`klock record --off-cpu`"), "{ran}");
    let half = text("cpu=500");
    assert!(half.contains("not seen: whether a lock is the cause"), "{half}");
}

#[test]
fn a_lock_of_the_programs_own_has_no_holders_to_record() {
    let text = "lock c condvar name=monitor\n\
                100 B wait c p.c:1:park<take_gil<run\n900 B acquire c p.c:1:park<take_gil<run wait=800\n1_000 B wake c";
    let filter = Filter { include_idle: true, ..Filter::default() };
    let options = WhyOptions { filter, ..WhyOptions::default() };
    let table = why(&[testing::trace(text).trace], &options).unwrap();
    let text = written(&table, Text, None);
    assert!(text.contains("most of its holders were not recorded"), "{text}");
    assert!(
        text.contains("who holds it, if it is a lock") && text.contains("--by stack --lock monitor"),
        "{text}"
    );
}

#[test]
fn a_deadlock_comes_first_whatever_else_was_waited_for() {
    let text = "0 C acquire z r.c:1\n1 D wait z r.c:1\n90_000 C release z r.c:1\n90_001 D acquire z r.c:1 wait=90_000\n\
                90_100 A acquire x p.c:1\n90_110 B acquire y q.c:1\n90_120 A wait y p.c:2\n90_130 B wait x q.c:2";
    let mut parts = testing::Parts::parse(text);
    parts.info.clocks_end.monotonic_ns = 90_200;
    let test = parts.write();
    let traces = [test.trace];
    let table = why(&traces, &WhyOptions { limit: Some(2), ..WhyOptions::default() }).unwrap();
    let first = |at: usize| table.locks[at].findings[0].verdict;
    assert_eq!((first(0), first(1), table.locks_total), (Verdict::Deadlock, Verdict::Deadlock, 3));
    let text = written(&table, Text, None);
    assert!(
        text.starts_with("-> deadlock at the end: each of them waits for a lock that another one holds\n"),
        "{text}"
    );
    assert!(text.contains("   - A (tid 103, pid 100) has #1 x (pthread_mutex) (p.c:1)"), "{text}");
    assert!(text.contains("take these locks in the same order everywhere"), "{text}");
    let Ok(lock) = "x".parse();
    let filter = Filter { lock: Some(lock), ..Filter::default() };
    let alone = why(&traces, &WhyOptions { filter, ..WhyOptions::default() }).unwrap();
    assert_eq!(
        alone.locks[0].findings[0].verdict,
        Verdict::Deadlock,
        "also with a lock that is not selected"
    );
}

#[test]
fn the_page_of_verdicts_says_what_each_means_and_what_its_rule_is() {
    let page = include_str!("../../../../docs/verdicts.md");
    for verdict in Verdict::ALL {
        let cell = format!("`{verdict}`");
        let (meanings, rules) = page.split_once("## Rules").unwrap();
        assert!(meanings.contains(&format!("({cell})")), "{verdict} has no meaning");
        assert!(rules.contains(&format!("| {cell} | ")), "{verdict} has no rule");
    }
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(cases(500)) })]

    #[test]
    fn the_parts_of_all_locks_add_up_to_blame_and_readers_change_nothing(
        (events, off_cpu) in (histories::history(), histories::off_cpu()),
        readers in 1..4usize,
    ) {
        let events = histories::with_off_cpu(&events, &off_cpu);
        prop_assume!(!events.is_empty());
        let test = trace_of(events, usize::MAX);
        let traces = [test.trace];
        let filter = Filter { include_idle: true, ..Filter::default() };
        let options = WhyOptions { filter: filter.clone(), allow_loss: true, ..WhyOptions::default() };
        let found = why(&traces, &options).unwrap();
        for lock in &found.locks {
            let Ok(of_lock) = format!("#{}", lock.lock_id).parse();
            let filter = Filter { lock: Some(of_lock), ..filter.clone() };
            let options = blame::Options { filter, allow_loss: true, ..blame::Options::default() };
            let totals = blame::blame(&traces, &options).unwrap().totals;
            prop_assert_eq!(lock.parts.waited_ns, totals.waited_ns);
            prop_assert_eq!(lock.parts.handoff_ns, totals.handoff_ns + totals.gap_ns);
            let Some(deadlock) = lock.findings.iter().find(|finding| finding.verdict == Verdict::Deadlock) else {
                return Err(TestCaseError::fail("every verdict is judged"));
            };
            prop_assert!(!deadlock.holds || lock.findings[0].verdict == Verdict::Deadlock);
        }
        let inputs = intervals::input::Input::open_all(&traces, 2, &options.filter).unwrap();
        prop_assert_eq!(super::of_inputs(&inputs, &options, readers).unwrap(), found);
    }
}
