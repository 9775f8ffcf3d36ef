//! An invented program: tasks that take locks, wait, give up and hand locks on. A seed
//! decides what they do, and in which order their events come.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

use trace_format::{Event, EventKind, LockId, Mode, StackId, TaskId, TaskState};

/// Start of the trace, in nanoseconds.
pub(super) const BEGIN: u64 = 1_000_000_000;
pub(super) const TASKS: usize = 64;
pub(super) const STACKS: usize = 32;
pub(super) const CPUS: usize = 8;
/// Mean time between a task's release and its next attempt. With the mean hold of 800 ns and the popularity
/// of the locks it makes about 7 % of the attempts wait.
const THINK_NS: f64 = 34_000.0;
/// Locks that a program of minutes uses in one of them, and in all. Each is acquired at two places.
const LOCKS_OF_A_MINUTE: usize = 30;
const LOCKS_OF_AN_HOUR: u64 = 200;
const MINUTE_NS: u64 = 60_000_000_000;
/// The lock whose holds are longer on a slow machine.
const SLOW_LOCK: usize = 20;
const EBUSY: i32 = 16;
const ETIMEDOUT: i32 = 110;

/// The machine of an invented program: its name, its clock, its speed, and what its recording misses.
#[derive(Clone, Debug, clap::Args)]
pub struct Machine {
    /// Name of the host.
    #[arg(long, default_value_t = Self::default().host)]
    pub host: String,
    /// Wall clock at the start of the trace, in ns since 1970; 0 if it has none.
    #[arg(long, default_value_t = 0)]
    pub begun_ns: i64,
    /// Drop one event in this number, in runs, and record each loss at its place; 0 drops none.
    #[arg(long, default_value_t = 0)]
    pub lost_one_in: u64,
    /// Whether releases are recorded.
    #[arg(skip = true)]
    pub holds: bool,
    /// Record the times that tasks are off the CPU: while they wait for a lock, and in every fourth pause
    /// between two locks.
    #[arg(long)]
    pub off_cpu: bool,
    /// Factor by which holds of one of the locks, `lock_020`, are longer.
    #[arg(long, default_value_t = 1)]
    pub slow: u64,
    /// Minutes of the trace: in each, the program works for a moment, with some of its locks. 0 is one
    /// stretch of work.
    #[arg(long, default_value_t = 0)]
    pub minutes: u64,
    /// Number of locks.
    #[arg(long, default_value_t = Self::default().locks)]
    pub locks: usize,
}

impl Default for Machine {
    fn default() -> Self {
        let host = "invented".to_owned();
        let (off_cpu, holds) = (false, true);
        Self { host, begun_ns: 0, lost_one_in: 0, holds, off_cpu, slow: 1, minutes: 0, locks: 256 }
    }
}

/// The next step of a task. With `Granted`, a waiter to which the lock was handed runs. `Timeout` ends the
/// wait with this number, unless it has already ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    Attempt { task: usize },
    Release { task: usize, lock: usize },
    Granted { task: usize, lock: usize },
    Timeout { task: usize, lock: usize, wait: u64 },
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    task: usize,
    wait: u64,
    since: u64,
}

/// A lock, its owner and those who wait for it.
#[derive(Debug, Default)]
pub(super) struct Lock {
    owner: Option<usize>,
    /// The waiter to which the lock is being handed, and its last owner, which is the waker.
    handed: Option<(Waiter, usize)>,
    queue: VecDeque<Waiter>,
    /// The times of its first and its last event.
    pub(super) seen: Option<(u64, u64)>,
}

impl Lock {
    fn is_free(&self) -> bool {
        self.owner.is_none() && self.handed.is_none()
    }
}

