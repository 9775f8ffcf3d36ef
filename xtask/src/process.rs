//! Runs other programs: their output is passed on line by line while they run, and kept for who wants to read it.
//! Every run is bounded in time.

use std::{
    ffi::{OsStr, OsString},
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

/// What `timeout` of coreutils ends with when the time was up.
const TIMED_OUT: i32 = 124;

/// How a program ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Its exit status was 0.
    pub(crate) ok: bool,
    /// Its time was up.
    pub(crate) timed_out: bool,
    /// What it printed, standard output and standard error in the order of arrival.
    pub(crate) lines: Vec<String>,
}

/// A program to run.
#[derive(Debug)]
pub(crate) struct Run {
    words: Vec<OsString>,
    minutes: u32,
    environment: Vec<(String, OsString)>,
}

impl Run {
    /// `program` with `arguments`, in the workspace, for at most ten minutes.
    pub(crate) fn new(program: impl AsRef<OsStr>, arguments: &[&str]) -> Self {
        let mut words = vec![program.as_ref().to_owned()];
        words.extend(arguments.iter().map(OsString::from));
        Self { words, minutes: 10, environment: Vec::new() }
    }

    /// The same cargo that runs this chore.
    pub(crate) fn cargo(arguments: &[&str]) -> Self {
        Self::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()), arguments)
    }

    /// One more argument.
    pub(crate) fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.words.push(argument.as_ref().to_owned());
        self
    }

    /// With a variable in its environment.
    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.to_owned(), value.as_ref().to_owned()));
        self
    }

    /// With another bound.
    pub(crate) fn minutes(mut self, minutes: u32) -> Self {
        self.minutes = minutes;
        self
    }

    /// As it would be typed.
    pub(crate) fn words(&self) -> String {
        let name = Path::new(&self.words[0]).file_name().unwrap_or(&self.words[0]).to_string_lossy();
        let rest = self.words[1..].iter().map(|w| format!(" {}", w.to_string_lossy()));
        format!("{name}{}", rest.collect::<String>())
    }

    fn command(&self) -> Command {
        let mut command = Command::new("timeout");
        command.arg("--kill-after=20").arg(format!("{}m", self.minutes)).args(&self.words);
        command.current_dir(root()).envs(self.environment.iter().map(|(k, v)| (k, v)));
        command
    }

    /// Runs it, passing its output on.
    pub(crate) fn stream(&self) -> Result<Outcome> {
        println!("$ {}", self.words());
        let mut child = self
            .command()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("failed to start {}", self.words()))?;
        let lines = Arc::new(Mutex::new(Vec::new()));
        let out =
            child.stdout.take().map(|pipe| pass_on(pipe, Arc::clone(&lines), |line| println!("{line}")));
        let err =
            child.stderr.take().map(|pipe| pass_on(pipe, Arc::clone(&lines), |line| eprintln!("{line}")));
        let status = child.wait().with_context(|| format!("failed to wait for {}", self.words()))?;
        for reader in [out, err].into_iter().flatten() {
            reader.join().ok();
        }
        let lines = std::mem::take(&mut *lines.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(Outcome { ok: status.success(), timed_out: status.code() == Some(TIMED_OUT), lines })
    }

    /// Runs it, passing its output on; an error unless it succeeds.
    pub(crate) fn must(&self) -> Result<Outcome> {
        let outcome = self.stream()?;
        if outcome.timed_out {
            bail!("{} did not end within {} minutes", self.words(), self.minutes);
        }
        if !outcome.ok {
            bail!("{} failed", self.words());
        }
        Ok(outcome)
    }

    /// Runs it silently and returns its standard output; an error, with its standard error, unless it succeeds.
    pub(crate) fn read(&self) -> Result<String> {
        let output = self
            .command()
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("failed to start {}", self.words()))?;
        if !output.status.success() {
            bail!("{} failed: {}", self.words(), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

fn pass_on(
    pipe: impl Read + Send + 'static,
    lines: Arc<Mutex<Vec<String>>>,
    print: fn(&str),
) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut reader = BufReader::new(pipe);
        let mut bytes = Vec::new();
        while reader.read_until(b'\n', &mut bytes).is_ok_and(|read| read > 0) {
            let line = String::from_utf8_lossy(&bytes).trim_end().to_owned();
            print(&line);
            lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            bytes.clear();
        }
    })
}

/// The workspace's directory.
pub(crate) fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_owned()
}

/// Where things are built.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |target| root().join(target))
}

/// Whether a program of this name is on the path.
pub(crate) fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// A program in the background, without output; killed when it is dropped, with its children.
#[derive(Debug)]
pub(crate) struct Background {
    child: Child,
    words: String,
}

impl Background {
    /// Starts it in the workspace. Its standard error goes to ours.
    pub(crate) fn start(program: impl AsRef<OsStr>, arguments: &[&str]) -> Result<Self> {
        let words = format!("{} {}", program.as_ref().display(), arguments.join(" "));
        println!("$ {words} &");
        let child = Command::new(program)
            .args(arguments)
            .current_dir(root())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .with_context(|| format!("failed to start {words}"))?;
        Ok(Self { child, words })
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it, a recorder, records: it holds attachments, and its main thread sleeps between two rounds. Attaching
    /// waits for the kernel in many ways, but never for a timer.
    pub(crate) fn until_recording(&mut self) -> Result<()> {
        let begin = Instant::now();
        loop {
            let files = fs::read_dir(format!("/proc/{}/fd", self.pid())).into_iter().flatten();
            let mut links = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
            let is_attachment =
                |link: &Path| ["bpf", "perf_event"].iter().any(|word| link.to_string_lossy().contains(word));
            let place = fs::read_to_string(format!("/proc/{}/wchan", self.pid())).unwrap_or_default();
            if links.any(|link| is_attachment(&link)) && place.contains("nanosleep") {
                return Ok(());
            }
            if self.child.try_wait()?.is_some() || begin.elapsed() > Duration::from_secs(60) {
                bail!("{} did not begin to record", self.words);
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Interrupts it, as Ctrl-C does, and waits for its end; an error unless it succeeds.
    pub(crate) fn interrupt(mut self) -> Result<()> {
        Run::new("kill", &["-INT", &self.pid().to_string()]).read()?;
        self.wait(Duration::from_secs(120))
    }

    /// Waits for its end; an error unless it succeeds, in time.
    pub(crate) fn wait(&mut self, limit: Duration) -> Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < limit {
            if let Some(status) = self.child.try_wait()? {
                if !status.success() {
                    bail!("{} failed: {status}", self.words);
                }
                return Ok(());
            }
            thread::sleep(Duration::from_millis(20));
        }
        bail!("{} did not end within {} seconds", self.words, limit.as_secs())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // With everything that it started. All fail if it has ended, which is fine.
        Run::new("kill", &["-KILL", "--", &format!("-{}", self.pid())]).read().ok();
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The klock that was given; otherwise builds it as a user would, and says where it is.
pub(crate) fn klock(given: Option<&Path>) -> Result<PathBuf> {
    if let Some(path) = given {
        return fs::canonicalize(path).with_context(|| path.display().to_string());
    }
    Run::cargo(&["build", "--release", "-p", "klock"]).minutes(25).must()?;
    Ok(target().join("release/klock"))
}

/// An empty directory of this name for a chore's files.
pub(crate) fn scratch(name: &str) -> Result<PathBuf> {
    let directory = target().join("xtask").join(name);
    if directory.exists() {
        fs::remove_dir_all(&directory).with_context(|| directory.display().to_string())?;
    }
    fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    Ok(directory)
}
