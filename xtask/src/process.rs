//! Runs other programs, for the chores and for the live tests: [`Run`] for a program that runs to its end,
//! [`Running`] for one in the background. Every wait is bounded in time.

use std::{
    cell::RefCell,
    ffi::{OsStr, OsString},
    fs,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use anyhow::{Context, Result, bail, ensure};

mod running;

pub use running::{Ended, Running};

/// The exit status of coreutils' `timeout` when the time is up.
const TIMED_OUT: i32 = 124;

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

/// A program to run to its end, in the workspace, for at most two hours unless told otherwise: the limit ends
/// what hangs, and a busy machine does not reach it.
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
        Self { words, minutes: 120, environment: Vec::new(), directory: root() }.args(arguments)
    }

    /// Returns a run of the cargo that runs this chore.
    #[must_use]
    pub fn cargo(arguments: &[&str]) -> Self {
        Self::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()), arguments)
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(self, argument: impl AsRef<OsStr>) -> Self {
        self.args([argument])
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
    pub fn directory(self, directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into(), ..self }
    }

    /// Sets the time limit.
    #[must_use]
    pub fn minutes(self, minutes: u32) -> Self {
        Self { minutes, ..self }
    }

    /// Returns the command as it would be typed, without the program's directory.
    #[must_use]
    pub fn words(&self) -> String {
        let name = Path::new(&self.words[0]).file_name().unwrap_or(&self.words[0]);
        let rest = self.words[1..].iter().map(OsString::as_os_str);
        [name].into_iter().chain(rest).map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
    }

    fn command(&self) -> Command {
        let mut command = Command::new("timeout");
        command.arg("--kill-after=20").arg(format!("{}m", self.minutes)).args(&self.words);
        command.current_dir(&self.directory).envs(self.environment.iter().map(|(k, v)| (k, v)));
        command.stdin(Stdio::null());
        command
    }

    /// Runs the program and passes its output on. A bad exit status is not an error here.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn stream(&self) -> Result<Outcome> {
        say(&format!("$ {}", self.words()));
        let mut command = self.command();
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", self.words()))?;
        let lines = Lines::default();
        let out = child.stdout.take().map(|pipe| pass_on(pipe, Arc::clone(&lines)));
        let err = child.stderr.take().map(|pipe| pass_on(pipe, Arc::clone(&lines)));
        let status = child.wait().with_context(|| format!("cannot wait for {}", self.words()))?;
        for reader in [out, err].into_iter().flatten() {
            reader.join().ok();
        }
        Ok(Outcome {
            ok: status.success(),
            timed_out: status.code() == Some(TIMED_OUT),
            lines: taken(&lines),
        })
    }

    /// Runs the program and passes its output on.
    ///
    /// # Errors
    /// If the program fails or its time is up.
    pub fn must(&self) -> Result<Outcome> {
        let outcome = self.stream()?;
        ensure!(!outcome.timed_out, "{} did not end within {} minutes", self.words(), self.minutes);
        ensure!(outcome.ok, "{} failed", self.words());
        Ok(outcome)
    }

    /// Runs the program silently and returns its standard output.
    ///
    /// # Errors
    /// If the program fails; the error has its standard error.
    pub fn read(&self) -> Result<String> {
        self.output(Stdio::piped())
    }

    /// Returns the standard output while the standard error goes to ours, for programs that report progress
    /// there.
    ///
    /// # Errors
    /// If the program fails.
    pub fn read_with_progress(&self) -> Result<String> {
        say(&format!("$ {}", self.words()));
        self.output(Stdio::inherit())
    }

    fn output(&self, stderr: Stdio) -> Result<String> {
        let output = self.command().stderr(stderr).output();
        let output = output.with_context(|| format!("cannot start {}", self.words()))?;
        if !output.status.success() {
            bail!("{} failed: {}", self.words(), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

type Lines = Arc<Mutex<Vec<String>>>;

thread_local! {
    /// The kept output of this thread, unless it goes to standard output.
    static KEPT: RefCell<Option<Lines>> = const { RefCell::new(None) };
}

/// Runs `work` and returns what it would have printed by [`say`] and [`Run::stream`]: two jobs that run at
/// the same time must not mix their output.
pub(crate) fn keeping_output<T>(work: impl FnOnce() -> T) -> (T, Vec<String>) {
    let lines = Lines::default();
    KEPT.set(Some(Arc::clone(&lines)));
    let result = work();
    KEPT.set(None);
    (result, taken(&lines))
}

/// Prints a line, or keeps it inside [`keeping_output`].
pub(crate) fn say(line: &str) {
    match KEPT.with_borrow(Clone::clone) {
        Some(kept) => kept.lock().unwrap_or_else(PoisonError::into_inner).push(line.to_owned()),
        None => println!("{line}"),
    }
}

fn taken(lines: &Lines) -> Vec<String> {
    std::mem::take(&mut *lines.lock().unwrap_or_else(PoisonError::into_inner))
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

pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(program)).find(|file| file.is_file())
}

/// Returns whether a program of this name is on the path.
#[must_use]
pub fn has(program: &str) -> bool {
    find(program).is_some()
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
