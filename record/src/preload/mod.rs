//! The host side of the in-process recorder: a program that klock starts loads a library that records its
//! lock calls into memory that it shares with klock. This needs neither root nor the kernel.
//!
//! A process asks for memory ([`server`], [`region`], [`queue`]) and gets a [`budget`]. One thread empties it
//! ([`drain`]) into a [`Spool`]. The recording takes batches ([`batch`]) from there, merges them into the
//! order of time ([`merge`], with [`clock`] and [`records`]) and turns them into rows
//! ([`compose`](crate::compose)). [`library`] is the file that programs load; [`fitness`] decides which
//! programs can load it.

pub(crate) mod batch;
pub(crate) mod budget;
pub(crate) mod clock;
pub(crate) mod drain;
#[cfg(test)]
pub(crate) mod fake;
pub(crate) mod fitness;
pub(crate) mod library;
pub(crate) mod merge;
pub(crate) mod queue;
mod random;
pub(crate) mod records;
pub(crate) mod region;
pub(crate) mod server;

use std::{
    ffi::OsString,
    io,
    sync::{Arc, atomic::Ordering},
    thread::{self, JoinHandle},
    time::Duration,
};

use trace_format::{
    preload::{SECCOMP_VARIABLE, SOCKET_VARIABLE, Unrecorded, clock as record_clock},
    run_info::{Loss, ProgramCounters, RunInfo, Source},
    text::counted,
};

use crate::{
    names::symbols::MappingReader,
    setup::filters::Filters,
    sources::{BY_FRAME_POINTERS, TraceSource},
    system::procfs,
};
use batch::Batch;
use budget::Ledger;
use clock::Timeline;
use library::Library;
use merge::{MergeStats, Merger};
use queue::DrainQueue;
use queue::Spool;
use region::RegionConfig;
use server::{Handle, Server};

/// Options of the in-process recorder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PreloadOptions {
    /// Maximum bytes of the memory that a process shares with klock.
    pub pool_bytes: Option<u64>,
    /// Frames per stack.
    pub max_stack: Option<u32>,
    /// A thread that finds no chunk waits for klock.
    pub lossless: bool,
    /// The bound of random numbers that select a call without a wait; 0 for all.
    pub sample_below: u32,
    /// Calls on spinlocks are not recorded.
    pub no_spin: bool,
}

/// Maximum bytes of a process's pool. Only chunks that were used take memory, but all of it counts against
/// the process's own limit of addresses, of which the library takes a sixteenth at most.
const MAX_POOL_BYTES: u64 = 512 << 20;
const MIN_POOL_BYTES: u64 = 128 << 20;
/// Maximum fraction of the machine's memory for a pool.
const MEMORY_FRACTION: u64 = 4;

impl PreloadOptions {
    fn region_config(&self) -> RegionConfig {
        let memory = queue::memory_bytes().map_or(0, |bytes| bytes as u64);
        let default = (memory / MEMORY_FRACTION).clamp(MIN_POOL_BYTES, MAX_POOL_BYTES);
        let pool_bytes = self.pool_bytes.unwrap_or(1 << default.ilog2()).max(RegionConfig::MIN_POOL_BYTES);
        RegionConfig {
            pool_bytes,
            chunk_bytes: RegionConfig::chunk_bytes(pool_bytes),
            max_frames: self.max_stack.unwrap_or(MAX_STACK),
            clock: clock::cheapest(),
            lossless: self.lossless,
            sample_below: self.sample_below,
            no_spin: self.no_spin,
        }
    }
}

/// The host side of a running recording.
#[derive(Debug)]
pub(crate) struct Preload {
    library: Library,
    socket: OsString,
    server: Handle,
    pub(crate) queue: Arc<DrainQueue>,
    pub(crate) spool: Arc<Spool>,
    /// Merges the batches of the spool.
    pub merger: Merger,
    /// Records that were left out because the recording had to end at once.
    abandoned: u64,
    threads: Vec<JoinHandle<()>>,
}

