//! Turns addresses into names, on a thread of its own, so that the rings never wait for a debug file.
//!
//! A process may end a moment after its event, so its mappings are read when its first event is drained
//! ([`Symbols::read_mappings`], on another thread), long before any frame is looked up. A frame gets a module
//! only from mappings that were read while its incarnation existed; otherwise it keeps its bare address,
//! rather than a wrong module. To know when an incarnation ended, look-ups wait until all records of that
//! time are drained ([`Symbols::set_watermark`]).

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread::JoinHandle,
    time::Duration,
};

use trace_format::StackId;

use crate::{
    compose::locks::{NewLock, Space},
    kernel::peek::Peek,
    names::kernel_addresses::KernelAddresses,
    setup::btf::TypeInfo,
    stop::Stop,
    system::maps,
};

mod kernel;
mod mappings;
mod reader;
mod request;
mod worker;

pub(crate) use kernel::ReadingKernel;
pub(crate) use mappings::Mappings;
use reader::Reader;
pub(crate) use request::{CertainFrames, FoundLock, Incarnation, MapsText, RawFrames, Resolved};
use request::{Request, Shared};
use worker::Worker;

/// A handle of the symbols thread.
#[derive(Debug)]
pub(crate) struct Symbols {
    requests: Sender<Request>,
    thread: JoinHandle<Resolved>,
    /// Closed when the thread ends.
    ended: Receiver<()>,
    reader: Reader,
    requested: AtomicU64,
    shared: Arc<Shared>,
}

/// Reads mappings on another thread, and passes them to the symbols thread.
#[derive(Clone, Debug)]
pub(crate) struct MappingReader {
    requests: Sender<Request>,
    /// Whether this reader also reports the end of incarnations, because no BPF program does.
    reports_ends: bool,
}

/// Time between two reports of the look-ups that are left.
const REPORT: Duration = Duration::from_millis(50);
/// Maximum size of the mappings of a process that are read while it waits.
const MAX_MAPPINGS_BYTES: u64 = 1 << 20;

impl MappingReader {
    /// Reads the mappings of a process now, before it can end. Earlier mappings belong to the incarnation
    /// before `since_ns`. Returns the size of their text in bytes, of which no more than a megabyte is read.
    pub(crate) fn read_now(&self, pid: u32, since_ns: i64) -> u64 {
        // Sending fails only if the thread has panicked, which `finish` reports.
        if self.reports_ends {
            let _ = self.requests.send(Request::IncarnationEnded { pid, ts_ns: since_ns });
        }
        self.read_again(pid)
    }

    /// Reads the mappings of a process once more, before it ends. Returns the size of their text.
    pub(crate) fn read_again(&self, pid: u32) -> u64 {
        let text = MapsText::read(pid, |pid| maps::read_at_most(MAX_MAPPINGS_BYTES, pid));
        let bytes = text.bytes.len() as u64;
        let _ = self.requests.send(Request::Mappings(text));
        bytes
    }
}

