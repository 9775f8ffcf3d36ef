//! Selects the rows of the side tables for a checkpoint of the trace: those that are new or changed since the
//! last one.
//!
//! The sink writes them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::mpsc::{self, Receiver, TryRecvError},
    time::{Duration, Instant},
};

use trace_format::{BareStack, LockId, SharedStack, SideRows, StackId};

use crate::{
    compose::{locks::Locks, tasks::Tasks},
    names::{
        kernel_addresses::KernelAddresses,
        symbols::{RawFrames, Resolved, Symbols},
    },
};

/// Minimum time between two checkpoints. If klock is killed, less than a second is lost, including a round
/// and a write.
const INTERVAL: Duration = Duration::from_millis(500);
/// The time between two checkpoints is at least the length of the recording divided by this number: each has
/// a row group, whose description takes 14 kB. A recording of an hour has 3,000 of them, one of a day 6,200.
const SHARE: u32 = 1000;
/// Time until the first checkpoint, which is shorter so that short recordings have one, too.
const FIRST: Duration = Duration::from_millis(50);
/// Time between two requests for new results of the symbols thread.
const REQUEST_INTERVAL: Duration = Duration::from_millis(100);

/// The rows of earlier checkpoints, and changes since then.
#[derive(Debug)]
pub(super) struct Checkpoints {
    started: Instant,
    due: Instant,
    /// It is needed even if nothing changed in the trace: it syncs the backlog, too.
    pub(super) is_needed: bool,
    /// A pending answer of the symbols thread.
    answer: Option<Receiver<Resolved>>,
    requested: Instant,
    /// Number of results of the symbols thread when they were requested.
    found: u64,
    /// New stacks without names.
    bare_stacks: BTreeMap<StackId, BareStack>,
    stacks: Vec<SharedStack>,
    named: BTreeSet<LockId>,
    /// Number of locks in earlier checkpoints.
    locks: usize,
    /// Number of events at the last checkpoint.
    events: u64,
    addresses: KernelAddresses,
}

impl Checkpoints {
    pub(super) fn new(now: Instant, addresses: KernelAddresses) -> Self {
        Self {
            started: now,
            due: now + FIRST,
            is_needed: false,
            answer: None,
            requested: now,
            found: 0,
            bare_stacks: BTreeMap::new(),
            stacks: Vec::new(),
            named: BTreeSet::new(),
            locks: 0,
            events: 0,
            addresses,
        }
    }

    /// Returns the time until the next checkpoint is due.
    pub(super) fn until_due(&self, now: Instant) -> Duration {
        self.due.saturating_duration_since(now)
    }

    /// Makes the next checkpoint due now.
    pub(super) fn hasten(&mut self, now: Instant) {
        self.due = self.due.min(now);
    }

    /// Adds a new stack without names. It stays so if klock is killed before it finds them, or if too many
    /// others wait for names.
    pub(super) fn see(&mut self, id: StackId, raw: &RawFrames) {
        let mut stack = raw.without_names(id);
        self.addresses.replace(&mut stack.kernel);
        self.bare_stacks.insert(id, stack);
    }

    /// Collects names that were found, without waiting for them.
    pub(super) fn collect(&mut self, symbols: &Symbols, locks: &mut Locks, now: Instant) {
        match self.answer.as_ref().map(Receiver::try_recv) {
            Some(Ok(found)) => {
                self.add(found, locks);
                self.answer = None;
            }
            Some(Err(TryRecvError::Empty)) => return,
            // The thread has panicked, which is reported at the end.
            Some(Err(TryRecvError::Disconnected)) => self.answer = None,
            None => {}
        }
        let found = symbols.found();
        if found > self.found && now >= self.requested + REQUEST_INTERVAL {
            self.found = found;
            let (sender, answer) = mpsc::channel();
            symbols.request_results(sender);
            (self.answer, self.requested) = (Some(answer), now);
        }
    }

    /// Returns all locks and tasks, and the stacks that no checkpoint has. `last` is what was found at last.
    /// Waits for a pending answer.
    pub(super) fn into_rest(mut self, last: Resolved, mut locks: Locks, tasks: Tasks) -> SideRows {
        let pending = self.answer.take().and_then(|answer| answer.recv().ok()).unwrap_or_default();
        for found in [pending, last] {
            self.add(found, &mut locks);
        }
        let Self { stacks, bare_stacks, addresses, .. } = self;
        let mut locks = locks.into_rows();
        addresses.replace_locks(&mut locks);
        let bare_stacks = bare_stacks.into_values().collect();
        SideRows { stacks, bare_stacks, locks, tasks: tasks.into_rows() }
    }

