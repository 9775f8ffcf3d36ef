//! The end of the recorded command: it or a request to stop ends the recording.

use trace_format::run_info::{COMMAND_ENDED, PROCESS_ENDED};

use super::{Session, kernel::KernelSide};
use crate::options::CommandExit;

/// The reason for the end of a recording whose uprobes took too much of the time of a running process.
const UPROBES_COST: &str = "its uprobes cost too much";

impl Session<'_> {
    /// Returns the reason to stop, if there is one. Also passes signals on to the command, which decides
    /// whether it ends by them.
    pub(super) fn stop_reason(&mut self) -> Option<String> {
        if self.options.duration.is_some_and(|duration| self.progress.elapsed() >= duration) {
            return Some("duration".to_owned());
        }
        if self.pausing.is_stopped {
            return Some("stopped".to_owned());
        }
        let requested = self.stop.requested();
        let Some(command) = &mut self.command else {
            let ended = requested.or_else(|| self.target.has_ended().then(|| PROCESS_ENDED.to_owned()));
            return ended.or_else(|| self.costs_too_much().then(|| UPROBES_COST.to_owned()));
        };
        if command.exit().is_some() {
            return Some(requested.unwrap_or_else(|| COMMAND_ENDED.to_owned()));
        }
        for (signal, got) in self.stop.take_signals() {
            command.pass_on(signal, got.elapsed());
        }
        requested.filter(|_| self.stop.is_urgent())
    }

    /// Returns whether uprobes take too much of the recorded processes' time. If they do, klock warns at the
    /// end.
    fn costs_too_much(&mut self) -> bool {
        let Some(percent) = self.kernel.as_mut().and_then(KernelSide::costly_uprobes) else { return false };
        let after = self.progress.elapsed().as_secs_f64();
        self.warnings.push(format!(
            "the recording ended after {after:.1} s: its uprobes took at least {percent} % of the process's time; start the program \
             with klock record COMMAND, record other locks with --locks kernel,futex, or keep the uprobes with --probes uprobe"
        ));
        true
    }

    pub(super) fn command_exit(&mut self) -> Option<CommandExit> {
        let command = self.command.as_ref()?;
        let exit = command.exit();
        if exit.is_none() {
            self.warnings.push(format!(
                "{} (pid {}) is still running: the recording ended before it",
                command.path.display(),
                command.pid
            ));
        }
        exit
    }
}
