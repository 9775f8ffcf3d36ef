//! Writes the trace of an invented program, for benchmarks and for tests that need a large trace with known properties.
//! 64 tasks take mutexes, 256 if no other number is given, some far more often than others. About 7 % of the attempts find the lock taken, some waits
//! time out, and some attempts do not wait. Each history is possible, and the same options give the same trace.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    path::Path,
};

use anyhow::Result;
use trace_format::{
    Event, EventKind, Frame, LockId, LockKind, LockRow, Mode, RunInfo, Scope, Stack, StackId, TaskId,
    TaskRow, TraceWriter,
    run_info::{Clocks, Host, Source},
};

const LOCKS: usize = 256;
const TASKS: usize = 64;
const STACKS: usize = 32;
const CPUS: usize = 8;
const PID: i32 = 4242;
/// Start of the trace, in nanoseconds.
const BEGIN: u64 = 1_000_000_000;
/// Mean time between a task's release and its next attempt. With the mean hold of 800 ns and the popularity of the locks
/// it makes about 7 % of the attempts wait.
const THINK_NS: f64 = 34_000.0;
/// Locks that a program of minutes uses in one of them, and in all. Each is acquired at two places.
const LOCKS_OF_A_MINUTE: usize = 30;
const LOCKS_OF_AN_HOUR: u64 = 200;
const MINUTE_NS: u64 = 60_000_000_000;
/// The lock whose holds are longer on a slow machine.
const SLOW_LOCK: usize = 20;
const EBUSY: i32 = 16;
const ETIMEDOUT: i32 = 110;

/// A machine that the invented program runs on.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The name of the host.
    pub host: String,
    /// The wall clock at the start of the trace, in ns since 1970; 0 if it has none.
    pub begun_ns: i64,
    /// The part of the events that are missing, in runs, with a row at the place of each run: one in this number. 0 is none.
    pub lost_one_in: u64,
    /// Whether releases are recorded.
    pub holds: bool,
    /// The factor by which holds of one of the locks, `lock_020`, are longer.
    pub slow: u64,
    /// The number of minutes of the trace: in each, the program works for a moment, with some of its locks. 0 is one stretch of work.
    pub minutes: u64,
    /// The number of its locks.
    pub locks: usize,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            host: "invented".to_owned(),
            begun_ns: 0,
            lost_one_in: 0,
            holds: true,
            slow: 1,
            minutes: 0,
            locks: LOCKS,
        }
    }
}

/// Writes the trace; an existing one is replaced.
///
/// With `lossy`, about one event in a hundred is missing, in runs, and a row at its place reports it.
///
/// # Errors
/// If the trace cannot be written.
pub fn run(output: &Path, events: u64, seed: u64, lossy: bool) -> Result<()> {
    let lost_one_in = if lossy { 100 } else { 0 };
    run_on(output, events, seed, &Machine { lost_one_in, ..Machine::default() })
}

/// Writes the trace of a machine; an existing one is replaced.
///
/// # Errors
/// If the trace cannot be written.
pub fn run_on(output: &Path, events: u64, seed: u64, machine: &Machine) -> Result<()> {
    let mut writer = TraceWriter::create(output, true)?;
    let mut program = Program::new(seed, machine.locks);
    program.slow = machine.slow;
    let mut luck = Random(seed + 1);
    // A run has 30 events on average.
    let lossless = 30 * machine.lost_one_in;
    let mut lost = 0;
    let mut group_end = BEGIN + 1_000_000_000;
    for minute in 0..machine.minutes.max(1) {
        if machine.minutes > 0 {
            program.begin_minute(minute);
        }
        let until = events * (minute + 1) / machine.minutes.max(1);
        loop {
            if writer.rows() >= until {
                program.rests = true;
            }
            // A minute ends when all that was begun has ended; a trace without minutes ends anywhere.
            if program.rests && (machine.minutes == 0 || program.steps.is_empty()) {
                break;
            }
            let Some(event) = program.step() else { continue };
            if lossless > 0 && luck.below(lossless) == 0 {
                let run = 1 + luck.below(60);
                for _ in 0..run {
                    program.step();
                }
                lost += run;
                let count = Some(run.cast_signed());
                writer.push(&Event {
                    count,
                    cpu: event.cpu,
                    ..Event::new(event.ts_ns, EventKind::Lost, 0)
                })?;
                continue;
            }
            if machine.holds || event.kind != EventKind::Release {
                writer.push(&event)?;
            }
            if program.now >= group_end {
                while group_end <= program.now {
                    group_end += 1_000_000_000;
                }
                writer.end_row_group()?;
            }
        }
    }
    let mut info = run_info(program.now, seed, machine);
    info.loss.ring_full = lost;
    let written = writer.finish(&info, &stacks(), &program.lock_rows(), &tasks(program.now))?;
    let contended = 100.0 * program.waits as f64 / program.attempts as f64;
    println!(
        "{}: {} events, {} bytes with the side tables ({:.2} per event), {contended:.1} % of the attempts waited",
        output.display(),
        written.events,
        written.total_bytes,
        written.total_bytes as f64 / written.events as f64
    );
    Ok(())
}

