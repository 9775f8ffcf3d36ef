//! Checks the tables of a known trace.

use std::{
    io::Read,
    process::{Command, Stdio},
};

use trace_format::{Event, EventKind};

use crate::support::{Folder, one_wait};

#[test]
fn the_report_shows_the_cost_of_each_lock() {
    let folder = Folder::new().with_trace(&one_wait());
    let report = folder.klock(&["analyze", "report"]);
    let text = report.succeeds();
    assert!(text.contains("cache_lock"), "{text}");
    assert!(text.contains("900"), "the wait of 900 µs is there: {text}");
    assert!(!text.contains('\u{1b}'), "no colour codes in a pipe: {text}");
}

#[test]
fn csv_has_nanoseconds_and_units_in_the_names_of_columns() {
    let folder = Folder::new().with_trace(&one_wait());
    let report = folder.klock(&["analyze", "report", "--format", "csv"]);
    let mut reader = csv::Reader::from_reader(report.succeeds().as_bytes());
    let row: std::collections::HashMap<String, String> = reader.deserialize().next().unwrap().unwrap();
    let columns = [
        ("max_ns", "1000000"),
        ("wait_max_ns", "900000"),
        ("total_ns", "1400000"),
        ("wait_total_ns", "900000"),
        ("count", "2"),
        ("avg_ns", "700000"),
        ("wait_avg_ns", "450000"),
        ("cnt_hold", "1"),
        ("cnt_lock", "1"),
    ];
    for (column, value) in columns {
        assert_eq!(row[column], value, "{column}");
    }
}

#[test]
fn json_has_rows_and_trust() {
    let folder = Folder::new().with_trace(&one_wait());
    let report = folder.klock(&["analyze", "report", "--by", "site", "--format", "json"]);
    let json: serde_json::Value = serde_json::from_str(report.succeeds()).unwrap();
    assert_eq!(json["rows"][0]["wait_total_ns"], 900_000);
    assert!(json["rows"][0]["name"].as_str().unwrap().contains("app.c:12"));
    assert!(json["trust"].is_object());
}

#[test]
fn a_report_is_sorted_limited_and_filtered() {
    let folder = Folder::new().with_trace(&one_wait());
    let by_task = |more: &[&str]| {
        let mut args = vec!["analyze", "report", "--by", "task", "--format", "csv"];
        args.extend(more);
        folder.klock(&args).succeeds().to_owned()
    };
    assert_eq!(by_task(&[]).lines().count(), 3);
    assert_eq!(by_task(&["-n", "1"]).lines().count(), 2);
    assert!(by_task(&["-n", "1"]).contains("900000"), "the task that waited comes first");
    assert!(!by_task(&["-n", "1", "--sort", "total"]).contains("900000"), "a held it longer");
    assert_eq!(by_task(&["--task", "b"]).lines().count(), 2);
}

#[test]
fn the_columns_of_a_report_can_be_chosen() {
    let folder = Folder::new().with_trace(&one_wait());
    let csv = folder.klock(&["analyze", "report", "-F", "gap,wait_caused,count", "--format", "csv"]);
    assert!(csv.succeeds().starts_with("gap_ns,wait_caused_ns,count,name,"), "{}", csv.stdout);
    assert!(csv.stdout.contains("\n100000,800000,2,"), "{}", csv.stdout);
    let csv = folder.klock(&["analyze", "report", "-F", "p50,wait_p99", "-k", "p99", "--format", "csv"]);
    assert!(csv.succeeds().contains("\n400000,900000,"), "{}", csv.stdout);
    let text = folder.klock(&["analyze", "report", "-F", "holds_contended"]);
    assert_eq!(text.succeeds().lines().next(), Some("holds_contended  lock"));
    let unknown = folder.klock(&["analyze", "report", "-F", "cost"]);
    assert_eq!(unknown.code, Some(2));
    assert!(unknown.stderr.contains("invalid column 'cost'"), "{}", unknown.stderr);
    folder
        .klock(&["report", "-F", "cnt_hodl"])
        .fails(2, &["invalid column 'cnt_hodl': did you mean cnt_hold? --help lists all"]);
    let parts = folder.klock(&[
        "analyze",
        "report",
        "--by",
        "task",
        "-k",
        "total",
        "-F",
        "pct,cum_pct",
        "--format",
        "csv",
    ]);
    assert!(parts.succeeds().starts_with("pct_ppm,cum_pct_ppm,name,"), "{}", parts.stdout);
    assert!(
        parts.stdout.contains("\n714285,714285,a ") && parts.stdout.contains("\n285714,1000000,\"b "),
        "{}",
        parts.stdout
    );
    let unsorted = folder.klock(&["analyze", "report", "-k", "pct"]);
    assert!(unsorted.code == Some(2) && unsorted.stderr.contains("-F"), "{}", unsorted.stderr);
}

