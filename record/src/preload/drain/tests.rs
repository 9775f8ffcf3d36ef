//! Drains processes of one region, step by step.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
};

use proptest::prelude::*;
use trace_format::preload::op;

use super::*;
use crate::preload::{
    batch::Chunk,
    fake::{self, FakeThread},
    queue::NewProcess,
    region::Region,
};

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A thread writes this many records.
    Write(u64),
    /// It exits, and another one takes its place.
    Exit,
    /// klock drains.
    Round,
    /// klock revokes the chunk of the thread and, with `true`, takes it if it was not kept. Done by hand,
    /// because it takes 20 ms.
    Take(bool),
}

fn steps() -> impl Strategy<Value = Vec<(usize, Step)>> {
    let step = prop_oneof![
        6 => (1_u64..300).prop_map(Step::Write),
        1 => Just(Step::Exit),
        4 => Just(Step::Round),
        2 => any::<bool>().prop_map(Step::Take),
    ];
    prop::collection::vec((0_usize..6, step), 1..120)
}

/// The records of each session, in the order in which they were drained, and its losses. Sessions are named
/// by their thread ids.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sessions {
    records: BTreeMap<u32, Vec<u64>>,
    lost: BTreeMap<u32, u64>,
}

fn collect(spool: &Spool, names: &mut BTreeMap<u32, u32>, found: &mut Sessions) {
    while let Some(batch) = spool.pop(vec![]) {
        for (number, chunk) in batch.chunks {
            match chunk {
                Chunk::Start(session) => {
                    names.insert(number, session.own_tid);
                    found.records.insert(session.own_tid, Vec::new());
                }
                Chunk::Units(units) => {
                    let records = units.iter().map(|[_, body]| *body);
                    found.records.entry(names[&number]).or_default().extend(records);
                }
                Chunk::WrittenAfter(_) => {}
                Chunk::Exit(exit) => {
                    found.lost.insert(names[&number], exit.lost);
                }
            }
        }
    }
}

proptest! {
    /// Whatever threads and klock do in whatever order: each record is drained once, in the order of its
    /// thread, or counted.
    #[test]
    fn each_record_is_drained_once_or_counted(steps in steps(), chunks in 1_u64..12) {
        let config = fake::config(chunks);
        let (region, descriptor) = Region::create(&config).unwrap();
        let process = fake::map(descriptor, &config).unwrap();
        let (queue, spool) = (DrainQueue::default(), Spool::with_room(1 << 20));
        let (image, exit) = (Arc::new(fake::image()), None);
        queue.add(NewProcess { region, image, exit, same_ids: true });
        let clock = trace_format::preload::clock::MONOTONIC;
        let mut drain = Drain { queue: &queue, spool: &spool, clock, processes: Vec::new(), sessions: 0, is_paused: false };
        let (mut expected, mut found, mut names) = (Sessions::default(), Sessions::default(), BTreeMap::new());
        let mut next_tid = 5_000_000;
        let mut start = || {
            next_tid += 1;
            (next_tid, FakeThread::take(&process, next_tid, 5, "worker"))
        };
        let mut threads: Vec<(u32, FakeThread<'_>)> = (0..6).map(|_| start()).collect();
        for (index, step) in steps {
            let (tid, thread) = &mut threads[index];
            match step {
                Step::Write(count) => {
                    let records = expected.records.entry(*tid).or_default();
                    let lost = expected.lost.entry(*tid).or_default();
                    for _ in 0..count {
                        let body = records.len() as u64 + *lost;
                        let head = u64::from(op::ACQUIRED) << 48 | 1 << 56;
                        if thread.write(&[[head, body]]) { records.push(body) } else { *lost += 1 }
                    }
                }
                Step::Exit => {
                    let new = start();
                    std::mem::replace(&mut threads[index], new).1.exit();
                }
                Step::Round => {
                    drain.round(false);
                }
                Step::Take(takes) => {
                    drain.round(false);
                    take(&mut drain, &process, tid, takes);
                }
            }
            collect(&spool, &mut names, &mut found);
        }
        // The threads are killed.
        drain.round(false);
        drain.round(true);
        collect(&spool, &mut names, &mut found);
        found.records.retain(|_, records| !records.is_empty());
        expected.records.retain(|_, records| !records.is_empty());
        prop_assert_eq!(found.records, expected.records);
        // Losses of threads that exited.
        for (tid, lost) in found.lost.into_iter().filter(|(_, lost)| *lost > 0) {
            prop_assert_eq!(Some(&lost), expected.lost.get(&tid));
        }
        prop_assert_eq!((queue.invalid_slots.load(Ordering::Relaxed), queue.ledger.ended()), (0, 0));
    }
}

/// Revokes the chunk of a thread, and takes it.
fn take(drain: &mut Drain<'_>, mapped: &Region, tid: &u32, takes: bool) {
    let Some(Process { new, slots, owned, .. }) = drain.processes.first_mut() else { return };
    for (index, slot) in slots.iter_mut().enumerate() {
        let Some(session) = slot.session.as_mut().filter(|_| mapped.read_slot(index).tid == *tid) else {
            continue;
        };
        if session.cursor.has_chunk() && new.region.revoke_chunk(index) && takes {
            new.region.take_chunk(index, &mut session.cursor, owned);
        }
    }
}
