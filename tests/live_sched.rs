//! Records the off-CPU times of holders as an ordinary user, without root, and by a BPF program as root (`fixtures/programs/known_sleeps.c`):
//! each switch that the kernel counted is a row, each row lies where the program slept, and a holder that sleeps is said to sleep.
//!
//! needs: root, gcc

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::Stdio;

use trace_format::{
    Event, EventKind, TaskState, Trace,
    run_info::{Covers, Source},
};

mod support;

use support::{
    cannot_record, csv_rows, hidden, klock,
    place::{Place, Recorded},
    record_whole, skip,
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

/// The arguments of known_sleeps for rounds of 5 ms with more busy threads than processors, and a lock for each of the others.
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

#[test]
#[ignore = "records a program; run by cargo xtask test"]
fn every_switch_of_a_holder_that_the_kernel_counts_is_a_row_and_lies_where_it_slept() {
    let place = Place::new();
    let arguments = arguments_of_holders();
    let (recorded, printed) = known_sleeps(&place, &[], &arguments.each_ref().map(String::as_str));
    if let Some(reason) = refused(&recorded.trace) {
        return skip(reason);
    }
    assert_every_switch_is_a_row(&recorded, &printed, TaskState::Asleep);
}

#[test]
#[ignore = "records a program; run by cargo xtask test"]
fn every_switch_of_a_holder_is_a_row_of_a_program_and_holders_alone_have_rows_if_nothing_else_is_recorded() {
    let arguments = arguments_of_holders();
    let arguments = arguments.each_ref().map(String::as_str);
    for locks in [&["--locks", "pthread"][..], &["--locks", "kernel,pthread", "--contended-only"]] {
        let options = [&["--sched", "holders"], locks].concat();
        let Some((recorded, printed)) = known_sleeps_as_root(&options, &arguments) else { return };
        assert_every_switch_is_a_row(&recorded, &printed, TaskState::Interruptible);
        let counts = &recorded.trace.info().loss.by_program;
        let delivered = |name: &str| -> u64 {
            counts.iter().filter(|one| one.program == name).map(|one| one.delivered).sum()
        };
        assert!(delivered("switch") > 0 && delivered("switches") == 0, "{counts:?}");
        let of_main = lines(&printed, "ready")[0][0];
        assert_eq!(of_thread(&recorded, of_main).is_empty(), locks.len() == 2, "{locks:?}");
    }
}

/// Asserts the rows of the three threads that hold a lock all the while. `asleep` is the state of those that slept.
#[track_caller]
fn assert_every_switch_is_a_row(recorded: &Recorded, printed: &str, asleep: TaskState) {
    assert_eq!(recorded.trace.info().loss.events(), 0, "{:?}", recorded.trace.info().loss);
    assert!(recorded.events.is_sorted_by_key(|event| event.ts_ns), "rows are in the order of time");
    // Where the kernel names the state, a wait for memory or for one of its locks has another one than the thread's own sleeps, and a
    // thread that is already being woken as it leaves has none (docs/trace-format.md).
    let is_named = asleep == TaskState::Interruptible;
    for name in ["sleeper", "waiter", "waker"] {
        let [tid, begin_ns, end_ns, switches] = lines(printed, name)[0][..] else { panic!("{printed}") };
        let switches = usize::try_from(switches).unwrap();
        let rows = of_thread(recorded, tid);
        let found = rows.iter().filter(|row| row.ts_ns > begin_ns && begin_of(row) < end_ns).count();
        assert!(found <= switches, "{name}: {found} of {switches}");
        assert!(found + hidden(switches) >= switches, "{name}: {found} of {switches}");
        for row in rows {
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
            assert_eq!((row.stack, row.peer_task), (None, None), "{row:?}");
        }
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
    let (recorded, _) = known_sleeps(&place, &["--sched", "none"], &["10", "2", "0", "hold"]);
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
        let mains = recorded.tasks.iter().filter(|task| task.tid == task.pid).count();
        assert_eq!(mains, 1, "the time before the program is klock's: {:?}", recorded.tasks);
        recorded
    });
}

/// Asserts that the holders of known_chain, which this records by default, are asleep or wait for the next one.
fn assert_sleepers_are_asleep(place: &Place, record: impl Fn() -> Recorded) {
    // A machine may hide the switches of a task: the recording is made again then.
    let found = (0..8).any(|_| {
        let recorded = record();
        if let Some(reason) = refused(&recorded.trace) {
            skip(reason);
            return true;
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
        of("asleep") > 190_000_000 && of("lock") > 2 * 190_000_000
    });
    assert!(found, "the sleep is missing in 8 recordings");
}
