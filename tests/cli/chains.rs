//! Checks the tables of chains of a known trace: a holds x, b holds y and waits for x, c waits for y.

use trace_format::{Event, EventKind, LockId, LockRow, TaskId, TaskRow};

use crate::support::{Folder, Outcome, Rows, begin_trace, one_wait, run_info, side_rows};

/// Returns the events: b waits for x from 1.1 ms to 2 ms, and c for y from 1.2 ms to 2.5 ms. a holds x until
/// 2 ms, and b holds y until 2.5 ms.
fn chain() -> Vec<Event> {
    let first = one_wait()[0];
    let event = |us: i64, kind, task, lock| {
        let wait_ns = first.wait_ns.filter(|_| kind == Acquire);
        let (task, lock) = (Some(TaskId(task)), Some(LockId(lock)));
        Event { ts_ns: us * 1000, kind, task, lock, wait_ns, ..first }
    };
    use EventKind::{Acquire, Release, Wait};
    let mut events = vec![
        event(1000, Acquire, 0, 0),
        event(1010, Acquire, 1, 1),
        event(1100, Wait, 1, 0),
        event(1200, Wait, 2, 1),
        event(2000, Release, 0, 0),
        event(2000, Acquire, 1, 0),
        event(2100, Release, 1, 0),
        event(2500, Release, 1, 1),
        event(2500, Acquire, 2, 1),
        event(2600, Release, 2, 1),
    ];
    events[5].wait_ns = Some(900_000);
    events[8].wait_ns = Some(1_300_000);
    events
}

fn folder(events: &[Event]) -> Folder {
    let mut rows = side_rows();
    let lock: LockRow = rows.locks[0].clone();
    rows.locks.push(LockRow {
        id: LockId(1),
        address: Some(0x100),
        name: Some("index_lock".to_owned()),
        ..lock
    });
    let task: TaskRow = rows.tasks[0].clone();
    rows.tasks.push(TaskRow { id: TaskId(2), tid: 12, comm: Some("c".to_owned()), ..task });
    let folder = Folder::new();
    let info = run_info("0123456789abcdef0123456789abcdef");
    let Rows { stacks, locks, tasks } = rows;
    begin_trace(&folder.path("trace.parquet"), events).finish(&info, &stacks, &locks, &tasks).unwrap();
    folder
}

#[test]
fn each_format_has_the_ends_of_chains() {
    let folder = folder(&chain());
    let run = |args: &[&str]| -> Outcome { folder.klock(&[&["blame", "--chains"], args].concat()) };
    let text = run(&[]);
    let expected = "\
root_wait  percent  direct  through_others  deepest  max_waiters  state  held at (lock)
  1.70 ms   77.3 %  900 µs          800 µs        2            2         app.c:12 (work) (pthread_mutex:cache_lock)
   500 µs   22.7 %  500 µs               0        1            1         app.c:12 (work) (pthread_mutex:index_lock)

waited 2,200,000 ns = 2,200,000 that end at holds
800,000 ns of it in chains of more than one lock
whether the holders ran or slept is not known: record with --off-cpu
";
    assert_eq!(text.succeeds(), expected);
    assert_eq!(folder.klock(&["analyze", "blame", "--chains"]).succeeds(), text.stdout);
    let csv = run(&["--format", "csv"]);
    assert!(csv.succeeds().contains("\nhold,1700000,772727,900000,800000,2,2,,,"), "{}", csv.stdout);
    let json: serde_json::Value = serde_json::from_str(run(&["--format", "json"]).succeeds()).unwrap();
    assert_eq!(json["rows"][0]["root_wait_ns"], 1_700_000);
    assert_eq!(json["totals"]["through_others_ns"], 800_000);
    let markdown = run(&["--format", "md"]);
    assert!(
        markdown.succeeds().contains("| hold ") || markdown.stdout.contains("1.70 ms"),
        "{}",
        markdown.stdout
    );
    run(&["--format", "parquet", "-o", "chains.parquet"]).succeeds();
    assert!(folder.path("chains.parquet").exists());
}

#[test]
fn holders_show_what_they_pass_on_and_receive() {
    let folder = folder(&chain());
    for (by, rows) in [
        (
            "lock",
            [
                "1700000,772727,900000,900000,0,800000,,",
                "500000,227272,1300000,500000,800000,0,#0 cache_lock",
            ],
        ),
        (
            "task",
            [
                "1700000,772727,900000,900000,0,800000,,",
                "500000,227272,1300000,500000,800000,0,#0 cache_lock",
            ],
        ),
        (
            "site",
            [
                "1700000,772727,900000,900000,0,800000,,",
                "500000,227272,1300000,500000,800000,0,#0 cache_lock",
            ],
        ),
    ] {
        let csv = folder.klock(&["blame", "--chains", "--by", by, "--format", "csv"]);
        let found: Vec<&str> = csv.succeeds().lines().skip(1).collect();
        assert!(
            found.len() == 2 && found.iter().zip(rows).all(|(row, begin)| row.starts_with(begin)),
            "{by}: {found:?}"
        );
    }
    let depth = folder.klock(&["blame", "--chains", "--by", "depth", "--format", "csv"]);
    assert_eq!(
        depth.succeeds(),
        "root_wait_ns,part_ppm,max_waiters,name,depth\n1400000,636363,1,1 lock,1\n800000,363636,1,2 locks,2\n"
    );
    folder.klock(&["blame", "--chains", "--by", "pair"]).fails(2, &["--by pair", "leave --chains out"]);
    folder.klock(&["blame", "--by", "lock"]).fails(2, &["--by lock", "add --chains"]);
    folder.klock(&["analyze", "chains"]).fails(2, &["'chains'", "klock blame --chains"]);
    folder.klock(&["report", "--by", "depth"]).fails(2, &["'depth'", "klock blame --chains --by depth"]);
}

#[test]
fn a_deadlock_is_reported_before_the_chains() {
    let mut events = chain();
    events.truncate(3);
    events.push(Event { ts_ns: 1_150_000, lock: Some(LockId(1)), task: Some(TaskId(0)), ..events[2] });
    let folder = folder(&events);
    let text = folder.klock(&["blame", "--chains"]);
    assert!(text.succeeds().contains("(tasks that wait for each other)"), "{}", text.stdout);
    assert!(text.stderr.contains("deadlock at the end: "), "{}", text.stderr);
}
