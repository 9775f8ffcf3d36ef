//! A reading of events in memory, for tests: shards and the walk as a reading of a file has them, without threads and without Parquet.
//! That a file gives the same, whatever its row groups and however many threads read it, is tested with files.

use std::sync::Arc;

use trace_format::{Event, EventKind};

use super::Part;
use crate::{
    intervals::{Counts, Engine, Rules, Sink},
    pass::Walk,
};

pub(super) fn run<S: Sink>(part: &Part<'_>, events: &[Event], mut sinks: Vec<S>) -> (Vec<S>, Walk, Counts) {
    let readers = sinks.len();
    let rules: Arc<Rules> = Arc::new(part.names.rules(part.trace));
    let mut engines: Vec<Engine> =
        sinks.iter().map(|_| Engine::of_shard(Arc::clone(&rules), readers)).collect();
    let mut walk = Walk::default();
    for event in events {
        if part.chosen.window.to_ns.is_some_and(|to_ns| event.ts_ns >= to_ns) {
            walk.cut_short = true;
            break;
        }
        walk.see_event(event, &part.chosen);
        for (shard, (engine, sink)) in engines.iter_mut().zip(&mut sinks).enumerate() {
            let is_here = match event.lock {
                Some(lock) => part.chosen.wants(lock.0) && lock.0 as usize % readers == shard,
                None => event.kind == EventKind::Lost,
            };
            if is_here && !sink.has_enough() {
                engine.push(event, sink);
            }
        }
    }
    let end_ns = match part.chosen.window.to_ns {
        Some(to_ns) if walk.cut_short => to_ns,
        _ => walk.last_ns.max(part.trace.info().clocks_end.monotonic_ns),
    };
    let mut counts = Counts::default();
    for (engine, sink) in engines.into_iter().zip(&mut sinks) {
        counts = counts.and(engine.finish(end_ns, sink));
    }
    (sinks, walk, counts)
}
