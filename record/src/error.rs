//! Why nothing, or not everything, could be recorded. Each error names the thing and ends with the next step.

use std::{io, path::PathBuf};

use trace_format::FormatError;

use crate::{
    filters::{NoSuchLock, Unfit},
    launch::{self, LaunchError},
    load::LoadError,
    plan::Refusal,
    preload,
    uprobes::NoLibc,
};

/// Why a recording failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// This machine can't record what was asked for.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The kernel refused the kernel side.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The pthread calls that were asked for can't be probed.
    #[error("{0}; leave pthread out of --locks")]
    NoLibc(#[source] NoLibc),
    /// The command can't record itself, and was asked to.
    #[error("{0}; record it with --pthread-probes uprobe, or its futexes with --locks futex")]
    Unloadable(#[source] preload::fitness::Unfit),
    /// The command can't record itself, and nothing else is possible here.
    #[error("{unfit}; otherwise {refusal}")]
    NeitherWay {
        /// Why the program can't record itself.
        unfit: preload::fitness::Unfit,
        /// Why the kernel side can't.
        refusal: Refusal,
    },
    /// Only a thread that records itself can wait.
    #[error("only a program that klock starts can wait for klock; give a command, or leave --lossless out")]
    LosslessOfRunning,
    /// A process that runs already loads nothing more.
    #[error("only a program that klock starts records itself; give a command, or leave --pthread-probes out")]
    PreloadOfRunning,
    /// Calls are probed process by process.
    #[error(
        "pthread calls are recorded of chosen processes only; choose some with -p, or leave pthread out of --locks"
    )]
    PthreadOfAll,
    /// A call of a pthread function is told when it begins.
    #[error(
        "waits are left out by their length of kernel locks and futexes only; leave pthread out of --locks, or --min-wait"
    )]
    PthreadMinWait,
    /// The filters leave nothing, or are too many.
    #[error(transparent)]
    Unfit(#[from] Unfit),
    /// A lock that was chosen can't be found.
    #[error(transparent)]
    NoSuchLock(#[from] NoSuchLock),
    /// The command could not be started.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// There is no such process.
    #[error("no process {pid}; `pgrep -a NAME` finds the PID of a program that runs")]
    NoProcess {
        /// The PID.
        pid: u32,
    },
    /// The number is that of a thread.
    #[error(
        "{tid} is a thread of process {pid}; record the process with -p {pid}, or the thread with -t {tid}"
    )]
    NotAProcess {
        /// The number that was given.
        tid: u32,
        /// The process that it belongs to.
        pid: u32,
    },
    /// There is no such thread.
    #[error("no thread {tid}; `ps -eLf` lists threads (column LWP)")]
    NoTask {
        /// The TID.
        tid: u32,
    },
    /// There is no such cgroup.
    #[error("no cgroup {}; `systemd-cgls` or `find /sys/fs/cgroup -type d` lists them", path.display())]
    NoCgroup {
        /// As it was given.
        path: PathBuf,
    },
    /// The trace could not be written.
    #[error(transparent)]
    Output(#[from] FormatError),
    /// The system refused something that every recording needs.
    #[error("failed to {what}: {}", launch::words(source))]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// What sort of error it is: the door makes an exit code of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// What was asked for does not exist, or makes no sense.
    BadInput,
    /// It is not permitted, or not supported by this machine.
    NotPossible,
    /// The disk failed.
    Disk,
}

impl RecordError {
    /// What sort of error it is.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Refused(Refusal::Nothing)
            | Self::NoProcess { .. }
            | Self::NotAProcess { .. }
            | Self::NoTask { .. }
            | Self::PthreadOfAll
            | Self::PthreadMinWait
            | Self::PreloadOfRunning
            | Self::LosslessOfRunning
            | Self::Unfit(_)
            | Self::NoSuchLock(NoSuchLock::Unknown { .. })
            | Self::NoCgroup { .. } => ErrorClass::BadInput,
            Self::Launch(LaunchError::System(_)) => ErrorClass::NotPossible,
            Self::Launch(_) => ErrorClass::BadInput,
            Self::Output(error) if error.is_disk() => ErrorClass::Disk,
            Self::Output(_) => ErrorClass::BadInput,
            Self::Refused(_)
            | Self::Load(_)
            | Self::NoSuchLock(_)
            | Self::NoLibc(_)
            | Self::Unloadable(_)
            | Self::NeitherWay { .. }
            | Self::System { .. } => ErrorClass::NotPossible,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_exist_is_bad_input_and_what_is_not_permitted_is_not() {
        assert_eq!(RecordError::NoProcess { pid: 1 }.class(), ErrorClass::BadInput);
        let refused = RecordError::from(Refusal::Capability { missing: "CAP_BPF" });
        assert_eq!(refused.class(), ErrorClass::NotPossible);
        let full = io::Error::from(io::ErrorKind::StorageFull);
        let full = RecordError::from(FormatError::Io { path: "t".into(), source: full });
        assert_eq!(full.class(), ErrorClass::Disk);
    }
}
