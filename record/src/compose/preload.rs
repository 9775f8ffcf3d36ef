//! What recorded processes say themselves in, rows out. Most of it are facts already: the library in the process tried
//! first, so it knows whether a lock was free, whether a call waited, and how it ended.
//!
//! What is left to do: which lock, task and stack it is, how an rwlock was held that is given back, and what the kernel side,
//! if it records too, tells of the sleep inside a wait.

use rustc_hash::FxHashMap;
use trace_format::{
    Event, EventKind, LockId, LockKind, Mode, StackId, TaskId,
    preload::{Record, api, op},
};

use super::{Moment, TaskKey, pthread::Part};
use crate::{
    filters::Filters,
    locks::{Locks, Space},
    preload::{
        lanes::{End, Life, Step},
        records::{self, Unit},
    },
    stacks::Stacks,
    tasks::Tasks,
};

mod open;

use open::{Condition, Open, Share};

/// The processes and threads that record themselves.
#[derive(Debug)]
pub(super) struct Calls {
    /// By number of the thread's life.
    lives: Vec<Option<State>>,
    /// By number of the process's image.
    images: FxHashMap<u32, ImageState>,
    /// Whose life it is that a record of the kernel side is about.
    by_task: FxHashMap<TaskKey, u32>,
    /// What a call's futex waits add up to before the first: nothing, or unknown if they are not recorded.
    none_yet: Share,
    /// The kernel side tells of births and ends, too.
    tasks_told: bool,
    filters: Filters,
}

/// A process.
#[derive(Debug)]
struct ImageState {
    space: Space,
    /// Its locks, while any of its threads lives.
    locks: FxHashMap<(u64, LockKind), LockId>,
    /// Its threads by their own numbers: that is how a lock names its owner.
    tasks: FxHashMap<u32, TaskId>,
    lives: u32,
}

/// A thread.
#[derive(Debug)]
struct State {
    image: u32,
    key: TaskKey,
    own_tid: u32,
    task: TaskId,
    /// Its stacks, in the order in which it told them.
    stacks: Vec<StackId>,
    /// The calls in which it waits: usually one at most; a signal handler may wait inside a wait.
    open: Vec<Open>,
    /// The rwlocks that it holds: how often for writing, and for reading.
    held: FxHashMap<u64, (u32, u32)>,
    /// Tasks of its name are recorded.
    wanted: bool,
}

/// Where everything that a row refers to is kept.
pub(super) struct Ground<'a> {
    pub(super) tasks: &'a mut Tasks,
    pub(super) locks: &'a mut Locks,
    pub(super) stacks: &'a mut Stacks,
    pub(super) unpaired: &'a mut u64,
}

impl Calls {
    /// `futexes`: the kernel side tells of futex waits; `tasks_told`: of births and ends of tasks.
    pub(super) fn new(futexes: bool, tasks_told: bool, filters: Filters) -> Self {
        Self {
            lives: Vec::new(),
            images: FxHashMap::default(),
            by_task: FxHashMap::default(),
            none_yet: if futexes { Share::NOTHING } else { Share::UNKNOWN },
            tasks_told,
            filters,
        }
    }

    /// Takes in the next step of a thread's life.
    pub(super) fn step(
        &mut self,
        ts_ns: i64,
        lane: u32,
        step: &Step<'_>,
        ground: &mut Ground<'_>,
        out: &mut Vec<Event>,
    ) {
        match step {
            Step::Begin(life) => self.begin(lane, life, ground),
            Step::Record(record, rest) => self.record(ts_ns, lane, record, rest, ground, out),
            Step::End(end, untold) => self.end(ts_ns, lane, end, *untold, ground, out),
        }
    }

