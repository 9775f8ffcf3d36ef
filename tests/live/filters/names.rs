//! `--comm` and `--exclude-comm`: one program under two names.

use std::{collections::BTreeSet, fs, path::PathBuf};

use tempfile::TempDir;
use trace_format::{EventKind, LockKind};

use super::{Program, Recorded, try_record};
use crate::support::{cannot_record, fixture, klock, run, skip, until};

const ROUNDS: usize = 5;

/// Copies of the program with other names.
struct Copies(TempDir);

impl Copies {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn called(&self, name: &str) -> PathBuf {
        let path = self.0.path().join(name);
        fs::copy(fixture("known_waits"), &path).unwrap();
        path
    }
}

/// Records the whole machine while both programs run. Returns the process ID and the word of each.
fn both(names: [&str; 2], options: &[&str]) -> (Recorded, [(i32, String); 2]) {
    let copies = Copies::new();
    until("no event is lost", || {
        let mut programs =
            names.map(|name| Program::start(&copies.called(name), &[&ROUNDS.to_string(), "5"]));
        let known = [0, 1].map(|at: usize| (programs[at].pid(), programs[at].address("long")));
        let recorded = try_record(&[&["-a", "--locks", "futex"], options].concat(), || {
            programs.iter_mut().for_each(Program::go);
            for program in &programs {
                program.running.line_after("over ");
            }
        });
        // A program that runs cannot be copied over.
        programs.into_iter().for_each(|program| drop(program.end()));
        Some((recorded.ok()?, known))
    })
}

/// Counts the program's known waits in the trace.
fn known_waits(recorded: &Recorded, (pid, word): &(i32, String)) -> usize {
    let events = recorded.of_lock(word).into_iter();
    events.filter(|event| event.kind == EventKind::Abandon && recorded.task(event).pid == *pid).count()
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn only_tasks_with_the_name_are_recorded() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let (recorded, [wanted, _]) = both(["klock-this", "klock-that"], &["--comm", "klock-this"]);
    assert_eq!(recorded.pids(), BTreeSet::from([wanted.0]));
    assert_eq!(known_waits(&recorded, &wanted), ROUNDS);
    assert!(
        recorded.tasks.iter().all(|task| task.pid != wanted.0 || task.comm.as_deref() == Some("klock-this"))
    );
    recorded.assert_says(LockKind::Futex, "only tasks of these names are recorded: klock-this");
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn tasks_with_an_excluded_name_are_not_recorded_and_all_others_are() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let (recorded, [wanted, other]) = both(["klock-this", "klock-that"], &["--exclude-comm", "klock-that"]);
    assert!(!recorded.pids().contains(&other.0));
    assert_eq!(known_waits(&recorded, &wanted), ROUNDS);
    recorded.assert_says(LockKind::Futex, "tasks of these names are not recorded: klock-that");
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn long_names_are_compared_by_the_fifteen_bytes_that_the_kernel_keeps() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let names = ["klock-first-name-of-many-letters", "klock-second-name-of-many-letters"];
    // Both are selected, and the one that is excluded as well is excluded.
    let selected = names.join(",");
    let (recorded, [wanted, _]) = both(names, &["--comm", &selected, "--exclude-comm", names[1]]);
    assert_eq!(recorded.pids(), BTreeSet::from([wanted.0]));
    assert_eq!(known_waits(&recorded, &wanted), ROUNDS);
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_command_with_another_name_is_followed_to_a_child_with_the_name() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let copies = Copies::new();
    let child = copies.called("klock-child");
    let path = copies.0.path().join("t.parquet");
    let script = format!("echo go | {} {ROUNDS} 5", child.display());
    let options = ["--locks", "futex", "--comm", "klock-child", "--", "sh", "-c", &script];
    let ended = run(klock().args(["record", "-o"]).arg(&path).args(options));
    assert!(ended.status.success(), "{}", ended.stderr);
    let recorded = Recorded::read(&path).expect("the events of one program fit into the rings");
    let word = ended.stdout.lines().find_map(|line| line.strip_prefix("long ")).unwrap().to_owned();
    let pid = ended.stdout.lines().find_map(|line| line.strip_prefix("ready ")).unwrap().parse().unwrap();
    assert_eq!(recorded.pids(), BTreeSet::from([pid]));
    assert_eq!(known_waits(&recorded, &(pid, word)), ROUNDS);
}
