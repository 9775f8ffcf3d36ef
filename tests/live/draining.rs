//! Checks that neither a busy machine nor a slow disk keeps klock from draining the kernel's rings: by its
//! scheduling, and by a recording into a pipe that nobody reads.
//!
//! needs: root, gcc

use std::{
    fs,
    io::Write as _,
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use crate::support::{self, Running, cannot_record, fixture, klock, skip};

/// Bound on every wait; generous, because the machine may be busy.
const LIMIT: Duration = Duration::from_secs(180);

/// Returns the scheduling policy of a thread, without the flag that its children have an ordinary one; `None`
/// if it has ended.
fn policy(tid: &str) -> Option<libc::c_int> {
    // SAFETY: the call involves no memory.
    let policy = unsafe { libc::sched_getscheduler(tid.parse().unwrap()) };
    (policy >= 0).then_some(policy & !libc::SCHED_RESET_ON_FORK)
}

/// Whether this machine lets root have real-time threads.
fn may_be_real_time() -> bool {
    let become_one = || {
        let parameters = libc::sched_param { sched_priority: 1 };
        // SAFETY: the parameters outlive the call, which only reads them.
        unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) == 0 }
    };
    thread::spawn(become_one).join().unwrap()
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn the_threads_between_the_rings_and_the_disk_are_real_time_ones_and_no_others() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    if !may_be_real_time() {
        return skip("needs real-time threads");
    }
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("t.parquet");
    let mut recorder = klock();
    recorder.args(["record", "--locks", "futex", "-o"]).arg(&trace).arg("--");
    let mut recorder =
        Running::start(recorder.args(["sh", "-c", "echo pid $$; read line"]).stdin(Stdio::piped()));
    let command = recorder.line_after("pid ");
    let main = recorder.child.id().to_string();
    let threads = || {
        let tasks = fs::read_dir(format!("/proc/{main}/task")).unwrap();
        let tids = tasks.map(|task| task.unwrap().file_name().into_string().unwrap());
        let name =
            |tid: &str| fs::read_to_string(format!("/proc/{main}/task/{tid}/comm")).unwrap_or_default();
        tids.map(|tid| (name(&tid).trim().to_owned(), tid)).collect::<Vec<_>>()
    };
    let is_urgent = |(name, tid): &(String, String)| {
        *tid == main || ["klock-unwind", "klock-writer"].contains(&name.as_str())
    };
    support::soon(LIMIT, "these threads are real-time ones", || {
        let all = threads();
        let urgent: Vec<_> = all.iter().filter(|thread| is_urgent(thread)).collect();
        urgent.len() == 3 && urgent.iter().all(|(_, tid)| policy(tid) == Some(libc::SCHED_FIFO))
    });
    let others: Vec<_> = threads().into_iter().filter(|thread| !is_urgent(thread)).collect();
    assert!(!others.is_empty(), "{others:?}");
    for (name, tid) in others {
        // Any thread is a real-time one during some calls into the kernel.
        support::soon(LIMIT, &name, || policy(&tid).is_none_or(|policy| policy == libc::SCHED_OTHER));
    }
    assert_eq!(policy(&command), Some(libc::SCHED_OTHER));
    drop(recorder.child.stdin.take());
    recorder.end_within(LIMIT);
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_writer_that_stands_still_does_not_stop_the_draining() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    const ROUNDS: u64 = 5;
    const CALLS: u64 = 20_000;
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("t.parquet");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut program = Command::new(fixture("known_calls"));
    let mut program = Running::start(program.args(["futex", "1", &CALLS.to_string()]).stdin(Stdio::piped()));
    let pid = program.line_after("ready ");
    let (open, opened) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let reader = {
        let pipe = pipe.clone();
        thread::spawn(move || {
            let mut file = fs::File::open(pipe).unwrap();
            open.send(()).unwrap();
            let _ = released.recv();
            std::io::copy(&mut file, &mut std::io::sink()).unwrap();
        })
    };
    let options = ["record", "-p", &pid, "--locks", "futex", "-o"];
    let mut recorder = Running::start(klock().args(options).arg(&pipe));
    recorder.until_recording();
    opened.recv().unwrap();
    let status = format!("/proc/{}/status", recorder.child.id());
    let sleeps = || -> u64 {
        let status = fs::read_to_string(&status).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse().unwrap()
    };
    // Each round fits into the ring, all of them do not, and klock sleeps after it has drained the rings. The
    // rounds last as long as some checkpoints.
    for round in 1..=ROUNDS {
        program.child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        program.line_after(&format!("called {}", round * CALLS));
        let before = sleeps();
        support::soon(LIMIT, "the rings are drained", || sleeps() >= before + 25);
    }
    release.send(()).unwrap();
    recorder.signal("INT");
    let recorder = recorder.end_within(LIMIT);
    reader.join().unwrap();
    assert!(recorder.status.success(), "{}", recorder.stderr);
    assert!(recorder.stderr.contains(", 0 lost"), "{}", recorder.stderr);
}
