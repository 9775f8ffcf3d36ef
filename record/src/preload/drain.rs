//! The thread that empties the rings of all recorded processes, often and fast: it copies, says what belongs to whom, and
//! leaves everything else to others.
//!
//! Regions of new processes enter ([`Intake`]); batches leave ([`Spool`]). A process that ended, or that runs another program
//! by now, is emptied for the last time, and its region given back.

use std::{
    fs,
    os::fd::{AsRawFd as _, OwnedFd},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use trace_format::preload::state;

use super::{
    clock,
    lanes::{Batch, End, Image, Life, Part},
    region::{Region, SlotFacts},
    spool::Spool,
};
use crate::clocks::monotonic_ns;

/// A process that asked for its region.
#[derive(Debug)]
pub struct Newcomer {
    /// Its region.
    pub region: Region,
    /// Who it is.
    pub image: Arc<Image>,
    /// Its end; `None` where it can't be told.
    pub end: Option<OwnedFd>,
    /// It sees the numbers of tasks as klock does.
    pub same_numbers: bool,
}

/// What the thread shares with the others.
#[derive(Debug, Default)]
pub struct Intake {
    newcomers: Mutex<Vec<Newcomer>>,
    stop: AtomicBool,
    done: AtomicBool,
    /// Rings filled faster than this thread got to them, at its last look.
    pressed: AtomicBool,
    /// Events of threads that found no place.
    unplaced: AtomicU64,
    /// Slots and rings that made no sense.
    nonsense: AtomicU64,
    /// Processes so far.
    images: AtomicU64,
}

impl Intake {
    /// From now on this process is drained. To be called before it gets its region.
    pub fn add(&self, newcomer: Newcomer) {
        self.images.fetch_add(1, Ordering::Relaxed);
        self.newcomers.lock().unwrap_or_else(PoisonError::into_inner).push(newcomer);
    }

    /// Asks for the last drain: no process records anything after it.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    /// Whether the last drain is done: its batch is in the spool.
    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// Whether rings fill: who can, gives way to the thread that empties them.
    pub fn is_pressed(&self) -> bool {
        self.pressed.load(Ordering::Relaxed)
    }

    /// Events of threads that found no place.
    pub fn unplaced(&self) -> u64 {
        self.unplaced.load(Ordering::Relaxed)
    }

    /// Slots and rings that made no sense.
    pub fn nonsense(&self) -> u64 {
        self.nonsense.load(Ordering::Relaxed)
    }

    /// Processes that asked to be recorded, each program that it ran counted.
    pub fn images(&self) -> u64 {
        self.images.load(Ordering::Relaxed)
    }
}

/// A thread's mark that it is busy may become visible so much later than the time that it read then. It takes the processor
/// a fraction of a microsecond to write out its stores; this is plenty.
const UNSEEN_NS: u64 = 1_000_000;
/// A thread that is stopped in the middle of a record is waited for no longer than this.
const LONGEST_BUSY: Duration = Duration::from_secs(2);
/// How long to sleep when nothing is recorded, and when something is.
const IDLE: Duration = Duration::from_millis(10);
const FLOWING: Duration = Duration::from_millis(2);
/// A ring that is filled to one part in so many was not emptied too early.
const FILLED_PART: u64 = 4;
/// A ring that is filled to one part in so many when it is emptied fills too fast for work that can wait to go on beside.
const PRESSED_PART: u64 = 32;
/// How long the last drain waits for threads to finish the record that they are in.
const LAST_RECORDS: Duration = Duration::from_millis(20);

/// Empties rings until it is asked to stop.
pub fn run(intake: &Intake, spool: &Spool, clock: u32) {
    hasten();
    let mut drain = Drain { intake, spool, clock, watched: Vec::new(), lanes: 0 };
    while !intake.stop.load(Ordering::Acquire) {
        let flow = if spool.is_full() { Flow::Some } else { drain.round(false) };
        match flow {
            Flow::Much => std::thread::yield_now(),
            Flow::Some => std::thread::sleep(FLOWING),
            Flow::None => std::thread::sleep(IDLE),
        }
    }
    drain.finish();
    intake.done.store(true, Ordering::Release);
}

/// The calling thread works in short pieces that must not wait: on a busy machine, rings fill within some slices of processor
/// time. What isn't permitted or known here is not needed.
pub(super) fn hasten() {
    /// Linux 6.12 takes a task's slice as a wish: who asks for little gets it sooner.
    const SLICE_NS: u64 = 200_000;
    const NICE: libc::c_int = -10;
    let schedule = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_OTHER as u32,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: SLICE_NS,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the structure is ours and lives through the call; the other call involves no memory.
    unsafe {
        libc::syscall(libc::SYS_sched_setattr, 0, &raw const schedule, 0);
        libc::setpriority(libc::PRIO_PROCESS, libc::gettid() as libc::id_t, NICE);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Flow {
    None,
    Some,
    Much,
}

struct Drain<'a> {
    intake: &'a Intake,
    spool: &'a Spool,
    clock: u32,
    watched: Vec<Watched>,
    /// Lives so far.
    lanes: u32,
}

/// A process that is drained.
struct Watched {
    newcomer: Newcomer,
    slots: Vec<Option<Open>>,
    over: bool,
}

/// A thread's life that has not ended.
#[derive(Clone, Copy)]
struct Open {
    life: u64,
    lane: u32,
    tail: u64,
    /// Since when it is busy with the same record.
    busy_since: Option<Instant>,
    /// Its ring made no sense: it is not read any more.
    broken: bool,
}

impl Drain<'_> {
    /// One look at everything. The last one ends all lives.
    fn round(&mut self, last: bool) -> Flow {
        let now_ns = monotonic_ns() as u64;
        self.admit();
        self.notice_ends();
        let Self { intake, spool, watched, lanes, .. } = self;
        let mut round =
            Round { intake, spool, lanes, now_ns, batch: Batch::default(), flow: Flow::None, pressed: false };
        for watched in watched.iter_mut() {
            let over = watched.over || last;
            round.drain(watched, over);
            if over {
                let unplaced = watched.newcomer.region.unplaced_events();
                intake.unplaced.fetch_add(unplaced, Ordering::Relaxed);
            }
        }
        let Round { mut batch, flow, pressed, .. } = round;
        intake.pressed.store(pressed && !last, Ordering::Relaxed);
        watched.retain(|watched| !watched.over);
        batch.reading = Some(clock::read(self.clock));
        batch.settled_ns = now_ns.saturating_sub(UNSEEN_NS);
        if last {
            (batch.settled_ns, batch.busy) = (u64::MAX, Vec::new());
        }
        self.spool.push(batch);
        flow
    }

    /// New processes. One that runs another program now has left its old region.
    fn admit(&mut self) {
        let newcomers =
            std::mem::take(&mut *self.intake.newcomers.lock().unwrap_or_else(PoisonError::into_inner));
        for newcomer in newcomers {
            let pid = newcomer.image.pid;
            for old in self.watched.iter_mut().filter(|old| pid != 0 && old.newcomer.image.pid == pid) {
                old.over = true;
            }
            self.watched.push(Watched { newcomer, slots: Vec::new(), over: false });
        }
    }

    fn notice_ends(&mut self) {
        let poll = |fd: &OwnedFd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let mut with_end: Vec<&mut Watched> =
            self.watched.iter_mut().filter(|watched| watched.newcomer.end.is_some()).collect();
        let mut polled: Vec<libc::pollfd> =
            with_end.iter().filter_map(|watched| watched.newcomer.end.as_ref()).map(poll).collect();
        if polled.is_empty() {
            return;
        }
        // SAFETY: the list is ours and lives through the call, which returns at once.
        unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, 0) };
        for (watched, polled) in with_end.iter_mut().zip(&polled) {
            watched.over |= polled.revents != 0;
        }
    }

    /// Ends the recording in all processes, and takes out what they recorded until then.
    fn finish(&mut self) {
        self.admit();
        for watched in &self.watched {
            watched.newcomer.region.deactivate();
        }
        let begun = Instant::now();
        while begun.elapsed() < LAST_RECORDS && self.watched.iter().any(Watched::is_busy) {
            std::thread::sleep(Duration::from_micros(200));
        }
        self.round(true);
    }
}

