//! Puts the records of all CPUs into the order of time, within a bounded window.
//!
//! The ring of each CPU is in order; the rings are read one after the other. Records before the start of the
//! previous drain were in their rings when this drain started, so they can be emitted: no earlier record can
//! come, unless a BPF program was held up between taking the time and submitting its record. Such late
//! records are counted and emitted.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, binary_heap::PeekMut},
};

use trace_format::wire::{WireEvent, WireTask};

use crate::sources::switches::records::Switch;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Event(WireEvent),
    /// A fork, an exec, a new name or an exit of a task.
    Task(WireTask),
    /// A switch of a task that the kernel reports to any user.
    Switch(Switch),
}

impl Record {
    /// CLOCK_MONOTONIC, in nanoseconds.
    pub(crate) fn ts_ns(&self) -> u64 {
        match self {
            Self::Event(event) => event.ts_ns,
            Self::Task(task) => task.ts_ns,
            Self::Switch(switch) => switch.ts_ns,
        }
    }
}

/// Maximum number of drained records that wait to be composed, some 30 MB. With more of them, draining waits,
/// and none waits for its stack.
pub(crate) const MAX_WAITING: usize = 1 << 18;
/// Maximum number of records of a run: as many as come in a round of most recordings.
const MAX_RUN: usize = 1 << 12;
/// Number of runs that keep their memory when they were taken.
const MAX_IDLE: usize = 16;

/// Merges records by time. Records of equal time stay in the order in which they were pushed.
///
/// Records are pushed in runs that are in the order of time, a few for each ring and drain, so they stay
/// where they are until they are taken.
#[derive(Debug, Default)]
pub(crate) struct Orderer {
    runs: Vec<Run>,
    /// The next record of each run: by time, then by the number of the run.
    heads: BinaryHeap<Reverse<Head>>,
    /// The run that records are pushed to.
    open: Option<usize>,
    /// Number of runs so far.
    started: u64,
    /// Number of records that were not taken yet.
    count: usize,
    emitted_ns: u64,
    /// Number of records that came after a later one was emitted.
    pub(crate) late: u64,
}

/// Records in the order of time.
#[derive(Debug, Default)]
struct Run {
    /// Runs are numbered in the order in which they were pushed.
    number: u64,
    records: Vec<Record>,
    /// Index of the next record.
    next: usize,
}

/// The time of the next record of a run, the number of the run, and its index.
type Head = (u64, u64, usize);

impl Orderer {
    pub(crate) fn push(&mut self, record: Record) {
        let ts_ns = record.ts_ns();
        if ts_ns < self.emitted_ns {
            self.late += 1;
        }
        self.count += 1;
        if let Some(run) = self.open.map(|open| &mut self.runs[open])
            && run.records.len() < MAX_RUN
            && run.records.last().is_none_or(|last| last.ts_ns() <= ts_ns)
        {
            run.records.push(record);
            return;
        }
        let index = self.start_run(ts_ns);
        self.runs[index].records.push(record);
    }

