//! Errors of loading and attaching the BPF programs.

use std::{error::Error, io, iter};

use aya::programs::ProgramError;

use crate::setup::host::TRACEFS;

/// Why the BPF programs could not be loaded or attached.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(
        "cannot load klock's BPF programs: the kernel refused them; `klock check` shows what this machine permits"
    )]
    Load(#[source] Box<aya::EbpfError>),
    #[error(
        "cannot {action} BPF program {program}: the kernel refused it; `klock check` shows what this machine permits"
    )]
    Program {
        program: String,
        action: &'static str,
        #[source]
        source: Box<ProgramError>,
    },
    #[error(
        "cannot probe the return of {function}: the kernel refused it; record waits alone with --contended-only"
    )]
    Return {
        function: String,
        #[source]
        source: io::Error,
    },
    #[error("cannot put probes into process {pid}: the kernel refused them")]
    Process {
        pid: u32,
        #[source]
        source: io::Error,
    },
    #[error("cannot set up BPF map {map}: the kernel refused it; try a smaller --ring")]
    Map {
        map: &'static str,
        #[source]
        source: Box<aya::maps::MapError>,
    },
    #[error("cannot mount tracefs: the kernel refused it; run `mount -t tracefs tracefs {}`", TRACEFS[0])]
    Tracefs(#[source] io::Error),
    #[error("cannot find {0} in klock's BPF object; rebuild it with `cargo xtask bpf`")]
    Missing(String),
}

impl LoadError {
    /// Returns the kernel's reason in one line: for a program, its name and the last line of the verifier's
    /// log, if there is one; otherwise, the last error of the chain.
    pub fn reason(&self) -> String {
        let last_cause = || causes(self).last().map(ToString::to_string).unwrap_or_default();
        let Self::Program { program, source, .. } = self else { return last_cause() };
        let log = match &**source {
            ProgramError::LoadError { verifier_log, .. } => verifier_log.to_string(),
            _ => String::new(),
        };
        // The log ends with the verifier's statistics.
        let lines = log.lines().take_while(|line| !line.starts_with("processed "));
        let last = lines.map(str::trim).filter(|line| !line.is_empty()).last();
        format!("{program}: {}", last.map_or_else(last_cause, str::to_owned))
    }
}

/// Returns an error and its causes, the deepest one last.
pub(crate) fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    iter::successors(Some(error), |&error| error.source())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that the kernel refused, with this log.
    fn refused(log: &str) -> LoadError {
        let source = ProgramError::LoadError {
            io_error: io::Error::from_raw_os_error(libc::EACCES),
            verifier_log: aya_obj::VerifierLog::new(log.to_owned()),
        };
        LoadError::Program { program: "futex_enter".to_owned(), action: "load", source: Box::new(source) }
    }

    #[test]
    fn the_reason_is_the_verifiers_last_line_before_its_statistics() {
        let log = "0: R1=ctx()\ncombined stack size of 3 calls is 544. Too large\nprocessed 9 insns (limit 1000000)\n";
        assert_eq!(refused(log).reason(), "futex_enter: combined stack size of 3 calls is 544. Too large");
    }

    #[test]
    fn the_reason_without_a_log_is_the_systems_error() {
        assert_eq!(refused("").reason(), "futex_enter: Permission denied (os error 13)");
        let full = LoadError::Tracefs(io::Error::from_raw_os_error(libc::ENOSPC));
        assert_eq!(full.reason(), "No space left on device (os error 28)");
    }
}
