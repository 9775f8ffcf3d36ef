//! Records a program that waits in functions of the C library, which keeps no frame pointers
//! (`fixtures/programs/known_callers.c`): the nearest frame of the program is the function that the program
//! itself logged.
//!
//! needs: root, gcc

use std::{path::Path, process::Command};

use trace_format::{Event, EventKind, Frame, Stack, TaskState, Trace};

use crate::support::{self, cannot_record, klock, record_between, record_whole, skip, until};

const OMITTED: &[&str] = &["-O2", "-fomit-frame-pointer"];

/// A wait that the program logged: its function, its thread, and the time before it.
struct Logged {
    function: String,
    tid: i32,
    ns: i64,
}

/// A recording and the log of the program.
struct Recorded {
    /// Waits of the thread that logged, with the time of their begin and their stack.
    waits: Vec<(i64, Vec<Frame>)>,
    /// Number of stacks that klock says it could not unwind: on a busy machine copies do not fit.
    not_unwound: u64,
    log: Vec<Logged>,
}

impl Recorded {
    fn of(flags: &[&str], options: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let program = xtask::fixture::build("known_callers", directory.path(), flags).unwrap();
        let path = directory.path().join("t.parquet");
        let log = logged(&record_between(&mut Command::new(program), options, &path));
        Self::of_trace(&path, &[EventKind::Wait, EventKind::OffCpu], log)
    }

    /// Records the program as a command, which also records its own calls by klock's library.
    fn of_command(flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let program = xtask::fixture::build("known_callers", directory.path(), flags).unwrap();
        let path = directory.path().join("t.parquet");
        let options = ["record", "--off-cpu", "--locks", "pthread", "-o"];
        let log = logged(&record_whole(klock().args(options).arg(&path).arg(program)).stdout);
        Self::of_trace(&path, &[EventKind::OffCpu], log)
    }

    fn of_trace(path: &Path, kinds: &[EventKind], log: Vec<Logged>) -> Self {
        let trace = Trace::open(path).unwrap();
        let not_unwound = trace.info().loss.stacks_not_unwound;
        Self { waits: waits(&trace, log[0].tid, kinds), not_unwound, log }
    }

    /// Checks the stack of each wait, which leads to the function `reached` if one is given. Returns whether
    /// much of what was logged was recorded. On a busy machine the program's file may not be read in time,
    /// and copies may come too late: stacks whose caller is marked as a guess are no more than klock says.
    #[track_caller]
    fn is_right(&self, reached: Option<&str>) -> bool {
        let (mut recorded, mut guessed) = (0, 0);
        for (wait, next) in self.log.iter().zip(&self.log[1..]) {
            let own = self.waits.iter().filter(|(begin, _)| (wait.ns..next.ns).contains(begin));
            for (index, (_, frames)) in own.enumerate() {
                let nearest = frames.iter().find(|frame| is_of_program(frame));
                if nearest.or(frames.last()).is_some_and(|frame| frame.guessed) {
                    guessed += 1;
                    continue;
                }
                if nearest.is_some_and(|frame| frame.symbol.is_none()) {
                    return false;
                }
                recorded += usize::from(index == 0);
                let found = nearest.and_then(|frame| frame.symbol.as_deref());
                assert_eq!(found, Some(&*wait.function), "{:?}", names(frames));
                assert!(
                    reached.is_none_or(|reached| names(frames).contains(&reached)),
                    "{:?}",
                    names(frames)
                );
            }
        }
        assert!(guessed <= self.not_unwound, "{guessed} guesses, {} stacks not unwound", self.not_unwound);
        recorded * 5 > self.log.len()
    }
}

/// Records until much of what was logged was recorded, and checks each stack.
#[track_caller]
fn assert_right(reached: Option<&str>, record: impl Fn() -> Recorded) {
    until("a fifth of the waits has a stack that was unwound in time", || {
        record().is_right(reached).then_some(())
    });
}

fn is_of_program(frame: &Frame) -> bool {
    frame.module.as_deref().is_some_and(|module| module.ends_with("/known_callers"))
}

fn names(frames: &[Frame]) -> Vec<&str> {
    frames.iter().map(|frame| frame.symbol.as_deref().unwrap_or("?")).collect()
}

