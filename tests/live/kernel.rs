//! Records the whole machine, also under load: contended kernel locks, futexes, loss, and the ways to end a
//! recording.
//!
//! records the whole machine
//! needs: root, gcc
//! full needs: stress-ng

use std::{
    collections::BTreeSet,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use trace_format::{Event, EventKind, LockKind, Trace};

use crate::support::{Running, cannot_record, events, fixture, klock, monotonic_ns, run, skip, until};

fn load(seconds: u32) -> Running {
    let mut command = Command::new("stress-ng");
    command.args(["--quiet", "--futex", "2", "--mmap", "2", "--pipe", "2", "--switch", "2", "--timeout"]);
    Running::start(command.arg(format!("{seconds}s")).stdin(Stdio::null()))
}

fn stop(mut load: Running) {
    load.signal("INT");
    load.ends_within(Duration::from_secs(180));
}

fn read(path: &Path) -> (Trace, Vec<Event>) {
    let trace = Trace::open(path).expect("the recorder left a trace");
    let events = events(&trace);
    (trace, events)
}

fn cannot_run() -> Option<&'static str> {
    let stress = Command::new("stress-ng").arg("--version").stdout(Stdio::null()).status();
    if stress.is_ok_and(|status| status.success()) { cannot_record() } else { Some("needs stress-ng") }
}

#[test]
#[ignore = "full: loads the machine, and which locks are waited for is a matter of chance"]
fn a_recording_of_a_busy_machine_has_waits_for_kernel_locks_and_futexes() {
    if let Some(reason) = cannot_run() {
        return skip(reason);
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    until("tasks wait for kernel locks and for futexes", || {
        let load = load(30);
        thread::sleep(Duration::from_millis(500));
        let begun = monotonic_ns();
        let ended = run(klock().args(["record", "-a", "-d", "2s", "-f", "-o"]).arg(&path));
        let elapsed = monotonic_ns() - begun;
        stop(load);
        assert!(ended.status.success(), "{}", ended.stderr);
        let (trace, events) = read(&path);
        assert_eq!(trace.info().events, events.len() as u64);
        let span = trace.info().span_ns();
        assert!((1_900_000_000..elapsed).contains(&span), "{span} of {elapsed} ns");
        let locks = trace.locks().unwrap();
        let kinds: BTreeSet<LockKind> = events
            .iter()
            .filter(|event| event.kind == EventKind::Acquire)
            .filter_map(|event| Some(locks[usize::try_from(event.lock?.0).ok()?].kind))
            .collect();
        (kinds.iter().any(|kind| kind.is_kernel()) && kinds.contains(&LockKind::Futex)).then_some(())
    });
}

#[test]
#[ignore = "full: loads the machine, and which locks are waited for is a matter of chance"]
fn times_do_not_decrease_waits_add_up_and_every_id_has_its_row() {
    if let Some(reason) = cannot_run() {
        return skip(reason);
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    let load = load(30);
    let ended = run(klock().args(["record", "-a", "-d", "1s", "-o"]).arg(&path));
    stop(load);
    assert!(ended.status.success(), "{}", ended.stderr);
    let (trace, events) = read(&path);
    let (locks, tasks) = (trace.locks().unwrap().len(), trace.tasks().unwrap().len());
    let stacks = trace.stacks().unwrap().len();
    let within =
        |id: Option<i32>, rows: usize| id.is_none_or(|id| usize::try_from(id).is_ok_and(|id| id < rows));
    for event in &events {
        assert!(
            within(event.lock.map(|id| id.0), locks) && within(event.task.map(|id| id.0), tasks),
            "{event:?}"
        );
        assert!(
            within(event.stack.map(|id| id.0), stacks) && within(event.peer_stack.map(|id| id.0), stacks),
            "{event:?}"
        );
        if let (Some(wait), Some(blocked), Some(queued)) = (event.wait_ns, event.blocked_ns, event.runq_ns) {
            assert!(blocked >= 0 && queued >= 0 && blocked + queued <= wait, "{event:?}");
        }
    }
    let backwards = events.windows(2).filter(|pair| pair[1].ts_ns < pair[0].ts_ns).count() as u64;
    assert!(
        backwards <= trace.info().loss.late,
        "{backwards} steps back, {} events late",
        trace.info().loss.late
    );
}

#[test]
#[ignore = "full: loads the machine, and which locks are waited for is a matter of chance"]
fn a_ring_that_is_too_small_loses_events_and_reports_how_many_and_where() {
    if let Some(reason) = cannot_run() {
        return skip(reason);
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    let load = load(30);
    let ended = run(klock().args(["record", "-a", "-d", "2s", "--ring", "4096", "-o"]).arg(&path));
    stop(load);
    let (trace, events) = read(&path);
    let loss = &trace.info().loss;
    let rows: i64 = events.iter().filter(|e| e.kind == EventKind::Lost).filter_map(|e| e.count).sum();
    assert!(loss.ring_full > 0, "{loss:?}\n{}", ended.stderr);
    assert!(rows > 0, "{loss:?}");
    // No event follows the last loss of a CPU, so no row reports it.
    assert!(rows.cast_unsigned() <= loss.events(), "{rows} in the rows, {} in the footer", loss.events());
    let by_program: u64 = loss.by_program.iter().map(|counters| counters.ring_full).sum();
    assert!(by_program >= loss.ring_full, "{loss:?}");
}

/// Records the whole machine, with a known program, for this time, and ends the recording by a signal.
#[track_caller]
fn assert_finishes_its_file(signal: &str, time: Duration) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    let mut program = Command::new(fixture("known_calls"));
    let mut program = Running::start(program.args(["futex", "1", "1000"]).stdin(Stdio::piped()));
    program.line_after("ready ");
    let mut recorder = Running::start(klock().args(["record", "-a", "-o"]).arg(&path));
    let pid = i32::try_from(recorder.child.id()).unwrap();
    recorder.until_recording();
    program.child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    program.line_after("called ");
    thread::sleep(time);
    recorder.signal(signal);
    let ended = recorder.end_within(Duration::from_secs(180));
    assert!(ended.status.success(), "SIG{signal}: {:?} {}", ended.status, ended.stderr);
    let (trace, events) = read(&path);
    assert!(trace.info().complete && !trace.info().stop_reason.is_empty(), "SIG{signal}");
    assert!(!events.is_empty(), "SIG{signal}");
    let tasks = trace.tasks().unwrap();
    let own = events
        .iter()
        .filter_map(|event| event.task)
        .filter(|id| tasks[usize::try_from(id.0).unwrap()].pid == pid);
    assert_eq!(own.count(), 0, "the recorder recorded itself");
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn an_interrupted_recorder_finishes_its_file_and_does_not_record_itself() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    for signal in ["INT", "TERM"] {
        assert_finishes_its_file(signal, Duration::ZERO);
    }
}

#[test]
#[ignore = "full: loads the machine"]
fn a_recorder_that_is_interrupted_under_load_finishes_its_file_too() {
    if let Some(reason) = cannot_run() {
        return skip(reason);
    }
    for signal in ["INT", "TERM"] {
        let load = load(60);
        assert_finishes_its_file(signal, Duration::from_secs(1));
        stop(load);
    }
}