    fn begin(&mut self, lane: u32, life: &Life, ground: &mut Ground<'_>) {
        let Life { image, tid, own_tid, begun_ns, comm } = life;
        let pid = image.pid;
        let told = self.tasks_told;
        let state = self.images.entry(image.id).or_insert_with(|| {
            if !told {
                ground.tasks.begin_image(pid, image.known.clone(), image.ts_ns as i64, image.new_program);
            }
            let space = Space::Process(ground.tasks.process(pid), pid);
            let (locks, tasks) = (FxHashMap::default(), FxHashMap::default());
            ImageState { space, locks, tasks, lives: 0 }
        });
        if !told {
            ground.tasks.begin_thread(pid, *tid, comm, *begun_ns as i64);
        }
        let task = ground.tasks.id(pid, *tid, 0);
        state.tasks.insert(*own_tid, task);
        state.lives += 1;
        let key = TaskKey(u64::from(*tid));
        self.by_task.insert(key, lane);
        let index = lane as usize;
        if self.lives.len() <= index {
            self.lives.resize_with(index + 1, || None);
        }
        self.lives[index] = Some(State {
            image: image.id,
            key,
            own_tid: *own_tid,
            task,
            stacks: Vec::new(),
            open: Vec::new(),
            held: FxHashMap::default(),
            wanted: self.filters.takes_comm(&crate::tasks::comm_of(comm)),
        });
    }

    fn end(
        &mut self,
        ts_ns: i64,
        lane: u32,
        end: &End,
        untold: u64,
        ground: &mut Ground<'_>,
        out: &mut Vec<Event>,
    ) {
        let Some(state) = self.lives.get_mut(lane as usize).and_then(Option::take) else { return };
        if untold > 0 {
            out.push(lost_row(ts_ns, state.task, untold));
        }
        let Some(image) = self.images.get_mut(&state.image) else { return };
        if end.ended_ns != 0 {
            *ground.unpaired += state.open.len() as u64;
            if !self.tasks_told {
                ground.tasks.end_thread(state.key.0 as u32, &end.comm, end.ended_ns as i64);
            }
        }
        if self.by_task.get(&state.key) == Some(&lane) {
            self.by_task.remove(&state.key);
        }
        if image.tasks.get(&state.own_tid) == Some(&state.task) {
            image.tasks.remove(&state.own_tid);
        }
        image.lives -= 1;
        if image.lives == 0 {
            (image.locks, image.tasks) = Default::default();
        }
    }

    fn record(
        &mut self,
        ts_ns: i64,
        lane: u32,
        record: &Record,
        rest: &[Unit],
        ground: &mut Ground<'_>,
        out: &mut Vec<Event>,
    ) {
        let Some(Some(state)) = self.lives.get_mut(lane as usize) else { return };
        let Some(image) = self.images.get_mut(&state.image) else { return };
        let first = rest.first().copied().unwrap_or_default();
        match record.op() {
            op::STACK => {
                let Space::Process(process, pid) = image.space else { return };
                let frames = records::frames(record, rest);
                state.stacks.push(ground.stacks.id_of_calls((process, pid), frames));
                return;
            }
            op::LOST => {
                out.push(lost_row(ts_ns, state.task, record.address()));
                // Whatever was begun may have ended unseen.
                state.open.clear();
                state.held.clear();
                return;
            }
            op::RENAMED => {
                let mut comm = [0; 16];
                comm[..8].copy_from_slice(&first[0].to_ne_bytes());
                comm[8..].copy_from_slice(&first[1].to_ne_bytes());
                state.wanted = self.filters.takes_comm(&crate::tasks::comm_of(&comm));
                if !self.tasks_told {
                    ground.tasks.rename_thread(state.key.0 as u32, &comm);
                }
                return;
            }
            _ => {}
        }
        if !state.wanted || !self.filters.takes_address(record.address()) {
            return;
        }
        let stack = usize::from(record.stack()).checked_sub(1).and_then(|n| state.stacks.get(n)).copied();
        let mut told = Told { ts_ns, address: record.address(), stack, state, image, out };
        told.apply(record, first, self.none_yet, ground);
    }

