//! Budgets: bounds on what recorded processes may cost the recording. A process controls everything in its
//! memory, so each unit of it that makes klock remember something is charged. A process that exceeds a budget
//! is recorded no further; one line in the trace reports it, and nothing else ends.
//!
//! There are two groups of processes. Those of klock's own user share generous limits, because this user
//! could end klock anyway. Those of all other users together have limits that keep klock small.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use rustc_hash::FxHashSet;
use trace_format::text::counted;

use super::region::BadChunks;
use crate::system::lock;

/// A resource that processes use up: those up to `Bytes` in all processes of a group, the others in one
/// process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    /// Recorded processes at once.
    Processes,
    /// Used slots: each is read at every drain.
    Slots,
    /// Units that are drained and not composed yet.
    QueuedUnits,
    /// Bytes of memory, estimated from what was charged.
    Bytes,
    ProcessBytes,
    Sessions,
    Stacks,
    Locks,
    /// Units in which no record begins.
    InvalidUnits,
    /// Work on losses: entries that were examined to forget what the process held.
    LossWork,
}

const RESOURCES: usize = Resource::LossWork as usize + 1;

/// The limits of a group of processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits([u64; RESOURCES]);

/// The files that klock itself opens.
const OWN_DESCRIPTORS: u64 = 128;
/// The memory of a region and the descriptor of its process.
const DESCRIPTORS_PER_PROCESS: u64 = 2;

impl Limits {
    pub(crate) const NONE: Self = Self([u64::MAX; RESOURCES]);

    pub(super) fn with<const N: usize>(mut self, limits: [(Resource, u64); N]) -> Self {
        limits.into_iter().for_each(|(resource, limit)| self.0[resource as usize] = limit);
        self
    }

    fn of(&self, resource: Resource) -> u64 {
        self.0[resource as usize]
    }

    /// Returns the limits of processes of klock's own user, given the machine's memory and the number of
    /// descriptors.
    pub(crate) fn of_own(memory: u64, descriptors: u64) -> Self {
        let bytes = (memory / 4).max(256 << 20);
        Self::NONE.with([
            (
                Resource::Processes,
                (descriptors.saturating_sub(OWN_DESCRIPTORS) / DESCRIPTORS_PER_PROCESS).max(16),
            ),
            (Resource::Bytes, bytes),
            (Resource::ProcessBytes, bytes),
            (Resource::InvalidUnits, 1 << 20),
        ])
    }

    /// Returns the limits of processes of all other users.
    pub(crate) fn of_others(memory: u64, descriptors: u64) -> Self {
        let bytes = (160 << 20).min(memory / 16);
        Self::NONE.with([
            (Resource::Processes, 1024.min(descriptors / DESCRIPTORS_PER_PROCESS / 4).max(16)),
            (Resource::Slots, 16_384),
            (Resource::QueuedUnits, 1 << 19),
            (Resource::Bytes, bytes),
            (Resource::ProcessBytes, bytes / 2),
            (Resource::Sessions, 32_768),
            (Resource::Stacks, 16_384),
            (Resource::Locks, 65_536),
            (Resource::InvalidUnits, 1024),
            (Resource::LossWork, 1 << 26),
        ])
    }
}

/// The amount of each resource that is used.
#[derive(Debug, Default)]
struct Used([AtomicU64; RESOURCES]);

impl Used {
    fn get(&self, resource: Resource) -> u64 {
        self.0[resource as usize].load(Ordering::Relaxed)
    }

    /// Returns the amount with what is added.
    fn add(&self, resource: Resource, count: u64) -> u64 {
        self.0[resource as usize].fetch_add(count, Ordering::Relaxed).wrapping_add(count)
    }

    fn subtract(&self, resource: Resource, count: u64) {
        self.0[resource as usize].fetch_sub(count, Ordering::Relaxed);
    }
}

/// Something that a process makes klock remember or do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// The mappings of a new image, whose text has this many bytes.
    Mappings(u64),
    Session,
    /// A new stack of this many frames.
    Stack(u64),
    /// This many new locks.
    Locks(u64),
    InvalidUnit,
    /// A loss, for which this many entries were examined.
    Loss(u64),
}

impl Item {
    fn resource(self) -> Option<(Resource, u64)> {
        match self {
            Self::Mappings(_) => None,
            Self::Session => Some((Resource::Sessions, 1)),
            Self::Stack(_) => Some((Resource::Stacks, 1)),
            Self::Locks(count) => Some((Resource::Locks, count)),
            Self::InvalidUnit => Some((Resource::InvalidUnits, 1)),
            Self::Loss(work) => Some((Resource::LossWork, work)),
        }
    }

    /// Returns the estimated memory that an item takes, rather too much than too little. A frame takes 200
    /// bytes, and some times as much while the trace is finished.
    const fn bytes(self) -> u64 {
        match self {
            Self::Mappings(text) => text,
            Self::Session => 640,
            Self::Stack(frames) => 512 + 1000 * frames,
            Self::Locks(count) => 448 * count,
            Self::InvalidUnit | Self::Loss(_) => 0,
        }
    }
}