impl Watched {
    fn is_busy(&self) -> bool {
        let region = &self.newcomer.region;
        (0..region.slots()).any(|index| {
            let facts = region.look(index);
            facts.state == state::LIVE && facts.busy
        })
    }
}

/// One round, while it goes on.
struct Round<'a> {
    intake: &'a Intake,
    spool: &'a Spool,
    lanes: &'a mut u32,
    now_ns: u64,
    batch: Batch,
    flow: Flow,
    pressed: bool,
}

impl Round<'_> {
    /// Takes out everything that a process's threads wrote.
    fn drain(&mut self, watched: &mut Watched, over: bool) {
        let Watched { newcomer, slots, .. } = watched;
        let used = newcomer.region.slots();
        slots.resize(used.max(slots.len()), None);
        for (index, open) in slots.iter_mut().enumerate() {
            let facts = newcomer.region.look(index);
            if facts.state != state::LIVE && facts.state != state::ENDED {
                continue;
            }
            if open.is_some_and(|open| open.life != facts.life) {
                // A slot that is taken again without having been given back.
                self.intake.nonsense.fetch_add(1, Ordering::Relaxed);
                self.end(open, &facts);
            }
            let ended = facts.state == state::ENDED || over;
            let now = open.get_or_insert_with(|| self.begin(newcomer, &facts));
            self.take(&newcomer.region, index, &facts, now);
            if ended {
                self.end(open, &facts);
                newcomer.region.set_free(index);
            }
        }
    }

    fn begin(&mut self, newcomer: &Newcomer, facts: &SlotFacts) -> Open {
        let lane = *self.lanes;
        *self.lanes += 1;
        let life = Life {
            image: Arc::clone(&newcomer.image),
            tid: tid_here(newcomer, facts.tid),
            own_tid: facts.tid,
            // Nobody begins later than now, whatever the memory says.
            begun_ns: facts.begun_ns.min(self.now_ns),
            comm: facts.comm,
        };
        self.batch.parts.push((lane, Part::Begin(life)));
        Open { life: facts.life, lane, tail: 0, busy_since: None, broken: false }
    }

    fn take(&mut self, region: &Region, index: usize, facts: &SlotFacts, open: &mut Open) {
        let written = facts.head.wrapping_sub(open.tail);
        if open.broken {
            return;
        }
        if written > 0 {
            let mut units = self.spool.buffer();
            let Ok(ring_bytes) = region.copy(index, open.tail, facts.head, &mut units) else {
                self.intake.nonsense.fetch_add(1, Ordering::Relaxed);
                open.broken = true;
                return;
            };
            region.give_back(index, facts.head);
            open.tail = facts.head;
            open.busy_since = None;
            self.batch.parts.push((open.lane, Part::Units(units)));
            let much = written >= ring_bytes / FILLED_PART;
            self.pressed |= written >= ring_bytes / PRESSED_PART;
            self.flow = self.flow.max(if much { Flow::Much } else { Flow::Some });
        }
        if facts.busy {
            let since = *open.busy_since.get_or_insert_with(Instant::now);
            if since.elapsed() < LONGEST_BUSY {
                self.batch.busy.push(open.lane);
            }
        } else {
            open.busy_since = None;
        }
    }

    fn end(&mut self, open: &mut Option<Open>, facts: &SlotFacts) {
        if let Some(open) = open.take() {
            let ended_ns = facts.ended_ns.min(self.now_ns);
            let end = End { ended_ns, comm: facts.comm, lost: facts.lost };
            self.batch.parts.push((open.lane, Part::End(end)));
        }
    }
}

/// A thread's number as klock sees it.
fn tid_here(newcomer: &Newcomer, own_tid: u32) -> u32 {
    let pid = newcomer.image.pid;
    match own_tid {
        // No thread has this number.
        0 => pid,
        tid if newcomer.same_numbers => tid,
        tid => tid_of_namespace(pid, tid).unwrap_or(tid),
    }
}

/// The thread of a process that has this number in the process's own PID namespace, which is the last one listed.
fn tid_of_namespace(pid: u32, own_tid: u32) -> Option<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    tasks.flatten().find_map(|task| {
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
        let own: u32 = numbers.split_ascii_whitespace().next_back()?.parse().ok()?;
        (own == own_tid).then(|| task.file_name().to_str()?.parse().ok())?
    })
}
