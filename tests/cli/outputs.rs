//! Checks the files that klock writes: devices, pipes and links, signals, limits and permissions.

use std::{
    fs,
    io::Read as _,
    os::unix::{
        fs::{FileTypeExt as _, PermissionsExt as _, symlink},
        net::UnixListener,
        process::{CommandExt as _, ExitStatusExt as _},
    },
    path::Path,
    process::{Child, Command, Output, Stdio},
    thread,
    time::Duration,
};

use trace_format::{Event, Trace};

use crate::{
    common::{self, until},
    support::{Folder, Outcome, one_wait, side_rows, write_trace},
};

/// Arguments of an export with several lines.
const CSV: [&str; 3] = ["export", "--format", "csv"];

fn make_fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

fn klock(folder: &Folder) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_klock"));
    command.current_dir(folder.path("")).stdin(Stdio::null());
    command
}

/// Returns the names of the files in the folder that a trace does not consist of.
fn other_files(folder: &Folder) -> Vec<String> {
    let names = fs::read_dir(folder.path("")).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.retain(|name| !name.starts_with("trace."));
    names.sort();
    names
}

#[track_caller]
fn soon(what: &str, holds: impl FnMut() -> bool) {
    common::soon(Duration::from_secs(300), what, holds);
}

fn signal(child: &Child, signal: i32) {
    // SAFETY: the call involves no memory.
    unsafe { libc::kill(child.id().cast_signed(), signal) };
}

/// Sets what a signal does to the program that a command starts.
fn act_on(command: &mut Command, signal: i32, action: libc::sighandler_t) {
    // SAFETY: signal is safe to call between fork and exec.
    unsafe {
        command.pre_exec(move || {
            libc::signal(signal, action);
            Ok(())
        })
    };
}

#[test]
fn what_is_made_of_a_trace_is_for_those_alone_who_may_read_the_trace() {
    let folder = Folder::new().with_trace(&one_wait());
    for mode in [0o600, 0o640] {
        fs::set_permissions(folder.path("trace.parquet"), fs::Permissions::from_mode(mode)).unwrap();
        for (args, made) in [
            (&["html", "-f", "-o", "a.html"][..], "a.html"),
            (&["plot", "-f", "-o", "a.svg"], "a.svg"),
            (&["report", "--format", "csv", "-f", "-o", "a.csv"], "a.csv"),
            (&["export", "--format", "csv", "-f", "-o", "b.csv"], "b.csv"),
        ] {
            folder.klock(args).succeeds();
            let of = fs::metadata(folder.path(made)).unwrap().permissions().mode();
            assert_eq!(of & 0o777 & !mode, 0, "{made} has {of:o}, the trace {mode:o}");
        }
    }
}

#[test]
fn a_pipe_is_written_into_and_stays_a_pipe() {
    let folder = Folder::new().with_trace(&one_wait());
    let expected = folder.klock(&CSV).succeeds().to_owned();
    let pipe = folder.path("pipe");
    make_fifo(&pipe);
    for force in [&[][..], &["-f"]] {
        let reader = {
            let pipe = pipe.clone();
            thread::spawn(move || fs::read_to_string(pipe).unwrap())
        };
        folder.klock(&[&CSV[..], &["-o", "pipe"], force].concat()).succeeds();
        assert_eq!(reader.join().unwrap(), expected);
        assert!(fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());
    }
}

#[test]
fn a_socket_is_written_into() {
    let folder = Folder::new().with_trace(&one_wait());
    let expected = folder.klock(&CSV).succeeds().to_owned();
    let listener = UnixListener::bind(folder.path("socket")).unwrap();
    let reader = thread::spawn(move || {
        let mut text = String::new();
        listener.accept().unwrap().0.read_to_string(&mut text).unwrap();
        text
    });
    folder.klock(&[&CSV[..], &["-f", "-o", "socket"]].concat()).succeeds();
    assert_eq!(reader.join().unwrap(), expected);
    assert!(fs::symlink_metadata(folder.path("socket")).unwrap().file_type().is_socket());
}

