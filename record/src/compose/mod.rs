//! Composes rows of the trace from wire records in the order of time: one state machine without input or
//! output of its own.
//!
//! Rows report what was seen, in the terms of the format. The composer joins only records of one attempt of
//! one task: the begin and the end of a wait, the call and the return of a function. Holds, waits and
//! contention over a whole trace are left to the analysis.
//!
//! **Loss.** When events of a CPU are missing, any open wait or call may have ended and begun again unseen,
//! on any CPU. So nothing is paired across a loss: an acquisition that began before it has no `wait_ns`.

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use trace_format::{
    Event, EventColumns, EventKind, LockKind, Mode,
    kernel_functions::FUNCTIONS,
    user_functions::is_slow_path,
    wire::{WireEvent, WireTask, code, flag, stack_key},
};

use crate::{
    compose::{
        locks::{Locks, Space},
        stacks::{StackRef, Stacks},
        tasks::Tasks,
    },
    kernel::order::{Orderer, Record},
    preload::{
        batch::Chunk,
        merge::{Merger, Step},
    },
    setup::filters::Filters,
    sources::{
        futex::{self, FutexWaits},
        kernel::compose::KernelWaits,
        off_cpu, probes,
        switches::{
            compose::{Reading, Sleeper, Switches},
            records::{Switch, SwitchAction},
        },
    },
    system::stuck::StuckThread,
};

pub(crate) mod header;
pub(crate) mod locks;
pub(crate) mod preload;
mod recent;
pub(crate) mod remembered;
#[cfg(test)]
pub(crate) mod script;
pub(crate) mod stacks;
pub(crate) mod tasks;
#[cfg(test)]
mod tests;
pub(crate) mod user;

use header::Context;
use header::{Header, OffCpuTimes, Source, TaskKey, errno_of};

/// Turns records into rows.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Composer {
    pub tasks: Tasks,
    pub locks: Locks,
    pub stacks: Stacks,
    #[serde(skip)]
    pub(crate) kernel: KernelWaits,
    #[serde(skip)]
    pub(crate) futex: FutexWaits,
    user: user::UserLocks,
    sessions: preload::Sessions,
    switches: Switches,
    drops_begins: bool,
    /// Whether threads that record themselves and hold no lock have no off-CPU rows.
    pub(crate) has_holders_only: bool,
    /// The process that klock starts, until it executes its program, and a time at which it has done so.
    launching: Option<(u32, u64)>,
    pub(crate) stats: ComposerStats,
}

/// The composer's counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ComposerStats {
    /// Ends without a begin and begins without an end: no row stands for them.
    pub unpaired: u64,
    /// Events that were reported as lost before a later event of their CPU, by CPU.
    pub lost: FxHashMap<u32, u64>,
    /// Time of the last record, CLOCK_MONOTONIC, in nanoseconds.
    pub last_ns: i64,
}

impl Composer {
    /// Starts with the known tasks. `futexes` means that futex waits are recorded; otherwise, the sleep in a
    /// wait is unknown. `drops_begins` means that the kernel side leaves begins out on purpose.
    pub(crate) fn new(tasks: Tasks, futexes: bool, drops_begins: bool) -> Self {
        Self {
            tasks,
            locks: Locks::default(),
            stacks: Stacks::default(),
            kernel: KernelWaits::new(drops_begins),
            futex: FutexWaits::default(),
            user: user::UserLocks::new(futexes),
            sessions: preload::Sessions::new(false, Filters::default()),
            switches: Switches::default(),
            drops_begins,
            has_holders_only: false,
            launching: None,
            stats: ComposerStats::default(),
        }
    }

    /// Leaves out what this process does until it executes its program, which is klock's doing. It runs it at
    /// `running_ns` (CLOCK_MONOTONIC, in nanoseconds): the record of the execution may be lost.
    pub(crate) fn without_launch_of(mut self, pid: u32, running_ns: i64) -> Self {
        self.launching = Some((pid, running_ns as u64));
        self
    }

    /// Adds processes that record themselves. `tasks_reported` means that the kernel side reports starts and
    /// exits of tasks; records that `filters` do not select are dropped here.
    pub(crate) fn with_preload(self, tasks_reported: bool, filters: Filters) -> Self {
        let switches = Switches::new(tasks_reported, &filters);
        Self { sessions: preload::Sessions::new(tasks_reported, filters), switches, ..self }
    }

