//! The host side of the in-process recorder: a program that klock starts loads a library that records its lock calls into
//! memory that it shares with klock. No root and nothing in the kernel is needed.
//!
//! A process asks for memory ([`server`], [`region`]); one thread empties it ([`drain`]) into a queue ([`spool`]); the
//! recording takes it from there, puts it in order ([`lanes`], with [`clock`] and [`records`]) and makes rows of it
//! ([`compose`](crate::compose)). [`library`] is the file that programs load, [`fitness`] tells which programs can.

pub mod clock;
pub mod drain;
#[cfg(test)]
mod fake;
pub mod fitness;
pub mod lanes;
pub mod library;
pub mod records;
pub mod region;
pub mod server;
pub mod spool;

use std::{
    ffi::OsString,
    io,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use trace_format::{
    LockKind,
    preload::{RINGS_AT, SOCKET_VARIABLE, clock as record_clock},
    run_info::Source,
};

use crate::{filters::Filters, symbols::Watcher};
use clock::Timeline;
use drain::Intake;
use fitness::Loading;
use lanes::Lanes;
use library::Library;
use region::Manner;
use server::{Handle, Server};
use spool::Spool;

/// What is asked of the in-process recorder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// Bytes of a thread's ring, a power of two.
    pub ring_bytes: Option<u64>,
    /// Frames per stack.
    pub max_stack: Option<u32>,
    /// A thread whose ring is full waits for klock.
    pub lossless: bool,
}

/// Bytes of a thread's ring, if nothing else is asked for and the machine has memory for it: what a thread that does nothing but
/// lock records in a quarter of a second. Half of it was too little now and then: memory that is touched for the first time can
/// hold up the thread that empties the rings for longer than a tenth of a second.
pub const RING_BYTES: u64 = 128 << 20;
/// Rings of that size that a region has room for.
const RINGS: u64 = 16;
/// Bytes of the smallest ring: what a thread records in a slice of processor time fits.
const LEAST_RING_BYTES: u64 = 1 << 20;
/// Bytes of a process's region, of which only what is used takes memory: rings for hundreds of threads.
const MOST_REGION_BYTES: u64 = 2 << 30;
const LEAST_REGION_BYTES: u64 = 256 << 20;
/// Of the machine's memory, in parts: no region is larger than one of these.
const PART_OF_MEMORY: u64 = 4;

impl Wish {
    fn manner(&self) -> Manner {
        let memory = spool::memory_bytes().map_or(0, |bytes| bytes as u64);
        let region = (memory / PART_OF_MEMORY).clamp(LEAST_REGION_BYTES, MOST_REGION_BYTES);
        let region = 1 << region.ilog2();
        let ring_bytes = self.ring_bytes.unwrap_or_else(|| RING_BYTES.min(region / RINGS)).max(4096);
        Manner {
            bytes: region.max(RINGS_AT as u64 + RINGS * ring_bytes).next_power_of_two(),
            ring_bytes,
            least_ring_bytes: ring_bytes.min(LEAST_RING_BYTES),
            max_frames: self.max_stack.unwrap_or(MAX_STACK),
            clock: clock::cheapest(),
            lossless: self.lossless,
        }
    }
}

/// The recorder's side in klock, running.
#[derive(Debug)]
pub struct Preload {
    library: Option<Library>,
    socket: String,
    server: Handle,
    intake: Arc<Intake>,
    spool: Arc<Spool>,
    /// What was taken out of the spool.
    pub lanes: Lanes,
    threads: Vec<JoinHandle<()>>,
}

/// Time between the two first readings of the clocks.
const FIRST_READINGS: Duration = Duration::from_millis(2);

impl Preload {
    /// Writes the library and starts to wait for processes; `watcher` is told of each.
    pub fn start(wish: &Wish, watcher: Watcher) -> io::Result<Self> {
        // The guardian forks off while there are few threads.
        let library = Library::write()?;
        let server = Server::listen()?;
        let manner = wish.manner();
        let (intake, spool) = (Arc::new(Intake::default()), Arc::new(Spool::new()));
        let first = clock::read(manner.clock);
        thread::sleep(FIRST_READINGS);
        let timeline = Timeline::new(first, clock::read(manner.clock));
        let (handle, socket) = (server.handle(), server.name().to_owned());
        let mut threads = Vec::new();
        let theirs = Arc::clone(&intake);
        threads.push(
            thread::Builder::new()
                .name("klock-preload".to_owned())
                .spawn(move || server.run(&manner, &theirs, &watcher))?,
        );
        let (theirs, queue) = (Arc::clone(&intake), Arc::clone(&spool));
        threads.push(
            thread::Builder::new()
                .name("klock-drain".to_owned())
                .spawn(move || drain::run(&theirs, &queue, manner.clock))?,
        );
        let lanes = Lanes::new(timeline);
        Ok(Self { library: Some(library), socket, server: handle, intake, spool, lanes, threads })
    }

