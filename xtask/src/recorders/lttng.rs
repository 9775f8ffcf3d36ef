//! A session daemon of LTTng of the ordinary user, and sessions that write the events of its pthread wrapper to disk.

use std::{
    cell::Cell,
    fs,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};

use crate::{home::NOBODY, host, process::Running};

const WRAPPER: &str = "liblttng-ust-pthread-wrapper.so.1";
const SESSION: &str = "klock-recorders";
/// Buffers of a processor: four of these.
const BUFFER: &str = "4M";

/// The daemon, with its home in a folder. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Lttng {
    home: PathBuf,
    _daemon: Running,
    /// Number of sessions so far.
    sessions: Cell<u32>,
}

impl Lttng {
    /// Starts the daemon.
    pub(super) fn start(folder: &Path) -> Result<Self> {
        let home = folder.join("lttng");
        fs::create_dir_all(&home).with_context(|| home.display().to_string())?;
        fs::set_permissions(&home, fs::Permissions::from_mode(0o777))?;
        let mut daemon = as_user("lttng-sessiond");
        daemon.arg("--no-kernel").current_dir("/").env("LTTNG_HOME", &home).env("HOME", &home);
        let lttng = Self { home, _daemon: Running::start(&mut daemon)?, sessions: Cell::new(0) };
        let begin = Instant::now();
        while lttng.call(&["list"]).is_err() {
            ensure!(begin.elapsed() < Duration::from_secs(60), "LTTng's session daemon does not answer");
            thread::sleep(Duration::from_millis(50));
        }
        Ok(lttng)
    }

    /// Runs `run` with the words of a shell that let a program write its events into a session. Returns its result and the number of discarded events.
    pub(super) fn record<T>(&self, run: impl FnOnce(&str) -> Result<T>) -> Result<(T, u64)> {
        self.sessions.set(self.sessions.get() + 1);
        let output = self.home.join(format!("trace-{}", self.sessions.get()));
        self.call(&["create", SESSION, "--output", &output.to_string_lossy()])?;
        self.call(&["enable-channel", "-u", "all", "--subbuf-size", BUFFER, "--num-subbuf", "4"])?;
        self.call(&["enable-event", "-u", "-c", "all", "lttng_ust_pthread:*"])?;
        self.call(&["start"])?;
        let ran = run(&format!("env LTTNG_HOME={} LD_PRELOAD={WRAPPER}", self.home.display()));
        let stopped = self.call(&["stop"])?;
        self.call(&["destroy", SESSION])?;
        let bytes = fs::read_dir(&output).map_or(0, |entries| entries.count());
        ensure!(bytes > 0, "LTTng wrote no trace");
        fs::remove_dir_all(&output).with_context(|| output.display().to_string())?;
        Ok((ran?, discarded(&stopped)))
    }

    /// Returns what a command of LTTng prints.
    fn call(&self, arguments: &[&str]) -> Result<String> {
        let mut command = as_user("lttng");
        command.arg("--no-sessiond").args(arguments).current_dir("/");
        let ended = command.env("LTTNG_HOME", &self.home).env("HOME", &self.home).output()?;
        let printed =
            [&ended.stdout, &ended.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat();
        ensure!(ended.status.success(), "lttng {} failed: {printed}", arguments.join(" "));
        Ok(printed)
    }
}

/// Reads the number of discarded events from what `lttng stop` prints.
fn discarded(printed: &str) -> u64 {
    let line = printed.lines().find(|line| line.contains("discarded")).unwrap_or_default();
    line.split_whitespace().find_map(|word| word.parse().ok()).unwrap_or(0)
}

/// Returns a command that runs as the ordinary user if this process is root.
fn as_user(program: &str) -> Command {
    let mut command = Command::new(program);
    if host::is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_discarded_events_is_read_from_the_warning() {
        let printed = "Waiting for data availability.\nWarning: 1532 events were discarded, please refer to the documentation\nTracing stopped";
        assert_eq!(discarded(printed), 1532);
        assert_eq!(discarded("Tracing stopped for session x"), 0);
    }
}
