//! Checks `klock order`: its text and rows, its options and its exit codes.

use trace_format::{
    Event, EventKind, Frame, LockId, LockKind, LockRow, Mode, Stack, StackId, TaskId, TraceWriter,
};

use crate::support::{Folder, Rows, one_wait, run_info, side_rows};

const CACHE: i32 = 0;
const LOG: i32 = 1;
const GATE: i32 = 2;

/// An acquisition (`Some`: the line of the call) or a release of a lock by a task.
type Call = (i32, i32, Option<i32>);

/// Takes the cache's lock and then that of the log.
const A: [Call; 4] = [(0, CACHE, Some(1)), (0, LOG, Some(2)), (0, LOG, None), (0, CACHE, None)];
/// Takes them in the opposite order.
const B: [Call; 4] = [(1, LOG, Some(3)), (1, CACHE, Some(4)), (1, CACHE, None), (1, LOG, None)];

/// The same inside a third lock.
fn gated(calls: &[Call]) -> Vec<Call> {
    let task = calls[0].0;
    [&[(task, GATE, Some(5))], calls, &[(task, GATE, None)]].concat()
}

/// Returns a folder with a trace of these calls, one every 100 µs from 1 ms on.
fn folder(calls: &[Call]) -> Folder {
    let folder = Folder::new();
    let event = |(at, (task, lock, line)): (i64, &Call)| Event {
        mode: Some(Mode::Exclusive),
        lock: Some(LockId(*lock)),
        task: Some(TaskId(*task)),
        stack: line.map(StackId),
        wait_ns: line.map(|_| 0),
        ..Event::new(
            1_000_000 + at * 100_000,
            if line.is_some() { EventKind::Acquire } else { EventKind::Release },
            0,
        )
    };
    let Rows { locks, tasks, .. } = side_rows();
    let lock = |(id, name): (i32, &str)| LockRow {
        id: LockId(id),
        address: Some(0x6093_8000 + 0x40 * u64::try_from(id).unwrap()),
        kind: LockKind::PthreadMutex,
        name: Some(name.to_owned()),
        ..locks[0].clone()
    };
    let locks: Vec<LockRow> = (0..).zip(["cache_lock", "log_lock", "gate_lock"]).map(lock).collect();
    let frame = |symbol: &str, line| Frame {
        symbol: Some(symbol.to_owned()),
        file: Some("app.c".to_owned()),
        line: Some(line),
        ..Frame::default()
    };
    let stack = |id| Stack { id: StackId(id), frames: vec![frame("work", id), frame("main", 99)] };
    let stacks: Vec<Stack> = (0..6).map(stack).collect();
    let mut writer = TraceWriter::create(&folder.path("trace.parquet"), true).unwrap();
    (0..).zip(calls).map(event).for_each(|event| writer.push(&event).unwrap());
    writer.finish(&run_info("0123456789abcdef0123456789abcdef"), &stacks, &locks, &tasks).unwrap();
    folder
}

fn inversion() -> Folder {
    folder(&[A, B, B].concat())
}

const TEXT: &str = "\
1. can deadlock if both happen at once; has not in this recording
   once by a (pid 10)
     holds #0 cache_lock (pthread_mutex), taken at app.c:1 (work)
           work < main
     wants #1 log_lock (pthread_mutex) at app.c:2 (work)
           work < main
   2 times by b (tid 11, pid 10)
     holds #1 log_lock (pthread_mutex), taken at app.c:3 (work)
           work < main
     wants #0 cache_lock (pthread_mutex) at app.c:4 (work)
           work < main

1 inversion
";

#[test]
fn text_has_a_block_per_cycle_with_locks_places_and_threads() {
    let folder = inversion();
    let order = folder.klock(&["analyze", "order"]);
    assert_eq!(order.succeeds(), TEXT);
    assert!(order.stderr.starts_with("trust: 12 events"), "{}", order.stderr);
    assert_eq!(folder.klock(&["order"]).succeeds(), TEXT);
    folder.klock(&["order", "-o", "order.txt"]).succeeds();
    assert_eq!(std::fs::read_to_string(folder.path("order.txt")).unwrap(), TEXT);
}

