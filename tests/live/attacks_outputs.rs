//! Attacks on the files that klock writes as root, by an unprivileged user who owns the directory or plants
//! files in it.
//!
//! needs: root, gcc

use std::{
    fs,
    os::unix::{
        fs::{FileTypeExt as _, MetadataExt as _, chown, symlink},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use tempfile::TempDir;
use trace_format::{Event, EventKind, RunInfo, Trace, TraceWriter};

use crate::support::{self, ATTACKER, Ended, Running, as_root, fixture, names, refused, run, set_mode, soon};

/// Bound on anything that must not hang.
const LIMIT: Duration = Duration::from_secs(300);

/// A directory of root that everybody may enter, with a file of root that nobody may change.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::Builder::new().prefix("klock-attack-").tempdir_in("/tmp").unwrap());
        set_mode(place.0.path(), 0o755);
        fs::write(place.path("victim"), "precious").unwrap();
        // Absent, in a directory that only root may write: a followed link would create it.
        fs::create_dir(place.path("private")).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Creates a directory that belongs to the attacker.
    fn hostile(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir(&path).unwrap();
        chown(&path, Some(ATTACKER), Some(ATTACKER)).unwrap();
        path
    }

    /// Creates a directory like /tmp.
    fn sticky(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir(&path).unwrap();
        set_mode(&path, 0o1777);
        path
    }

    #[track_caller]
    fn is_unharmed(&self) {
        assert_eq!(fs::read_to_string(self.path("victim")).unwrap(), "precious");
        assert_eq!(fs::metadata(self.path("victim")).unwrap().uid(), 0);
        assert_eq!(names(&self.path("private")), [""; 0]);
    }
}

/// Runs a shell script as the attacker.
fn attack(directory: &Path, script: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]).current_dir(directory).uid(ATTACKER).gid(ATTACKER).stdin(Stdio::null());
    command
}

/// An attack in the background, again and again.
struct Attack {
    shell: Child,
    end: PathBuf,
}

impl Attack {
    fn start(place: &Place, directory: &Path, script: &str) -> Self {
        let end = place.path("end of the attack");
        let mut shell = attack(directory, &format!("while [ ! -e '{}' ]; do {script}; done", end.display()));
        let shell = shell.stdout(Stdio::null()).stderr(Stdio::null()).process_group(0).spawn().unwrap();
        Self { shell, end }
    }

    /// Ends it after a whole round: a link of a command that is killed could appear after the attack.
    fn end(mut self) {
        fs::write(&self.end, "").unwrap();
        self.shell.wait().unwrap();
    }
}

impl Drop for Attack {
    fn drop(&mut self) {
        // Only if the test has failed.
        if matches!(self.shell.try_wait(), Ok(None)) {
            support::kill(-self.shell.id().cast_signed());
            let _ = self.shell.wait();
        }
    }
}

/// The words of a recording of pthread calls: one of kernel locks has the same files, and starts later.
fn record<'a>(options: &[&'a str], output: &'a Path, command: &[&'a str]) -> Vec<&'a str> {
    let record = ["record", "-q", "--locks", "pthread", "-o", output.to_str().unwrap()];
    [&record[..], options, &["--"], command].concat()
}

/// A recording of a command that waits for a file.
struct Recording {
    recorder: Running,
    go: PathBuf,
}

impl Recording {
    /// Starts it, and waits until klock has made its last file.
    fn start(place: &Place, options: &[&str], output: &Path) -> Self {
        let go = place.path("go");
        let waits = ["sh", "-c", "while [ ! -e \"$0\" ]; do sleep 0.05; done", go.to_str().unwrap()];
        let recorder = Running::start(&mut as_root(&record(options, output, &waits)));
        soon(LIMIT, "the table of tasks", || output.with_extension("tasks.parquet").exists());
        Self { recorder, go }
    }

    /// Lets the command end.
    #[track_caller]
    fn end(self) -> Ended {
        fs::write(&self.go, "").unwrap();
        self.recorder.end_within(LIMIT)
    }
}

/// Writes a finished trace into a safe place.
fn small_trace(path: &Path) {
    let mut writer = TraceWriter::create(path, false).unwrap();
    for ts in 0..5_000 {
        writer.push(&Event::new(ts, EventKind::Lost, 0)).unwrap();
    }
    writer.finish(&RunInfo { complete: true, ..RunInfo::default() }, &[], &[], &[]).unwrap();
}

/// Returns the words of an export of `trace` to `output`.
fn export<'a>(trace: &'a Path, output: &'a Path) -> Vec<&'a str> {
    vec!["export", trace.to_str().unwrap(), "--format", "csv", "-o", output.to_str().unwrap()]
}

