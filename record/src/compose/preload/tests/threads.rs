//! Creations, starts, ends and joins of threads, as the rows that they become.

use super::*;

const THREAD: u64 = 0x7000;

/// The columns of rows of threads: time, kind, task, lock, peer.
fn of_threads(history: &History) -> Vec<(i64, EventKind, i32, i32, Option<i32>)> {
    let row = |row: &Event| {
        let peer = row.peer_task.map(|peer| peer.0);
        (row.ts_ns, row.kind, row.task.unwrap().0, row.lock.unwrap().0, peer)
    };
    history.rows.iter().map(row).collect()
}

#[test]
fn the_end_of_a_thread_is_a_lock_of_its_creator_of_itself_and_of_who_joins_it() {
    let mut history = History::new();
    history
        .record(10, 1, (op::INIT, api::THREAD), THREAD, &[])
        .record(15, 2, (op::STARTED, api::THREAD), THREAD, &[])
        .record(20, 1, (op::WAIT, api::THREAD), THREAD, &[[102, 0]])
        .record(50, 2, (op::POSTED, api::THREAD), THREAD, &[])
        .record(55, 1, (op::WAITED, api::THREAD), THREAD, &[]);
    assert_eq!(
        of_threads(&history),
        [
            (10, Init, 0, 0, None),
            (20, Wait, 0, 0, Some(1)),
            (50, Wake, 1, 0, None),
            (55, Acquire, 0, 0, None)
        ]
    );
    assert_eq!(history.rows[3].wait_ns, Some(35));
    assert_eq!(history.kinds(), [LockKind::Thread]);
    assert!(history.rows.iter().all(|row| row.mode.is_none()));
    let child = &history.composer.tasks.rows()[1];
    assert_eq!((child.parent, child.start_ns), (Some(TaskId(0)), Some(2)));
}

#[test]
fn a_thread_may_start_and_end_before_its_creation_is_recorded() {
    for (started, ended, created) in [(15, 30, 20), (15, 18, 20), (25, 30, 20)] {
        let mut records = [
            (started, 2, op::STARTED),
            (ended, 2, op::POSTED),
            (created, 1, op::INIT),
            (40, 1, op::ACQUIRED),
        ];
        records.sort_unstable();
        let mut history = History::new();
        for (ts_ns, tid, op) in records {
            history.record(ts_ns, tid, (op, api::THREAD), THREAD, &[]);
        }
        let locks: Vec<_> = history.rows.iter().map(|row| row.lock.unwrap().0).collect();
        assert_eq!(locks, [0, 0, 0], "{records:?}");
        assert_eq!(history.composer.tasks.rows()[1].parent, Some(TaskId(0)), "{records:?}");
    }
}

#[test]
fn the_place_of_a_thread_that_ended_is_another_lock() {
    let mut history = History::new();
    history.thread(3);
    let mut record = |ts_ns, tid, op, rest: &[Unit]| {
        history.record(ts_ns, tid, (op, api::THREAD), THREAD, rest);
    };
    record(10, 1, op::INIT, &[]);
    record(20, 1, op::ACQUIRED, &[]);
    // Joined: the next one is seen from its start on.
    record(30, 2, op::STARTED, &[]);
    record(31, 1, op::INIT, &[]);
    record(40, 2, op::POSTED, &[]);
    // Detached: its end alone leaves the place to the next one, whose creation was not recorded.
    record(50, 3, op::STARTED, &[]);
    record(60, 1, op::WAIT, &[[103, 0]]);
    record(70, 3, op::POSTED, &[]);
    record(80, 1, op::WAITED, &[]);
    record(90, 1, op::INIT, &[]);
    let locks: Vec<_> = history.rows.iter().map(|row| (row.ts_ns, row.lock.unwrap().0)).collect();
    assert_eq!(locks, [(10, 0), (20, 0), (31, 1), (40, 1), (60, 2), (70, 2), (80, 2), (90, 3)]);
    let parents: Vec<_> = history.composer.tasks.rows().iter().map(|task| task.parent).collect();
    assert_eq!(parents, [None, Some(TaskId(0)), None]);
}

#[test]
fn a_thread_that_starts_another_session_is_the_same_thread() {
    let mut history = History::new();
    history
        .record(10, 1, (op::INIT, api::THREAD), THREAD, &[])
        .record(15, 2, (op::STARTED, api::THREAD), THREAD, &[])
        .record(20, 1, (op::WAIT, api::THREAD), THREAD, &[[102, 0]]);
    let exit = ThreadExit { exit_ns: 30, ..ThreadExit::default() };
    history.step(30, 2, &Step::Exit(&exit, 0)).thread(2);
    history
        .record(31, 2, (op::STARTED, api::THREAD), THREAD, &[])
        .record(50, 2, (op::POSTED, api::THREAD), THREAD, &[])
        .record(55, 1, (op::WAITED, api::THREAD), THREAD, &[]);
    assert!(history.rows.iter().all(|row| row.lock.unwrap().0 == 0), "{:?}", history.rows);
    assert_eq!(history.rows[2].task, history.composer.tasks.rows().get(1).map(|task| task.id));
}

#[test]
fn joins_that_fail_end_no_thread() {
    let mut history = History::new();
    history
        .record(10, 1, (op::INIT, api::THREAD), THREAD, &[])
        .record(20, 1, (op::FAILED, api::THREAD | call::TRY), THREAD, &[[16, 0]])
        .record(30, 1, (op::WAIT, api::THREAD | call::TIMED), THREAD, &[[102, 0]])
        .record(40, 1, (op::FAILED, api::THREAD | call::TIMED), THREAD, &[[110, 0]])
        .record(50, 1, (op::FAILED, api::THREAD), THREAD, &[[35, 0]])
        .record(60, 1, (op::ACQUIRED, api::THREAD), THREAD, &[])
        .record(70, 1, (op::FAILED, api::THREAD), THREAD, &[[3, 0]]);
    let rows: Vec<_> = history.rows.iter().map(|row| (row.kind, row.errno, row.lock.unwrap().0)).collect();
    assert_eq!(
        rows,
        [
            (Init, None, 0),
            (TryFail, Some(16), 0),
            (Wait, None, 0),
            (Abandon, Some(110), 0),
            (TryFail, Some(35), 0),
            (Acquire, None, 0),
            (TryFail, Some(3), 1),
        ]
    );
}

#[test]
fn a_process_reports_the_start_of_a_thread_once() {
    let mut history = History::new();
    for thread in THREAD..THREAD + 100 {
        history.record(10, 2, (op::STARTED, api::THREAD), thread, &[]);
    }
    history.record(20, 1, (op::INIT, api::THREAD), THREAD + 5, &[]).record(
        21,
        1,
        (op::INIT, api::THREAD),
        THREAD,
        &[],
    );
    assert_eq!(history.rows.len(), 2);
    let child = &history.composer.tasks.rows()[1];
    assert_eq!((child.parent, child.start_ns), (Some(TaskId(0)), Some(2)));
}
