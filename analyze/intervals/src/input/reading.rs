//! An opened trace, and how it is read: on all processors, lock by lock, or in the order of the file.
//!
//! ```text
//! row groups -> decoders -> rows by lock -> an engine and a sink per reader -> sinks, to be merged
//! ```
//!
//! Locks are independent, so reader `i` of `n`, a power of two, has the locks whose id modulo `n` is `i`, and
//! sees their events in the order of the file. The sums of the sinks therefore do not depend on the number of
//! readers. A few batches are decoded ahead and no more, so memory does not grow with the trace.
//! [`Input::run`] uses one reader, for sinks that need all intervals in their order.

use std::{
    num::NonZero,
    ops::ControlFlow,
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
};

use trace_format::{Batch, BatchRow, Event, EventRow as _, FormatError, Trace};

use crate::{
    engine::{
        Counts, Engine, Rules,
        deadlock::{Deadlock, OpenHold, OpenLocks},
    },
    input::filter::Filter,
    input::names::{JoinedEvents, Names},
    input::selection::Selection,
    input::source::{self, EventSource},
    items::{Columns, Sink},
};
use output::error::AnalyzeError;

mod decode;
mod forks;
mod hangs;
mod left_out;
mod stats;
#[cfg(test)]
mod tests;

use decode::{Chunk, Chunks, Decoder, FirstFailure, Losses, Rows};
pub(crate) use stats::ReadStats;

/// Batches per decoder and reader that are decoded before the reader asks for them.
const AHEAD: usize = 2;
/// More decoders than this do not help: they decode faster than readers read.
const MAX_DECODERS: usize = 4;
/// More readers than this do not help: the busiest lock is the work of one.
const MAX_READERS: usize = 16;

/// The outcome of one reading of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadOutcome {
    /// Statistics of the events.
    pub stats: ReadStats,
    /// Counts of the engine; zero if only events were read.
    pub counts: Counts,
    /// The time at which open intervals ended: the end of the window or of the recording.
    pub end_ns: i64,
    /// The deadlocks among the selected locks at that time.
    pub deadlocks: Vec<Deadlock>,
}

/// Returns the number of readers that keep this machine busy: a power of two, by which ids are divided
/// fastest.
pub fn readers() -> usize {
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    1 << processors.min(MAX_READERS).ilog2()
}

/// Maps these items on all processors, in their order.
pub fn on_all_processors<T: Sync, R: Send>(items: &[T], map: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let each = items.len().div_ceil(readers()).max(1);
    let map = |items: &[T]| items.iter().map(&map).collect::<Vec<R>>();
    thread::scope(|scope| {
        let threads: Vec<_> = items.chunks(each).map(|items| scope.spawn(|| map(items))).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, Vec<R>>| match thread.join() {
            Ok(mapped) => mapped,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        threads.into_iter().flat_map(join).collect()
    })
}

/// One opened trace and the part of it that is selected.
pub struct Input<'a> {
    pub trace: &'a Trace,
    pub names: Names,
    pub selection: Selection,
    /// The name of the trace among several: its host, file name or path.
    pub label: String,
    pub(super) events: JoinedEvents<'a>,
}

impl<'a> Input<'a> {
    /// An input that reads `events` with the names of `trace`.
    pub fn new(
        trace: &'a Trace,
        events: &'a dyn EventSource,
        names: Names,
        filter: &Filter,
    ) -> Result<Self, AnalyzeError> {
        let selection = Selection::of(trace, &names, filter)?;
        let events = JoinedEvents::new(events, Arc::clone(names.split_locks()));
        Ok(Self { trace, names, selection, label: String::new(), events })
    }

    /// Returns the engine's rules for this trace: stacks with the same acquisition site count as one.
    pub fn rules(&self) -> Rules {
        let (kernel, user) = self.names.points_by_stack();
        let rules = Rules::new(self.trace.info(), self.names.locks());
        let mutexes = self.names.split_locks().mutexes().iter().copied();
        rules.with_points(kernel, user).with_tasks(self.names.tasks()).with_mutexes(mutexes)
    }

    /// Calls `each` with every selected event, in the order of the file.
    pub fn events(&self, mut each: impl FnMut(&Event)) -> Result<ReadOutcome, AnalyzeError> {
        self.events_until(|event| {
            each(event);
            ControlFlow::Continue(())
        })
    }

