//! Histories of threads that record themselves, drained in batches. Composing waits from some batch on; the
//! rows must be those of a recording that never waits, and a replay must yield those that a trace lacks.

use std::{collections::BTreeMap, fs::OpenOptions, io::Write as _};

use proptest::prelude::*;
use trace_format::{
    Event, EventColumns, RunInfo, SideRows, StackId,
    preload::{Record as Written, api, op},
};

use super::{replay::replay, *};
use crate::{
    compose::{Composer, compose_ordered, tasks::Tasks},
    kernel::order::{Orderer, Record},
    preload::{
        batch::{Chunk, ProcessImage, ThreadExit, ThreadSession},
        clock::{Reading, Timeline},
        fake,
        merge::Merger,
        records::Unit,
    },
    setup::filters::Filters,
    sources::switches::records::SwitchAction,
};

const LATER: u64 = 1 << 40;
/// Time between two batches.
const STEP: u64 = 1000;

/// A thread, as its chunks of each batch.
#[derive(Clone, Debug)]
struct Thread {
    starts_in: usize,
    /// For each batch the steps: the lock, the stack, whether it waits, whether it releases late.
    steps: Vec<Vec<(u8, u8, bool, bool)>>,
}

fn thread() -> impl Strategy<Value = Thread> {
    let step = (0..4_u8, 0..6_u8, any::<bool>(), any::<bool>());
    (0..4_usize, prop::collection::vec(prop::collection::vec(step, 0..6), 6))
        .prop_map(|(starts_in, steps)| Thread { starts_in, steps })
}

fn drained(threads: &[Thread]) -> Vec<(Batch, Vec<Switch>)> {
    let image = Arc::new(ProcessImage { pid: 7, new_program: true, ts_ns: 1, ..fake::image() });
    let mut reported = vec![Vec::new(); threads.len()];
    let mut drained = Vec::new();
    for at in 0..6 {
        let (begin, mut chunks, mut switches) = (at as u64 * STEP, Vec::new(), Vec::new());
        for (number, thread) in threads.iter().enumerate().filter(|(_, thread)| thread.starts_in <= at) {
            let (id, tid, known) = (number as u32, number as u32 + 7, &mut reported[number]);
            if thread.starts_in == at {
                let (image, comm) = (Arc::clone(&image), *b"thread\0\0\0\0\0\0\0\0\0\0");
                let session =
                    ThreadSession { image, tid, is_seen: true, own_tid: tid, start_ns: begin + 2, comm };
                chunks.push((id, Chunk::Start(session)));
            }
            let mut units = Vec::new();
            for (step, &(lock, stack, waits, late)) in thread.steps[at].iter().enumerate() {
                let mut now = begin + 10 + step as u64 * 150 + u64::from(id);
                let frames = [0x100 + u64::from(stack), 0x200];
                let index = known.iter().position(|known| *known == stack).unwrap_or_else(|| {
                    let record = Written::new(now, op::STACK, 0, frames.len() as u64, 0);
                    units.extend([[record.head, record.body], frames]);
                    known.push(stack);
                    known.len() - 1
                });
                let mut add = |now: u64, op: u8, rest: &[Unit]| {
                    let address = 0x1000 + 64 * u64::from(lock);
                    let record = Written::new(now, op, api::MUTEX, address, index as u16 + 1);
                    units.push([record.head, record.body]);
                    units.extend(rest);
                };
                if waits {
                    add(now, op::WAIT, &[[u64::from(tid), 0]]);
                    for action in [SwitchAction::Left { is_runnable: late }, SwitchAction::Returned] {
                        now += 20;
                        switches.push(Switch { ts_ns: now, cpu: 0, tgid: 7, tid, action });
                    }
                }
                add(now + 30, if waits { op::WAITED } else { op::ACQUIRED }, &[]);
                add(now + if late { 140 } else { 40 }.min(149 - (now - begin - 10) % 150), op::RELEASED, &[]);
            }
            chunks.push((id, Chunk::Units(units)));
            if at == 5 {
                let exit = ThreadExit { exit_ns: begin + 990, comm: [0; 16], lost: u64::from(id), nested: 0 };
                chunks.push((id, Chunk::Exit(exit)));
            }
        }
        let settled_ns = begin + STEP - 1;
        let reading = Some(Reading { ticks: LATER + begin, ns: LATER + begin, error: 0 });
        drained.push((Batch { settled_ns, reading, chunks, busy: Vec::new() }, switches));
    }
    drained
}

/// A recording without kernel side.
struct Recording {
    composer: Composer,
    merger: Merger,
    switches: Vec<Switch>,
    rows: EventColumns,
    stacks: BTreeMap<StackId, String>,
}

impl Recording {
    fn new() -> Self {
        let reading = |at| Reading { ticks: at, ns: at, error: 0 };
        let tasks = Tasks::new([], Box::new(|_, _| None));
        Self {
            composer: Composer::new(tasks, false, false).with_preload(false, Filters::default()),
            merger: Merger::new(Timeline::new(reading(0), reading(LATER - 1))),
            switches: Vec::new(),
            rows: EventColumns::default(),
            stacks: BTreeMap::new(),
        }
    }

