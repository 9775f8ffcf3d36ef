//! Checks tables of several traces: one report of all, and the comparison of two.

use std::fs;

use trace_format::{Event, EventKind};

use crate::support::{Folder, one_wait, write_trace};

#[test]
fn several_files_or_a_directory_give_one_report() {
    let folder = Folder::new().with_trace(&one_wait());
    fs::create_dir(folder.path("more")).unwrap();
    write_trace(&folder.path("more/other.parquet"), "ffffffffffffffffffffffffffffffff", &one_wait());
    let count = |args: &[&str]| {
        let csv = folder.klock(&[&["analyze", "report", "-F", "count", "--format", "csv"], args].concat());
        csv.succeeds().lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    let both = count(&["--by", "site", "trace.parquet", "more"]);
    assert_eq!(
        both,
        ["4,app.c:12 (work) (pthread_mutex:cache_lock),app.c,12,work,app.c:12,pthread_mutex,cache_lock,0,"]
    );
    let files = ["--by", "lock", "trace.parquet", "trace.locks.parquet", "more/other.parquet"];
    let locks = count(&files);
    assert_eq!(locks.len(), 2, "{locks:?}");
    assert!(locks[0].starts_with("2,other: #0 cache_lock (pthread_mutex),0,"), "{locks:?}");
    for (command, rows) in
        [("blame", 1), ("timeline", 2), ("hist", 1), ("events", 10), ("waits", 2), ("holds", 4)]
    {
        let all = ["trace.parquet", "more", "--format", "csv"];
        let csv = folder.klock(&[&["analyze", command], &all[..]].concat());
        let lines: Vec<&str> = csv.succeeds().lines().collect();
        assert!(lines[0].split(',').any(|name| name == "trace"), "{command}: {}", lines[0]);
        assert!(
            lines.len() > rows && csv.stdout.contains(if rows > 1 { "other" } else { "\n" }),
            "{command}: {lines:?}"
        );
    }
    for command in ["report", "blame", "timeline"] {
        let csv =
            folder.klock(&["analyze", command, "--by", "host", "--format", "csv", "trace.parquet", "more"]);
        assert!(csv.succeeds().lines().next().unwrap().contains("host"), "{}", csv.stdout);
    }
    fs::copy(folder.path("trace.parquet"), folder.path("more/trace.parquet")).unwrap();
    for side in ["stacks", "locks", "tasks"] {
        let name = format!("trace.{side}.parquet");
        fs::copy(folder.path(&name), folder.path(&format!("more/{name}"))).unwrap();
    }
    let twice = folder.klock(&["analyze", "report", "trace.parquet", "more"]);
    twice.fails(2, &["cannot read", "trace.parquet and more/trace.parquet", "same recording", "once"]);
    folder
        .klock(&["analyze", "hist", "trace.locks.parquet", "trace.tasks.parquet"])
        .fails(2, &["none of the files is a trace"]);
    fs::create_dir(folder.path("none")).unwrap();
    folder.klock(&["analyze", "report", "none"]).fails(2, &["none: the directory has none"]);
}

#[test]
fn two_traces_are_compared_and_a_failed_condition_has_its_own_exit_code() {
    let folder = Folder::new().with_trace(&one_wait());
    // The same events a hundred times, with waits of `wait` ns, in a hundredth of the time.
    let many = |wait: i64| -> Vec<Event> {
        let at = |run: i64| move |event: Event| Event { ts_ns: event.ts_ns / 100 + run * 29_000, ..event };
        let shorter = move |event: Event| match event.kind {
            EventKind::Wait => Event { ts_ns: event.ts_ns + 900_000 - wait, ..event },
            _ => event,
        };
        (0..100).flat_map(|run| one_wait().into_iter().map(shorter).map(at(run))).collect()
    };
    let slow = ["slow.parquet", "slow-2.parquet", "slow-3.parquet"];
    let fast = ["fast.parquet", "fast-2.parquet", "fast-3.parquet"];
    for (names, wait, id) in [(slow, 900_000, "a"), (fast, 300_000, "d")] {
        let mut events = many(wait);
        events.sort_by_key(|event| event.ts_ns);
        for (at, name) in names.into_iter().enumerate() {
            write_trace(&folder.path(name), &format!("{}{at}", id.repeat(31)), &events);
        }
    }
    let diff =
        |args: &[&str]| folder.klock(&[&["analyze", "diff", "fast.parquet", "slow.parquet"], args].concat());
    assert!(diff(&[]).succeeds().contains("+200 %"), "{}", diff(&[]).stdout);
    assert!(diff(&["--format", "md"]).succeeds().contains("pthread\\_mutex:cache\\_lock"));
    let few = diff(&["--fail-if", "wait_total > +20%", "--format", "csv"]);
    assert_eq!(few.code, Some(3), "{}", few.stderr);
    assert!(
        few.stderr.contains("1 and 1 recordings cannot tell") && few.stdout.starts_with("metric,base,new,")
    );
    let three = |args: &[&str]| {
        let (base, new) = ([&["diff"][..], &fast].concat(), [&["--"][..], &slow].concat());
        folder.klock(&[&base, args, &new].concat())
    };
    three(&["--fail-if", "wait_total > +300%", "--by", "site"]).succeeds();
    let worse = three(&["--fail-if", "wait_total > +20%", "--format", "csv"]);
    assert_eq!(worse.code, Some(6), "{}", worse.stderr);
    assert!(worse.stderr.contains("wait_total > +20% holds") && worse.stdout.starts_with("metric,base,new,"));
    assert_eq!(diff(&["--fail-if", "wait_total > 5ms"]).code, Some(2));
}

#[test]
fn a_report_fails_if_a_row_satisfies_a_condition_and_shows_that_row() {
    let folder = Folder::new().with_trace(&one_wait());
    let report = |condition: &str| folder.klock(&["report", "--fail-if", condition, "-F", "name,contention"]);
    let worse = report("contention > 10%");
    assert_eq!(worse.code, Some(6), "{}", worse.stderr);
    assert!(
        worse.stderr.contains("contention > 10% holds") && worse.stdout.contains("cache_lock"),
        "{}",
        worse.stdout
    );
    assert_eq!(report("contention > 99%").code, Some(0));
    assert_eq!(report("contention > 5ms").code, Some(2));
    let shares = folder.klock(&["report", "--by", "process", "--fail-if", "wait_share > 99%"]);
    assert_eq!(shares.code, Some(0), "{}", shares.stderr);
}