/// The names that the files of a recording or an export could have.
const NAMES: [&str; 8] = [
    "t.parquet",
    "t.parquet.journal",
    "t.parquet.partial",
    "t.stacks.parquet",
    "t.locks.parquet",
    "t.tasks.parquet",
    "t.csv",
    "t.csv.partial",
];

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn root_follows_no_link_in_a_directory_of_another_user() {
    for target in ["victim", "private/new"] {
        for planted in NAMES {
            let place = Place::new();
            let directory = place.hostile("home");
            let trace = place.path("safe.parquet");
            small_trace(&trace);
            let target = place.path(target);
            let link = format!("ln -s {} {planted}", target.display());
            assert!(attack(&directory, &link).status().unwrap().success());
            let output = directory.join("t.parquet");
            for force in [&[][..], &["-f"]] {
                let ended = run(&mut as_root(&record(force, &output, &["true"])));
                if force.is_empty() {
                    refused(&ended, 2, &["t.parquet", "user 64201 can rename files", "-f"]);
                    assert_eq!(names(&directory), [planted]);
                }
                place.is_unharmed();
                let csv = directory.join("t.csv");
                run(&mut as_root(&[&export(&trace, &csv)[..], force].concat()));
                place.is_unharmed();
            }
        }
    }
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn root_follows_no_link_that_is_planted_during_a_recording() {
    let place = Place::new();
    let directory = place.hostile("home");
    let victim = place.path("victim");
    let output = directory.join("t.parquet");
    let names: Vec<&str> = NAMES.into_iter().filter(|name| *name != "t.parquet").collect();
    let plant = format!("for n in {}; do rm -f $n; ln -s {} $n; done", names.join(" "), victim.display());
    let attacker = Attack::start(&place, &directory, &plant);
    for _ in 0..5 {
        run(&mut as_root(&record(&["-f"], &output, &["sleep", "0.1"])));
        place.is_unharmed();
    }
    // Once with the links planted for sure while klock records.
    attacker.end();
    assert!(attack(&directory, "rm -f *").status().unwrap().success());
    let recording = Recording::start(&place, &["-f"], &output);
    assert!(attack(&directory, &plant).status().unwrap().success());
    let ended = recording.end();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    place.is_unharmed();
    assert!(fs::symlink_metadata(directory.join("t.parquet.journal")).unwrap().is_symlink(), "not klock's");
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn root_records_into_a_directory_like_tmp_and_another_user_can_only_refuse_names() {
    let place = Place::new();
    let directory = place.sticky("tmp");
    let victim = place.path("victim");
    let output = directory.join("t.parquet");
    let script = format!(
        "for n in {}; do mv -f $n mine.$n; rm -f $n; ln -s {} $n; ln -s {} .klock-1.tmp; done",
        NAMES[1..6].join(" "),
        victim.display(),
        victim.display()
    );
    let recording = Recording::start(&place, &[], &output);
    let attacker = Attack::start(&place, &directory, &script);
    soon(LIMIT, "a link of the attacker", || directory.join(".klock-1.tmp").is_symlink());
    let ended = recording.end();
    attacker.end();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    place.is_unharmed();
    let trace = Trace::open(&output).unwrap();
    trace.locks().unwrap();
    for table in ["t.parquet", "t.stacks.parquet", "t.locks.parquet", "t.tasks.parquet"] {
        let metadata = fs::symlink_metadata(directory.join(table)).unwrap();
        assert!(metadata.is_file() && metadata.uid() == 0 && metadata.mode() & 0o777 == 0o600, "{table}");
    }
    // Planted before: the name is refused, with -f as well.
    for planted in ["u.parquet", "u.parquet.journal", "u.tasks.parquet"] {
        let link = format!("ln -s {} {planted}", victim.display());
        assert!(attack(&directory, &link).status().unwrap().success());
        let output = directory.join("u.parquet");
        let ended = run(&mut as_root(&record(&["-f"], &output, &["true"])));
        refused(&ended, 2, &[planted, "symbolic link"]);
        fs::remove_file(directory.join(planted)).unwrap();
        place.is_unharmed();
    }
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn root_sends_no_trace_through_a_pipe_or_link_of_another_user() {
    let place = Place::new();
    let directory = place.sticky("tmp");
    let trace = place.path("safe.parquet");
    small_trace(&trace);
    assert!(attack(&directory, "mkfifo t.csv t.locks.parquet").status().unwrap().success());
    refused(&run(&mut as_root(&export(&trace, &directory.join("t.csv")))), 2, &["t.csv", "user 64201"]);
    // A pipe in place of a side table must not make klock wait for a reader, either.
    let output = directory.join("t.parquet");
    for force in [&[][..], &["-f"]] {
        let mut recorder = Running::start(&mut as_root(&record(force, &output, &["true"])));
        assert!(recorder.ends_within(LIMIT), "waits for a reader of a side table");
    }
    assert!(fs::symlink_metadata(directory.join("t.locks.parquet")).unwrap().file_type().is_fifo());
    // A link to a directory of root, in a directory like /tmp, and a directory of the attacker below.
    let link = format!("ln -s {} out; mkdir own", place.path("private").display());
    assert!(attack(&directory, &link).status().unwrap().success());
    for name in ["out/t.csv", "own/t.csv"] {
        refused(&run(&mut as_root(&export(&trace, &directory.join(name)))), 2, &[name, "can rename files"]);
    }
    place.is_unharmed();
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn root_refuses_each_kind_of_directory_that_others_can_write() {
    let place = Place::new();
    let trace = place.path("safe.parquet");
    small_trace(&trace);
    for (name, owner, group, mode, trusted) in [
        ("own", 0, 0, 0o755, true),
        ("group-root", 0, 0, 0o775, true),
        ("group-other", 0, ATTACKER, 0o775, false),
        ("world", 0, 0, 0o777, false),
        ("sticky", 0, ATTACKER, 0o1777, true),
        ("other", ATTACKER, 0, 0o700, false),
        ("other-sticky", ATTACKER, 0, 0o1777, false),
    ] {
        let directory = place.path(name);
        fs::create_dir(&directory).unwrap();
        chown(&directory, Some(owner), Some(group)).unwrap();
        set_mode(&directory, mode);
        // A safe directory below an unsafe one is unsafe.
        let inner = directory.join("inner");
        fs::create_dir(&inner).unwrap();
        for directory in [&directory, &inner] {
            let output = directory.join("t.csv");
            let ended = run(&mut as_root(&export(&trace, &output)));
            assert_eq!(ended.status.code(), Some(if trusted { 0 } else { 2 }), "{name}: {}", ended.stderr);
            assert_eq!(output.exists(), trusted, "{name}");
            if !trusted {
                assert!(ended.stderr.contains("can rename files") && ended.stderr.contains("-f"));
                let sudo = |uid: u32| {
                    let mut command = as_root(&export(&trace, &output));
                    command.env("SUDO_UID", uid.to_string()).env("SUDO_GID", uid.to_string());
                    run(&mut command).status.code()
                };
                assert_eq!(sudo(ATTACKER + 1), Some(2), "{name}");
                assert_eq!(sudo(ATTACKER), Some(if name == "world" { 2 } else { 0 }), "{name}");
                let _ = fs::remove_file(&output);
                let forced = [&export(&trace, &output)[..], &["-f"]].concat();
                assert_eq!(run(&mut as_root(&forced)).status.code(), Some(0), "{name}");
            }
        }
    }
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn recovery_and_demo_follow_no_link_either() {
    let program = fixture("steady").display().to_string();
    for planted in ["t.stacks.parquet", "t.locks.parquet", "t.tasks.parquet"] {
        let place = Place::new();
        let directory = place.hostile("home");
        let output = directory.join("t.parquet");
        let mut recorder = Running::start(&mut as_root(&record(&["-f"], &output, &[&program])));
        let pid = recorder.line_after("running ").parse().unwrap();
        soon(LIMIT, "a checkpoint", || {
            fs::metadata(directory.join("t.parquet.journal")).is_ok_and(|journal| journal.len() > 8)
        });
        recorder.child.kill().unwrap();
        recorder.child.wait().unwrap();
        support::kill(pid);
        let plant = format!("rm -f {planted}; ln -s {} {planted}", place.path("victim").display());
        assert!(attack(&directory, &plant).status().unwrap().success());
        let output = output.to_str().unwrap();
        refused(&run(&mut as_root(&["recover", output])), 2, &["t.parquet", "user 64201 can rename files"]);
        let recovered = run(&mut as_root(&["recover", "-f", output]));
        // A recorder that was killed before its first events leaves nothing to recover.
        assert!(
            recovered.status.success() || recovered.stderr.contains("cannot recover"),
            "{}",
            recovered.stderr
        );
        place.is_unharmed();
    }
    let place = Place::new();
    let directory = place.hostile("home");
    for name in ["demo.html", "demo.parquet.journal"] {
        symlink(place.path("victim"), directory.join(name)).unwrap();
        let demo = ["demo", "-o", directory.to_str().unwrap()];
        refused(&run(&mut as_root(&demo)), 2, &["can rename files"]);
        run(&mut as_root(&[&demo[..], &["-f"]].concat()));
        place.is_unharmed();
        for file in names(&directory) {
            fs::remove_file(directory.join(file)).unwrap();
        }
    }
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn devices_and_pipes_are_written_into_and_never_replaced() {
    let place = Place::new();
    let trace = place.path("safe.parquet");
    small_trace(&trace);
    // Copies of /dev/null and /dev/full: a failure of this test must not harm the machine.
    for (name, minor) in [("null", "3"), ("full", "7")] {
        let device = place.path(name);
        assert!(Command::new("mknod").arg(&device).args(["c", "1", minor]).status().unwrap().success());
        let code = if name == "null" { 0 } else { 5 };
        for force in [&[][..], &["-f"]] {
            let ended = run(&mut as_root(&[&export(&trace, &device)[..], force].concat()));
            assert_eq!(ended.status.code(), Some(code), "{}", ended.stderr);
            let record = [&["record", "-q", "-o", device.to_str().unwrap()][..], force, &["--", "true"]];
            let ended = run(&mut as_root(&record.concat()));
            assert_eq!(ended.status.code(), Some(code), "{}", ended.stderr);
            assert!(fs::symlink_metadata(&device).unwrap().file_type().is_char_device());
        }
    }
    assert_eq!(
        names(place.0.path()).iter().filter(|name| name.contains("null")).count(),
        1,
        "no side tables"
    );
}
