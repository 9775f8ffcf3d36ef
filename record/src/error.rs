//! Errors of a recording. Each message names the thing that failed and ends with the next step.

use std::{io, path::PathBuf};

use rustix::process::{Resource, getrlimit};
use trace_format::FormatError;

use crate::{
    control::ControlError,
    kernel::load::{LoadError, causes},
    preload::{fitness::Unfit, library::LibraryError},
    setup::{
        filters::{FilterError, LockLookupError},
        launch::{self, LaunchError},
        plan::PlanError,
    },
    sources::{pthread::LibcError, switches::SwitchesError},
};

/// Why a recording failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("{0}; leave pthread out of --locks")]
    Libc(#[from] LibcError),
    #[error("{0}; record it with --probes uprobe, or its futexes with --locks futex")]
    Unloadable(#[source] Unfit),
    #[error(transparent)]
    Library(#[from] LibraryError),
    #[error("{unfit}; otherwise {error}")]
    NeitherWay { unfit: Unfit, error: PlanError },
    #[error(
        "cannot record without loss: only a program that klock starts can wait for klock; give a command, or leave --lossless out"
    )]
    LosslessOfRunning,
    #[error(
        "cannot preload a running process: only a program that klock starts records its own calls; give a command, or leave --probes out"
    )]
    PreloadOfRunning,
    /// Without BPF programs, switches are recorded only of a command, and which of its threads hold locks is
    /// known only if they record themselves.
    #[error(
        "cannot record the off-CPU time of holders: without root, a program that klock starts has to record its own calls; run klock as root"
    )]
    HoldersOfRunning,
    #[error("cannot record off-CPU time: {0}; or leave --off-cpu out")]
    Switches(#[from] SwitchesError),
    #[error("cannot record {sources} of all tasks; choose processes with -p, or leave --locks {word} out")]
    UprobesOfAll { sources: String, word: &'static str },
    #[error(
        "cannot record mutexes of Go by thread: a goroutine changes its thread while it waits; use -p PID"
    )]
    GoOfThreads,
    #[error(
        "cannot filter {sources} by --min-wait, which is for kernel locks and futexes; leave --min-wait out, or use --locks kernel,futex"
    )]
    UprobesMinWait { sources: String },
    #[error(
        "cannot apply {control} to {sources}: it is for {what}; use --locks kernel alone, or leave {control} out"
    )]
    KernelControl { control: &'static str, what: &'static str, sources: String },
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error(transparent)]
    Filter(#[from] FilterError),
    #[error(transparent)]
    LockLookup(#[from] LockLookupError),
    #[error(transparent)]
    Launch(#[from] LaunchError),
    #[error(
        "cannot record process {pid}: it does not exist; `pgrep -a NAME` finds the PID of a running program"
    )]
    NoProcess { pid: u32 },
    #[error(
        "cannot record process {tid}: it is a thread of process {pid}; record the process with -p {pid}, or the thread with -t {tid}"
    )]
    NotAProcess { tid: u32, pid: u32 },
    #[error(
        "cannot record user locks of process {pid}: it is a kernel thread; record its kernel locks with --locks kernel"
    )]
    KernelThread { pid: u32 },
    #[error("cannot record thread {tid}: it does not exist; `ps -eLf` lists threads (column LWP)")]
    NoTask { tid: u32 },
    #[error("cannot record cgroup {}: it does not exist; `systemd-cgls` or `find /sys/fs/cgroup -type d` lists cgroups", path.display())]
    NoCgroup { path: PathBuf },
    #[error(transparent)]
    Output(#[from] FormatError),
    #[error("cannot record: the limit on open files ({limit}) is too low; raise it with `ulimit -n`")]
    Descriptors { limit: u64 },
    #[error("cannot {what}: {}", launch::system_message(source))]
    System {
        what: &'static str,
        #[source]
        source: io::Error,
    },
}

/// The class of an error, from which klock derives its exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// The arguments name something that does not exist, or contradict each other.
    BadInput,
    /// This machine does not permit or support it.
    NotPossible,
    Disk,
}

impl RecordError {
    /// Replaces an error that the limit on open files has caused, and which may name another reason.
    pub(crate) fn or_descriptor_limit(self) -> Self {
        let limit = "(os error 24)";
        if causes(&self).any(|cause| cause.to_string().contains(limit)) || !has_free_descriptors() {
            Self::Descriptors { limit: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) }
        } else {
            self
        }
    }

    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Plan(PlanError::Nothing)
            | Self::NoProcess { .. }
            | Self::NotAProcess { .. }
            | Self::KernelThread { .. }
            | Self::NoTask { .. }
            | Self::UprobesOfAll { .. }
            | Self::GoOfThreads
            | Self::UprobesMinWait { .. }
            | Self::KernelControl { .. }
            | Self::PreloadOfRunning
            | Self::LosslessOfRunning
            | Self::HoldersOfRunning
            | Self::Filter(_)
            | Self::LockLookup(LockLookupError::Unknown { .. })
            | Self::NoCgroup { .. } => ErrorClass::BadInput,
            Self::Launch(LaunchError::System(_)) => ErrorClass::NotPossible,
            Self::Launch(_) => ErrorClass::BadInput,
            Self::Output(error) if error.is_disk_failure() => ErrorClass::Disk,
            Self::Output(_) => ErrorClass::BadInput,
            Self::Plan(_)
            | Self::Load(_)
            | Self::LockLookup(_)
            | Self::Libc(_)
            | Self::Unloadable(_)
            | Self::Library(_)
            | Self::NeitherWay { .. }
            | Self::Switches(_)
            | Self::Control(_)
            | Self::Descriptors { .. }
            | Self::System { .. } => ErrorClass::NotPossible,
        }
    }
}

/// Whether as many files can be opened as the BPF programs, their maps and their probes take. Below that the
/// loader fails with errors that name other reasons: it takes a feature for missing if it cannot try it.
fn has_free_descriptors() -> bool {
    let open: Result<Vec<_>, _> = (0..100).map(|_| std::fs::File::open("/dev/null")).collect();
    open.is_ok()
}

#[cfg(test)]
mod tests {
    use trace_format::output::OutputError;

    use super::*;

    #[test]
    fn a_missing_process_is_bad_input_and_a_missing_capability_is_not() {
        assert_eq!(RecordError::NoProcess { pid: 1 }.class(), ErrorClass::BadInput);
        let refused = RecordError::from(PlanError::Capability { missing: "CAP_BPF" });
        assert_eq!(refused.class(), ErrorClass::NotPossible);
        let full = io::Error::from(io::ErrorKind::StorageFull);
        let full = RecordError::from(FormatError::Output(OutputError::Io { path: "t".into(), source: full }));
        assert_eq!(full.class(), ErrorClass::Disk);
    }
}
