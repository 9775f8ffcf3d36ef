//! Exit codes, and the error as one line on stderr.
//!
//! 0 done, 1 nothing found, 2 bad input or use, 3 not permitted, not supported here or not recorded, 4 the
//! trace lost too many events to rank or its replay does not fit, 5 the disk failed, 6 a condition of
//! --fail-if holds. `klock record -- COMMAND` returns the status of the command.

use std::{io, process::ExitCode};

use trace_format::{FormatError, output::OutputError};

use crate::output;

/// The result of a command, which decides the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Done,
    /// Nothing was found: for example, no such lock or no event.
    #[cfg_attr(not(feature = "analyze"), expect(dead_code, reason = "only analysis searches"))]
    Nothing,
    BadInput,
    /// Not permitted, not supported by this machine, or not recorded.
    #[cfg_attr(
        not(any(feature = "record", feature = "analyze")),
        expect(
            dead_code,
            reason = "only recording needs permissions, and only analysis needs recorded releases"
        )
    )]
    NotPossible,
    /// The trace lost too many events to rank what is left, or its replay does not fit it.
    #[cfg_attr(not(feature = "analyze"), expect(dead_code, reason = "only analysis ranks"))]
    TooMuchLost,
    /// The disk failed.
    Disk,
    /// A condition of --fail-if holds.
    #[cfg_attr(not(feature = "analyze"), expect(dead_code, reason = "only analysis has conditions"))]
    Worse,
    /// The status of the recorded command.
    #[cfg_attr(not(feature = "record"), expect(dead_code, reason = "only recording runs commands"))]
    Command(u8),
}

impl Exit {
    /// Returns the number of the exit code.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Nothing => 1,
            Self::BadInput => 2,
            Self::NotPossible => 3,
            Self::TooMuchLost => 4,
            Self::Disk => 5,
            Self::Worse => 6,
            Self::Command(code) => code,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

/// Prints the error as one line and returns the exit code. A closed pipe is not an error: the reader has read
/// enough.
pub(crate) fn report(error: &anyhow::Error) -> Exit {
    if closed_pipe(error) {
        return Exit::Done;
    }
    output::message(one_line(error));
    exit_of(error)
}

fn closed_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|cause| cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe))
}

/// Joins the first lines of the error and its causes, without repetitions. A cause may be long: messages of
/// the kernel's verifier have hundreds of lines.
pub(crate) fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain() {
        let words = cause.to_string();
        let words = words.lines().next().unwrap_or_default();
        if line.contains(words) || is_reworded(cause) && !line.is_empty() {
            continue;
        }
        if !line.is_empty() {
            line.push_str(": ");
        }
        line.push_str(words);
        if cause.is::<OutputError>() {
            // It describes its cause, too.
            break;
        }
    }
    line
}

/// Whether the libraries already describe this system error in their own words.
fn is_reworded(cause: &(dyn std::error::Error + 'static)) -> bool {
    use io::ErrorKind::{IsADirectory, NotFound, PermissionDenied, StorageFull};
    cause
        .downcast_ref::<io::Error>()
        .is_some_and(|e| matches!(e.kind(), NotFound | PermissionDenied | IsADirectory | StorageFull))
}

fn exit_of(error: &anyhow::Error) -> Exit {
    for cause in error.chain() {
        if let Some(format) = cause.downcast_ref::<FormatError>() {
            return if format.is_disk_failure() { Exit::Disk } else { Exit::BadInput };
        }
        #[cfg(feature = "analyze")]
        if let Some(analyze) = cause.downcast_ref::<analyze::AnalyzeError>() {
            if analyze.too_much_lost() {
                return Exit::TooMuchLost;
            } else if analyze.not_recorded() {
                return Exit::NotPossible;
            } else if analyze.nothing_found() {
                return Exit::Nothing;
            }
        }
        #[cfg(feature = "record")]
        if let Some(record) = cause.downcast_ref::<record::RecordError>() {
            return match record.class() {
                record::ErrorClass::NotPossible => Exit::NotPossible,
                record::ErrorClass::BadInput => Exit::BadInput,
                record::ErrorClass::Disk => Exit::Disk,
            };
        }
        if let Some(output) = cause.downcast_ref::<OutputError>() {
            return if output.is_disk_failure() { Exit::Disk } else { Exit::BadInput };
        }
    }
    Exit::BadInput
}
