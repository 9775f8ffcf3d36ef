//! A running recording is paused, resumed and begun again from another process; the trace says when nothing
//! was recorded.
//!
//! needs: gcc

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::Command,
    time::Duration,
};

use trace_format::{EventKind, Trace};

use crate::support::{
    self, Ended, Running, klock,
    place::{Place, users},
    run,
};

/// Ends what hangs.
const LIMIT: Duration = Duration::from_secs(300);

/// Asks the recorder by this command, which is klock.
fn control(mut klock: Command, recorder: &Running, action: &str) -> Ended {
    run(klock.args(["control", &recorder.child.id().to_string(), action]))
}

#[test]
#[ignore = "records programs; run by cargo xtask test"]
fn a_recording_is_begun_again_paused_and_resumed_and_its_trace_and_tables_say_so() {
    let place = Place::new();
    let program = place.program("known_pairs");
    let options = ["--locks", "pthread"];
    let recorder = Running::start(&mut place.record(&options, &program, &["2", "1000", "forever"]));
    let round = |times: usize| (0..times).for_each(|_| drop(recorder.line_after("ROUND")));
    let ask = |action: &str, answer: &str| {
        let ended = control(klock(), &recorder, action);
        assert!(ended.status.success() && ended.stdout.contains(answer), "{}{}", ended.stdout, ended.stderr);
    };
    round(2);
    ask("stats", "recording for ");
    ask("reset", "reset");
    ask("pause", "paused");
    ask("pause", "is paused already");
    // Each of the two threads makes another round at least.
    round(8);
    ask("stats", "paused, recorded for ");
    ask("resume", "recording");
    ask("resume", "is recording already");
    round(8);
    recorder.signal("INT");
    let ended = recorder.end_within(LIMIT);
    assert_eq!(ended.status.code(), Some(130), "{}", ended.stderr);

    let path = place.path("t.parquet");
    let trace = Trace::open(&path).unwrap();
    let info = trace.info();
    let [(from_ns, to_ns)] = info.paused[..] else { panic!("one pause: {:?}", info.paused) };
    assert_eq!((info.loss.events(), info.is_reset), (0, true), "{:?}", info.loss);
    assert!(info.clocks_start.monotonic_ns <= from_ns && from_ns < to_ns);
    let events = support::events(&trace);
    // A thread may have begun a call before the pause.
    let mut during = BTreeMap::<_, usize>::new();
    for event in events.iter().filter(|event| event.task.is_some()) {
        if from_ns < event.ts_ns && event.ts_ns < to_ns {
            *during.entry(event.task).or_default() += 1;
        }
    }
    assert!(during.values().all(|&rows| rows == 1), "{during:?}");
    let acquired = |after: bool| {
        events.iter().any(|event| event.kind == EventKind::Acquire && (event.ts_ns >= to_ns) == after)
    };
    assert!(acquired(false) && acquired(true), "recorded before and after");
    assert!(events.iter().any(|event| event.kind == EventKind::Lost && event.count == Some(0)));
    if cfg!(feature = "analyze") {
        let report = run(klock().arg("report").arg(&path)).stderr;
        assert!(report.contains(" since a reset (paused for "), "{report}");
    }
}