/// Environment variable with the options of address sanitizers.
const SANITIZER_VARIABLE: &str = "ASAN_OPTIONS";
/// Time between the first two readings of the clocks.
const FIRST_READINGS: Duration = Duration::from_millis(2);

impl Preload {
    /// Starts to serve processes that load `library`; `mappings` reads the mappings of each.
    pub(crate) fn start(
        library: Library,
        options: &PreloadOptions,
        mappings: MappingReader,
    ) -> io::Result<Self> {
        let server = Server::listen(library.directory())?;
        let config = options.region_config();
        let ledger = Ledger::of_this_machine(queue::memory_bytes().map_or(1 << 30, |bytes| bytes as u64));
        let (queue, spool) = (Arc::new(DrainQueue::new(ledger)), Arc::new(Spool::new()));
        let first = clock::read(config.clock);
        thread::sleep(FIRST_READINGS);
        let timeline = Timeline::new(first, clock::read(config.clock));
        let (handle, socket) = (server.handle(), server.variable());
        let mut threads = Vec::new();
        let shared = Arc::clone(&queue);
        threads.push(
            thread::Builder::new()
                .name("klock-preload".to_owned())
                .spawn(move || server.run(&config, &shared, &mappings))?,
        );
        let (shared, out) = (Arc::clone(&queue), Arc::clone(&spool));
        threads.push(
            thread::Builder::new()
                .name("klock-drain".to_owned())
                .spawn(move || drain::run(&shared, &out, config.clock))?,
        );
        let merger = Merger::new(timeline);
        Ok(Self { library, socket, server: handle, queue, spool, merger, abandoned: 0, threads })
    }

    /// Variables to set in the command's environment, given those in klock's own.
    pub(crate) fn environment(&self) -> Vec<(OsString, OsString)> {
        let before = std::env::var_os("LD_PRELOAD");
        let value = library::preload_value(&self.library.path, before.as_deref());
        let mut variables = vec![
            (OsString::from("LD_PRELOAD"), value),
            (OsString::from(SOCKET_VARIABLE), self.socket.clone()),
        ];
        if let Some(filters) = procfs::seccomp_filters() {
            variables.push((OsString::from(SECCOMP_VARIABLE), OsString::from(filters.to_string())));
        }
        // Any program of the command may have an address sanitizer, which insists on being the first library.
        let mut options = std::env::var_os(SANITIZER_VARIABLE).unwrap_or_default();
        options.push(if options.is_empty() { "" } else { ":" });
        options.push("verify_asan_link_order=0");
        variables.push((OsString::from(SANITIZER_VARIABLE), options));
        variables
    }

    /// Takes the oldest drained batch.
    pub(crate) fn take_batch(&mut self) -> Option<Batch> {
        let free = self.merger.take_free_buffers();
        self.spool.pop(free)
    }

    /// Adds batches from `next`, given this, to the merger until it has enough to do. Returns `false` if
    /// there were none.
    pub(crate) fn add_batches(&mut self, mut next: impl FnMut(&mut Self) -> Option<Batch>) -> bool {
        let mut some = false;
        loop {
            let Some(batch) = next(self) else { return some };
            some = true;
            self.merger.add_batch(batch);
            if self.merger.pending() >= MAX_PENDING {
                return some;
            }
        }
    }

    /// Drops everything in the merger, and counts it as lost.
    pub(crate) fn abandon(&mut self) {
        let before = self.merger.stats().delivered;
        self.merger.emit(u64::MAX, &mut { usize::MAX }, |_, _, _| {});
        self.abandoned += self.merger.stats().delivered - before;
    }

    /// Whether merging should wait: pools fill, the spool has room, and on a busy machine the processors
    /// should be left to the thread that reads them.
    pub(crate) fn has_backpressure(&self) -> bool {
        self.queue.has_backpressure() && !self.spool.is_half_full()
    }

    /// Whether there is room for records that wait to be composed.
    pub(crate) fn may_wait(&self) -> bool {
        !self.spool.is_half_full() && !self.queue.ledger.is_filling()
    }