/// The reason why the recording of a process ended before the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Excess {
    /// More of a resource than this limit.
    Over(Resource, u64),
    /// A chunk that is not there, or that another thread has.
    Chunks,
    /// More stacks in a thread session than its records can name.
    SessionStacks,
    /// More records than could be drained in time.
    Backlog,
}

impl From<BadChunks> for Excess {
    fn from(BadChunks: BadChunks) -> Self {
        Self::Chunks
    }
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MIB: u64 = 1 << 20;
        let (limit, what) = match *self {
            Self::Chunks => return f.write_str("an invalid chunk"),
            Self::Backlog => return f.write_str("more records than could be read in time"),
            Self::SessionStacks => return f.write_str("more stacks of a thread than it can number"),
            Self::Over(resource, limit) => match resource {
                Resource::LossWork => return f.write_str("too many losses"),
                Resource::Sessions => (limit, "threads"),
                Resource::Stacks => (limit, "stacks"),
                Resource::Locks => (limit, "locks"),
                Resource::InvalidUnits => (limit, "invalid records"),
                Resource::ProcessBytes => (limit / MIB, "MiB of threads, stacks and locks"),
                Resource::Bytes => (limit / MIB, "MiB of threads, stacks and locks in all processes"),
                Resource::Slots => (limit, "threads at once in all processes"),
                Resource::Processes => (limit, "processes"),
                Resource::QueuedUnits => (limit, "records that wait"),
            },
        };
        write!(f, "more than {limit} {what}")
    }
}

/// The limits of a group of processes, and what they use of it.
#[derive(Debug)]
struct Group {
    limits: Limits,
    used: Used,
}

impl Group {
    fn new(limits: Limits) -> Self {
        Self { limits, used: Used::default() }
    }
}

/// The sums of all processes, and what happened to those that exceeded a budget.
#[derive(Debug)]
pub(crate) struct Ledger {
    own_uid: u32,
    own: Group,
    others: Group,
    notes: Mutex<Vec<String>>,
    /// Processes whose recording ended early: they get no other region.
    ended: Mutex<FxHashSet<(u32, Option<u64>)>>,
    refused: AtomicU64,
}

/// The process of an account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owner {
    pub pid: u32,
    /// Its start in clock ticks, which tells it from another process with this PID.
    pub started: Option<u64>,
    pub comm: String,
}

/// The memory of a process image besides its mappings.
const IMAGE_BYTES: u64 = 2048;
/// The memory of a drained chunk besides its units, in units.
const CHUNK_UNITS: u64 = 16;
/// Maximum number of processes that are named in the trace because they exceeded a budget.
const MAX_NOTES: usize = 16;

impl Ledger {
    /// Starts with these limits for the processes of `own_uid` and for all others.
    pub(crate) fn new(own_uid: u32, own: Limits, others: Limits) -> Self {
        Self {
            own_uid,
            own: Group::new(own),
            others: Group::new(others),
            notes: Mutex::default(),
            ended: Mutex::default(),
            refused: AtomicU64::default(),
        }
    }

    /// Starts with the limits for this machine, which has this many bytes of memory.
    pub(crate) fn of_this_machine(memory: u64) -> Self {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let descriptors = limit.unwrap_or(1 << 20);
        let uid = rustix::process::geteuid().as_raw();
        Self::new(uid, Limits::of_own(memory, descriptors), Limits::of_others(memory, descriptors))
    }

    /// Opens the account of a process of this user; `None` if there are too many processes, or no memory is
    /// left for one.
    pub(crate) fn open(self: &Arc<Self>, uid: u32, owner: Owner) -> Option<Account> {
        let account = self.account(uid, owner);
        let Group { limits, used } = account.group();
        let bytes = used.get(Resource::Bytes).saturating_add(IMAGE_BYTES);
        if used.add(Resource::Processes, 1) > limits.of(Resource::Processes)
            || bytes > limits.of(Resource::Bytes)
        {
            used.subtract(Resource::Processes, 1);
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        account.used.add(Resource::ProcessBytes, IMAGE_BYTES);
        used.add(Resource::Bytes, IMAGE_BYTES);
        Some(account)
    }

    /// Returns an account for more charges to a process of this user, which is in the number of processes
    /// already.
    pub(crate) fn account(self: &Arc<Self>, uid: u32, owner: Owner) -> Account {
        Account { ledger: Arc::clone(self), is_own: uid == self.own_uid, owner, ..Account::unlimited() }
    }

    /// One line for each process whose recording ended early, and for those that could not be recorded. Long
    /// lists are cut.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = lock(&self.notes).clone();
        let unnamed = self.ended().saturating_sub(notes.len() as u64);
        if unnamed > 0 {
            notes.push(format!("{unnamed} more processes: recording ended: they exceeded their budgets"));
        }
        match self.refused.load(Ordering::Relaxed) {
            0 => {}
            count => notes.push(format!(
                "{} not recorded: too many processes, or too large ones",
                counted(count, "process was", "processes were")
            )),
        }
        notes
    }