    /// Starts a run whose first record has this time. Returns its index.
    fn start_run(&mut self, ts_ns: u64) -> usize {
        let runs = self.runs.iter_mut().enumerate();
        let mut free = runs.filter(|(_, run)| run.next == run.records.len());
        let first = free.next().map(|(index, _)| index);
        free.skip(MAX_IDLE).for_each(|(_, run)| *run = Run::default());
        let index = first.unwrap_or(self.runs.len());
        if first.is_none() {
            self.runs.push(Run::default());
        }
        let run = &mut self.runs[index];
        run.records.clear();
        (run.number, run.next) = (self.started, 0);
        self.heads.push(Reverse((ts_ns, run.number, index)));
        self.started += 1;
        self.open = Some(index);
        index
    }

    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.heads.peek().map(|Reverse((ts_ns, ..))| *ts_ns)
    }

    /// Takes the next record, if its time is not after `watermark_ns`.
    pub(crate) fn pop(&mut self, watermark_ns: u64) -> Option<&Record> {
        let mut head = self.heads.peek_mut()?;
        let Reverse((ts_ns, _, index)) = *head;
        if ts_ns > watermark_ns {
            return None;
        }
        self.emitted_ns = self.emitted_ns.max(ts_ns);
        self.count -= 1;
        let run = &mut self.runs[index];
        let at = run.next;
        run.next += 1;
        match run.records.get(run.next) {
            Some(next) => head.0.0 = next.ts_ns(),
            None => {
                PeekMut::pop(head);
                // A record that is pushed later starts a run of its own.
                self.open.take_if(|open| *open == index);
            }
        }
        Some(&self.runs[index].records[at])
    }

    /// The number of records that were not taken yet.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The switches among the records that were not taken yet, without the first `from` of these.
    pub(crate) fn switches(&self, from: usize) -> Vec<Switch> {
        let switch = |record: &Record| if let Record::Switch(switch) = record { Some(*switch) } else { None };
        let mut runs: Vec<&Run> = self.runs.iter().collect();
        runs.sort_unstable_by_key(|run| run.number);
        let left = runs.into_iter().flat_map(|run| &run.records[run.next..]);
        left.skip(from).filter_map(switch).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sources::switches::records::SwitchAction;

    fn at(ts_ns: u64, cpu: u32) -> Record {
        Record::Event(WireEvent { ts_ns, cpu, ..Default::default() })
    }

    fn emitted(orderer: &mut Orderer, watermark: u64) -> Vec<u64> {
        std::iter::from_fn(|| orderer.pop(watermark).map(Record::ts_ns)).collect()
    }

    #[test]
    fn records_after_the_watermark_wait() {
        let mut orderer = Orderer::default();
        for ts in [30, 10, 20] {
            orderer.push(at(ts, 0));
        }
        assert_eq!(emitted(&mut orderer, 20), [10, 20]);
        assert_eq!(orderer.count(), 1);
        assert_eq!(emitted(&mut orderer, u64::MAX), [30]);
    }

    #[test]
    fn a_late_record_is_counted_and_emitted() {
        let mut orderer = Orderer::default();
        orderer.push(at(50, 0));
        assert_eq!(emitted(&mut orderer, 60), [50]);
        orderer.push(at(40, 1));
        orderer.push(at(70, 1));
        assert_eq!(orderer.late, 1);
        assert_eq!(emitted(&mut orderer, 100), [40, 70]);
    }

    #[test]
    fn runs_are_short_and_those_that_were_taken_give_their_memory_back() {
        let mut orderer = Orderer::default();
        let count = (2 * MAX_IDLE * MAX_RUN) as u64;
        (0..count).for_each(|ts| orderer.push(at(ts, 0)));
        assert!(orderer.runs.iter().all(|run| run.records.capacity() <= MAX_RUN));
        assert!(emitted(&mut orderer, u64::MAX).into_iter().eq(0..count));
        orderer.push(at(count, 0));
        assert_eq!(orderer.runs.iter().filter(|run| run.records.capacity() > 0).count(), 1 + MAX_IDLE);
    }

    #[test]
    fn a_fork_stays_before_an_event_of_the_same_time() {
        let mut orderer = Orderer::default();
        let fork = Record::Task(WireTask { ts_ns: 5, ..Default::default() });
        orderer.push(fork);
        orderer.push(at(5, 0));
        assert_eq!([orderer.pop(5).copied(), orderer.pop(5).copied()], [Some(fork), Some(at(5, 0))]);
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
            prop_assert_eq!(orderer.late, 0);
        }

        /// Whatever is pushed and taken in whatever order, a stable sort gives the same records, and
        /// the number of waiting records is right.
        #[test]
        fn pushes_and_pops_in_any_order_are_a_stable_sort_of_what_waits(
            steps in prop::collection::vec((0_u64..40, any::<bool>(), 0_u64..60), 0..200),
        ) {
            let mut orderer = Orderer::default();
            let mut model: Vec<WireEvent> = Vec::new();
            for (seq, (ts_ns, is_push, watermark_ns)) in (0..).zip(steps) {
                if is_push {
                    let event = WireEvent { ts_ns, seq, ..Default::default() };
                    model.push(event);
                    orderer.push(Record::Event(event));
                } else {
                    model.sort_by_key(|event| event.ts_ns);
                    let due = model.first().is_some_and(|event| event.ts_ns <= watermark_ns);
                    let expected = due.then(|| Record::Event(model.remove(0)));
                    prop_assert_eq!(orderer.pop(watermark_ns).copied(), expected);
                }
                prop_assert_eq!(orderer.count(), model.len());
                prop_assert_eq!(orderer.next_ns(), model.iter().map(|event| event.ts_ns).min());
            }
        }

        #[test]
        fn switches_that_wait_are_in_the_order_of_arrival_since_a_number_of_records(
            times in prop::collection::vec(0_u64..40, 0..60),
            from in 0..60_usize,
        ) {
            let mut orderer = Orderer::default();
            let switch = |ts_ns, tid| Switch { ts_ns, tid, tgid: 1, cpu: 0, action: SwitchAction::Returned };
            let all: Vec<_> = times.iter().zip(0..).map(|(&ts_ns, tid)| switch(ts_ns, tid)).collect();
            all.iter().for_each(|switch| orderer.push(Record::Switch(*switch)));
            prop_assert_eq!(orderer.switches(from), &all[from.min(all.len())..]);
        }
    }
}