/// The program: what it does next, and the state of its locks.
#[derive(Debug)]
pub(super) struct Program {
    random: Random,
    /// Time of the last event.
    pub(super) now: u64,
    pub(super) steps: BinaryHeap<Reverse<(u64, u64, Step)>>,
    scheduled: u64,
    pub(super) locks: Vec<Lock>,
    popularity: Vec<f64>,
    pub(super) waits: u64,
    pub(super) attempts: u64,
    /// Whether no task takes a further lock.
    pub(super) rests: bool,
    machine: Machine,
    /// The event of a task that has such a row before it.
    behind: Option<Event>,
}

impl Program {
    /// Returns a program at its start. Its locks are popular by their rank.
    pub(super) fn new(seed: u64, machine: &Machine) -> Self {
        let weights = (0..machine.locks).map(|rank| 1.0 / (rank + 1) as f64);
        let mut program = Self {
            random: Random(seed),
            now: BEGIN,
            steps: BinaryHeap::new(),
            scheduled: 0,
            locks: (0..machine.locks).map(|_| Lock::default()).collect(),
            popularity: sums(weights),
            rests: false,
            machine: machine.clone(),
            behind: None,
            waits: 0,
            attempts: 0,
        };
        program.wake_all();
        program
    }

    fn wake_all(&mut self) {
        (0..TASKS).for_each(|task| self.think(task));
    }

    /// Goes on at the start of a minute, with a few of the locks that the program uses in all.
    pub(super) fn begin_minute(&mut self, minute: u64) {
        self.now = self.now.max(BEGIN + minute * MINUTE_NS);
        (self.rests, self.popularity) = (false, vec![0.0; self.locks.len()]);
        for _ in 0..LOCKS_OF_A_MINUTE {
            let lock = self.random.below(LOCKS_OF_AN_HOUR) as usize;
            self.popularity[lock] = 1.0;
        }
        self.popularity = sums(self.popularity.drain(..));
        self.steps.clear();
        self.wake_all();
    }

    fn after(&mut self, delay: u64, step: Step) {
        self.scheduled += 1;
        self.steps.push(Reverse((self.now + delay, self.scheduled, step)));
    }

    fn think(&mut self, task: usize) {
        let delay = self.random.around(THINK_NS);
        self.after(delay, Step::Attempt { task });
    }

    fn event(&mut self, kind: EventKind, task: usize, lock: usize) -> Event {
        let seen = self.locks[lock].seen.map_or(self.now, |(first, _)| first);
        self.locks[lock].seen = Some((seen, self.now));
        Event {
            mode: Some(Mode::Exclusive),
            lock: Some(LockId(id(lock))),
            task: Some(TaskId(id(task))),
            stack: Some(place(lock, task)),
            ..Event::new(self.now.cast_signed(), kind, id(task % CPUS))
        }
    }

    /// Makes the next step and returns its event, if it has one.
    pub(super) fn step(&mut self) -> Option<Event> {
        if let Some(event) = self.behind.take() {
            return Some(event);
        }
        let Reverse((time, _, step)) = self.steps.pop()?;
        self.now = time.max(self.now + 1);
        match step {
            Step::Attempt { .. } if self.rests => None,
            Step::Attempt { task } => {
                let pause_ns =
                    (self.machine.off_cpu && self.random.below(4) == 0).then(|| self.random.around(THINK_NS));
                let off_cpu_until = self.end_off_cpu(pause_ns.is_some());
                let event = self.attempt(task);
                Some(self.behind_off_cpu(event, off_cpu_until.zip(pause_ns)))
            }
            Step::Release { task, lock } => Some(self.release(task, lock)),
            Step::Granted { task, lock } => {
                let off_cpu_until = self.end_off_cpu(self.machine.off_cpu);
                let event = self.granted(task, lock)?;
                let slept_ns = event.wait_ns.map(i64::cast_unsigned);
                Some(self.behind_off_cpu(event, off_cpu_until.zip(slept_ns)))
            }
            Step::Timeout { task, lock, wait } => self.timeout(task, lock, wait),
        }
    }