    /// Whether an eighth of the units that processes of other users may queue is queued, so that they should
    /// be composed soon.
    pub(crate) fn is_filling(&self) -> bool {
        let Group { limits, used } = &self.others;
        used.get(Resource::QueuedUnits) > limits.of(Resource::QueuedUnits) / 8
    }

    /// Whether all processes that are recorded belong to klock's own user.
    pub(crate) fn is_own(&self) -> bool {
        self.others.used.get(Resource::Processes) == 0
    }

    /// The number of processes whose recording ended early.
    pub(crate) fn ended(&self) -> u64 {
        self.lock_ended().len() as u64
    }

    /// Whether the recording of this process ended early.
    pub(crate) fn has_ended(&self, pid: u32, started: Option<u64>) -> bool {
        self.lock_ended().contains(&(pid, started))
    }

    fn lock_ended(&self) -> MutexGuard<'_, FxHashSet<(u32, Option<u64>)>> {
        lock(&self.ended)
    }
}

impl Default for Ledger {
    /// Without limits.
    fn default() -> Self {
        Self::new(0, Limits::NONE, Limits::NONE)
    }
}

/// The charges of one process.
#[derive(Debug)]
pub(crate) struct Account {
    ledger: Arc<Ledger>,
    is_own: bool,
    owner: Owner,
    used: Used,
    excess: OnceLock<Excess>,
}

impl Account {
    pub(crate) fn unlimited() -> Self {
        let (ledger, owner) = (Arc::default(), Owner::default());
        Self { ledger, is_own: true, owner, used: Used::default(), excess: OnceLock::new() }
    }

    /// Charges an item. If it exceeds a budget, the recording of the process ends.
    pub(crate) fn charge(&self, item: Item) -> Result<(), Excess> {
        if let Some((resource, count)) = item.resource() {
            self.check(resource, self.used.add(resource, count))?;
        }
        match item.bytes() {
            0 => Ok(()),
            bytes => {
                self.check(Resource::ProcessBytes, self.used.add(Resource::ProcessBytes, bytes))?;
                self.check(Resource::Bytes, self.group().used.add(Resource::Bytes, bytes))
            }
        }
    }

    /// Charges slots that are used from now on, until the account is closed.
    pub(crate) fn charge_slots(&self, count: u64) -> Result<(), Excess> {
        self.used.add(Resource::Slots, count);
        self.check(Resource::Slots, self.group().used.add(Resource::Slots, count))
    }

    fn check(&self, resource: Resource, used: u64) -> Result<(), Excess> {
        let limit = self.group().limits.of(resource);
        if used > limit { Err(self.end(Excess::Over(resource, limit))) } else { Ok(()) }
    }

    /// The number of units that may be drained now.
    pub(crate) fn room(&self) -> u64 {
        let Group { limits, used } = self.group();
        let queued = |used: &Used| used.get(Resource::QueuedUnits);
        room(limits.of(Resource::QueuedUnits), queued(used), queued(&self.used))
    }

    /// Charges a chunk of units that was drained.
    pub(crate) fn queue(&self, units: usize) {
        for used in [&self.used, &self.group().used] {
            used.add(Resource::QueuedUnits, units as u64 + CHUNK_UNITS);
        }
    }

    /// Credits a chunk that is not needed any more.
    pub(crate) fn unqueue(&self, units: usize) {
        for used in [&self.used, &self.group().used] {
            used.subtract(Resource::QueuedUnits, units as u64 + CHUNK_UNITS);
        }
    }

    /// Ends the recording of the process. The first reason is reported.
    pub(crate) fn end(&self, excess: Excess) -> Excess {
        if self.excess.set(excess).is_ok() {
            let Owner { pid, started, comm } = &self.owner;
            self.ledger.lock_ended().insert((*pid, *started));
            let mut notes = lock(&self.ledger.notes);
            if notes.len() < MAX_NOTES {
                notes.push(format!("process {pid} ({}): recording ended: {excess}", comm.escape_debug()));
            }
        }
        excess
    }

    /// Whether the process belongs to klock's own user.
    pub(crate) fn is_own(&self) -> bool {
        self.is_own
    }

    /// Whether the recording of the process has ended early.
    pub(crate) fn has_ended(&self) -> bool {
        self.excess.get().is_some()
    }

    /// Gives back what the process used only while it was recorded: called once, at the end. What klock still
    /// knows of it stays charged.
    pub(super) fn close(&self) {
        let used = &self.group().used;
        used.subtract(Resource::Processes, 1);
        used.subtract(Resource::Slots, self.used.get(Resource::Slots));
    }

    fn group(&self) -> &Group {
        if self.is_own { &self.ledger.own } else { &self.ledger.others }
    }
}

/// The number of units that each process may queue, however many others have.
const MIN_ROOM: u64 = 4096;

/// The number of units that a process may queue, given the limit of its group, and what the group and the
/// process have queued. Afterwards the process has queued no more than is still free, so that one that
/// records without end leaves room for others.
fn room(limit: u64, queued: u64, own: u64) -> u64 {
    let half = limit.saturating_sub(queued).saturating_sub(own) / 2;
    half.max(MIN_ROOM.min(limit).saturating_sub(own))
}

#[cfg(test)]
mod tests;
