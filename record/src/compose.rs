//! Wire records in the order of time in, rows of the trace out: one state machine without any input or output of its
//! own.
//!
//! It says what was seen in the words of the format, and joins only what one task did in one attempt: the begin and
//! the end of a wait, the call and the return of a function. What holds, waits and contention mean over a whole
//! trace is the analyzer's business.
//!
//! **Loss.** When events of a CPU are missing, any open wait or call may have ended and begun again unseen, on any
//! CPU. So whatever is open then is not paired: an acquisition whose begin lies before the gap has no `wait_ns`.

use rustc_hash::FxHashMap;
use trace_format::{
    Event, EventKind, LockId, StackId, TaskId,
    kernel_functions::FUNCTIONS,
    wire::{WireEvent, WireTask, code, flag, place},
};

use crate::{
    filters::Filters,
    locks::{Locks, Space},
    order::Record,
    preload::lanes::Step,
    stacks::{StackRef, Stacks},
    tasks::Tasks,
};

mod futex;
mod kernel;
mod off_cpu;
mod preload;
mod pthread;
#[cfg(test)]
mod script;

/// Turns records into rows.
#[derive(Debug)]
pub struct Composer {
    /// Who is who.
    pub tasks: Tasks,
    /// Which lock is which.
    pub locks: Locks,
    /// Which stack is which.
    pub stacks: Stacks,
    kernel: kernel::Waits,
    futex: futex::Waits,
    pthread: pthread::Calls,
    preload: preload::Calls,
    drops_begins: bool,
    tally: Tally,
}

/// What the composer counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Ends of which the begin was not seen, and begins of which the end was not: no row stands for them.
    pub unpaired: u64,
    /// Events that were announced as lost in their place, by CPU.
    pub lost: FxHashMap<u32, u64>,
    /// Time of the last record, CLOCK_MONOTONIC, in nanoseconds.
    pub last_ns: i64,
}

/// A task as the records name it: its thread id, or the CPU whose idle task it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct TaskKey(u64);

/// What every record says about its moment, in the ids of the trace.
#[derive(Clone, Copy, Debug)]
struct Moment {
    ts_ns: i64,
    cpu: i32,
    key: TaskKey,
    task: TaskId,
    /// The address space of the task's process.
    space: Space,
    stack: Option<StackId>,
    /// Who ended the wait, where the record says so.
    waker: Option<(TaskId, Option<StackId>)>,
    /// Who owned the lock when the wait began, where the record says so.
    owner: Option<TaskId>,
    sums: Option<Sums>,
}

/// How long a task has slept and stood in a run queue, summed up since some moment in the past.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    blocked_ns: i64,
    runq_ns: i64,
}

/// A begun wait, as far as its end needs to know it.
#[derive(Clone, Copy, Debug)]
struct OpenWait {
    lock: LockId,
    ts_ns: i64,
    stack: Option<StackId>,
    sums: Option<Sums>,
}

impl Moment {
    fn row(&self, kind: EventKind, lock: LockId) -> Event {
        Event {
            lock: Some(lock),
            task: Some(self.task),
            stack: self.stack,
            ..Event::new(self.ts_ns, kind, self.cpu)
        }
    }

    /// The row that ends `wait` now: ownership, or `errno`.
    fn end_of(&self, wait: &OpenWait, errno: Option<i32>) -> Event {
        let shares = Sums::between(wait.sums, self.sums);
        Event {
            stack: wait.stack,
            wait_ns: Some((self.ts_ns - wait.ts_ns).max(0)),
            blocked_ns: shares.map(|s| s.blocked_ns),
            runq_ns: shares.map(|s| s.runq_ns),
            ..self.end_of_unknown(wait.lock, errno)
        }
    }

    /// The row that ends a wait whose begin was not seen, so that its length and place are not known.
    fn end_of_unknown(&self, lock: LockId, errno: Option<i32>) -> Event {
        let kind = if errno.is_some() { EventKind::Abandon } else { EventKind::Acquire };
        let peer = self.waker.filter(|_| errno.is_none());
        Event {
            stack: None,
            errno,
            peer_task: peer.map(|(task, _)| task),
            peer_stack: peer.and_then(|(_, stack)| stack),
            ..self.row(kind, lock)
        }
    }
}

impl Sums {
    /// What was added between two readings; `None` if one is missing or they belong to different sums.
    fn between(begin: Option<Self>, end: Option<Self>) -> Option<Self> {
        let (begin, end) = (begin?, end?);
        let added =
            Self { blocked_ns: end.blocked_ns - begin.blocked_ns, runq_ns: end.runq_ns - begin.runq_ns };
        (added.blocked_ns >= 0 && added.runq_ns >= 0).then_some(added)
    }
}

