//! One reading of the events that a table is about: from row groups through engines into sinks, on all processors.
//!
//! ```text
//! row groups -> decoders -> rows by lock -> an engine and a sink per reader -> sinks, to be combined
//! ```
//!
//! Locks are independent, so each reader has the locks whose ids leave its number as a remainder, and sees their events in the
//! order of the file. What sinks add up does therefore not depend on how many there are. A few batches are decoded ahead and
//! no more, so memory does not grow with the trace. [`Pass::run`] is the same with one reader, for sinks that want all intervals in
//! their order.

use std::{
    num::NonZero,
    ops::ControlFlow,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Receiver, SyncSender},
    },
    thread,
};

use trace_format::{Event, FormatError, Trace};

use crate::{
    error::AnalyzeError,
    intervals::{Counts, Engine, Rules, Sink},
    names::Names,
    scope::Chosen,
    source,
};

mod split;
#[cfg(test)]
mod tests;
mod walk;

use split::{Parcel, Rows, Splitter, Stop};
pub(crate) use walk::Walk;

/// Batches per decoder and reader that are ready before the reader wants them.
const AHEAD: usize = 2;
/// More decoders than this don't help: they decode faster than readers read.
const MOST_DECODERS: usize = 4;
/// More readers than this don't help: the busiest lock is the work of one.
const MOST_READERS: usize = 16;

/// What of each event the sink looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Detail {
    /// When, who, where, and how long it waited.
    Times,
    /// Also what the wait was spent with.
    States,
    /// All that there is.
    #[default]
    All,
}

impl Detail {
    fn columns(self) -> &'static [&'static str] {
        const ALL: &[&str] = &[
            "mode",
            "lock_id",
            "task_id",
            "stack_id",
            "wait_ns",
            "blocked_ns",
            "runq_ns",
            "peer_task_id",
            "peer_stack_id",
            "errno",
        ];
        match self {
            Self::Times => &ALL[..5],
            Self::States => &ALL[..7],
            Self::All => ALL,
        }
    }
}

/// One reading of the events that a table is about.
#[derive(Clone, Copy)]
pub(crate) struct Pass<'a> {
    pub(crate) trace: &'a Trace,
    pub(crate) names: &'a Names,
    pub(crate) chosen: &'a Chosen,
    pub(crate) detail: Detail,
}

/// How many readers this machine keeps busy: a power of two, by which ids are divided fastest.
pub(crate) fn readers() -> usize {
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    1 << processors.min(MOST_READERS).ilog2()
}