    /// Ends a time off the CPU, if there was one, and returns its end. What the task does next comes later.
    fn end_off_cpu(&mut self, was_off_cpu: bool) -> Option<u64> {
        let now = self.now;
        self.now += u64::from(was_off_cpu);
        was_off_cpu.then_some(now)
    }

    /// Returns the row for a time off the CPU with this end and length, and keeps the event behind it. A
    /// pause ends by itself, a wait by the waker of the event.
    fn behind_off_cpu(&mut self, event: Event, off_cpu: Option<(u64, u64)>) -> Event {
        let Some((until, off_ns)) = off_cpu else { return event };
        let off_ns = off_ns.cast_signed();
        let runq_ns = event.runq_ns.unwrap_or(off_ns / 16);
        self.behind = Some(event);
        Event {
            task: event.task,
            stack: event.stack,
            wait_ns: Some(off_ns),
            blocked_ns: Some(off_ns - runq_ns),
            runq_ns: Some(runq_ns),
            peer_task: event.peer_task.filter(|_| event.kind == EventKind::Acquire),
            peer_stack: event.peer_stack,
            state: Some(TaskState::Interruptible),
            ..Event::new(until.cast_signed(), EventKind::OffCpu, event.cpu.unwrap_or(0))
        }
    }

    fn attempt(&mut self, task: usize) -> Event {
        let lock = self.pick();
        self.attempts += 1;
        if self.locks[lock].is_free() {
            let event = self.event(EventKind::Acquire, task, lock);
            self.own(task, lock);
            return Event { wait_ns: Some(0), ..event };
        }
        if self.random.below(100) < 3 {
            let event = self.event(EventKind::TryFail, task, lock);
            self.think(task);
            return Event { errno: Some(EBUSY), ..event };
        }
        self.waits += 1;
        let wait = self.waits;
        let since = self.now;
        self.locks[lock].queue.push_back(Waiter { task, wait, since });
        if self.random.below(100) < 2 {
            let delay = self.random.around(700.0);
            self.after(delay, Step::Timeout { task, lock, wait });
        }
        let owner = self.locks[lock].owner;
        Event { peer_task: owner.map(|o| TaskId(id(o))), ..self.event(EventKind::Wait, task, lock) }
    }

    fn own(&mut self, task: usize, lock: usize) {
        self.locks[lock].owner = Some(task);
        let factor = if lock == SLOW_LOCK { self.machine.slow } else { 1 };
        let delay = (200 + self.random.around(600.0)) * factor;
        self.after(delay, Step::Release { task, lock });
    }

    fn release(&mut self, task: usize, lock: usize) -> Event {
        let event = self.event(EventKind::Release, task, lock);
        self.locks[lock].owner = None;
        self.hand_on(lock, task);
        self.think(task);
        event
    }

    /// Wakes the first waiter, which owns the lock when it runs.
    fn hand_on(&mut self, lock: usize, waker: usize) {
        let next = self.locks[lock].queue.pop_front();
        self.locks[lock].handed = next.map(|waiter| (waiter, waker));
        if let Some(waiter) = next {
            let delay = 50 + self.random.around(400.0);
            self.after(delay, Step::Granted { task: waiter.task, lock });
        }
    }

    fn granted(&mut self, task: usize, lock: usize) -> Option<Event> {
        let (waiter, waker) = self.locks[lock].handed.take()?;
        let wait = self.now - waiter.since;
        let spun = wait.min(200);
        let queued = (wait - spun) / 4;
        let event = Event {
            wait_ns: Some(wait.cast_signed()),
            blocked_ns: Some((wait - spun - queued).cast_signed()),
            runq_ns: Some(queued.cast_signed()),
            peer_task: Some(TaskId(id(waker))),
            peer_stack: Some(place(lock, waker)),
            ..self.event(EventKind::Acquire, task, lock)
        };
        self.own(task, lock);
        Some(event)
    }

