//! Suites that nobody here wrote pass and fail alike alone and recorded, test by test: the Open POSIX tests
//! of threads, semaphores, signals and timers, and the tests of Python's threads, processes, signals and
//! descriptors.
//!
//! Some of these tests fail by chance, alone too. The rule of decision: a test whose two outcomes differ is
//! run again, up to five times each way, and behaves otherwise under klock if no outcome was seen both alone
//! and recorded.
//!
//! needs: gcc
//! full needs: posixtestsuite, python3-testsuite
//! full runs beside others

#![allow(clippy::print_stdout, reason = "a run of minutes says what it repeats")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use crate::support::{
    Running,
    place::{Place, users},
    root, run,
};

/// Ends what hangs.
const LIMIT: Duration = Duration::from_secs(1800);
/// Runs each way before a difference is certain.
const RUNS: usize = 5;

/// Interfaces of the Open POSIX tests: those of locks, threads, processes, signals to them and timers.
const INTERFACES: &[&str] = &[
    "pthread_",
    "sem_",
    "fork",
    "kill",
    "raise",
    "nanosleep",
    "clock_nanosleep",
    "timer_",
    "sigwait",
    "sigtimedwait",
    "sigsuspend",
    "sigqueue",
    "sigpending",
];

/// Tests whose outcome nothing defines. The first reads a key before it creates it: alone the uninitialized
/// variable is 0, which is the key of nobody; klock's library has that key. The second posts a semaphore
/// without waiting for the children that it has just forked, and expects that they wait for it already.
const UNDEFINED: [&str; 2] = ["pthread_key_create_2-1", "sem_post_8-1"];

/// Modules of Python's tests.
const MODULES: &[&str] = &[
    "test_atexit",
    "test_concurrent_futures",
    "test_context",
    "test_contextlib",
    "test_faulthandler",
    "test_fork1",
    "test_gc",
    "test_mmap",
    "test_multiprocessing_fork",
    "test_multiprocessing_main_handling",
    "test_posix",
    "test_queue",
    "test_resource",
    "test_sched",
    "test_select",
    "test_selectors",
    "test_signal",
    "test_socketserver",
    "test_subprocess",
    "test_thread",
    "test_threading",
    "test_threading_local",
    "test_threadsignals",
    "test_wait3",
    "test_wait4",
    "test_weakref",
];

/// The outcome of each test.
type Outcomes = BTreeMap<String, String>;

/// Runs tests both ways, and those that differ again. Each must have an outcome that was seen both ways.
#[track_caller]
fn assert_alike(names: &BTreeSet<String>, run: impl Fn(bool, &BTreeSet<String>) -> Outcomes) {
    let mut left = names.clone();
    let mut seen: [BTreeMap<String, BTreeSet<String>>; 2] = Default::default();
    for _ in 0..RUNS {
        for is_recorded in [false, true] {
            for (name, outcome) in run(is_recorded, &left) {
                seen[usize::from(is_recorded)].entry(name).or_default().insert(outcome);
            }
        }
        let [alone, recorded] = &seen;
        let none = BTreeSet::new();
        let of =
            |way: &BTreeMap<String, BTreeSet<String>>, name: &String| way.get(name).unwrap_or(&none).clone();
        left = alone
            .keys()
            .chain(recorded.keys())
            .filter(|name| of(alone, name).is_disjoint(&of(recorded, name)))
            .cloned()
            .collect();
        if left.is_empty() {
            return;
        }
        println!("again: {left:?}");
    }
    let outcomes: Vec<_> = left.iter().map(|name| (name, seen[0].get(name), seen[1].get(name))).collect();
    panic!("{} of {} tests differ (alone, recorded): {outcomes:#?}", left.len(), names.len());
}

