//! Metrics of traces and of recordings, as the programs that read them see them: promtool accepts them,
//! node_exporter serves them, and their counters never fall while klock records.
//!
//! needs: root
//! full needs: promtool, prometheus-node-exporter, python

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

use crate::support::{Running, fixture, klock, python, root, run, skip, soon, until};

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
#[ignore = "full: asks promtool and a parser in Python"]
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

/// Records the workload of the demo into this directory, with metrics of three locks. Returns the texts that
/// were read meanwhile and, as the last one, the one that is left.
fn texts_of_a_recording(directory: &Path) -> Vec<String> {
    let file = directory.join("klock.prom");
    let mut recorder = Running::start(
        klock()
            .args(["record", "-q", "--locks", "pthread", "--every", "100ms", "-n", "3", "--metrics"])
            .arg(&file)
            .arg("-o")
            .arg(directory.join("t.parquet"))
            .arg(fixture("demo")),
    );
    let mut texts = Vec::new();
    while !recorder.ends_within(Duration::from_millis(200)) {
        // The file is always whole: it is replaced by rename.
        texts.extend(fs::read_to_string(&file));
    }
    texts.push(fs::read_to_string(&file).unwrap());
    texts
}

#[test]
#[ignore = "full: asks promtool"]
fn promtool_accepts_the_metrics_of_a_recording() {
    let directory = tempfile::tempdir().unwrap();
    for text in texts_of_a_recording(directory.path()) {
        assert_eq!(promtool(&text), "", "{text}");
    }
}

#[test]
#[ignore = "records a program; run by cargo xtask test"]
fn counters_never_fall_while_a_command_records_itself_and_end_as_those_of_the_trace() {
    // On a busy machine the recording may end before it was looked at twice.
    let (directory, texts) = until("a recording that is looked at", || {
        let directory = tempfile::tempdir().unwrap();
        let texts = texts_of_a_recording(directory.path());
        (texts.len() >= 3).then_some((directory, texts))
    });
    let mut before: BTreeMap<String, f64> = BTreeMap::new();
    for text in &texts {
        let after = samples(text);
        for (name, value) in &before {
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
        before = after;
    }
    assert_eq!(before["klock_recording"], 0.0);
    let whole = samples(&exported("prometheus", &directory.path().join("t.parquet")));
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
#[ignore = "full: asks node_exporter"]
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
    soon(Duration::from_secs(300), "node_exporter listens", || TcpStream::connect(&address).is_ok());
    let mut stream = TcpStream::connect(&address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    exporter.signal("TERM");
    exporter.end_within(Duration::from_secs(300));
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
#[ignore = "records programs; run by cargo xtask test"]
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
