//! Opens the page of `klock html` in a headless Chromium and uses it: sorting, filtering, search, zoom,
//! hover, the way from a waiter to its holder, keys, the wheel, areas, links, flame graphs, light and dark.
//! No request may leave the page, no name of a trace may run as a script.
//!
//! needs: node, chromium

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use trace_format::{
    Event, EventKind, LockId, LockKind, LockRow, Mode, RunInfo, TaskId, TaskRow, TraceWriter, writer,
};

mod support;

use support::{csv_rows, klock, root, run};

/// Returns the path of a committed trace.
fn trace(name: &str) -> PathBuf {
    root().join("fixtures/traces").join(format!("{name}.parquet"))
}

/// Writes the page of a trace.
fn page(trace: &Path, page: &Path) {
    let ended = run(klock().arg("html").arg(trace).arg("-o").arg(page));
    assert!(ended.status.success(), "{}", ended.stderr);
}

/// Uses a page and returns what it showed.
fn used(page: &Path) -> Value {
    let script = root().join("tests/page/check.mjs");
    let ended = run(Command::new("node").arg(script).arg("chromium").arg(page));
    assert!(ended.status.success(), "{}", ended.stderr);
    serde_json::from_str(&ended.stdout).unwrap()
}

/// Writes a trace whose names are markup, controls and marks that turn text around.
fn hostile(path: &Path) {
    let names = [
        "</script><script>window.attacked=1</script>",
        "<img src=x onerror=window.attacked=1>",
        "\u{202e}\u{1b}[31m\"'><svg onload=window.attacked=1>",
    ];
    let lock = |(at, name): (i32, &str)| LockRow {
        address: Some(16),
        pid: Some(7),
        name: Some(name.to_owned()),
        last_ns: 100,
        ..LockRow::new(LockId(at), LockKind::PthreadMutex)
    };
    let locks: Vec<LockRow> = (0..).zip(names).map(lock).collect();
    let task = |(at, name): (i32, &str)| TaskRow {
        comm: Some(name.to_owned()),
        ..TaskRow::new(TaskId(at), 7, 7 + at)
    };
    let tasks: Vec<TaskRow> = (0..).zip(names).map(task).collect();
    let mut out = TraceWriter::create(path, false).unwrap();
    for (at, lock) in (0..).zip(&locks) {
        for (ns, kind) in [(0, EventKind::Acquire), (50, EventKind::Release)] {
            let of = Event::new(1000 + i64::from(at) * 100 + ns, kind, 0);
            let (mode, lock, task) = (Some(Mode::Exclusive), Some(lock.id), Some(TaskId(at)));
            out.push(&Event { mode, lock, task, ..of }).unwrap();
        }
    }
    out.end_row_group().unwrap();
    let info = RunInfo { trace_id: writer::new_trace_id(), ..RunInfo::default() };
    out.finish(&info, &[], &locks, &tasks).unwrap();
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is not a number"))
}

fn names(value: &Value) -> Vec<&str> {
    value.as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect()
}

