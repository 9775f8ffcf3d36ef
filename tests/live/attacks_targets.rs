//! Records an honest program beside a hostile one of another user, whose files are traps for whoever opens or
//! parses them. klock must end normally and soon, with bounded memory; the honest program's counts are exact
//! and have names.
//!
//! records the whole machine
//! needs: root, gcc, objcopy
//! full needs: python3, strace
//! full runs beside others

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    os::unix::{
        fs::{FileExt as _, symlink},
        process::CommandExt as _,
    },
    path::Path,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use trace_format::{Event, EventKind, Trace};

mod recording;
use crate::support::{
    self, ATTACKER, Running, SetOnDrop,
    arena::{Arena, HostileFuse, make_pipe},
    cannot_record, events, fixture, klock, most_of, set_mode, skip, soon,
};
use recording::{END, Outcome, assert_named, processes_below, record_beside, record_by, record_until};

/// Within this time a recording ends although a file system does not answer.
const SOON: Duration = Duration::from_secs(30);

/// Returns whether the recording has frames in a module of this name.
fn has_frames_in(trace: &Trace, module: &str) -> bool {
    let stacks = trace.stacks().unwrap();
    stacks.iter().flat_map(|s| &s.frames).any(|f| f.module.as_deref().is_some_and(|m| m.contains(module)))
}

fn cannot_run() -> Option<&'static str> {
    let python = Command::new("python3").arg("-V").output().is_ok_and(|output| output.status.success());
    if python { cannot_record() } else { Some("needs python3") }
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_pipe_or_a_device_in_place_of_libc_does_not_hold_klock_up() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let libc = "/usr/lib/x86_64-linux-gnu/libc.so.6";
    let libc = if Path::new(libc).exists() { libc } else { "/usr/lib64/libc.so.6" };
    let arena = Arena::new();
    let mut hostile = Vec::new();
    for (name, replacement) in [("first", "pipe"), ("second", "/dev/zero"), ("third", "/dev/urandom")] {
        let directory = arena.path(name);
        fs::create_dir(&directory).unwrap();
        let copy = directory.join("libc.so.6");
        fs::copy(libc, &copy).unwrap();
        let module = format!("{name}.so");
        arena.copy(&module);
        let mut command = Command::new(arena.path("hostile_files"));
        let (program, pid) = arena.start(command.arg(&module).env("LD_LIBRARY_PATH", &directory));
        hostile.push((program, pid, module));
        fs::remove_file(&copy).unwrap();
        if replacement == "pipe" {
            make_pipe(&copy);
        } else {
            symlink(replacement, &copy).unwrap();
        }
    }
    let outcome = record_beside(&hostile.iter().map(|(_, pid, _)| (pid.as_str(), 1)).collect::<Vec<_>>());
    for (.., module) in &hostile {
        assert!(has_frames_in(&outcome.trace, module), "the mapped libc was probed: {}", outcome.stderr);
    }
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_pipe_in_place_of_a_module_or_of_its_debug_file_does_not_hold_klock_up() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let arena = Arena::new();
    let module = arena.copy("module.so");
    let linked = arena.copy("linked.so");
    let debug = arena.path("linked.debug");
    fs::copy(&linked, &debug).unwrap();
    let mut objcopy = Command::new("objcopy");
    let link = format!("--add-gnu-debuglink={}", debug.display());
    assert!(objcopy.arg("--strip-all").arg(link).arg(&linked).status().unwrap().success());
    make_pipe(&debug);
    let (_hostile, pid) = arena.map(&["module.so", "linked.so"]);
    make_pipe(&module);
    let outcome = record_beside(&[(&pid, 2)]);
    assert!(has_frames_in(&outcome.trace, "module.so") && has_frames_in(&outcome.trace, "linked.so"));
}