    fn timeout(&mut self, task: usize, lock: usize, wait: u64) -> Option<Event> {
        let at = self.locks[lock].queue.iter().position(|waiter| waiter.wait == wait)?;
        let waiter = self.locks[lock].queue.remove(at)?;
        let event = Event {
            wait_ns: Some((self.now - waiter.since).cast_signed()),
            errno: Some(ETIMEDOUT),
            ..self.event(EventKind::Abandon, task, lock)
        };
        self.think(task);
        Some(event)
    }

    fn pick(&mut self) -> usize {
        let sum = self.popularity.last().copied().unwrap_or(0.0);
        let point = self.random.unit() * sum;
        self.popularity.partition_point(|bound| *bound < point).min(self.popularity.len() - 1)
    }
}

/// Returns the sum of the weights up to each.
fn sums(weights: impl Iterator<Item = f64>) -> Vec<f64> {
    weights
        .scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        })
        .collect()
}

/// Random numbers that are equal on all machines: splitmix64.
#[derive(Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a whole number from 0 up to, but excluding, the bound.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Returns a number from 0 up to, but excluding, 1.
    pub(super) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a time with this mean and a long tail. A logarithm would differ in its last bit between
    /// machines.
    pub(super) fn around(&mut self, mean: f64) -> u64 {
        let u = self.unit();
        (mean * 0.25 * (u + u / (1.02 - u))) as u64 + 1
    }
}

/// Returns the id of the row at an index.
pub(super) fn id(at: usize) -> i32 {
    i32::try_from(at).unwrap_or(i32::MAX)
}

/// Returns the stack with which a task takes a lock.
pub(super) fn place(lock: usize, task: usize) -> StackId {
    StackId(id((lock * 2 + task % 2) % STACKS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(events: usize) -> Vec<Event> {
        let mut program = Program::new(1, &Machine::default());
        std::iter::from_fn(|| Some(program.step())).flatten().take(events).collect()
    }

    #[test]
    fn the_same_seed_gives_the_same_history() {
        assert_eq!(history(5_000), history(5_000));
    }

    #[test]
    fn a_lock_has_one_owner_at_a_time_and_times_increase() {
        let mut owner = vec![None; Machine::default().locks];
        let mut last = 0;
        for event in history(50_000) {
            assert!(event.ts_ns > last);
            last = event.ts_ns;
            let (lock, task) = (event.lock.unwrap().0 as usize, event.task.unwrap());
            match event.kind {
                EventKind::Acquire => assert_eq!(owner[lock].replace(task), None),
                EventKind::Release => assert_eq!(owner[lock].take(), Some(task)),
                _ => {}
            }
        }
    }

    #[test]
    fn off_cpu_times_come_before_the_events_that_they_end_with_and_change_none_of_a_task() {
        let mut program = Program::new(1, &Machine { off_cpu: true, ..Machine::default() });
        let events: Vec<Event> = std::iter::from_fn(|| Some(program.step())).flatten().take(50_000).collect();
        let mut off = 0;
        for pair in events.windows(2).filter(|pair| pair[0].kind == EventKind::OffCpu) {
            assert_eq!((pair[0].task, pair[0].ts_ns + 1), (pair[1].task, pair[1].ts_ns));
            assert_eq!(pair[0].wait_ns, Some(pair[0].blocked_ns.unwrap() + pair[0].runq_ns.unwrap()));
            off += 1;
        }
        assert!((5_000..15_000).contains(&off), "{off}");
    }

    #[test]
    fn about_seven_percent_of_the_attempts_wait_and_some_give_up() {
        let mut program = Program::new(1, &Machine::default());
        let events: Vec<Event> =
            std::iter::from_fn(|| Some(program.step())).flatten().take(300_000).collect();
        let share = program.waits as f64 / program.attempts as f64;
        assert!((0.05..0.09).contains(&share), "{share}");
        assert!(events.iter().any(|e| e.kind == EventKind::Abandon));
    }
}
