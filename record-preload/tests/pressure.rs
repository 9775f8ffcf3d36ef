//! Rings that are too small, readers that are too slow or gone, ten million acquisitions, and programs that bring an allocator or
//! a sanitizer of their own: nothing vanishes, and nobody is harmed.

mod support;

use std::{
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use support::{Options, Process, exists, library, program, record, run};
use trace_format::preload::{SOCKET_VARIABLE, api, op};

fn attempts(process: &Process) -> u64 {
    process.delivered() + process.lost()
}

#[test]
fn with_an_absurdly_small_ring_delivered_and_lost_are_all_there_were() {
    let program = program("threads", &[]);
    for (ring_bytes, drain) in [(32, true), (64, true), (4096, true), (4096, false)] {
        let options = Options { ring_bytes, least_ring_bytes: 32, drain, ..Options::default() };
        let outcome = record(&options, Command::new(&program).args(["4", "50000"])).good();
        let process = &outcome.processes[0];
        assert_eq!(attempts(process), 2 * outcome.number("locked"), "{ring_bytes}");
        assert!(process.lost() > 0 && process.delivered() > 0);
    }
}

#[test]
fn losses_of_contended_calls_add_up_too() {
    let program = program("threads", &[]);
    let options = Options { ring_bytes: 128, least_ring_bytes: 32, ..Options::default() };
    let outcome = record(&options, Command::new(&program).args(["4", "20000", "1"])).good();
    let process = &outcome.processes[0];
    // An acquisition is one record or two.
    let locked = outcome.number("locked");
    assert!((2 * locked..=3 * locked).contains(&attempts(process)), "{} {locked}", attempts(process));
}

#[test]
fn a_thread_that_may_lose_nothing_waits_for_its_reader() {
    let program = program("threads", &[]);
    let options = Options { ring_bytes: 4096, lossless: true, ..Options::default() };
    let outcome = record(&options, Command::new(&program).args(["2", "20000"])).good();
    let process = &outcome.processes[0];
    assert_eq!((process.lost(), process.delivered()), (0, 2 * outcome.number("locked")));
}

#[test]
fn nobody_waits_long_for_a_reader_that_is_gone() {
    let program = program("threads", &[]);
    let options = Options { ring_bytes: 4096, lossless: true, drain: false, ..Options::default() };
    let begun = Instant::now();
    let outcome = record(&options, Command::new(&program).args(["2", "20000"])).good();
    let process = &outcome.processes[0];
    assert_eq!(attempts(process), 2 * outcome.number("locked"));
    // A second for each of the three threads, once.
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[test]
fn ten_million_acquisitions_are_ten_million_records() {
    let program = program("threads", &[]);
    let options = Options { skim: true, bytes: 1 << 30, ring_bytes: 64 << 20, ..Options::default() };
    let outcome = record(&options, Command::new(&program).args(["2", "5000000"])).good();
    let process = &outcome.processes[0];
    // Two stacks of each thread beside them, of three units at least.
    assert_eq!(process.lost(), 0);
    let beside = process.delivered() - 2 * outcome.number("locked");
    assert!((12..60).contains(&beside), "{beside}");
}

#[test]
fn after_the_recording_calls_are_only_forwarded() {
    let program = program("threads", &[]);
    let outcome =
        record(&Options { inactive: true, ..Options::default() }, Command::new(&program).args(["2", "1000"]))
            .good();
    assert_eq!((outcome.processes.len(), attempts(&outcome.processes[0])), (1, 0));
}

#[test]
fn without_a_klock_programs_run_as_ever() {
    let program = program("calls", &[]);
    let functions = |text: &[u8]| -> Vec<String> {
        String::from_utf8_lossy(text)
            .lines()
            .map(|line| line.split('(').next().unwrap_or("").to_owned())
            .collect()
    };
    let alone = Command::new(&program).output().expect("it runs");
    for name in [None, Some(""), Some("nobody-listens-here"), Some(&*"long".repeat(60))] {
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
fn a_program_that_is_killed_leaves_whole_records() {
    let program = program("scenes", &["-ldl"]);
    for round in 0..40 {
        let after = Duration::from_micros(3000 + round * 977);
        let outcome = run(&Options::default(), Command::new(&program).arg("forever"), Some(after));
        // The reader checks that what there is, is whole; often there is something.
        assert!(outcome.processes.len() <= 1);
    }
    let names = fs::read_dir("/dev/shm").into_iter().flatten().flatten().map(|entry| entry.file_name());
    let left: Vec<_> = names.filter(|name| name.to_string_lossy().contains("klock")).collect();
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
    // In front of the library, and linked to.
    for flags in [vec![], vec![jemalloc]] {
        let linked = support::program("threads", &flags);
        let outcome = record(&Options::default(), Command::new(linked).args(["4", "1000"])).good();
        assert!(outcome.processes[0].count(op::ACQUIRED, api::MUTEX) >= outcome.number("locked"));
    }
    let outcome = record(
        &Options::default(),
        Command::new("/bin/sh")
            .arg("-c")
            .arg(format!("LD_PRELOAD={jemalloc}:$LD_PRELOAD {} 4 1000", program.display())),
    );
    assert!(outcome.good().processes.iter().any(|p| p.count(op::ACQUIRED, api::MUTEX) >= 4000));
}

/// Whether the compiler can make programs with this sanitizer.
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
fn sanitizers_find_nothing_to_say() {
    for name in ["thread", "address", "undefined"] {
        if !has_sanitizer(name) {
            println!("skipped: no -fsanitize={name}");
            continue;
        }
        let program = program("threads", &[&format!("-fsanitize={name}")]);
        let mut command = Command::new(program);
        // The address sanitizer wants to be the first library; klock says so for it.
        command.args(["4", "1000", "1"]).env("ASAN_OPTIONS", "verify_asan_link_order=0");
        let outcome = record(&Options::default(), &mut command).good();
        assert!(!outcome.stderr.contains("Sanitizer"), "{}", outcome.stderr);
        let process = &outcome.processes[0];
        let taken = process.count(op::ACQUIRED, api::MUTEX) + process.count(op::WAITED, api::MUTEX);
        assert!(taken >= outcome.number("locked"), "{name}: {taken}");
    }
}

#[test]
fn without_frame_pointers_stacks_are_short_and_programs_whole() {
    let program = program("threads", &["-O2", "-fomit-frame-pointer"]);
    let outcome = record(&Options::default(), Command::new(&program).args(["4", "20000"])).good();
    let process = &outcome.processes[0];
    assert_eq!(process.count(op::ACQUIRED, api::MUTEX), outcome.number("locked"));
    assert!(process.events().iter().all(|event| event.stack.is_some()));
}

#[test]
fn programs_that_are_there_run_in_it() {
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
        ("/usr/bin/stress-ng", &["--mutex", "1", "--sem", "1", "--timeout", "3", "--stdout"][..]),
    ] {
        if !exists(path) {
            println!("skipped: no {path}");
            continue;
        }
        let outcome = record(&Options::default(), Command::new(path).args(arguments)).good();
        assert!(!outcome.processes.is_empty(), "{path}");
        assert!(Path::new(path).ends_with("stress-ng") || outcome.number("sum") == 20);
    }
}