#[test]
fn other_formats_and_chosen_columns_have_a_row_per_step() {
    let folder = inversion();
    let csv = folder.klock(&["order", "--format", "csv"]);
    let expected = "\
cycle,verdict,length,deadlocked,count,threads,by,held_at,held_mode,taken_at,taken_mode,name,held_lock,held_lock_id,held_address,held_kind,held_pid,held_stack,taken_lock,taken_lock_id,taken_address,taken_kind,taken_pid,taken_stack
1,inversion,2,0,1,1,a (pid 10),app.c:1 (work),exclusive,app.c:2 (work),exclusive,#0 cache_lock (pthread_mutex) at app.c:1 (work) -> #1 log_lock (pthread_mutex) at app.c:2 (work),#0 cache_lock (pthread_mutex),0,0x60938000,pthread_mutex,10,work;main,#1 log_lock (pthread_mutex),1,0x60938040,pthread_mutex,10,work;main
1,inversion,2,0,2,1,\"b (tid 11, pid 10)\",app.c:3 (work),exclusive,app.c:4 (work),exclusive,#1 log_lock (pthread_mutex) at app.c:3 (work) -> #0 cache_lock (pthread_mutex) at app.c:4 (work),#1 log_lock (pthread_mutex),1,0x60938040,pthread_mutex,10,work;main,#0 cache_lock (pthread_mutex),0,0x60938000,pthread_mutex,10,work;main
";
    assert_eq!(csv.succeeds(), expected);
    let json = folder.klock(&["order", "--format", "json"]);
    let json: serde_json::Value = serde_json::from_str(json.succeeds()).unwrap();
    assert_eq!(json["counts"]["inversions"], 1);
    assert_eq!(
        (&json["rows"][1]["taken"]["name"], &json["rows"][1]["count"]),
        (&"#0 cache_lock (pthread_mutex)".into(), &2.into())
    );
    let text = folder.klock(&["order", "-F", "times,threads"]);
    assert_eq!(
        text.succeeds(),
        "times  threads  held -> taken
    1        1  #0 cache_lock (pthread_mutex) at app.c:1 (work) -> #1 log_lock (pthread_mutex) at app.c:2 (work)
    2        1  #1 log_lock (pthread_mutex) at app.c:3 (work) -> #0 cache_lock (pthread_mutex) at app.c:4 (work)

1 inversion
"
    );
    let markdown = folder.klock(&["order", "--format", "md", "-F", "cycle,times"]);
    assert_eq!(markdown.succeeds().lines().count(), 4, "{}", markdown.stdout);
    folder.klock(&["order", "--format", "parquet", "-o", "order.parquet"]).succeeds();
    folder.klock(&["order", "-F", "cost"]).fails(2, &["invalid column 'cost'"]);
    folder.klock(&["order", "--by", "site"]).fails(2, &["invalid key 'site'", "lock, class"]);
    folder.klock(&["order", "--length", "1"]).fails(2, &["invalid length '1'", "2 to 8"]);
}

#[test]
fn a_condition_decides_the_exit_code() {
    let fails = |folder: &Folder| folder.klock(&["order", "--fail-if", "inversion"]);
    let found = fails(&inversion());
    assert_eq!((found.code, found.stdout.as_str()), (Some(6), TEXT), "{}", found.stderr);
    assert!(found.stderr.contains("inversion holds: 1 inversion"), "{}", found.stderr);
    let none = folder(&A);
    assert_eq!(none.klock(&["order"]).code, Some(1));
    assert_eq!(fails(&none).code, Some(0));
    let wrong = none.klock(&["order", "--fail-if", "deadlock"]);
    assert!(wrong.code == Some(2) && wrong.stderr.contains("use one of inversion"), "{}", wrong.stderr);
}

