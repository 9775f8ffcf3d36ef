//! Small pools, slow or killed readers, ten million acquisitions, and programs with their own allocator or a
//! sanitizer: every record is delivered or counted, and programs keep working.
//!
//! needs: gcc, stress-ng

mod support;

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs,
    os::unix::process::CommandExt as _,
    process::Command,
    time::{Duration, Instant},
};

use support::{Options, Process, exists, library, program, record, run};
use trace_format::preload::{SOCKET_VARIABLE, api, op};

/// Returns the number of attempts to record locks, and starts, joins and ends of threads.
fn attempts(process: &Process) -> u64 {
    process.delivered() + process.thread_records() + process.lost()
}

/// The records of a thread beside those of its locks: its creation, its start and its end, and one or two of
/// its join.
const OF_THREAD: std::ops::RangeInclusive<u64> = 4..=5;

/// The time after which lossless threads take a reader that makes no progress for dead.
const WAIT_FOR_READER: Duration = Duration::from_secs(5);

#[track_caller]
fn assert_attempts(process: &Process, calls: std::ops::RangeInclusive<u64>, threads: u64) {
    let (least, most) =
        (calls.start() + threads * OF_THREAD.start(), calls.end() + threads * OF_THREAD.end());
    let attempts = attempts(process);
    assert!((least..=most).contains(&attempts), "{attempts} of {least} to {most}");
}

#[test]
fn a_tiny_pool_delivers_or_counts_every_record() {
    let program = program("threads", &[]);
    for (chunks, drain) in [(1, true), (2, true), (5, true), (40, true), (40, false)] {
        let options = Options { pool_bytes: chunks * 2048, chunk_bytes: 2048, drain, ..Options::default() };
        support::until("some records are delivered and some are lost", || {
            let outcome = record(&options, Command::new(&program).args(["4", "50000"])).successful();
            let process = &outcome.processes[0];
            let calls = 2 * outcome.number("locked");
            assert_attempts(process, calls..=calls, 4);
            (process.lost() > 0 && process.delivered() > 0).then_some(())
        });
    }
}

#[test]
fn losses_of_contended_calls_add_up() {
    let program = program("threads", &[]);
    let options = Options { pool_bytes: 4096, chunk_bytes: 2048, ..Options::default() };
    let outcome = record(&options, Command::new(&program).args(["4", "20000", "1"])).successful();
    let process = &outcome.processes[0];
    // An acquisition has one or two records.
    let locked = outcome.number("locked");
    assert_attempts(process, 2 * locked..=3 * locked, 4);
}

#[test]
fn a_lossless_thread_waits_for_its_reader() {
    let program = program("threads", &[]);
    let options = Options { pool_bytes: 8192, chunk_bytes: 2048, lossless: true, ..Options::default() };
    library();
    support::until("the reader does not stand still", || {
        let started = Instant::now();
        let outcome = record(&options, Command::new(&program).args(["2", "20000"])).successful();
        let process = &outcome.processes[0];
        let found = (process.lost(), process.delivered());
        let is_whole = found == (0, 2 * outcome.number("locked"));
        assert!(is_whole || started.elapsed() >= WAIT_FOR_READER, "{found:?}");
        is_whole.then_some(())
    });
}

#[test]
fn lossless_threads_do_not_wait_long_for_a_dead_reader() {
    let program = program("threads", &[]);
    let options =
        Options { pool_bytes: 8192, chunk_bytes: 2048, lossless: true, drain: false, ..Options::default() };
    // The program alone takes this time.
    library();
    let started = Instant::now();
    let outcome = record(&options, Command::new(&program).args(["2", "2000", "0", "20"])).successful();
    let process = &outcome.processes[0];
    let calls = 2 * outcome.number("locked");
    assert_attempts(process, calls..=calls, 40);
    // Once, not in each of the twenty rounds.
    assert!(started.elapsed() < 20 * WAIT_FOR_READER, "{:?}", started.elapsed());
}