    /// The same, until `each` breaks.
    pub fn events_until(
        &self,
        mut each: impl FnMut(&Event) -> ControlFlow<()>,
    ) -> Result<ReadOutcome, AnalyzeError> {
        let (mut stats, selection) = (ReadStats::default(), &self.selection);
        source::for_each(&self.events, |event| {
            stats.cut_short = selection.window.ends_by(event.ts_ns);
            if stats.cut_short {
                return ControlFlow::Break(());
            }
            stats.add_event(event, selection);
            if selection.selects_event(event) { each(event) } else { ControlFlow::Continue(()) }
        })?;
        Ok(self.outcome(stats))
    }

    /// Calls `each` with every event in the window, selected or not, in the order of the file.
    pub fn rows(
        &self,
        columns: Columns,
        mut each: impl FnMut(&BatchRow<'_>),
    ) -> Result<ReadOutcome, AnalyzeError> {
        self.batches(columns, |batch, used| (0..used).for_each(|row| each(&batch.row(row))))
    }

    /// Calls `each` with every batch and the number of its rows that are in the window, in the order of the
    /// file.
    pub fn batches(
        &self,
        columns: Columns,
        mut each: impl FnMut(&Batch, usize),
    ) -> Result<ReadOutcome, AnalyzeError> {
        let stats = self.all_batches(columns, |batch, used| {
            each(batch, used);
            if used < batch.len() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(self.outcome(stats))
    }

    /// The same with the batches behind the window, until `each` breaks.
    fn all_batches(
        &self,
        columns: Columns,
        mut each: impl FnMut(&Batch, usize) -> ControlFlow<()>,
    ) -> Result<ReadStats, AnalyzeError> {
        let (mut stats, mut losses) = (ReadStats::default(), Losses::new(&self.events));
        source::batches(&self.events, columns.names(), |group, batch| {
            if stats.cut_short {
                return Ok(each(batch, 0));
            }
            let end = self.selection.window.end_in(batch.times());
            let used = end.unwrap_or(batch.len());
            stats.add_times(&batch.times()[..used]);
            losses.of(group, batch, used)?.iter().for_each(|(_, event)| stats.add_loss(event));
            stats.merge_left_out(decode::left_out(batch, used, &self.selection));
            stats.cut_short = end.is_some();
            Ok(each(batch, used))
        })?;
        Ok(stats)
    }

    /// Returns the number of row groups.
    pub fn row_group_count(&self) -> usize {
        self.events.row_groups()
    }

    /// Calls `each` with the index and all rows of each of these row groups, selected or not, until it
    /// breaks.
    pub fn row_groups(
        &self,
        groups: impl Iterator<Item = usize> + Send,
        each: impl FnMut(usize, &mut [Event]) -> ControlFlow<()>,
    ) -> Result<(), AnalyzeError> {
        Ok(source::row_groups(&self.events, groups, each)?)
    }

    /// Calls `each` with every event, selected or not, in the order of the file.
    pub(crate) fn every_event(&self, mut each: impl FnMut(&Event)) -> Result<(), FormatError> {
        source::for_each(&self.events, |event| {
            each(event);
            ControlFlow::Continue(())
        })
    }

    /// Returns the latest time of any event, selected or not.
    pub fn last_event_ns(&self) -> Result<i64, AnalyzeError> {
        let mut last_ns = i64::MIN;
        source::batches(&self.events, &[], |_, batch| {
            last_ns = batch.times().iter().copied().fold(last_ns, i64::max);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(last_ns)
    }

    /// Sends the intervals of the selected locks into `sink`, in the order of the file, until it has enough.
    pub fn run(&self, sink: &mut impl Sink) -> Result<ReadOutcome, AnalyzeError> {
        self.run_selected(&self.selection, sink)
    }

    /// The same until `to_ns`, if it is given: later row groups are not read.
    pub fn run_until(&self, to_ns: Option<i64>, sink: &mut impl Sink) -> Result<ReadOutcome, AnalyzeError> {
        let mut selection = self.selection.clone();
        selection.window.to_ns = to_ns.or(selection.window.to_ns);
        self.run_selected(&selection, sink)
    }

    fn run_selected(&self, selection: &Selection, sink: &mut impl Sink) -> Result<ReadOutcome, AnalyzeError> {
        let columns = sink.needs().columns;
        let shard = Shard::new(Engine::new(self.rules()), sink);
        let (_, outcome) = self.read(selection, 1, columns, |mut chunks| match chunks.pop() {
            Some(chunks) => vec![shard.read(&chunks, selection)],
            None => Vec::new(),
        })?;
        Ok(outcome)
    }

    /// Sends the intervals of the selected locks into `sink`, and every batch, in the window or not, with the
    /// columns of causes and intervals, to `each` until it breaks; both in the order of the file.
    pub fn run_beside(
        &self,
        sink: &mut impl Sink,
        mut each: impl FnMut(&Batch) -> ControlFlow<()>,
    ) -> Result<ReadOutcome, AnalyzeError> {
        let mut engine = Engine::new(self.rules());
        let stats = self.all_batches(Columns::CausesAndPeers, |batch, used| {
            for row in (0..used).map(|index| batch.row(index)) {
                if row.lock().is_none_or(|lock| self.selection.selects_lock(lock.0)) {
                    engine.push(&row, sink);
                }
            }
            each(batch)
        })?;
        let deadlocks = engine.open_locks().deadlocks();
        let outcome = self.outcome(stats);
        Ok(ReadOutcome { counts: engine.finish(outcome.end_ns, sink), deadlocks, ..outcome })
    }

    /// Sends the intervals into `readers` sinks on as many threads, or the next power of two. Each sink gets
    /// all intervals of some locks.
    pub fn run_apart<S: Sink + Send>(
        &self,
        readers: usize,
        sink: impl Fn() -> S,
    ) -> Result<(Vec<S>, ReadOutcome), AnalyzeError> {
        self.run_apart_selected(&self.selection, readers, sink)
    }

    pub(super) fn run_apart_selected<S: Sink + Send>(
        &self,
        selection: &Selection,
        readers: usize,
        sink: impl Fn() -> S,
    ) -> Result<(Vec<S>, ReadOutcome), AnalyzeError> {
        let (rules, readers) = (Arc::new(self.rules()), readers.max(1).next_power_of_two());
        let shard = |_| Shard::new(Engine::of_shard(Arc::clone(&rules), readers.ilog2()), sink());
        let shards: Vec<Shard<S>> = (0..readers).map(shard).collect();
        let columns = shards[0].sink.needs().columns;
        self.read(selection, readers, columns, |chunks| {
            thread::scope(|scope| {
                let spawn =
                    |(shard, chunks): (Shard<S>, Chunks)| scope.spawn(move || shard.read(&chunks, selection));
                let threads: Vec<_> = shards.into_iter().zip(chunks).map(spawn).collect();
                let join = |thread: thread::ScopedJoinHandle<'_, Shard<S>>| match thread.join() {
                    Ok(shard) => shard,
                    Err(panic) => std::panic::resume_unwind(panic),
                };
                threads.into_iter().map(join).collect()
            })
        })
    }

    /// Starts decoders for `readers` readers, lets `read` consume their chunks, and then ends what is still
    /// open.
    fn read<S: Sink>(
        &self,
        selection: &Selection,
        readers: usize,
        columns: Columns,
        read: impl FnOnce(Vec<Chunks>) -> Vec<Shard<S>>,
    ) -> Result<(Vec<S>, ReadOutcome), AnalyzeError> {
        let groups = self.events.row_groups();
        let decoders = readers.div_ceil(2).clamp(1, MAX_DECODERS).min(groups.max(1));
        let failure = FirstFailure::new(None);
        let shards = thread::scope(|scope| {
            let mut chunks: Vec<Chunks> =
                (0..readers).map(|_| Chunks { groups, by_decoder: Vec::new() }).collect();
            for first in 0..decoders {
                let (senders, receivers): (Vec<_>, Vec<_>) =
                    (0..readers).map(|_| mpsc::sync_channel(AHEAD)).unzip();
                chunks.iter_mut().zip(receivers).for_each(|(to, from)| to.by_decoder.push(from));
                let decoder = Decoder { events: &self.events, selection, columns: columns.names() };
                let failure = &failure;
                scope.spawn(move || decoder.run((first..groups).step_by(decoders), &senders, failure));
            }
            read(chunks)
        });
        if shards.iter().any(|shard| shard.failed) {
            let first = Mutex::into_inner(failure).unwrap_or_else(PoisonError::into_inner);
            if let Some((_, error)) = first {
                return Err(FormatError::into(error));
            }
        }
        let (mut stats, mut open) = (ReadStats::default(), Vec::new());
        for shard in shards {
            stats.merge(shard.stats);
            open.push((shard.engine, shard.sink));
        }
        let end_ns = self.end_ns(selection, &stats);
        stats.left_out.finish(end_ns);
        let (mut counts, mut sinks, mut open_locks) = (Counts::default(), Vec::new(), OpenLocks::default());
        for (engine, mut sink) in open {
            open_locks.merge(engine.open_locks());
            counts.merge(engine.finish(end_ns, &mut sink));
            sinks.push(sink);
        }
        let ended = &open_locks.ended;
        open_locks.holds.retain(|hold| !(ended.contains(&hold.task) && self.is_kept_at_exit(hold)));
        let mut deadlocks = open_locks.deadlocks();
        deadlocks.extend(forks::deadlocks(&open_locks, &self.names, &self.events)?);
        if !stats.cut_short {
            let span = (self.trace.info().clocks_start.monotonic_ns, end_ns);
            deadlocks.extend(hangs::deadlocks(&open_locks, &deadlocks, &self.names, span));
        }
        Ok((sinks, ReadOutcome { stats, counts, end_ns, deadlocks }))
    }

    /// Whether a thread ends with this hold by design: HotSpot's last safepoint, in which no other thread is
    /// to come or go while the process exits.
    fn is_kept_at_exit(&self, hold: &OpenHold) -> bool {
        let function = self.names.point(hold.lock, hold.stack).function.as_deref();
        function.is_some_and(|function| function.starts_with("SafepointSynchronize::begin"))
    }

    /// Returns the time at which open intervals end: the end of the window, or of the recording.
    fn end_ns(&self, selection: &Selection, stats: &ReadStats) -> i64 {
        match selection.window.to_ns {
            Some(to_ns) if stats.cut_short => to_ns,
            _ => stats.last_ns.max(self.trace.info().clocks_end.monotonic_ns),
        }
    }

    /// Returns the outcome of a reading without an engine.
    fn outcome(&self, mut stats: ReadStats) -> ReadOutcome {
        let end_ns = self.end_ns(&self.selection, &stats);
        stats.left_out.finish(end_ns);
        ReadOutcome { end_ns, stats, ..ReadOutcome::default() }
    }
}

/// The engine and the sink of one reader, and what they have read so far.
struct Shard<S> {
    engine: Engine,
    sink: S,
    stats: ReadStats,
    failed: bool,
}

impl<S: Sink> Shard<S> {
    fn new(engine: Engine, sink: S) -> Self {
        Self { engine, sink, stats: ReadStats::default(), failed: false }
    }

    /// Reads the chunks in the order of the file.
    fn read(mut self, chunks: &Chunks, selection: &Selection) -> Self {
        for group in 0..chunks.groups {
            let from = &chunks.by_decoder[group % chunks.by_decoder.len()];
            loop {
                match from.recv() {
                    Ok(Chunk::Rows(rows)) => {
                        if self.rows(rows, selection).is_break() {
                            return self;
                        }
                    }
                    Ok(Chunk::EndOfGroup) => break,
                    Ok(Chunk::EndOfWindow) => {
                        self.stats.cut_short = true;
                        return self;
                    }
                    // A decoder that closes its channel early has panicked; its scope reports that.
                    Ok(Chunk::Failed) | Err(_) => {
                        self.failed = true;
                        return self;
                    }
                }
            }
        }
        self
    }

    /// Pushes rows into the engine until the sink has enough.
    fn rows(&mut self, rows: Rows, selection: &Selection) -> ControlFlow<()> {
        let Rows { batch, rows, stats, losses } = rows;
        for index in rows {
            self.engine.push(&batch.row(index as usize), &mut self.sink);
            if self.sink.is_full() {
                // The rest of the batch was not read, so it does not count.
                let used = index as usize + 1;
                let mut stats = ReadStats::default();
                stats.add_times(&batch.times()[..used]);
                losses.iter().filter(|(row, _)| *row < used).for_each(|(_, event)| stats.add_loss(event));
                stats.left_out = decode::left_out(&batch, used, selection);
                self.stats.merge(stats);
                return ControlFlow::Break(());
            }
        }
        if let Some(stats) = stats {
            self.stats.merge(*stats);
        }
        ControlFlow::Continue(())
    }
}
