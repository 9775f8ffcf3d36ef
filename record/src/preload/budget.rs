//! Budgets: bounds on what recorded processes may cost the recording. A process controls everything in its memory, so each unit of
//! it that makes klock remember something is charged. A process that exceeds a budget is recorded no further; one line in
//! the trace reports it, and nothing else ends.
//!
//! There are two groups of processes. Those of klock's own user share generous limits, because this user could end klock
//! anyway. Those of all other users together have limits that keep klock small.

use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use rustc_hash::FxHashSet;

pub(crate) use limits::{Excess, Item, Limits};

mod limits;

/// The sums of a group of processes.
#[derive(Debug)]
struct Group {
    limits: Limits,
    processes: AtomicU64,
    slots: AtomicU64,
    queued_units: AtomicU64,
    bytes: AtomicU64,
}

impl Group {
    fn new(limits: Limits) -> Self {
        let zero = AtomicU64::default;
        Self { limits, processes: zero(), slots: zero(), queued_units: zero(), bytes: zero() }
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

    /// Opens the account of a process of this user; `None` if there are too many processes, or no memory is left for one.
    pub(crate) fn open(self: &Arc<Self>, uid: u32, owner: Owner) -> Option<Account> {
        let is_own = uid == self.own_uid;
        let account = Account { ledger: Arc::clone(self), is_own, owner, ..Account::unlimited() };
        let group = account.group();
        let processes = group.processes.fetch_add(1, Ordering::Relaxed) + 1;
        let fits = processes <= group.limits.processes
            && group.bytes.load(Ordering::Relaxed).saturating_add(IMAGE_BYTES) <= group.limits.bytes;
        if fits {
            account.bytes.fetch_add(IMAGE_BYTES, Ordering::Relaxed);
            group.bytes.fetch_add(IMAGE_BYTES, Ordering::Relaxed);
        } else {
            group.processes.fetch_sub(1, Ordering::Relaxed);
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        fits.then_some(account)
    }

    /// One line for each process whose recording ended early, and for those that could not be recorded. Long lists are cut.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let unnamed = self.ended().saturating_sub(notes.len() as u64);
        if unnamed > 0 {
            notes.push(format!("{unnamed} more processes: recording ended: they exceeded their budgets"));
        }
        match self.refused.load(Ordering::Relaxed) {
            0 => {}
            count => notes
                .push(format!("{count} processes were not recorded: too many processes, or too large ones")),
        }
        notes
    }

    /// Whether an eighth of the units that processes of other users may queue is queued, so that they should be composed soon.
    pub(crate) fn is_filling(&self) -> bool {
        self.others.queued_units.load(Ordering::Relaxed) > self.others.limits.queued_units / 8
    }

    /// Whether all processes that are recorded belong to klock's own user.
    pub(crate) fn is_own(&self) -> bool {
        self.others.processes.load(Ordering::Relaxed) == 0
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
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
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
    slots: AtomicU64,
    queued_units: AtomicU64,
    bytes: AtomicU64,
    sessions: AtomicU64,
    stacks: AtomicU64,
    locks: AtomicU64,
    invalid_units: AtomicU64,
    loss_work: AtomicU64,
    excess: OnceLock<Excess>,
}

impl Account {
    /// An account without limits.
    pub(crate) fn unlimited() -> Self {
        let zero = AtomicU64::default;
        Self {
            ledger: Arc::default(),
            is_own: true,
            owner: Owner::default(),
            slots: zero(),
            queued_units: zero(),
            bytes: zero(),
            sessions: zero(),
            stacks: zero(),
            locks: zero(),
            invalid_units: zero(),
            loss_work: zero(),
            excess: OnceLock::new(),
        }
    }

    /// Charges an item. If it exceeds a budget, the recording of the process ends.
    pub(crate) fn charge(&self, item: Item) -> Result<(), Excess> {
        let limits = &self.group().limits;
        let (counter, count, limit, excess): (_, _, _, fn(u64) -> Excess) = match item {
            Item::Mappings(_) => (&self.sessions, 0, u64::MAX, Excess::Sessions),
            Item::Session => (&self.sessions, 1, limits.sessions, Excess::Sessions),
            Item::Stack(_) => (&self.stacks, 1, limits.stacks, Excess::Stacks),
            Item::Locks(count) => (&self.locks, count, limits.locks, Excess::Locks),
            Item::InvalidUnit => (&self.invalid_units, 1, limits.invalid_units, Excess::InvalidUnits),
            Item::Loss(work) => (&self.loss_work, work, limits.loss_work, |_| Excess::Losses),
        };
        let bytes = item.bytes();
        let add = |counter: &AtomicU64, count| counter.fetch_add(count, Ordering::Relaxed) + count;
        if add(counter, count) > limit {
            return Err(self.end(excess(limit)));
        }
        if bytes > 0 && add(&self.bytes, bytes) > limits.process_bytes {
            return Err(self.end(Excess::ProcessBytes(limits.process_bytes)));
        }
        if bytes > 0 && add(&self.group().bytes, bytes) > limits.bytes {
            return Err(self.end(Excess::Bytes(limits.bytes)));
        }
        Ok(())
    }

    /// Charges slots that are used from now on, until the account is closed.
    pub(crate) fn charge_slots(&self, count: u64) -> Result<(), Excess> {
        let limit = self.group().limits.slots;
        self.slots.fetch_add(count, Ordering::Relaxed);
        if self.group().slots.fetch_add(count, Ordering::Relaxed) + count > limit {
            return Err(self.end(Excess::Slots(limit)));
        }
        Ok(())
    }

    /// The number of units that may be drained now.
    pub(crate) fn room(&self) -> u64 {
        let group = self.group();
        room(
            group.limits.queued_units,
            group.queued_units.load(Ordering::Relaxed),
            self.queued_units.load(Ordering::Relaxed),
        )
    }

    /// Charges a chunk of units that was drained.
    pub(crate) fn queue(&self, units: usize) {
        let units = units as u64 + CHUNK_UNITS;
        self.queued_units.fetch_add(units, Ordering::Relaxed);
        self.group().queued_units.fetch_add(units, Ordering::Relaxed);
    }

    /// Credits a chunk that is not needed any more.
    pub(crate) fn unqueue(&self, units: usize) {
        let units = units as u64 + CHUNK_UNITS;
        self.queued_units.fetch_sub(units, Ordering::Relaxed);
        self.group().queued_units.fetch_sub(units, Ordering::Relaxed);
    }

    /// Ends the recording of the process. The first reason is reported.
    pub(crate) fn end(&self, excess: Excess) -> Excess {
        if self.excess.set(excess).is_ok() {
            let Owner { pid, started, comm } = &self.owner;
            self.ledger.lock_ended().insert((*pid, *started));
            let mut notes = self.ledger.notes.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// Gives back what the process used only while it was recorded: called once, at the end. What klock still knows of it stays charged.
    pub(super) fn close(&self) {
        self.group().processes.fetch_sub(1, Ordering::Relaxed);
        self.group().slots.fetch_sub(self.slots.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    fn group(&self) -> &Group {
        if self.is_own { &self.ledger.own } else { &self.ledger.others }
    }
}

/// The number of units that each process may queue, however many others have.
const MIN_ROOM: u64 = 4096;

/// The number of units that a process may queue, given the limit of its group, and what the group and the process have queued.
/// Afterwards the process has queued no more than is still free, so that one that records without end leaves room for
/// others.
fn room(limit: u64, queued: u64, own: u64) -> u64 {
    let half = limit.saturating_sub(queued).saturating_sub(own) / 2;
    half.max(MIN_ROOM.min(limit).saturating_sub(own))
}

#[cfg(test)]
mod tests;