    /// The time up to which everything in the merger can be composed.
    pub(crate) fn due_ns(&self) -> u64 {
        if self.merger.pending() == 0 { 0 } else { self.merger.settled_ns() }
    }

    pub(crate) fn has_more(&self) -> bool {
        !self.spool.is_empty()
    }

    /// Stops the recording in all processes. Their last batches come until [`is_done`](Self::is_done).
    pub(crate) fn stop(&self) {
        self.server.stop();
        self.queue.stop();
        self.drain_now();
    }

    /// Ends the sleep of the thread that drains.
    pub(crate) fn drain_now(&self) {
        if let Some(drain) = self.threads.last() {
            drain.thread().unpark();
        }
    }

    /// Whether everything that was recorded is in the spool.
    pub(crate) fn is_done(&self) -> bool {
        self.queue.is_done()
    }

    /// Adds the counts so far to the loss table. Returns the number of events of threads that got no slot, or
    /// were abandoned.
    pub(crate) fn add_to(&self, loss: &mut Loss) -> u64 {
        let MergeStats { delivered, lost, nested, undecodable, late } = self.merger.stats();
        let DrainQueue { unrecorded, invalid_slots, ledger, .. } = &*self.queue;
        let no_place = unrecorded.load(Ordering::Relaxed) + self.abandoned;
        loss.ring_full += lost;
        loss.guard += nested;
        loss.no_place += no_place;
        loss.undecodable += undecodable + invalid_slots.load(Ordering::Relaxed) + ledger.ended();
        loss.late += late;
        loss.by_program.push(ProgramCounters {
            program: PROGRAM.to_owned(),
            delivered: delivered - self.abandoned,
            ring_full: lost,
            guard: nested,
            no_place,
            ..ProgramCounters::default()
        });
        no_place
    }

    /// Returns the number of programs of the command that got no region, and of children that wanted one.
    pub(crate) fn unrecorded_programs(&self) -> u64 {
        let DrainQueue { started, joined_programs, .. } = &*self.queue;
        // The command itself is one of them.
        (1 + started.load(Ordering::Relaxed)).saturating_sub(joined_programs.load(Ordering::Relaxed))
    }

    /// Returns a sentence on the programs that did not record themselves, if there are any. Known at the end.
    pub(crate) fn unrecorded(&self) -> Option<String> {
        let count = Some(self.unrecorded_programs()).filter(|count| *count > 0)?;
        let mut reasons: Vec<(u64, &str)> = Unrecorded::ALL
            .iter()
            .zip(&self.queue.unrecorded_programs)
            .map(|(reason, programs)| (programs.load(Ordering::Relaxed), words_of(*reason)))
            .filter(|(programs, _)| *programs > 0)
            .collect();
        let known: u64 = reasons.iter().map(|(programs, _)| programs).sum();
        let others = match self.queue.not_accepted.load(Ordering::Relaxed) {
            0 => "linked statically, of another libc, with more rights, or at a limit of files or addresses",
            _ => "klock reached its limit on open files; raise it with `ulimit -n`",
        };
        reasons.extend(Some((count.saturating_sub(known), others)).filter(|(others, _)| *others > 0));
        let reasons: Vec<String> =
            reasons.iter().map(|(programs, words)| format!("{programs} {words}")).collect();
        let reasons = reasons.join("; ");
        let of = ["program or child did not record its", "programs or children did not record their"];
        Some(format!("{} pthread calls: {reasons}", counted(count, of[0], of[1])))
    }