#[test]
#[ignore = "full: the bombs take their parser seconds"]
fn files_with_false_sizes_and_bombs_cost_only_their_own_names() {
    if let Some(reason) = cannot_run() {
        return skip(reason);
    }
    let arena = Arena::new();
    let files = arena.write_traps();
    let (_hostile, pid) = arena.map(&files);
    arena.spring_traps();
    let outcome = record_beside(&[(&pid, files.len())]);
    for file in files {
        assert!(has_frames_in(&outcome.trace, file), "{file}");
    }
}

#[test]
#[ignore = "full: a race, which a single recording of seconds seldom meets"]
fn a_file_that_grows_and_shrinks_all_the_time_harms_nobody() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let arena = Arena::new();
    let file = arena.copy("restless.so");
    let (_hostile, pid) = arena.map(&["restless.so"]);
    let bytes = fs::read(&file).unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _end = SetOnDrop(&stop);
        scope.spawn(|| {
            let file = File::options().write(true).open(&file).unwrap();
            while !stop.load(Ordering::Relaxed) {
                file.set_len(64).unwrap();
                file.write_all_at(&bytes, 0).unwrap();
            }
        });
        record_beside(&[(&pid, 0)]);
    });
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_link_to_a_file_that_only_root_may_read_reveals_nothing_of_it() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let arena = Arena::new();
    let secrets = tempfile::tempdir().unwrap();
    let secret = secrets.path().join("secret.so");
    let source = secrets.path().join("secret.c");
    fs::write(&source, "int secret_function(int n) { return n * 7; }\n").unwrap();
    let mut gcc = Command::new("gcc");
    let build_id = "5ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4";
    let flags = ["-shared", "-fPIC", "-g", &format!("-Wl,--build-id=0x{build_id}")];
    assert!(gcc.args(flags).arg(&source).arg("-o").arg(&secret).status().unwrap().success());
    set_mode(&secret, 0o600);
    set_mode(secrets.path(), 0o755);
    let module = arena.copy("module.so");
    // The build id of the secret file, in a file of the attacker that links to it for its debug information.
    let linked = arena.path("linked.so");
    let source = arena.path("victim.c");
    arena.compile(&source, "linked.so", &["-shared", "-fPIC", &format!("-Wl,--build-id=0x{build_id}")]);
    fs::copy(&secret, arena.path("linked.debug")).unwrap();
    let link = format!("--add-gnu-debuglink={}", arena.path("linked.debug").display());
    assert!(Command::new("objcopy").arg(link).arg(&linked).status().unwrap().success());
    fs::remove_file(arena.path("linked.debug")).unwrap();
    symlink(&secret, arena.path("linked.debug")).unwrap();
    let (_hostile, pid) = arena.map(&["module.so", "linked.so"]);
    fs::remove_file(&module).unwrap();
    symlink(&secret, &module).unwrap();
    let outcome = record_beside(&[(&pid, 2)]);
    let stacks = outcome.trace.stacks().unwrap();
    for frame in stacks.iter().flat_map(|stack| &stack.frames) {
        assert_ne!(frame.symbol.as_deref(), Some("secret_function"));
        let is_linked = frame.module.as_deref().is_some_and(|module| module.ends_with("linked.so"));
        assert!(is_linked || frame.build_id.as_deref() != Some(build_id), "{frame:?}");
    }
    assert!(has_frames_in(&outcome.trace, "module.so") && has_frames_in(&outcome.trace, "linked.so"));
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn namespaces_of_the_hostile_process_lead_nowhere() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let arena = Arena::new();
    fs::create_dir(arena.path("mounted")).unwrap();
    let script = "mount -t tmpfs none mounted; cp victim.so hostile_files mounted; cd mounted; \
                  cp victim.so libc.so.6; exec ./hostile_files victim.so libc.so.6";
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "--pid", "--fork", "sh", "-euc", script]);
    let probe =
        Command::new("unshare").args(["--user", "--mount", "true"]).uid(ATTACKER).gid(ATTACKER).status();
    if !probe.is_ok_and(|status| status.success()) {
        return skip("needs user namespaces for ordinary users");
    }
    let command = command.current_dir(arena.directory()).uid(ATTACKER).gid(ATTACKER);
    let hostile = Running::start(command.stdin(Stdio::null()));
    hostile.line_after("ready ");
    let child = processes_below(hostile.child.id())[1];
    let pids = processes_below(child);
    let pid = pids.last().unwrap().to_string();
    let outcome = record_beside(&[(&pid, 2)]);
    assert!(has_frames_in(&outcome.trace, "victim.so"), "{}", outcome.stderr);
    support::kill(child.cast_signed());
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_file_system_that_stops_answering_does_not_hold_klock_up() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let arena = Arena::new();
    let Some(mut server) = HostileFuse::mount(&arena) else { return skip("needs /dev/fuse") };
    let (mut hostile, pid) = arena.map(&["mounted/file"]);
    server.hang();
    let outcome = record_beside(&[(&pid, 1)]);
    drop(server);
    support::kill(hostile.child.id().cast_signed());
    hostile.child.wait().unwrap();
    assert!(has_frames_in(&outcome.trace, "mounted/file"));
    assert!(outcome.stderr.contains("could not be examined"), "{}", outcome.stderr);
}

