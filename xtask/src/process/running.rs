//! Programs in the background: a test can wait until a program prints a line, records, or ends, and reads its
//! output.

use std::{
    ffi::OsStr,
    fs::{self, File},
    process::{Child, Command, ExitStatus},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

/// Bound on starting to record and on the first output of a program; generous, because the machine may be
/// busy.
const START: Duration = Duration::from_secs(600);

/// A program in the background, with its output in files. Dropping it kills it, and its process group if it
/// leads one.
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
        // SAFETY: the call involves no memory, and the child has not been waited for, so that the ID is its
        // own.
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

    /// Waits until it has printed a line that begins with `prefix`, and returns the rest of that line.
    ///
    /// # Errors
    /// If it prints no such line in time.
    pub fn line_after(&self, prefix: &str) -> Result<String> {
        let begin = Instant::now();
        while begin.elapsed() < START {
            let text = self.printed("stdout");
            let whole_lines = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
            if let Some(rest) = whole_lines.lines().find_map(|line| line.strip_prefix(prefix)) {
                return Ok(rest.trim().to_owned());
            }
            thread::sleep(Duration::from_millis(10));
        }
        bail!("{} never printed {prefix:?}", self.words);
    }

    /// Waits until a recorder records: it has attached its programs, and its main thread sleeps between two
    /// rounds of draining. Attaching waits for the kernel in many ways, but never for a timer.
    ///
    /// # Errors
    /// If it ends, or does not record in time.
    pub fn until_recording(&mut self) -> Result<()> {
        self.until_waiting_in("nanosleep")
    }

    /// As [`until_recording`](Self::until_recording), for a recorder whose main thread waits in a system call
    /// of this name.
    ///
    /// # Errors
    /// If it ends, or does not record in time.
    pub fn until_waiting_in(&mut self, call: &str) -> Result<()> {
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
            // SAFETY: the call involves no memory. The child has not been waited for, so no other group has
            // its ID.
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