#[test]
fn the_standard_output_can_be_given_by_its_path() {
    let folder = Folder::new().with_trace(&one_wait());
    let expected = folder.klock(&CSV).succeeds().to_owned();
    for path in ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
        let export = [&CSV[..], &["-o", path]].concat();
        assert_eq!(folder.klock(&export).succeeds(), expected, "{path}");
        let file = fs::File::create(folder.path("out")).unwrap();
        assert!(klock(&folder).args(&export).stdout(file).status().unwrap().success());
        assert_eq!(fs::read_to_string(folder.path("out")).unwrap(), expected, "{path}");
    }
    let script = format!("{} {} -o >(cat > copied)", env!("CARGO_BIN_EXE_klock"), CSV.join(" "));
    let shell = Command::new("bash").args(["-c", &script]).current_dir(folder.path("")).status();
    assert!(shell.unwrap().success());
    soon("the copy", || fs::read_to_string(folder.path("copied")).is_ok_and(|text| text == expected));
}

#[test]
fn a_full_device_is_a_disk_failure_that_names_it() {
    let folder = Folder::new().with_trace(&one_wait());
    folder.klock(&[&CSV[..], &["-o", "/dev/full"]].concat()).fails(5, &["/dev/full", "no space left"]);
    let plot = ["plot", "--lock", "cache_lock", "-o", "/dev/full"];
    folder.klock(&plot).fails(5, &["/dev/full", "no space left"]);
}

#[test]
fn a_symbolic_link_is_refused_and_its_target_kept() {
    let folder = Folder::new().with_trace(&one_wait());
    fs::write(folder.path("precious"), "precious").unwrap();
    for (name, target) in [("a", "precious"), ("b", "nothing"), ("c", "/dev/null")] {
        let (picture, trace) = (&format!("{name}.svg"), &format!("{name}.parquet"));
        [picture, trace].into_iter().for_each(|link| symlink(target, folder.path(link)).unwrap());
        for force in [&[][..], &["-f"]] {
            let plot = [&["plot", "--lock", "cache_lock", "-o", picture][..], force].concat();
            folder.klock(&plot).fails(2, &[picture, "symbolic link"]);
            let record = [&["record", "-o", trace][..], force, &["--", "true"]].concat();
            folder.klock(&record).fails(2, &[trace, "symbolic link"]);
        }
    }
    assert_eq!(fs::read_to_string(folder.path("precious")).unwrap(), "precious");
    let links = ["a.parquet", "a.svg", "b.parquet", "b.svg", "c.parquet", "c.svg"];
    assert_eq!(other_files(&folder), [&links[..], &["precious"]].concat());
}

#[test]
fn a_link_in_place_of_any_file_of_a_trace_is_refused_and_its_target_kept() {
    for name in ["t.parquet.journal", "t.stacks.parquet", "t.locks.parquet", "t.tasks.parquet"] {
        let folder = Folder::new();
        fs::write(folder.path("precious"), "precious").unwrap();
        symlink("precious", folder.path(name)).unwrap();
        folder.klock(&["record", "-f", "-o", "t.parquet", "--", "true"]).fails(2, &[name, "symbolic link"]);
        assert_eq!(fs::read_to_string(folder.path("precious")).unwrap(), "precious");
        assert!(!folder.path("t.parquet").exists());
    }
}

#[test]
fn reports_follow_the_umask_and_a_trace_the_mode_option() {
    let folder = Folder::new();
    let shell = |words: &str| {
        let script = format!("umask 026; {} {words}", env!("CARGO_BIN_EXE_klock"));
        let output = Command::new("sh").args(["-c", &script]).current_dir(folder.path("")).output().unwrap();
        Outcome::from(output).succeeds().to_owned()
    };
    let mode = |name: &str| fs::metadata(folder.path(name)).unwrap().permissions().mode() & 0o777;
    shell("record --mode 604 -o open.parquet -- true");
    shell("record -o default.parquet -- true");
    let default = if xtask::host::is_root() { 0o600 } else { 0o640 };
    for table in ["", ".stacks", ".locks", ".tasks"] {
        assert_eq!(mode(&format!("open{table}.parquet")), 0o604);
        assert_eq!(mode(&format!("default{table}.parquet")), default);
    }
    write_trace(&folder.path("trace.parquet"), "ab", &one_wait());
    fs::set_permissions(folder.path("trace.parquet"), fs::Permissions::from_mode(0o644)).unwrap();
    shell("plot --lock cache_lock");
    shell("export --format csv -o events.csv");
    assert_eq!((mode("lock.svg"), mode("events.csv")), (0o640, 0o640));
    for bad in ["1777", "rw", "9"] {
        let outcome = folder.klock(&["record", "--mode", bad, "--", "true"]);
        assert!(outcome.code == Some(2) && outcome.stderr.contains("octal"), "{}", outcome.stderr);
    }
}