    /// What the command's environment gets, given what is in klock's own.
    pub fn environment(&self, loading: &Loading) -> Vec<(OsString, OsString)> {
        let before = std::env::var_os("LD_PRELOAD");
        let mut variables = Vec::new();
        if let Some(library) = &self.library {
            variables.push((
                OsString::from("LD_PRELOAD"),
                library::preload_value(library.path(), before.as_deref()),
            ));
        }
        variables.push((OsString::from(SOCKET_VARIABLE), OsString::from(&self.socket)));
        variables.extend(loading.environment(|name| std::env::var_os(name)));
        variables
    }

    /// The library stays where it is as long as this process runs.
    pub fn serves(&mut self, pid: u32) {
        if let Some(library) = &mut self.library {
            library.stays_for(pid);
        }
    }

    /// Takes in what was drained, as long as not too much waits to be put in order. `false` if nothing was there.
    pub fn take_in(&mut self) -> bool {
        let mut some = false;
        loop {
            let spent = self.lanes.take_spent();
            let Some(batch) = self.spool.pop(spent) else { return some };
            some = true;
            self.lanes.take_in(batch);
            if self.lanes.pending() >= MOST_PENDING {
                return some;
            }
        }
    }

    /// Whether what was recorded should wait, because the rings fill and there is room for it: on a busy machine the thread that
    /// empties them is what the processors have to be left to.
    pub fn gives_way(&self) -> bool {
        self.intake.is_pressed() && !self.spool.is_half_full()
    }

    /// The time up to which everything that was taken in can be composed.
    pub fn due_ns(&self) -> u64 {
        if self.lanes.pending() == 0 { 0 } else { self.lanes.settled_ns() }
    }

    /// Whether there is more to take in.
    pub fn has_more(&self) -> bool {
        !self.spool.is_empty()
    }

    /// Asks all processes to record no more. What they recorded comes until [`is_done`](Self::is_done).
    pub fn stop(&self) {
        self.server.end();
        self.intake.stop();
    }

    /// Whether everything that was recorded is in the spool.
    pub fn is_done(&self) -> bool {
        self.intake.is_done()
    }

    /// What the rings and their processes counted.
    pub fn counted(&self) -> Counted {
        let lanes::Counted { delivered, lost, undecodable, late } = self.lanes.counted();
        Counted {
            delivered,
            ring_full: lost,
            no_place: self.intake.unplaced(),
            undecodable: undecodable + self.intake.nonsense(),
            late,
            processes: self.intake.images(),
        }
    }

    /// Ends the threads and removes the library; with `command_goes_on` it stays until the command ends.
    pub fn finish(mut self, command_goes_on: bool) {
        self.stop();
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
        if let Some(library) = self.library.take().filter(|_| command_goes_on) {
            library.leave_to_guardian();
        }
    }
}

/// Frames per stack, if nothing else is asked for.
pub const MAX_STACK: u32 = 127;
/// The name under which the trace lists what was counted.
pub const PROGRAM: &str = "preload";

/// How a command records itself here, for people.
pub fn words() -> String {
    let clock =
        if clock::cheapest() == record_clock::TSC { "the time-stamp counter" } else { "the kernel's clock" };
    format!("every call, in the process itself, by {clock}; no root needed")
}

/// What processes that record themselves tell, and what they can't, for the trace.
pub fn sources(futexes: bool, filters: &Filters) -> Vec<Source> {
    let mut limits = vec![
        "pthread calls in the process: programs that the command starts are not recorded if they are linked statically, gain \
         rights, use another libc than glibc or clear LD_PRELOAD"
            .to_owned(),
        "user stacks by frame pointers: the caller is always right, frames above code without them are missing".to_owned(),
    ];
    if !futexes {
        limits.push(
            "pthread waits: sleeping and run-queue time and wakers need --locks futex too, and root"
                .to_owned(),
        );
    }
    limits.extend(filters.limits_of_all());
    let source = |name: &str, kinds: &[LockKind], holds, limits| Source {
        name: name.to_owned(),
        kinds: kinds.iter().map(LockKind::to_string).collect(),
        uncontended: true,
        holds,
        limits,
    };
    let held = [LockKind::PthreadMutex, LockKind::PthreadRwLock, LockKind::PthreadSpin];
    let idled = [LockKind::CondVar, LockKind::UserSemaphore, LockKind::Barrier];
    vec![
        source("pthread_preload", &held, true, limits),
        source("pthread_preload_idle", &idled, false, Vec::new()),
    ]
}

/// Units that may wait to be put in order; more stay in the spool.
const MOST_PENDING: usize = 4 << 20;

/// What the in-process recorder counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Records that came through.
    pub delivered: u64,
    /// Records that found no room in their ring.
    pub ring_full: u64,
    /// Records of threads that found no slot or no ring.
    pub no_place: u64,
    /// Memory that made no sense.
    pub undecodable: u64,
    /// Records that came after a younger one was let go.
    pub late: u64,
    /// Processes that were recorded, each program that they ran counted.
    pub processes: u64,
}

impl Drop for Preload {
    fn drop(&mut self) {
        // Also where the recording could not begin.
        self.stop();
    }
}
