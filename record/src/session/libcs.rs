//! Finds the libcs of new processes on a thread of its own, because a hostile file can delay that and the rings fill meanwhile.

use std::{
    sync::mpsc::{self, Receiver, Sender},
    time::Duration,
};

use crate::{
    target_files::TargetFiles,
    uprobes::{self, Libc, LibcError},
};

type Found = (u32, Result<Libc, LibcError>);

/// Finds libcs. The thread starts with the first request.
#[derive(Debug, Default)]
pub(super) struct LibcFinder {
    files: Option<TargetFiles>,
    thread: Option<(Sender<u32>, Receiver<Found>)>,
    /// Number of requests without an answer.
    pending: usize,
}

impl LibcFinder {
    /// Sets the files to use, before the first request.
    pub(super) fn set_files(&mut self, files: TargetFiles) {
        self.files = Some(files);
    }

    /// Requests the libc of a process.
    pub(super) fn request(&mut self, pid: u32) {
        if self.thread.is_none() {
            self.thread = start(self.files.take().unwrap_or_default());
        }
        if let Some((requests, _)) = &self.thread {
            self.pending += usize::from(requests.send(pid).is_ok());
        }
    }

    /// Returns the next process and its libc, if it is found within this time.
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
fn start(mut files: TargetFiles) -> Option<(Sender<u32>, Receiver<Found>)> {
    let (requests, inbox) = mpsc::channel::<u32>();
    let (outbox, found) = mpsc::channel();
    let find = move || {
        for pid in inbox {
            let libc = uprobes::libc_of_process(pid, &mut files);
            if outbox.send((pid, libc)).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("klock-libcs".to_owned()).spawn(find).ok()?;
    Some((requests, found))
}
