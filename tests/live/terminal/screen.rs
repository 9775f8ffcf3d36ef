//! A terminal: types lines and keys, and reads the text on its screen.

use std::{
    path::Path,
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::support::soon;

/// Longest time for anything to appear: it ends what hangs.
pub(crate) const LIMIT: Duration = Duration::from_secs(300);

/// A shell in a terminal, in a directory of its own.
pub(crate) struct Screen {
    server: String,
    pub(crate) directory: TempDir,
    commands: u32,
}

impl Screen {
    /// Starts a shell in a terminal of this size, whose PATH begins with the built klock.
    pub(crate) fn start(columns: u32, rows: u32) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let screen = Self {
            server: format!("klock-test-{}-{count}", std::process::id()),
            directory: tempfile::tempdir().unwrap(),
            commands: 0,
        };
        let klock = Path::new(env!("CARGO_BIN_EXE_klock")).parent().unwrap().display();
        let shell = format!(
            "env -u NO_COLOR -u PAGER -u KLOCK_PAGER -u LESS PS1='$ ' LC_ALL=C.UTF-8 PATH={klock}:$PATH sh"
        );
        let (columns, rows) = (columns.to_string(), rows.to_string());
        let directory = screen.directory.path().to_str().unwrap();
        let start = ["start-server", ";", "set", "-g", "status", "off", ";", "new-session", "-d"];
        let size = ["-x", &columns, "-y", &rows, "-c", directory, &shell];
        screen.tmux(&[&start[..], &size].concat());
        screen.until("$");
        screen
    }

    pub(crate) fn tmux(&self, words: &[&str]) -> String {
        let output =
            Command::new("tmux").args(["-u", "-L", &self.server, "-f", "/dev/null"]).args(words).output();
        let output = output.expect("tmux is installed");
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Returns the lines on the screen, without empty ones at its end.
    pub(crate) fn text(&self) -> String {
        self.tmux(&["capture-pane", "-p"]).trim_end().to_owned()
    }

    pub(crate) fn type_line(&self, line: &str) {
        self.tmux(&["send-keys", "-l", line]);
        self.tmux(&["send-keys", "Enter"]);
    }

    /// Waits until the screen contains this, and returns its lines.
    #[track_caller]
    pub(crate) fn until(&self, part: &str) -> String {
        self.until_shown(part, |text| text.contains(part))
    }

    #[track_caller]
    fn until_shown(&self, what: &str, is_shown: impl Fn(&str) -> bool) -> String {
        let started = Instant::now();
        loop {
            let text = self.text();
            if is_shown(&text) {
                return text;
            }
            assert!(started.elapsed() < LIMIT, "no '{what}' on the screen:\n{text}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Presses a key until the screen contains this. A pager drops keys that come while it handles a signal.
    #[track_caller]
    pub(crate) fn press_until(&self, key: &str, part: &str) {
        soon(LIMIT, part, || {
            self.tmux(&["send-keys", key]);
            self.text().contains(part)
        });
    }

    /// Runs a command on an empty screen, waits for its end and returns the screen without the command. Its
    /// last line is the exit code.
    #[track_caller]
    pub(crate) fn run(&mut self, line: &str) -> String {
        let marker = self.begin(line);
        self.end(&marker)
    }

    /// Starts a command on an empty screen. Returns what will be printed at its end.
    pub(crate) fn begin(&mut self, line: &str) -> String {
        self.commands += 1;
        self.tmux(&["clear-history"]);
        // The marker on the line that is typed is not in the output.
        self.type_line(&format!("clear; {line}; echo \"end{}\"-$?", self.commands));
        format!("end{}-", self.commands)
    }

    #[track_caller]
    pub(crate) fn end(&self, marker: &str) -> String {
        // The prompt comes after all of the line.
        let text = self.until_shown(marker, |text| text.contains(marker) && text.ends_with('$'));
        text.lines().filter(|line| !line.starts_with('$')).collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = Command::new("tmux").args(["-L", &self.server, "kill-server"]).output();
    }
}