/// The next step of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Attempt {
        task: usize,
    },
    Release {
        task: usize,
        lock: usize,
    },
    /// The lock was handed to a waiter, who now runs.
    Granted {
        task: usize,
        lock: usize,
    },
    /// A waiter's time-out, unless the wait with this number has already ended.
    Timeout {
        task: usize,
        lock: usize,
        wait: u64,
    },
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    task: usize,
    wait: u64,
    since: u64,
}

#[derive(Debug, Default)]
struct Lock {
    owner: Option<usize>,
    /// The waiter to which the lock is being handed, and its last owner, which is the waker.
    handed: Option<(Waiter, usize)>,
    queue: VecDeque<Waiter>,
    seen: Option<(u64, u64)>,
}

impl Lock {
    fn is_free(&self) -> bool {
        self.owner.is_none() && self.handed.is_none()
    }
}

#[derive(Debug)]
struct Program {
    random: Random,
    /// Time of the last event.
    now: u64,
    steps: BinaryHeap<Reverse<(u64, u64, Step)>>,
    scheduled: u64,
    locks: Vec<Lock>,
    popularity: Vec<f64>,
    waits: u64,
    attempts: u64,
    /// The factor by which holds of the slow lock are longer.
    slow: u64,
    /// Whether no task takes a further lock.
    rests: bool,
}

