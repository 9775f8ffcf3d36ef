//! The summary of processes: what counts where, and what stays apart.

use super::{Options, Processes, processes};
use crate::{
    input::filter::Filter,
    output::{Format, Page},
    tables::Table,
    testing::{self, text_of},
};

/// Process 10 has two threads, two locks and a condition variable; process 20 one thread that wakes and fails.
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

fn of(text: &str, filter: Filter) -> Processes {
    let options = Options { filter, ..Options::default() };
    processes(&[testing::trace(text).trace], &options).unwrap()
}

#[test]
fn a_process_has_its_threads_locks_waits_and_idling_apart() {
    let found = of(TWO, Filter::default());
    let server = &found.rows[0];
    assert_eq!((server.pid, server.comm.as_str()), (10, "server"));
    assert_eq!((server.threads, server.locks), (2, 2), "the condition variable does not count as a lock");
    assert_eq!((server.count, server.waits, server.wait_ns), (3, 2, 600));
    assert_eq!((server.blocked_ns, server.hold_ns), (Some(300), Some(400 + 100)));
    assert_eq!((server.errors, server.wakes), (1, 0));
    assert_eq!((server.idle_waits, server.idle_ns), (1, 900));
    // Two threads from the first event to the last.
    assert_eq!((server.lived_ns, server.wait_ppm()), (2 * 1900, Some(157_894)));

    let client = &found.rows[1];
    assert_eq!((client.pid, client.threads, client.locks), (20, 1, 0));
    assert_eq!((client.errors, client.wakes, client.woken), (2, 2, 3));
    assert_eq!((client.blocked_ns, client.hold_ns), (None, None), "not measured is no 0");
}

#[test]
fn filters_choose_what_is_counted() {
    let task = Some("11".parse().unwrap());
    let found = of(TWO, Filter { task, ..Filter::default() });
    assert_eq!((found.rows.len(), found.rows[0].threads, found.rows[0].wait_ns), (1, 1, 400));
    // Times count from the first event.
    let window = of(TWO, Filter { from_ns: Some(450), to_ns: Some(900), ..Filter::default() });
    let server = &window.rows[0];
    assert_eq!((server.waits, server.idle_waits, server.lived_ns), (2, 0, 2 * 450));
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
    let csv = text_of(|out| found.write(&Format::Csv.into(), out));
    assert!(csv.starts_with("threads,locks,count,waits,wait_ns,wait_ppm,blocked_ns,"), "{csv}");
}