    /// Returns a sentence for each way in which processes broke the rules, for the trace.
    pub(crate) fn notes(&self) -> Vec<String> {
        let DrainQueue { foreign, clockless, unknown_clocks, refused, ledger, .. } = &*self.queue;
        let all = [
            (
                foreign,
                ["thread", "threads"],
                "claimed the id of another process's thread, and recorded as its own process's first thread",
            ),
            (
                clockless,
                ["process", "processes"],
                "without a clock to read any more (seccomp, PR_SET_TSC): later calls are counted as lost",
            ),
            (
                unknown_clocks,
                ["process", "processes"],
                "not recorded, because of a time namespace made for children: the offset of the own clock is not known",
            ),
            (refused, ["request", "requests"], "without the recording's secret refused"),
        ];
        let all = all.map(|(counter, of, what)| (counter.load(Ordering::Relaxed), of, what));
        let all = all.into_iter().filter(|(count, ..)| *count > 0);
        let unrecorded = self.is_done().then(|| self.unrecorded()).flatten();
        unrecorded
            .into_iter()
            .chain(ledger.notes())
            .chain(all.map(|(count, [one, more], what)| format!("{} {what}", counted(count, one, more))))
            .collect()
    }

    /// Ends the threads. The library's file stays.
    pub(crate) fn finish(mut self) {
        self.stop();
        for thread in self.threads.drain(..) {
            // A thread that panicked has reported that.
            let _ = thread.join();
        }
    }
}

fn words_of(reason: Unrecorded) -> &'static str {
    match reason {
        Unrecorded::Cleared => "started without LD_PRELOAD",
        Unrecorded::Elsewhere => "in another root or mount namespace",
        Unrecorded::Static => "linked statically",
        Unrecorded::OtherMachine => "of 32 bits",
        Unrecorded::GainsRights => "gain rights",
    }
}

/// Replaces the losses of processes that recorded themselves by those that `stats` has.
pub(crate) fn set_losses(stats: &MergeStats, info: &mut RunInfo) {
    let loss = &mut info.loss;
    let Some(program) = loss.by_program.iter_mut().find(|program| program.program == PROGRAM) else { return };
    loss.ring_full = (loss.ring_full + stats.lost).saturating_sub(program.ring_full);
    loss.guard = (loss.guard + stats.nested).saturating_sub(program.guard);
    loss.undecodable = loss.undecodable.max(stats.undecodable);
    loss.late = loss.late.max(stats.late);
    (program.delivered, program.ring_full, program.guard) = (stats.delivered, stats.lost, stats.nested);
}

/// Default frames per stack.
pub(crate) const MAX_STACK: u32 = 127;
/// The name under which the trace lists the counts.
const PROGRAM: &str = "preload";

/// Describes, for people, how a command records itself on this machine.
pub(crate) fn description() -> String {
    let clock =
        if clock::cheapest() == record_clock::TSC { "the time-stamp counter" } else { "the kernel's clock" };
    format!("every call, in the process itself, by {clock}; no root needed")
}

/// The sources and limits of processes that record themselves, for the trace.
pub(crate) fn sources(futexes: bool, filters: &Filters, notes: Vec<String>) -> Vec<Source> {
    let mut held = HELD.to_source();
    if !futexes {
        held.limits.push(
            "pthread waits: sleeping and run-queue time and wakers need --locks futex too, and root"
                .to_owned(),
        );
    }
    held.limits.extend(filters.limits_of_calls().into_iter().chain(notes));
    vec![held, IDLED.to_source()]
}

const HELD: TraceSource = TraceSource {
    name: "pthread_preload",
    kinds: &["pthread_mutex", "pthread_rwlock", "pthread_spin"],
    uncontended: true,
    holds: true,
    limits: &[
        "pthread calls in the process: programs that the command starts are not recorded if they are linked statically, gain \
         rights, use another libc than glibc or clear LD_PRELOAD",
        BY_FRAME_POINTERS,
    ],
};
const IDLED: TraceSource = TraceSource {
    name: "pthread_preload_idle",
    kinds: &["condvar", "user_semaphore", "barrier", "thread"],
    uncontended: true,
    holds: false,
    limits: &[],
};

/// Units in the merger; more stay in the spool.
const MAX_PENDING: usize = 4 << 20;

impl Drop for Preload {
    fn drop(&mut self) {
        // Also if the recording could not start.
        self.stop();
    }
}
