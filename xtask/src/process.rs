//! Runs other programs, for the chores and for the live tests: [`Run`] for a program that runs to its end while its
//! output is passed on, [`Running`] for one in the background. Every wait is bounded in time.

use std::{
    cell::RefCell,
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

/// The exit status of coreutils' `timeout` when the time is up.
const TIMED_OUT: i32 = 124;
/// Bound on starting to record and on the first output of a program. Generous, because the machine may be busy.
const START: Duration = Duration::from_secs(120);
/// Bound on the end of a recorder after Ctrl-C.
const FINISH: Duration = Duration::from_secs(120);

/// The result of a [`Run`].
#[derive(Debug)]
pub struct Outcome {
    /// Whether the exit status was 0.
    pub ok: bool,
    /// Whether the program was ended because its time was up.
    pub timed_out: bool,
    /// Standard output and standard error, in the order of arrival.
    pub lines: Vec<String>,
}

/// A program to run to its end, in the workspace, for at most ten minutes unless told otherwise.
#[derive(Debug)]
pub struct Run {
    words: Vec<OsString>,
    minutes: u32,
    environment: Vec<(String, OsString)>,
    directory: PathBuf,
}

impl Run {
    /// `program` with `arguments`.
    pub fn new(program: impl AsRef<OsStr>, arguments: &[&str]) -> Self {
        let words = vec![program.as_ref().to_owned()];
        Self { words, minutes: 10, environment: Vec::new(), directory: root() }.args(arguments)
    }

    /// Returns a run of the cargo that runs this chore.
    #[must_use]
    pub fn cargo(arguments: &[&str]) -> Self {
        Self::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()), arguments)
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.words.push(argument.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.words.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Sets the working directory.
    #[must_use]
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = directory.into();
        self
    }

    /// Sets the time limit.
    #[must_use]
    pub fn minutes(mut self, minutes: u32) -> Self {
        self.minutes = minutes;
        self
    }

    /// Returns the command as it would be typed, without the program's directory.
    #[must_use]
    pub fn words(&self) -> String {
        let name = Path::new(&self.words[0]).file_name().unwrap_or(&self.words[0]).to_string_lossy();
        let rest = self.words[1..].iter().map(|w| format!(" {}", w.to_string_lossy()));
        format!("{name}{}", rest.collect::<String>())
    }

    fn command(&self) -> Command {
        let mut command = Command::new("timeout");
        command.arg("--kill-after=20").arg(format!("{}m", self.minutes)).args(&self.words);
        command.current_dir(&self.directory).envs(self.environment.iter().map(|(k, v)| (k, v)));
        command.stdin(Stdio::null());
        command
    }

    /// Runs the program and passes its output on.
    ///
    /// # Errors
    /// If the program cannot be started. A bad exit status is not an error here.
    pub fn stream(&self) -> Result<Outcome> {
        say(&format!("$ {}", self.words()));
        let mut child = self
            .command()
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", self.words()))?;
        let lines = Arc::new(Mutex::new(Vec::new()));
        let out = child.stdout.take().map(|pipe| pass_on(pipe, Arc::clone(&lines)));
        let err = child.stderr.take().map(|pipe| pass_on(pipe, Arc::clone(&lines)));
        let status = child.wait().with_context(|| format!("cannot wait for {}", self.words()))?;
        for reader in [out, err].into_iter().flatten() {
            reader.join().ok();
        }
        let lines = std::mem::take(&mut *lines.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(Outcome { ok: status.success(), timed_out: status.code() == Some(TIMED_OUT), lines })
    }

    /// Runs the program and passes its output on.
    ///
    /// # Errors
    /// If the program fails or its time is up.
    pub fn must(&self) -> Result<Outcome> {
        let outcome = self.stream()?;
        if outcome.timed_out {
            bail!("{} did not end within {} minutes", self.words(), self.minutes);
        }
        if !outcome.ok {
            bail!("{} failed", self.words());
        }
        Ok(outcome)
    }

    /// Runs the program silently and returns its standard output.
    ///
    /// # Errors
    /// If the program fails; the error has its standard error.
    pub fn read(&self) -> Result<String> {
        let output = self.command().output().with_context(|| format!("cannot start {}", self.words()))?;
        if !output.status.success() {
            bail!("{} failed: {}", self.words(), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Returns the standard output while the standard error goes to ours, for programs that report progress there.
    ///
    /// # Errors
    /// If the program fails.
    pub fn read_with_progress(&self) -> Result<String> {
        say(&format!("$ {}", self.words()));
        let output = self.command().stderr(Stdio::inherit()).output();
        let output = output.with_context(|| format!("cannot start {}", self.words()))?;
        if !output.status.success() {
            bail!("{} failed", self.words());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

type Lines = Arc<Mutex<Vec<String>>>;

thread_local! {
    /// The kept output of this thread, unless it goes to standard output.
    static KEPT: RefCell<Option<Lines>> = const { RefCell::new(None) };
}

/// Runs `work` and returns what it would have printed by [`say`] and [`Run::stream`]: two jobs that run at the same
/// time must not mix their output.
pub(crate) fn keeping_output<T>(work: impl FnOnce() -> T) -> (T, Vec<String>) {
    let lines = Lines::default();
    KEPT.set(Some(Arc::clone(&lines)));
    let result = work();
    KEPT.set(None);
    let lines = std::mem::take(&mut *lines.lock().unwrap_or_else(PoisonError::into_inner));
    (result, lines)
}

/// Prints a line, or keeps it inside [`keeping_output`].
pub(crate) fn say(line: &str) {
    match KEPT.with_borrow(Clone::clone) {
        Some(kept) => kept.lock().unwrap_or_else(PoisonError::into_inner).push(line.to_owned()),
        None => println!("{line}"),
    }
}

fn pass_on(pipe: impl Read + Send + 'static, lines: Lines) -> thread::JoinHandle<()> {
    let kept = KEPT.with_borrow(Clone::clone);
    thread::spawn(move || {
        KEPT.set(kept);
        let mut reader = BufReader::new(pipe);
        let mut bytes = Vec::new();
        while reader.read_until(b'\n', &mut bytes).is_ok_and(|read| read > 0) {
            let line = String::from_utf8_lossy(&bytes).trim_end().to_owned();
            say(&line);
            lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            bytes.clear();
        }
    })
}

/// Returns the workspace's directory.
#[must_use]
pub fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_owned()
}

/// Returns the build directory.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |target| root().join(target))
}

/// Finds a program on the path.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(program)).find(|file| file.is_file())
}

/// Returns whether a program of this name is on the path.
#[must_use]
pub fn has(program: &str) -> bool {
    find(program).is_some()
}

/// A program in the background, with its output in files. Dropping it kills it, and its process group if it leads one.
#[derive(Debug)]
pub struct Running {
    /// The process.
    pub child: Child,
    words: String,
    output: TempDir,
}

/// The result of a [`Running`].
#[derive(Debug)]
pub struct Ended {
    /// The exit status.
    pub status: ExitStatus,
    /// Everything it printed to standard output.
    pub stdout: String,
    /// Everything it printed to standard error.
    pub stderr: String,
}

impl Running {
    /// Starts a command.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn start(command: &mut Command) -> Result<Self> {
        let output = tempfile::tempdir().context("cannot make a temporary directory")?;
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let words = words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ");
        let file =
            |name: &str| File::create(output.path().join(name)).context("cannot make a temporary file");
        let child = command.stdout(file("stdout")?).stderr(file("stderr")?).spawn();
        Ok(Self { child: child.with_context(|| format!("cannot start {words}"))?, words, output })
    }

    /// Returns the process ID.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal such as `libc::SIGINT`.
    ///
    /// # Errors
    /// If the process has already been waited for.
    pub fn signal(&self, signal: i32) -> Result<()> {
        // SAFETY: the call involves no memory, and the child has not been waited for, so that the ID is its own.
        let sent = unsafe { libc::kill(self.child.id().cast_signed(), signal) };
        if sent == 0 { Ok(()) } else { bail!("cannot signal {}: it has ended", self.words) }
    }

    /// Returns whether it ends by itself within this time.
    ///
    /// # Errors
    /// If the process cannot be waited for.
    pub fn ends_within(&mut self, limit: Duration) -> Result<bool> {
        let begin = Instant::now();
        while begin.elapsed() < limit {
            if self.child.try_wait()?.is_some() {
                return Ok(true);
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(false)
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// If it does not end in time.
    pub fn end_within(mut self, limit: Duration) -> Result<Ended> {
        let in_time = self.ends_within(limit)?;
        let (stdout, stderr) = (self.printed("stdout"), self.printed("stderr"));
        if !in_time {
            bail!("{} did not end within {limit:?}\n{stdout}\n{stderr}", self.words);
        }
        Ok(Ended { status: self.child.wait()?, stdout, stderr })
    }

    /// Waits for a good end.
    ///
    /// # Errors
    /// If it does not end in time or its exit status is not 0.
    pub fn succeed_within(self, limit: Duration) -> Result<Ended> {
        let words = self.words.clone();
        let ended = self.end_within(limit)?;
        if !ended.status.success() {
            bail!("{words} failed: {}\n{}", ended.status, ended.stderr);
        }
        Ok(ended)
    }

    /// Ends it as Ctrl-C does.
    ///
    /// # Errors
    /// If it does not end well within two minutes.
    pub fn interrupt(self) -> Result<Ended> {
        self.signal(libc::SIGINT)?;
        self.succeed_within(FINISH)
    }

    /// Waits until it has printed a line that begins with `prefix`, and returns the rest of that line.
    ///
    /// # Errors
    /// If it prints no such line within two minutes.
    pub fn line_after(&self, prefix: &str) -> Result<String> {
        let begin = Instant::now();
        loop {
            let text = self.printed("stdout");
            let whole_lines = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
            if let Some(rest) = whole_lines.lines().find_map(|line| line.strip_prefix(prefix)) {
                return Ok(rest.trim().to_owned());
            }
            if begin.elapsed() > START {
                bail!("{} never printed {prefix:?}", self.words);
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until a recorder records: it has attached its programs, and its main thread sleeps between two rounds of
    /// draining. Attaching waits for the kernel in many ways, but never for a timer.
    ///
    /// # Errors
    /// If it ends, or does not record within two minutes.
    pub fn until_recording(&mut self) -> Result<()> {
        self.until_waiting_in("nanosleep")
    }

    /// As [`until_recording`](Self::until_recording), for a recorder whose main thread waits in a system call of this name.
    pub(crate) fn until_waiting_in(&mut self, call: &str) -> Result<()> {
        let begin = Instant::now();
        while !is_recording(self.pid(), call) {
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended before it recorded: {status}\n{}", self.words, self.printed("stderr"));
            }
            if begin.elapsed() > START {
                bail!("{} did not start to record", self.words);
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Returns what it has printed so far to `stdout` or `stderr`.
    pub fn printed(&self, name: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.output.path().join(name)).unwrap_or_default()).into_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // SAFETY: the call involves no memory. The child has not been waited for, so no other group has its ID.
            unsafe { libc::kill(-self.child.id().cast_signed(), libc::SIGKILL) };
        }
        // Both fail if it has ended, which is fine.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn is_recording(pid: u32, call: &str) -> bool {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
    let mut links = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    let attached =
        links.any(|link| ["bpf", "perf_event"].iter().any(|word| link.to_string_lossy().contains(word)));
    let waits_in = fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
    attached && waits_in.contains(call)
}

/// Makes an empty directory of this name below the build directory.
pub(crate) fn scratch(name: &str) -> Result<PathBuf> {
    let directory = target().join("xtask").join(name);
    if directory.exists() {
        fs::remove_dir_all(&directory).with_context(|| directory.display().to_string())?;
    }
    fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    Ok(directory)
}
