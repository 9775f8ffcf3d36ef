//! Finds the files to probe in processes that start during the recording, on a thread of its own, because a
//! hostile file can delay that and the rings fill meanwhile.

use std::{
    sync::mpsc::{self, Receiver, Sender},
    time::Duration,
};

use crate::{
    names::files::TargetFiles,
    sources::LockSources,
    sources::{languages as slow_paths, pthread as uprobes, pthread::ProbedFile},
};

/// A process, and the locks to find functions of.
type Request = (u32, LockSources);

type Found = (u32, Vec<ProbedFile>);

/// The ends of the thread's channels.
type Channels = (Sender<Request>, Receiver<Found>);

/// Finds libcs, and programs with locks of their own. The thread starts with the first request.
#[derive(Debug, Default)]
pub(super) struct FileFinder {
    /// The files to use, until the first request.
    pub(super) files: Option<TargetFiles>,
    thread: Option<Channels>,
    /// Number of requests without an answer.
    pending: usize,
}

impl FileFinder {
    /// Requests the files of a process that have functions of these locks.
    pub(super) fn request(&mut self, pid: u32, locks: LockSources) {
        if locks.by_uprobes() == LockSources::NONE {
            return;
        }
        if self.thread.is_none() {
            self.thread = start(self.files.take().unwrap_or_default());
        }
        if let Some((requests, _)) = &self.thread {
            self.pending += usize::from(requests.send((pid, locks)).is_ok());
        }
    }

    /// Returns the next process and its files, if they are found within this time.
    pub(super) fn next_within(&mut self, limit: Duration) -> Option<Found> {
        if self.pending == 0 {
            return None;
        }
        let found = self.thread.as_ref()?.1.recv_timeout(limit).ok()?;
        self.pending -= 1;
        Some(found)
    }
}

/// Starts the thread. If that fails, later processes get no probes.
fn start(mut files: TargetFiles) -> Option<Channels> {
    let (requests, inbox) = mpsc::channel::<Request>();
    let (outbox, found) = mpsc::channel();
    let find = move || {
        for (pid, locks) in inbox {
            if outbox.send((pid, files_of(pid, locks, &mut files))).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("klock-files".to_owned()).spawn(find).ok()?;
    Some((requests, found))
}

fn files_of(pid: u32, locks: LockSources, files: &mut TargetFiles) -> Vec<ProbedFile> {
    let libc = locks.pthread.then(|| uprobes::libc_of_process(pid, files).ok()).flatten();
    let program = (locks.rust || locks.go).then(|| slow_paths::of_process(pid, files)).flatten();
    let program = program.and_then(|mut program| {
        program.find_slow_paths(locks, files);
        program.probed?.ok()
    });
    libc.into_iter().chain(program).collect()
}
