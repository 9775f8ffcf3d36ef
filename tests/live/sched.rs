//! Records the off-CPU times of holders as an ordinary user, without root, and by a BPF program as root
//! (`fixtures/programs/known_sleeps.c`): each row is of a switch that the kernel counted, and a holder that
//! sleeps is said to sleep. A host may hide some switches, so that only the full size asks whether nearly all
//! switches are rows, and nearly all sleeps.
//!
//! needs: root, gcc

use std::{collections::BTreeSet, process::Stdio};

use trace_format::{
    Event, EventKind, TaskState, Trace,
    run_info::{Covers, Source},
};

use crate::support::{
    self, cannot_record, csv_rows, hidden, klock, most_of, number,
    place::{Place, Recorded},
    record_whole, skip, until,
};

const ROUNDS: usize = 100;

fn sched(trace: &Trace) -> &Source {
    trace.info().sources.iter().find(|source| source.is_sched()).expect("the source is listed")
}

/// Returns the reason why this machine refuses perf events to ordinary users, if it does.
fn refused(trace: &Trace) -> Option<&str> {
    let source = sched(trace);
    (source.covers == Some(Covers::None)).then(|| source.limits[0].as_str())
}

/// Records known_sleeps as an ordinary user. Returns what the program printed, too.
fn known_sleeps(place: &Place, options: &[&str], arguments: &[&str]) -> (Recorded, String) {
    let program = place.program("known_sleeps");
    let ended = record_whole(&mut place.record(options, &program, arguments));
    place.assert_nothing_is_left();
    (place.recorded(), ended.stdout)
}

/// As [`known_sleeps`], as root. `None` if that is not possible here.
fn known_sleeps_as_root(options: &[&str], arguments: &[&str]) -> Option<(Recorded, String)> {
    if let Some(reason) = cannot_record() {
        skip(reason);
        return None;
    }
    let place = Place::new();
    let mut record = klock();
    record.args(["record", "-f", "-o"]).arg(place.path("t.parquet")).args(options).arg("--");
    let ended = record_whole(record.arg(place.program("known_sleeps")).args(arguments));
    Some((place.recorded(), ended.stdout))
}

/// The arguments of known_sleeps for rounds of 5 ms with more busy threads than processors, and a lock for
/// each of the others.
fn arguments_of_holders() -> [String; 4] {
    let cpus = std::thread::available_parallelism().unwrap().get();
    [ROUNDS.to_string(), "5".to_owned(), (2 * cpus).to_string(), "hold".to_owned()]
}

/// Returns the off-CPU times of the thread with this id.
fn of_thread(recorded: &Recorded, tid: i64) -> Vec<&Event> {
    let is_of = |event: &&Event| {
        let task = event.task.map(|task| &recorded.tasks[usize::try_from(task.0).unwrap()]);
        event.kind == EventKind::OffCpu && task.is_some_and(|task| i64::from(task.tid) == tid)
    };
    recorded.events.iter().filter(is_of).collect()
}

/// Returns the numbers of the lines that begin with this word.
fn lines(text: &str, word: &str) -> Vec<Vec<i64>> {
    let lines = text.lines().filter_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
    lines.map(|line| line.split(' ').map(|number| number.parse().unwrap()).collect()).collect()
}

fn begin_of(event: &Event) -> i64 {
    event.ts_ns - event.wait_ns.unwrap()
}

/// Whether all that was seen is in the trace, as it was: where the machine takes processors away for long, a
/// ring may fill, and a record may come too late.
fn is_whole(recorded: &Recorded) -> bool {
    let loss = &recorded.trace.info().loss;
    loss.events() + loss.late == 0
}

/// The options as root: the rows of holders alone, and of all threads.
const OF_ROOT: [&[&str]; 2] = [
    &["--off-cpu=holders", "--locks", "pthread"],
    &["--off-cpu=holders", "--locks", "kernel,pthread", "--contended-only"],
];

