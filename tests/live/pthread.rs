//! Records a program whose lock events are known exactly (`fixtures/programs/known_counts.c`), from its first
//! instruction and by its process ID, and compares every count.
//!
//! needs: root, gcc

use std::{collections::HashMap, io::Write, process::Stdio, time::Duration};

use trace_format::{Event, EventKind, LockKind, TaskRow, Trace};

use crate::support::{
    self, CLOCKS_NS, Running, cannot_record, fixture, klock,
    known_counts::{Counts, counts, mutex_name, printed},
    place::Recorded,
    run, skip, until,
};

/// Returns the mutex of an event, if it is one of the program.
fn mutex<'a>(recorded: &'a Recorded, event: &Event) -> Option<&'a str> {
    mutex_name(recorded.lock(event)?)
}

fn task<'a>(recorded: &'a Recorded, event: &Event) -> &'a TaskRow {
    &recorded.tasks[usize::try_from(event.task.expect("a lock event has a task").0).unwrap()]
}

fn is_main(task: &TaskRow) -> bool {
    task.tid == task.pid
}

/// Checks that the counts are equal, or short by no more than the reported loss.
#[track_caller]
fn assert_counts(recorded: &Recorded, expected: &Counts) {
    assert!(expected.len() > 4, "the program printed no counts");
    let found = counts(&recorded.events, &recorded.locks, &recorded.tasks);
    let loss = i64::try_from(recorded.trace.info().loss.events()).unwrap();
    let mut missing = 0;
    for (key, expected) in expected {
        let found = found.get(key).copied().unwrap_or(0);
        assert!(found <= *expected, "{key:?}: {found}, but it happened {expected} times");
        assert!(
            found == *expected || loss > 0,
            "{key:?}: {found}, it happened {expected} times, and no loss is reported"
        );
        missing += expected - found;
    }
    for key in found.keys() {
        assert!(expected.contains_key(key), "{key:?} was recorded but never happened");
    }
    assert!(missing <= loss, "{missing} events are missing, {loss} are reported lost");
}