    /// The kernel side saw a futex wait begin. Says of what it is a part, if the task is in a call that uses this word; the
    /// first wait for the mutex after a wait on its condition is the begin of a wait for the mutex.
    pub(super) fn futex_wait(&mut self, moment: &Moment, word: u64, out: &mut Vec<Event>) -> Option<Part> {
        let state = self.lives.get_mut(*self.by_task.get(&moment.key)? as usize)?.as_mut()?;
        let owner = self.images.get(&state.image)?.space;
        let open = state.open.last_mut()?;
        let part = open.part_of(word).filter(|_| owner == moment.space)?;
        if part == Part::Lock
            && let Some(condition) = &mut open.condition
            && condition.mutex_waits_since.is_none()
        {
            condition.mutex_waits_since = Some(moment.ts_ns);
            out.push(Event {
                mode: Some(Mode::Exclusive),
                stack: open.stack,
                ..moment.row(EventKind::Wait, open.lock)
            });
        }
        Some(part)
    }

    /// A futex wait that is a part of a call ended. `false` if it is none of a call that is known here.
    pub(super) fn futex_wait_done(&mut self, moment: &Moment, part: Part, sums: Option<super::Sums>) -> bool {
        let lane = self.by_task.get(&moment.key).copied();
        let state = lane.and_then(|lane| self.lives.get_mut(lane as usize)?.as_mut());
        let Some(open) = state.and_then(|state| state.open.last_mut()) else { return false };
        match (part, &mut open.condition) {
            (Part::Condition, Some(condition)) => condition.share.add(sums, moment.waker),
            _ => open.share.add(sums, moment.waker),
        }
        true
    }
}

/// A record with everything that belongs to it.
struct Told<'a> {
    ts_ns: i64,
    address: u64,
    stack: Option<StackId>,
    state: &'a mut State,
    image: &'a mut ImageState,
    out: &'a mut Vec<Event>,
}

