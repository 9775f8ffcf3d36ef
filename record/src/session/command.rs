//! The end of the recorded command: when it or a request to stop ends the recording, and how long the recording waits for it.

use std::time::{Duration, Instant};

use super::{Session, finish::TIMEOUT_AFTER_STOP};
use crate::{
    options::CommandExit,
    setup::launch::{Launched, Phase},
    stop::INTERRUPTED,
    system::{clocks::monotonic_ns, procfs},
    write::sink::Sink,
};

/// Maximum time that a command may take to end after SIGTERM; then the recording ends without it.
const TERMINATION_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum time that a command that is about to exit may take: all that it still needs is a processor.
const EXIT_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time to hold the command at its exit until its events are composed. Its mappings can be read until then.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(1);

impl Session<'_> {
    /// Returns the reason to stop, if there is one. Also passes a stop request on to the command.
    pub(super) fn stop_reason(&mut self, sink: &Sink) -> Option<String> {
        if self.options.duration.is_some_and(|duration| self.progress.elapsed() >= duration) {
            return Some("duration".to_owned());
        }
        let requested = self.stop.requested();
        let last_thread = |command: &Launched| procfs::threads(command.pid).len() <= 1;
        let held = |command: &Launched| command.phase() == Phase::Held && !last_thread(command);
        if self.command.as_ref().is_some_and(held) && self.terminated.is_none() {
            // The first thread ended, but the process continues with the others.
            self.catch_up(sink);
            self.wait_for_mappings();
            self.command.as_ref().inspect(|command| command.release());
            return None;
        }
        let Some(command) = &self.command else {
            return requested.or_else(|| self.target.has_ended().then(|| "process ended".to_owned()));
        };
        let ended = match command.phase() {
            Phase::Exited(_) => true,
            Phase::Held => last_thread(command),
            Phase::Running => false,
        };
        if ended {
            return Some(requested.unwrap_or_else(|| "command ended".to_owned()));
        }
        match (requested, self.terminated) {
            (Some(reason), _) if self.stop.is_urgent() => Some(reason),
            // The terminal sends SIGINT to the command, too: the command decides whether it ends.
            (Some(reason), _) if reason == INTERRUPTED => None,
            (Some(_), None) => {
                command.signal(libc::SIGTERM);
                self.terminated = Some(Instant::now());
                None
            }
            (Some(reason), Some(terminated)) if terminated.elapsed() >= TERMINATION_TIMEOUT => Some(reason),
            _ => None,
        }
    }

    /// Lets the command exit, after its events are drained and its mappings are read.
    pub(super) fn end_command(&mut self, sink: &Sink) -> Option<CommandExit> {
        if self.command.as_ref()?.phase() != Phase::Running {
            self.round(sink);
            self.catch_up(sink);
            self.wait_for_mappings();
        }
        let command = self.command.as_ref()?;
        let running = command.phase() == Phase::Running;
        command.release();
        let exit = command.wait(match (running, self.stop.requested()) {
            (true, _) => Duration::ZERO,
            (false, Some(_)) => TERMINATION_TIMEOUT,
            (false, None) => EXIT_TIMEOUT,
        });
        if exit.is_none() {
            self.warnings
                .push(format!("{} is still running: the recording ended before it", command.path.display()));
        }
        exit
    }

    /// Composes what processes have recorded themselves up to now, but gives up after a while.
    fn catch_up(&mut self, sink: &Sink) {
        self.deferral.end();
        let (started, now_ns) = (Instant::now(), monotonic_ns() as u64);
        while self.preload.is_some()
            && self.pipeline.composed_ns < now_ns
            && started.elapsed() < self.stop.shortened(CATCH_UP_TIMEOUT, TIMEOUT_AFTER_STOP)
        {
            if let Some(preload) = &self.preload {
                preload.drain_now();
            }
            if !self.round(sink) {
                return;
            }
            if !self.has_more() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}