impl Composer {
    /// Begins with what is known of the tasks. `futexes` says whether futex waits are recorded: where they are not,
    /// how much of a wait was sleep is unknown. `drops_begins` says whether the kernel side leaves begins out on purpose.
    pub fn new(tasks: Tasks, futexes: bool, drops_begins: bool) -> Self {
        Self {
            tasks,
            locks: Locks::default(),
            stacks: Stacks::default(),
            kernel: kernel::Waits::new(drops_begins),
            futex: futex::Waits::default(),
            pthread: pthread::Calls::new(futexes),
            preload: preload::Calls::new(futexes, false, Filters::default()),
            drops_begins,
            tally: Tally::default(),
        }
    }

    /// With processes that record themselves. `futexes` says whether the kernel side records futex waits, `tasks_told` whether
    /// it tells of births and ends of tasks; what `filters` leave out is left out here.
    pub fn with_preload(self, futexes: bool, tasks_told: bool, filters: Filters) -> Self {
        Self { preload: preload::Calls::new(futexes, tasks_told, filters), ..self }
    }

    /// Takes in the next step of a thread that records itself, by the number of its life, in the order of time.
    pub fn step(&mut self, ts_ns: u64, life: u32, step: &Step<'_>, out: &mut Vec<Event>) {
        let ts_ns = ts_ns as i64;
        let Self { tasks, locks, stacks, tally, preload, .. } = self;
        tally.last_ns = tally.last_ns.max(ts_ns);
        let unpaired = &mut tally.unpaired;
        preload.step(ts_ns, life, step, &mut preload::Ground { tasks, locks, stacks, unpaired }, out);
    }

    /// Takes in the next record in the order of time and adds the rows that it makes to `out`.
    pub fn record(&mut self, record: &Record, out: &mut Vec<Event>) {
        self.tally.last_ns = self.tally.last_ns.max(record.ts_ns() as i64);
        match record {
            Record::Event(event) => self.event(event, out),
            Record::Task(task) => self.task(task),
        }
    }

    /// What was counted so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Adds the rows for losses after the last event of a CPU, given all events that were lost by CPU.
    pub fn finish(&mut self, lost_by_cpu: impl IntoIterator<Item = (u32, u64)>, out: &mut Vec<Event>) {
        for (cpu, total) in lost_by_cpu {
            let told = self.tally.lost.get(&cpu).copied().unwrap_or(0);
            if let Some(rest) = total.checked_sub(told).filter(|&rest| rest > 0) {
                out.push(lost_row(self.tally.last_ns, cpu, rest));
                self.tally.lost.insert(cpu, total);
            }
        }
    }

    fn event(&mut self, event: &WireEvent, out: &mut Vec<Event>) {
        if event.lost_before > 0 {
            self.lost(event, out);
        }
        let moment = self.moment(event);
        let value = event.value;
        match event.code {
            code::CONTENTION_BEGIN => {
                self.kernel.begin(&moment, event.address, event.detail, &mut self.locks, out);
            }
            code::CONTENTION_END if event.extra != 0 => {
                let (lock, begun_ns) = ((event.address, event.detail), event.extra as i64);
                self.kernel.whole(&moment, lock, begun_ns, errno_of(value), &mut self.locks, out);
            }
            code::CONTENTION_END => {
                let unpaired = &mut self.tally.unpaired;
                self.kernel.end(&moment, event.address, errno_of(value), &mut self.locks, unpaired, out);
            }
            code::OFF_CPU => out.push(off_cpu::row(&moment, event)),
            code::LOCK_TAKEN | code::LOCK_RELEASED => self.kernel_function(&moment, event, out),
            code::FUTEX_WAIT => {
                self.pthread.futex_seen(&moment, event.address);
                let part = self.preload.futex_wait(&moment, event.address, out);
                let part = part.or_else(|| self.pthread.futex_wait(&moment, event, out));
                self.futex.begin(&moment, event.address, part, &mut self.locks, out);
            }
            code::FUTEX_WAIT_DONE if event.extra != 0 => {
                let (word, begun_ns) = (event.address, event.extra as i64);
                futex::whole(&moment, word, begun_ns, errno_of(value), &mut self.locks, out);
            }
            code::FUTEX_WAIT_DONE => {
                self.pthread.futex_seen(&moment, event.address);
                let errno = errno_of(value);
                if let Some((part, shares)) =
                    self.futex.end(&moment, event.address, errno, &mut self.locks, out)
                {
                    let known = self.preload.futex_wait_done(&moment, part, shares);
                    if !known {
                        self.pthread.futex_wait_done(&moment, part, shares, errno);
                    }
                }
            }
            code::FUTEX_WAKE => {
                let (word, begun_ns) = (event.address, event.extra as i64);
                futex::wake(&moment, word, begun_ns, value, &mut self.locks, out);
            }
            code::RETURN => {
                let mut unpaired = 0;
                self.pthread(&moment, event, &mut unpaired, out);
                // Of a call on a lock that is not recorded, the return comes all the same: it does not know the lock.
                self.tally.unpaired += if self.drops_begins { 0 } else { unpaired };
            }
            code::CALL | code::TAKEN | code::UNLOCK | code::INIT | code::DESTROY | code::POST => {
                let mut unpaired = 0;
                self.pthread(&moment, event, &mut unpaired, out);
                self.tally.unpaired += unpaired;
            }
            _ => {}
        }
    }