    /// Adds the next step, in the order of time, of the thread session with this number.
    pub(crate) fn step(&mut self, ts_ns: u64, session: u32, step: &Step<'_>, out: &mut EventColumns) {
        let ts_ns = ts_ns as i64;
        let Self { tasks, locks, stacks, stats, sessions, user, .. } = self;
        stats.last_ns = stats.last_ns.max(ts_ns);
        let unpaired = &mut stats.unpaired;
        sessions.step(ts_ns, session, step, user, &mut Context { tasks, locks, stacks, unpaired, out });
    }

    /// Gives the stacks in a chunk of a thread session, which is composed later, their ids. Returns `false`
    /// if its process is not known before it is composed.
    pub(crate) fn see(&mut self, session: u32, chunk: &Chunk) -> bool {
        self.sessions.see(session, chunk, &mut self.stacks)
    }

    /// The number of rows of the side tables.
    pub(crate) fn size(&self) -> usize {
        self.locks.rows().len() + self.tasks.rows().len() + self.stacks.count()
    }

    /// Adds the next record in the order of time, and appends its rows to `out`.
    pub(crate) fn record(&mut self, record: &Record, out: &mut EventColumns) {
        let before_ns = self.stats.last_ns;
        self.stats.last_ns = before_ns.max(record.ts_ns() as i64);
        match record {
            Record::Event(event) => self.event(event, out),
            Record::Task(task) => self.task(task),
            Record::Switch(switch) => {
                // A processor of a virtual machine may stop between reading the clock and writing the record.
                let ts_ns = switch.ts_ns.max(before_ns as u64);
                self.switch(&Switch { ts_ns, ..*switch }, out);
            }
        }
    }

    /// Returns the threads that have slept since `before_ns` with a lock for which others have waited since
    /// then, each once in a sleep.
    pub(crate) fn sleepers(&mut self, before_ns: i64) -> Vec<Sleeper> {
        let mut awaited = self.user.awaited(before_ns);
        if awaited.is_empty() {
            Vec::new()
        } else {
            self.locks.add_shared(&mut awaited);
            self.switches.sleepers(before_ns, &awaited, &self.sessions)
        }
    }

    /// Adds what was read of a thread of [`sleepers`](Self::sleepers), if it still slept.
    pub(crate) fn add_reading(&mut self, tid: u32, read: Reading) {
        self.switches.add_reading(tid, read);
    }

    /// Appends the rows of losses after the last event of a CPU, given the number of lost events of each CPU.
    pub(crate) fn finish(
        &mut self,
        lost_by_cpu: impl IntoIterator<Item = (u32, u64)>,
        out: &mut EventColumns,
    ) {
        for (cpu, total) in lost_by_cpu {
            let reported = self.stats.lost.get(&cpu).copied().unwrap_or(0);
            if let Some(rest) = total.checked_sub(reported).filter(|&rest| rest > 0) {
                out.push(lost_row(self.stats.last_ns, cpu, rest));
                self.stats.lost.insert(cpu, total);
            }
        }
    }

    /// Appends rows of losses that no record reported, by CPU.
    pub(crate) fn add_losses(
        &mut self,
        lost_by_cpu: impl IntoIterator<Item = (u32, u64)>,
        out: &mut EventColumns,
    ) {
        out.extend(lost_by_cpu.into_iter().map(|(cpu, count)| lost_row(self.stats.last_ns, cpu, count)));
    }

    /// Appends the rows of threads of a process that wait for each other's mutexes: each has the mutex that
    /// the thread before it wants.
    pub(crate) fn deadlock(&mut self, pid: u32, threads: &[StuckThread], ts_ns: i64, out: &mut EventColumns) {
        let space = Space::Process(self.tasks.process(pid), pid);
        let before = threads.iter().cycle().skip(threads.len() - 1);
        let holds =
            threads.iter().zip(before).map(|(thread, before)| (EventKind::Acquire, thread, before.wants));
        let waits = threads.iter().map(|thread| (EventKind::Wait, thread, thread.wants));
        for (kind, thread, mutex) in holds.chain(waits) {
            let lock = self.locks.id(space, mutex, LockKind::PthreadMutex, ts_ns);
            let task = self.tasks.thread(pid, thread.tid);
            // The owners took their mutexes before the recording: no wait of theirs counts.
            let wait_ns = (kind == EventKind::Acquire).then_some(0);
            let event = Event { task, lock: Some(lock), wait_ns, cpu: None, ..Event::new(ts_ns, kind, 0) };
            out.push(Event { mode: Some(Mode::Exclusive), ..event });
        }
        self.stats.last_ns = self.stats.last_ns.max(ts_ns);
    }

