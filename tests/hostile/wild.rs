//! Traces that the format allows and no recorder writes: times at both ends of i64, ids in steps, crowds on
//! one lock, threads with crowds of locks. Every command ends with an exit code of its own, in time and
//! within the limit of memory.

use trace_format::{
    Event, EventKind, LockId, LockKind, LockRow, Mode, StackId, TaskId, TaskRow, TraceWriter,
    event::MAX_TIME_NS, run_info::Source,
};

use crate::{
    klock,
    support::{Folder, Outcome, run_info},
};

/// Commands over a trace; each line is one.
const COMMANDS: &str = "\
    info --json
    verify
    events --format csv
    rollup -o rollups
    report
    report --by process --format json
    blame --by site
    blame --chains
    why
    order
    critical
    hist
    timeline
    timeline --worst
    offcpu
    whatif --cpus 1 --anyway
    whatif --hold #0=0.5 --anyway
    diff trace.parquet trace.parquet
    waits --format csv
    holds --format csv
    plot -o out.svg --force
    plot --lock #0 -o out.svg --force
    plot --flame=wait -o out.svg --force
    html -o out.html --force
    export --format perfetto -o out --force
    export --format firefox -o out --force
    export --format folded -o out --force";

/// Runs every command. A command may find nothing, or refuse a trace that lacks what it needs. It neither
/// panics nor hangs.
fn all_commands(folder: &Folder) {
    let mut failures = String::new();
    for line in COMMANDS.lines() {
        let args: Vec<&str> = line.split_whitespace().collect();
        let Outcome { code, stderr, .. } = klock(folder, &args);
        let is_usage = stderr.contains("there is no such") || stderr.contains("invalid value");
        if is_usage || stderr.contains("panicked") || !matches!(code, Some(0..=4)) {
            failures += &format!("{line}: {code:?} {stderr}\n");
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

fn event(ts_ns: i64, kind: EventKind, task: i32, lock: i32) -> Event {
    let (mode, lock, stack) = (Some(Mode::Exclusive), Some(LockId(lock)), Some(StackId(0)));
    Event { mode, lock, task: Some(TaskId(task)), stack, ..Event::new(ts_ns, kind, 0) }
}

/// Writes a trace with this number of locks and tasks.
fn write(events: impl IntoIterator<Item = Event>, (locks, tasks): (i32, i32)) -> Folder {
    let folder = Folder::new();
    let mut writer = TraceWriter::create(&folder.path("trace.parquet"), true).unwrap();
    events.into_iter().for_each(|event| writer.push(&event).unwrap());
    let lock = |id| LockRow {
        address: Some(64 * id as u64),
        pid: Some(10),
        ..LockRow::new(LockId(id), LockKind::PthreadRwLock)
    };
    let locks: Vec<LockRow> = (0..locks).map(lock).collect();
    let tasks: Vec<TaskRow> = (0..tasks).map(|id| TaskRow::new(TaskId(id), 10, 10 + id)).collect();
    let kinds = vec!["pthread_rwlock".to_owned()];
    let source =
        Source { name: "preload".to_owned(), kinds, uncontended: true, holds: true, ..Source::default() };
    let info = trace_format::RunInfo { sources: vec![source], ..run_info("ab") };
    writer.finish(&info, &[], &locks, &tasks).unwrap();
    folder
}

#[test]
fn times_at_both_ends_of_a_clock_are_read() {
    let ends = [-(1 << 60), 1 - (1 << 60), -1, 0, 1, 1_000_000_000_000_000_000, (1 << 60) - 1, 1 << 60];
    let mut events = Vec::new();
    for (at, ts_ns) in ends.into_iter().enumerate() {
        let (task, lock) = (at as i32 % 3, at as i32 % 2);
        let long = Some(ends[ends.len() - 1 - at]);
        events.push(event(ts_ns, EventKind::Wait, task, lock));
        let acquired = event(ts_ns, EventKind::Acquire, task, lock);
        events.push(Event { wait_ns: long, blocked_ns: long, runq_ns: long, ..acquired });
        let away = Event { blocked_ns: long, wait_ns: long, ..event(ts_ns, EventKind::OffCpu, task, lock) };
        events.push(Event { lock: None, mode: None, ..away });
        events.push(event(ts_ns, EventKind::Release, task, lock));
    }
    all_commands(&write(events, (2, 3)));
}

#[test]
fn a_single_wait_of_any_length_is_drawn() {
    for ns in [1_000_000_000_000_000_000, MAX_TIME_NS] {
        let acquired =
            Event { wait_ns: Some(ns), blocked_ns: Some(ns), ..event(5, EventKind::Acquire, 0, 0) };
        all_commands(&write([acquired, event(9, EventKind::Release, 0, 0)], (1, 1)));
    }
}

#[test]
fn times_of_centuries_are_refused_with_their_row() {
    let far = [MAX_TIME_NS + 1, i64::MAX, -MAX_TIME_NS - 1, i64::MIN].map(|ns| ns.to_string());
    for (at, text) in far.iter().enumerate() {
        let ns: i64 = text.parse().unwrap();
        let row = event(5, EventKind::Acquire, 0, 0);
        let row = [
            Event { ts_ns: ns, ..row },
            Event { wait_ns: Some(ns), ..row },
            Event { blocked_ns: Some(ns), ..row },
            Event { runq_ns: Some(ns), ..row },
        ][at];
        let column = ["ts_ns", "wait_ns", "blocked_ns", "runq_ns"][at];
        let folder = write([event(1, EventKind::Wait, 0, 0), row], (1, 1));
        // A command refuses what it reads.
        let commands =
            [&["events", "-o", "out.csv"][..], &["report"], &["plot", "-o", "out.svg"], &["critical"]];
        for command in &commands[..if at < 2 { 4 } else { 1 }] {
            klock(&folder, command).fails(2, &["trace.parquet", "row 1", column, text, "36 years"]);
        }
    }
}

#[test]
fn years_of_work_on_one_processor_are_replayed() {
    const YEARS: i64 = 1_000_000_000_000_000_000;
    let events = (0..2).flat_map(|task| {
        let at = move |ts_ns, kind| event(ts_ns, kind, task, 0);
        let away = Event {
            lock: None,
            mode: None,
            blocked_ns: Some(1),
            wait_ns: Some(3),
            ..at(40, EventKind::OffCpu)
        };
        [
            at(1 + i64::from(task) * 10, EventKind::Acquire),
            at(5 + i64::from(task) * 10, EventKind::Release),
            away,
        ]
    });
    let mut events: Vec<Event> = events.collect();
    events.sort_by_key(|event| event.ts_ns);
    for task in 0..2 {
        events.push(event(YEARS + i64::from(task) * 10, EventKind::Acquire, task, 0));
        events.push(event(YEARS + 5 + i64::from(task) * 10, EventKind::Release, task, 0));
    }
    all_commands(&write(events, (1, 2)));
}

/// Returns the rows of a thread that holds all of its locks at once, and releases them in the order of the
/// acquisitions or in the other one.
fn many_locks(locks: i32, last_first: bool) -> (Vec<Event>, (i32, i32)) {
    let taken = (0..locks).map(|lock| event(lock.into(), EventKind::Acquire, 0, lock));
    let order = move |at| if last_first { locks - 1 - at } else { at };
    let released = (0..locks).map(|at| event((locks + at).into(), EventKind::Release, 0, order(at)));
    (taken.chain(released).collect(), (locks, 1))
}

/// Returns the rows of a lock with this number of readers at once.
fn many_owners(tasks: i32) -> (Vec<Event>, (i32, i32)) {
    let shared = |event: Event| Event { mode: Some(Mode::Shared), ..event };
    let taken = (0..tasks).map(|task| event(task.into(), EventKind::Acquire, task, 0));
    let released = (0..tasks).map(|task| event((tasks + task).into(), EventKind::Release, task, 0));
    (taken.chain(released).map(shared).collect(), (1, tasks))
}

/// Returns the rows of a lock for which all tasks but the first wait at once.
fn many_waiters(tasks: i32) -> (Vec<Event>, (i32, i32)) {
    let mut events = vec![event(0, EventKind::Acquire, 0, 0)];
    events.extend((1..tasks).map(|task| event(task.into(), EventKind::Wait, task, 0)));
    events.push(event(tasks.into(), EventKind::Release, 0, 0));
    for task in 1..tasks {
        let at = i64::from(tasks + 2 * task);
        events.push(Event { wait_ns: Some(at - i64::from(task)), ..event(at, EventKind::Acquire, task, 0) });
        events.push(event(at + 1, EventKind::Release, task, 0));
    }
    (events, (1, tasks))
}

/// Returns the rows of a chain: each task holds a lock, and waits for the lock of the next task.
fn long_chain(tasks: i32) -> (Vec<Event>, (i32, i32)) {
    let at = |step: i32, task: i32, kind, lock| event(i64::from(step * tasks + task), kind, task, lock);
    let mut events: Vec<Event> = (0..tasks).map(|task| at(0, task, EventKind::Acquire, task)).collect();
    events.extend((0..tasks - 1).map(|task| at(1, task, EventKind::Wait, task + 1)));
    for number in 0..tasks {
        let (task, now) = (tasks - 1 - number, i64::from(2 * tasks + 3 * number));
        if number > 0 {
            let acquired = event(now, EventKind::Acquire, task, task + 1);
            events.push(Event { wait_ns: Some(now - i64::from(tasks + task)), ..acquired });
            events.push(event(now + 1, EventKind::Release, task, task + 1));
        }
        events.push(event(now + 2, EventKind::Release, task, task));
    }
    (events, (tasks, tasks))
}

#[test]
fn a_thread_that_holds_thousands_of_locks_is_analyzed() {
    for last_first in [false, true] {
        let (events, sizes) = many_locks(3_000, last_first);
        all_commands(&write(events, sizes));
    }
}

#[test]
fn a_lock_with_thousands_of_owners_or_waiters_is_analyzed() {
    for (events, sizes) in [many_owners(4_000), many_waiters(4_000), long_chain(2_000)] {
        all_commands(&write(events, sizes));
    }
}

#[test]
#[ignore = "full: takes minutes with a program that is built for tests"]
fn crowds_of_tens_of_thousands_are_analyzed() {
    let crowds =
        [many_locks(12_000, true), many_locks(12_000, false), many_owners(40_000), many_waiters(40_000)];
    for (events, sizes) in crowds {
        all_commands(&write(events, sizes));
    }
}

#[test]
fn a_lock_with_thousands_of_waiters_is_analyzed() {
    const TASKS: i32 = 4_000;
    let tasks = || (0..TASKS).map(i64::from).zip(0..TASKS);
    let waits = tasks().map(|(at, task)| event(at, EventKind::Wait, task, 0));
    // The last one that came is the first one that gets it.
    let turns = tasks().flat_map(|(at, task)| {
        let (at, task) = (i64::from(TASKS) + 2 * at, TASKS - 1 - task);
        let wait_ns = Some(at - i64::from(task));
        let acquired = Event { wait_ns, blocked_ns: wait_ns, ..event(at, EventKind::Acquire, task, 0) };
        [acquired, event(at + 1, EventKind::Release, task, 0)]
    });
    all_commands(&write(waits.chain(turns), (1, TASKS)));
}

#[test]
fn ids_that_no_side_table_has_are_read() {
    let ids = [-1, 0, 1, i32::MAX, i32::MIN, 1 << 30];
    let events = ids.iter().enumerate().flat_map(|(at, &id)| {
        let at = |kind, offset: i64| Event {
            stack: Some(StackId(id)),
            ..event(at as i64 * 10 + offset, kind, id, id)
        };
        [
            at(EventKind::Wait, 0),
            Event { peer_task: Some(TaskId(id)), ..at(EventKind::Acquire, 3) },
            at(EventKind::Release, 5),
        ]
    });
    all_commands(&write(events, (1, 1)));
}
