//! Merges the records of all threads of recorded processes into the order of time.
//!
//! ```text
//! a batch that is complete up to 50: thread A has records of 10, 30 and 40
//!                                    thread B has a record of 20, and is in the middle of its next one
//! emitted: A 10, B 20; A 30 waits, because the next record of B may have the time 25
//! ```
//!
//! The records of each thread are in order already, so they are merged and not sorted. A record waits, for at
//! most two seconds, while an earlier one can still come: a batch names the time up to which it is complete,
//! and the threads that were in the middle of a record. Only what such a thread has published is known, so
//! nothing later than that is emitted.
//!
//! A process can publish old times without end. They would always be the earliest ones, and nothing else
//! would be emitted. So each thread of another user has a lower bound of its times: three seconds before klock
//! reads them.

use serde::{Deserialize, Serialize};
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    sync::Arc,
};

use trace_format::preload::{Record, lost, op};

use super::{
    batch::{Batch, Chunk, ProcessImage, ThreadExit, ThreadSession},
    budget::Item,
    clock::Timeline,
    records::{self, Unit},
};

/// The next step of all threads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step<'a> {
    Start(&'a ThreadSession),
    Record(Record, &'a [Unit]),
    /// It exited; this number of lost records was not reported before.
    Exit(&'a ThreadExit, u64),
}

/// The chunks of one session that are not emitted yet.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Stream {
    /// Its process, from its start to its end.
    image: Option<Arc<ProcessImage>>,
    chunks: VecDeque<Chunk>,
    /// Index of the next record in the first chunk.
    next: usize,
    /// Time of the next step, or of the last one if there is no next one.
    last_ns: u64,
    busy: bool,
    /// How far the ticks of its records are ahead.
    ticks_ahead: u64,
    /// Lost records that were reported between the others.
    reported_lost: u64,
    /// Those of them that came while another record of the thread was being written.
    reported_nested: u64,
}

/// Merges the sessions of all threads.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Merger {
    streams: Vec<Stream>,
    /// Sessions whose threads were in the middle of a record.
    busy: Vec<u32>,
    /// The next step of each session that has one.
    next: BinaryHeap<Reverse<(u64, u32)>>,
    settled_ns: u64,
    state: State,
}

/// The part of a merger that is independent of its streams.
#[derive(Debug, Serialize, Deserialize)]
struct State {
    timeline: Timeline,
    emitted_ns: u64,
    stats: MergeStats,
    /// Units that are not emitted yet.
    pending: usize,
    /// Buffers to be used again.
    #[serde(skip)]
    free: Vec<Vec<Unit>>,
}

/// A merger's counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MergeStats {
    /// Emitted records of lock calls.
    pub delivered: u64,
    /// Records that found no chunk.
    pub lost: u64,
    /// Records that came while another record of the same thread was being written.
    pub nested: u64,
    /// Units in which no record could be found.
    pub undecodable: u64,
    /// Records that came after a later one was emitted. They get its time.
    pub late: u64,
}

/// Maximum number of sessions, or of processes, that were given a number and never recorded anything.
const MAX_SKIPPED: usize = 1 << 16;
/// The maximum time for which a thread in the middle of a record holds others back, and a thread of another
/// user than klock's. Records that would be held back for longer are composed after the end of the recording.
const MAX_AWAITED_NS: u64 = 2_000_000_000;
const MAX_AWAITED_OF_OTHERS_NS: u64 = 500_000_000;

impl Stream {
    /// The maximum time for which this thread holds others back.
    fn max_awaited_ns(&self) -> u64 {
        let is_of_other = self.image.as_ref().is_some_and(|image| !image.account.is_own());
        if is_of_other { MAX_AWAITED_OF_OTHERS_NS } else { MAX_AWAITED_NS }
    }

    /// The time up to which this thread is known or not waited for any more, given the time up to which idle
    /// threads are known.
    fn known_ns(&self, settled_ns: u64) -> u64 {
        self.last_ns.max(settled_ns.saturating_sub(self.max_awaited_ns()))
    }
}

