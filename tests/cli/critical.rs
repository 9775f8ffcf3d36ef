//! Checks the table of the critical path of a known trace: a holds a lock from 1 to 2 ms, and b waits for it
//! and holds it from 2.1 to 2.5 ms.

use crate::support::{Folder, one_wait};

#[test]
fn each_format_has_the_locks_on_the_path() {
    let folder = Folder::new().with_trace(&one_wait());
    let run = |args: &[&str]| folder.klock(&[&["critical", "--task", "b"], args].concat());
    let text = run(&[]);
    let lines = [
        "   path  percent  at_most  jumps  waited  rank  lock",
        "1.40 ms   93.3 %  1.50 ms      1  900 µs     1  #0 cache_lock (pthread_mutex)",
        "",
        "path of b (tid 11, pid 10): 1,500,000 ns = 1,400,000 in locks + 100,000 in hand-offs",
    ];
    assert_eq!(text.succeeds().lines().collect::<Vec<_>>(), lines);
    assert_eq!(folder.klock(&["analyze", "critical", "--task", "b"]).succeeds(), text.stdout);
    let csv = run(&["--format", "csv"]);
    assert!(csv.succeeds().contains("\n1400000,933333,1500000,1400000,100000,1,900000,1,"), "{}", csv.stdout);
    let json: serde_json::Value = serde_json::from_str(run(&["--format", "json"]).succeeds()).unwrap();
    assert_eq!(json["rows"][0]["at_most_ns"], 1_500_000);
    assert_eq!(json["totals"]["handoff_ns"], 100_000);
    assert!(run(&["--format", "md"]).succeeds().contains("| 1.40 ms "));
    run(&["--format", "parquet", "-o", "critical.parquet"]).succeeds();
    assert!(folder.path("critical.parquet").exists());
}

#[test]
fn a_window_is_the_length_of_the_path() {
    let folder = Folder::new().with_trace(&one_wait());
    let text = folder.klock(&["critical", "--task", "b", "--from", "500us", "--to", "1500us"]);
    assert!(
        text.succeeds().contains(": 1,000,000 ns = 900,000 in locks + 100,000 in hand-offs\n"),
        "{}",
        text.stdout
    );
}

#[test]
fn a_task_or_a_window_without_a_path_is_explained() {
    let folder = Folder::new().with_trace(&one_wait());
    folder.klock(&["critical", "--task", "nobody"]).fails(1, &["cannot find task 'nobody'", "--by task"]);
    folder
        .klock(&["critical", "--from", "2s", "--to", "1s"])
        .fails(2, &["from 2s to 1s", "later than --from"]);
    folder.klock(&["critical", "--from", "5s", "--to", "6s"]).fails(1, &["from 5.00 s on", "lasted 2.00 ms"]);
    folder.klock(&["critical", "-F", "nothing"]).fails(2, &["invalid column 'nothing'", "at_most"]);
}

#[test]
fn spans_are_added_up_by_name() {
    let folder = Folder::new().with_trace(&one_wait());
    std::fs::write(
        folder.path("spans.csv"),
        "tid,begin_ns,end_ns,name\n11,1500000,2500000,get\n11,2200000,2300000,get\n",
    )
    .unwrap();
    let csv = folder.klock(&[
        "critical",
        "--spans",
        "spans.csv",
        "-F",
        "path,jumps,spans,p50,p99,span",
        "--format",
        "csv",
    ]);
    assert!(csv.succeeds().starts_with("path_ns,jumps,spans,p50_ns,p99_ns,span,name,"), "{}", csv.stdout);
    assert!(csv.stdout.contains("\n1000000,1,2,100000,900000,get,#0 cache_lock "), "{}", csv.stdout);
    let since_start = "11,500000,1500000,get\n11,1200000,1300000,get\n";
    std::fs::write(folder.path("trace.csv"), since_start).unwrap();
    let text = folder.klock(&["critical", "--spans", "trace.csv", "--spans-clock", "trace"]);
    assert!(
        text.succeeds()
            .contains("path of 2 spans: 1,100,000 ns = 1,000,000 in locks + 100,000 in hand-offs\n"),
        "{}",
        text.stdout
    );
    std::fs::write(folder.path("bad.csv"), "11,5\n").unwrap();
    folder
        .klock(&["critical", "--spans", "bad.csv"])
        .fails(2, &["invalid line 1", "'11,5'", "tid,begin_ns,end_ns"]);
    folder.klock(&["critical", "--spans", "missing.csv"]).fails(2, &["cannot read missing.csv"]);
    folder
        .klock(&["critical", "--spans", "spans.csv", "--spans-clock", "boot"])
        .fails(2, &["'boot'", "realtime"]);
    let both = folder.klock(&["critical", "--spans", "spans.csv", "--task", "b"]);
    assert!(both.code == Some(2) && both.stderr.contains("--task"), "{}", both.stderr);
}