#[test]
#[ignore = "records a program; run by cargo xtask test"]
fn a_holder_has_no_more_rows_than_the_kernel_counts_switches_and_each_says_how_it_left() {
    let (place, arguments) = (Place::new(), arguments_of_holders());
    until("a recording without loss that has a sleep", || {
        let (recorded, printed) = known_sleeps(&place, &[], &arguments.each_ref().map(String::as_str));
        if let Some(reason) = refused(&recorded.trace) {
            skip(reason);
            return Some(());
        }
        let is_decided = is_whole(&recorded) && has_rows_of_switches(&recorded, &printed, TaskState::Asleep);
        is_decided.then_some(())
    });
}

#[test]
#[ignore = "records a program; run by cargo xtask test"]
fn as_root_too_and_holders_alone_have_rows_if_nothing_else_is_recorded() {
    let arguments = arguments_of_holders();
    let arguments = arguments.each_ref().map(String::as_str);
    for (options, is_of_holders) in OF_ROOT.into_iter().zip([true, false]) {
        until("a recording without loss that has a sleep, and a row of the main thread", || {
            let Some((recorded, printed)) = known_sleeps_as_root(options, &arguments) else {
                return Some(());
            };
            if !is_whole(&recorded) || !has_rows_of_switches(&recorded, &printed, TaskState::Interruptible) {
                return None;
            }
            let counts = &recorded.trace.info().loss.by_program;
            let delivered = |name: &str| -> u64 {
                counts.iter().filter(|one| one.program == name).map(|one| one.delivered).sum()
            };
            assert!(delivered("switch") > 0 && delivered("switches") == 0, "{counts:?}");
            let of_main = of_thread(&recorded, lines(&printed, "ready")[0][0]);
            assert!(!is_of_holders || of_main.is_empty(), "{of_main:?}");
            (is_of_holders || !of_main.is_empty()).then_some(())
        });
    }
}

#[test]
#[ignore = "full: a host may hide some switches"]
fn nearly_every_switch_of_a_holder_that_the_kernel_counts_is_a_row_and_lies_where_it_slept() {
    let (place, arguments) = (Place::new(), arguments_of_holders());
    let arguments = arguments.each_ref().map(String::as_str);
    most_of(3, 1, || {
        let (recorded, printed) = known_sleeps(&place, &[], &arguments);
        match refused(&recorded.trace) {
            Some(reason) => skip(reason),
            None => assert_nearly_every_switch_is_a_row(&recorded, &printed, TaskState::Asleep),
        }
    });
    for options in OF_ROOT {
        most_of(3, 1, || {
            let Some((recorded, printed)) = known_sleeps_as_root(options, &arguments) else { return };
            assert_nearly_every_switch_is_a_row(&recorded, &printed, TaskState::Interruptible);
        });
    }
}

/// Checks the rows of the three threads that hold a lock all the while. `asleep` is the state of those that
/// slept. Returns whether a thread slept.
#[track_caller]
fn has_rows_of_switches(recorded: &Recorded, printed: &str, asleep: TaskState) -> bool {
    assert!(recorded.events.is_sorted_by_key(|event| event.ts_ns), "rows are in the order of time");
    // Where the kernel names the state, a wait for memory or for one of its locks has another one than the
    // thread's own sleeps, and a thread that is already being woken as it leaves has none
    // (docs/trace-format.md).
    let is_named = asleep == TaskState::Interruptible;
    let mut has_slept = false;
    for name in ["sleeper", "waiter", "waker"] {
        let (found, switches) = counted(recorded, printed, name);
        assert!(found <= switches, "{name}: {found} of {switches}");
        for row in of_thread(recorded, lines(printed, name)[0][0]) {
            has_slept |= row.state == Some(asleep);
            match row.state {
                state
                    if state == Some(asleep)
                        || is_named && [None, Some(TaskState::Uninterruptible)].contains(&state) =>
                {
                    assert_eq!((row.blocked_ns, row.runq_ns), (None, None), "{row:?}");
                }
                Some(TaskState::Runnable) => {
                    assert_eq!((row.blocked_ns, row.runq_ns), (Some(0), row.wait_ns), "{row:?}");
                }
                _ => panic!("{row:?}"),
            }
            // Root's recorder knows who ran instead of a runnable thread.
            let may_have_peer = is_named && row.state == Some(TaskState::Runnable);
            assert!(row.stack.is_none() && (row.peer_task.is_none() || may_have_peer), "{row:?}");
        }
    }
    has_slept
}

