//! Puts the records of all CPUs into the order of time, within a bounded window.
//!
//! The ring of each CPU is in order; the rings are read one after the other. Records before the start of the previous drain were
//! in their rings when this drain started, so they can be emitted: no earlier record can come, unless a BPF program was held up
//! between taking the time and submitting its record. Such late records are counted and emitted.

use std::collections::VecDeque;

use trace_format::wire::{WireEvent, WireTask};

use crate::switches::records::Switch;

/// A record with a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// A lock event.
    Event(WireEvent),
    /// A fork, an exec, a new name or an exit of a task.
    Task(WireTask),
    /// A switch of a task that the kernel reports to any user.
    Switch(Switch),
}

impl Record {
    /// CLOCK_MONOTONIC, in nanoseconds.
    pub fn ts_ns(&self) -> u64 {
        match self {
            Self::Event(event) => event.ts_ns,
            Self::Task(task) => task.ts_ns,
            Self::Switch(switch) => switch.ts_ns,
        }
    }
}

/// Sorts records by time. Records of equal time stay in the order in which they were pushed.
#[derive(Debug, Default)]
pub struct Orderer {
    /// In the order of arrival: runs that are sorted already, which suits a merge sort.
    pending: VecDeque<Record>,
    /// Nothing was pushed since the last sort.
    sorted: bool,
    emitted_ns: u64,
    late: u64,
}

impl Orderer {
    /// Adds a record.
    pub fn push(&mut self, record: Record) {
        if record.ts_ns() < self.emitted_ns {
            self.late += 1;
        }
        self.pending.push_back(record);
        self.sorted = false;
    }

    /// Sorts the records that were pushed; to be called before [`next_ns`](Self::next_ns) and [`pop`](Self::pop).
    pub fn sort(&mut self) {
        if !self.sorted {
            self.pending.make_contiguous().sort_by_key(Record::ts_ns);
        }
        self.sorted = true;
    }

    /// Time of the next record.
    pub fn next_ns(&self) -> Option<u64> {
        self.pending.front().map(Record::ts_ns)
    }

    /// Takes the next record, if its time is not after `watermark_ns`.
    pub fn pop(&mut self, watermark_ns: u64) -> Option<Record> {
        self.pending.front().filter(|record| record.ts_ns() <= watermark_ns)?;
        let record = self.pending.pop_front()?;
        self.emitted_ns = self.emitted_ns.max(record.ts_ns());
        Some(record)
    }

    /// The number of records that were not taken yet.
    pub fn count(&self) -> usize {
        self.pending.len()
    }

    /// The switches among the records that were not taken yet, without the first `from` of these.
    pub fn switches(&self, from: usize) -> Vec<Switch> {
        let switch = |record: &Record| if let Record::Switch(switch) = record { Some(*switch) } else { None };
        self.pending.iter().skip(from).filter_map(switch).collect()
    }

    /// The number of records that came after a later one was emitted.
    pub fn late(&self) -> u64 {
        self.late
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(ts_ns: u64, cpu: u32) -> Record {
        Record::Event(WireEvent { ts_ns, cpu, ..Default::default() })
    }

    fn emitted(orderer: &mut Orderer, watermark: u64) -> Vec<u64> {
        orderer.sort();
        std::iter::from_fn(|| orderer.pop(watermark)).map(|record| record.ts_ns()).collect()
    }

    #[test]
    fn records_after_the_watermark_wait() {
        let mut orderer = Orderer::default();
        for ts in [30, 10, 20] {
            orderer.push(at(ts, 0));
        }
        assert_eq!(emitted(&mut orderer, 20), [10, 20]);
        assert_eq!(orderer.pending.len(), 1);
        assert_eq!(emitted(&mut orderer, u64::MAX), [30]);
    }

    #[test]
    fn a_late_record_is_counted_and_emitted() {
        let mut orderer = Orderer::default();
        orderer.push(at(50, 0));
        assert_eq!(emitted(&mut orderer, 60), [50]);
        orderer.push(at(40, 1));
        orderer.push(at(70, 1));
        assert_eq!(orderer.late(), 1);
        assert_eq!(emitted(&mut orderer, 100), [40, 70]);
    }

    #[test]
    fn a_fork_stays_before_an_event_of_the_same_time() {
        let mut orderer = Orderer::default();
        let fork = Record::Task(WireTask { ts_ns: 5, ..Default::default() });
        orderer.push(fork);
        orderer.push(at(5, 0));
        orderer.sort();
        assert_eq!([orderer.pop(5), orderer.pop(5)], [Some(fork), Some(at(5, 0))]);
    }

    proptest! {
        /// Whatever the CPUs recorded, and wherever the drains cut it, the result is the full sort.
        #[test]
        fn several_drains_emit_the_sorted_whole(
            steps in prop::collection::vec((0_u32..4, 0_u64..50), 0..200),
            cuts in prop::collection::vec(0_u64..3_000, 0..10),
        ) {
            let mut clock = 0;
            let all: Vec<(u32, u64)> = steps.into_iter().map(|(cpu, gap)| { clock += gap; (cpu, clock) }).collect();
            let mut cuts = cuts;
            cuts.sort_unstable();
            let mut orderer = Orderer::default();
            let mut out = Vec::new();
            let (mut begin, mut watermark) = (0, 0);
            for cut in cuts.into_iter().chain([u64::MAX]) {
                // A drain reads ring after ring everything that was recorded before it began.
                for cpu in 0..4 {
                    for &(_, ts) in all.iter().filter(|&&(c, ts)| c == cpu && ts >= begin && ts < cut) {
                        orderer.push(at(ts, cpu));
                    }
                }
                out.extend(emitted(&mut orderer, watermark));
                (begin, watermark) = (cut, cut.saturating_sub(1));
            }
            out.extend(emitted(&mut orderer, u64::MAX));
            let expected: Vec<u64> = all.iter().map(|&(_, ts)| ts).collect();
            prop_assert_eq!(out, expected);
            prop_assert_eq!(orderer.late(), 0);
        }
    }
}
