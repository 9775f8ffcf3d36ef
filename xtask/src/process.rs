//! Runs other programs: their output is passed on line by line while they run, and kept for who wants to read it.
//! Every run is bounded in time.

use std::{
    ffi::{OsStr, OsString},
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread,
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
    directory: PathBuf,
    minutes: u32,
    environment: Vec<(String, OsString)>,
}

impl Run {
    /// `program` with `arguments`, in the workspace, for at most ten minutes.
    pub(crate) fn new(program: impl AsRef<OsStr>, arguments: &[&str]) -> Self {
        let mut words = vec![program.as_ref().to_owned()];
        words.extend(arguments.iter().map(OsString::from));
        Self { words, directory: root(), minutes: 10, environment: Vec::new() }
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

    /// In another directory.
    pub(crate) fn in_directory(mut self, directory: &Path) -> Self {
        directory.clone_into(&mut self.directory);
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
        command.current_dir(&self.directory).envs(self.environment.iter().map(|(k, v)| (k, v)));
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
    root().join("target")
}

/// Whether a program of this name is on the path.
pub(crate) fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}
