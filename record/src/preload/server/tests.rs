//! Tests in which this process asks for regions as a recorded process does.

use std::{
    cell::Cell,
    ffi::OsStr,
    sync::{atomic::Ordering, mpsc},
    thread,
};

use trace_format::preload::{UNIT_BYTES, api, op};

use super::*;
use crate::{
    names::{kernel_addresses::KernelAddresses, symbols::Symbols},
    preload::{
        batch::{Batch, Chunk},
        budget::{Ledger, Limits, Resource},
        clock::{self, Timeline},
        fake::{self, FakeThread},
        merge::{Merger, Step},
        queue::Spool,
        records::Unit,
    },
};

/// Runs a server with its drain while `act` runs; returns the drained batches.
fn served(act: impl FnOnce(&OsStr)) -> (Vec<Batch>, Arc<DrainQueue>) {
    served_with(fake::config(256), Ledger::default(), |name, _| act(name))
}

fn served_with(
    config: RegionConfig,
    ledger: Ledger,
    act: impl FnOnce(&OsStr, &Spool),
) -> (Vec<Batch>, Arc<DrainQueue>) {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::listen(folder.path()).unwrap();
    let (handle, name) = (server.handle(), server.variable());
    let symbols = Symbols::start(None, KernelAddresses::new(true), None, crate::Stop::new()).unwrap();
    let (queue, spool) = (Arc::new(DrainQueue::new(ledger)), Arc::new(Spool::with_room(1 << 20)));
    let mappings = symbols.mapping_reader(true);
    let (shared, out) = (Arc::clone(&queue), Arc::clone(&spool));
    let draining = thread::spawn(move || crate::preload::drain::run(&shared, &out, config.clock));
    let shared = Arc::clone(&queue);
    let serving = thread::spawn(move || server.run(&config, &shared, &mappings));
    act(&name, &spool);
    handle.stop();
    serving.join().unwrap();
    queue.stop();
    draining.join().unwrap();
    let mut batches = Vec::new();
    while let Some(batch) = spool.pop(vec![]) {
        batches.push(batch);
    }
    (batches, queue)
}

fn chunks(batches: &[Batch]) -> Vec<&Chunk> {
    batches.iter().flat_map(|batch| &batch.chunks).map(|(_, chunk)| chunk).collect()
}

#[test]
fn a_process_that_asks_is_recorded_in_its_region() {
    let (batches, queue) = served(|name| {
        let region = fake::ask(name, &fake::hello(reason::EXEC)).unwrap();
        let mut thread = FakeThread::take(&region, 5_000_077, 5, "worker");
        assert!(thread.record(op::ACQUIRED, api::MUTEX, 0x40, &[]));
        thread.exit();
        while region.read_slot(0).state != trace_format::preload::state::FREE {
            thread::yield_now();
        }
        let mut next = FakeThread::take(&region, 5_000_078, 6, "next");
        assert!(next.record(op::RELEASED, api::MUTEX, 0x40, &[]));
    });
    let chunks = chunks(&batches);
    let [
        Chunk::Start(first),
        Chunk::Units(one),
        Chunk::Exit(exit),
        Chunk::Start(second),
        Chunk::Units(other),
        Chunk::Exit(open),
    ] = chunks[..]
    else {
        panic!("{chunks:?}");
    };
    assert_eq!(
        (first.image.pid, first.tid, &first.comm[..6]),
        (std::process::id(), 5_000_077, &b"worker"[..])
    );
    assert!(first.image.new_program && first.image.known.is_some());
    assert_eq!((second.tid, second.image.id), (5_000_078, 0));
    assert_eq!((one.len(), other.len()), (1, 1));
    assert!(exit.exit_ns > 0 && open.exit_ns == 0, "the second thread did not exit");
    assert_eq!(queue.invalid_slots.load(Ordering::Relaxed), 0);
}