/// Compiles the Open POSIX tests. Returns their programs.
fn posix_programs(place: &Place) -> BTreeSet<String> {
    let suite = root().join("target/tools/posixtestsuite");
    let directories =
        fs::read_dir(suite.join("conformance/interfaces")).unwrap().map(|entry| entry.unwrap().path());
    let is_selected = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        INTERFACES.iter().any(|prefix| name.starts_with(prefix))
    };
    place.directory("bin");
    let mut script = String::new();
    let mut names = BTreeSet::new();
    for directory in directories.filter(is_selected) {
        let interface = directory.file_name().unwrap().to_string_lossy().into_owned();
        for source in fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()) {
            let stem = source.file_stem().unwrap().to_string_lossy().into_owned();
            let is_test = source.extension().is_some_and(|e| e == "c")
                && stem.starts_with(|c: char| c.is_ascii_digit());
            if !is_test || !fs::read_to_string(&source).unwrap_or_default().contains("int main") {
                continue;
            }
            let name = format!("{interface}_{stem}");
            let (include, program) = (suite.join("include"), place.path("bin").join(&name));
            script += &format!(
                "gcc -w -O1 -I {} -I {} {} -o {} -pthread -lrt 2>/dev/null\n",
                include.display(),
                directory.display(),
                source.display(),
                program.display()
            );
            names.insert(name);
        }
    }
    let compile = place.path("compile.sh");
    fs::write(&compile, script).unwrap();
    let _ = run(Command::new("sh").arg(compile));
    names.retain(|name| !UNDEFINED.contains(&name.as_str()) && place.path("bin").join(name).exists());
    names
}

#[test]
#[ignore = "full: the Open POSIX tests take minutes"]
fn the_open_posix_tests_end_alike() {
    let place = Place::new();
    let names = posix_programs(&place);
    assert!(names.len() > 500, "{names:?}");
    // Most tests sleep: eight of them run at once. A test that does not end is ended.
    let script =
        "xargs -P 8 -I{} sh -c 'timeout -k 1 120 bin/{} >/dev/null 2>&1 </dev/null; echo {} $?' < names";
    for &is_root in users() {
        assert_alike(&names, |is_recorded, names| {
            let list: Vec<&str> = names.iter().map(String::as_str).collect();
            fs::write(place.path("names"), list.join("\n")).unwrap();
            let ended =
                Running::start(&mut place.as_user(is_root, is_recorded, Path::new("sh"), &["-c", script]))
                    .end_within(LIMIT);
            assert!(ended.status.success(), "{}", ended.stderr);
            let pairs = ended.stdout.lines().filter_map(|line| line.split_once(' '));
            pairs.map(|(name, code)| (name.to_owned(), code.to_owned())).collect()
        });
    }
}

/// Reads the outcome of each test from the report that Python's `test --junit-xml` writes.
fn python_outcomes(report: &Path) -> Outcomes {
    let text = fs::read_to_string(report).expect("a report");
    let cases = text.split("<testcase name=\"").skip(1);
    let outcome = |case: &str| {
        let (name, rest) = case.split_once('"').expect("a name");
        let outcome =
            ["<failure", "<error", "<skipped"].iter().find(|mark| rest.contains(*mark)).unwrap_or(&"passed");
        (name.to_owned(), (*outcome).to_owned())
    };
    cases.map(outcome).collect()
}

#[test]
#[ignore = "full: Python's tests take minutes"]
fn pythons_tests_of_threads_processes_and_signals_end_alike() {
    let place = Place::new();
    let modules: BTreeSet<String> = MODULES.iter().map(|&name| name.to_owned()).collect();
    for &is_root in users() {
        assert_alike(&modules, |is_recorded, names| {
            let report = place.path("report.xml");
            let _ = fs::remove_file(&report);
            // A test is `test.test_queue.Class.method`; its module runs again with it.
            let modules: BTreeSet<&str> = names
                .iter()
                .map(|name| name.trim_start_matches("test.").split('.').next().unwrap())
                .collect();
            let shown = report.display().to_string();
            let mut words = vec!["-m", "test", "-j4", "--timeout", "600", "--junit-xml", &shown];
            words.extend(modules);
            let _ = Running::start(&mut place.as_user(
                is_root,
                is_recorded,
                Path::new("/usr/bin/python3"),
                &words,
            ))
            .end_within(LIMIT);
            python_outcomes(&report)
        });
    }
}
