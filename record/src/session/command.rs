//! The end of the recorded command: it or a request to stop ends the recording.

use trace_format::run_info::{COMMAND_ENDED, PROCESS_ENDED};

use super::Session;
use crate::options::CommandExit;

impl Session<'_> {
    /// Returns the reason to stop, if there is one. Also passes signals on to the command, which decides whether it ends by them.
    pub(super) fn stop_reason(&mut self) -> Option<String> {
        if self.options.duration.is_some_and(|duration| self.progress.elapsed() >= duration) {
            return Some("duration".to_owned());
        }
        if self.pausing.is_stopped {
            return Some("stopped".to_owned());
        }
        let requested = self.stop.requested();
        let Some(command) = &mut self.command else {
            return requested.or_else(|| self.target.has_ended().then(|| PROCESS_ENDED.to_owned()));
        };
        if command.exit().is_some() {
            return Some(requested.unwrap_or_else(|| COMMAND_ENDED.to_owned()));
        }
        for (signal, got) in self.stop.take_signals() {
            command.pass_on(signal, got.elapsed());
        }
        requested.filter(|_| self.stop.is_urgent())
    }

    /// Returns the exit of the command, if it has exited.
    pub(super) fn command_exit(&mut self) -> Option<CommandExit> {
        let command = self.command.as_ref()?;
        let exit = command.exit();
        if exit.is_none() {
            self.warnings
                .push(format!("{} is still running: the recording ended before it", command.path.display()));
        }
        exit
    }
}