#[test]
#[ignore = "records programs; run by cargo xtask test"]
fn lines_in_a_named_pipe_control_a_recording_and_another_pipe_has_the_answers() {
    for &is_root in users() {
        let (place, folder) = (Place::new(), tempfile::tempdir().unwrap());
        let own = if is_root { folder.path().to_owned() } else { place.directory("own") };
        let command = |name: &Path| if is_root { Command::new(name) } else { place.command(name) };
        let [requests, answers] = ["requests", "answers"].map(|name| own.join(name));
        assert!(command("mkfifo".as_ref()).args([&requests, &answers]).status().unwrap().success());
        let mut recorder = command(&place.path("klock"));
        recorder.args(["record", "--locks", "pthread", "-o"]).arg(own.join("t.parquet"));
        recorder.arg("--control").arg(format!("fifo:{},{}", requests.display(), answers.display()));
        recorder.args(["--", "sh", "-c", r#"echo PID $$; exec "$0" 2 1000 forever"#]);
        let recorder = Running::start(recorder.arg(place.program("known_pairs")));
        let pid = recorder.line_after("PID ").trim().parse().unwrap();
        recorder.line_after("ROUND");
        let mut requests = File::options().write(true).open(&requests).unwrap();
        let mut answers = BufReader::new(File::open(&answers).unwrap()).lines();
        let mut ask = |request: &str, answer: &str| {
            requests.write_all(request.as_bytes()).unwrap();
            let line = answers.next().unwrap().unwrap();
            assert!(line.contains(answer), "{request}: {line}");
        };
        ask("stats\n", "recording for ");
        ask("reset\n", "reset");
        ask("disable\npau", "paused");
        ask("se\nevlist -v\n", "is paused already");
        ask(&"x".repeat(9999), "invalid request 'evlist -v': use pause, resume, reset, stats or stop");
        ask("\nresume\n", "invalid request 'xxxxx");
        ask("", "recording");
        ask("stop\n", "stopped");
        let ended = recorder.end_within(LIMIT);
        support::kill(pid);
        assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
        assert!(ended.stderr.contains("is still running"), "{}", ended.stderr);
        let trace = Trace::open(&own.join("t.parquet")).unwrap();
        let info = trace.info();
        assert_eq!((info.paused.len(), info.is_reset, info.stop_reason.as_str()), (1, true, "stopped"));
    }
}

#[test]
#[ignore = "records programs; run by cargo xtask test"]
fn a_recording_is_not_controlled_by_a_file_or_by_a_named_pipe_of_another_user() {
    let refused = |command: &mut Command, pipe: &Path, reason: &str| {
        let trace = pipe.with_file_name("t.parquet");
        command.args(["record", "--locks", "pthread", "-o"]).arg(&trace);
        let ended =
            run(command.arg("--control").arg(format!("fifo:{}", pipe.display())).args(["--", "true"]));
        assert_eq!(ended.status.code(), Some(2), "{}", ended.stderr);
        assert!(ended.stderr.contains(reason) && !trace.exists(), "{}", ended.stderr);
    };
    let mkfifo = |mut command: Command, pipe: &Path| {
        assert!(command.arg(pipe).status().unwrap().success());
    };
    let place = Place::new();
    let user = || place.command(place.path("klock"));
    let not_own = "it is not a named pipe of yours; make it with `mkfifo`";
    let file = place.directory("files").join("file");
    fs::write(&file, "pause\n").unwrap();
    refused(&mut user(), &file, not_own);
    let link = file.with_file_name("link");
    std::os::unix::fs::symlink("/dev/null", &link).unwrap();
    refused(&mut user(), &link, not_own);
    refused(&mut user(), &place.path("missing"), not_own);
    if !users().contains(&true) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    mkfifo(Command::new("mkfifo"), &pipe);
    std::os::unix::fs::chown(&pipe, Some(xtask::host::NOBODY), None).unwrap();
    refused(&mut klock(), &pipe, not_own);
    let pipe = place.directory("pipes").join("pipe");
    mkfifo(place.command("mkfifo"), &pipe);
    refused(&mut klock(), &pipe, "can rename files in");
}

#[test]
#[ignore = "records programs; run by cargo xtask test"]
fn another_user_cannot_control_a_recording() {
    if !users().contains(&true) {
        return support::skip("only root can be another user");
    }
    let (place, mut command) = (Place::new(), klock());
    command.args(["record", "--locks", "pthread", "-f", "-o"]).arg(place.path("root.parquet"));
    let recorder = Running::start(command.args(["--", "sh", "-c", "echo started; exec sleep 600"]));
    recorder.line_after("started");
    let refused = control(place.command(place.path("klock")), &recorder, "pause");
    assert_eq!(refused.status.code(), Some(3), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("only root and the user who started the recording may"),
        "{}",
        refused.stderr
    );
    let stats = control(klock(), &recorder, "stats");
    assert!(stats.stdout.contains("recording for "), "{}{}", stats.stdout, stats.stderr);
    recorder.signal("TERM");
    recorder.end_within(LIMIT);
}
