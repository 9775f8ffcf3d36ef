//! The ends of idle waits: wake-ups and arrivals at barriers enter, and for each wait the signal or the round that ended it leaves. The start of
//! a thread is the end of a wait, too, for the task that creates it.

use rustc_hash::FxHashMap;
use trace_format::LockId;

/// The cause of the end of an idle wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdleEnd {
    /// It is not on record.
    Unknown,
    Signal {
        signal: u32,
        object: u32,
    },
    Round {
        round: u32,
        object: u32,
    },
}

/// The wake-ups and arrivals so far.
#[derive(Debug, Default)]
pub(super) struct IdleLinks {
    objects: FxHashMap<LockId, Object>,
    signals: u32,
    /// The number of members of each round.
    rounds: Vec<u32>,
    latencies_ns: Vec<Vec<i64>>,
    /// The object that threads wait for until they start.
    start_object: Option<u32>,
}

/// A condition variable, semaphore, barrier or thread.
#[derive(Debug)]
struct Object {
    index: u32,
    /// The last wake-ups by two tasks, the last one first: task, time and signal.
    woke: [Option<(usize, i64, u32)>; 2],
    /// The members of the open round of a barrier.
    arrived: Vec<usize>,
    last_arrival_ns: i64,
    /// The members that have not left their round yet: the round, and its last arrival.
    leaving: Vec<(usize, u32, i64)>,
}

impl IdleLinks {
    fn object(&mut self, lock: LockId) -> &mut Object {
        let latencies_ns = &mut self.latencies_ns;
        self.objects.entry(lock).or_insert_with(|| {
            let index = u32::try_from(latencies_ns.len()).unwrap_or(u32::MAX);
            latencies_ns.push(Vec::new());
            Object { index, woke: [None; 2], arrived: Vec::new(), last_arrival_ns: 0, leaving: Vec::new() }
        })
    }

    /// Returns the number of a new signal.
    fn signal(&mut self) -> u32 {
        self.signals += 1;
        self.signals - 1
    }

    /// Returns the number of the signal by which a thread starts, and that of the object that it waits for until then. It starts at once.
    pub(super) fn start(&mut self) -> (u32, u32) {
        let object = *self.start_object.get_or_insert_with(|| {
            self.latencies_ns.push(Vec::new());
            u32::try_from(self.latencies_ns.len() - 1).unwrap_or(u32::MAX)
        });
        (self.signal(), object)
    }

    /// Adds a wake-up, and returns the number of its signal.
    pub(super) fn wakes(&mut self, lock: LockId, task: usize, ns: i64) -> u32 {
        let signal = self.signal();
        let object = self.object(lock);
        if object.woke[0].is_some_and(|(last, ..)| last != task) {
            object.woke[1] = object.woke[0];
        }
        object.woke[0] = Some((task, ns, signal));
        signal
    }

    /// Adds a task that came to a barrier.
    pub(super) fn arrives(&mut self, lock: LockId, task: usize, ns: i64) {
        let object = self.object(lock);
        object.arrived.push(task);
        object.last_arrival_ns = ns;
    }

    /// Removes a task that gave up.
    pub(super) fn leaves(&mut self, lock: LockId, task: usize) {
        if let Some(object) = self.objects.get_mut(&lock) {
            object.arrived.retain(|other| *other != task);
        }
    }

    /// Returns the cause of the end of a wait.
    pub(super) fn ended(&mut self, lock: LockId, task: usize, since_ns: i64, ns: i64) -> IdleEnd {
        let next_round = u32::try_from(self.rounds.len()).unwrap_or(u32::MAX);
        let object = self.object(lock);
        let index = object.index;
        if object.arrived.contains(&task) {
            // The first one that leaves ends the round.
            let last_ns = object.last_arrival_ns;
            object.leaving.extend(object.arrived.drain(..).map(|member| (member, next_round, last_ns)));
            self.rounds.push(0);
        }
        let object = self.object(lock);
        if let Some(at) = object.leaving.iter().position(|(member, ..)| *member == task) {
            let (_, round, last_ns) = object.leaving.swap_remove(at);
            self.rounds[round as usize] += 1;
            if since_ns < last_ns {
                self.latencies_ns[index as usize].push((ns - last_ns).max(0));
            }
            return IdleEnd::Round { round, object: index };
        }
        let woke = object.woke.iter().flatten().find(|(waker, ns, _)| *waker != task && *ns >= since_ns);
        let Some((_, woke_ns, signal)) = woke.copied() else { return IdleEnd::Unknown };
        self.latencies_ns[index as usize].push((ns - woke_ns).max(0));
        IdleEnd::Signal { signal, object: index }
    }

    /// Returns the cause of the end of a join. A thread ends once, and may have ended before the join.
    pub(super) fn joined(&mut self, lock: LockId, task: usize, since_ns: i64, ns: i64) -> IdleEnd {
        let object = self.object(lock);
        let woke = object.woke.iter().flatten().find(|(waker, ..)| *waker != task);
        let (Some((_, woke_ns, signal)), index) = (woke.copied(), object.index) else {
            return IdleEnd::Unknown;
        };
        if woke_ns >= since_ns {
            self.latencies_ns[index as usize].push((ns - woke_ns).max(0));
        }
        IdleEnd::Signal { signal, object: index }
    }

    /// Returns the number of signals, the members of rounds, and the median time from a signal to the end of a wait by object.
    pub(super) fn finish(self) -> (usize, Vec<u32>, Vec<i64>) {
        let median = |mut all: Vec<i64>| {
            all.sort_unstable();
            all.get(all.len().saturating_sub(1) / 2).copied().unwrap_or(0)
        };
        (self.signals as usize, self.rounds, self.latencies_ns.into_iter().map(median).collect())
    }
}