impl Told<'_> {
    fn apply(&mut self, record: &Record, rest: Unit, none_yet: Share, ground: &mut Ground<'_>) {
        match record.op() {
            op::CONDITION => return self.condition(rest[0], none_yet, ground),
            op::CONDITION_DONE => return self.condition_done(rest[0], errno(rest[1]), ground),
            op::INIT => return self.init(kind_and_mode(record.api()).0, ground),
            _ => {}
        }
        let (kind, mode) = kind_and_mode(record.api());
        let lock = self.lock(self.address, kind, ground.locks);
        match record.op() {
            op::ACQUIRED => self.acquired(lock, kind, mode, None),
            op::ACQUIRED_DEAD => self.acquired(lock, kind, mode, Some(libc::EOWNERDEAD)),
            op::WAIT => {
                let owner = u32::try_from(rest[0]).ok().and_then(|tid| self.image.tasks.get(&tid));
                let row = Event { mode, peer_task: owner.copied(), ..self.row(EventKind::Wait, lock) };
                self.out.push(row);
                self.open(Open { kind, ..self.opened(lock, none_yet) }, ground);
            }
            op::WAITED => self.waited(lock, kind, mode, None, ground),
            op::WAITED_DEAD => self.waited(lock, kind, mode, Some(libc::EOWNERDEAD), ground),
            op::FAILED => self.failed(lock, kind, mode, errno(rest[0]), ground),
            op::RELEASED => {
                let mode = if record.api() == api::RWLOCK { self.give_back() } else { mode };
                let row = Event { mode, ..self.row(EventKind::Release, lock) };
                self.out.push(row);
            }
            op::DESTROY => {
                let row = self.row(EventKind::Destroy, lock);
                self.out.push(row);
                ground.locks.end(self.image.space, self.address, kind);
                self.image.locks.remove(&(self.address, kind));
            }
            op::POSTED => {
                let row = self.row(EventKind::Wake, lock);
                self.out.push(row);
            }
            _ => {}
        }
    }

    /// What is at the address from now on is another lock.
    fn init(&mut self, kind: LockKind, ground: &mut Ground<'_>) {
        let lock = ground.locks.begin(self.image.space, self.address, kind, self.ts_ns, self.stack);
        self.image.locks.insert((self.address, kind), lock);
        let row = self.row(EventKind::Init, lock);
        self.out.push(row);
    }

    fn acquired(&mut self, lock: LockId, kind: LockKind, mode: Option<Mode>, errno: Option<i32>) {
        self.take(kind, mode);
        let free = Share::NOTHING;
        let row = Event { mode, errno, ..free.row(0, self.row(EventKind::Acquire, lock)) };
        self.out.push(row);
    }

    fn waited(
        &mut self,
        lock: LockId,
        kind: LockKind,
        mode: Option<Mode>,
        errno: Option<i32>,
        ground: &mut Ground<'_>,
    ) {
        self.take(kind, mode);
        let row = match self.close(kind, ground) {
            Some(open) => {
                let row = Event { stack: open.stack, ..self.row(EventKind::Acquire, lock) };
                open.share.row(self.ts_ns - open.ts_ns, row)
            }
            // The begin was lost.
            None => {
                *ground.unpaired += 1;
                self.row(EventKind::Acquire, lock)
            }
        };
        self.out.push(Event { mode, errno, ..row });
    }

    fn failed(
        &mut self,
        lock: LockId,
        kind: LockKind,
        mode: Option<Mode>,
        errno: Option<i32>,
        ground: &mut Ground<'_>,
    ) {
        let row = match self.close(kind, ground) {
            Some(open) => {
                let row = Event { stack: open.stack, ..self.row(EventKind::Abandon, lock) };
                let row = open.share.row(self.ts_ns - open.ts_ns, row);
                // Nobody's wake-up gave it the lock.
                Event { peer_task: None, peer_stack: None, ..row }
            }
            None => self.row(EventKind::TryFail, lock),
        };
        self.out.push(Event { mode, errno, ..row });
    }

    fn condition(&mut self, address: u64, none_yet: Share, ground: &mut Ground<'_>) {
        let mutex = self.lock(self.address, LockKind::PthreadMutex, ground.locks);
        let lock = self.lock(address, LockKind::CondVar, ground.locks);
        let release = Event { mode: Some(Mode::Exclusive), ..self.row(EventKind::Release, mutex) };
        let wait = self.row(EventKind::Wait, lock);
        self.out.extend([release, wait]);
        let condition = Condition { address, share: none_yet, mutex_waits_since: None };
        let kind = LockKind::CondVar;
        self.open(Open { kind, condition: Some(condition), ..self.opened(mutex, none_yet) }, ground);
    }

    /// Whatever the wait returns, the caller has the mutex: after a signal, after a timeout, and after arguments that were
    /// refused before the mutex was given back.
    fn condition_done(&mut self, address: u64, errno: Option<i32>, ground: &mut Ground<'_>) {
        let mutex = self.lock(self.address, LockKind::PthreadMutex, ground.locks);
        let lock = self.lock(address, LockKind::CondVar, ground.locks);
        let dead = errno.filter(|&errno| errno == libc::EOWNERDEAD);
        let failed = errno.filter(|_| dead.is_none());
        let kind = if failed.is_some() { EventKind::Abandon } else { EventKind::Acquire };
        let Some(open) = self.close(LockKind::CondVar, ground) else {
            *ground.unpaired += 1;
            let acquire = self.row(EventKind::Acquire, mutex);
            let rows = [
                Event { errno: failed, ..self.row(kind, lock) },
                Event { mode: Some(Mode::Exclusive), errno: dead, ..acquire },
            ];
            return self.out.extend(rows);
        };
        let condition = open.condition.map_or(Share::UNKNOWN, |condition| condition.share);
        let row = Event { errno: failed, stack: open.stack, ..self.row(kind, lock) };
        let row = condition.row(self.ts_ns - open.ts_ns, row);
        let signalled = failed.is_none();
        self.out.push(Event {
            peer_task: row.peer_task.filter(|_| signalled),
            peer_stack: row.peer_stack.filter(|_| signalled),
            ..row
        });
        let since = open.condition.and_then(|condition| condition.mutex_waits_since);
        let share = if since.is_some() { open.share } else { Share::NOTHING };
        let row = Event { stack: open.stack, ..self.row(EventKind::Acquire, mutex) };
        let row = share.row(since.map_or(0, |since| self.ts_ns - since), row);
        self.out.push(Event { mode: Some(Mode::Exclusive), errno: dead, ..row });
    }

    fn row(&self, kind: EventKind, lock: LockId) -> Event {
        Event {
            lock: Some(lock),
            task: Some(self.state.task),
            stack: self.stack,
            cpu: None,
            ..Event::new(self.ts_ns, kind, 0)
        }
    }

    fn lock(&mut self, address: u64, kind: LockKind, locks: &mut Locks) -> LockId {
        let (space, ts_ns) = (self.image.space, self.ts_ns);
        let known = self.image.locks.entry((address, kind));
        let id = *known.or_insert_with(|| locks.id(space, address, kind, ts_ns));
        locks.touch(id, ts_ns);
        id
    }

    fn opened(&self, lock: LockId, share: Share) -> Open {
        let (address, ts_ns, stack) = (self.address, self.ts_ns, self.stack);
        Open { address, kind: LockKind::PthreadMutex, lock, ts_ns, stack, share, condition: None }
    }

    fn open(&mut self, open: Open, ground: &mut Ground<'_>) {
        if self.state.open.len() >= MOST_NESTED {
            // Waits that were left by longjmp or by cancellation never end.
            self.state.open.remove(0);
            *ground.unpaired += 1;
        }
        self.state.open.push(open);
    }

    /// The wait of this kind on this address that ends now. Those above it were left without an end.
    fn close(&mut self, kind: LockKind, ground: &mut Ground<'_>) -> Option<Open> {
        let all = &mut self.state.open;
        let index = all.iter().rposition(|open| open.address == self.address && open.kind == kind)?;
        *ground.unpaired += (all.len() - index - 1) as u64;
        all.truncate(index + 1);
        all.pop()
    }

    /// Remembers how an rwlock is held: giving it back does not say.
    fn take(&mut self, kind: LockKind, mode: Option<Mode>) {
        if kind != LockKind::PthreadRwLock {
            return;
        }
        let (exclusive, shared) = self.state.held.entry(self.address).or_default();
        *if mode == Some(Mode::Exclusive) { exclusive } else { shared } += 1;
    }

    /// How the rwlock was held that is given back; `None` if that was not seen.
    fn give_back(&mut self) -> Option<Mode> {
        let held = self.state.held.get_mut(&self.address)?;
        let (mode, left) = match held {
            // Nobody reads while somebody writes.
            (exclusive @ 1.., shared) => {
                *exclusive -= 1;
                (Mode::Exclusive, *exclusive + *shared)
            }
            (0, shared) => {
                *shared = shared.saturating_sub(1);
                (Mode::Shared, *shared)
            }
        };
        if left == 0 {
            self.state.held.remove(&self.address);
        }
        Some(mode)
    }
}

