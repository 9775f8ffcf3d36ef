//! `--min-wait`: waits of known lengths, of which the long ones are recorded, each whole in one row.

use trace_format::{Event, EventKind, LockKind};

use super::{Program, Recorded, record};
use crate::support::{cannot_record, skip};

const ROUNDS: usize = 5;
const LIMIT_MS: i64 = 20;

fn assert_long(events: &[&Event]) {
    for event in events {
        let wait = event.wait_ns.expect("a wait that is recorded whole has its length");
        assert!(wait >= LIMIT_MS * 1_000_000, "{event:?}");
        let (blocked, queued) = (event.blocked_ns.unwrap(), event.runq_ns.unwrap());
        assert!(blocked >= 0 && queued >= 0 && blocked + queued <= wait, "{event:?}");
        assert!(event.stack.is_some(), "{event:?}");
    }
}

fn waits(recorded: &Recorded) -> Vec<&Event> {
    let waited = |event: &&Event| matches!(event.kind, EventKind::Acquire | EventKind::Abandon);
    assert!(recorded.events.iter().all(|event| event.kind != EventKind::Wait), "a begin on its own");
    recorded.events.iter().filter(waited).collect()
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn only_futex_waits_as_long_as_the_limit_are_recorded() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let mut program = Program::fixture("known_waits", &[&ROUNDS.to_string(), &LIMIT_MS.to_string()]);
    let [short, long, woken] = ["short", "long", "woken"].map(|name| program.address(name));
    let (pid, limit) = (program.pid.clone(), format!("{LIMIT_MS}ms"));
    let recorded = record(&["-p", &pid, "--min-wait", &limit], || {
        program.go();
        program.running.line_after("over ");
    });
    // The program's own count of short waits that took long.
    let over: usize = program.running.line_after("over ").parse().unwrap();
    assert_long(&waits(&recorded));
    let in_vain = recorded.of_lock(&long);
    assert_eq!(in_vain.len(), ROUNDS);
    assert!(in_vain.iter().all(|event| event.errno == Some(libc::ETIMEDOUT)), "{in_vain:?}");
    let short = recorded.of_lock(&short).len();
    assert!(short <= over, "{short} of the short waits, of which {over} took that long");
    let woken = recorded.of_lock(&woken);
    let acquired: Vec<_> = woken.iter().filter(|event| event.kind == EventKind::Acquire).collect();
    assert_eq!(acquired.len(), ROUNDS);
    for event in acquired {
        let waker = &recorded.tasks[usize::try_from(event.peer_task.expect("main woke it").0).unwrap()];
        assert_eq!(waker.tid, waker.pid, "main is the waker");
        assert!(event.peer_stack.is_some(), "{event:?}");
    }
    recorded.assert_says(LockKind::Mutex, "waits shorter than 20000000 ns are not recorded");
    recorded.assert_says(LockKind::Futex, "waits shorter than 20000000 ns are not recorded");
    assert!(recorded.info.source_of(LockKind::PthreadMutex).is_none(), "{:?}", recorded.info.sources);
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn only_waits_for_a_mutex_as_long_as_the_limit_are_recorded() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let (rounds, pause, limit) = (ROUNDS.to_string(), (2 * LIMIT_MS).to_string(), format!("{LIMIT_MS}ms"));
    // No wait can take an hour, however busy the machine.
    for (limit, expected) in [(&*limit, ROUNDS), ("1h", 0)] {
        let mut program = Program::fixture("known_mutex", &[&rounds, &pause]);
        let pid = program.pid.clone();
        let recorded = record(&["-p", &pid, "--locks", "kernel", "--min-wait", limit], || {
            program.go();
            program.running.line_after("waited ");
        });
        let waits = waits(&recorded);
        assert_long(&waits);
        let of_mutex = recorded.terminal_mutex(program.pid()).map_or(0, |(_, waits)| waits);
        assert_eq!(of_mutex, expected);
        assert!(expected > 0 || waits.is_empty(), "{waits:?}");
    }
}
