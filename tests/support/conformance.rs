//! Compares the rows that `fixtures/programs/known_locks.c` expects with the rows of its trace. A launched
//! program and an attached one must give the same rows.

#![allow(unreachable_pub, reason = "each test program uses a part of it")]

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
    path::Path,
};

use trace_format::{Event, EventKind, LockKind, LockRow, TaskRow, Trace};

/// A row: one event of one lock, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    /// The thread, by its name in the program or, in a trace, by its ID.
    thread: String,
    event: String,
    mode: String,
    errno: String,
    /// `0` for no wait, `+` for a wait, `-` if the event has none.
    waited: String,
    /// The peer of a wait; `?` is any.
    owner: String,
}

/// A lock of the program.
#[derive(Debug)]
struct Lock {
    name: String,
    kind: String,
    address: u64,
}

/// The output of the program: locks in the order of their creation, and the rows of each.
#[derive(Debug, Default)]
pub struct Expected {
    locks: Vec<Lock>,
    rows: BTreeMap<String, Vec<Row>>,
}

impl Expected {
    /// Reads the lines of `known_locks --expected`.
    pub fn read(stdout: &str) -> Self {
        let mut expected = Self::default();
        for line in stdout.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["LOCK", name, kind, address] => expected.locks.push(Lock {
                    name: name.to_owned(),
                    kind: kind.to_owned(),
                    address: u64::from_str_radix(address.trim_start_matches("0x"), 16).expect("an address"),
                }),
                ["ROW", thread, lock, event, mode, errno, waited, owner] => {
                    let [thread, event, mode, errno, waited, owner] =
                        [thread, event, mode, errno, waited, owner].map(str::to_owned);
                    let row = Row { thread, event, mode, errno, waited, owner };
                    expected.rows.entry(lock.to_owned()).or_default().push(row);
                }
                _ => {}
            }
        }
        assert!(expected.locks.len() > 20, "the program printed no locks: {stdout}");
        expected
    }
}

/// Checks that a trace has exactly the expected rows of each lock, and no other rows at the addresses of the
/// locks.
#[track_caller]
pub fn assert_conforms(trace: &Path, expected: &Expected) {
    let trace = Trace::open(trace).expect("the recorder left a trace");
    assert!(trace.info().complete, "the trace is not complete");
    assert_eq!(trace.info().loss.events(), 0, "events were lost");
    let (locks, tasks) = (trace.locks().expect("locks"), trace.tasks().expect("tasks"));
    let mut found: HashMap<i32, Vec<Event>> = HashMap::new();
    for batch in trace.events().expect("events") {
        for event in batch.expect("a batch").iter() {
            if let Some(lock) = event.lock {
                found.entry(lock.0).or_default().push(event);
            }
        }
    }
    let mut wrong = String::new();
    let mut threads = Threads::default();
    for (lock, row) in joined(expected, &locks, &mut wrong) {
        let events = row.and_then(|row| found.remove(&row.id.0)).unwrap_or_default();
        let wanted = expected.rows.get(&lock.name).map(Vec::as_slice).unwrap_or_default();
        compare(lock, wanted, &events, &tasks, &mut threads, &mut wrong);
    }
    for lock in locks.iter().filter(|lock| found.contains_key(&lock.id.0) && is_at_one(expected, lock)) {
        let _ = writeln!(wrong, "{:?} at {:#x?}: {:?}", lock.kind, lock.address, found[&lock.id.0]);
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Pairs each lock of the program with its row. Locks at one address are in the order of their creation.
fn joined<'a>(
    expected: &'a Expected,
    locks: &'a [LockRow],
    wrong: &mut String,
) -> Vec<(&'a Lock, Option<&'a LockRow>)> {
    let mut taken: HashMap<u64, usize> = HashMap::new();
    let mut pairs = Vec::new();
    for lock in &expected.locks {
        let place = taken.entry(lock.address).or_default();
        let kind: LockKind = lock.kind.parse().expect("a kind");
        let row =
            locks.iter().filter(|row| row.address == Some(lock.address) && row.kind == kind).nth(*place);
        *place += 1;
        if row.is_none() {
            let _ = writeln!(wrong, "{} ({}) is not among the locks", lock.name, lock.kind);
        }
        pairs.push((lock, row));
    }
    pairs
}

fn is_at_one(expected: &Expected, row: &LockRow) -> bool {
    expected.locks.iter().any(|lock| row.address == Some(lock.address))
}

/// Threads of the trace and their names in the program, learnt from the rows.
#[derive(Debug, Default)]
struct Threads {
    named: HashMap<i32, String>,
}

impl Threads {
    /// Returns whether a thread of the trace can be the one of this name. Owners of robust mutexes exit, and
    /// their IDs may be reused.
    fn agree(&mut self, tid: i32, name: &str) -> bool {
        if !["a", "b"].contains(&name) {
            return true;
        }
        self.named.entry(tid).or_insert_with(|| name.to_owned()) == name
    }
}

fn compare(
    lock: &Lock,
    wanted: &[Row],
    events: &[Event],
    tasks: &[TaskRow],
    threads: &mut Threads,
    wrong: &mut String,
) {
    let tid = |task: Option<trace_format::TaskId>| {
        task.and_then(|id| tasks.get(usize::try_from(id.0).ok()?)).map(|task| task.tid)
    };
    // Threads leave a barrier in any order.
    let each_alone = lock.kind == "barrier";
    let mut wanted = wanted.to_vec();
    let mut events = events.to_vec();
    if each_alone {
        wanted.sort_by_key(|row| row.thread.clone());
        let names = threads.named.clone();
        events.sort_by_key(|event| tid(event.task).and_then(|tid| names.get(&tid).cloned()));
    }
    for at in 0..wanted.len().max(events.len()) {
        let problem = match (wanted.get(at), events.get(at)) {
            (Some(row), Some(event)) => {
                let words = in_words(event);
                let owner = tid(event.peer_task);
                let same = words == without_names(row)
                    && tid(event.task).is_some_and(|tid| threads.agree(tid, &row.thread))
                    && (event.kind != EventKind::Wait
                        || match (row.owner.as_str(), owner) {
                            ("?", _) | ("-", None) => true,
                            (name, Some(owner)) => name != "-" && threads.agree(owner, name),
                            (_, None) => false,
                        });
                (!same).then(|| format!("expected {row:?}, found {event:?}"))
            }
            (wanted, found) => Some(format!("expected {wanted:?}, found {found:?}")),
        };
        if let Some(problem) = problem {
            let _ = writeln!(wrong, "{} row {at}: {problem}", lock.name);
            return;
        }
    }
}

fn in_words(event: &Event) -> Row {
    let dash = || "-".to_owned();
    let has_wait = matches!(event.kind, EventKind::Acquire | EventKind::Abandon);
    let waited = match event.wait_ns {
        Some(ns) if has_wait => if ns > 0 { "+" } else { "0" }.to_owned(),
        None if !has_wait => dash(),
        odd => format!("{odd:?}"),
    };
    Row {
        thread: dash(),
        event: event.kind.to_string(),
        mode: event.mode.map_or_else(dash, |mode| mode.to_string()),
        errno: event.errno.map_or_else(dash, |errno| errno.to_string()),
        waited,
        owner: dash(),
    }
}

fn without_names(row: &Row) -> Row {
    Row { thread: "-".to_owned(), owner: "-".to_owned(), ..row.clone() }
}
