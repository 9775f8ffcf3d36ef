//! What a checkpoint of the trace tells of the side tables: rows of locks and tasks, and what was looked up, enter; those that
//! are new or have changed since the last checkpoint leave. It touches no file: the sink does.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::mpsc::{self, Receiver, TryRecvError},
    time::{Duration, Instant},
};

use trace_format::{Frame, LockId, SideRows, Stack, StackId, TaskRow};

use crate::{
    locks::Locks,
    symbols::{RawFrames, Resolved, Symbols},
};

/// Time between two checkpoints. With a round and a write it is less than a second that is lost if klock is killed.
const EVERY: Duration = Duration::from_millis(500);
/// The first one comes sooner: even the shortest recording is worth something.
const FIRST: Duration = Duration::from_millis(50);
/// How often the thread that knows names is asked for what it found.
const ASK: Duration = Duration::from_millis(100);

/// What was told, and what is to be told.
#[derive(Debug)]
pub(super) struct Checkpoints {
    due: Instant,
    /// An answer that is on its way.
    answer: Option<Receiver<Resolved>>,
    asked: Instant,
    /// Seen or looked up since the last checkpoint.
    stacks: BTreeMap<StackId, Vec<Frame>>,
    /// Locks that were told without the names that they have now.
    named: BTreeSet<LockId>,
    locks: usize,
    tasks: Vec<TaskRow>,
    /// Events at the last checkpoint.
    events: u64,
}

impl Checkpoints {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            due: now + FIRST,
            answer: None,
            asked: now,
            stacks: BTreeMap::new(),
            named: BTreeSet::new(),
            locks: 0,
            tasks: Vec::new(),
            events: 0,
        }
    }

    /// A stack was seen: its addresses are worth something even if klock is killed before it looked them up.
    pub(super) fn see(&mut self, id: StackId, raw: &RawFrames) {
        let bare =
            |kernel| move |&address: &u64| Frame { address: Some(address), kernel, ..Frame::default() };
        let frames = raw.kernel.iter().map(bare(true)).chain(raw.user.iter().map(bare(false)));
        self.stacks.insert(id, frames.collect());
    }

    /// Collects what was looked up, without waiting for it.
    pub(super) fn collect(&mut self, symbols: &Symbols, locks: &mut Locks, now: Instant) {
        match self.answer.as_ref().map(Receiver::try_recv) {
            Some(Ok(found)) => {
                self.stacks.extend(found.stacks.into_iter().map(|stack| (stack.id, stack.frames)));
                for (id, name) in found.names {
                    locks.name(id, name);
                    self.named.insert(id);
                }
                self.answer = None;
            }
            Some(Err(TryRecvError::Empty)) => return,
            // The thread is gone only if it panicked, which is said in the end.
            Some(Err(TryRecvError::Disconnected)) => self.answer = None,
            None => {}
        }
        if now >= self.asked + ASK {
            let (sender, answer) = mpsc::channel();
            symbols.ask(sender);
            (self.answer, self.asked) = (Some(answer), now);
        }
    }

    /// What the checkpoint that is due now tells, if one is due and there is something to tell. `events` is how many were
    /// handed over so far.
    pub(super) fn due(
        &mut self,
        events: u64,
        locks: &Locks,
        tasks: &[TaskRow],
        now: Instant,
    ) -> Option<SideRows> {
        if now < self.due {
            return None;
        }
        self.due = now + EVERY;
        let side = self.changed(locks, tasks);
        let something = events > self.events || side != SideRows::default();
        self.events = events;
        something.then_some(side)
    }

    fn changed(&mut self, locks: &Locks, tasks: &[TaskRow]) -> SideRows {
        let Self { locks: told, tasks: known, named, .. } = self;
        let again =
            named.iter().take_while(|id| (id.0 as usize) < *told).map(|id| &locks.rows()[id.0 as usize]);
        let locks_now: Vec<_> = again.chain(&locks.rows()[*told..]).cloned().collect();
        named.clear();
        *told = locks.rows().len();
        let mut tasks_now = Vec::new();
        for (at, task) in tasks.iter().enumerate() {
            match known.get_mut(at) {
                Some(old) if old == task => continue,
                Some(old) => old.clone_from(task),
                None => known.push(task.clone()),
            }
            tasks_now.push(task.clone());
        }
        let stacks = std::mem::take(&mut self.stacks).into_iter().map(|(id, frames)| Stack { id, frames });
        SideRows { stacks: stacks.collect(), locks: locks_now, tasks: tasks_now }
    }
}

#[cfg(test)]
mod tests {
    use trace_format::{LockKind, TaskId};

    use super::*;
    use crate::locks::Space;

    fn task(id: i32, comm: &str) -> TaskRow {
        TaskRow {
            id: TaskId(id),
            pid: 1,
            tid: 1,
            comm: Some(comm.into()),
            start_ns: None,
            exit_ns: None,
            cgroup: None,
        }
    }

    #[test]
    fn a_checkpoint_tells_what_is_new_and_what_has_changed_and_nothing_twice() {
        let begun = Instant::now();
        let mut checkpoints = Checkpoints::new(begun);
        let mut locks = Locks::default();
        let first = locks.id(Space::Kernel, 0x40, LockKind::Mutex, 1);
        let mut tasks = vec![task(0, "sh")];
        assert_eq!(checkpoints.due(1, &locks, &tasks, begun), None, "not yet");
        let side = checkpoints.due(1, &locks, &tasks, begun + FIRST).unwrap();
        assert_eq!((side.locks.len(), side.tasks.len()), (1, 1));
        assert_eq!(checkpoints.due(1, &locks, &tasks, begun + FIRST + EVERY), None, "nothing new");

        locks.name(first, "cgroup_mutex".to_owned());
        checkpoints.named.insert(first);
        let second = locks.id(Space::Kernel, 0x80, LockKind::Mutex, 2);
        tasks[0] = task(0, "make");
        tasks.push(task(1, "cc"));
        let side = checkpoints.due(2, &locks, &tasks, begun + FIRST + 2 * EVERY).unwrap();
        assert_eq!(side.locks.iter().map(|lock| lock.id).collect::<Vec<_>>(), [first, second]);
        assert_eq!(side.locks[0].name.as_deref(), Some("cgroup_mutex"));
        assert_eq!(side.tasks, tasks);
        let side = checkpoints.due(3, &locks, &tasks, begun + FIRST + 3 * EVERY).unwrap();
        assert_eq!(side, SideRows::default(), "events alone are something to tell, too");
    }
}
