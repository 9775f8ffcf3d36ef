//! Finds stuck processes: every thread of the process waits, so no thread is left to signal, to post, or to
//! come to a barrier.
//!
//! ```text
//!  20 sender signals ready           nobody waits for it yet
//!  30 sender ends
//! 100 reader waits for ready         for ever
//! 110 main waits for reader          for ever
//! ```
//!
//! A dead end is found in the open waits for each process that is stuck: its first wait for a condition
//! variable, a semaphore or a barrier. A thread that never used a lock has no row and could do anything, so a
//! process counts only if it was recorded from its start, and all threads that it created have rows.

use std::collections::BTreeMap;

use trace_format::TaskId;

use crate::{
    engine::deadlock::{Deadlock, Has, Member, OpenLocks, OpenWait},
    input::names::Names,
};

/// A thread that was woken may wait for a CPU for as long.
const SETTLED_NS: i64 = 200_000_000;

/// A process with a thread that waits idly.
#[derive(Clone, Copy, Debug, Default)]
struct Process {
    /// Whether it was recorded from its start.
    is_whole: bool,
    rows: usize,
    /// Threads that it created.
    created: usize,
    /// Threads that have not ended.
    alive: usize,
    /// Threads that have not ended and wait without a time-out.
    waiting: usize,
}

/// Returns the dead ends of processes in which no task of `known` is.
pub(super) fn deadlocks(
    open: &OpenLocks,
    known: &[Deadlock],
    names: &Names,
    (start_ns, end_ns): (i64, i64),
) -> Vec<Deadlock> {
    let joins = open.joins.iter().map(|(wait, _)| wait);
    // Holds of other locks may not be recorded.
    let is_idle = |wait: &&OpenWait| names.lock(wait.lock).is_some_and(|lock| lock.kind.is_idle());
    let idle = open.conditions.iter().map(|(wait, _)| wait).chain(&open.idle).filter(is_idle);
    let idle: Vec<&OpenWait> = idle.collect();
    let all = open.waits.iter().chain(joins).chain(idle.iter().copied());
    let waits: BTreeMap<TaskId, &OpenWait> =
        all.filter(|wait| !wait.is_timed).map(|wait| (wait.task, wait)).collect();
    let process = |task: TaskId| names.task(task).map(|row| row.pid);
    let is_own = |wait: &&&OpenWait| names.lock(wait.lock).is_some_and(|lock| lock.shared.is_none());
    let mut first: BTreeMap<i32, &OpenWait> = BTreeMap::new();
    for wait in idle.iter().filter(is_own) {
        if let Some(pid) = process(wait.task) {
            let earliest = first.entry(pid).or_insert(wait);
            if (wait.start_ns, wait.task) < (earliest.start_ns, earliest.task) {
                *earliest = wait;
            }
        }
    }
    for member in known.iter().flat_map(|deadlock| &deadlock.members) {
        process(member.wants.task).and_then(|pid| first.remove(&pid));
    }
    let mut processes: BTreeMap<i32, Process> = first.keys().map(|pid| (*pid, Process::default())).collect();
    for row in names.tasks() {
        let Some(process) = processes.get_mut(&row.pid) else { continue };
        process.is_whole |= row.tid == row.pid && row.start_ns >= Some(start_ns);
        process.rows += 1;
        if !open.ended.contains(&row.id) {
            let wait = waits.get(&row.id);
            let is_settled = wait.is_some_and(|wait| end_ns.saturating_sub(wait.start_ns) >= SETTLED_NS);
            process.alive += 1;
            process.waiting += usize::from(is_settled);
        }
    }
    for (creator, ..) in &open.created {
        if let Some(process) = process(*creator).and_then(|pid| processes.get_mut(&pid)) {
            process.created += 1;
        }
    }
    let stuck = |(pid, wait): (i32, &OpenWait)| {
        let Process { is_whole, rows, created, alive, waiting } = processes[&pid];
        (is_whole && created < rows && waiting == alive)
            .then(|| Deadlock { members: vec![Member { has: Has::Nobody, wants: *wait }], behind: alive - 1 })
    };
    first.into_iter().filter_map(stuck).collect()
}

#[cfg(test)]
mod tests {
    use crate::{
        input::{Input, filter::Filter},
        testing::trace,
    };

    const STUCK: &str = "5 M init t\n6 M init u\n20 S wake c\n30 S wake u\n100 R wait c\n110 M wait t\n";

    /// Returns the deadlocks of a process of three threads at the end of a second, as sentences.
    fn of(rows: &str) -> Vec<String> {
        let text = format!(
            "lock c condvar name=ready pid=1\nlock t thread pid=1\nlock u thread pid=1\nlock v thread pid=1\ntask M tid=1 pid=1 start=1\n\
             task R tid=2 pid=1 start=4 parent=M\ntask S tid=3 pid=1 start=5 parent=M\n{rows}1000000000 X acquire x"
        );
        let test = trace(&text);
        Input::open(&test.trace, 0, &Filter::default()).unwrap().deadlocks().unwrap()
    }

    #[test]
    fn a_process_of_which_every_thread_waits_is_stuck() {
        let found = of(STUCK);
        assert_eq!(found.len(), 1, "{found:?}");
        for words in ["R (tid 2, pid 1)", "waits for #0 ready", "no thread left", "1 more behind it"] {
            assert!(found[0].contains(words), "{words}: {found:?}");
        }
    }

    #[test]
    fn a_process_with_a_thread_that_could_act_is_not() {
        for (row, instead) in [
            ("30 S wake u\n", ""),
            ("110 M wait t\n", ""),
            ("110 M wait t\n", "110 M wait t call=timed\n"),
            ("100 R wait c\n", "900000000 R wait c\n"),
            ("5 M init t\n", "4 M init v\n5 M init t\n"),
        ] {
            let rows = STUCK.replace(row, instead);
            assert!(of(&rows).is_empty(), "{rows}");
        }
    }
}
