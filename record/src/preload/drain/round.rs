//! One round of draining: copies what the threads of each process wrote since the last one, as far as it may
//! be queued.

use std::{
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use trace_format::preload::{UNIT_BYTES, pool::Cursor, state};

use super::super::{
    batch::{Batch, Chunk, ThreadExit, ThreadSession},
    budget::{Excess, Item},
    region::{OwnedChunks, SlotFacts},
};
use crate::preload::queue::Spool;
use crate::{
    preload::queue::{DrainQueue, NewProcess, count},
    system::clocks::monotonic_ns,
};

/// The delay after which a thread's mark that it is busy is visible. A processor writes out its stores within
/// a fraction of a microsecond; this is plenty.
pub(super) const VISIBLE_AFTER_NS: u64 = 1_000_000;
/// The maximum time for which a thread that is stopped in the middle of a record is waited for.
const MAX_BUSY: Duration = Duration::from_secs(2);
/// The time for which the chunks of a process that exited are drained, if they contain more than may be
/// queued at once.
const MAX_BACKLOG: Duration = Duration::from_secs(2);
/// The time after which a thread that writes nothing loses its chunk.
const IDLE_CHUNK_NS: u64 = 20_000_000;
/// A process that has filled this fraction of its pool since the last round should be drained again at once.
const FILLED_FRACTION: u64 = 32;
/// A process that has filled this fraction of its pool since the last round fills it too fast for other work
/// to go on.
const BACKPRESSURE_FRACTION: u64 = 256;
/// The maximum age of records of other users when they are drained. Older times are not believed.
const MAX_AGE_NS: u64 = 3_000_000_000;
/// The steps in which the age of records is checked.
const AGE_STEP_NS: u64 = 100_000_000;

/// The flow of the process that wrote most since the last round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Flow {
    None,
    Low,
    High,
}

pub(super) struct Process {
    pub(super) new: NewProcess,
    pub(super) slots: Vec<SlotState>,
    /// The chunks that its sessions are reading.
    pub(super) owned: OwnedChunks,
    pub(super) exited: bool,
    /// The time since which it has had more records than may be queued.
    pub(super) behind_since: Option<Instant>,
}

impl Process {
    pub(super) fn new(new: NewProcess) -> Self {
        Self { new, slots: Vec::new(), owned: OwnedChunks::default(), exited: false, behind_since: None }
    }

    /// Returns whether one of its threads is in the middle of a record.
    pub(super) fn is_busy(&self) -> bool {
        let region = &self.new.region;
        (0..region.used_slots()).any(|index| {
            let facts = region.read_slot(index);
            facts.state == state::LIVE && facts.busy
        })
    }
}

#[derive(Clone, Copy, Default)]
pub(super) struct SlotState {
    pub(super) session: Option<Session>,
}

/// A thread session that has not ended.
#[derive(Clone, Copy)]
pub(super) struct Session {
    /// The slot's count of sessions.
    count: u64,
    /// The number under which it goes into batches.
    number: u32,
    pub(super) cursor: Cursor,
    /// The time since which it is busy with the same record.
    busy_since: Option<Instant>,
    /// The time since which it has written nothing, CLOCK_MONOTONIC in ns.
    quiet_ns: u64,
    /// The time at which its chunk was revoked, CLOCK_MONOTONIC in ns.
    revoked_ns: Option<u64>,
    /// All further records were written after this time, CLOCK_MONOTONIC in ns.
    written_after_ns: u64,
}

impl Session {
    /// Returns a later time than before after which all further records are taken to be written.
    fn written_after(&mut self, now_ns: u64) -> Option<u64> {
        let bound_ns = now_ns.saturating_sub(MAX_AGE_NS);
        (bound_ns >= self.written_after_ns.saturating_add(AGE_STEP_NS)).then(|| {
            self.written_after_ns = bound_ns;
            bound_ns
        })
    }
}

pub(super) struct Round<'a> {
    pub(super) queue: &'a DrainQueue,
    pub(super) spool: &'a Spool,
    pub(super) sessions: &'a mut u32,
    pub(super) now_ns: u64,
    pub(super) batch: Batch,
    pub(super) flow: Flow,
    pub(super) backpressure: bool,
    /// Bytes that the threads of the current process have written.
    pub(super) written: u64,
}

