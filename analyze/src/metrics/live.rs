//! Metrics of a recording that goes on. The recorder adds events and new rows of side tables as it writes
//! them, and may ask for the text at any time.

use std::io::Write;

use trace_format::{Event, EventKind, LockRow, RunInfo, Stack, StackId};

use super::{Events, Fill, Series, Syntax, Tally, text};
use intervals::{
    engine::{Engine, Rules},
    input::names::Names,
    items::{Item, Sink},
};
use output::error::AnalyzeError;

/// The time in which a lock gets its name. Until then its sums are in no series, so that they need not change
/// to another one.
const NAMING_NS: i64 = 2_000_000_000;

/// The sums of a recording so far. Names of stacks come late, so every stack is an acquisition site of its
/// own: a reader that takes a lock again through another call of the same line has two acquisitions here, and
/// one in a report.
#[derive(Debug)]
pub struct Live {
    engine: Engine,
    sums: LiveSums,
    locks: Vec<LockRow>,
    stacks: Vec<Stack>,
    info: RunInfo,
    series: Series,
    events: Events,
    /// The time of the last event.
    last_ns: i64,
}

/// The intervals of locks that tasks do not wait for idly, as in a report.
#[derive(Debug, Default)]
struct LiveSums {
    tally: Tally,
    /// By lock id.
    idle: Vec<bool>,
}

impl Sink for LiveSums {
    fn push(&mut self, item: Item<'_>) {
        let at = item.lock().and_then(|lock| usize::try_from(lock.0).ok());
        let is_idle = at.and_then(|at| self.idle.get(at)).is_some_and(|is_idle| *is_idle);
        if !is_idle {
            self.tally.push(item);
        }
    }
}

impl Live {
    /// Returns the metrics of a recording that begins, with series for `limit` locks.
    pub fn new(info: RunInfo, limit: usize) -> Self {
        let lost = text::causes(&info.loss);
        let events = Events { recorded: 0, lost, recording: Some(true), skipped: Some(0) };
        Self {
            engine: Engine::new(Rules::default()),
            sums: LiveSums::default(),
            locks: Vec::new(),
            stacks: Vec::new(),
            info,
            series: Series::new(limit),
            events,
            last_ns: 0,
        }
    }

    /// Adds new rows of the locks table, or rows that have changed. A lock is added before its first event.
    pub fn add_locks(&mut self, rows: &[LockRow]) {
        for row in rows {
            let Ok(at) = usize::try_from(row.id.0) else { continue };
            if at < self.locks.len() {
                self.locks[at].clone_from(row);
            } else if at == self.locks.len() {
                self.locks.push(row.clone());
                self.sums.idle.push(row.kind.is_idle());
                self.engine.add_lock(&self.info, row);
            }
        }
    }

    /// Adds stacks, or stacks with new names.
    pub fn add_stacks(&mut self, stacks: &[Stack]) {
        for stack in stacks {
            let Ok(at) = usize::try_from(stack.id.0) else { continue };
            while self.stacks.len() <= at {
                // Ids of a trace are 31 bits wide.
                let id = StackId(self.stacks.len() as i32);
                self.stacks.push(Stack { id, frames: Vec::new() });
            }
            self.stacks[at].frames.clone_from(&stack.frames);
        }
    }

    /// Sets the sources and the losses so far.
    pub fn set_info(&mut self, info: RunInfo) {
        let lost = text::causes(&info.loss);
        for (known, (cause, n)) in self.events.lost.iter_mut().zip(lost) {
            // A counter that cannot be read now is 0.
            *known = (cause, n.max(known.1));
        }
        self.info = info;
    }

    /// Adds the next events of the trace.
    pub fn add_events(&mut self, events: &[Event]) {
        self.events.recorded += events.len() as u64;
        self.last_ns = events.last().map_or(self.last_ns, |event| event.ts_ns);
        events.iter().for_each(|event| self.engine.push(event, &mut self.sums));
    }

    /// Counts events that are in the trace but were not added. Nothing is paired across them.
    pub fn skip_events(&mut self, count: u64) {
        self.events.recorded += count;
        self.events.skipped = self.events.skipped.map(|skipped| skipped + count);
        self.engine.push(&Event::new(self.last_ns, EventKind::Lost, 0), &mut self.sums);
    }

    /// Notes the end of the recording. A wait that ended in the last nanosecond counts from now on.
    pub fn end(&mut self) {
        let engine = std::mem::replace(&mut self.engine, Engine::new(Rules::default()));
        engine.finish(self.last_ns, &mut self.sums);
        self.events.recording = Some(false);
    }

    /// Writes the metrics so far.
    ///
    /// # Errors
    ///
    /// `out` fails.
    pub fn write(&mut self, out: &mut dyn Write) -> Result<(), AnalyzeError> {
        let names = Names::of_rows(self.locks.clone(), &self.stacks);
        let is_last = self.events.recording == Some(false);
        let fill = if is_last { Fill::All } else { Fill::Half };
        let until_ns = if is_last { i64::MAX } else { self.last_ns.saturating_sub(NAMING_NS) };
        self.series.add(self.sums.tally.take_named(&names, until_ns), fill);
        text::write(&self.series, &self.events, Syntax::Prometheus, out)
    }
}
