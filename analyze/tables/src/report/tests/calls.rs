//! The columns of processes: what counts where, and what stays apart.

use super::{Report, report_of, testing, text_of};
use crate::{
    Table as _,
    key::By,
    report::{Options, Row},
};
use intervals::Filter;
use output::{Format, Page};

/// Process 10 has two threads, two locks and a condition variable; process 20 one thread that wakes and
/// fails.
const TWO: &str = "
    lock m pthread_mutex pid=10\nlock k rwsem\nlock c condvar pid=10\nlock f futex pid=20
    task A pid=10 tid=10 comm=server\ntask B pid=10 tid=11 comm=worker\ntask C pid=20 tid=20 comm=client
    100 A acquire m
    200 B wait m
    250 C try_fail f errno=11
    300 C wake f count=3
    350 C wake f errno=14
    500 A release m
    600 B acquire m wait=400 blocked=300 runq=50
    700 B release m
    700 A wait k
    900 A abandon k wait=200 errno=4
    1_000 A wait c
    1_900 A acquire c wait=900
    2_000 B acquire m
";

fn of(text: &str, filter: Filter) -> Report {
    report_of(text, &Options { by: By::Process, filter, ..Options::default() })
}

/// Tasks and locks, waits and their time, the time asleep, errors, wakes and woken, idle waits and their
/// time, and the lifetime.
type Figures = ([i64; 2], (i64, i64), Option<i64>, [i64; 3], (i64, i64), i64);

fn figures(row: &Row) -> Figures {
    (
        ["tasks", "locks"].map(|column| row[column]),
        (row["waits"], row["waited_ns"]),
        row.get("slept_ns"),
        ["errors", "wakes", "woken"].map(|column| row[column]),
        (row["idle_waits"], row["idle_time_ns"]),
        row["lived_ns"],
    )
}

#[test]
fn a_process_has_its_threads_locks_waits_and_idling_apart() {
    let found = of(TWO, Filter::default());
    let [server, client] = &found.rows[..] else { panic!("{found:?}") };
    assert_eq!((server.key.number("pid"), server.key.text("comm")), (Some(10), Some("server")));
    // The condition variable does not count as a lock. Two threads from the first event to the last.
    assert_eq!(figures(server), ([2, 2], (2, 600), Some(300), [1, 0, 0], (1, 900), 2 * 1900));
    assert_eq!((server["count"], server["open_holds"], server["total_ns"]), (2, 1, 400 + 100));
    assert_eq!((server["wait_share_ppm"], server["slept_share_ppm"]), (157_894, 78_947));

    assert_eq!(client.key.number("pid"), Some(20));
    assert_eq!(figures(client), ([1, 0], (0, 0), None, [2, 2, 3], (0, 0), 1900), "not measured is no 0");
}

#[test]
fn filters_choose_what_is_counted() {
    let task = Some("11".parse().unwrap());
    let found = of(TWO, Filter { task, ..Filter::default() });
    let ([tasks, _], (_, waited_ns), ..) = figures(&found.rows[0]);
    assert_eq!((found.rows.len(), tasks, waited_ns), (1, 1, 400));
    // Times count from the first event.
    let window = of(TWO, Filter { from_ns: Some(450), to_ns: Some(900), ..Filter::default() });
    let (_, (waits, _), _, _, (idle_waits, _), lived_ns) = figures(&window.rows[0]);
    assert_eq!((waits, idle_waits, lived_ns), (2, 0, 2 * 450));
}

#[test]
fn a_process_that_only_woke_others_has_a_row() {
    let found = of("task A pid=10 tid=10 comm=waker\n100 A wake f count=2", Filter::default());
    let ([tasks, locks], .., errors, _, _) = figures(&found.rows[0]);
    assert_eq!((tasks, locks, errors), (1, 0, [0, 1, 2]));
}

#[test]
fn every_format_has_every_process_and_no_name_that_drives_a_terminal() {
    let found = of(&TWO.replace("comm=server", "comm=s\u{1b}[2J"), Filter::default());
    for format in Format::ALL.iter().filter(|format| !format.is_binary()) {
        let text = text_of(|out| found.write(&Page::from(*format), out));
        assert!(!text.contains('\u{1b}') && text.contains("client"), "{format}: {text}");
    }
    let text = text_of(|out| found.write(&Page { style: Some(100).into(), ..Page::default() }, out));
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert!(text.contains("idle"), "{text}");
    // Rows that are not of tasks do not have the columns, and other rows have them on request.
    let test = testing::trace(TWO);
    let columns = vec!["idle_time".to_owned()];
    for (by, idle_ns) in [(By::Lock, None), (By::Comm, Some(900))] {
        let options = Options { by, columns: columns.clone(), ..Options::default() };
        let report = super::report(&test.trace, &options).unwrap();
        let idle = report.rows.iter().filter_map(|row| row.get("idle_time_ns")).max();
        assert_eq!(idle, idle_ns, "{by}");
    }
}
