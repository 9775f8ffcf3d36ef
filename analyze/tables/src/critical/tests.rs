//! Tables of known paths.

use super::*;
use crate::testing;
use crate::testing::V4;
use output::Format;

fn options(task: &str, to_ns: i64) -> CriticalOptions {
    let Ok(task) = task.parse();
    let filter = Filter { task: Some(task), to_ns: Some(to_ns), ..Filter::default() };
    CriticalOptions { filter, ..CriticalOptions::default() }
}

fn of(text: &str, options: &CriticalOptions) -> CriticalPath {
    let test = testing::trace(text);
    critical(std::slice::from_ref(&test.trace), options).unwrap()
}

/// Returns path, held, hand-off, at most, jumps, waited and rank of each row.
fn figures(path: &CriticalPath) -> Vec<(&str, [i64; 7])> {
    let columns = ["path_ns", "held_ns", "handoff_ns", "at_most_ns", "jumps", "waited_ns", "rank"];
    let figures = |row: &CriticalRow| columns.map(|column| row.get(column).unwrap_or(0));
    path.rows.iter().map(|row| (row.name.as_str(), figures(row))).collect()
}

#[test]
fn a_lock_without_recorded_holds_has_no_time_on_the_path() {
    let text = "lock f futex\nsource futex kinds=futex holds=no\n0 A acquire m\n10 B wait f lll_lock_wait\n90 A wake f\n91 B acquire f lll_lock_wait wait=81 peer=A\n\
                95 B release m\n100 B acquire n";
    let path = of(text, &options("B", 100));
    let row = path.rows.iter().find(|row| row.name.starts_with("#0 f")).unwrap();
    let columns = ["path_ns", "held_ns", "at_most_ns"].map(|column| row.get(column));
    assert_eq!((columns, row["waited_ns"]), ([None; 3], 81));
    let text = testing::written(&path, Format::Text, TextStyle::default());
    assert!(text.contains("much waited for, its holds were not recorded"), "{text}");
}

#[test]
fn v4_shows_what_is_on_the_path_beside_what_was_waited_for() {
    let path = of(V4, &options("R", 120));
    let expected = [
        ("#0 b (pthread_mutex)", [78, 78, 2, 80, 1, 52, 2]),
        ("#1 a (pthread_mutex)", [0, 0, 0, 0, 0, 162, 1]),
    ];
    assert_eq!(figures(&path), expected);
    let parts = PathParts { in_locks_ns: 78, handoff_ns: 2, no_lock_ns: 40, ..PathParts::default() };
    assert_eq!((path.totals.path_ns, path.totals.parts), (120, parts));
    assert_eq!(path.totals.tasks, ["R (tid 103, pid 100)"]);
    let text = testing::written(&path, Format::Text, TextStyle::default());
    assert!(text.contains("much waited for, little on the path"), "{text}");
    assert!(
        text.contains(
            "path of R (tid 103, pid 100): 120 ns = 78 in locks + 2 in hand-offs + 40 without a lock"
        ),
        "{text}"
    );
}

#[test]
fn a_window_cuts_the_path_and_locks_are_filtered() {
    let mut options = options("R", 120);
    options.filter.from_ns = Some(50);
    let path = of(V4, &options);
    assert_eq!(figures(&path)[0], ("#0 b (pthread_mutex)", [28, 28, 2, 30, 1, 52, 2]));
    assert_eq!(path.totals.path_ns, 70);
    options.filter.lock = "b".parse().ok();
    assert_eq!(figures(&of(V4, &options)).len(), 1);
}