#[test]
fn ten_million_acquisitions_are_ten_million_records() {
    let program = program("threads", &[]);
    let options = Options { skim: true, pool_bytes: 512 << 20, ..Options::default() };
    let outcome = record(&options, Command::new(&program).args(["2", "5000000"])).successful();
    let process = &outcome.processes[0];
    // Plus two stacks per thread, of at least three units.
    assert_eq!(process.lost(), 0);
    let beside = process.delivered() - 2 * outcome.number("locked");
    assert!((12..60).contains(&beside), "{beside}");
}

#[test]
fn after_the_recording_calls_are_only_forwarded() {
    let program = program("threads", &[]);
    let outcome =
        record(&Options { inactive: true, ..Options::default() }, Command::new(&program).args(["2", "1000"]))
            .successful();
    assert_eq!((outcome.processes.len(), attempts(&outcome.processes[0])), (1, 0));
}

#[test]
fn a_process_trusts_no_memory_that_can_shrink_and_no_server_of_another_user() {
    let program = program("threads", &[]);
    let mut untrusted = vec![Options { sealed: false, ..Options::default() }];
    // SAFETY: the call has no preconditions.
    if unsafe { libc::geteuid() } == 0 {
        untrusted.push(Options { foreign: true, ..Options::default() });
    }
    for options in untrusted {
        let outcome = record(&options, Command::new(&program).args(["2", "1000"])).successful();
        assert_eq!(outcome.processes.iter().map(attempts).sum::<u64>(), 0, "{options:?}");
    }
}

#[test]
fn programs_run_without_klock() {
    let program = program("calls", &[]);
    let functions = |text: &[u8]| -> Vec<String> {
        String::from_utf8_lossy(text)
            .lines()
            .map(|line| line.split('(').next().unwrap_or("").to_owned())
            .collect()
    };
    let alone = Command::new(&program).output().expect("it runs");
    let socket = |name: &str| format!("{name}:{:032x}", 7);
    let values = [None, Some(String::new()), Some("no-secret".to_owned())];
    for name in values.into_iter().chain(["/no-listener", &"/long".repeat(60)].map(|name| Some(socket(name))))
    {
        let mut command = Command::new(&program);
        command.env("LD_PRELOAD", library());
        if let Some(name) = name {
            command.env(SOCKET_VARIABLE, name);
        }
        let output = command.output().expect("it runs");
        assert!(output.status.success());
        assert_eq!(functions(&output.stdout), functions(&alone.stdout));
    }
}

