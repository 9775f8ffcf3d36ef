//! The signal or the round of a barrier that ended each idle wait. The start of a thread ends a wait, too:
//! the thread waits for the signal of the task that creates it.

use rustc_hash::FxHashMap;
use trace_format::LockId;

use crate::links::{LastOfTwo, Mark, Rounds};

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
    arrivals: u32,
    /// The number of members of each round, and the number of each round by its last arrival.
    rounds: Vec<u32>,
    round_of: FxHashMap<u32, u32>,
    latencies_ns: Vec<Vec<i64>>,
    /// The object that threads wait for until they start.
    start_object: Option<u32>,
}

/// A condition variable, semaphore, barrier or thread.
#[derive(Debug)]
struct Object {
    index: u32,
    woke: LastOfTwo<u32, u32>,
    rounds: Rounds<u32, u32>,
}

impl IdleLinks {
    fn object(&mut self, lock: LockId) -> &mut Object {
        let latencies_ns = &mut self.latencies_ns;
        self.objects.entry(lock).or_insert_with(|| {
            let (index, woke, rounds) =
                (push(latencies_ns, Vec::new()), LastOfTwo::default(), Rounds::default());
            Object { index, woke, rounds }
        })
    }

    /// Returns the number of a new signal.
    fn signal(&mut self) -> u32 {
        self.signals += 1;
        self.signals - 1
    }

    /// Returns the number of the signal by which a thread starts, and the number of the object that it waits
    /// for until then. It starts at once.
    pub(super) fn start(&mut self) -> (u32, u32) {
        let latencies_ns = &mut self.latencies_ns;
        let object = *self.start_object.get_or_insert_with(|| push(latencies_ns, Vec::new()));
        (self.signal(), object)
    }

    /// Adds a wake-up, and returns the number of its signal.
    pub(super) fn wake(&mut self, lock: LockId, task: u32, ns: i64) -> u32 {
        let signal = self.signal();
        self.object(lock).woke.set(Mark { task, ns, value: signal });
        signal
    }

    /// Adds a task that came to a barrier.
    pub(super) fn arrive(&mut self, lock: LockId, task: u32, ns: i64) {
        self.arrivals += 1;
        let value = self.arrivals;
        self.object(lock).rounds.arrive(Mark { task, ns, value });
    }

    /// Removes a task that gave up.
    pub(super) fn give_up(&mut self, lock: LockId, task: u32) {
        if let Some(object) = self.objects.get_mut(&lock) {
            object.rounds.leave(task, true);
        }
    }

    /// Returns the cause of the end of a wait. A thread ends once, and may have ended before it was waited
    /// for.
    pub(super) fn ended(
        &mut self,
        lock: LockId,
        task: u32,
        (since_ns, ns): (i64, i64),
        is_thread: bool,
    ) -> IdleEnd {
        let object = self.object(lock);
        let index = object.index;
        let woke_since_ns = if is_thread { i64::MIN } else { since_ns };
        let (by_ns, has_waited, end) = if let Some(last) = object.rounds.leave(task, false) {
            let rounds = &mut self.rounds;
            let round = *self.round_of.entry(last.value).or_insert_with(|| push(rounds, 0));
            rounds[round as usize] += 1;
            // The last task that comes waits for no other.
            (last.ns, last.ns > since_ns, IdleEnd::Round { round, object: index })
        } else if let Some(woke) = object.woke.of_another(&task, woke_since_ns) {
            (woke.ns, woke.ns >= since_ns, IdleEnd::Signal { signal: woke.value, object: index })
        } else {
            return IdleEnd::Unknown;
        };
        if has_waited {
            self.latencies_ns[index as usize].push((ns - by_ns).max(0));
        }
        end
    }

    /// Returns the number of signals, the members of rounds, and the median time from a signal to the end of
    /// a wait by object.
    pub(super) fn finish(self) -> (usize, Vec<u32>, Vec<i64>) {
        let median = |mut all: Vec<i64>| {
            all.sort_unstable();
            all.get(all.len().saturating_sub(1) / 2).copied().unwrap_or(0)
        };
        (self.signals as usize, self.rounds, self.latencies_ns.into_iter().map(median).collect())
    }
}

/// Adds a value, and returns its index.
fn push<T>(all: &mut Vec<T>, value: T) -> u32 {
    all.push(value);
    u32::try_from(all.len() - 1).unwrap_or(u32::MAX)
}