#[test]
fn a_process_that_asks_again_has_left_its_old_region() {
    let (batches, _) = served(|name| {
        let before = fake::ask(name, &fake::hello(reason::EXEC)).unwrap();
        let mut thread = FakeThread::take(&before, 77, 5, "before");
        assert!(thread.record(op::ACQUIRED, api::MUTEX, 0x40, &[]));
        let after = fake::ask(name, &fake::hello(reason::EXEC)).unwrap();
        let mut thread = FakeThread::take(&after, 77, 5, "after");
        assert!(thread.record(op::ACQUIRED, api::MUTEX, 0x40, &[]));
    });
    let images: Vec<u32> = chunks(&batches)
        .into_iter()
        .filter_map(|chunk| if let Chunk::Start(session) = chunk { Some(session.image.id) } else { None })
        .collect();
    assert_eq!(images, [0, 1]);
}

#[test]
fn regions_are_deactivated_when_the_recording_ends() {
    let (sender, regions) = mpsc::channel();
    let (batches, _) = served(|name| {
        let region = fake::ask(name, &fake::hello(reason::FORK)).unwrap();
        let mut thread = FakeThread::take(&region, 5_000_077, 5, "worker");
        assert!(thread.record(op::ACQUIRED, api::MUTEX, 0x40, &[]));
        // SAFETY: the region is mapped as long as it lives, and lives on in the channel.
        assert_eq!(unsafe { &(*region.head()).active }.load(Ordering::Relaxed), 1);
        sender.send(region).unwrap();
    });
    let region = regions.recv().unwrap();
    // SAFETY: as above.
    assert_eq!(unsafe { &(*region.head()).active }.load(Ordering::Relaxed), 0);
    assert_eq!(batches.last().unwrap().settled_ns, u64::MAX);
}

#[test]
fn an_invalid_region_is_counted() {
    let (_, queue) = served(|name| {
        let region = fake::ask(name, &fake::hello(reason::EXEC)).unwrap();
        let mut thread = FakeThread::take(&region, 5_000_077, u64::MAX, "liar");
        thread.set_busy(true);
        // SAFETY: as above.
        unsafe { (*region.head()).used_slots = u32::MAX.into() };
        thread.set_first(u32::MAX - 2, 8);
        // Only now, so that no round of the drain finds something valid.
        thread.set_head(UNIT_BYTES as u64);
        while !queue_has_notes(&region) {
            thread::yield_now();
        }
    });
    let [note] = &queue.ledger.notes()[..] else { panic!("one note") };
    assert!(note.ends_with("): recording ended: an invalid chunk"), "{note}");
}

#[test]
fn a_process_without_the_secret_gets_no_region() {
    let (batches, queue) = served(|name| {
        let (socket, secret) = fake::connect(name).unwrap();
        let wrong = Hello { secret: secret.map(|byte| byte ^ 1), ..fake::hello(reason::EXEC) };
        assert!(fake::ask_over(&socket, &wrong).is_err());
    });
    assert!(chunks(&batches).is_empty());
    assert_eq!(queue.refused.load(Ordering::Relaxed), 1);
}

#[test]
fn idle_connections_do_not_delay_a_process() {
    let (batches, _) = served(|name| {
        // A busy machine may delay it, too, but not each time.
        let (idle, region) = (0..100)
            .find_map(|_| {
                let idle: Vec<_> = (0..3 * MAX_HALF_OPEN).map(|_| fake::connect(name).unwrap()).collect();
                let started = Instant::now();
                let region = fake::ask(name, &fake::hello(reason::EXEC)).unwrap();
                (started.elapsed() < HELLO_TIMEOUT).then_some((idle, region))
            })
            .expect("it is answered before they expire");
        let mut thread = FakeThread::take(&region, 5_000_077, 5, "worker");
        assert!(thread.record(op::ACQUIRED, api::MUTEX, 0x40, &[]));
        drop(idle);
    });
    assert_eq!(chunks(&batches).len(), 3);
}

