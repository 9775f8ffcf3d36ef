//! Decodes the steps of threads that record themselves into facts. Few facts need inference:
//! the library in the process tries first, so it knows whether a call waited and how it ended.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};
use trace_format::{
    CallKind, Event, EventKind, LockKind, Mode, StackId, TaskId,
    preload::{Record, call, op},
    wire::api,
};

use super::{
    header::{Context, TaskKey},
    user::{UserLocks, fact::Action},
};
use crate::{
    compose::{
        locks::Space,
        stacks::Stacks,
        tasks::{ProcessKey, comm_of},
    },
    preload::{
        batch::{Chunk, ProcessImage, ThreadExit, ThreadSession},
        budget::{Excess, Item},
        merge::Step,
        records::{self, Unit},
    },
    setup::filters::Filters,
};

mod session;

use session::Threads;
use session::fact;
use session::{Held, Image, Session, header};

/// The processes and threads that record themselves.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Sessions {
    /// By number of the thread session.
    sessions: Vec<Option<Session>>,
    /// By number of the process image.
    images: Vec<Option<Image>>,
    by_task: FxHashMap<TaskKey, u32>,
    /// The kernel side reports starts and exits of tasks, too.
    tasks_reported: bool,
    filters: Filters,
    /// The images of thread sessions that were seen and wait to be composed.
    coming: FxHashMap<u32, u32>,
}

impl Sessions {
    /// Starts without processes. `tasks_reported` means that the kernel side reports starts and exits of
    /// tasks.
    pub(crate) fn new(tasks_reported: bool, filters: Filters) -> Self {
        Self {
            sessions: Vec::new(),
            images: Vec::new(),
            by_task: FxHashMap::default(),
            tasks_reported,
            filters,
            coming: FxHashMap::default(),
        }
    }

    /// Gives the stacks in a chunk their ids, long before the chunk is composed, so that they are looked up
    /// while its process runs. Returns `false` if its process waits to be composed itself.
    pub(crate) fn see(&mut self, number: u32, chunk: &Chunk, stacks: &mut Stacks) -> bool {
        let units = match chunk {
            Chunk::Start(session) => {
                self.coming.insert(number, session.image.id);
                return matches!(self.images.get(session.image.id as usize), Some(Some(_)));
            }
            Chunk::Units(units) => units,
            Chunk::WrittenAfter(_) | Chunk::Exit(_) => return true,
        };
        let known = self.sessions.get(number as usize).and_then(Option::as_ref).map(|session| session.image);
        let image = known.or_else(|| self.coming.get(&number).copied());
        let image = image.and_then(|image| self.images.get_mut(image as usize)?.as_mut());
        let Some(image) = image else { return false };
        let Space::Process(process, pid) = image.space else { return false };
        let mut at = 0;
        while at < units.len() {
            let Ok((record, rest)) = records::first(&units[at..]) else {
                at += 1;
                continue;
            };
            at += 1 + rest.len();
            if record.op() == op::STACK
                && stack_of((process, pid), &image.process, (&record, rest), stacks).1.is_err()
            {
                image.is_over = true;
                return true;
            }
        }
        true
    }

    /// Whether the kernel side reports starts and exits of tasks.
    pub(crate) const fn tasks_are_reported(&self) -> bool {
        self.tasks_reported
    }

    /// Adds the next step of the thread session with this number.
    pub(crate) fn step(
        &mut self,
        ts_ns: i64,
        number: u32,
        step: &Step<'_>,
        user: &mut UserLocks,
        context: &mut Context<'_>,
    ) {
        match step {
            Step::Start(session) => self.start(number, session, user, context),
            Step::Record(record, rest) => self.record(ts_ns, number, record, rest, user, context),
            Step::Exit(exit, unreported) => self.exit(ts_ns, number, exit, *unreported, user, context),
        }
    }

