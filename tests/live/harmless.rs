//! Programs behave the same alone and recorded: their output, their errors with errno, and their exit codes.
//! The programs restrict themselves, or look at what is in their process.
//!
//! needs: root, gcc, libtcmalloc_minimal.so.4, libjemalloc.so.2

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use trace_format::Trace;

use crate::support::{self, Ended, Running, place::Place, run, skip};

/// The longest time of a script.
const LIMIT: Duration = Duration::from_secs(180);

/// A script that runs the fixture in these ways, and prints the exit codes.
fn script(program: &Path, ways: &[&str]) -> String {
    let program = program.display();
    ways.iter().map(|way| format!("echo {way}; {program} {way}; echo exit $?\n")).collect()
}

/// Runs a shell command alone and recorded as nobody. Returns the trace.
#[track_caller]
fn assert_same(place: &Place, options: &[&str], script: &str, change: impl Fn(&mut Command)) -> Trace {
    let mut alone = place.command("sh");
    change(alone.args(["-c", script]));
    let alone = run(&mut alone);
    let mut recorded = place.record(&[&["--quiet"], options].concat(), Path::new("sh"), &["-c", script]);
    change(&mut recorded);
    let recorded = Running::start(&mut recorded).end_within(LIMIT);
    assert_ends_alike(&alone, &recorded);
    Trace::open(&place.path("t.parquet")).unwrap()
}

#[track_caller]
fn assert_ends_alike(alone: &Ended, recorded: &Ended) {
    assert_eq!(recorded.stdout, alone.stdout, "{}", recorded.stderr);
    assert_eq!(recorded.stderr, alone.stderr);
    assert_eq!(recorded.status.code(), alone.status.code());
}

/// Returns the number of records, and of calls that were counted but not recorded.
fn counts(trace: &Trace) -> (u64, u64) {
    let own = trace.info().loss.by_program.iter().find(|row| row.program == "preload").unwrap().clone();
    (own.delivered, own.no_place)
}