    fn pthread(&mut self, moment: &Moment, event: &WireEvent, unpaired: &mut u64, out: &mut Vec<Event>) {
        let Self { pthread, tasks, locks, .. } = self;
        pthread.record(moment, event, &mut pthread::Around { tasks, locks, unpaired, out });
    }

    fn kernel_function(&mut self, moment: &Moment, event: &WireEvent, out: &mut Vec<Event>) {
        // Records of other functions are not decoded.
        let Some(function) = FUNCTIONS.get(usize::from(event.detail)) else { return };
        let locks = &mut self.locks;
        if event.code == code::LOCK_TAKEN {
            self.kernel.taken(moment, event.address, function, errno_of(event.value), locks, out);
        } else {
            self.kernel.released(moment, event.address, function, locks, out);
        }
    }

    fn task(&mut self, task: &WireTask) {
        self.tasks.apply(task);
        if task.code == code::TASK_FORK || task.code == code::TASK_EXEC {
            // Whatever the former owner of these numbers had begun will not end.
            for tid in [task.tid, task.parent_tid] {
                if tid == task.tid || task.code == code::TASK_EXEC {
                    let key = TaskKey(u64::from(tid));
                    self.futex.forget(key);
                    self.tally.unpaired += self.pthread.forget(key);
                }
            }
        }
    }

    fn lost(&mut self, event: &WireEvent, out: &mut Vec<Event>) {
        let count = u64::from(event.lost_before);
        out.push(lost_row(event.ts_ns as i64, event.cpu, count));
        *self.tally.lost.entry(event.cpu).or_default() += count;
        self.kernel.lost();
        self.futex.lost();
        self.pthread.lost();
    }

    fn moment(&mut self, event: &WireEvent) -> Moment {
        let process = self.tasks.process(event.tgid);
        // Stacks that are older than their event travel under numbers of their own, and so do those of its waker, who was on
        // another CPU.
        let here = (event.cpu, event.seq);
        let elsewhere = |at: u64| (place::cpu(at), place::seq(at));
        let (own, peers, caller) = match event.code {
            code::OFF_CPU => (elsewhere(event.address), elsewhere(event.caller), 0),
            _ => (here, here, event.caller),
        };
        let stacks = StackRef {
            process: (process, event.tgid),
            kernel: event.kernel_stack,
            user: event.user_stack,
            caller,
            event: own,
            peer: false,
        };
        let waker = (event.flags & flag::PEER != 0).then(|| {
            let stacks = StackRef {
                process: (self.tasks.process(event.peer_tgid), event.peer_tgid),
                kernel: event.peer_kernel_stack,
                user: event.peer_user_stack,
                caller: 0,
                event: peers,
                peer: true,
            };
            // Wake-ups by an idle task are interrupts; only records of off-CPU time say of which CPU.
            (self.tasks.id(event.peer_tgid, event.peer_tid, peers.0), self.stacks.id(&stacks))
        });
        let owner = (event.flags & flag::OWNER != 0)
            .then(|| self.tasks.id(event.peer_tgid, event.peer_tid, event.cpu));
        let known = event.flags & flag::NO_WAIT_STATE == 0;
        Moment {
            ts_ns: event.ts_ns as i64,
            cpu: event.cpu as i32,
            key: TaskKey(if event.tid == 0 { 1 << 32 | u64::from(event.cpu) } else { u64::from(event.tid) }),
            task: self.tasks.id(event.tgid, event.tid, event.cpu),
            space: Space::Process(process, event.tgid),
            stack: self.stacks.id(&stacks),
            waker,
            owner,
            sums: known
                .then_some(Sums { blocked_ns: event.blocked_ns as i64, runq_ns: event.runq_ns as i64 }),
        }
    }
}

fn lost_row(ts_ns: i64, cpu: u32, count: u64) -> Event {
    Event { count: Some(count as i64), ..Event::new(ts_ns, EventKind::Lost, cpu as i32) }
}

/// What a system call or the kernel reported as failure, as a positive errno.
fn errno_of(value: i64) -> Option<i32> {
    /// The codes from 512 on tell the kernel to restart the call after a signal; its caller sees `EINTR`, if anything.
    const FIRST_RESTART: i64 = 512;
    match -value {
        errno if errno <= 0 => None,
        errno if errno >= FIRST_RESTART => Some(libc::EINTR),
        errno => Some(errno as i32),
    }
}