    fn add(&mut self, batch: Batch) {
        self.merger.add_batch(batch);
        let Self { composer, merger, switches, rows, .. } = self;
        let settled_ns = merger.settled_ns();
        switches.sort_by_key(|switch| switch.ts_ns);
        let later = switches.partition_point(|switch| switch.ts_ns <= settled_ns);
        for switch in switches.drain(..later) {
            merger.emit(switch.ts_ns, &mut { usize::MAX }, |ts_ns, session, step| {
                composer.step(ts_ns, session, &step, rows);
            });
            composer.record(&Record::Switch(switch), rows);
        }
        merger.emit(u64::MAX, &mut { usize::MAX }, |ts_ns, session, step| {
            composer.step(ts_ns, session, &step, rows);
        });
        self.name();
    }

    fn name(&mut self) {
        let new = self.composer.stacks.take_new();
        self.stacks.extend(new.into_iter().map(|(id, raw)| (id, format!("{:?}", raw.user))));
    }

    /// The rows, with the frames of their stacks in place of ids.
    fn named(&self) -> Vec<(Event, Option<&String>)> {
        let named = |row: Event| {
            let frames = row.stack.map(|id| &self.stacks[&id]);
            (Event { stack: None, ..row }, frames)
        };
        self.rows.iter().map(named).collect()
    }
}

proptest! {
    /// Wherever the wait begins, and whatever the trace has: no row is missing, none comes twice, and each is
    /// as without a wait.
    #[test]
    fn a_replay_yields_the_rows_that_the_trace_lacks(
        threads in prop::collection::vec(thread(), 1..4),
        opened_at in 0..6_usize,
        part in 0.0..1.0_f64,
        cut in any::<prop::sample::Index>(),
    ) {
        let drained = drained(&threads);
        let mut plain = Recording::new();
        for (batch, switches) in drained.clone() {
            plain.switches.extend(switches);
            plain.add(batch);
        }
        let file = Arc::new(tempfile::tempfile().unwrap());
        let mut backlog = Backlog::new(Some(Arc::clone(&file)));
        let mut waiting = Recording::new();
        for (batch, switches) in drained[..opened_at].iter().cloned() {
            waiting.switches.extend(switches);
            waiting.add(batch);
        }
        let before = waiting.rows.len() as u64;
        let Recording { composer, merger, switches, .. } = &waiting;
        let snapshot = Snapshot { rows: before, composer, merger, switches: switches.clone() };
        prop_assert!(backlog.open(&snapshot));
        for (batch, switches) in drained[opened_at..].iter().cloned() {
            backlog.add_switches(&switches);
            waiting.switches.extend(switches);
            for (id, chunk) in &batch.chunks {
                waiting.composer.see(*id, chunk);
            }
            waiting.name();
            backlog.add(batch);
        }
        while let Some(batch) = backlog.take() {
            waiting.add(batch);
        }
        prop_assert_eq!(waiting.named(), plain.named());

        let known = before + (part * (waiting.rows.len() as u64 - before) as f64) as u64;
        let mut replayed = Vec::new();
        let mut info = RunInfo::default();
        let side = replay(&file, known, &mut info, &mut |rows| {
            replayed.extend(rows.iter());
            Ok(())
        });
        let side = side.unwrap();
        prop_assert_eq!(&replayed, &waiting.rows.iter().skip(known as usize).collect::<Vec<_>>());
        prop_assert_eq!(&side.locks, waiting.composer.locks.rows());
        prop_assert_eq!(&side.tasks, waiting.composer.tasks.rows());

        // A file that ends anywhere yields the first of these rows.
        let length = file.metadata().unwrap().len();
        file.set_len(cut.index(length as usize) as u64).unwrap();
        let mut first = Vec::new();
        let cut = replay(&file, known, &mut info, &mut |rows| {
            first.extend(rows.iter());
            Ok(())
        });
        prop_assert!(cut.is_ok());
        prop_assert!(replayed.starts_with(&first));
    }

    /// However few records are composed at once, the rows are the same.
    #[test]
    fn records_that_are_composed_a_few_at_a_time_become_the_same_rows(
        threads in prop::collection::vec(thread(), 1..4),
        budget in 1..20_usize,
    ) {
        let (mut plain, mut stepwise) = (Recording::new(), Recording::new());
        let mut orderer = Orderer::default();
        for (batch, switches) in drained(&threads) {
            let complete_ns = batch.settled_ns;
            switches.iter().for_each(|switch| orderer.push(Record::Switch(*switch)));
            plain.switches.extend(switches);
            plain.add(batch.clone());
            let Recording { composer, merger, rows, .. } = &mut stepwise;
            merger.add_batch(batch);
            loop {
                let (mut left, mut added) = (budget, 0);
                let both = (&mut orderer, Some(&mut *merger));
                let reached_ns =
                    compose_ordered(both, complete_ns, &mut left, composer, rows, |_, _| added += 1);
                prop_assert!(added <= budget, "{} of {}", added, budget);
                prop_assert!(reached_ns <= complete_ns);
                if left > 0 {
                    break;
                }
            }
            stepwise.name();
        }
        prop_assert_eq!(stepwise.named(), plain.named());
    }

    /// Whatever the file has, nothing panics.
    #[test]
    fn any_bytes_are_a_backlog_without_rows(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        let side = replay(&file, 0, &mut RunInfo::default(), &mut |_| panic!("no rows"));
        prop_assert_eq!(side.unwrap(), SideRows::default());
    }
}

