//! Whose locks: the target as it was asked for, made into what the kernel side filters by and what the host side
//! follows. Everything that can be wrong with a target is found here, before anything is loaded or written.

use std::{
    os::fd::{AsRawFd, OwnedFd},
    path::PathBuf,
};

use crate::{
    Locks, RecordError, Target, launch,
    plan::TargetMode,
    procfs,
    uprobes::{self, Libc, NoLibc},
};

/// A target that exists.
#[derive(Debug)]
pub struct Subject {
    /// What the kernel side filters by.
    pub mode: TargetMode,
    /// Processes or threads for the kernel side's map of targets.
    pub ids: Vec<u32>,
    /// Processes whose libc gets probes.
    pub processes: Vec<u32>,
    /// The program of a command that is still to be started.
    pub program: Option<PathBuf>,
    /// Handles of the processes and threads that the recording ends with.
    followed: Vec<Followed>,
}

#[derive(Debug)]
enum Followed {
    Process(OwnedFd),
    Thread { pid: u32, tid: u32 },
}

impl Subject {
    /// Looks the target up.
    pub fn find(target: &Target) -> Result<Self, RecordError> {
        let of = |mode| Self { mode, ids: vec![], processes: vec![], program: None, followed: vec![] };
        match target {
            Target::All => Ok(of(TargetMode::All)),
            Target::Cgroup(path) => {
                let (id, level) =
                    procfs::cgroup(path).ok_or_else(|| RecordError::NoCgroup { path: path.clone() })?;
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
                let mut subject = Self { ids: tids.clone(), ..of(TargetMode::Threads) };
                for &tid in tids {
                    let pid = procfs::process_of(tid).ok_or(RecordError::NoTask { tid })?;
                    subject.followed.push(Followed::Thread { pid, tid });
                    if !subject.processes.contains(&pid) {
                        subject.processes.push(pid);
                    }
                }
                Ok(subject)
            }
        }
    }

    /// The libc of each process that gets probes, or why it gets none.
    pub fn libcs(&self) -> Vec<(Option<u32>, Result<Libc, NoLibc>)> {
        let running = self.processes.iter().map(|&pid| (Some(pid), uprobes::libc_of_process(pid)));
        let starting = self.program.iter().map(|program| (None, uprobes::libc_of_command(program)));
        running.chain(starting).collect()
    }

    /// Whether everybody whom the recording follows has ended. Never, if it follows nobody.
    pub fn is_gone(&self) -> bool {
        !self.followed.is_empty()
            && self.followed.iter().all(|followed| match followed {
                Followed::Process(fd) => ended(fd),
                Followed::Thread { pid, tid } => procfs::process_of(*tid) != Some(*pid),
            })
    }
}

fn process(pid: u32) -> Result<Followed, RecordError> {
    match procfs::process_of(pid) {
        Some(tgid) if tgid != pid => Err(RecordError::NotAProcess { tid: pid, pid: tgid }),
        Some(_) => launch::pidfd(pid).map(Followed::Process).ok_or(RecordError::NoProcess { pid }),
        None => Err(RecordError::NoProcess { pid }),
    }
}

/// A process handle can be read once the process has ended.
fn ended(fd: &OwnedFd) -> bool {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd, ours, that lives through the call, which returns at once.
    unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
}

/// The locks to record, and whether each was asked for by name.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// The locks.
    pub locks: Locks,
    /// Asked for by name: what can't be had is refused. Otherwise it is left out with a warning.
    pub explicit: bool,
}

impl Choice {
    /// What was chosen, or what fits the target.
    pub fn of(chosen: Option<Locks>, target: &Target) -> Self {
        Self { locks: chosen.unwrap_or_else(|| target.default_locks()), explicit: chosen.is_some() }
    }
}

impl From<NoLibc> for RecordError {
    fn from(reason: NoLibc) -> Self {
        Self::NoLibc(reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_gone_is_named() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        let error = Subject::find(&Target::Processes(vec![pid])).unwrap_err();
        assert!(error.to_string().starts_with(&format!("no process {pid};")), "{error}");
    }

    #[test]
    fn a_thread_is_no_process_and_the_error_says_whose_it_is() {
        let (told, tid) = std::sync::mpsc::channel();
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            // SAFETY: the call has no preconditions.
            told.send(unsafe { libc::gettid() } as u32).unwrap();
            let _ = wait.recv();
        });
        let tid = tid.recv().unwrap();
        let error = Subject::find(&Target::Processes(vec![tid])).unwrap_err();
        assert!(matches!(error, RecordError::NotAProcess { pid, .. } if pid == std::process::id()));
        let subject = Subject::find(&Target::Tasks(vec![tid])).unwrap();
        assert_eq!(subject.processes, [std::process::id()]);
        assert!(!subject.is_gone());
        drop(end);
        thread.join().unwrap();
        while !subject.is_gone() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_recording_of_all_tasks_follows_nobody() {
        assert!(!Subject::find(&Target::All).unwrap().is_gone());
    }

    #[test]
    fn a_command_that_does_not_exist_is_found_out_before_anything_is_done() {
        let error = Subject::find(&Target::Command(vec!["no-such-command-here".into()])).unwrap_err();
        assert!(error.to_string().starts_with("command not found: no-such-command-here"));
    }
}
