//! Records programs whose threads wait for each other by other means than calls of lock (`fixtures/programs/known_elsewhere.c`): `klock why`
//! names the cause, or says that it was not seen, and never that locks are not the cause.
//!
//! needs: root, gcc

use crate::support::{
    klock, most_of,
    place::{Place, trace_of, users},
    run, said,
};

const NOT_SEEN: &[&str] = &["not seen: whether a lock is the cause"];
const POLLED: &[&str] = &["arena", "threads try for it again and again"];
/// The lock is the condition variable that its users wait for.
const CONDITIONAL: &[&str] = &["catalog_changed (condvar): 4 threads waited", "passed it on"];
const STOPPED: &[&str] = &["its holders are stopped", "stopped by a signal or a debugger"];
/// An ordinary user has no row of a program that calls no lock.
const NO_EVENT: &[&str] = &["the trace holds no events", "as root"];

/// Modes, and words that `klock why` says of a recording of root and of an ordinary user's.
const MODES: [(&str, &[&str], &[&str]); 12] = [
    ("polled", POLLED, POLLED),
    ("requeued", &["moved (futex): 4 threads waited"], NOT_SEEN),
    ("several", NOT_SEEN, NOT_SEEN),
    ("spinning", NOT_SEEN, NOT_SEEN),
    ("flock", &[NOT_SEEN[0], "in flock", "does not record locks of files"], NO_EVENT),
    ("fcntl", &[NOT_SEEN[0], "in fcntl", "does not record locks of files"], NO_EVENT),
    ("semop", &[NOT_SEEN[0], "in sem", "System V semaphores"], NO_EVENT),
    ("stopped", STOPPED, STOPPED),
    ("conditional", CONDITIONAL, CONDITIONAL),
    ("ring", &[NOT_SEEN[0], "in io_uring_enter", "waits through io_uring"], NOT_SEEN),
    // An ordinary user has no right to the priorities.
    (
        "inverted",
        &["bus", "mid", "let the holder inherit that (PTHREAD_PRIO_INHERIT)"],
        &["bus", "without a CPU"],
    ),
    ("stdio", &["(futex): 4 threads waited", "passed it on"], NOT_SEEN),
];

#[test]
#[ignore = "full: what else the machine does has a part in how threads spend their time; two recordings of three decide"]
fn waits_without_a_call_of_lock_are_found_or_said_to_be_not_seen() {
    let place = Place::new();
    let program = place.program("known_elsewhere");
    for (mode, of_root, of_user) in MODES {
        for &is_root in users() {
            most_of(3, 1, || {
                let trace = place.path(trace_of(is_root));
                let mut record = if is_root { klock() } else { place.command(&place.klock) };
                record.args(["record", "-f", "-o"]).arg(&trace).arg("--").arg(&program).arg(mode);
                let ended = run(&mut record);
                assert!(ended.status.success(), "{mode}: {}", ended.stderr);
                let said = said(&run(klock().arg("why").arg(&trace)));
                for word in if is_root { of_root } else { of_user } {
                    assert!(said.contains(word), "{mode}, root {is_root}: no {word:?} in {said}");
                }
                assert!(!said.contains("locks are not the cause"), "{mode}, root {is_root}: {said}");
            });
        }
    }
}
