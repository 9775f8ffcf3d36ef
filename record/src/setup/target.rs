//! Resolves a target: checks that it exists, and finds the processes, the program and the libcs that belong
//! to it.
//!
//! Every mistake in a target is reported here, before anything is loaded or written.

use std::{os::fd::OwnedFd, path::PathBuf};

use crate::{
    error::RecordError,
    names::files::TargetFiles,
    options::Target,
    setup::{launch, plan::TargetMode},
    sources::{
        pthread as uprobes,
        pthread::{LibcError, ProbedFile},
    },
    system::{control_groups, procfs},
};

#[derive(Debug)]
pub(crate) struct ResolvedTarget {
    /// The rule that the BPF programs apply.
    pub mode: TargetMode,
    /// The PIDs or TIDs for the target map.
    pub ids: Vec<u32>,
    /// The processes whose libc gets uprobes.
    pub processes: Vec<u32>,
    /// The program of a command that is not started yet.
    pub program: Option<PathBuf>,
    /// The recording ends when all of these have ended.
    followed: Vec<Followed>,
}

/// A process or thread whose end is noticed.
#[derive(Debug)]
enum Followed {
    Process(OwnedFd),
    Thread { pid: u32, tid: u32 },
}

impl ResolvedTarget {
    pub(crate) fn find(target: &Target) -> Result<Self, RecordError> {
        let of = |mode| Self { mode, ids: vec![], processes: vec![], program: None, followed: vec![] };
        match target {
            Target::All => Ok(of(TargetMode::All)),
            Target::Cgroup(path) => {
                let (id, level) =
                    control_groups::find(path).ok_or_else(|| RecordError::NoCgroup { path: path.clone() })?;
                Ok(of(TargetMode::Cgroup { id, level }))
            }
            Target::Command(words) => {
                let first = words.first().map(|word| word.as_os_str()).unwrap_or_default();
                let program = launch::find(first, std::env::var_os("PATH").as_deref())?;
                Ok(Self { program: Some(program), ..of(TargetMode::Processes) })
            }
            Target::Processes(pids) => {
                let followed = pids.iter().map(|&pid| process(pid)).collect::<Result<_, _>>()?;
                let ids = pids.clone();
                Ok(Self { processes: pids.clone(), ids, followed, ..of(TargetMode::Processes) })
            }
            Target::Tasks(tids) => {
                let mut target = Self { ids: tids.clone(), ..of(TargetMode::Threads) };
                for &tid in tids {
                    let pid = procfs::process_of(tid).ok_or(RecordError::NoTask { tid })?;
                    target.followed.push(Followed::Thread { pid, tid });
                    if !target.processes.contains(&pid) {
                        target.processes.push(pid);
                    }
                }
                Ok(target)
            }
        }
    }

    /// Returns the libc of each process that gets uprobes, or why it gets none. The command, which is not
    /// started yet, has no PID.
    pub(crate) fn libcs(&self, files: &mut TargetFiles) -> Vec<(Option<u32>, Result<ProbedFile, LibcError>)> {
        let mut libcs = Vec::new();
        for &pid in &self.processes {
            libcs.push((Some(pid), uprobes::libc_of_process(pid, files)));
        }
        if let Some(program) = &self.program {
            libcs.push((None, uprobes::libc_of_command(program, files)));
        }
        libcs
    }

    /// Returns whether all processes and threads of the target have ended. Targets without any never end.
    pub(crate) fn has_ended(&self) -> bool {
        !self.followed.is_empty() && self.followed.iter().all(Followed::has_ended)
    }
}

impl Followed {
    fn has_ended(&self) -> bool {
        match self {
            Self::Process(pidfd) => launch::has_exited(pidfd),
            Self::Thread { pid, tid } => procfs::process_of(*tid) != Some(*pid),
        }
    }
}

fn process(pid: u32) -> Result<Followed, RecordError> {
    match procfs::process_of(pid) {
        Some(tgid) if tgid != pid => Err(RecordError::NotAProcess { tid: pid, pid: tgid }),
        Some(_) => launch::pidfd(pid).map(Followed::Process).ok_or(RecordError::NoProcess { pid }),
        None => Err(RecordError::NoProcess { pid }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_for_a_process_that_has_ended_names_it() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        let error = ResolvedTarget::find(&Target::Processes(vec![pid])).unwrap_err();
        assert!(error.to_string().starts_with(&format!("cannot record process {pid}:")), "{error}");
    }

    #[test]
    fn a_thread_is_not_accepted_as_a_process_and_the_error_names_its_process() {
        let (sender, tid) = std::sync::mpsc::channel();
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            sender.send(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()).unwrap();
            let _ = wait.recv();
        });
        let tid = tid.recv().unwrap();
        let error = ResolvedTarget::find(&Target::Processes(vec![tid])).unwrap_err();
        assert!(matches!(error, RecordError::NotAProcess { pid, .. } if pid == std::process::id()));
        let target = ResolvedTarget::find(&Target::Tasks(vec![tid])).unwrap();
        assert_eq!(target.processes, [std::process::id()]);
        assert!(!target.has_ended());
        drop(end);
        thread.join().unwrap();
        while !target.has_ended() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_recording_of_all_tasks_never_ends_by_itself() {
        assert!(!ResolvedTarget::find(&Target::All).unwrap().has_ended());
    }

    #[test]
    fn a_missing_command_is_reported_before_anything_is_done() {
        let error = ResolvedTarget::find(&Target::Command(vec!["no-such-command-here".into()])).unwrap_err();
        assert!(error.to_string().contains("no-such-command-here"), "{error}");
    }
}