#[test]
#[ignore = "full: a limit of time"]
fn a_file_system_that_stops_answering_does_not_delay_the_end() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let arena = Arena::new();
    let Some(mut server) = HostileFuse::mount(&arena) else { return skip("needs /dev/fuse") };
    let (mut hostile, pid) = arena.map(&["mounted/file"]);
    server.hang();
    most_of(3, 1, || {
        let outcome = record_beside(&[(&pid, 1)]);
        assert!(outcome.ending < SOON, "{:?}", outcome.ending);
    });
    drop(server);
    support::kill(hostile.child.id().cast_signed());
    hostile.child.wait().unwrap();
}

#[test]
#[ignore = "full: to read 100,000 mappings takes seconds"]
fn a_process_with_as_many_mappings_as_the_kernel_allows_harms_nobody() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let arena = Arena::new();
    let long = "n".repeat(200);
    arena.copy(&long);
    let (_hostile, pid) = arena.map(&["--mappings", "100000", &long]);
    record_beside(&[(&pid, 0)]);
}

#[test]
#[ignore = "full: a thousand files take seconds"]
fn a_thousand_broken_files_do_not_exhaust_klock() {
    if let Some(reason) = cannot_run() {
        return skip(reason);
    }
    let arena = Arena::new();
    arena.write_with_python(
        "for at in sections(): struct.pack_into('<Q', elf, at + 32, 1 << 40)\n\
         for i in range(1000): save(f'broken{i}.so', elf)\n",
    );
    let files: Vec<String> = (0..1000).map(|i| format!("broken{i}.so")).collect();
    let (_hostile, pid) = arena.map(&files.iter().map(String::as_str).collect::<Vec<_>>());
    record_beside(&[(&pid, 0)]);
}

#[test]
#[ignore = "full: a race, which a single recording of seconds seldom meets"]
fn a_file_that_is_replaced_all_the_time_harms_nobody() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let arena = Arena::new();
    let file = arena.copy("victim1.so");
    let (_hostile, pid) = arena.map(&["victim1.so"]);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _end = SetOnDrop(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                make_pipe(&file);
                let _ = fs::remove_file(&file);
                let _ = symlink("/dev/zero", &file);
                let _ = fs::remove_file(&file);
                let _ = fs::copy(arena.path("victim.so"), &file);
            }
        });
        let outcome = record_beside(&[(&pid, 1)]);
        assert!(has_frames_in(&outcome.trace, "victim1.so"));
    });
}