    /// Adds the row behind a time in which nothing was recorded: what was open may be over.
    pub(crate) fn paused(&mut self, until_ns: i64, out: &mut EventColumns) {
        self.kernel.lost();
        self.futex.lost();
        self.user.lost_all();
        self.sessions.lost_all();
        out.push(Event { cpu: None, ..lost_row(until_ns, 0, 0) });
    }

    fn event(&mut self, event: &WireEvent, out: &mut EventColumns) {
        if event.lost_before > 0 {
            self.lost(event, out);
        }
        if self.launching.is_some_and(|(pid, running_ns)| event.tid == pid && event.ts_ns < running_ns) {
            return;
        }
        let header = self.header(event);
        let unpaired_before = self.stats.unpaired;
        let Self { tasks, locks, stacks, stats, kernel, futex, user, .. } = self;
        let context = &mut Context { tasks, locks, stacks, unpaired: &mut stats.unpaired, out };
        let (address, errno, begun_ns) = (event.address, errno_of(event.value), event.extra as i64);
        match event.code {
            code::CONTENTION_BEGIN => kernel.begin(&header, address, event.detail, context),
            code::CONTENTION_END if begun_ns != 0 => {
                kernel.whole(&header, (address, event.detail), begun_ns, errno, context);
            }
            code::CONTENTION_END => kernel.end(&header, address, errno, context),
            code::OFF_CPU if self.has_holders_only && self.sessions.holder(event.tid).is_none() => {}
            code::OFF_CPU => context.out.push(off_cpu::row(&header, event)),
            code::LOCK_TAKEN | code::LOCK_RELEASED => {
                // Records of other functions are not decoded.
                let Some(function) = FUNCTIONS.get(usize::from(event.detail)) else { return };
                if event.code == code::LOCK_TAKEN {
                    kernel.taken(&header, address, function, errno, context);
                } else {
                    kernel.released(&header, address, function, context);
                }
            }
            code::FUTEX_WAIT => {
                let target = user.futex_wait(&header, event, context.out);
                futex.begin(&header, address, target, context);
            }
            code::FUTEX_WAIT_DONE if begun_ns != 0 && futex.only_calls => {}
            code::FUTEX_WAIT_DONE if begun_ns != 0 => {
                futex::whole(&header, address, begun_ns, errno, context);
            }
            code::FUTEX_WAIT_DONE => {
                user.futex_wait_seen(&header, address);
                if let Some((target, times)) = futex.end(&header, address, errno, context) {
                    user.futex_wait_done(&header, target, times, errno);
                }
            }
            code::FUTEX_WAKE if futex.only_calls => {}
            code::FUTEX_WAKE => futex::wake(&header, address, begun_ns, event.value, context),
            _ => {
                if let Some(fact) = probes::fact(event) {
                    user.add(&header, &fact, context);
                }
            }
        }
        if event.code == code::RETURN && self.drops_begins {
            // A call on a lock that is not recorded returns all the same: the return does not name the lock.
            self.stats.unpaired = unpaired_before;
        }
    }

    fn switch(&mut self, switch: &Switch, out: &mut EventColumns) {
        if let SwitchAction::Lost(count) = switch.action {
            self.switches.lost();
            out.push(lost_row(switch.ts_ns as i64, switch.cpu, count));
            return;
        }
        let Self { switches, sessions, tasks, .. } = self;
        match switch.action {
            SwitchAction::Born { parent_tid } if !sessions.tasks_are_reported() => {
                tasks.born(switch.tgid, switch.tid, parent_tid, switch.ts_ns as i64);
            }
            SwitchAction::Exited => tasks.exit_born(switch.tid, switch.ts_ns as i64),
            _ => {}
        }
        out.extend(switches.add(switch, sessions, tasks));
    }

    fn task(&mut self, task: &WireTask) {
        self.tasks.apply(task);
        self.launching = self.launching.filter(|&(pid, _)| task.code != code::TASK_EXEC || task.tid != pid);
        // Whatever the former owner of these thread ids had begun does not end.
        let gone = match task.code {
            code::TASK_FORK => &[task.tid][..],
            code::TASK_EXEC => &[task.tid, task.parent_tid],
            _ => &[],
        };
        for &tid in gone {
            let key = TaskKey::of_thread(tid);
            self.futex.forget(key);
            self.stats.unpaired += self.user.forget(key);
        }
    }

