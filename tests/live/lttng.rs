//! Compares three counts of the acquisitions of each mutex of a program (`fixtures/programs/known_counts.c`):
//! its own, klock's in-process recorder's, and the count of LTTng's wrapper of the pthread functions, which
//! shares no code with klock. They count runs of their own, and one run together. Runs as an ordinary user,
//! with a session daemon of its own.
//!
//! needs: gcc, lttng, lttng-gen-tp, babeltrace

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use trace_format::{EventKind, LockKind};

use crate::support::{
    Running,
    place::{Place, Recorded},
    run, skip,
};

/// Threads, acquisitions of each, and failed attempts.
const ARGUMENTS: [&str; 3] = ["4", "20000", "5"];
const WRAPPER: &str = "liblttng-ust-pthread-wrapper.so.1";

/// Acquisitions by mutex.
type Counts = BTreeMap<String, u64>;

/// A session daemon with its home in the place. Dropping it ends it.
struct Lttng<'a> {
    place: &'a Place,
    home: PathBuf,
    _daemon: Running,
}

impl<'a> Lttng<'a> {
    fn start(place: &'a Place) -> Self {
        let home = place.directory("lttng");
        let daemon = Running::start(
            place.command("lttng-sessiond").arg("--no-kernel").current_dir("/").env("LTTNG_HOME", &home),
        );
        let lttng = Self { place, home, _daemon: daemon };
        for _ in 0..1000 {
            if run(&mut lttng.command(&["list"])).status.success() {
                return lttng;
            }
            thread::sleep(Duration::from_millis(50));
        }
        panic!("LTTng's session daemon does not answer");
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.place.command("lttng");
        command.arg("--no-sessiond").args(arguments).env("LTTNG_HOME", &self.home);
        command
    }

    #[track_caller]
    fn must(&self, arguments: &[&str]) {
        let ended = run(&mut self.command(arguments));
        assert!(ended.status.success(), "lttng {arguments:?}: {}", ended.stderr);
    }

    /// Runs a program that loads the wrapper. Returns its output and LTTng's events as text.
    fn trace(&self, program: &mut Command) -> (String, String) {
        let output = self.home.join("trace");
        self.must(&["create", "count", "--output", &output.to_string_lossy()]);
        self.must(&["enable-channel", "-u", "all", "--subbuf-size", "4M", "--num-subbuf", "4"]);
        self.must(&["enable-event", "-u", "-c", "all", "lttng_ust_pthread:*"]);
        self.must(&["start"]);
        // On a busy machine, the program would begin before LTTng is ready.
        let ended = run(program.env("LTTNG_HOME", &self.home).env("LTTNG_UST_REGISTER_TIMEOUT", "-1"));
        assert!(ended.status.success(), "{}", ended.stderr);
        self.must(&["stop"]);
        self.must(&["destroy"]);
        let text = run(Command::new("babeltrace").arg(&output));
        assert!(text.status.success() && !text.stderr.contains("discarded"), "{}", text.stderr);
        (ended.stdout, text.stdout)
    }
}

/// Reads the addresses of the mutexes from the output of a run.
fn addresses(stdout: &str) -> BTreeMap<u64, String> {
    let lines = stdout.lines().filter_map(|line| line.strip_prefix("ADDRESS ")?.split_once(" 0x"));
    lines.map(|(name, address)| (u64::from_str_radix(address, 16).expect("hex"), name.to_owned())).collect()
}

/// Reads the counts that the program prints; it calls each worker's own mutex `own`.
fn by_program(stdout: &str) -> Counts {
    let mut counts = Counts::new();
    for line in stdout.lines().filter_map(|line| line.strip_prefix("COUNT ")) {
        let words: Vec<&str> = line.split(' ').collect();
        if words[2] == "acquire" {
            *counts.entry(words[0].to_owned()).or_default() += words[3].parse::<u64>().expect("a number");
        }
    }
    counts
}