/// Records the whole machine while an honest program makes a known number of wakes that wake no task.
#[track_caller]
fn record_all() -> Outcome {
    const ROUNDS: usize = 200;
    let mut honest = Command::new(fixture("known_futex"));
    let honest = Running::start(honest.args(["--wait", &ROUNDS.to_string(), "1"]).stdin(Stdio::piped()));
    let pid: i32 = honest.line_after("ready ").parse().unwrap();
    // It is alive until the recording has ended, so that its mappings can be read on a machine of any speed.
    let made_all = |honest: &mut Running| drop(honest.line_after("FUTEX alone "));
    let (outcome, stdout) =
        record_until(made_all, klock().args(["record", "-a", "--locks", "futex"]), honest);
    let line = stdout.lines().find_map(|line| line.strip_prefix("FUTEX alone 0x")).unwrap();
    let address = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
    let locks = outcome.trace.locks().unwrap();
    let is_alone = |event: &&Event| {
        event.kind == EventKind::Wake
            && event
                .lock
                .map(|lock| &locks[lock.0 as usize])
                .is_some_and(|lock| lock.pid == Some(pid) && lock.address == Some(address))
    };
    assert_eq!(events(&outcome.trace).iter().filter(is_alone).count(), 3 * ROUNDS, "{}", outcome.stderr);
    assert_named(&outcome, "wake_nobody");
    outcome
}

#[test]
#[ignore = "full: a host may hide system calls from tracepoints"]
fn hostile_files_of_a_process_that_nobody_named_harm_no_recording_of_the_machine() {
    if let Some(reason) = cannot_run() {
        return skip(reason);
    }
    let arena = Arena::new();
    let traps = arena.write_traps();
    // In place of libc and of the file with debug information, too.
    let libc = arena.path("libc.so.6");
    fs::copy(arena.path("victim.so"), &libc).unwrap();
    let (linked, debug) = (arena.copy("linked.so"), arena.path("linked.debug"));
    fs::copy(&linked, &debug).unwrap();
    let mut objcopy = Command::new("objcopy");
    let link = format!("--add-gnu-debuglink={}", debug.display());
    assert!(objcopy.arg("--strip-all").arg(link).arg(&linked).status().unwrap().success());
    make_pipe(&debug);
    let files = [&["--futex", "libc.so.6", "linked.so"], &traps[..]].concat();
    let (_hostile, _) = arena.map(&files);
    arena.spring_traps();
    make_pipe(&libc);
    most_of(3, 1, || {
        let outcome = record_all();
        for file in &files[1..] {
            assert!(has_frames_in(&outcome.trace, file), "{file}: {}", outcome.stderr);
        }
    });
}

#[test]
#[ignore = "full: a host may hide system calls from tracepoints, and a limit of time"]
fn a_file_system_that_stops_answering_does_not_hold_up_a_recording_of_the_machine() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let arena = Arena::new();
    let Some(mut server) = HostileFuse::mount(&arena) else { return skip("needs /dev/fuse") };
    let (mut hostile, _) = arena.map(&["--futex", "mounted/file"]);
    server.hang();
    most_of(3, 1, || {
        let outcome = record_all();
        assert!(outcome.stderr.contains("could not be examined"), "{}", outcome.stderr);
        assert!(outcome.ending < SOON, "{:?}", outcome.ending);
    });
    drop(server);
    support::kill(hostile.child.id().cast_signed());
    hostile.child.wait().unwrap();
}

/// A call in strace's output: the process, the name of the call, and all of it.
struct Traced {
    pid: String,
    call: String,
    text: String,
}

/// Returns the calls of a log, in the order of their ends. A call that another process interrupts has two
/// lines.
fn traced(log: &str) -> Vec<Traced> {
    let (mut calls, mut unfinished) = (Vec::new(), BTreeMap::new());
    for line in log.lines() {
        let Some((pid, text)) = line.split_once(' ') else { continue };
        let text = text.trim_start();
        if let Some(begin) = text.strip_suffix("<unfinished ...>") {
            unfinished.insert(pid, begin);
            continue;
        }
        let text = match text.strip_prefix("<... ").and_then(|rest| rest.split_once(" resumed>")) {
            Some((_, end)) => format!("{}{end}", unfinished.remove(pid).unwrap_or_default()),
            None => text.to_owned(),
        };
        let call = text.split('(').next().unwrap_or_default().to_owned();
        calls.push(Traced { pid: pid.to_owned(), call, text });
    }
    calls
}