/// Waits of one thread that may be open at once.
const MOST_NESTED: usize = 16;

fn kind_and_mode(api: u8) -> (LockKind, Option<Mode>) {
    match api {
        api::RWLOCK_READ => (LockKind::PthreadRwLock, Some(Mode::Shared)),
        api::RWLOCK_WRITE => (LockKind::PthreadRwLock, Some(Mode::Exclusive)),
        api::RWLOCK => (LockKind::PthreadRwLock, None),
        api::SPIN => (LockKind::PthreadSpin, Some(Mode::Exclusive)),
        api::CONDITION => (LockKind::CondVar, None),
        api::BARRIER => (LockKind::Barrier, None),
        api::SEMAPHORE => (LockKind::UserSemaphore, None),
        _ => (LockKind::PthreadMutex, Some(Mode::Exclusive)),
    }
}

/// A positive errno; what can't be one is none.
fn errno(word: u64) -> Option<i32> {
    const LAST: u64 = 4095;
    (1..=LAST).contains(&word).then_some(word as i32)
}

/// Records of this task are missing.
fn lost_row(ts_ns: i64, task: TaskId, count: u64) -> Event {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    Event { task: Some(task), count: Some(count), cpu: None, ..Event::new(ts_ns, EventKind::Lost, 0) }
}

#[cfg(test)]
mod tests;