/// Returns the number of rows of a thread between two times, and the kernel's count of its switches.
fn counted(recorded: &Recorded, printed: &str, name: &str) -> (usize, usize) {
    let [tid, begin_ns, end_ns, switches] = lines(printed, name)[0][..] else { panic!("{printed}") };
    let rows = of_thread(recorded, tid);
    let found = rows.iter().filter(|row| row.ts_ns > begin_ns && begin_of(row) < end_ns).count();
    (found, usize::try_from(switches).unwrap())
}

/// Asserts that hardly a row of these threads is missing.
#[track_caller]
fn assert_nearly_every_switch_is_a_row(recorded: &Recorded, printed: &str, asleep: TaskState) {
    assert_eq!(recorded.trace.info().loss.events(), 0, "{:?}", recorded.trace.info().loss);
    for name in ["sleeper", "waiter", "waker"] {
        let (found, switches) = counted(recorded, printed, name);
        assert!(found + hidden(switches) >= switches, "{name}: {found} of {switches}");
    }
    for (name, word, least_ns) in [("sleeper", "slept", 5_000_000), ("waiter", "waited", 0)] {
        let rows = of_thread(recorded, lines(printed, name)[0][0]);
        let times = lines(printed, word);
        assert_eq!(times.len(), ROUNDS);
        let has_row = |time: &&Vec<i64>| {
            let within = rows
                .iter()
                .filter(|row| row.state == Some(asleep) && begin_of(row) >= time[0] && row.ts_ns <= time[1]);
            // Without a spurious return there is one, which is as long as the sleep.
            let lengths: Vec<i64> = within.map(|row| row.wait_ns.unwrap()).collect();
            !lengths.is_empty() && lengths.iter().sum::<i64>() >= least_ns
        };
        // A turn that came before the waiter did makes no sleep; the program says which.
        let sleeps: Vec<&Vec<i64>> = times.iter().filter(|time| time.get(2) != Some(&0)).collect();
        let found = sleeps.iter().copied().filter(has_row).count();
        assert!(found + hidden(sleeps.len()) >= sleeps.len(), "{name}: {found} of {}", sleeps.len());
    }
}

#[test]
#[ignore = "records a program; run by cargo xtask test"]
fn threads_that_hold_no_lock_have_no_rows_and_no_rows_are_recorded_on_request() {
    let place = Place::new();
    let (recorded, _) = known_sleeps(&place, &[], &["10", "2"]);
    assert!(recorded.events.iter().all(|event| event.kind != EventKind::OffCpu), "no thread holds a lock");
    let (recorded, _) = known_sleeps(&place, &["--off-cpu=none"], &["10", "2", "0", "hold"]);
    assert!(recorded.events.iter().all(|event| event.kind != EventKind::OffCpu));
    assert!(recorded.trace.info().sources.iter().all(|source| !source.is_sched()));
}

#[test]
#[ignore = "records a program; run by cargo xtask test"]
fn a_holder_that_sleeps_with_the_lock_is_asleep_for_those_who_wait() {
    let place = Place::new();
    assert_sleepers_are_asleep(&place, || place.run_fixture(&[], "known_chain", &["4", "200"]).0);
}

