//! Records of all CPUs in, the same records in the order of time out, within a bounded window.
//!
//! Each CPU's ring is in order; the rings are read one after the other. What is older than the start of the previous
//! drain was in its ring when this drain began, so it can be let go: nothing older can still come, unless a program
//! was held up between taking the time and submitting its record. Such late records are counted and let through.

use std::collections::VecDeque;

use trace_format::wire::{WireEvent, WireTask};

/// A record that has a place in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// A lock event.
    Event(WireEvent),
    /// A task's birth, new program, new name or end.
    Task(WireTask),
}

impl Record {
    /// CLOCK_MONOTONIC, in nanoseconds.
    pub fn ts_ns(&self) -> u64 {
        match self {
            Self::Event(event) => event.ts_ns,
            Self::Task(task) => task.ts_ns,
        }
    }
}

/// Puts records into the order of time. Records of equal time stay in the order in which they were pushed.
#[derive(Debug, Default)]
pub struct Orderer {
    /// In order of arrival: runs that are sorted already, which is what a merge sort likes.
    pending: VecDeque<Record>,
    /// Nothing was pushed since they were sorted.
    sorted: bool,
    released_ns: u64,
    late: u64,
}

impl Orderer {
    /// Takes a record in.
    pub fn push(&mut self, record: Record) {
        if record.ts_ns() < self.released_ns {
            self.late += 1;
        }
        self.pending.push_back(record);
        self.sorted = false;
    }

    /// Lets go, in order, of all records up to and with `watermark_ns`.
    pub fn release(&mut self, watermark_ns: u64, mut each: impl FnMut(Record)) {
        self.sort();
        while let Some(record) = self.pop(watermark_ns) {
            each(record);
        }
    }

    /// Puts what was pushed in order; to be called before [`next_ns`](Self::next_ns) and [`pop`](Self::pop).
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

    /// Lets go of the next record, if its time is not after `watermark_ns`.
    pub fn pop(&mut self, watermark_ns: u64) -> Option<Record> {
        self.pending.front().filter(|record| record.ts_ns() <= watermark_ns)?;
        let record = self.pending.pop_front()?;
        self.released_ns = self.released_ns.max(record.ts_ns());
        Some(record)
    }

    /// Records that came after a younger one had been let go.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// Records that wait to be let go.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(ts_ns: u64, cpu: u32) -> Record {
        Record::Event(WireEvent { ts_ns, cpu, ..Default::default() })
    }

    fn released(orderer: &mut Orderer, watermark: u64) -> Vec<u64> {
        let mut out = Vec::new();
        orderer.release(watermark, |record| out.push(record.ts_ns()));
        out
    }

    #[test]
    fn what_is_younger_than_the_watermark_waits() {
        let mut orderer = Orderer::default();
        for ts in [30, 10, 20] {
            orderer.push(at(ts, 0));
        }
        assert_eq!(released(&mut orderer, 20), [10, 20]);
        assert_eq!(orderer.pending(), 1);
        assert_eq!(released(&mut orderer, u64::MAX), [30]);
    }

    #[test]
    fn a_late_record_is_counted_and_let_through() {
        let mut orderer = Orderer::default();
        orderer.push(at(50, 0));
        assert_eq!(released(&mut orderer, 60), [50]);
        orderer.push(at(40, 1));
        orderer.push(at(70, 1));
        assert_eq!(orderer.late(), 1);
        assert_eq!(released(&mut orderer, 100), [40, 70]);
    }

    #[test]
    fn a_task_is_born_before_an_event_of_the_same_time_if_it_was_read_first() {
        let mut orderer = Orderer::default();
        let birth = Record::Task(WireTask { ts_ns: 5, ..Default::default() });
        orderer.push(birth);
        orderer.push(at(5, 0));
        let mut out = Vec::new();
        orderer.release(5, |record| out.push(record));
        assert_eq!(out, [birth, at(5, 0)]);
    }

    proptest! {
        /// Whatever the CPUs recorded, and wherever the drains cut it: the result is the full sort.
        #[test]
        fn drains_in_parts_give_what_one_sort_of_everything_gives(
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
                orderer.release(watermark, |record| out.push(record.ts_ns()));
                (begin, watermark) = (cut, cut.saturating_sub(1));
            }
            orderer.release(u64::MAX, |record| out.push(record.ts_ns()));
            let expected: Vec<u64> = all.iter().map(|&(_, ts)| ts).collect();
            prop_assert_eq!(out, expected);
            prop_assert_eq!(orderer.late(), 0);
        }
    }
}