fn by_lttng(stdout: &str, events: &str) -> Counts {
    let names = addresses(stdout);
    let mut counts = Counts::new();
    for line in events.lines() {
        // A request is an event of its own, and a failure has a status.
        let taken = line.contains(":pthread_mutex_lock_acq:") || line.contains(":pthread_mutex_trylock:");
        if !taken || !line.contains("status = 0 ") {
            continue;
        }
        let address = line.split_once("mutex = 0x").and_then(|(_, rest)| rest.split_once(','));
        let address = address.and_then(|(digits, _)| u64::from_str_radix(digits, 16).ok());
        if let Some(name) = address.and_then(|address| names.get(&address)) {
            *counts.entry(name.clone()).or_default() += 1;
        }
    }
    counts
}

fn by_klock(stdout: &str, recorded: &Recorded) -> Counts {
    let names = addresses(stdout);
    let mut counts = Counts::new();
    for event in recorded.events.iter().filter(|event| event.kind == EventKind::Acquire) {
        let lock = recorded.lock(event).filter(|lock| lock.kind == LockKind::PthreadMutex);
        if let Some(name) = lock.and_then(|lock| names.get(&lock.address?)) {
            *counts.entry(name.clone()).or_default() += 1;
        }
    }
    counts
}

/// Merges the workers' own mutexes, as the program counts them.
fn merge(counts: &Counts) -> Counts {
    let mut merged = Counts::new();
    for (name, count) in counts {
        let name = name.split('[').next().unwrap_or(name);
        *merged.entry(name.to_owned()).or_default() += count;
    }
    merged
}

fn missing() -> Option<&'static str> {
    ["lttng", "lttng-sessiond", "babeltrace"].into_iter().find(|program| !xtask::process::has(program))
}

#[test]
#[ignore = "full: compares with LTTng"]
fn lttng_klock_and_the_program_count_the_same_acquisitions_of_each_mutex() {
    if let Some(missing) = missing() {
        return skip(&format!("the comparison with LTTng needs {missing}"));
    }
    let place = Place::new();
    let program = place.program("known_counts");
    let lttng = Lttng::start(&place);
    let (stdout, events) = lttng.trace(place.command(&program).args(ARGUMENTS).env("LD_PRELOAD", WRAPPER));
    let lttngs = by_lttng(&stdout, &events);
    assert_eq!(merge(&lttngs), by_program(&stdout), "LTTng's events:\n{}", first_lines(&events));

    let (recorded, ended) = place.run(&mut place.record(&[], &program, &ARGUMENTS));
    assert_eq!(recorded.trace.info().loss.events(), 0, "{:?}", recorded.trace.info().loss);
    let klocks = by_klock(&ended.stdout, &recorded);
    assert_eq!(klocks, lttngs);
    assert_eq!(klocks.len(), 3 + 4, "gate, hot, cold and each worker's own");
}

#[test]
#[ignore = "full: compares with LTTng"]
fn lttng_before_and_behind_klock_counts_the_same_acquisitions_of_one_run() {
    if let Some(missing) = missing() {
        return skip(&format!("the comparison with LTTng needs {missing}"));
    }
    let place = Place::new();
    let program = place.program("known_counts").display().to_string();
    let lttng = Lttng::start(&place);
    for libraries in [format!("{WRAPPER}:$LD_PRELOAD"), format!("$LD_PRELOAD:{WRAPPER}")] {
        let script = format!("LD_PRELOAD=\"{libraries}\" exec \"$0\" \"$@\"");
        let arguments = [&["-c", &script, &program], &ARGUMENTS[..]].concat();
        let (stdout, events) = lttng.trace(&mut place.record(&[], Path::new("/bin/sh"), &arguments));
        let recorded = place.recorded();
        let counted = by_program(&stdout);
        assert_eq!(merge(&by_lttng(&stdout, &events)), counted, "{libraries}:\n{}", first_lines(&events));
        assert_eq!(merge(&by_klock(&stdout, &recorded)), counted, "{libraries}");
        fs::remove_dir_all(lttng.home.join("trace")).expect("a trace");
    }
}

fn first_lines(text: &str) -> String {
    text.lines().take(5).collect::<Vec<_>>().join("\n")
}