fn record_from_the_start(arguments: &[&str]) -> (Recorded, support::Ended) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    let ended =
        run(klock().args(["record", "-o"]).arg(&path).arg("--").arg(fixture("known_counts")).args(arguments));
    assert!(path.exists(), "{}", ended.stderr);
    (Recorded::read(&path), ended)
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_program_recorded_from_its_start_has_exactly_the_counts_that_it_prints_and_its_exit_status() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let (recorded, ended) = record_from_the_start(&["--exit", "7", "4", "2000", "5"]);
    assert_eq!(ended.status.code(), Some(7), "{}", ended.stderr);
    assert_counts(&recorded, &printed(&ended.stdout));
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn an_attached_program_has_exactly_the_counts_that_it_prints() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    let mut program = std::process::Command::new(fixture("known_counts"));
    let mut program = Running::start(program.args(["--wait", "3", "2000", "4"]).stdin(Stdio::piped()));
    let pid = program.line_after("ready ");
    let mut recorder = Running::start(
        klock()
            .args(["record", "-p", &pid, "--locks", "futex,pthread", "--probes", "uprobe", "-o"])
            .arg(&path),
    );
    recorder.until_recording();
    program.child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let program = program.end_within(Duration::from_secs(180));
    // A recorder ends with the process that it records.
    let recorder = recorder.end_within(Duration::from_secs(180));
    assert!(recorder.status.success(), "{}", recorder.stderr);
    assert_counts(&Recorded::read(&path), &printed(&program.stdout));
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn uprobes_that_take_much_of_a_running_programs_time_end_the_recording_unless_they_were_chosen() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    let program =
        Running::start(std::process::Command::new(fixture("lock_pairs")).args(["1", "10000000000"]));
    let pid = program.pid().to_string();
    let record = |options: &[&str]| {
        let ended = run(klock()
            .args(["record", "-f", "-p", &pid, "--locks", "pthread", "-o"])
            .arg(&path)
            .args(options));
        assert!(ended.status.success(), "{}", ended.stderr);
        (ended.stderr, Trace::open(&path).unwrap().info().stop_reason.clone())
    };
    let (said, reason) = record(&[]);
    assert!(said.contains("its uprobes took at least") && said.contains("klock record COMMAND"), "{said}");
    assert_eq!(reason, "its uprobes cost too much");
    let (said, reason) = record(&["--probes", "uprobe", "-d", "2s"]);
    assert!(!said.contains("its uprobes"), "{said}");
    assert_eq!(reason, "duration");
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn an_acquisition_names_the_function_and_the_line_that_made_it() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let (recorded, _) = record_from_the_start(&["2", "500", "1"]);
    let mut seen = 0;
    for event in &recorded.events {
        let by_worker = event.task.is_some() && !is_main(task(&recorded, event));
        if event.kind != EventKind::Acquire || !by_worker || mutex(&recorded, event) != Some("hot") {
            continue;
        }
        let stack = event.stack.expect("an acquisition has a stack");
        let frames = &recorded.stacks[usize::try_from(stack.0).unwrap()].frames;
        let named = frames.iter().any(|frame| {
            let file = frame.file.as_deref().is_some_and(|file| file.ends_with("known_counts.c"));
            frame.symbol.as_deref() == Some("hammer_hot") && file && frame.line.is_some_and(|line| line > 0)
        });
        assert!(named, "no hammer_hot with its file and line in {frames:#?}");
        seen += 1;
    }
    assert!(seen > 0, "no acquisition of hot");
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_thread_at_the_closed_gate_waits_from_its_call_to_its_acquisition() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    // A wait whose switch this machine hides seems to be spent on the CPU.
    let is_on_cpu = |recorded: &Recorded, event: &Event| {
        let has_waited = event.kind == EventKind::Acquire && event.wait_ns.is_some_and(|ns| ns > 0);
        has_waited && mutex(recorded, event) == Some("gate") && event.blocked_ns == Some(0)
    };
    let (recorded, ended) = until("every thread sleeps at the gate, and nothing is lost", || {
        let (recorded, ended) = record_from_the_start(&["4", "100", "2"]);
        let are_asleep = !recorded.events.iter().any(|event| is_on_cpu(&recorded, event));
        (are_asleep && recorded.trace.info().loss.events() == 0).then_some((recorded, ended))
    });
    let lines = ended.stdout.lines().filter_map(|line| line.strip_prefix("GAVE_UP "));
    let numbers = lines.map(|line| line.split(' ').map(|word| word.parse().unwrap()).collect::<Vec<i64>>());
    let gave_up: HashMap<i64, [i64; 2]> = numbers.map(|n| (n[0], [n[1], n[2]])).collect();
    let mut begun: HashMap<i32, i64> = HashMap::new();
    let mut waited = 0;
    for event in recorded.events.iter().filter(|event| mutex(&recorded, event) == Some("gate")) {
        let task = task(&recorded, event);
        let tid = task.tid;
        match event.kind {
            EventKind::Wait => assert_eq!(begun.insert(tid, event.ts_ns), None, "a wait within a wait"),
            EventKind::Abandon => {
                assert_eq!(event.errno, Some(libc::ETIMEDOUT));
                let begin = begun.remove(&tid).expect("an abandoned wait has a begin");
                let ([called, returned], end) = (gave_up[&i64::from(tid)], event.ts_ns);
                let is_inside = begin + CLOCKS_NS >= called && end <= returned + CLOCKS_NS;
                assert!(
                    is_inside && end + CLOCKS_NS >= called + 20_000_000,
                    "{begin} to {end}, but the call of 20 ms took {called} to {returned}"
                );
            }
            EventKind::TryFail => assert_eq!(event.errno, Some(libc::EBUSY)),
            EventKind::Acquire if !is_main(task) => {
                let begin = begun.remove(&tid).expect("the gate was closed, so the acquisition waited");
                assert_eq!(event.wait_ns, Some(event.ts_ns - begin));
                if let (Some(blocked), Some(queued)) = (event.blocked_ns, event.runq_ns) {
                    assert!(blocked > 0 && blocked + queued <= event.ts_ns - begin, "{event:?}");
                }
                waited += 1;
            }
            _ => {}
        }
    }
    assert_eq!(waited, 4);
}

#[test]
#[ignore = "records this machine: needs root and gcc"]
fn a_wait_for_a_lock_of_the_c_library_is_no_wait_for_its_futex_too() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let directory = tempfile::tempdir().unwrap();
    let program = xtask::fixture::build("small_shop", directory.path(), &[]).unwrap();
    let path = directory.path().join("t.parquet");
    // The program waits for mutexes and reader-writer locks, and for a mutex by a given clock until a given
    // time.
    let options = ["record", "--locks", "pthread,futex", "-o"];
    assert!(run(klock().args(options).arg(&path).arg(program).arg("20")).status.success());
    let locks = Recorded::read(&path).locks;
    let addresses = |is_futex: bool| {
        let of_kind = locks.iter().filter(move |lock| (lock.kind == LockKind::Futex) == is_futex);
        of_kind.map(|lock| lock.address).collect::<Vec<_>>()
    };
    let both: Vec<_> = addresses(true).into_iter().filter(|at| addresses(false).contains(at)).collect();
    assert!(addresses(false).len() >= 3 && both.is_empty(), "{both:?} of {locks:?}");
}