/// Returns a folder with a trace of several waits; 30,000 take a while to read. Their times follow no rule
/// that a file could be too small for.
fn long_trace(waits: i64) -> Folder {
    let events: Vec<Event> = (0..waits)
        .flat_map(|round| {
            let start_ns = round * 4_000_000 + round * round % 999_983;
            one_wait().into_iter().map(move |event| Event { ts_ns: event.ts_ns + start_ns, ..event })
        })
        .collect();
    Folder::new().with_trace(&events)
}

/// Ends a command by a signal when it has begun to write `out`, and returns its folder. A command that ends
/// before this test sees its file has more to do the next time.
fn interrupted(command: &[&str], number: i32) -> Folder {
    let mut waits = 15_000;
    until("a signal before the end", || {
        waits = (2 * waits).min(1 << 20);
        let folder = long_trace(waits);
        let mut klock = klock(&folder);
        // A shell without a terminal lets what it starts in the background ignore SIGINT.
        act_on(&mut klock, number, libc::SIG_DFL);
        let mut child = klock.args(command).stderr(Stdio::piped()).spawn().unwrap();
        let mut has_ended = false;
        soon("the temporary file", || {
            has_ended = child.try_wait().unwrap().is_some();
            has_ended || other_files(&folder).iter().any(|name| name.ends_with(".tmp"))
        });
        if !has_ended {
            signal(&child, number);
        }
        let Output { status, stderr, .. } = child.wait_with_output().unwrap();
        let is_whole = folder.path("out").exists();
        let said = String::from_utf8_lossy(&stderr);
        assert!(
            status.signal() == Some(number) || is_whole && status.success(),
            "{command:?}: {status}: {said}"
        );
        (!is_whole).then_some(folder)
    })
}

#[test]
fn a_signal_leaves_no_temporary_file() {
    let commands: [&[&str]; 3] = [
        &["export", "--format", "csv", "-o", "out"],
        &["analyze", "events", "-o", "out"],
        &["plot", "--lock", "cache_lock", "-o", "out"],
    ];
    for (command, number) in commands.into_iter().zip([libc::SIGINT, libc::SIGTERM, libc::SIGHUP]) {
        assert_eq!(other_files(&interrupted(command, number)), [""; 0], "{command:?}");
    }
}

#[test]
fn the_next_output_removes_the_temporary_file_of_a_klock_that_was_killed() {
    let args = ["export", "--format", "csv", "-o", "out"];
    let folder = interrupted(&args, libc::SIGKILL);
    let left = other_files(&folder);
    assert!(left.len() == 1 && left[0].ends_with(".tmp"), "{left:?}");
    folder.klock(&args).succeeds();
    assert_eq!(other_files(&folder), ["out"]);
}

#[test]
fn a_hang_up_that_is_ignored_does_not_end_an_export() {
    let folder = long_trace(30_000);
    let mut command = klock(&folder);
    command.args(["export", "--format", "csv", "-o", "out"]);
    act_on(&mut command, libc::SIGHUP, libc::SIG_IGN);
    let mut child = command.spawn().unwrap();
    soon("the temporary file", || !other_files(&folder).is_empty());
    signal(&child, libc::SIGHUP);
    assert!(child.wait().unwrap().success());
    assert_eq!(other_files(&folder), ["out"]);
}

#[test]
fn a_failed_output_leaves_no_file() {
    let folder = long_trace(2_000);
    let mut command = klock(&folder);
    command.args(["export", "--format", "csv", "-o", "out"]);
    limit_files(&mut command, 64 * 1024);
    Outcome::from(command.output().unwrap()).fails(5, &["out", "limit on the size of files", "ulimit -f"]);
    assert_eq!(other_files(&folder), [""; 0]);
}

/// Limits the size of the files that the program can write.
fn limit_files(command: &mut Command, bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: setrlimit is safe to call between fork and exec; `limit` is a copy.
    unsafe {
        command.pre_exec(move || match libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        })
    };
}

/// Starts to record a program that sleeps, and waits until the trace has a first checkpoint.
fn recorder(folder: &Folder, words: &[&str]) -> Child {
    let mut command = klock(folder);
    command.args(["record", "-q"]).args(words).args(["--", "sleep", "600"]);
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    soon("a checkpoint", || {
        fs::metadata(folder.path("trace.parquet.journal")).is_ok_and(|journal| journal.len() > 8)
    });
    child
}

