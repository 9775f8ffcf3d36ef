//! A folder in which an ordinary user records programs that record themselves: `klock record` as nobody where the tests run as
//! root, its trace read back whole, and what it left in its folder for temporary files. Nothing outside the folder is touched.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;
use trace_format::{Event, LockRow, Stack, TaskRow, Trace};

use super::{Ended, Running, fixture};

/// Nobody's user and group id on Debian and most others.
const NOBODY: u32 = 65534;

/// A folder in which an ordinary user may write, with klock in it, and a place for its temporary files.
#[derive(Debug)]
pub struct Place {
    folder: TempDir,
    klock: PathBuf,
}

/// A trace, read back.
#[derive(Debug)]
pub struct Recorded {
    pub trace: Trace,
    pub events: Vec<Event>,
    pub locks: Vec<LockRow>,
    pub tasks: Vec<TaskRow>,
    pub stacks: Vec<Stack>,
}

impl Place {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let place = Self { klock: folder.path().join("klock"), folder };
        open_to_all(place.folder.path());
        fs::copy(env!("CARGO_BIN_EXE_klock"), &place.klock).expect("klock is built");
        place.directory("tmp");
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A directory in the folder, in which anybody may write.
    pub fn directory(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir(&path).expect("a directory");
        open_to_all(&path);
        path
    }

    /// The fixture where anybody can run it.
    pub fn program(&self, name: &str) -> PathBuf {
        self.take_in(&fixture(name))
    }

    /// A copy of this file where anybody can run it.
    pub fn take_in(&self, file: &Path) -> PathBuf {
        let copy = self.path(&file.file_name().expect("a file").to_string_lossy());
        if !copy.exists() {
            fs::copy(file, &copy).expect("a copy");
        }
        copy
    }

    /// A command in the folder, as nobody where that is possible.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        command.env("TMPDIR", self.path("tmp")).env("HOME", self.folder.path());
        // SAFETY: the call has no preconditions.
        if unsafe { libc::geteuid() } == 0 {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    /// `klock record`, as nobody where that is possible.
    pub fn record(&self, options: &[&str], program: &Path, arguments: &[&str]) -> Command {
        let mut command = self.command(&self.klock);
        command.args(["record", "-f", "-o"]).arg(self.path("t.parquet")).args(options).arg("--");
        command.arg(program).args(arguments);
        command
    }

    /// Records a fixture to its end, which is a good one, and nothing is left.
    #[track_caller]
    pub fn run_fixture(&self, options: &[&str], name: &str, arguments: &[&str]) -> (Recorded, Ended) {
        let program = self.program(name);
        self.run(&mut self.record(options, &program, arguments))
    }

    /// Runs a recorder to its end, which is a good one, and nothing is left.
    #[track_caller]
    pub fn run(&self, recorder: &mut Command) -> (Recorded, Ended) {
        let ended = Running::start(recorder).end_within(Duration::from_secs(120));
        assert!(ended.status.success(), "{}", ended.stderr);
        self.assert_nothing_is_left();
        (self.recorded(), ended)
    }

    #[track_caller]
    pub fn recorded(&self) -> Recorded {
        Recorded::read(&self.path("t.parquet"))
    }

    pub fn left(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path("tmp")).expect("a directory");
        entries.map(|entry| entry.expect("an entry").path()).collect()
    }

    /// No temporary file, and soon no process that works in the folder; a socket ends with its process.
    #[track_caller]
    pub fn assert_nothing_is_left(&self) {
        assert_eq!(self.left(), Vec::<PathBuf>::new());
        let begun = Instant::now();
        while let processes @ [_, ..] = &self.processes()[..] {
            assert!(begun.elapsed() < Duration::from_secs(5), "{processes:?} are left");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The processes that work in the folder, as far as we may see them.
    fn processes(&self) -> Vec<PathBuf> {
        let all = fs::read_dir("/proc").expect("a directory").filter_map(|entry| Some(entry.ok()?.path()));
        let here = |process: &PathBuf| {
            fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd.starts_with(self.folder.path()))
        };
        all.filter(here).collect()
    }
}

impl Recorded {
    /// A trace that is complete.
    #[track_caller]
    pub fn read(path: &Path) -> Self {
        let trace = Trace::open(path).expect("the recorder left a trace");
        let mut events = Vec::new();
        for batch in trace.events().expect("events") {
            events.extend(batch.expect("a batch").iter());
        }
        assert!(trace.info().complete, "the trace is not complete");
        let (locks, tasks) = (trace.locks().expect("locks"), trace.tasks().expect("tasks"));
        let stacks = trace.stacks().expect("stacks");
        Self { trace, events, locks, tasks, stacks }
    }

    /// The lock that the event is about.
    pub fn lock(&self, event: &Event) -> Option<&LockRow> {
        self.locks.get(usize::try_from(event.lock?.0).ok()?)
    }
}

fn open_to_all(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("permissions");
}
