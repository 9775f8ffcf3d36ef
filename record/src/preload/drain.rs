//! The thread that reads the chunks of all recorded processes, often and fast. It copies, assigns what it
//! copied to threads, and leaves everything else to others.
//!
//! It learns of new processes from a [`DrainQueue`], and passes batches on in a [`Spool`]. A process that
//! exited, or that runs another program by now, is drained for the last time, and its region unmapped. One
//! that exceeds a budget is not drained any more.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{
    batch::Batch,
    clock,
    queue::{DrainQueue, Spool},
};
use crate::system::{clocks::monotonic_ns, priority::raise_priority};

mod round;

use round::{Flow, Process, Round, VISIBLE_AFTER_NS};

/// Sleep between rounds when nothing is recorded, and when something is.
const IDLE: Duration = Duration::from_millis(10);
const FLOWING: Duration = Duration::from_millis(2);
/// The additional sleep between rounds for each slot that is read in a round: some times as long as this
/// takes.
const REST_PER_SLOT: Duration = Duration::from_nanos(400);
/// The time for which the last drain waits for threads to finish the records that they are writing.
const LAST_RECORDS: Duration = Duration::from_millis(20);
/// The time for which chunks are drained at the end that contain more than may be queued at once.
const MAX_LAST_BACKLOG: Duration = Duration::from_millis(150);

/// Drains processes until it is asked to stop.
pub(crate) fn run(queue: &DrainQueue, spool: &Spool, clock: u32) {
    raise_priority();
    let mut drain = Drain { queue, spool, clock, processes: Vec::new(), sessions: 0, is_paused: false };
    while !queue.is_stopped() {
        let flow = if spool.is_full() { Flow::Low } else { drain.round(false) };
        match flow {
            Flow::High => std::thread::yield_now(),
            // Whoever waits for the next round ends the sleep.
            Flow::Low => std::thread::park_timeout(FLOWING + drain.rest()),
            Flow::None => std::thread::park_timeout(IDLE + drain.rest()),
        }
    }
    drain.finish();
    queue.set_done();
}

struct Drain<'a> {
    queue: &'a DrainQueue,
    spool: &'a Spool,
    clock: u32,
    processes: Vec<Process>,
    /// Thread sessions so far.
    sessions: u32,
    is_paused: bool,
}

impl Drain<'_> {
    /// Drains all processes once. The last round ends all sessions.
    fn round(&mut self, last: bool) -> Flow {
        let now_ns = monotonic_ns() as u64;
        self.admit();
        let is_paused = self.queue.is_paused();
        if is_paused != self.is_paused {
            self.is_paused = is_paused;
            self.processes.iter().for_each(|process| process.new.region.pause(is_paused));
            self.queue.set_paused_now(is_paused);
        }
        self.notice_exits();
        let Self { queue, spool, processes, sessions, .. } = self;
        let mut round = Round {
            queue,
            spool,
            sessions,
            now_ns,
            batch: Batch::default(),
            flow: Flow::None,
            backpressure: false,
            written: 0,
        };
        processes.retain_mut(|process| {
            let stays = round.drain(process, last);
            if !stays {
                queue.count_lost_in(&process.new.region);
            }
            stays
        });
        let Round { mut batch, flow, backpressure, .. } = round;
        queue.set_backpressure(backpressure && !last);
        batch.reading = Some(clock::read(self.clock));
        batch.settled_ns = now_ns.saturating_sub(VISIBLE_AFTER_NS);
        if last {
            (batch.settled_ns, batch.busy) = (u64::MAX, Vec::new());
        }
        self.spool.push(batch);
        flow
    }

    /// The additional sleep after a round, so that many idle threads do not keep a processor busy.
    fn rest(&self) -> Duration {
        let slots: usize = self.processes.iter().map(|process| process.slots.len()).sum();
        REST_PER_SLOT * u32::try_from(slots).unwrap_or(u32::MAX)
    }

    /// Admits new processes. A process that runs another program now has left its old region.
    fn admit(&mut self) {
        for new in self.queue.take() {
            let pid = new.image.pid;
            for old in self.processes.iter_mut().filter(|old| pid != 0 && old.new.image.pid == pid) {
                old.exited = true;
            }
            // The pause may have ended since it asked.
            new.region.pause(self.is_paused);
            self.processes.push(Process::new(new));
        }
    }

    fn notice_exits(&mut self) {
        let exits = self.processes.iter().filter_map(|process| process.new.exit.as_ref());
        let mut polled: Vec<PollFd<'_>> = exits.map(|exit| PollFd::new(exit, PollFlags::IN)).collect();
        if polled.is_empty() || poll(&mut polled, Some(&Timespec::default())).unwrap_or(0) == 0 {
            return;
        }
        let have_exited: Vec<bool> = polled.iter().map(|polled| !polled.revents().is_empty()).collect();
        let followed = self.processes.iter_mut().filter(|process| process.new.exit.is_some());
        followed.zip(have_exited).for_each(|(process, has_exited)| process.exited |= has_exited);
    }

    /// Ends the recording in all processes and drains what they recorded until then.
    fn finish(&mut self) {
        self.admit();
        for process in &self.processes {
            process.new.region.deactivate();
        }
        let start = Instant::now();
        while start.elapsed() < LAST_RECORDS && self.processes.iter().any(Process::is_busy) {
            std::thread::sleep(Duration::from_micros(200));
        }
        let start = Instant::now();
        loop {
            self.round(false);
            let is_behind = self.processes.iter().any(|process| process.behind_since.is_some());
            if !is_behind || start.elapsed() >= MAX_LAST_BACKLOG {
                break;
            }
            std::thread::sleep(FLOWING);
        }
        self.round(true);
    }
}

#[cfg(test)]
mod tests;