#[test]
#[ignore = "records programs; run by cargo xtask test"]
fn every_program_that_restricts_itself_behaves_as_alone() {
    let place = Place::new();
    let program = place.program("restricted");
    let ways = run(&mut place.command(&program)).stdout;
    let ways: Vec<&str> = ways.split_whitespace().collect();
    assert!(ways.len() > 10, "{ways:?}");
    assert_same(&place, &[], &script(&program, &ways), |_| ());
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn the_same_programs_of_root_behave_as_alone() {
    if !xtask::host::is_root() {
        return skip("needs root");
    }
    let place = Place::new();
    let program = place.program("restricted");
    let script =
        script(&program, &["locked", "locked_now", "locked_later", "user", "chroot", "filter", "strict"]);
    let alone = run(Command::new("sh").args(["-c", &script]));
    let trace = place.path("root.parquet");
    let recorded = run(support::klock()
        .args(["record", "--quiet", "-f", "-o"])
        .arg(trace)
        .args(["--", "sh", "-c", &script]));
    assert_ends_alike(&alone, &recorded);
}

#[test]
#[ignore = "records programs; run by cargo xtask test"]
fn a_program_under_a_limit_of_locked_memory_locks_it() {
    let place = Place::new();
    let program = place.program("restricted");
    for limit in ["8192", "16384", "65536", "64", "0", "unlimited"] {
        let script = format!("ulimit -l {limit} || exit 0\n{}", script(&program, &["locked", "locked_now"]));
        assert_same(&place, &[], &script, |_| ());
    }
}

#[test]
#[ignore = "records programs; run by cargo xtask test"]
fn calls_under_a_filter_are_recorded_and_those_of_a_child_counted() {
    let place = Place::new();
    let program = place.program("restricted");
    for way in ["filter", "filter_syscall"] {
        let trace = assert_same(&place, &[], &script(&program, &[way]), |_| ());
        let (delivered, missing) = counts(&trace);
        // 8300 pairs of a lock and an unlock, and those around the broadcasts; the child makes 100 pairs.
        assert!(delivered >= 16_600, "{way}: {delivered}");
        assert_eq!(missing, 200, "{way}");
    }
}

#[test]
#[ignore = "records programs; run by cargo xtask test"]
fn calls_without_a_clock_are_counted() {
    let place = Place::new();
    let program = place.program("restricted");
    let trace = assert_same(&place, &[], &script(&program, &["strict"]), |_| ());
    let (delivered, missing) = counts(&trace);
    assert!(delivered >= 200, "{delivered}");
    assert_eq!(missing, 200);
    let mut limits = trace.info().sources.iter().flat_map(|source| &source.limits);
    assert!(limits.any(|limit| limit.starts_with("1 process without a clock to read any more")));
    let trace = assert_same(&place, &[], &script(&program, &["strict_child"]), |_| ());
    let (delivered, missing) = counts(&trace);
    assert!(delivered >= 2200, "the parent's recording ended with the child's: {delivered}");
    assert_eq!(missing, 200);
    let trace = assert_same(&place, &[], &script(&program, &["no_counter"]), |_| ());
    let (_, missing) = counts(&trace);
    // 100 pairs, two threads with 1001 pairs and a broadcast each, which are created and joined, and the
    // child's 100 pairs.
    assert_eq!(missing, 2 * (100 + 2 * 1001 + 100) + 2 + 4);
}

#[test]
#[ignore = "records programs; run by cargo xtask test"]
fn a_program_that_starts_under_a_filter_is_not_killed_by_the_library() {
    let place = Place::new();
    let program = place.program("restricted");
    // The filter forbids what the library needs, and not what a program needs to start.
    let inner = format!("{p} execute_filtered {p} allocates", p = program.display());
    assert_same(&place, &[], &inner, |_| ());
}

#[test]
#[ignore = "records programs; run by cargo xtask test"]
fn a_program_with_libraries_of_its_own_behaves_as_alone() {
    let place = Place::new();
    let program = place.program("restricted");
    let ways = ["allocates", "spawn", "filter", "execs", "locked"];
    for name in ["libtcmalloc_minimal.so.4", "libjemalloc.so.2", "libm.so.6"] {
        let Some(library) = library(name) else {
            skip(&format!("needs {name}"));
            continue;
        };
        let script = format!(
            "{}grep -c {name} /proc/self/maps > /dev/null; echo loaded $?\n",
            script(&program, &ways)
        );
        assert_same(&place, &[], &script, |command| {
            command.env("LD_PRELOAD", &library);
        });
    }
}

/// A library that counts the calls that reach it, and allocates.
const COUNTING_LIBRARY: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static long locked, made;
int pthread_mutex_lock(pthread_mutex_t *mutex)
{
	static int (*next)(pthread_mutex_t *);
	if (!next)
		next = dlsym(RTLD_NEXT, "pthread_mutex_lock");
	__atomic_fetch_add(&locked, 1, __ATOMIC_RELAXED);
	return next(mutex);
}
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument)
{
	int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = dlsym(RTLD_NEXT, "pthread_create");
	__atomic_fetch_add(&made, 1, __ATOMIC_RELAXED);
	free(malloc(10));
	return next(thread, attributes, start, argument);
}
__attribute__((destructor)) static void report(void)
{
	/* klock loads this library, too. */
	if (!strcmp(program_invocation_short_name, "restricted"))
		printf("own library: %ld locked, %ld made\n", locked, made);
}
"#;

#[test]
#[ignore = "records programs; run by cargo xtask test"]
fn a_library_of_the_program_sees_the_same_calls_as_alone() {
    let place = Place::new();
    let program = place.program("restricted");
    let (source, library) = (place.path("own.c"), place.path("own.so"));
    std::fs::write(&source, COUNTING_LIBRARY).unwrap();
    let compiled = run(Command::new("gcc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(&library)
        .arg(&source)
        .arg("-ldl"));
    assert!(compiled.status.success(), "{}", compiled.stderr);
    let script = script(&program, &["allocates", "spawn", "closefrom", "execs"]);
    let trace = assert_same(&place, &[], &script, |command| {
        command.env("LD_PRELOAD", &library);
    });
    assert!(counts(&trace).0 > 0);
}

/// Finds a library of this machine.
fn library(name: &str) -> Option<PathBuf> {
    let folders = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64"];
    folders.iter().map(|folder| Path::new(folder).join(name)).find(|path| path.exists())
}