#[test]
fn the_path_is_the_same_however_the_rows_are_grouped_and_in_several_traces() {
    let parts = testing::Parts::parse(V4);
    let whole = of(V4, &options("R", 120));
    for rows in 1..6 {
        let test = parts.write_in_groups(rows);
        let path = critical(std::slice::from_ref(&test.trace), &options("R", 120)).unwrap();
        assert_eq!((&path.rows, &path.totals), (&whole.rows, &whole.totals));
    }
    let (one, other) = (parts.write(), parts.write());
    let open = |test: &testing::TestTrace| Trace::open(&test.trace.paths().events).unwrap();
    let both = critical(&[open(&one), open(&other)], &options("R", 120)).unwrap();
    assert_eq!(both.totals.path_ns, 240);
    assert_eq!(both.rows.len(), 4);
}

#[test]
fn by_default_the_path_is_that_of_the_first_thread_that_lived_longest() {
    let text = format!("task W tid=100 pid=99\ntask R pid=100 tid=100\ntask A pid=100 tid=101 start=0\n{V4}");
    let path = of(&text, &CriticalOptions::default());
    assert_eq!(path.totals.tasks, ["R (pid 100)"]);
    assert_eq!(path.totals.path_ns, 130, "from the first row to the last");
}

#[test]
fn a_lock_that_is_held_twice_counts_once() {
    let text = "0 A acquire x shared\n10 A acquire y\n20 A acquire x shared\n30 A release x shared\n40 A release y\n50 A release x shared";
    let path = of(text, &options("A", 50));
    assert_eq!(figures(&path)[0], ("#0 x (pthread_mutex)", [30, 50, 0, 50, 0, 0, 0]));
    assert_eq!(figures(&path)[1], ("#1 y (pthread_mutex)", [20, 30, 0, 30, 0, 0, 0]));
}

#[test]
fn a_task_that_is_not_there_or_not_then_has_no_path() {
    let test = testing::trace(&format!("task L start=500 exit=600\n{V4}"));
    let traces = std::slice::from_ref(&test.trace);
    let missing = critical(traces, &options("nobody", 120)).unwrap_err();
    assert!(missing.to_string().contains("cannot find task 'nobody'"), "{missing}");
    let late = critical(traces, &options("L", 120)).unwrap();
    assert!(late.is_empty() && late.nothing().is_some());
}

#[test]
fn spans_have_the_sums_of_their_paths_and_percentiles_by_name() {
    let spans: Spans =
        "tid,begin_ns,end_ns,name\n103,0,120,r\n103,62,80,r\n101,0,60,a\n999,0,1,x".parse().unwrap();
    let options = CriticalOptions { spans: Some(spans), ..CriticalOptions::default() };
    let path = of(V4, &options);
    let columns = ["path_ns", "at_most_ns", "jumps", "spans", "p50_ns", "p99_ns"];
    let figures = |row: &CriticalRow| (row.key.span.clone().unwrap(), columns.map(|column| row[column]));
    let expected = [("r".to_owned(), [96, 98, 1, 2, 18, 78]), ("a".to_owned(), [60, 60, 0, 1, 60, 60])];
    assert_eq!(path.rows.iter().map(figures).collect::<Vec<_>>(), expected);
    assert_eq!((path.totals.path_ns, path.totals.spans, path.totals.spans_left_out), (198, Some(3), 1));
    let text = testing::written(&path, Format::Text, TextStyle::default());
    assert!(
        text.contains("path of 3 spans: 198 ns = 156 in locks + 2 in hand-offs + 40 without a lock"),
        "{text}"
    );
    let csv = testing::written(&path, Format::Csv, TextStyle::default());
    assert!(csv.lines().next().unwrap().contains("spans,p50_ns,p99_ns,span"), "{csv}");
}

#[test]
fn lines_that_are_no_spans_are_refused() {
    for line in ["1,2", "x,1,2", "1,5,5", "1,5,4,name", "99999999999,1,2"] {
        let error = format!("1,2,3\n{line}").parse::<Spans>().unwrap_err().to_string();
        assert!(error.contains("invalid line 2 of the spans"), "{error}");
    }
    assert_eq!("tid,begin_ns,end_ns\n".parse::<Spans>().unwrap(), Spans::default());
}