impl Merger {
    /// Starts without threads; `timeline` converts the times of records.
    pub(crate) fn new(timeline: Timeline) -> Self {
        Self {
            streams: Vec::new(),
            busy: Vec::new(),
            next: BinaryHeap::new(),
            settled_ns: 0,
            state: State {
                timeline,
                emitted_ns: 0,
                stats: MergeStats::default(),
                pending: 0,
                free: Vec::new(),
            },
        }
    }

    /// Returns whether the indices of a merger that was read from a file are in range, and its sums are
    /// right.
    pub(crate) fn is_valid(&self) -> bool {
        let mut ids: Vec<u32> = self.next.iter().map(|Reverse((_, id))| *id).collect();
        ids.sort_unstable();
        let has_chunk =
            |id: &u32| self.streams.get(*id as usize).is_some_and(|stream| !stream.chunks.is_empty());
        let left = |stream: &Stream| {
            let units = |chunk: &Chunk| if let Chunk::Units(units) = chunk { units.len() } else { 0 };
            let is_in = stream.next <= stream.chunks.front().map_or(0, units);
            is_in.then(|| stream.chunks.iter().map(units).sum::<usize>() - stream.next)
        };
        ids.windows(2).all(|pair| pair[0] < pair[1])
            && ids.iter().all(has_chunk)
            && self.streams.iter().map(left).sum::<Option<usize>>() == Some(self.state.pending)
    }

    /// Returns whether the sessions and processes of a batch that was read from a file continue the numbers
    /// of those before: they are dense.
    pub(crate) fn is_next(&self, batch: &Batch) -> bool {
        let most = self.streams.len() + batch.chunks.len() + MAX_SKIPPED;
        batch.chunks.iter().all(|(id, chunk)| {
            let image = if let Chunk::Start(session) = chunk { session.image.id } else { 0 };
            (*id.max(&image) as usize) < most
        })
    }

    /// Adds a batch. Batches come in the order in which they were drained.
    pub(crate) fn add_batch(&mut self, batch: Batch) {
        let Self { streams, state, next, .. } = self;
        if let Some(reading) = batch.reading {
            state.timeline.extend(reading);
            // A record from before gets the time of the last step that was emitted.
            state.timeline.forget_before(state.emitted_ns);
        }
        for (id, chunk) in batch.chunks {
            let index = id as usize;
            if streams.len() <= index {
                streams.resize_with(index + 1, Stream::default);
            }
            let stream = &mut streams[index];
            match &chunk {
                Chunk::Start(session) => {
                    stream.ticks_ahead = session.image.ticks_ahead;
                    stream.image = Some(Arc::clone(&session.image));
                }
                Chunk::Units(units) => {
                    let image = stream.image.as_ref();
                    if let Some(image) = image.filter(|image| image.account.has_ended()) {
                        // Nothing of it is composed any more.
                        image.account.unqueue(units.len());
                        continue;
                    }
                    state.pending += units.len();
                }
                Chunk::WrittenAfter(_) | Chunk::Exit(_) => {}
            }
            stream.chunks.push_back(chunk);
            // A stream that has more chunks is in the heap already.
            if stream.chunks.len() == 1 && state.find_next(stream) {
                next.push(Reverse((stream.last_ns, id)));
            }
        }
        for (ids, busy) in [(&self.busy, false), (&batch.busy, true)] {
            for &id in ids {
                if let Some(stream) = streams.get_mut(id as usize) {
                    stream.busy = busy;
                }
            }
        }
        self.busy = batch.busy;
        self.settled_ns = self.settled_ns.max(batch.settled_ns);
    }

    /// The time up to which everything is known, or will not be waited for any more.
    pub(crate) fn settled_ns(&self) -> u64 {
        let busy = self.busy.iter().filter_map(|&id| self.streams.get(id as usize));
        let awaited = busy.filter(|stream| stream.chunks.is_empty());
        awaited.map(|stream| stream.known_ns(self.settled_ns)).fold(self.settled_ns, u64::min)
    }

    /// The number of units that are not emitted yet.
    pub(crate) fn pending(&self) -> usize {
        self.state.pending
    }

    pub(crate) fn stats(&self) -> MergeStats {
        self.state.stats
    }