    fn add(&mut self, found: Resolved, locks: &mut Locks) {
        for stack in &found.stacks {
            self.bare_stacks.remove(&stack.id);
        }
        self.stacks.extend(found.stacks);
        for found in found.locks {
            self.named.insert(found.lock);
            locks.describe(found);
        }
    }

    /// Returns the rows of a checkpoint, if one is due and anything changed. `events` is the number of events
    /// so far.
    pub(super) fn due(
        &mut self,
        events: u64,
        locks: &Locks,
        tasks: &mut Tasks,
        now: Instant,
    ) -> Option<SideRows> {
        if now < self.due {
            return None;
        }
        self.due = now + INTERVAL.max((now - self.started) / SHARE);
        let side = self.changed(locks, tasks);
        let is_needed = std::mem::take(&mut self.is_needed);
        let has_changed = is_needed || events > self.events || side != SideRows::default();
        self.events = events;
        has_changed.then_some(side)
    }

    fn changed(&mut self, locks: &Locks, tasks: &mut Tasks) -> SideRows {
        let Self { locks: written, named, .. } = self;
        let renamed =
            named.iter().take_while(|id| (id.0 as usize) < *written).map(|id| &locks.rows()[id.0 as usize]);
        let mut locks_now: Vec<_> = renamed.chain(&locks.rows()[*written..]).cloned().collect();
        self.addresses.replace_locks(&mut locks_now);
        named.clear();
        *written = locks.rows().len();
        let bare_stacks = std::mem::take(&mut self.bare_stacks).into_values().collect();
        let stacks = std::mem::take(&mut self.stacks);
        SideRows { stacks, bare_stacks, locks: locks_now, tasks: tasks.take_changed() }
    }
}

#[cfg(test)]
mod tests {
    use trace_format::LockKind;

    use super::*;
    use crate::compose::{locks::Space, tasks::Known};
    use crate::names::symbols::FoundLock;

    #[test]
    fn a_checkpoint_has_new_and_changed_rows_only() {
        let start = Instant::now();
        let mut checkpoints = Checkpoints::new(start, KernelAddresses::Kept);
        let mut locks = Locks::default();
        let first = locks.id(Space::Kernel, 0x40, LockKind::Mutex, 1);
        let known = [7, 8].map(|tid| Known { tgid: 7, tid, ..Known::default() });
        let mut tasks = Tasks::new(known, Box::new(|_, _| None));
        tasks.id(7, 7, 0);
        assert_eq!(checkpoints.due(1, &locks, &mut tasks, start), None, "not yet");
        let side = checkpoints.due(1, &locks, &mut tasks, start + FIRST).unwrap();
        assert_eq!((side.locks.len(), side.tasks.len()), (1, 1));
        assert_eq!(checkpoints.due(1, &locks, &mut tasks, start + FIRST + INTERVAL), None, "nothing new");

        locks.describe(FoundLock { lock: first, name: Some("cgroup_mutex".to_owned()), shared: None });
        checkpoints.named.insert(first);
        let second = locks.id(Space::Kernel, 0x80, LockKind::Mutex, 2);
        tasks.rename_thread(7, b"make\0\0\0\0\0\0\0\0\0\0\0\0");
        tasks.id(7, 8, 0);
        let side = checkpoints.due(2, &locks, &mut tasks, start + FIRST + 2 * INTERVAL).unwrap();
        assert_eq!(side.locks.iter().map(|lock| lock.id).collect::<Vec<_>>(), [first, second]);
        assert_eq!(side.locks[0].name.as_deref(), Some("cgroup_mutex"));
        assert_eq!(side.tasks, tasks.rows());
        let side = checkpoints.due(3, &locks, &mut tasks, start + FIRST + 3 * INTERVAL).unwrap();
        assert_eq!(side, SideRows::default(), "events alone are a change, too");
        checkpoints.hasten(start);
        checkpoints.is_needed = true;
        assert_eq!(checkpoints.due(3, &locks, &mut tasks, start), Some(SideRows::default()), "it is needed");
        assert_eq!(checkpoints.due(3, &locks, &mut tasks, start), None);
    }

    #[test]
    fn checkpoints_of_a_long_recording_are_further_apart() {
        let start = Instant::now();
        let mut checkpoints = Checkpoints::new(start, KernelAddresses::Kept);
        let day = Duration::from_secs(24 * 60 * 60);
        checkpoints.due(1, &Locks::default(), &mut Tasks::new([], Box::new(|_, _| None)), start + day);
        assert_eq!(checkpoints.until_due(start + day), day / SHARE);
    }
}
