//! `--min-wait`: waits of known lengths, of which the long ones are recorded, each whole in one row.

use trace_format::{Event, EventKind, LockKind};

use super::{
    Program, Recorded, record,
    support::{cannot_record, skip},
};

const ROUNDS: usize = 10;
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

/// Records until no switch of a wait is hidden: such a wait seems to be spent on the CPU.
fn without_hidden<T>(record: impl Fn() -> (Recorded, T)) -> (Recorded, T) {
    let is_whole =
        |(recorded, _): &(Recorded, T)| waits(recorded).iter().all(|event| event.blocked_ns != Some(0));
    (0..8).map(|_| record()).find(is_whole).expect("one of eight recordings has the switches of all waits")
}

fn waits(recorded: &Recorded) -> Vec<&Event> {
    let waited = |event: &&Event| matches!(event.kind, EventKind::Acquire | EventKind::Abandon);
    assert!(recorded.events.iter().all(|event| event.kind != EventKind::Wait), "a begin on its own");
    recorded.events.iter().filter(waited).collect()
}

/// Records the program. Returns the recording, the addresses of its three words, and its own count of long waits.
fn known_waits(options: &[&str]) -> (Recorded, [String; 3], usize) {
    let limit = LIMIT_MS.to_string();
    let mut program = Program::fixture("known_waits", &[&ROUNDS.to_string(), &limit]);
    let words = ["short", "long", "woken"].map(|name| program.address(name));
    let pid = program.pid.clone();
    let recorded = record(&[&["-p", &pid], options].concat(), || {
        program.go();
        program.running.line_after("over ");
    });
    let over = program.running.line_after("over ").parse().unwrap();
    (recorded, words, over)
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn only_futex_waits_as_long_as_the_limit_are_recorded() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let (all, [short, _, _], _) = known_waits(&["--locks", "futex"]);
    let ends = all.of_lock(&short).into_iter().filter(|event| event.kind == EventKind::Abandon);
    assert_eq!(ends.count(), ROUNDS, "without the filter, all of them are there");

    let (recorded, ([short, long, woken], over)) = without_hidden(|| {
        let (recorded, words, over) = known_waits(&["--min-wait", &format!("{LIMIT_MS}ms")]);
        (recorded, (words, over))
    });
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
    let (rounds, pause) = (ROUNDS.to_string(), (2 * LIMIT_MS).to_string());
    for (arguments, expected) in [(&[&rounds[..], &pause][..], Some(ROUNDS)), (&["300"], None)] {
        let (recorded, pid) = without_hidden(|| {
            let mut program = Program::fixture("known_mutex", arguments);
            let pid = program.pid.clone();
            let limit = format!("{LIMIT_MS}ms");
            let recorded = record(&["-p", &pid, "--locks", "kernel", "--min-wait", &limit], || {
                program.go();
                program.running.line_after("waited ");
            });
            (recorded, program.pid())
        });
        let of_program = recorded.terminal_mutex(pid).map_or(0, |(_, waits)| waits);
        assert_long(&waits(&recorded));
        match expected {
            Some(expected) => assert_eq!(of_program, expected),
            // A machine with other things to do makes some of them long.
            None => assert!(of_program < 300, "all of the short waits"),
        }
    }
}