    fn start(
        &mut self,
        number: u32,
        session: &ThreadSession,
        user: &mut UserLocks,
        context: &mut Context<'_>,
    ) {
        self.coming.remove(&number);
        let ThreadSession { image, tid, is_seen, own_tid, start_ns, comm } = session;
        let (pid, tasks_reported) = (image.pid, self.tasks_reported);
        let at = image.id as usize;
        if self.images.len() <= at {
            self.images.resize_with(at + 1, || None);
        }
        let state = self.images[at].get_or_insert_with(|| {
            if !tasks_reported {
                context.tasks.start_image(pid, image.known.clone(), image.ts_ns as i64, image.new_program);
            } else if let Some(known) = &image.known {
                context.tasks.move_to(pid, &known.group);
            }
            let space = Space::Process(context.tasks.process(pid), pid);
            let (process, tasks) = (Arc::clone(image), FxHashMap::default());
            Image { process, space, tasks, threads: Threads::default(), is_over: false }
        });
        // A thread that exited before it was seen may claim the id of another process's thread, of which more
        // records come.
        let tid = if *is_seen || !context.tasks.is_of_other(pid, *tid) { *tid } else { pid };
        if !tasks_reported {
            context.tasks.start_thread(pid, tid, comm, *start_ns as i64);
        }
        let task = context.tasks.id(pid, tid, 0);
        state.tasks.insert(*own_tid, task);
        let key = TaskKey::of_thread(tid);
        let before = self.by_task.insert(key, number);
        if let Some(before) = before.and_then(|before| self.sessions.get_mut(before as usize))
            && before.as_ref().is_some_and(|before| before.image != image.id)
        {
            // The id belongs to this process now, so the thread of the other one has exited, whatever its
            // memory contains.
            *before = None;
        }
        user.forget(key);
        let index = number as usize;
        if self.sessions.len() <= index {
            self.sessions.resize_with(index + 1, || None);
        }
        self.sessions[index] = Some(Session {
            image: image.id,
            tid,
            own_tid: *own_tid,
            task,
            stacks: Vec::new(),
            is_selected: self.filters.selects_comm(&comm_of(comm)),
            has_started: false,
            held: Held::default(),
        });
    }

    /// Forgets which locks threads hold.
    pub(crate) fn lost_all(&mut self) {
        self.sessions.iter_mut().flatten().for_each(|session| session.held = Held::default());
    }

    /// Returns the thread with this id if it records itself and may hold a lock.
    pub(crate) fn holder(&self, tid: u32) -> Option<TaskId> {
        let number = *self.by_task.get(&TaskKey::of_thread(tid))?;
        let session = self.sessions.get(number as usize)?.as_ref()?;
        session.held.has_any().then_some(session.task)
    }

    /// Returns the process of the thread with this id if it records itself and holds one of these locks.
    pub(crate) fn process_of_holder(&self, tid: u32, locks: &FxHashSet<(Space, u64)>) -> Option<u32> {
        let number = *self.by_task.get(&TaskKey::of_thread(tid))?;
        let session = self.sessions.get(number as usize)?.as_ref()?;
        let image = self.images.get(session.image as usize)?.as_ref()?;
        let holds_one = session.held.locks.iter().any(|&lock| locks.contains(&(image.space, lock)));
        holds_one.then_some(image.process.pid)
    }

    fn exit(
        &mut self,
        ts_ns: i64,
        number: u32,
        exit: &ThreadExit,
        unreported: u64,
        user: &mut UserLocks,
        context: &mut Context<'_>,
    ) {
        let Some(session) = self.sessions.get_mut(number as usize).and_then(Option::take) else { return };
        if unreported > 0 {
            context.out.push(lost_row(ts_ns, session.task, unreported));
        }
        let key = TaskKey::of_thread(session.tid);
        if self.by_task.get(&key) == Some(&number) {
            self.by_task.remove(&key);
            let open = user.forget(key);
            if exit.exit_ns != 0 {
                *context.unpaired += open;
            }
        }
        if exit.exit_ns != 0 && !self.tasks_reported {
            context.tasks.exit_thread(session.tid, &exit.comm, exit.exit_ns as i64);
        }
        if let Some(Some(image)) = self.images.get_mut(session.image as usize)
            && image.tasks.get(&session.own_tid) == Some(&session.task)
        {
            image.tasks.remove(&session.own_tid);
        }
    }

