//! Counts the acquisitions of each mutex of one program (`fixtures/programs/known_counts.c`) three times: by what the program says,
//! by what it records of itself under klock, and by LTTng's wrapper of the pthread functions, which shares no code with klock. The
//! three must be equal. Runs as an ordinary user, with a session daemon of LTTng's of its own.

use std::{collections::BTreeMap, path::PathBuf, process::Command, thread, time::Duration};

use trace_format::{EventKind, LockKind};

mod support;

use support::{
    Running,
    place::{Place, Recorded},
    run, skip,
};

/// Threads, acquisitions of each, and attempts in vain.
const ARGUMENTS: [&str; 3] = ["4", "20000", "5"];
const WRAPPER: &str = "liblttng-ust-pthread-wrapper.so.1";

/// Acquisitions by mutex.
type Counts = BTreeMap<String, u64>;

/// A session daemon with its home in the place; gone when it is dropped.
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
        for _ in 0..100 {
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

    /// What the program printed, and LTTng's events of it as text.
    fn trace(&self, program: &mut Command) -> (String, String) {
        let output = self.home.join("trace");
        self.must(&["create", "count", "--output", &output.to_string_lossy()]);
        self.must(&["enable-channel", "-u", "all", "--subbuf-size", "4M", "--num-subbuf", "4"]);
        self.must(&["enable-event", "-u", "-c", "all", "lttng_ust_pthread:*"]);
        self.must(&["start"]);
        let ended = run(program.env("LD_PRELOAD", WRAPPER).env("LTTNG_HOME", &self.home));
        assert!(ended.status.success(), "{}", ended.stderr);
        self.must(&["stop"]);
        self.must(&["destroy"]);
        let text = run(Command::new("babeltrace").arg(&output));
        assert!(text.status.success() && !text.stderr.contains("discarded"), "{}", text.stderr);
        (ended.stdout, text.stdout)
    }
}

/// The mutexes by their addresses in the run that printed this.
fn addresses(stdout: &str) -> BTreeMap<u64, String> {
    let lines = stdout.lines().filter_map(|line| line.strip_prefix("ADDRESS ")?.split_once(" 0x"));
    lines.map(|(name, address)| (u64::from_str_radix(address, 16).expect("hex"), name.to_owned())).collect()
}

/// What the program says: each worker's own mutex is `own` there.
fn said(stdout: &str) -> Counts {
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
        // A request is an event of its own; one that failed has a status.
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

/// With the workers' own mutexes together, as the program counts them.
fn together(counts: &Counts) -> Counts {
    let mut together = Counts::new();
    for (name, count) in counts {
        let name = name.split('[').next().unwrap_or(name);
        *together.entry(name.to_owned()).or_default() += count;
    }
    together
}

fn missing() -> Option<&'static str> {
    let has = |program: &str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
    };
    ["lttng", "lttng-sessiond", "babeltrace"].into_iter().find(|program| !has(program))
}

#[test]
#[ignore = "needs LTTng; run by cargo xtask test"]
fn each_mutex_is_acquired_as_often_by_lttngs_count_by_klocks_and_by_its_own() {
    if let Some(missing) = missing() {
        return skip(&format!("the comparison with LTTng needs {missing}"));
    }
    let place = Place::new();
    let program = place.program("known_counts");
    let lttng = Lttng::start(&place);
    let (stdout, events) = lttng.trace(place.command(&program).args(ARGUMENTS));
    let lttngs = by_lttng(&stdout, &events);
    assert_eq!(together(&lttngs), said(&stdout), "LTTng's events:\n{}", first_lines(&events));

    let (recorded, ended) = place.run(&mut place.record(&[], &program, &ARGUMENTS));
    assert_eq!(recorded.trace.info().loss.events(), 0, "{:?}", recorded.trace.info().loss);
    let klocks = by_klock(&ended.stdout, &recorded);
    assert_eq!(klocks, lttngs);
    assert_eq!(klocks.len(), 3 + 4, "gate, hot, cold and each worker's own");
}

fn first_lines(text: &str) -> String {
    text.lines().take(5).collect::<Vec<_>>().join("\n")
}
