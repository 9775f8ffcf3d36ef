//! Metrics of traces and of recordings, as the programs that read them see them: promtool accepts them, node_exporter serves them, and
//! their counters never fall while klock records.
//!
//! needs: promtool, prometheus-node-exporter, python

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    collections::BTreeMap,
    fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

mod support;

use support::{Running, klock, python, root, run, skip, soon};

/// Exports a real trace, or one of hostile names.
fn exported(format: &str, trace: &Path) -> String {
    let ended = run(klock().args(["export", "--format", format]).arg(trace));
    assert!(ended.status.success(), "{}", ended.stderr);
    ended.stdout
}

/// Returns what promtool and its lints say; empty if they accept the text.
fn promtool(text: &str) -> String {
    let mut child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let failed = if output.status.success() { "" } else { "failed: " };
    format!("{failed}{}", String::from_utf8_lossy(&said))
}

fn samples(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
        .collect()
}

fn shop() -> std::path::PathBuf {
    root().join("fixtures/traces/shop.parquet")
}

#[test]
#[ignore = "needs what cargo xtask setup installs; run by cargo xtask test"]
fn promtool_accepts_the_metrics_and_pythons_parser_the_openmetrics() {
    let prometheus = exported("prometheus", &shop());
    assert_eq!(promtool(&prometheus), "");
    let Some(python) = python() else { return skip("needs the python engines") };
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("metrics");
    fs::write(&file, exported("openmetrics", &shop())).unwrap();
    let script = "import sys\n\
                  from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse\n\
                  print(sum(len(family.samples) for family in parse(open(sys.argv[1]).read())))";
    let ended = run(Command::new(python).args(["-c", script]).arg(&file));
    assert!(ended.status.success(), "{}", ended.stderr);
    assert_eq!(ended.stdout.trim(), samples(&prometheus).len().to_string());
}

#[test]
#[ignore = "needs what cargo xtask setup installs; run by cargo xtask test"]
fn counters_never_fall_while_a_command_records_itself_and_end_as_those_of_the_trace() {
    let directory = tempfile::tempdir().unwrap();
    let (trace, file) = (directory.path().join("t.parquet"), directory.path().join("klock.prom"));
    let recorder = Running::start(
        klock()
            .args(["record", "-q", "--locks", "pthread", "--every", "100ms", "-n", "3", "--metrics"])
            .arg(&file)
            .arg("-o")
            .arg(&trace)
            .arg(env!("CARGO_BIN_EXE_klock"))
            .args(["demo-workload", "4s"]),
    );
    let mut recorder = recorder;
    let mut before: BTreeMap<String, f64> = BTreeMap::new();
    let mut texts = 0;
    let mut look = |text: &str, before: &mut BTreeMap<String, f64>| {
        assert_eq!(promtool(text), "", "{text}");
        let after = samples(text);
        for (name, value) in before.iter() {
            let is_counter = name.contains("_total") || name.contains("_bucket") || name.contains("_seconds");
            assert!(
                !is_counter || after.get(name).is_some_and(|now| now >= value),
                "{name} fell below {value}"
            );
        }
        let own = after
            .keys()
            .filter(|name| name.starts_with("klock_lock_waits_total") && !name.contains("(others)"));
        assert!(own.count() <= 3, "{text}");
        texts += 1;
        *before = after;
    };
    while !recorder.ends_within(Duration::from_millis(200)) {
        // The file is always whole: it is replaced by rename.
        if let Ok(text) = fs::read_to_string(&file) {
            look(&text, &mut before);
        }
    }
    let last = fs::read_to_string(&file).unwrap();
    look(&last, &mut before);
    assert!(texts >= 3, "{texts}");
    assert_eq!(before["klock_recording"], 0.0);
    let whole = samples(&exported("prometheus", &trace));
    assert_eq!(before["klock_events_total"], whole["klock_events_total"]);
    if before["klock_events_skipped_total"] == 0.0 {
        let sum = |samples: &BTreeMap<String, f64>, family: &str| {
            samples.iter().filter(|(name, _)| name.starts_with(family)).map(|(_, value)| value).sum::<f64>()
        };
        for family in ["klock_lock_waits_total", "klock_lock_acquisitions_total"] {
            assert_eq!(sum(&before, family), sum(&whole, family), "{family}");
        }
    }
    let left: Vec<_> =
        fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(left.len(), 5, "a trace has four files: {left:?}");
}

#[test]
#[ignore = "needs what cargo xtask setup installs; run by cargo xtask test"]
fn node_exporter_serves_the_file() {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(directory.path().join("klock.prom"), exported("prometheus", &shop())).unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let exporter = Running::start(
        Command::new("prometheus-node-exporter")
            .arg("--collector.disable-defaults")
            .arg("--collector.textfile")
            .arg(format!("--collector.textfile.directory={}", directory.path().display()))
            .arg(format!("--web.listen-address={address}")),
    );
    soon(Duration::from_secs(30), "node_exporter listens", || TcpStream::connect(&address).is_ok());
    let mut stream = TcpStream::connect(&address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    exporter.signal("TERM");
    exporter.end_within(Duration::from_secs(30));
    assert!(page.contains("node_textfile_scrape_error 0"), "{page}");
    let served = samples(page.split_once("\r\n\r\n").unwrap().1);
    for (name, value) in samples(&exported("prometheus", &shop())) {
        // The exporter sorts labels and writes numbers its own way.
        if !name.contains("le=") {
            assert_eq!(served.get(&name), Some(&value), "{name}");
        }
    }
}

#[test]
#[ignore = "needs what cargo xtask setup installs; run by cargo xtask test"]
fn metrics_go_only_where_other_outputs_go() {
    let directory = tempfile::tempdir().unwrap();
    let in_directory = |name: &str| directory.path().join(name);
    fs::write(in_directory("passwd"), "root:x:0\n").unwrap();
    fs::write(in_directory("target"), "").unwrap();
    symlink(in_directory("target"), in_directory("link.prom")).unwrap();
    let record = |file: &Path| {
        run(klock()
            .args(["record", "-q", "--locks", "pthread", "--metrics"])
            .arg(file)
            .arg("-o")
            .arg(in_directory("t.parquet"))
            .arg("true"))
    };
    for (file, words) in [
        (in_directory("passwd"), "cannot replace"),
        (in_directory("link.prom"), "symbolic link"),
        (in_directory("none/klock.prom"), "none"),
        (in_directory("t.parquet"), "the trace is written there"),
    ] {
        let ended = record(&file);
        assert!(
            !ended.status.success() && ended.stderr.contains(words),
            "{}: {}",
            file.display(),
            ended.stderr
        );
        assert!(!in_directory("t.parquet").exists(), "nothing is recorded");
    }
    if xtask::host::is_root() {
        let open = in_directory("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        let ended = record(&open.join("klock.prom"));
        assert!(!ended.status.success() && ended.stderr.contains("can rename files"), "{}", ended.stderr);
    }
    assert!(record(&in_directory("klock.prom")).status.success());
    assert!(record(&in_directory("klock.prom")).status.success(), "its own file is replaced");
}
