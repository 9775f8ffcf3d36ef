//! This process asks for regions, as a recorded one does.

use std::{sync::mpsc, thread};

use trace_format::preload::{api, op};

use super::*;
use crate::{
    preload::{
        fake::{self, FakeThread},
        lanes::{Batch, Part},
        spool::Spool,
    },
    symbols::Symbols,
};

/// A server with its drain; what was drained is returned when it ends.
fn served(manner: Manner, act: impl FnOnce(&str)) -> (Vec<Batch>, Arc<Intake>) {
    let server = Server::listen().unwrap();
    let (handle, name) = (server.handle(), server.name().to_owned());
    let symbols = Symbols::start(None).unwrap();
    let (intake, spool) = (Arc::new(Intake::default()), Arc::new(Spool::with_room(1 << 20)));
    let watcher = symbols.watcher(true);
    let (theirs, queue) = (Arc::clone(&intake), Arc::clone(&spool));
    let draining = thread::spawn(move || crate::preload::drain::run(&theirs, &queue, manner.clock));
    let theirs = Arc::clone(&intake);
    let serving = thread::spawn(move || server.run(&manner, &theirs, &watcher));
    act(&name);
    handle.end();
    serving.join().unwrap();
    intake.stop();
    draining.join().unwrap();
    let mut batches = Vec::new();
    while let Some(batch) = spool.pop(vec![]) {
        batches.push(batch);
    }
    (batches, intake)
}

fn parts(batches: &[Batch]) -> Vec<&Part> {
    batches.iter().flat_map(|batch| &batch.parts).map(|(_, part)| part).collect()
}

#[test]
fn a_process_that_asks_gets_memory_in_which_it_is_recorded() {
    let (batches, intake) = served(fake::manner(4096), |name| {
        let region = fake::ask(name, &fake::hello(why::EXEC)).unwrap();
        let mut thread = FakeThread::take(&region, 77, 5, "worker");
        assert!(thread.record(op::ACQUIRED, api::MUTEX, 0x40, &[]));
        thread.end();
        while region.look(0).state != trace_format::preload::state::FREE {
            thread::yield_now();
        }
        let mut next = FakeThread::take(&region, 78, 6, "next");
        assert!(next.record(op::RELEASED, api::MUTEX, 0x40, &[]));
    });
    let told = parts(&batches);
    let [
        Part::Begin(first),
        Part::Units(one),
        Part::End(end),
        Part::Begin(second),
        Part::Units(other),
        Part::End(open),
    ] = told[..]
    else {
        panic!("{told:?}");
    };
    assert_eq!((first.image.pid, first.tid, &first.comm[..6]), (std::process::id(), 77, &b"worker"[..]));
    assert!(first.image.new_program && first.image.known.is_some());
    assert_eq!((second.tid, second.image.id), (78, 0));
    assert_eq!((one.len(), other.len()), (1, 1));
    assert!(end.ended_ns > 0 && open.ended_ns == 0, "the second thread did not end");
    assert_eq!((intake.images(), intake.nonsense()), (1, 0));
}

#[test]
fn a_process_that_asks_anew_has_left_what_it_had() {
    let (batches, intake) = served(fake::manner(4096), |name| {
        let before = fake::ask(name, &fake::hello(why::EXEC)).unwrap();
        let mut thread = FakeThread::take(&before, 77, 5, "before");
        assert!(thread.record(op::ACQUIRED, api::MUTEX, 0x40, &[]));
        let after = fake::ask(name, &fake::hello(why::EXEC)).unwrap();
        let mut thread = FakeThread::take(&after, 77, 5, "after");
        assert!(thread.record(op::ACQUIRED, api::MUTEX, 0x40, &[]));
    });
    let images: Vec<u32> = parts(&batches)
        .into_iter()
        .filter_map(|part| if let Part::Begin(life) = part { Some(life.image.id) } else { None })
        .collect();
    assert_eq!((images, intake.images()), (vec![0, 1], 2));
}

#[test]
fn when_the_recording_ends_the_process_is_told_to_record_no_more() {
    let (told, active) = mpsc::channel();
    let (batches, _) = served(fake::manner(4096), |name| {
        let region = fake::ask(name, &fake::hello(why::FORK)).unwrap();
        let mut thread = FakeThread::take(&region, 77, 5, "worker");
        assert!(thread.record(op::ACQUIRED, api::MUTEX, 0x40, &[]));
        // SAFETY: the region is mapped as long as it lives, and lives on in the channel.
        assert_eq!(unsafe { (*region.head()).active }, 1);
        told.send(region).unwrap();
    });
    let region = active.recv().unwrap();
    // SAFETY: as above.
    assert_eq!(unsafe { (*region.head()).active }, 0);
    assert_eq!(batches.last().unwrap().settled_ns, u64::MAX);
}

#[test]
fn memory_full_of_nonsense_is_counted_and_nothing_else() {
    let (_, intake) = served(fake::manner(4096), |name| {
        let region = fake::ask(name, &fake::hello(why::EXEC)).unwrap();
        let mut thread = FakeThread::take(&region, 77, u64::MAX, "liar");
        assert!(thread.write(&[[u64::MAX, u64::MAX]]));
        thread.set_ring(u64::MAX - 15, 1 << 63);
        thread.set_busy(true);
        // SAFETY: as above.
        unsafe { (*region.head()).slots = u32::MAX };
        thread::sleep(Duration::from_millis(30));
    });
    assert_eq!(intake.nonsense(), 1);
}

#[test]
fn whoever_says_something_else_gets_nothing() {
    let (_, intake) = served(fake::manner(4096), |name| {
        let stranger = Hello { magic: 1, ..fake::hello(why::EXEC) };
        assert!(fake::ask(name, &stranger).is_err());
    });
    assert_eq!(intake.images(), 0);
}