fn logged(text: &str) -> Vec<Logged> {
    let waits = text.lines().filter_map(|line| line.strip_prefix("wait "));
    let parsed = waits.map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        Logged {
            function: words[0].to_owned(),
            tid: words[1].parse().unwrap(),
            ns: words[2].parse().unwrap(),
        }
    });
    parsed.collect()
}

fn waits(trace: &Trace, tid: i32, kinds: &[EventKind]) -> Vec<(i64, Vec<Frame>)> {
    let tasks = trace.tasks().unwrap();
    let stacks: Vec<Stack> = trace.stacks().unwrap();
    let mut waits = Vec::new();
    for batch in trace.events().unwrap() {
        for event in batch.unwrap().iter() {
            let is_own = event.task.is_some_and(|task| tasks[task.0 as usize].tid == tid);
            if let (true, Some(begin)) = (is_own && kinds.contains(&event.kind), begin_of(&event)) {
                let frames = event.stack.map(|stack| stacks[stack.0 as usize].frames.clone());
                waits.push((begin, frames.unwrap_or_default()));
            }
        }
    }
    waits
}

/// Returns the begin of a wait for a futex, or of a sleep.
fn begin_of(event: &Event) -> Option<i64> {
    match event.kind {
        EventKind::Wait => Some(event.ts_ns),
        EventKind::OffCpu if event.state == Some(TaskState::Interruptible) => {
            Some(event.ts_ns - event.wait_ns?)
        }
        _ => None,
    }
}

#[test]
#[ignore = "records this machine: needs root and gcc"]
fn futex_waits_name_the_caller_of_the_c_library() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    for flags in [&[][..], OMITTED] {
        assert_right(Some("_start"), || Recorded::of(flags, &["--locks", "futex", "--unwind", "dwarf"]));
    }
}

#[test]
#[ignore = "full: a host may hide the switches that sleeps are recorded by"]
fn sleeps_name_the_caller_of_the_c_library() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    for flags in [&[][..], OMITTED] {
        assert_right(Some("_start"), || Recorded::of(flags, &["--off-cpu", "--unwind", "dwarf"]));
    }
}

#[test]
#[ignore = "records this machine: needs root and gcc"]
fn a_short_copy_names_the_caller_too() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    // The frame of one of the functions is larger than the copy.
    assert_right(None, || Recorded::of(&[], &["--locks", "futex", "--unwind", "dwarf,512"]));
}

#[test]
#[ignore = "full: a host may hide the switches that sleeps are recorded by"]
fn sleeps_in_klocks_library_name_its_caller() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    for flags in [&[][..], OMITTED] {
        assert_right(Some("_start"), || Recorded::of_command(flags));
    }
}

#[test]
#[ignore = "records this machine: needs root and gcc"]
fn waits_for_kernel_locks_name_the_caller_of_the_system_call() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    for flags in [&[][..], OMITTED] {
        let directory = tempfile::tempdir().unwrap();
        let program = xtask::fixture::build("known_mappings", directory.path(), flags).unwrap();
        let mut missing = vec!["map_memory", "unmap_memory"];
        until("two threads wait in mmap and in munmap, with stacks that are unwound in time", || {
            let path = directory.path().join("t.parquet");
            let record = ["record", "--contended-only", "-f", "-o"];
            let ended = support::run(klock().args(record).arg(&path).arg(&program).arg("2000"));
            assert!(ended.status.success(), "{}", ended.stderr);
            for frames in Trace::open(&path).unwrap().stacks().unwrap().iter().map(|stack| &stack.frames) {
                let is_in = |name: &str| {
                    frames.iter().any(|frame| frame.kernel && frame.symbol.as_deref() == Some(name))
                };
                let caller = match () {
                    () if is_in("__vm_munmap") => "unmap_memory",
                    () if is_in("vm_mmap_pgoff") => "map_memory",
                    () => continue,
                };
                let is_own =
                    |frame: &&Frame| frame.module.as_deref().is_some_and(|m| m.ends_with("/known_mappings"));
                let Some(nearest) = frames.iter().find(is_own).filter(|frame| !frame.guessed) else {
                    continue;
                };
                let found = nearest.symbol.as_deref().unwrap_or("?");
                // The C library maps and unmaps the stacks of threads.
                assert!([caller, "main"].contains(&found), "{:?}", names(frames));
                missing.retain(|name| *name != found);
            }
            missing.is_empty().then_some(())
        });
    }
}