impl Round<'_> {
    /// Drains what the threads of a process wrote, as far as it may be queued. Returns whether the process is
    /// drained again.
    pub(super) fn drain(&mut self, process: &mut Process, last: bool) -> bool {
        let account = &process.new.image.account;
        let gives_up = last || process.behind_since.is_some_and(|since| since.elapsed() >= MAX_BACKLOG);
        self.written = 0;
        let drained = if account.has_ended() { Ok(false) } else { self.drain_slots(process, last) };
        self.note_flow(process);
        let account = &process.new.image.account;
        match drained {
            Ok(true) if process.exited && gives_up || last => {
                account.end(Excess::Backlog);
            }
            Ok(is_behind) => {
                process.behind_since = is_behind.then(|| process.behind_since.unwrap_or_else(Instant::now));
            }
            Err(excess) => {
                account.end(excess);
            }
        }
        let is_finished = last || process.exited && process.behind_since.is_none();
        let stays = !is_finished && !account.has_ended();
        if !stays {
            process.new.region.deactivate();
            for slot in &mut process.slots {
                self.end(&mut slot.session, ThreadExit::default());
            }
        }
        stays
    }

    /// Notes how fast the process fills its pool.
    fn note_flow(&mut self, process: &Process) {
        if self.written == 0 {
            return;
        }
        // Only the processes of klock's own user can make it hurry.
        let fills = |fraction| {
            let bytes = process.new.region.pool_bytes() / fraction;
            process.new.image.account.is_own() && self.written >= bytes
        };
        let flow = if fills(FILLED_FRACTION) { Flow::High } else { Flow::Low };
        self.backpressure |= fills(BACKPRESSURE_FRACTION);
        self.flow = self.flow.max(flow);
    }

    /// Drains all slots. Returns whether there is more than may be queued now.
    fn drain_slots(&mut self, process: &mut Process, last: bool) -> Result<bool, Excess> {
        let Process { new, slots, owned, exited, behind_since } = process;
        let used = new.region.used_slots();
        if let Some(more) = used.checked_sub(slots.len()).filter(|more| *more > 0) {
            new.image.account.charge_slots(more as u64)?;
            slots.resize(used, SlotState::default());
        }
        let is_awaited = behind_since.is_none_or(|since| since.elapsed() < MAX_BUSY);
        let mut is_behind = false;
        for (index, slot) in slots.iter_mut().enumerate() {
            let facts = new.region.read_slot(index);
            if facts.state != state::LIVE && facts.state != state::EXITED {
                continue;
            }
            // The thread may have ended after this round began. A time in the future is not its own.
            let exit_ns = new.image.time_ns(facts.exit_ns).min(monotonic_ns() as u64);
            let exit = ThreadExit { exit_ns, comm: facts.comm, lost: facts.lost, nested: facts.nested };
            if slot.session.is_some_and(|session| session.count != facts.session) {
                // The slot was taken again before it was freed.
                count(&self.queue.invalid_slots, 1);
                if let Some(session) = &mut slot.session {
                    new.region.release_chunk(&mut session.cursor, owned);
                }
                self.end(&mut slot.session, exit);
            }
            let mut session = match slot.session {
                Some(session) => session,
                None => self.start(new, &facts)?,
            };
            let is_done = self.copy(new, owned, index, &facts, &mut session)?;
            slot.session = Some(session);
            if !is_done {
                is_behind = true;
                if is_awaited {
                    self.batch.busy.push(session.number);
                }
            } else if facts.state == state::EXITED || *exited || last {
                new.region.release_chunk(&mut session.cursor, owned);
                self.end(&mut slot.session, exit);
                new.region.free_slot(index);
            }
        }
        Ok(is_behind)
    }

    fn start(&mut self, process: &NewProcess, facts: &SlotFacts) -> Result<Session, Excess> {
        process.image.account.charge(Item::Session)?;
        let number = *self.sessions;
        *self.sessions += 1;
        let Identity { tid, is_seen } = Identity::of(process, facts.tid, self.queue);
        let session = ThreadSession {
            image: Arc::clone(&process.image),
            tid,
            is_seen,
            own_tid: facts.tid,
            // No session starts later than now, whatever is in the memory.
            start_ns: process.image.time_ns(facts.start_ns).min(self.now_ns),
            comm: facts.comm,
        };
        self.batch.chunks.push((number, Chunk::Start(session)));
        Ok(Session {
            count: facts.session,
            number,
            cursor: Cursor::default(),
            busy_since: None,
            quiet_ns: self.now_ns,
            revoked_ns: None,
            written_after_ns: 0,
        })
    }

    /// Copies what a thread wrote. Returns whether this is all of it.
    fn copy(
        &mut self,
        process: &NewProcess,
        owned: &mut OwnedChunks,
        index: usize,
        facts: &SlotFacts,
        session: &mut Session,
    ) -> Result<bool, Excess> {
        let (region, account) = (&process.region, &process.image.account);
        let mut is_done = true;
        let has_new = facts.head != session.cursor.tail();
        // Without new records, the thread may have closed its chunk.
        if has_new || session.cursor.has_chunk() {
            let mut units = if has_new { self.spool.buffer() } else { Vec::new() };
            is_done =
                region.copy(index, &mut session.cursor, facts.head, account.room(), owned, &mut units)?;
            if !units.is_empty() {
                self.written += (units.len() * UNIT_BYTES) as u64;
                (session.busy_since, session.quiet_ns) = (None, self.now_ns);
                session.revoked_ns = None;
                account.queue(units.len());
                self.batch.chunks.push((session.number, Chunk::Units(units)));
                let bound_ns = session.written_after(self.now_ns);
                if let Some(bound_ns) = bound_ns.filter(|_| !account.is_own()) {
                    self.batch.chunks.push((session.number, Chunk::WrittenAfter(bound_ns)));
                }
            }
        }
        if !has_new {
            take_idle_chunk(process, owned, index, facts, session, self.now_ns);
        }
        if facts.busy {
            let since = *session.busy_since.get_or_insert_with(Instant::now);
            if since.elapsed() < MAX_BUSY {
                self.batch.busy.push(session.number);
            }
        } else {
            session.busy_since = None;
        }
        Ok(is_done)
    }

    fn end(&mut self, session: &mut Option<Session>, exit: ThreadExit) {
        if let Some(session) = session.take() {
            self.batch.chunks.push((session.number, Chunk::Exit(exit)));
        }
    }
}

