//! Reads the mappings of processes on a thread of its own. A process may end a moment after its first event,
//! and the symbols thread may wait for a file of another process just then.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{self, Receiver, Sender},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use super::request::{MapsText, Request, UnparsedText};
use crate::system::maps;

/// Maximum size of the texts that were read and not parsed yet.
const MAX_UNPARSED_BYTES: usize = 32 << 20;

/// A request to the thread.
#[derive(Debug)]
enum Reading {
    Mappings(u32),
    /// Asks for a message once earlier requests are read.
    Read(Sender<()>),
    /// Asks for a message once the symbols thread has what was read.
    Barrier(Sender<()>),
}

/// The thread that reads mappings.
#[derive(Debug)]
pub(super) struct Reader {
    requests: Sender<Reading>,
    thread: JoinHandle<()>,
}

impl Reader {
    /// Starts the thread, which passes what it reads to the symbols thread.
    pub(super) fn start(symbols: Sender<Request>) -> io::Result<Self> {
        let (requests, inbox) = mpsc::channel();
        let thread =
            thread::Builder::new().name("klock-mappings".to_owned()).spawn(move || run(&inbox, &symbols))?;
        Ok(Self { requests, thread })
    }

    pub(super) fn read(&self, pid: u32) {
        // Sending fails only if the thread has panicked, which reports that itself.
        let _ = self.requests.send(Reading::Mappings(pid));
    }

    /// Requests a message once all earlier requests are read.
    pub(super) fn when_read(&self, done: Sender<()>) {
        let _ = self.requests.send(Reading::Read(done));
    }

    /// Requests a message once the symbols thread has what all earlier requests read.
    pub(super) fn barrier(&self, done: Sender<()>) {
        let _ = self.requests.send(Reading::Barrier(done));
    }

    /// Waits until everything is read.
    pub(super) fn finish(self) {
        drop(self.requests);
        let _ = self.thread.join();
    }
}

fn run(inbox: &Receiver<Reading>, symbols: &Sender<Request>) {
    let unparsed = Arc::new(AtomicUsize::new(0));
    for request in inbox {
        let sent = match request {
            Reading::Mappings(pid) => {
                while unparsed.load(Ordering::Relaxed) > MAX_UNPARSED_BYTES {
                    thread::sleep(Duration::from_millis(1));
                }
                let text = UnparsedText::new(MapsText::read(pid, maps::read), &unparsed);
                symbols.send(Request::AwaitedMappings(text))
            }
            Reading::Read(done) => {
                // An error means that nobody waits any more.
                let _ = done.send(());
                continue;
            }
            Reading::Barrier(done) => symbols.send(Request::Barrier(done)),
        };
        if sent.is_err() {
            return;
        }
    }
}