    fn lost(&mut self, event: &WireEvent, out: &mut EventColumns) {
        let count = u64::from(event.lost_before);
        out.push(lost_row(event.ts_ns as i64, event.cpu, count));
        *self.stats.lost.entry(event.cpu).or_default() += count;
        self.kernel.lost();
        self.futex.lost();
        self.user.lost();
    }

    fn header(&mut self, event: &WireEvent) -> Header {
        let (process, task) = self.tasks.seen(event.tgid, event.tid, event.cpu);
        // A stack that is older than its event has a CPU and a number of its own, and so has the stack of the
        // waker, which was on another CPU.
        let here = (event.cpu, event.seq);
        let elsewhere = |at: u64| (stack_key::cpu(at), stack_key::seq(at));
        let (own, peers, caller) = match event.code {
            code::OFF_CPU => (elsewhere(event.address), elsewhere(event.caller), 0),
            _ => (here, here, event.caller),
        };
        let copied = match event.code {
            code::CONTENTION_BEGIN | code::CONTENTION_END | code::OFF_CPU => true,
            code::FUTEX_WAIT | code::FUTEX_WAIT_DONE | code::FUTEX_WAKE => true,
            code::CALL | code::POST => is_slow_path(event.detail),
            _ => false,
        };
        let stacks = StackRef {
            process: (process, event.tgid),
            kernel: event.kernel_stack,
            user: event.user_stack,
            caller,
            event: own,
            peer: false,
            copied,
        };
        let waker = (event.flags & flag::PEER != 0).then(|| {
            // Wake-ups by an idle task are interrupts; only off-CPU records name the CPU.
            let (process, task) = self.tasks.seen(event.peer_tgid, event.peer_tid, peers.0);
            let stacks = StackRef {
                process: (process, event.peer_tgid),
                kernel: event.peer_kernel_stack,
                user: event.peer_user_stack,
                caller: 0,
                event: peers,
                peer: true,
                copied: event.code == code::OFF_CPU,
            };
            (task, self.stacks.id(&stacks))
        });
        let owner = (event.flags & flag::OWNER != 0)
            .then(|| self.tasks.seen(event.peer_tgid, event.peer_tid, event.cpu).1);
        let times = OffCpuTimes { blocked_ns: event.blocked_ns as i64, runq_ns: event.runq_ns as i64 };
        Header {
            ts_ns: event.ts_ns as i64,
            cpu: Some(event.cpu as i32),
            source: Source::Kernel,
            key: TaskKey::new(event.tid, event.cpu),
            task,
            space: Space::Process(process, event.tgid),
            stack: self.stacks.id(&stacks),
            waker,
            owner,
            times: (event.flags & flag::NO_WAIT_STATE == 0).then_some(times),
        }
    }
}

fn lost_row(ts_ns: i64, cpu: u32, count: u64) -> Event {
    Event { count: Some(count as i64), ..Event::new(ts_ns, EventKind::Lost, cpu as i32) }
}

/// Composes the records of both sides in order of time.
///
/// Kernel records are complete up to `kernel_ns`. Stops there, at the time up to which the processes' own
/// records are complete, or after `budget` records, from which it takes those that it composes. Calls `added`
/// after each record. Returns the time up to which everything is composed.
pub(crate) fn compose_ordered(
    (orderer, mut merger): (&mut Orderer, Option<&mut Merger>),
    kernel_ns: u64,
    budget: &mut usize,
    composer: &mut Composer,
    rows: &mut EventColumns,
    mut added: impl FnMut(&mut EventColumns, &Composer),
) -> u64 {
    loop {
        let next_ns = orderer.next_ns().filter(|&ns| ns <= kernel_ns);
        if let Some(merger) = &mut merger {
            let until_ns = next_ns.unwrap_or(kernel_ns.saturating_add(1));
            let reached_ns = merger.emit(until_ns, budget, |ts_ns, session, step| {
                composer.step(ts_ns, session, &step, rows);
                added(rows, composer);
            });
            if reached_ns < until_ns {
                return reached_ns.saturating_sub(1);
            }
        }
        let Some(next_ns) = next_ns else { return kernel_ns };
        if *budget == 0 {
            return next_ns.saturating_sub(1);
        }
        *budget -= 1;
        let Some(record) = orderer.pop(next_ns) else { return kernel_ns };
        composer.record(record, rows);
        added(rows, composer);
    }
}