    /// Takes the buffers that are not used any more.
    pub(crate) fn take_free_buffers(&mut self) -> Vec<Vec<Unit>> {
        std::mem::take(&mut self.state.free)
    }

    /// Emits all steps before `bound_ns` in the order of time, until `budget`, from which each step takes
    /// one, is used up. Returns the time before which everything is emitted.
    pub(crate) fn emit(
        &mut self,
        bound_ns: u64,
        budget: &mut usize,
        mut each: impl FnMut(u64, u32, Step<'_>),
    ) -> u64 {
        let mut bound_ns = bound_ns.min(self.settled_ns().saturating_add(1));
        let Self { streams, state, next, settled_ns, .. } = self;
        let Some(mut first) = next.pop() else { return bound_ns };
        loop {
            let Reverse((ts_ns, id)) = first;
            if ts_ns >= bound_ns || *budget == 0 {
                next.push(first);
                return ts_ns.min(bound_ns);
            }
            let stream = &mut streams[id as usize];
            // While the stream stays before all others, the heap is not needed.
            let until_ns = next.peek().map_or(bound_ns, |Reverse((ns, _))| bound_ns.min(*ns));
            if state.emit_run(id, stream, until_ns, budget, &mut each) {
                first = Reverse((stream.last_ns, id));
                // The stream changes places with the first of the others.
                if let Some(mut other) = next.peek_mut()
                    && *other > first
                {
                    std::mem::swap(&mut *other, &mut first);
                }
                continue;
            }
            if stream.busy {
                bound_ns = bound_ns.min(stream.known_ns(*settled_ns).saturating_add(1));
            }
            let Some(other) = next.pop() else { return bound_ns };
            first = other;
        }
    }
}

impl State {
    /// Emits the next step of a stream, whose time is `last_ns`, and further ones before `until_ns` while
    /// there is a budget. Returns whether there are more.
    fn emit_run(
        &mut self,
        id: u32,
        stream: &mut Stream,
        until_ns: u64,
        budget: &mut usize,
        each: &mut impl FnMut(u64, u32, Step<'_>),
    ) -> bool {
        loop {
            *budget -= 1;
            if let Some(Chunk::Units(place)) = stream.chunks.front_mut() {
                let units = std::mem::take(place);
                let has_next = self.emit_records(id, stream, &units, until_ns, budget, each);
                if let Some(Chunk::Units(place)) = stream.chunks.front_mut() {
                    *place = units;
                }
                if has_next {
                    return true;
                }
            } else {
                self.emit_change(id, stream, each);
            }
            if !self.find_next(stream) {
                return false;
            }
            if stream.last_ns >= until_ns || *budget == 0 {
                return true;
            }
        }
    }

    /// Emits the next record of a stream, whose first chunk has these units, and further ones as
    /// [`emit_run`](Self::emit_run) does. Returns `false` if no record begins at the next unit.
    fn emit_records(
        &mut self,
        id: u32,
        stream: &mut Stream,
        units: &[Unit],
        until_ns: u64,
        budget: &mut usize,
        each: &mut impl FnMut(u64, u32, Step<'_>),
    ) -> bool {
        let mut next = records::first(&units[stream.next..]);
        while let Ok((record, rest)) = next {
            self.emit_record(id, stream, record, rest, each);
            stream.next += 1 + rest.len();
            self.pending -= 1 + rest.len();
            next = records::first(&units[stream.next..]);
            if let Ok((record, _)) = next {
                self.advance(stream, record);
                if stream.last_ns >= until_ns || *budget == 0 {
                    return true;
                }
                *budget -= 1;
            }
        }
        false
    }

    /// Returns the time of a step of a stream, and whether it is late. Rows stay in the order of time,
    /// whatever times a process publishes.
    #[inline]
    fn emitted(&mut self, stream_ns: u64) -> (u64, bool) {
        let late = stream_ns < self.emitted_ns;
        self.emitted_ns = self.emitted_ns.max(stream_ns);
        (self.emitted_ns, late)
    }

    /// Emits a record, whose time is `last_ns`.
    #[inline]
    fn emit_record(
        &mut self,
        id: u32,
        stream: &mut Stream,
        record: Record,
        rest: &[Unit],
        each: &mut impl FnMut(u64, u32, Step<'_>),
    ) {
        let (ts_ns, late) = self.emitted(stream.last_ns);
        match record.op() {
            op::LOST => {
                let (count, is_nested) = (record.address(), record.api() == lost::NESTED);
                stream.reported_lost = stream.reported_lost.saturating_add(count);
                if is_nested {
                    stream.reported_nested = stream.reported_nested.saturating_add(count);
                }
                self.count_lost(count, is_nested);
            }
            op::STACK | op::RENAMED | op::STARTED => {}
            _ => self.stats.delivered += 1,
        }
        // Starts do not count: a thread notes its start before its slot can be seen.
        self.stats.late += u64::from(late);
        each(ts_ns, id, Step::Record(record, rest));
    }

    /// Emits the start or the exit of a stream, whose time is `last_ns`.
    fn emit_change(&mut self, id: u32, stream: &mut Stream, each: &mut impl FnMut(u64, u32, Step<'_>)) {
        let (ts_ns, _) = self.emitted(stream.last_ns);
        match stream.chunks.pop_front() {
            Some(Chunk::Start(session)) => each(ts_ns, id, Step::Start(&session)),
            Some(Chunk::Exit(exit)) => {
                let unreported = exit.lost.saturating_sub(stream.reported_lost);
                let nested = exit.nested.saturating_sub(stream.reported_nested).min(unreported);
                self.count_lost(nested, true);
                self.count_lost(unreported - nested, false);
                each(ts_ns, id, Step::Exit(&exit, unreported));
                stream.image = None;
            }
            // `find_next` stops at the others only if a record begins there.
            Some(Chunk::Units(_) | Chunk::WrittenAfter(_)) | None => {}
        }
        stream.next = 0;
    }

    /// The next step of a stream is this record; its time becomes `last_ns`.
    #[inline]
    fn advance(&mut self, stream: &mut Stream, record: Record) {
        let ticks = record.time().wrapping_sub(stream.ticks_ahead);
        // The times of a thread never decrease, whatever is in its memory.
        stream.last_ns = stream.last_ns.max(self.timeline.ns(ticks));
    }

    /// Counts lost records. A process may claim any number of them.
    fn count_lost(&mut self, count: u64, is_nested: bool) {
        const MAX: u64 = 1 << 60;
        let sum = if is_nested { &mut self.stats.nested } else { &mut self.stats.lost };
        *sum = sum.saturating_add(count).min(MAX);
    }

    /// Finds the next step of a stream; its time becomes `last_ns`. Returns `false` if there is none.
    fn find_next(&mut self, stream: &mut Stream) -> bool {
        loop {
            match stream.chunks.front_mut() {
                None => return false,
                Some(Chunk::Start(session)) => {
                    stream.last_ns = stream.last_ns.max(session.start_ns).max(session.image.ts_ns);
                    return true;
                }
                Some(Chunk::Exit(exit)) => {
                    stream.last_ns = stream.last_ns.max(exit.exit_ns);
                    return true;
                }
                Some(&mut Chunk::WrittenAfter(ns)) => {
                    // A record may be written a while after its time.
                    stream.last_ns = stream.known_ns(ns);
                    stream.chunks.pop_front();
                }
                Some(Chunk::Units(units)) if stream.next >= units.len() => {
                    if let Some(image) = &stream.image {
                        image.account.unqueue(units.len());
                    }
                    self.free.push(std::mem::take(units));
                    stream.chunks.pop_front();
                    stream.next = 0;
                }
                Some(Chunk::Units(units)) => match records::first(&units[stream.next..]) {
                    Ok((record, _)) => {
                        self.advance(stream, record);
                        return true;
                    }
                    Err(records::NoRecord) => {
                        self.stats.undecodable += 1;
                        let image = stream.image.as_ref();
                        let is_excess =
                            image.is_some_and(|image| image.account.charge(Item::InvalidUnit).is_err());
                        // The rest of the chunk is as invalid.
                        let skipped = if is_excess { units.len() - stream.next } else { 1 };
                        self.pending -= skipped;
                        stream.next += skipped;
                    }
                },
            }
        }
    }
}

#[cfg(test)]
mod tests;