    fn record(
        &mut self,
        ts_ns: i64,
        number: u32,
        record: &Record,
        rest: &[Unit],
        user: &mut UserLocks,
        context: &mut Context<'_>,
    ) {
        let Some(Some(session)) = self.sessions.get_mut(number as usize) else { return };
        let Some(Some(image)) = self.images.get_mut(session.image as usize) else { return };
        if image.is_over {
            return;
        }
        let mut is_charged = true;
        let first = rest.first().copied().unwrap_or_default();
        match record.op() {
            op::STACK => {
                let Space::Process(process, pid) = image.space else { return };
                if session.stacks.len() >= usize::from(u16::MAX) {
                    image.process.account.end(Excess::SessionStacks);
                    image.is_over = true;
                    return;
                }
                let (stack, charged) =
                    stack_of((process, pid), &image.process, (record, rest), context.stacks);
                session.stacks.push(stack);
                is_charged = charged.is_ok();
            }
            op::LOST => {
                context.out.push(lost_row(ts_ns, session.task, record.address()));
                let work = user.lost_by(TaskKey::of_thread(session.tid)) as u64;
                is_charged = image.process.account.charge(Item::Loss(work)).is_ok();
            }
            op::RENAMED => {
                let mut comm = [0; 16];
                comm[..8].copy_from_slice(&first[0].to_ne_bytes());
                comm[8..].copy_from_slice(&first[1].to_ne_bytes());
                session.is_selected = self.filters.selects_comm(&comm_of(&comm));
                if !self.tasks_reported {
                    context.tasks.rename_thread(session.tid, &comm);
                }
            }
            op::STARTED if session.has_started => {}
            op::STARTED => {
                session.has_started = true;
                let header = header(ts_ns, record, session, image);
                image.threads.started(&header, record.address(), context);
            }
            _ if !session.is_selected || !self.filters.selects_address(record.address()) => {}
            op::ACQUIRED | op::RELEASED if is_simple(record) => {
                is_charged = simple_row(ts_ns, record, session, image, context);
            }
            _ => {
                let header = header(ts_ns, record, session, image);
                if let Some(fact) = fact(record, first, |tid| image.tasks.get(&tid).copied()) {
                    session.held.add(&fact);
                    let before = context.locks.rows().len();
                    match (fact.kind(), fact.action) {
                        (LockKind::Thread, Action::Initialised) => {
                            image.threads.created(&header, fact.address, context);
                        }
                        _ => user.add(&header, &fact, context),
                    }
                    if fact.is_join() {
                        image.threads.joined(fact.address);
                    }
                    let new = context.locks.rows().len() - before;
                    is_charged = new == 0 || image.process.account.charge(Item::Locks(new as u64)).is_ok();
                }
            }
        }
        if !is_charged {
            // Nothing that the process recorded from now on is composed.
            image.is_over = true;
        }
    }
}

/// Returns the id of the stack that a record and the units behind it report, and charges a new one to its
/// process.
fn stack_of(
    address_space: (ProcessKey, u32),
    process: &ProcessImage,
    (record, rest): (&Record, &[Unit]),
    stacks: &mut Stacks,
) -> (StackId, Result<(), Excess>) {
    let frames = records::frames(record, rest);
    let (before, count) = (stacks.count(), frames.len() as u64);
    let id = stacks.id_of_calls(address_space, frames);
    let is_new = stacks.count() > before;
    (id, if is_new { process.account.charge(Item::Stack(count)) } else { Ok(()) })
}

/// Whether [`simple_row`] adds the row of an acquisition or a release: the lock is a mutex, or of another
/// kind whose holders need not be known.
#[inline]
fn is_simple(record: &Record) -> bool {
    matches!(record.api(), api::MUTEX | api::SPIN) && record.address() != 0
}

/// Adds the row of an acquisition without a wait, or of a release, as [`UserLocks::add`] does. Most records
/// are of these kinds and need nothing that [`UserLocks`] knows. Returns `false` if the process's budget is
/// exceeded.
#[inline(always)]
fn simple_row(
    ts_ns: i64,
    record: &Record,
    session: &mut Session,
    image: &Image,
    context: &mut Context<'_>,
) -> bool {
    let address = record.address();
    let kind = if record.api() == api::SPIN { LockKind::PthreadSpin } else { LockKind::PthreadMutex };
    let before = context.locks.rows().len();
    let lock = context.locks.id(image.space, address, kind, ts_ns);
    let new = context.locks.rows().len() - before;
    let row = |kind| Event {
        mode: Some(Mode::Exclusive),
        lock: Some(lock),
        task: Some(session.task),
        stack: session.stack(record),
        cpu: None,
        ..Event::new(ts_ns, kind, 0)
    };
    if record.op() == op::ACQUIRED {
        let call = match record.call() {
            call::TRY => Some(CallKind::Try),
            call::TIMED => Some(CallKind::Timed),
            _ => None,
        };
        let (wait_ns, blocked_ns, runq_ns) = (Some(0), Some(0), Some(0));
        let acquire = row(EventKind::Acquire);
        context.out.push_inlined(Event { wait_ns, blocked_ns, runq_ns, call, ..acquire });
        session.held.take(address);
    } else {
        context.out.push_inlined(row(EventKind::Release));
        session.held.release(address);
    }
    new == 0 || image.process.account.charge(Item::Locks(new as u64)).is_ok()
}

/// The row of missing records of a task.
fn lost_row(ts_ns: i64, task: TaskId, count: u64) -> Event {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    Event { task: Some(task), count: Some(count), cpu: None, ..Event::new(ts_ns, EventKind::Lost, 0) }
}

#[cfg(test)]
mod tests;