#[test]
fn a_snapshot_of_a_later_moment_than_the_trace_is_not_used() {
    let recording = Recording::new();
    let file = Arc::new(tempfile::tempfile().unwrap());
    let mut backlog = Backlog::new(Some(Arc::clone(&file)));
    let Recording { composer, merger, .. } = &recording;
    assert!(backlog.open(&Snapshot { rows: 5, composer, merger, switches: Vec::new() }));
    let side = |rows| replay(&file, rows, &mut RunInfo::default(), &mut |_| Ok(())).unwrap();
    assert_eq!(side(4), SideRows::default());
}

#[test]
fn a_batch_whose_numbers_do_not_follow_ends_the_file() {
    let threads = [Thread { starts_in: 0, steps: vec![vec![(0, 0, false, false)]; 6] }];
    let recording = Recording::new();
    let file = Arc::new(tempfile::tempfile().unwrap());
    let mut backlog = Backlog::new(Some(Arc::clone(&file)));
    let Recording { composer, merger, .. } = &recording;
    assert!(backlog.open(&Snapshot { rows: 0, composer, merger, switches: Vec::new() }));
    let rows = || {
        let mut count = 0;
        replay(&file, 0, &mut RunInfo::default(), &mut |rows| {
            count += rows.len();
            Ok(())
        })
        .unwrap();
        count
    };
    for (batch, _) in drained(&threads) {
        backlog.add(batch);
    }
    let before = rows();
    assert!(before > 0);
    backlog.add(Batch { chunks: vec![(u32::MAX, Chunk::WrittenAfter(1))], ..Batch::default() });
    assert_eq!(rows(), before);
}

#[test]
fn a_file_that_cannot_be_written_is_given_up_and_what_waits_is_kept() {
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut backlog = Backlog::new(Some(Arc::new(full)));
    let Recording { composer, merger, .. } = &Recording::new();
    assert!(!backlog.open(&Snapshot { rows: 0, composer, merger, switches: Vec::new() }));
    assert!(!backlog.has_file() && !backlog.is_open());
    backlog.add(Batch { settled_ns: 3, ..Batch::default() });
    assert_eq!((backlog.take().unwrap().settled_ns, backlog.is_empty()), (3, true));
}

// A recorded process may write any bytes into its memory. The recorder makes rows of them, or skips them.
fuzz_target!(preload, |bytes: &[u8]| {
    let image = Arc::new(ProcessImage { pid: 7, new_program: true, ts_ns: 1, ..fake::image() });
    let session = ThreadSession { image, tid: 7, is_seen: true, own_tid: 7, start_ns: 2, comm: [0; 16] };
    let words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect::<Vec<_>>();
    let units = words.as_chunks::<2>().0.to_vec();
    let exit = ThreadExit { exit_ns: 3000, ..ThreadExit::default() };
    let chunks = vec![(0, Chunk::Start(session)), (0, Chunk::Units(units)), (0, Chunk::Exit(exit))];
    let reading = Some(Reading { ticks: LATER + 9, ns: LATER + 9, error: 0 });
    let mut recording = Recording::new();
    recording.add(Batch { settled_ns: u64::MAX - 1, reading, chunks, busy: Vec::new() });
    let (locks, tasks) = (recording.composer.locks.rows().len(), recording.composer.tasks.rows().len());
    for row in recording.rows.iter() {
        assert!(row.lock.is_none_or(|lock| (lock.0 as usize) < locks));
        assert!(row.task.into_iter().chain(row.peer_task).all(|task| (task.0 as usize) < tasks));
    }
});

// Frames with right checksums. Of each, the text has its kind (4 bytes), the length of its payload (3), and
// the payload. What panics while a backlog is read is an error of `recover`.
fuzz_target!(backlog, |mut text: &[u8]| {
    let mut file = tempfile::tempfile_in("/dev/shm").or_else(|_| tempfile::tempfile()).unwrap();
    while let Some((head, rest)) = text.split_first_chunk::<7>() {
        let length = head[4..].iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
        let (payload, rest) = rest.split_at(length.min(rest.len()));
        let crc = crc32fast::hash(payload).to_ne_bytes();
        file.write_all(&[&head[..4], &crc, &(payload.len() as u64).to_ne_bytes(), payload].concat()).unwrap();
        text = rest;
    }
    let replayed = || replay(&file, 1 << 40, &mut RunInfo::default(), &mut |_| Ok(()));
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(replayed));
});