impl Pass<'_> {
    /// Hands out each event that is wanted itself, in the order of the file.
    pub(crate) fn events(&self, mut each: impl FnMut(&Event)) -> Result<Walk, AnalyzeError> {
        let mut walk = Walk::default();
        let to_ns = self.chosen.window.to_ns;
        source::for_each(self.trace, |event| {
            if to_ns.is_some_and(|to_ns| event.ts_ns >= to_ns) {
                walk.cut_short = true;
                return ControlFlow::Break(());
            }
            walk.see_event(event, self.chosen);
            if self.chosen.wants_event(event) {
                each(event);
            }
            ControlFlow::Continue(())
        })?;
        Ok(walk)
    }

    /// Reads them into the sink, in the order of the file, until it has had enough.
    pub(crate) fn run(&self, sink: &mut impl Sink) -> Result<(Walk, Counts), AnalyzeError> {
        let engine = Engine::new(self.names.rules(self.trace));
        let reader = Reader::of(engine, sink);
        let (walk, counts, _) = self.read(1, |mut parcels| {
            let Some(parcels) = parcels.pop() else { return Vec::new() };
            vec![reader.read(&parcels, self)]
        })?;
        Ok((walk, counts))
    }

    /// Reads them into so many sinks, each of which gets all intervals of some locks.
    pub(crate) fn run_apart<S: Sink + Send>(
        &self,
        readers: usize,
        sink: impl Fn() -> S,
    ) -> Result<(Vec<S>, Walk, Counts), AnalyzeError> {
        let rules: Arc<Rules> = Arc::new(self.names.rules(self.trace));
        let readers = readers.max(1);
        let all: Vec<Reader<S>> =
            (0..readers).map(|_| Reader::of(Engine::of_shard(Arc::clone(&rules), readers), sink())).collect();
        let (walk, counts, sinks) = self.read(readers, |parcels| {
            thread::scope(|scope| {
                let spawn = |(reader, parcels): (Reader<S>, Parcels)| {
                    scope.spawn(move || reader.read(&parcels, self))
                };
                let threads: Vec<_> = all.into_iter().zip(parcels).map(spawn).collect();
                let join = |thread: thread::ScopedJoinHandle<'_, ReadBy<S>>| match thread.join() {
                    Ok(read) => read,
                    Err(panic) => std::panic::resume_unwind(panic),
                };
                threads.into_iter().map(join).collect()
            })
        })?;
        Ok((sinks, walk, counts))
    }

    /// Decodes for `readers`, lets `read` have what is decoded, and ends what is open when it has.
    fn read<S: Sink>(
        &self,
        readers: usize,
        read: impl FnOnce(Vec<Parcels>) -> Vec<ReadBy<S>>,
    ) -> Result<(Walk, Counts, Vec<S>), AnalyzeError> {
        let groups = self.trace.row_groups();
        let decoders = readers.div_ceil(2).clamp(1, MOST_DECODERS).min(groups.max(1));
        let failed = Mutex::new(None);
        let done = thread::scope(|scope| {
            let mut parcels: Vec<Parcels> =
                (0..readers).map(|_| Parcels { groups, by_decoder: Vec::new() }).collect();
            for decoder in 0..decoders {
                let (senders, receivers): (Vec<_>, Vec<_>) =
                    (0..readers).map(|_| mpsc::sync_channel(AHEAD)).unzip();
                parcels.iter_mut().zip(receivers).for_each(|(to, from)| to.by_decoder.push(from));
                let failed = &failed;
                scope.spawn(move || self.decode((decoder..groups).step_by(decoders), &senders, failed));
            }
            read(parcels)
        });
        if done.iter().any(|read| read.failed) {
            let first = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
            if let Some((_, error)) = first {
                return Err(FormatError::into(error));
            }
        }
        let mut walk = Walk::default();
        let mut rest = Vec::new();
        for read in done {
            walk.and(read.walk);
            rest.push((read.engine, read.sink));
        }
        let end_ns = match self.chosen.window.to_ns {
            Some(to_ns) if walk.cut_short => to_ns,
            _ => walk.last_ns.max(self.trace.info().clocks_end.monotonic_ns),
        };
        let (mut counts, mut sinks) = (Counts::default(), Vec::new());
        for (engine, mut sink) in rest {
            counts = counts.and(engine.finish(end_ns, &mut sink));
            sinks.push(sink);
        }
        Ok((walk, counts, sinks))
    }

    /// Decodes row groups one after the other. Of all that fail, the first in the file is kept.
    fn decode(
        &self,
        groups: impl Iterator<Item = usize>,
        readers: &[SyncSender<Parcel>],
        failed: &Mutex<Option<(usize, FormatError)>>,
    ) {
        let Self { trace, chosen, detail, .. } = *self;
        let splitter = Splitter { trace, chosen, columns: detail.columns() };
        for group in groups {
            match splitter.group(group, readers) {
                Ok(()) => {}
                Err(Stop::Enough) => return,
                Err(Stop::Failed(error)) => {
                    let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                    if failed.as_ref().is_none_or(|(first, _)| group < *first) {
                        *failed = Some((group, error));
                    }
                    drop(failed);
                    readers.iter().for_each(|reader| drop(reader.send(Parcel::Failed)));
                    return;
                }
            }
        }
    }
}

/// What comes for one reader.
struct Parcels {
    groups: usize,
    /// A decoder has every so many row groups.
    by_decoder: Vec<Receiver<Parcel>>,
}

/// Takes what is decoded, in the order of the file.
struct Reader<S> {
    engine: Engine,
    sink: S,
}

/// What a reader has when all is read.
struct ReadBy<S> {
    engine: Engine,
    sink: S,
    walk: Walk,
    failed: bool,
}

impl<S: Sink> Reader<S> {
    fn of(engine: Engine, sink: S) -> Self {
        Self { engine, sink }
    }

    fn read(self, parcels: &Parcels, pass: &Pass<'_>) -> ReadBy<S> {
        let Self { engine, sink } = self;
        let mut read = ReadBy { engine, sink, walk: Walk::default(), failed: false };
        for group in 0..parcels.groups {
            let from = &parcels.by_decoder[group % parcels.by_decoder.len()];
            loop {
                match from.recv() {
                    Ok(Parcel::Rows(rows)) => {
                        if !read.rows(rows, pass.chosen) {
                            return read;
                        }
                    }
                    Ok(Parcel::EndOfGroup) => break,
                    Ok(Parcel::EndOfWindow) => {
                        read.walk.cut_short = true;
                        return read;
                    }
                    // A decoder that is gone without a word has panicked, which its scope will say.
                    Ok(Parcel::Failed) | Err(_) => {
                        read.failed = true;
                        return read;
                    }
                }
            }
        }
        read
    }
}

impl<S: Sink> ReadBy<S> {
    /// Whether the sink wants more.
    fn rows(&mut self, parcel: Rows, chosen: &Chosen) -> bool {
        let Rows { batch, rows, walk, losses } = parcel;
        for at in rows {
            self.engine.push(&batch.row(at as usize), &mut self.sink);
            if self.sink.has_enough() {
                // What the rest of the batch holds was not seen.
                let seen = at as usize + 1;
                let mut walk = Walk::default();
                walk.see(&batch.times()[..seen]);
                losses.iter().filter(|(row, _)| *row < seen).for_each(|(_, event)| walk.lose(event));
                walk.idle_waits = split::idle_waits(&batch, seen, chosen);
                self.walk.and(walk);
                return false;
            }
        }
        if let Some(walk) = walk {
            self.walk.and(walk);
        }
        true
    }
}