#[test]
fn cycles_that_cannot_deadlock_are_counted_and_listed_on_request() {
    let folder = folder(&[gated(&A), gated(&B)].concat());
    let order = folder.klock(&["order"]);
    assert_eq!(order.code, Some(1));
    let nothing = "nothing to show: no locks were taken in opposite orders in what was selected; 1 other cycle cannot deadlock: 1 gated (--all lists them)\n";
    assert_eq!(order.stdout, nothing);
    let all = folder.klock(&["order", "--all"]);
    assert!(
        all.succeeds().starts_with(
            "1. no inversion: one further lock is held meanwhile by or for two of the threads\n"
        ) && all.stdout.ends_with("\n\n0 inversions; 1 other cycle cannot deadlock: 1 gated\n"),
        "{}",
        all.stdout
    );
    assert_eq!(folder.klock(&["order", "--all", "--fail-if", "inversion"]).code, Some(0));
}

#[test]
fn a_graph_has_an_edge_per_order() {
    let folder = inversion();
    let graph = folder.klock(&["order", "--graph", "dot"]);
    assert_eq!(
        graph.succeeds(),
        r##"digraph lock_order {
  "#0 cache_lock (pthread_mutex)" -> "#1 log_lock (pthread_mutex)" [label="app.c:1 (work) -> app.c:2 (work), once"];
  "#1 log_lock (pthread_mutex)" -> "#0 cache_lock (pthread_mutex)" [label="app.c:3 (work) -> app.c:4 (work), 2 times"];
}
"##
    );
    assert_eq!(folder.klock(&["order", "--graph", "dot", "--fail-if", "inversion"]).code, Some(6));
    let wrong = folder.klock(&["order", "--graph", "svg"]);
    assert!(wrong.code == Some(2) && wrong.stderr.contains("use one of dot"), "{}", wrong.stderr);
    assert_eq!(folder.klock(&["order", "--graph", "dot", "--format", "csv"]).code, Some(2));
}

#[test]
fn filters_select_cycles_and_change_no_order() {
    let folder = inversion();
    for filter in [
        &["--lock", "cache_lock"][..],
        &["--lock", "#1"],
        &["--lock", "cache_*"],
        &["--task", "a"],
        &["--task", "b"],
        &["--kind", "pthread_mutex"],
    ] {
        let order = folder.klock(&[&["order"], filter].concat());
        assert_eq!(order.succeeds(), TEXT, "{filter:?}");
    }
    // The second order is taken 500 µs after the first event.
    for (filter, code) in [
        (&["--lock", "gate_lock"][..], 1),
        (&["--from", "450us"], 0),
        (&["--from", "2ms"], 1),
        (&["--to", "450us"], 1),
        (&["--to", "550us"], 0),
        (&["--mode", "shared"], 1),
        (&["--having", "times >= 2"], 0),
        (&["--having", "times > 2"], 1),
    ] {
        assert_eq!(folder.klock(&[&["order"], filter].concat()).code, Some(code), "{filter:?}");
    }
}

#[test]
fn without_releases_the_answer_names_the_way_to_record_them() {
    let folder = Folder::new();
    let Rows { stacks, locks, tasks } = side_rows();
    let mut info = run_info("0123456789abcdef0123456789abcdef");
    info.sources[0].holds = false;
    let mut writer = TraceWriter::create(&folder.path("trace.parquet"), true).unwrap();
    one_wait().iter().filter(|event| event.kind != EventKind::Release).for_each(|e| writer.push(e).unwrap());
    writer.finish(&info, &stacks, &locks, &tasks).unwrap();
    folder.klock(&["order"]).fails(3, &["no releases of these locks", "--locks kernel or --locks pthread"]);
    folder.klock(&["order", "--fail-if", "inversion"]).fails(3, &["no releases"]);
}
