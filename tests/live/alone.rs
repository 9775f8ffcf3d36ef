//! Programs behave the same alone and recorded, as an ordinary user and as root: exit codes, signals,
//! debuggers, sanitizers, rights (`fixtures/programs/alone.c`). Names of what ends at once are found without
//! a hold.
//!
//! needs: root, gcc, valgrind

use std::{
    ffi::OsStr,
    fs,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use trace_format::Trace;

use crate::support::{
    self, Ended, Running, fixture,
    place::{Place, trace_of, users},
    run, send, set_mode, skip,
};

/// Ends what hangs.
const LIMIT: Duration = Duration::from_secs(180);

/// Runs a program alone and recorded, as each user: its output and its exit must be the same. Returns the
/// outputs alone.
#[track_caller]
fn assert_same(place: &Place, program: &Path, arguments: &[&str]) -> Vec<Ended> {
    let compare = |&is_root: &bool| {
        let run = |is_recorded| run(&mut place.as_user(is_root, is_recorded, program, arguments));
        let (alone, recorded) = (run(false), run(true));
        assert_eq!(recorded.stdout, alone.stdout, "{}", recorded.stderr);
        assert_eq!(recorded.status.code(), alone.status.code(), "{}", recorded.stderr);
        assert!(!recorded.stderr.contains("still running"), "{}", recorded.stderr);
        alone
    };
    users().iter().map(compare).collect()
}

/// Compiles C text in the place, with more flags of gcc.
fn compiled(place: &Place, name: &str, text: &str, flags: &[&str]) -> PathBuf {
    let (source, program) = (place.path(&format!("{name}.c")), place.path(name));
    fs::write(&source, text).unwrap();
    let ended = run(Command::new("gcc")
        .args(["-g", "-O1", "-fno-omit-frame-pointer", "-pthread"])
        .args(flags)
        .arg(&source)
        .arg("-o")
        .arg(&program));
    assert!(ended.status.success(), "{}", ended.stderr);
    program
}

#[test]
#[ignore = "records programs; run by cargo xtask test"]
fn the_exit_code_of_a_thread_that_exits_is_that_of_the_program() {
    let place = Place::new();
    let program = place.program("alone");
    for _ in 0..5 {
        let alone = assert_same(&place, &program, &["exit_of_thread", "400"]);
        assert_eq!(alone[0].status.code(), Some(7));
    }
}

#[test]
#[ignore = "records programs; run by cargo xtask test"]
fn a_program_can_be_traced_and_trace() {
    let place = Place::new();
    let alone = assert_same(&place, &place.program("alone"), &["debugged"]);
    assert!(alone[0].stdout.contains("TRACEME: 0"), "{}", alone[0].stdout);
}

#[test]
#[ignore = "records programs; run by cargo xtask test"]
fn the_line_at_the_end_says_why_programs_did_not_record_themselves() {
    let place = Place::new();
    let still = compiled(&place, "still", "int main(void) { return 0; }\n", &["-static"]);
    let script = format!("env -i /bin/true; {}; env -i /bin/true; true", still.display());
    let ended = run(&mut place.record(&["--locks", "pthread"], Path::new("/bin/sh"), &["-c", &script]));
    assert!(ended.status.success(), "{}", ended.stderr);
    let line = "3 programs or children did not record their pthread calls: 2 started without LD_PRELOAD; 1 linked statically";
    assert!(ended.stderr.contains(line), "{}", ended.stderr);
}

/// A program that leaks nothing, and one that does.
const ALLOCATES: &str = "#include <stdlib.h>\nint main(int c, char **v) { (void)v; void *volatile p = malloc(c * 100); free(p); return 0; }\n";

#[test]
#[ignore = "records programs; run by cargo xtask test"]
fn programs_with_sanitizers_and_scripts_that_start_them_end_as_alone() {
    let place = Place::new();
    for sanitizer in ["address", "leak"] {
        let program = compiled(&place, sanitizer, ALLOCATES, &[&format!("-fsanitize={sanitizer}")]);
        for alone in assert_same(&place, &program, &[]) {
            assert_eq!((alone.status.code(), alone.stderr.as_str()), (Some(0), ""));
        }
        let program = program.display();
        for script in [
            format!("{program}; echo $?"),
            format!("ASAN_OPTIONS=color=never {program}; echo $?"),
            format!("unset ASAN_OPTIONS; {program}; echo $?"),
        ] {
            assert_same(&place, Path::new("/bin/sh"), &["-c", &script]);
        }
    }
}

#[test]
#[ignore = "records programs; run by cargo xtask test"]
fn a_program_with_more_rights_below_an_ordinary_users_command_has_them() {
    let place = Place::new();
    if !xtask::host::is_root() {
        return skip("needs root");
    }
    let text = "#include <stdio.h>\n#include <unistd.h>\nint main(void) { printf(\"%d\\n\", geteuid()); return 0; }\n";
    let program = compiled(&place, "rights", text, &[]);
    set_mode(&program, 0o4755);
    let alone = assert_same(&place, Path::new("/usr/bin/env"), &[program.to_str().unwrap()]);
    if alone[0].stdout != "0\n" {
        skip("needs a directory of temporary files without nosuid");
    }
}

const PLUGIN: &str = "#include <pthread.h>\npthread_mutex_t in_plugin = PTHREAD_MUTEX_INITIALIZER;\n\
    void plugin_locks(void) { pthread_mutex_lock(&in_plugin); pthread_mutex_unlock(&in_plugin); }\n";

/// Returns whether a stack of the trace has this function.
fn has_function(trace: &Path, name: &str) -> bool {
    let stacks = Trace::open(trace).unwrap().stacks().unwrap();
    stacks.iter().flat_map(|stack| &stack.frames).any(|frame| frame.symbol.as_deref() == Some(name))
}

#[test]
#[ignore = "records programs; run by cargo xtask test"]
fn functions_of_a_library_that_is_loaded_just_before_the_end_have_names() {
    let place = Place::new();
    let (program, plugin) =
        (place.program("alone"), compiled(&place, "plugin.so", PLUGIN, &["-shared", "-fPIC"]));
    for &is_root in users() {
        for by_exit in ["0", "1"] {
            let arguments = [OsStr::new("late"), plugin.as_os_str(), OsStr::new(by_exit)];
            let ended = run(&mut place.as_user(is_root, true, &program, &arguments));
            assert_eq!(ended.status.code(), Some(3), "{}", ended.stderr);
            let trace = place.path(trace_of(is_root));
            assert!(has_function(&trace, "plugin_locks"), "{by_exit}");
            let locks = Trace::open(&trace).unwrap().locks().unwrap();
            assert!(locks.iter().any(|lock| lock.name.as_deref() == Some("in_plugin")), "{locks:?}");
        }
    }
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn functions_of_a_static_program_that_ends_at_once_have_names() {
    if let Some(reason) = support::cannot_record() {
        return skip(reason);
    }
    let place = Place::new();
    let folder = place.directory("built");
    let program = xtask::fixture::build("alone", &folder, &["-static"]).unwrap();
    let trace = place.path("root.parquet");
    let program = program.to_str().unwrap();
    // A stack of a child may have its first frame only.
    let of_child = ["sh", "-c", "\"$0\" futex; exit 0", program];
    for (words, function) in [(&[program, "futex"][..], "wait_for_a_moment"), (&of_child, "syscall")] {
        let mut record = support::klock();
        record.args(["record", "-q", "-f", "--locks", "futex", "-o"]).arg(&trace).arg("--").args(words);
        let ended = run(&mut record);
        assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
        assert!(has_function(&trace, function), "{words:?}");
    }
}

#[test]
#[ignore = "records programs; run by cargo xtask test"]
fn core_files_ceilings_coroutines_and_descriptors_are_as_alone() {
    let place = Place::new();
    let program = place.program("alone");
    for mode in ["dumped", "ceiling", "coroutine"] {
        assert_same(&place, &program, &[mode]);
    }
    // Alone, there is no recorder that could be stopped.
    for &is_root in users() {
        let ended = run(&mut place.as_user(is_root, true, &program, &["closes", "4"]));
        assert_eq!(ended.stdout, "0 files were closed by somebody else\n", "{}", ended.stderr);
    }
}

#[test]
#[ignore = "records programs; run by cargo xtask test"]
fn signals_come_while_the_recorder_is_stopped() {
    let place = Place::new();
    let program = place.program("alone");
    for &is_root in users() {
        let running = Running::start(&mut place.as_user(is_root, true, &program, &["timer"]));
        assert_eq!(running.end_within(LIMIT).stdout, "ten signals came\n");
    }
}

#[test]
#[ignore = "records programs; run by cargo xtask test"]
fn a_program_of_32_bits_starts_without_the_library() {
    let place = Place::new();
    // Without a C library: Debian has none of 32 bits by default.
    let text = "void _start(void) { __asm__ volatile(\"mov $1, %eax; mov $6, %ebx; int $0x80\"); }\n";
    let program = compiled(&place, "narrow", text, &["-m32", "-nostdlib", "-static", "-fno-pie", "-no-pie"]);
    let script = format!("{}; echo $?", program.display());
    for alone in assert_same(&place, Path::new("/bin/sh"), &["-c", &script]) {
        assert_eq!((alone.stdout.as_str(), alone.stderr.as_str()), ("6\n", ""));
    }
}

#[test]
#[ignore = "full: a busy machine answers some programs too late, and they end before others start"]
fn hundreds_of_processes_are_recorded_at_a_low_limit_on_files_or_the_line_at_the_end_says_what_to_do() {
    support::most_of(3, 1, || assert_limit_on_files(4096, true));
    support::most_of(3, 1, || assert_limit_on_files(48, false));
}

/// Records 200 processes at once with this limit on open files, which is enough or not.
fn assert_limit_on_files(hard: u64, is_enough: bool) {
    let place = Place::new();
    let program = place.program("known_threads");
    let mut record = place.record(&["--locks", "pthread"], &program, &["processes", "200", "10"]);
    let limit = libc::rlimit { rlim_cur: 48, rlim_max: hard };
    // SAFETY: the function is async-signal-safe.
    unsafe {
        record.pre_exec(move || match libc::setrlimit(libc::RLIMIT_NOFILE, &limit) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    let ended = run(&mut record);
    assert!(ended.status.success(), "{}", ended.stderr);
    assert_eq!(!ended.stderr.contains("raise it with `ulimit -n`"), is_enough, "{}", ended.stderr);
    assert_eq!(!ended.stderr.contains("not recorded"), is_enough, "{}", ended.stderr);
}

#[test]
#[ignore = "records programs; run by cargo xtask test"]
fn valgrind_finds_no_error_in_the_library() {
    if !xtask::process::has("valgrind") {
        return skip("needs valgrind");
    }
    let place = Place::new();
    let program = place.program("alone");
    for tool in ["memcheck", "helgrind", "drd"] {
        let tool = format!("--tool={tool}");
        let arguments = ["-q", "--error-exitcode=9", &tool, program.to_str().unwrap(), "coroutine"];
        for alone in assert_same(&place, Path::new("/usr/bin/valgrind"), &arguments) {
            assert_eq!(alone.status.code(), Some(0), "{tool}: {}", alone.stderr);
        }
    }
}

#[test]
#[ignore = "records programs; run by cargo xtask test"]
fn programs_that_do_not_record_themselves_are_counted_and_others_are_not() {
    let place = Place::new();
    let program = place.program("alone");
    let name = program.display();
    for (script, count) in [
        (format!("{name} dumped; {name} dumped | cat; no-such-program; exec {name} inherited"), 0),
        (format!("env -i {name} inherited; {name} dumped; (ulimit -v 30000; {name} inherited); true"), 2),
        (format!("(ulimit -n 3; exec {name} inherited); true"), 1),
        (format!("(ulimit -f 0; exec {name} dumped); true"), 0),
    ] {
        for &is_root in users() {
            let ended = run(&mut place.as_user(is_root, true, Path::new("/bin/sh"), &["-c", &script]));
            let line = ended.stderr.lines().last().unwrap();
            assert_eq!(line.contains("not recorded"), count > 0, "{script}: {}", ended.stderr);
            let trace = Trace::open(&place.path(trace_of(is_root))).unwrap();
            let said = trace.info().sources.iter().flat_map(|source| source.limits.clone());
            let said: Vec<String> = said.filter(|limit| limit.contains("did not record")).collect();
            assert_eq!(said.len(), usize::from(count > 0), "{script}");
            let start =
                if count == 1 { "1 program or child ".to_owned() } else { format!("{count} programs ") };
            assert!(said.iter().all(|said| said.starts_with(&start)), "{script}: {said:?}");
        }
    }
}

#[test]
#[ignore = "records programs; run by cargo xtask test"]
fn a_program_without_a_network_records_itself() {
    let place = Place::new();
    if !xtask::host::is_root() {
        return skip("needs root");
    }
    let program = place.program("alone");
    let arguments = [OsStr::new("-n"), program.as_os_str(), OsStr::new("dumped")];
    let ended = run(&mut place.as_user(true, true, Path::new("/usr/bin/unshare"), &arguments));
    assert!(!ended.stderr.contains("not recorded"), "{}", ended.stderr);
    assert!(Trace::open(&place.path("root.parquet")).unwrap().event_count() >= 2);
}

/// Starts a recorded program in a process group of its own.
fn start(place: &Place, is_root: bool, arguments: &[&str]) -> (Running, i32) {
    let mut command = place.as_user(is_root, true, &place.program("alone"), arguments);
    // A shell lets what it starts in the background ignore SIGINT and SIGQUIT, and a recorded program
    // inherits that. SAFETY: both functions are async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            libc::signal(libc::SIGQUIT, libc::SIG_DFL);
            Ok(())
        });
    }
    let running = Running::start(command.process_group(0).stdin(Stdio::piped()));
    running.line_after("ready ");
    let klock = i32::try_from(running.child.id()).unwrap();
    (running, klock)
}

#[test]
#[ignore = "records programs; run by cargo xtask test"]
fn each_signal_to_klock_or_to_its_process_group_reaches_the_command_once() {
    let place = Place::new();
    // Comes last: it shows that the command has got all that it will get.
    let last = libc::SIGRTMAX();
    let all = [
        libc::SIGHUP,
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGTERM,
        libc::SIGUSR1,
        libc::SIGUSR2,
        libc::SIGALRM,
        libc::SIGIO,
    ];
    for &is_root in users() {
        for signal in all {
            for to_group in [false, true] {
                let (mut running, klock) = start(&place, is_root, &["signals"]);
                send(if to_group { -klock } else { klock }, signal);
                running.line_after(&format!("got {signal:02}"));
                send(klock, last);
                running.line_after(&format!("got {last:02}"));
                drop(running.child.stdin.take());
                let ended = running.end_within(LIMIT);
                let got = ended.stdout.lines().filter(|line| line.starts_with("got")).count();
                assert_eq!(got, 2, "{signal}, to the group: {to_group}: {}", ended.stdout);
                assert_eq!(ended.status.code(), Some(5), "{}", ended.stderr);
            }
        }
    }
}

#[test]
#[ignore = "records programs; run by cargo xtask test"]
fn klock_waits_for_a_command_that_shuts_down_and_says_so() {
    let place = Place::new();
    for &is_root in users() {
        let (running, klock) = start(&place, is_root, &["slow_shutdown"]);
        send(klock, libc::SIGTERM);
        let ended = running.end_within(LIMIT);
        assert_eq!(ended.status.code(), Some(4), "{}", ended.stderr);
        assert!(ended.stderr.contains("waiting for the command"), "{}", ended.stderr);
        assert!(Trace::open(&place.path(trace_of(is_root))).unwrap().info().complete);
    }
}

#[test]
#[ignore = "records programs; run by cargo xtask test"]
fn a_second_request_ends_klock_without_the_command_with_the_signals_code() {
    let place = Place::new();
    let (mut running, klock) = start(&place, false, &["signals"]);
    send(klock, libc::SIGTERM);
    running.line_after("got 15");
    send(klock, libc::SIGHUP);
    assert!(running.ends_within(LIMIT), "klock waits for its command");
    drop(running.child.stdin.take());
    assert_eq!(running.end_within(LIMIT).status.code(), Some(128 + libc::SIGHUP));
}

#[test]
#[ignore = "records programs; run by cargo xtask test"]
fn blocked_and_ignored_signals_are_inherited_and_others_are_not() {
    let place = Place::new();
    let program = place.program("alone");
    let inherited = format!("{} inherited", program.display());
    let alone = assert_same(&place, &program, &["inherited"]);
    assert!(alone[0].stdout.contains("TracerPid:\t0"), "{}", alone[0].stdout);
    // Klock inherits what these change.
    let block = "python3 -c 'import os, signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, [1, 12, 34]); os.execvp(sys.argv[1], sys.argv[1:])' ";
    for changes in ["trap '' INT QUIT PIPE USR1 HUP; ", "trap '' PIPE; ", "", block] {
        for &is_root in users() {
            let script = |words: &str| {
                let mut shell = if is_root { Command::new("sh") } else { place.command("sh") };
                shell.env("KLOCK", place.path("klock")).env("TRACE", place.path(trace_of(is_root)));
                run(shell.args(["-c", &format!("{changes}{words}")]))
            };
            let alone = script(&inherited);
            let recorded =
                script(&format!("\"$KLOCK\" record -q -f --locks pthread -o \"$TRACE\" -- {inherited}"));
            assert_eq!(recorded.stdout, alone.stdout, "{changes}: {}", recorded.stderr);
            let alone = script("sh -c 'yes | head -1; exit 0'");
            let recorded = script(
                "\"$KLOCK\" record -q -f --locks pthread -o \"$TRACE\" -- sh -c 'yes | head -1; exit 0'",
            );
            assert_eq!((recorded.stdout, recorded.stderr), (alone.stdout, alone.stderr), "{changes}");
        }
    }
}

#[test]
#[ignore = "records programs; run by cargo xtask test"]
fn a_request_to_end_leaves_a_whole_trace_and_metrics_with_every_option() {
    let place = Place::new();
    let metrics = place.path("metrics");
    for options in
        [vec![], vec!["--metrics", metrics.to_str().unwrap()], vec!["--off-cpu=none", "--lossless"]]
    {
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            let fixture = place.copy(&fixture("steady"));
            let mut record =
                place.record(&[&["--quiet", "--locks", "pthread"], &options[..]].concat(), &fixture, &[]);
            let running = Running::start(&mut record);
            running.line_after("running ");
            send(i32::try_from(running.child.id()).unwrap(), signal);
            let ended = running.end_within(LIMIT);
            assert_eq!(ended.status.code(), Some(128 + signal), "{options:?}: {}", ended.stderr);
            assert!(Trace::open(&place.path("t.parquet")).unwrap().info().complete, "{options:?} {signal}");
            place.assert_nothing_is_left();
        }
    }
    assert!(fs::read_to_string(metrics).unwrap().starts_with("# HELP klock_"));
}