#[test]
fn a_thread_of_another_process_is_booked_on_the_process_itself() {
    let (batches, queue) = served(|name| {
        let region = fake::ask(name, &fake::hello(reason::EXEC)).unwrap();
        let mut thread = FakeThread::take(&region, 1, 5, "init");
        assert!(thread.record(op::ACQUIRED, api::MUTEX, 0x40, &[]));
    });
    let [Chunk::Start(start), ..] = chunks(&batches)[..] else { panic!("no session") };
    assert_eq!((start.image.pid, start.tid, start.own_tid), (std::process::id(), std::process::id(), 1));
    assert_eq!(queue.foreign.load(Ordering::Relaxed), 1);
}

#[test]
fn slots_with_the_same_chunk_end_the_recording_of_their_process() {
    let (batches, queue) = served(|name| {
        let region = fake::ask(name, &fake::hello(reason::EXEC)).unwrap();
        let mut threads: Vec<_> =
            (0..3).map(|n| FakeThread::take(&region, 5_000_000 + n, 5, "twin")).collect();
        for thread in &mut threads {
            thread.set_first(200, 0);
            thread.set_head(UNIT_BYTES as u64);
        }
        while !queue_has_notes(&region) {
            thread::yield_now();
        }
    });
    let units = chunks(&batches).into_iter().filter(|chunk| matches!(chunk, Chunk::Units(_))).count();
    assert!(units <= 1, "the chunk of one slot is its own");
    assert_eq!(queue.ledger.ended(), 1);
}

/// Whether klock has ended the recording of a region.
fn queue_has_notes(region: &Region) -> bool {
    // SAFETY: the region is mapped as long as it lives.
    unsafe { &(*region.head()).active }.load(Ordering::Relaxed) == 0
}

#[test]
fn a_thread_that_writes_more_than_may_be_queued_is_drained_in_parts() {
    const RECORDS: u64 = 60_000;
    let config = fake::config(512);
    let limits = Limits::NONE.with([(Resource::QueuedUnits, 8192)]);
    // No process has this user, so this one is not klock's own.
    let ledger = Ledger::new(u32::MAX, Limits::NONE, limits);
    let mut merger = Merger::new(Timeline::new(clock::read(config.clock), clock::read(config.clock)));
    let (next, mut peak) = (Cell::new(0), 0);
    let mut merge = |batch: Batch| {
        peak = peak.max(batch.chunks.iter().map(|(_, chunk)| units_in(chunk)).sum());
        merger.add_batch(batch);
        merger.emit(u64::MAX, &mut usize::MAX.clone(), |_, _, step| {
            if let Step::Record(record, rest) = step {
                let expected = next.replace(next.get() + 1);
                assert_eq!((record.address(), rest.len()), (expected, usize::from(expected % 3 == 0)));
            }
        });
    };
    let (batches, queue) = served_with(config, ledger, |name, spool| {
        let region = fake::ask(name, &fake::hello(reason::EXEC)).unwrap();
        let mut thread = FakeThread::take(&region, 5_000_077, 5, "busy");
        for n in 0..RECORDS {
            let words: &[Unit] = if n % 3 == 0 { &[[0, 0]] } else { &[] };
            let op = if n % 3 == 0 { op::WAIT } else { op::WAITED };
            while !thread.record(op, api::MUTEX, n, words) {
                spool.pop(vec![]).into_iter().for_each(&mut merge);
            }
        }
        while next.get() < RECORDS {
            spool.pop(vec![]).into_iter().for_each(&mut merge);
            thread::yield_now();
        }
    });
    batches.into_iter().for_each(&mut merge);
    assert!(peak <= 8192, "{peak} units at once");
    assert_eq!((next.get(), queue.ledger.ended()), (RECORDS, 0));
    assert_eq!(merger.stats().undecodable, 0);
}

fn units_in(chunk: &Chunk) -> usize {
    if let Chunk::Units(units) = chunk { units.len() } else { 0 }
}

#[test]
fn an_invalid_hello_gets_no_region() {
    let (batches, _) = served(|name| {
        let stranger = Hello { magic: 1, ..fake::hello(reason::EXEC) };
        assert!(fake::ask(name, &stranger).is_err());
    });
    assert!(chunks(&batches).is_empty());
}