#[test]
fn having_selects_rows_of_every_table_by_their_sums_before_the_limit() {
    let folder = Folder::new().with_trace(&one_wait());
    for (table, some, none) in [
        ("report", "wait_total > 5us", "wait_total > 5s"),
        ("blame", "wait_caused >= 0.8ms", "wait_caused > 1h"),
        ("timeline --worst", "count >= 1", "count > 5k"),
        ("report --by process", "waited > 100us", "wait_share > 300%"),
        ("hist", "count = 1", "count > 1"),
        ("timeline", "wait > 100us", "wait > 100s"),
        ("waits", "wait > 100us", "wait > 1s"),
        ("holds", "hold > 1ns", "hold > 1h"),
        ("events", "event = acquire", "event = destroy"),
    ] {
        let words: Vec<&str> = ["analyze"].into_iter().chain(table.split(' ')).collect();
        let run = |options: &[&str]| folder.klock(&[&words[..], &["--having"], options].concat());
        let found = run(&[some, "-n", "1", "--format", "csv"]);
        assert!(found.succeeds().lines().count() >= 2, "{table}: {}", found.stdout);
        let found = run(&[none, "--format", "csv"]);
        assert_eq!((found.code, found.stdout.lines().count()), (Some(1), 1), "{table}: {}", found.stdout);
        let text = run(&[none]);
        assert!(
            text.stdout.contains("no row satisfies the conditions of --having"),
            "{table}: {}",
            text.stdout
        );
        let wrong = run(&["nothing > 1"]);
        assert_eq!(wrong.code, Some(2), "{table}: {}", wrong.stderr);
    }
    let wrong = folder.klock(&["analyze", "report", "--having", "wait_total > 5"]);
    assert!(wrong.stderr.contains("use a time such as 500us, 5ms or 2s"), "{}", wrong.stderr);
    // A column that costs a second pass is computed if a condition names it.
    let p99 = folder.klock(&["analyze", "report", "--having", "wait_p99 > 1us", "--format", "csv"]);
    assert!(p99.succeeds().lines().count() >= 2, "{}", p99.stdout);
}

#[test]
fn blame_adds_up_to_the_waits() {
    let folder = Folder::new().with_trace(&one_wait());
    for by in ["site", "task", "pair"] {
        let blame = folder.klock(&["analyze", "blame", "--by", by]);
        let sum = "waited 900,000 ns = 800,000 charged to holds + 100,000 in hand-offs";
        assert!(blame.succeeds().contains(sum), "{}", blame.stdout);
    }
    let csv = folder.klock(&["analyze", "blame", "--by", "task", "--format", "csv"]);
    assert!(csv.succeeds().contains("hold,800000,888888,1,800000,0,a (pid 10),"), "{}", csv.stdout);
    let json = folder.klock(&["analyze", "blame", "--lock", "cache_lock", "--format", "json"]);
    let json: serde_json::Value = serde_json::from_str(json.succeeds()).unwrap();
    assert_eq!(json["rows"][0]["holder"]["place"], "app.c:12");
}

#[test]
fn a_trace_without_waits_has_no_blame() {
    let folder = Folder::new().with_trace(&one_wait()[..1]);
    let blame = folder.klock(&["analyze", "blame"]);
    assert_eq!(blame.code, Some(1), "{}", blame.stdout);
}

#[test]
fn info_describes_the_recording_and_counts_its_events() {
    let folder = Folder::new().with_trace(&one_wait());
    let info = folder.klock(&["info"]);
    for word in ["pid 10", "klock record", "pthread_mutex", "5"] {
        assert!(info.succeeds().contains(word), "no '{word}' in: {}", info.stdout);
    }
}