#[test]
#[ignore = "full: uses the page in Chromium"]
fn a_page_can_be_used_and_its_totals_are_those_of_the_report() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("report.html");
    page(&trace("shop"), &file);
    let found = used(&file);
    assert_eq!(found["errors"], serde_json::json!([]));
    assert_eq!(found["requests"], serde_json::json!([format!("file://{}", file.display())]));

    let ended = run(klock().args(["report", "--all", "--format", "csv"]).arg(trace("shop")));
    let rows = csv_rows(&ended.stdout);
    let sums = found["sums"].as_object().unwrap();
    assert!(sums.len() >= 3, "{sums:?}");
    for (column, shown) in sums {
        let expected: i64 = rows.iter().map(|row| row[column].parse::<i64>().unwrap_or(0)).sum();
        assert_eq!(number(shown), expected as f64, "{column}");
    }

    let (all, sorted) = (names(&found["names"]), names(&found["sorted"]));
    assert_eq!(all.len(), rows.len());
    let mut expected = all.clone();
    expected.sort_unstable();
    assert_eq!(sorted, expected);
    let word = all[0].split(' ').next().unwrap().to_lowercase();
    assert!(!names(&found["searched"]).is_empty());
    assert!(names(&found["searched"]).iter().all(|name| name.to_lowercase().contains(&word)));
    let acquired =
        |row: &&std::collections::BTreeMap<String, String>| row["count"].parse::<i64>().unwrap() > 1;
    assert_eq!(names(&found["filtered"]).len(), rows.iter().filter(acquired).count());
    assert!(number(&found["blame"]) > 0.0);

    let length = |state: &Value| number(&state["to"]) - number(&state["from"]);
    let whole = &found["whole"];
    assert_eq!(whole["before"]["to"], whole["after"]["to"]);
    assert!((length(&found["zoomed"]) * 2.0 - length(&whole["before"])).abs() < 1.0);
    assert!(number(&found["panned"]["from"]) > number(&found["zoomed"]["from"]));
    assert!(length(&found["closest"]) <= 20.0, "a range of single nanoseconds can be shown");

    assert!(found["tip"].as_str().unwrap().contains("waited for"), "{}", found["tip"]);
    assert_eq!(found["clicked"]["selected"], found["clicked"]["wait"]);
    assert!(found["clicked"]["panel"].as_str().unwrap().contains("Chain"));
    assert_eq!(found["followed"]["selected"], found["followed"]["holder"]);
    assert!(number(&found["found"]["rows"]) < number(&whole["before"]["rows"]));

    let shifted = &found["shifted"];
    assert!(number(&shifted["moved"]) > 500.0, "{shifted}");
    assert!(number(&shifted["wrong"]) * 1000.0 <= number(&shifted["moved"]), "{shifted}");

    let threads = &found["threads"];
    assert_eq!(threads["waits"], threads["all"], "each wait is in the lane of its thread");
    assert!(number(&threads["rows"]) > 1.0);
    let area = &found["area"];
    assert_eq!((&area["first"], &area["last"]), (&0.into(), &0.into()), "{area}");
    assert!(area["panel"].as_str().unwrap().contains("Who waited for whom"), "{area}");
    assert!(found["hash"].as_str().unwrap().contains("area="), "{}", found["hash"]);
    let linked = &found["linked"];
    assert_eq!((&linked["to"], &linked["lanes"]), (&1000.into(), &"threads".into()), "{linked}");
    assert_eq!((&found["mislinked"]["from"], &found["mislinked"]["to"]), (&0.into(), &whole["before"]["to"]));
    assert!(found["help"].as_str().unwrap().contains("follows a wait to its holder"), "{}", found["help"]);
    assert!(number(&found["wheel"]["moved"]) > 0.0 && found["wheel"]["same"] == true, "{}", found["wheel"]);
    assert!(length(&found["pinched"]) < length(&whole["before"]));
    assert!(names(&found["cards"]).iter().all(|card| card.contains("see: klock ")), "{}", found["cards"]);
    assert!(!names(&found["cards"]).is_empty());
    let colours = names(&found["legend"]);
    assert!(colours.len() >= 3 && BTreeSet::from_iter(&colours).len() == colours.len(), "{colours:?}");
    assert_eq!(names(&found["flames"]), ["Waits by stack"]);
    assert!(number(&found["flame"]["matches"]) > 0.0, "{}", found["flame"]);

    assert_ne!(found["light"], found["dark"]);
    assert_eq!(found["light"], found["switched"]);
    assert!(number(&found["frames"]["draws"]) >= 60.0);
}

#[test]
#[ignore = "full: uses the page in Chromium"]
fn no_name_of_a_trace_runs_as_a_script_or_hides_what_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("report.html");
    let trace = directory.path().join("hostile.parquet");
    hostile(&trace);
    page(&trace, &file);
    let html = fs::read_to_string(&file).unwrap();
    assert!(!html.contains("window.attacked=1"));
    let found = used(&file);
    assert_eq!(found["errors"], serde_json::json!([]));
    assert_eq!(found["attacked"], false);
    assert_eq!(found["scripts"], 2, "the data and the page's own script");
    assert_eq!(found["afterInjection"], false, "the policy refuses scripts that are added");
    let shown = names(&found["names"]).join("\n");
    assert!(shown.contains("<img src=x onerror=window.attacked=1>"), "{shown}");
    assert!(shown.contains("\\u{202e}") && shown.contains("\\u{1b}"), "{shown}");
}

/// Opens the page of a trace at a width, and returns what is in sight there: `[name of the first row of the
/// table, after numbers were scrolled; the panel of details beside the timeline; the width of the page]`.
fn in_sight(trace_name: &str, width: u32) -> Value {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("report.html");
    page(&trace(trace_name), &file);
    let script = root().join("tests/page/sight.mjs");
    let ended = run(Command::new("node").arg(script).arg("chromium").arg(&file).arg(width.to_string()));
    assert!(ended.status.success(), "{}", ended.stderr);
    serde_json::from_str(&ended.stdout).unwrap()
}

#[test]
#[ignore = "full: uses the page in Chromium"]
fn names_of_rows_and_details_are_in_sight_on_narrow_and_wide_screens() {
    for (trace, width) in [("demo", 800), ("demo", 1600), ("off_cpu", 800), ("threads_64", 800)] {
        let found = in_sight(trace, width);
        assert_eq!(found["errors"], serde_json::json!([]), "{trace} {width}");
        assert!(number(&found["wide"]) <= f64::from(width), "{trace} {width}: {found}");
        assert_eq!(found["name"], true, "{trace} {width}: {found}");
        assert_eq!(found["details"], true, "{trace} {width}: {found}");
    }
}