#[test]
#[ignore = "records a program; run by cargo xtask test"]
fn as_root_a_holder_that_sleeps_is_asleep_too_beside_kernel_locks_and_futexes() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let place = Place::new();
    let program = place.program("known_chain");
    assert_sleepers_are_asleep(&place, || {
        let mut record = klock();
        record.args(["record", "-f", "-o"]).arg(place.path("t.parquet")).arg("--").arg(&program);
        let ended = support::run(record.args(["4", "200"]));
        assert!(ended.status.success(), "{}", ended.stderr);
        let recorded = place.recorded();
        let sources: Vec<_> = recorded.trace.info().sources.iter().map(|source| &*source.name).collect();
        assert!(["kernel_contended", "futex"].iter().all(|name| sources.contains(name)), "{sources:?}");
        let own: BTreeSet<_> = recorded.events.iter().filter_map(|event| event.task).collect();
        let own = own.iter().map(|task| &recorded.tasks[usize::try_from(task.0).unwrap()]);
        let mains: Vec<_> = own.filter(|task| task.tid == task.pid).collect();
        assert_eq!(mains.len(), 1, "the time before the program is klock's: {mains:?}");
        recorded
    });
}

/// Asserts that the holders of known_chain, which this records by default, are asleep or wait for the next
/// one.
fn assert_sleepers_are_asleep(place: &Place, record: impl Fn() -> Recorded) {
    until("a recording without loss that has the sleep", || {
        let recorded = record();
        if let Some(reason) = refused(&recorded.trace) {
            skip(reason);
            return Some(());
        }
        if !is_whole(&recorded) {
            return None;
        }
        let path = place.path("t.parquet");
        let blame = ["blame", "--by", "state", "--kind", "pthread_mutex", "--format", "csv"];
        let ended = support::run(klock().args(blame).arg(&path).stdin(Stdio::null()));
        assert!(ended.status.success(), "{}", ended.stderr);
        let rows = csv_rows(&ended.stdout);
        assert!(rows.iter().all(|row| row["state"] != "unknown"), "{rows:?}");
        let of = |state: &str| {
            let rows = rows.iter().filter(|row| row["state"] == state);
            rows.map(|row| row["wait_caused_ns"].parse::<i64>().unwrap()).sum::<i64>()
        };
        // Each of the first two holders waits for the next one meanwhile.
        assert!(of("lock") > 2 * 190_000_000, "{rows:?}");
        // A host may hide the switch.
        (of("asleep") > 190_000_000).then_some(())
    });
}

#[test]
#[ignore = "records a program; run by cargo xtask test"]
fn a_long_hold_that_nobody_waits_for_has_the_time_in_which_its_thread_had_no_cpu() {
    let place = Place::new();
    until("a recording without loss that has the time without a CPU", || {
        let (recorded, ended) = place.run_fixture(&[], "long_hold", &["5"]);
        if let Some(reason) = refused(&recorded.trace) {
            skip(reason);
            return Some(());
        }
        let path = place.path("t.parquet");
        let rows = |command: &[&str]| {
            let ended = support::run(klock().args(command).args(["--format", "csv"]).arg(&path));
            assert!(ended.status.success(), "{}", ended.stderr);
            csv_rows(&ended.stdout)
        };
        const STATES: &str = "nested,idle,preempted,uninterruptible,stopped,asleep,ready,running,unknown";
        let longest = &rows(&["holds", "-F", &format!("hold,{STATES}"), "-k", "hold", "-n", "1"])[0];
        let of = |state: &str| number(longest, &format!("{state}_ns"));
        assert_eq!(STATES.split(',').map(of).sum::<i64>(), of("hold"), "{longest:?}");
        let [off_ns, ran_ns] = ["off", "ran"].map(|word| lines(&ended.stdout, word)[0][0]);
        let report = &rows(&["report", "-F", "preempted", "-k", "preempted"])[0];
        assert!(number(report, "preempted_ns") >= of("preempted"), "{report:?}");
        // A host may hide the switches, or stop the processor between the kernel's clock and its record of a
        // switch.
        let are_alike = 10 * of("preempted") >= 9 * off_ns && 10 * of("running") >= 9 * ran_ns;
        if !is_whole(&recorded) || !are_alike {
            return None;
        }
        let verdicts = rows(&["why"]);
        let said = verdicts.iter().find(|row| row["verdict"] == "long_hold" && row["holds"] == "yes");
        said.filter(|row| row["evidence"].contains("hold_long")).map(|_| ())
    });
}