#[test]
fn a_pipe_that_closes_early_is_not_an_error() {
    let folder = Folder::new().with_trace(&one_wait());
    let mut child = Command::new(env!("CARGO_BIN_EXE_klock"))
        .args(["analyze", "report", "--format", "json"])
        .arg(folder.path("trace.parquet"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!((child.wait().unwrap().code(), stderr.as_str()), (Some(0), ""));
}

/// Returns the events of a recording that lost nearly all events.
pub(crate) fn mostly_lost() -> Vec<Event> {
    let mut events = one_wait();
    events.push(Event { count: Some(95), ..Event::new(2_600_000, EventKind::Lost, 3) });
    events
}

#[test]
fn a_trace_that_lost_too_much_is_not_ranked_and_the_error_reports_the_loss() {
    let folder = Folder::new().with_trace(&mostly_lost());
    for command in [
        "report",
        "blame",
        "blame --chains",
        "critical",
        "timeline",
        "timeline --worst",
        "report --by process",
        "hist",
    ] {
        let words = ["trace.parquet", "94.1 %", "on CPU 3", "record again", "--allow-loss"];
        let table: Vec<&str> = ["analyze"].into_iter().chain(command.split(' ')).collect();
        let run = |options: &[&str]| folder.klock(&[&table[..], options].concat());
        run(&[]).fails(4, &words);
        let allowed = run(&["--allow-loss"]);
        assert!(!allowed.succeeds().contains("warning"), "{}", allowed.stdout);
        assert!(
            allowed.stderr.starts_with("klock: warning: 94.1 % of the events are missing"),
            "{}",
            allowed.stderr
        );
        let csv = run(&["--allow-loss", "--format", "csv"]);
        assert!(
            !csv.succeeds().contains("warning") && csv.stderr.contains("warning: 94.1 %"),
            "{}",
            csv.stderr
        );
    }
    // Rows that are not ranked are printed all the same.
    for command in ["events", "waits", "holds"] {
        folder.klock(&["analyze", command]).succeeds();
    }
}

#[test]
fn events_waits_and_holds_have_every_format() {
    let folder = Folder::new().with_trace(&one_wait());
    for (command, rows) in [("events", 5), ("waits", 1), ("holds", 2)] {
        let csv = folder.klock(&["analyze", command, "--format", "csv"]);
        assert_eq!(csv.succeeds().lines().count(), rows + 1, "{}", csv.stdout);
        let json = folder.klock(&["analyze", command, "--format", "json"]);
        assert_eq!(json.succeeds().lines().count(), rows);
        let first: serde_json::Value = serde_json::from_str(json.stdout.lines().next().unwrap()).unwrap();
        assert_eq!(first["lock"], "#0 cache_lock");
        let text = folder.klock(&["analyze", command, "-n", "1"]);
        assert!(
            text.succeeds().contains("app.c:12") && text.stderr.starts_with("trust: "),
            "{}",
            text.stdout
        );
        let file = format!("{command}.parquet");
        folder.klock(&["analyze", command, "--format", "parquet", "-o", &file]).succeeds();
        assert_eq!(std::fs::read(folder.path(&file)).unwrap()[..4], *b"PAR1");
    }
    let wait = folder.klock(&["analyze", "waits", "--format", "csv"]);
    assert!(
        wait.succeeds().contains("\n200000,1100000,900000,acquired,,exclusive,100000,"),
        "{}",
        wait.stdout
    );
    assert_eq!(folder.klock(&["analyze", "waits", "--min-wait", "1s"]).code, Some(1));
}

#[test]
fn a_timeline_splits_intervals_at_the_ends_of_periods() {
    let folder = Folder::new().with_trace(&one_wait());
    let csv = folder.klock(&["analyze", "timeline", "--period", "1ms", "--format", "csv"]);
    assert_eq!(
        csv.succeeds().lines().map(|line| line.split(",#0").next().unwrap()).collect::<Vec<_>>()[1..],
        ["0,1000000,800000,1000000,1,1", "1000000,2000000,100000,400000,0,1"],
        "{}",
        csv.stdout
    );
    let text = folder.klock(&["analyze", "timeline", "--period", "1ms", "--by", "task"]);
    assert!(text.succeeds().contains("0    800 µs         0        1        0  ██"), "{}", text.stdout);
    folder.klock(&["analyze", "timeline", "--period", "1ns"]).fails(2, &["--period", "100000"]);
}

#[test]
fn a_histogram_has_a_bar_for_each_power_of_two() {
    let folder = Folder::new().with_trace(&one_wait());
    let text = folder.klock(&["analyze", "hist"]);
    assert!(
        text.succeeds().contains("1 wait, 900 µs together\n  524 µs ..  1.05 ms         1  100.0 %  ██"),
        "{}",
        text.stdout
    );
    let csv = folder.klock(&["analyze", "hist", "--of", "hold", "--by", "task", "--format", "csv"]);
    assert!(csv.succeeds().contains("\n524288,1048575,1,a (pid 10),0,10,10,a\n"), "{}", csv.stdout);
}

#[test]
fn all_tables_have_the_same_filters() {
    let folder = Folder::new().with_trace(&one_wait());
    for command in ["report", "blame", "timeline", "hist", "events", "waits", "holds"] {
        let outcome = |filter: &[&str]| folder.klock(&[&["analyze", command], filter].concat());
        for filter in [
            &["--lock", "cache_lock"][..],
            &["--lock", "#0", "--kind", "pthread_mutex", "--mode", "exclusive"],
            &["--task", "a,b", "--symbol", "work"],
            &["--from", "100us", "--to", "1s", "--min-wait", "0"],
        ] {
            outcome(filter).succeeds();
        }
        for (filter, code) in [
            (&["--symbol", "nosuch"][..], 1),
            (&["--task", "nobody"], 1),
            (&["--mode", "shared"], 1),
            (&["--mode", "sideways"], 2),
        ] {
            let outcome = outcome(filter);
            assert_eq!(
                outcome.code,
                Some(code),
                "{command} {filter:?}: {}{}",
                outcome.stdout,
                outcome.stderr
            );
        }
    }
}

#[test]
fn a_report_for_a_document_has_the_columns_of_the_text() {
    let folder = Folder::new().with_trace(&one_wait());
    let md = folder.klock(&["analyze", "report", "--format", "md", "-F", "wait_total,count"]);
    assert_eq!(
        md.succeeds(),
        "| wait\\_total | count | lock |\n| ---: | ---: | --- |\n| 900 µs | 2 | \\#0 cache\\_lock (pthread\\_mutex) |\n"
    );
    folder.klock(&["analyze", "blame", "--format", "md"]).succeeds();
    let stack = folder.klock(&["analyze", "report", "--by", "stack", "--depth", "1", "--format", "csv"]);
    assert!(
        stack.succeeds().contains(",work (pthread_mutex:cache_lock),work,pthread_mutex,cache_lock,0"),
        "{}",
        stack.stdout
    );
}

#[test]
fn the_same_files_give_the_same_bytes_in_another_directory_without_the_recorded_program() {
    let (here, there) = (Folder::new().with_trace(&one_wait()), Folder::new());
    for file in ["trace", "trace.stacks", "trace.locks", "trace.tasks"] {
        let file = format!("{file}.parquet");
        std::fs::copy(here.path(&file), there.path(&file)).unwrap();
    }
    let elsewhere = |args: &[&str]| {
        let mut klock = Command::new(env!("CARGO_BIN_EXE_klock"));
        klock.current_dir(there.path(".")).env_clear().env("TZ", "Asia/Tokyo").env("LANG", "tr_TR.UTF-8");
        klock.args(args).output().unwrap().stdout
    };
    for command in ["report", "blame", "timeline", "hist", "events", "waits", "holds"] {
        for format in ["text", "csv", "json", "md", "parquet"] {
            let args = ["analyze", command, "--format", format];
            let mut klock = Command::new(env!("CARGO_BIN_EXE_klock"));
            let local = klock.current_dir(here.path(".")).args(args).output().unwrap().stdout;
            assert!(!local.is_empty(), "{command} {format}");
            assert!(local == elsewhere(&args), "{command} {format}");
        }
    }
}
