//! A running recording is paused, resumed and begun again from another process; the trace says when nothing was recorded.
//!
//! needs: gcc

use std::{collections::BTreeMap, process::Command, time::Duration};

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