impl Symbols {
    /// Starts the thread. With the kernel's `memory` and its types, it also names kernel locks that are not
    /// variables. Without `kernel`, the kernel's names are read when they are needed. A request to `stop`
    /// limits the time for files that are not examined yet; an urgent one leaves out all further names.
    pub(crate) fn start(
        memory: Option<(Peek, TypeInfo)>,
        kernel_addresses: KernelAddresses,
        kernel: Option<ReadingKernel>,
        stop: Stop,
    ) -> std::io::Result<Self> {
        let (requests, inbox) = mpsc::channel();
        let shared = Arc::new(Shared::default());
        let (end, ended) = mpsc::channel();
        let thread = std::thread::Builder::new().name("klock-symbols".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || {
                let _end: Sender<()> = end;
                Worker::new(memory, kernel_addresses, kernel, stop, shared).run(&inbox)
            }
        })?;
        let reader = Reader::start(requests.clone())?;
        Ok(Self { requests, thread, ended, reader, requested: AtomicU64::new(0), shared })
    }

    /// Returns a reader of mappings for another thread. With `reports_ends`, each reading ends the earlier
    /// incarnation.
    pub(crate) fn mapping_reader(&self, reports_ends: bool) -> MappingReader {
        MappingReader { requests: self.requests.clone(), reports_ends }
    }

    pub(crate) fn read_mappings(&self, pid: u32) {
        self.send(Request::AwaitMappings { pid });
        self.reader.read(pid);
    }

    /// Adds mappings that a process has had.
    pub(crate) fn add_maps(&self, text: MapsText) {
        self.send(Request::Mappings(text));
    }

    /// Reports that a PID belongs to another incarnation from now on.
    pub(crate) fn end_incarnation(&self, pid: u32, ts_ns: i64) {
        self.send(Request::IncarnationEnded { pid, ts_ns });
    }

    /// Reports that all records up to this time were drained. The thread looks at it while something waits
    /// for it.
    pub(crate) fn set_watermark(&self, ts_ns: i64) {
        self.shared.watermark_ns.fetch_max(ts_ns, Ordering::Release);
    }

    /// Requests the names of a stack's frames.
    pub(crate) fn resolve_stack(&self, id: StackId, frames: RawFrames) {
        if self.look_up(Request::Stack(id, frames)) {
            self.requested.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Requests the name of a lock; `since_ns` is the start of its incarnation.
    pub(crate) fn name_lock(&self, new: NewLock, since_ns: i64) {
        let NewLock { id: lock, address, kind, .. } = new;
        self.look_up(match new.space {
            Space::Kernel => Request::KernelLock { lock, address, kind },
            Space::Process(process, pid) => {
                Request::Lock { lock, incarnation: Incarnation { process, pid, since_ns }, address }
            }
        });
    }

    /// Sends a look-up, unless too many wait. Returns whether it did.
    fn look_up(&self, request: Request) -> bool {
        let Shared { waiting, unsent, .. } = &*self.shared;
        let has_room = self.shared.has_room();
        if has_room {
            waiting.fetch_add(1, Ordering::Relaxed);
            self.send(request);
        } else {
            unsent.fetch_add(1, Ordering::Relaxed);
        }
        has_room
    }

    /// Waits until all requested mappings are read, or until the timeout. The symbols thread may be busy with
    /// the kernel's names meanwhile.
    pub(crate) fn wait_until_read(&self, timeout: Duration) {
        self.wait(timeout, Reader::when_read);
    }

    /// Waits until the symbols thread has all requested mappings, and the mappings of all processes that it
    /// has look-ups of, or until the timeout.
    pub(crate) fn wait_for_mappings(&self, timeout: Duration) {
        self.wait(timeout, Reader::barrier);
    }

    fn wait(&self, timeout: Duration, request: impl FnOnce(&Reader, Sender<()>)) {
        let (done, wait) = mpsc::channel();
        request(&self.reader, done);
        // An error is a timeout or a panic of the thread: in both cases there is nothing to wait for.
        let _ = wait.recv_timeout(timeout);
    }

    /// Returns the number of stacks and locks that were found so far.
    pub(crate) fn found(&self) -> u64 {
        self.shared.found.load(Ordering::Relaxed)
    }

    /// Requests the results since the last such request.
    pub(crate) fn request_results(&self, answer: Sender<Resolved>) {
        self.send(Request::Results(answer));
    }

    /// Lets the thread run soon whenever it has something to look up, also on a busy machine.
    pub(crate) fn raise_priority(&self) {
        self.send(Request::RaisePriority);
    }

    /// Waits for all look-ups, and reports meanwhile how many stacks of how many are named. Returns `None` if
    /// the thread has panicked.
    pub(crate) fn finish(self, report: &mut dyn FnMut(u64, u64)) -> Option<Resolved> {
        let Self { requests, thread, ended, reader, requested, shared } = self;
        reader.finish();
        let _ = requests.send(Request::Finish);
        while ended.recv_timeout(REPORT) == Err(RecvTimeoutError::Timeout) {
            report(shared.named.load(Ordering::Relaxed), requested.load(Ordering::Relaxed));
        }
        thread.join().ok()
    }

    fn send(&self, request: Request) {
        // Sending fails only if the thread has panicked, which `finish` reports.
        let _ = self.requests.send(request);
    }
}

#[cfg(test)]
mod tests;