#[test]
fn a_killed_program_leaves_complete_records() {
    let program = program("scenarios", &["-ldl"]);
    let files = || -> BTreeSet<OsString> {
        let names = fs::read_dir("/dev/shm").into_iter().flatten().flatten().map(|entry| entry.file_name());
        names.filter(|name| name.to_string_lossy().contains("klock")).collect()
    };
    let others = files();
    for round in 0..40 {
        let after = Duration::from_micros(3000 + round * 977);
        let outcome = run(&Options::default(), Command::new(&program).arg("forever"), Some(after));
        // The reader checks that all records are complete. Most runs leave some.
        assert!(outcome.processes.len() <= 1);
    }
    let all = files();
    let left: Vec<_> = all.difference(&others).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn an_allocator_that_locks_is_recorded_and_works() {
    let jemalloc = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2";
    if !exists(jemalloc) {
        println!("skipped: no {jemalloc}");
        return;
    }
    let program = program("threads", &[]);
    // Preloaded before the library, and linked.
    for flags in [vec![], vec![jemalloc]] {
        let linked = support::program("threads", &flags);
        let outcome = record(&Options::default(), Command::new(linked).args(["4", "1000"])).successful();
        assert!(outcome.processes[0].count(op::ACQUIRED, api::MUTEX) >= outcome.number("locked"));
    }
    let outcome = record(
        &Options::default(),
        Command::new("/bin/sh")
            .arg("-c")
            .arg(format!("LD_PRELOAD={jemalloc}:$LD_PRELOAD {} 4 1000", program.display())),
    );
    assert!(outcome.successful().processes.iter().any(|p| p.count(op::ACQUIRED, api::MUTEX) >= 4000));
}

/// Whether the compiler supports this sanitizer.
fn has_sanitizer(name: &str) -> bool {
    let source = std::env::temp_dir().join(format!("klock-sanitizer-{}.c", std::process::id()));
    fs::write(&source, "int main(void) { return 0; }").expect("a file");
    let output = source.with_extension(name);
    let built =
        Command::new("cc").arg(format!("-fsanitize={name}")).arg(&source).arg("-o").arg(&output).output();
    let made = built.is_ok_and(|built| built.status.success());
    for file in [&source, &output] {
        fs::remove_file(file).ok();
    }
    made
}

#[test]
fn sanitizers_report_nothing() {
    for name in ["thread", "address", "undefined"] {
        if !has_sanitizer(name) {
            println!("skipped: no -fsanitize={name}");
            continue;
        }
        let program = program("threads", &[&format!("-fsanitize={name}")]);
        let mut command = Command::new(program);
        // AddressSanitizer requires to be the first library.
        command.args(["4", "1000", "1"]).env("ASAN_OPTIONS", "verify_asan_link_order=0");
        // ThreadSanitizer fails by chance where addresses have more random bits than it knows of.
        // SAFETY: only a system call between fork and execution.
        unsafe {
            command.pre_exec(|| {
                libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong);
                Ok(())
            });
        }
        let outcome = record(&Options::default(), &mut command).successful();
        assert!(!outcome.stderr.contains("Sanitizer"), "{}", outcome.stderr);
        let process = &outcome.processes[0];
        let taken = process.count(op::ACQUIRED, api::MUTEX) + process.count(op::WAITED, api::MUTEX);
        assert!(taken >= outcome.number("locked"), "{name}: {taken}");
    }
}

#[test]
fn programs_without_frame_pointers_have_short_stacks() {
    let program = program("threads", &["-O2", "-fomit-frame-pointer"]);
    let outcome = record(&Options::default(), Command::new(&program).args(["4", "20000"])).successful();
    let process = &outcome.processes[0];
    assert_eq!(process.count(op::ACQUIRED, api::MUTEX), outcome.number("locked"));
    assert!(process.events().iter().all(|event| event.stack.is_some()));
}

#[test]
fn installed_programs_run_with_the_library() {
    for (path, arguments) in [
        (
            "/usr/bin/python3",
            &[
                "-c",
                "import threading as t; x=[t.Thread(target=sum, args=([1],)) for _ in range(20)]; \
            [y.start() for y in x]; [y.join() for y in x]; print('sum', 20)",
            ][..],
        ),
        ("/usr/bin/perl", &["-e", "print \"sum 20\\n\""][..]),
        ("/bin/sh", &["-c", "for i in 1 2 3; do /bin/true; done; echo sum 20"][..]),
    ] {
        if !exists(path) {
            println!("skipped: no {path}");
            continue;
        }
        let outcome = record(&Options::default(), Command::new(path).args(arguments)).successful();
        assert!(!outcome.processes.is_empty(), "{path}");
        assert_eq!(outcome.number("sum"), 20);
    }
}

#[test]
#[ignore = "full: stress-ng ends with an error if its own processes get no time"]
fn stress_ng_runs_with_the_library() {
    let path = "/usr/bin/stress-ng";
    if !exists(path) {
        println!("skipped: no {path}");
        return;
    }
    let arguments = ["--mutex", "1", "--sem", "1", "--timeout", "3", "--stdout"];
    let outcome = record(&Options::default(), Command::new(path).args(arguments)).successful();
    assert!(!outcome.processes.is_empty());
}