impl Program {
    fn new(seed: u64, locks: usize) -> Self {
        let mut sum = 0.0;
        let popularity = (0..locks)
            .map(|rank| {
                sum += 1.0 / (rank + 1) as f64;
                sum
            })
            .collect();
        let mut program = Self {
            random: Random(seed),
            now: BEGIN,
            steps: BinaryHeap::new(),
            scheduled: 0,
            locks: (0..locks).map(|_| Lock::default()).collect(),
            popularity,
            slow: 1,
            rests: false,
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
    fn begin_minute(&mut self, minute: u64) {
        self.now = self.now.max(BEGIN + minute * MINUTE_NS);
        (self.rests, self.popularity) = (false, vec![0.0; self.locks.len()]);
        for _ in 0..LOCKS_OF_A_MINUTE {
            let lock = self.random.below(LOCKS_OF_AN_HOUR) as usize;
            self.popularity[lock] = 1.0;
        }
        let mut sum = 0.0;
        self.popularity.iter_mut().for_each(|weight| {
            sum += *weight;
            *weight = sum;
        });
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
    fn step(&mut self) -> Option<Event> {
        let Reverse((time, _, step)) = self.steps.pop()?;
        self.now = time.max(self.now + 1);
        match step {
            Step::Attempt { .. } if self.rests => None,
            Step::Attempt { task } => Some(self.attempt(task)),
            Step::Release { task, lock } => Some(self.release(task, lock)),
            Step::Granted { task, lock } => self.granted(task, lock),
            Step::Timeout { task, lock, wait } => self.timeout(task, lock, wait),
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
        let factor = if lock == SLOW_LOCK { self.slow } else { 1 };
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

    fn lock_rows(&self) -> Vec<LockRow> {
        let row = |(at, lock): (usize, &Lock)| {
            let (first, last) = lock.seen.unwrap_or((self.now, self.now));
            LockRow {
                id: LockId(id(at)),
                address: Some(0x5555_5560_0000 + 64 * at as u64),
                kind: LockKind::PthreadMutex,
                scope: Scope::Process,
                pid: Some(PID),
                name: Some(format!("lock_{at:03}")),
                shared: None,
                init_stack: None,
                first_ns: first.cast_signed(),
                last_ns: last.cast_signed(),
            }
        };
        self.locks.iter().enumerate().map(row).collect()
    }
}

fn id(at: usize) -> i32 {
    i32::try_from(at).unwrap_or(i32::MAX)
}

fn place(lock: usize, task: usize) -> StackId {
    StackId(id((lock * 2 + task % 2) % STACKS))
}

fn stacks() -> Vec<Stack> {
    let frame = |function: String, line: usize| Frame {
        address: Some(0x5555_5555_4000 + 16 * line as u64),
        module: Some("/usr/bin/invented".to_owned()),
        build_id: Some("1234567890abcdef1234567890abcdef12345678".to_owned()),
        offset: Some(16 * line as u64),
        symbol: Some(function),
        symbol_offset: Some(8),
        file: Some("/src/invented.c".to_owned()),
        line: Some(id(line)),
        inlined: false,
        kernel: false,
        guessed: false,
    };
    let stack = |at: usize| Stack {
        id: StackId(id(at)),
        frames: vec![
            frame(format!("take_{at:02}"), 100 + at),
            frame(format!("serve_{}", at % 4), 200 + at % 4),
            frame("worker".to_owned(), 300),
        ],
    };
    (0..STACKS).map(stack).collect()
}

fn tasks(end: u64) -> Vec<TaskRow> {
    let row = |at: usize| TaskRow {
        id: TaskId(id(at)),
        pid: PID,
        tid: PID + id(at),
        comm: Some(format!("worker-{}", at % 8)),
        parent: None,
        start_ns: Some(BEGIN.cast_signed()),
        exit_ns: at.is_multiple_of(2).then_some(end.cast_signed()),
        cgroup: None,
    };
    (0..TASKS).map(row).collect()
}

fn run_info(end: u64, seed: u64, machine: &Machine) -> RunInfo {
    let clocks = |now: u64| {
        let since_begin_ns = (now - BEGIN).cast_signed();
        let realtime_ns = if machine.begun_ns > 0 { machine.begun_ns + since_begin_ns } else { 0 };
        Clocks { monotonic_ns: now.cast_signed(), realtime_ns, boottime_ns: now.cast_signed() }
    };
    RunInfo {
        trace_id: format!("{seed:032x}"),
        klock: env!("CARGO_PKG_VERSION").to_owned(),
        host: Host {
            name: machine.host.clone(),
            kernel: "6.12.0".to_owned(),
            arch: "x86_64".to_owned(),
            cpus: CPUS as u32,
        },
        command_line: vec!["cargo".to_owned(), "xtask".to_owned(), "generate".to_owned()],
        target: "an invented program".to_owned(),
        clocks_start: clocks(BEGIN),
        clocks_end: clocks(end),
        sources: vec![Source {
            name: "pthread_uprobe".to_owned(),
            kinds: vec![LockKind::PthreadMutex.as_str().to_owned()],
            uncontended: true,
            holds: machine.holds,
            limits: Vec::new(),
            ..Source::default()
        }],
        complete: true,
        stop_reason: "enough events".to_owned(),
        ..RunInfo::default()
    }
}

/// splitmix64: small, and equal on all machines.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Returns a number from 0 up to, but excluding, 1.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a time with this mean and a long tail. A logarithm would differ in its last bit between machines.
    fn around(&mut self, mean: f64) -> u64 {
        let u = self.unit();
        (mean * 0.25 * (u + u / (1.02 - u))) as u64 + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(events: usize) -> Vec<Event> {
        let mut program = Program::new(1, LOCKS);
        std::iter::from_fn(|| Some(program.step())).flatten().take(events).collect()
    }

    #[test]
    fn the_same_seed_gives_the_same_history() {
        assert_eq!(history(5_000), history(5_000));
    }

    #[test]
    fn a_lock_has_one_owner_at_a_time_and_times_increase() {
        let mut owner = [None; LOCKS];
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
    fn about_seven_percent_of_the_attempts_wait_and_some_give_up() {
        let mut program = Program::new(1, LOCKS);
        let events: Vec<Event> =
            std::iter::from_fn(|| Some(program.step())).flatten().take(300_000).collect();
        let share = program.waits as f64 / program.attempts as f64;
        assert!((0.05..0.09).contains(&share), "{share}");
        assert!(events.iter().any(|e| e.kind == EventKind::Abandon));
    }
}
