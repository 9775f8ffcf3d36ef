//! A folder in which an ordinary user records programs: `klock record` runs as nobody if the tests run as
//! root, its trace is read back, and its temporary files are checked. Nothing outside the folder is touched.

use std::{
    ffi::OsStr,
    fs,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;
use trace_format::{Event, LockRow, Stack, TaskRow, Trace};
use xtask::host::{NOBODY, of_nobody};

use super::{Ended, Running, events, fixture, set_mode};

/// A folder in which an ordinary user may write, with klock and a directory for its temporary files.
#[derive(Debug)]
pub struct Place {
    folder: TempDir,
    /// The home of nobody; `None` for the user's own.
    home: Option<TempDir>,
    pub klock: PathBuf,
}

/// The users to record as, by whether they are root: an ordinary one, and root if the tests run as root.
pub fn users() -> &'static [bool] {
    if xtask::host::is_root() { &[false, true] } else { &[false] }
}

/// Returns the name of the trace that [`Place::as_user`] records.
pub fn trace_of(is_root: bool) -> &'static str {
    if is_root { "root.parquet" } else { "t.parquet" }
}

/// The tables of a trace.
#[derive(Debug)]
pub struct Recorded {
    pub trace: Trace,
    pub events: Vec<Event>,
    pub locks: Vec<LockRow>,
    pub tasks: Vec<TaskRow>,
    pub stacks: Vec<Stack>,
}

impl Place {
    /// Creates the folder.
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let home = of_nobody().expect("root can write /var/lib");
        let place = Self { klock: folder.path().join("klock"), home, folder };
        set_mode(place.folder.path(), 0o777);
        fs::copy(env!("CARGO_BIN_EXE_klock"), &place.klock).expect("klock is built");
        place.directory("tmp");
        place
    }

    /// Returns the path of a file in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Makes a world-writable directory in the folder.
    pub fn directory(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir(&path).expect("a directory");
        set_mode(&path, 0o777);
        path
    }

    /// Copies a fixture program into the folder.
    pub fn program(&self, name: &str) -> PathBuf {
        self.copy(&fixture(name))
    }

    /// Copies a file into the folder.
    pub fn copy(&self, file: &Path) -> PathBuf {
        let copy = self.path(&file.file_name().expect("a file").to_string_lossy());
        if !copy.exists() {
            fs::copy(file, &copy).expect("a copy");
        }
        copy
    }

    /// Returns a command in the folder, as nobody if possible.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        command.env("TMPDIR", self.path("tmp"));
        if let Some(home) = &self.home {
            command.env("HOME", home.path()).env_remove("XDG_CACHE_HOME").env_remove("XDG_RUNTIME_DIR");
        }
        if xtask::host::is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    /// Returns `klock record`, as nobody if possible.
    pub fn record(&self, options: &[&str], program: &Path, arguments: &[&str]) -> Command {
        let mut command = self.command(&self.klock);
        command.args(["record", "-f", "-o"]).arg(self.path("t.parquet")).args(options).arg("--");
        command.arg(program).args(arguments);
        command
    }

    /// Returns a command of this user ([`users`]) in the folder, with klock before it if it is recorded.
    pub fn as_user(
        &self,
        is_root: bool,
        is_recorded: bool,
        program: &Path,
        arguments: &[impl AsRef<OsStr>],
    ) -> Command {
        let first = if is_recorded { &self.klock } else { program };
        let mut command = if is_root { Command::new(first) } else { self.command(first) };
        command.current_dir(self.folder.path());
        if is_recorded {
            command.args(["record", "-f", "--locks", "pthread", "-o"]).arg(self.path(trace_of(is_root)));
            command.arg("--").arg(program);
        }
        command.args(arguments);
        command
    }

    /// Records a fixture program, which must succeed and leave nothing behind.
    #[track_caller]
    pub fn run_fixture(&self, options: &[&str], name: &str, arguments: &[&str]) -> (Recorded, Ended) {
        let program = self.program(name);
        self.run(&mut self.record(options, &program, arguments))
    }

    /// Runs a recorder, which must succeed and leave nothing behind.
    #[track_caller]
    pub fn run(&self, recorder: &mut Command) -> (Recorded, Ended) {
        let ended = Running::start(recorder).end_within(Duration::from_secs(180));
        assert!(ended.status.success(), "{}", ended.stderr);
        self.assert_nothing_is_left();
        (self.recorded(), ended)
    }

    /// Reads the recorded trace.
    #[track_caller]
    pub fn recorded(&self) -> Recorded {
        Recorded::read(&self.path("t.parquet"))
    }

    /// Returns the temporary files that are left.
    pub fn left(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path("tmp")).expect("a directory");
        entries.map(|entry| entry.expect("an entry").path()).collect()
    }

    /// Checks that no temporary file is left and that all processes in the folder end soon; sockets end with
    /// them.
    #[track_caller]
    pub fn assert_nothing_is_left(&self) {
        assert_eq!(self.left(), Vec::<PathBuf>::new());
        let begun = Instant::now();
        while let processes @ [_, ..] = &self.processes()[..] {
            assert!(begun.elapsed() < Duration::from_secs(180), "{processes:?} are left");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns the visible processes that work in the folder.
    fn processes(&self) -> Vec<PathBuf> {
        let all = fs::read_dir("/proc").expect("a directory").filter_map(|entry| Some(entry.ok()?.path()));
        let here = |process: &PathBuf| {
            fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd.starts_with(self.folder.path()))
        };
        all.filter(here).collect()
    }
}

impl Recorded {
    /// Reads a complete trace.
    #[track_caller]
    pub fn read(path: &Path) -> Self {
        let trace = Trace::open(path).expect("the recorder left a trace");
        let events = events(&trace);
        assert!(trace.info().complete, "the trace is not complete");
        let (locks, tasks) = (trace.locks().expect("locks"), trace.tasks().expect("tasks"));
        let stacks = trace.stacks().expect("stacks");
        Self { trace, events, locks, tasks, stacks }
    }

    /// Returns the lock of an event.
    pub fn lock(&self, event: &Event) -> Option<&LockRow> {
        self.locks.get(usize::try_from(event.lock?.0).ok()?)
    }
}