#[test]
#[ignore = "full: strace, which slows klock down"]
fn processes_with_privileges_only_find_files_of_targets_and_reopen_what_they_compared() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    if !Command::new("strace").arg("-V").output().is_ok_and(|output| output.status.success()) {
        return skip("needs strace");
    }
    let arena = Arena::new();
    let server = HostileFuse::mount(&arena);
    let mut files = vec!["piped.so", "device.so", "sparse.so", "shrunk.so", "victim.so"];
    for name in &files[..4] {
        arena.copy(name);
    }
    files.extend(server.as_ref().map(|_| "mounted/file"));
    let (_hostile, pid) = arena.map(&files);
    make_pipe(&arena.path("piped.so"));
    fs::remove_file(arena.path("device.so")).unwrap();
    symlink("/dev/zero", arena.path("device.so")).unwrap();
    File::options().write(true).open(arena.path("sparse.so")).unwrap().set_len(4700 << 20).unwrap();
    File::options().write(true).open(arena.path("shrunk.so")).unwrap().set_len(100).unwrap();
    let output = tempfile::tempdir().unwrap();
    let log = output.path().join("strace.txt");
    let calls = "trace=execve,open,openat,openat2,statx,read,readv,pread64,preadv,mmap,sendfile,splice,copy_file_range";
    let traced_klock = || {
        // The tracer of another recording may still write.
        let _ = fs::remove_file(&log);
        let mut strace = Command::new("strace");
        // Detached: klock is the child of this test.
        strace.args(["-D", "-f", "-y", "-s", "4096", "-e", calls, "-o"]).arg(&log);
        strace.arg(env!("CARGO_BIN_EXE_klock"));
        strace
    };
    record_by(traced_klock, &[(&pid, files.len())]);
    drop(server);
    // The tracer writes the last lines after the end of klock.
    soon(END, "all traced threads have ended", || {
        let log = fs::read_to_string(&log).unwrap();
        let threads = |lines: &mut dyn Iterator<Item = &str>| -> BTreeSet<String> {
            lines.filter_map(|line| Some(line.split_once(' ')?.0.to_owned())).collect()
        };
        threads(&mut log.lines()) == threads(&mut log.lines().filter(|line| line.contains(" +++ ")))
    });
    let log = fs::read_to_string(&log).unwrap();
    let lines = traced(&log);
    let helpers = |name: &str| -> Vec<&str> {
        let quoted = format!("\"{name}\"");
        let starts = lines.iter().filter(|line| line.call == "execve" && line.text.contains(&quoted));
        starts.map(|line| line.pid.as_str()).collect()
    };
    let (openers, parsers) = (helpers("opener"), helpers("parser"));
    assert!(!openers.is_empty() && !parsers.is_empty());
    let inside = format!("<{}/", arena.directory().display());
    let (mut found, mut reopened, mut parsed) = (0, 0, 0);
    let mut compared = BTreeMap::new();
    for line in &lines {
        let (pid, call, text) = (line.pid.as_str(), line.call.as_str(), line.text.as_str());
        if call == "statx" {
            compared.insert(pid, text);
        }
        // The server's files have their own names below the mount.
        if !text.contains(&inside) || call == "statx" {
            continue;
        }
        if parsers.contains(&pid) {
            parsed += 1;
            continue;
        }
        assert!(call.starts_with("open"), "a process with privileges used a file of a target: {text}");
        if text.contains("O_PATH") {
            found += 1;
            continue;
        }
        assert!(openers.contains(&pid), "only the opener opens files of targets: {text}");
        let descriptor = text.split("\"/proc/self/fd/").nth(1).and_then(|rest| rest.split('"').next());
        let number =
            descriptor.unwrap_or_else(|| panic!("a file of a target was opened by its path: {text}"));
        assert!(compared[pid].starts_with(&format!("statx({number}<")), "it was not compared: {text}");
        reopened += 1;
    }
    assert!(found >= 5 && reopened >= 5 && parsed >= 5, "{found} {reopened} {parsed}");
}