fn end(child: Child) -> Outcome {
    Outcome::from(child.wait_with_output().unwrap())
}

#[test]
fn a_second_recorder_of_the_same_output_is_refused() {
    let folder = Folder::new();
    let first = recorder(&folder, &[]);
    let busy = ["trace.parquet", "another klock is recording into it"];
    folder.klock(&["record", "-f", "--", "true"]).fails(2, &busy);
    folder.klock(&["recover"]).fails(2, &busy);
    folder.klock(&["record", "--", "true"]).fails(2, &busy);
    signal(&first, libc::SIGTERM);
    let first = end(first);
    assert_eq!(first.stderr, "");
    assert!(Trace::open(&folder.path("trace.parquet")).unwrap().info().complete);
    folder.klock(&["record", "-q", "-f", "--", "true"]).succeeds();
}

#[test]
fn a_hang_up_ends_a_recording_with_a_whole_trace() {
    let folder = Folder::new();
    let child = recorder(&folder, &[]);
    signal(&child, libc::SIGHUP);
    assert_eq!(end(child).stderr, "");
    assert!(Trace::open(&folder.path("trace.parquet")).unwrap().info().complete);
    assert!(!folder.path("trace.parquet.journal").exists());
}

#[test]
fn a_folder_that_is_removed_during_a_recording_is_reported() {
    let folder = Folder::new();
    fs::create_dir(folder.path("gone")).unwrap();
    let mut command = klock(&folder);
    // klock has created all files when it starts the command, which ends once they are removed.
    let script = "touch started; while [ -e started ]; do sleep 0.1; done";
    command.args(["record", "-q", "-o", "gone/trace.parquet", "--", "sh", "-c", script]);
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    soon("the command", || folder.path("started").exists());
    soon("the end of the folder", || fs::remove_dir_all(folder.path("gone")).is_ok());
    fs::remove_file(folder.path("started")).unwrap();
    end(child).fails(5, &["gone/trace.parquet", "the file was removed"]);
}

#[test]
fn a_missing_folder_is_named_with_the_next_step() {
    let folder = Folder::new();
    let record = ["record", "-o", "none/t.parquet", "--", "true"];
    folder.klock(&record).fails(2, &["none/t.parquet", "its directory does not exist", "create it"]);
    fs::create_dir(folder.path("gone")).unwrap();
    let script = format!("cd gone; rmdir ../gone; exec {} record -- true", env!("CARGO_BIN_EXE_klock"));
    let shell = Command::new("sh").args(["-c", &script]).current_dir(folder.path("")).output().unwrap();
    Outcome::from(shell).fails(2, &["trace.parquet", "its directory was removed"]);
}

#[test]
fn names_that_could_drive_a_terminal_are_escaped_on_stderr() {
    let folder = Folder::new();
    let name = "\u{1b}[2J\u{9b}31m.parquet";
    let outcome = folder.klock(&["info", name]);
    assert!(outcome.stderr.contains("\\u{1b}[2J\\u{9b}31m.parquet"), "{:?}", outcome.stderr);
    assert!(!outcome.stderr.contains(['\u{1b}', '\u{9b}']));
    // Two locks of one name, which is quoted in the refusal to choose one of them.
    let mut side = side_rows();
    side.locks[0].name = Some("a\u{1b}]0;title\u{7}b".to_owned());
    let second =
        trace_format::LockRow { id: trace_format::LockId(1), address: Some(7), ..side.locks[0].clone() };
    side.locks.push(second);
    let path = folder.path("trace.parquet");
    let mut writer = trace_format::TraceWriter::create(&path, false).unwrap();
    for event in one_wait() {
        writer.push(&event).unwrap();
    }
    writer.finish(&crate::support::run_info("ab"), &side.stacks, &side.locks, &side.tasks).unwrap();
    let outcome = folder.klock(&["plot", "--lock", "a\u{1b}]0;title\u{7}b"]);
    assert!(outcome.code != Some(0) && !outcome.stderr.contains(['\u{1b}', '\u{7}']), "{:?}", outcome.stderr);
}

#[test]
fn long_names_need_no_longer_temporary_names() {
    let folder = Folder::new().with_trace(&one_wait());
    let name = "n".repeat(255);
    folder.klock(&[&CSV[..], &["-o", &name]].concat()).succeeds();
    assert!(folder.path(&name).exists());
    let longer = "n".repeat(256);
    folder.klock(&[&CSV[..], &["-o", &longer]].concat()).fails(2, &["too long"]);
}