/// Takes the chunk of a thread that has written nothing for a while, in two steps (see `queue::limit`).
fn take_idle_chunk(
    process: &NewProcess,
    owned: &mut OwnedChunks,
    index: usize,
    facts: &SlotFacts,
    session: &mut Session,
    now_ns: u64,
) {
    if facts.busy || !session.cursor.has_chunk() {
        session.revoked_ns = None;
        return;
    }
    match session.revoked_ns {
        None => {
            let is_idle = now_ns.saturating_sub(session.quiet_ns) >= IDLE_CHUNK_NS;
            if is_idle && process.region.revoke_chunk(index) {
                session.revoked_ns = Some(monotonic_ns() as u64);
            }
        }
        // The mark of a thread that saw the old limit would be visible in `facts`, which were read after
        // `now_ns`.
        Some(revoked_ns) if now_ns.saturating_sub(revoked_ns) >= VISIBLE_AFTER_NS => {
            session.revoked_ns = None;
            if !process.region.take_chunk(index, &mut session.cursor, owned) {
                session.quiet_ns = now_ns;
            }
        }
        Some(_) => {}
    }
}

// Finds out which thread of a process a session belongs to. In: the id that the thread claims. Out: the id as
// klock sees it.

/// The thread of a session, as klock sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Identity {
    pub(super) tid: u32,
    /// The process has this thread now.
    pub(super) is_seen: bool,
}

impl Identity {
    /// Finds the thread that claims an id. Whatever it claims, its records belong to its process.
    pub(super) fn of(process: &NewProcess, own_tid: u32, queue: &DrainQueue) -> Self {
        let pid = process.image.pid;
        let tid = if process.same_ids { Some(own_tid) } else { tid_of_namespace(pid, own_tid) };
        let first = Self { tid: pid, is_seen: true };
        match tid {
            // No thread has this id.
            None | Some(0) => first,
            Some(tid) if task_exists(&format!("{pid}/task/{tid}")) => Self { tid, is_seen: true },
            Some(tid) if task_exists(&tid.to_string()) => {
                count(&queue.foreign, 1);
                first
            }
            Some(tid) => Self { tid, is_seen: false },
        }
    }
}

fn task_exists(task: &str) -> bool {
    fs::exists(format!("/proc/{task}")).unwrap_or(false)
}

/// Finds the thread of a process that has this id in the process's own PID namespace, which `NSpid` lists
/// last.
fn tid_of_namespace(pid: u32, own_tid: u32) -> Option<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    tasks.flatten().find_map(|task| {
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
        let own: u32 = ids.split_ascii_whitespace().next_back()?.parse().ok()?;
        (own == own_tid).then(|| task.file_name().to_str()?.parse().ok())?
    })
}
