//! The readings of one trace that a report takes: each on all processors, with sums of its own on each, which are put together at the end.
//!
//! Readers number rows as their trace does; what number a row has in the report is asked once per row, when a reader is done.

use rustc_hash::FxHashMap;

use super::{
    By, Options, Pick, Trust, is_credited, key, pick::Picker, spread::Spreads, table::HoldTable, trust::Watch,
};
use crate::{
    error::AnalyzeError,
    intervals::{Hold, HoldState, Outcome, Sink, Wait},
    names::Names,
    parts::Part,
    pass::Detail,
    scope::Chosen,
};

/// How a trace is read.
pub(super) struct Reading {
    by: By,
    /// Whether columns are wanted that take a second reading.
    is_extra: bool,
    /// Which acquisitions count.
    pick: Pick,
    /// How many keys are kept before their sums are set aside, by all readers together.
    chunk_keys: usize,
    readers: usize,
}

/// What the readings of all traces have found, by row.
pub(super) struct Found {
    pub(super) table: HoldTable,
    pub(super) spreads: Option<Spreads>,
    /// What is missing because events were lost.
    pub(super) cut: FxHashMap<i64, u64>,
}

impl Found {
    pub(super) fn new(reading: &Reading) -> Self {
        let spreads = reading.is_extra.then(Spreads::default);
        Self { table: HoldTable::new(reading.chunk_keys), spreads, cut: FxHashMap::default() }
    }
}

impl Reading {
    pub(super) fn of(options: &Options, is_extra: bool, chunk_keys: usize, readers: usize) -> Self {
        let Options { by, pick, .. } = *options;
        // Acquisitions that are counted over all locks are counted by one reader.
        let readers = if pick.is_everything() { readers } else { 1 };
        Self { by, is_extra, pick, chunk_keys, readers }
    }

    /// Adds up what is in the trace of this number; `number` says which row a number of the trace is.
    pub(super) fn sum(
        &self,
        (at, part): (usize, &Part<'_>),
        found: &mut Found,
        mut number: impl FnMut(i64) -> i64,
    ) -> Result<Trust, AnalyzeError> {
        let keys_each = (self.chunk_keys / self.readers.max(1)).max(1);
        let sink = || Summing {
            rows: Rows::of(part, self),
            table: HoldTable::new(keys_each),
            spreads: self.is_extra.then(|| Spreads::of_trace(at)),
            cut: FxHashMap::default(),
            watch: Watch::default(),
        };
        let (sinks, walk, counts) = part.run_apart(self.detail(), self.readers, sink)?;
        let mut watch = Watch::default();
        for sink in sinks {
            let failed = |cause: polars::error::PolarsError| AnalyzeError::Compute(cause.into());
            for (local, sums) in sink.table.finish().map_err(failed)? {
                found.table.add(number(local), &sums);
            }
            if let (Some(all), Some(spreads)) = (&mut found.spreads, sink.spreads) {
                all.absorb(spreads, &mut number);
            }
            for (local, count) in sink.cut {
                *found.cut.entry(number(local)).or_default() += count;
            }
            watch = watch.and(sink.watch);
        }
        Ok(watch.block(part.trace, (&walk, &counts), &part.chosen, &part.names))
    }

    /// Reads a trace again, for what the first reading said must be looked at closely; all rows are known by now.
    pub(super) fn spread(
        &self,
        part: &Part<'_>,
        spreads: &mut Spreads,
        number: impl Fn(i64) -> i64 + Sync,
    ) -> Result<(), AnalyzeError> {
        let wanted = &*spreads;
        let sink = || Spreading { rows: Rows::of(part, self), number: &number, spreads: wanted.wanted() };
        let (sinks, ..) = part.run_apart(self.detail(), self.readers, sink)?;
        let looked_at: Vec<Spreads> = sinks.into_iter().map(|sink| sink.spreads).collect();
        looked_at.into_iter().for_each(|found| spreads.absorb(found, |number| number));
        Ok(())
    }

    fn detail(&self) -> Detail {
        if self.is_extra { Detail::States } else { Detail::Times }
    }
}

/// The rows of one trace, by the numbers that it gives them.
struct Rows<'a> {
    names: &'a Names,
    chosen: &'a Chosen,
    by: By,
    picker: Option<Picker>,
}

impl<'a> Rows<'a> {
    fn of(part: &'a Part<'_>, reading: &Reading) -> Self {
        let picker = Picker::new(reading.pick);
        Self { names: &part.names, chosen: &part.chosen, by: reading.by, picker }
    }

    /// Lets an acquisition of the table count, whenever its hold ends.
    fn acquired(&mut self, hold: &Hold) {
        if let Some(picker) = &mut self.picker
            && self.chosen.wants_any_time(hold)
        {
            picker.acquired(hold, self.names);
        }
    }

    fn wants(&mut self, hold: &Hold) -> bool {
        self.picker.as_mut().is_none_or(|picker| picker.takes(hold)) && self.chosen.wants_hold(hold)
    }

    fn number(&self, subject: impl Into<key::Subject>) -> i64 {
        key::number(subject.into(), self.by, self.names)
    }
}

/// Takes intervals: credited ones to the table, the others to the trust block.
struct Summing<'a> {
    rows: Rows<'a>,
    table: HoldTable,
    spreads: Option<Spreads>,
    /// By row: what is missing from it.
    cut: FxHashMap<i64, u64>,
    watch: Watch,
}

impl Sink for Summing<'_> {
    fn acquired(&mut self, hold: &Hold) {
        self.rows.acquired(hold);
    }

    fn hold(&mut self, hold: &Hold) {
        if !self.rows.wants(hold) {
            return;
        }
        self.watch.hold(hold);
        if is_credited(hold) {
            let number = self.rows.number(hold);
            self.table.push(number, hold);
            if let Some(spreads) = &mut self.spreads {
                spreads.push(number, hold);
            }
        } else if hold.state == HoldState::CutByLoss {
            *self.cut.entry(self.rows.number(hold)).or_default() += 1;
        }
    }

    fn wait(&mut self, wait: &Wait) {
        if self.rows.chosen.wants_wait(wait) {
            self.watch.wait(wait);
            if wait.outcome == Outcome::CutByLoss {
                *self.cut.entry(self.rows.number(wait)).or_default() += 1;
            }
        }
    }
}

/// Takes the same holds once more.
struct Spreading<'a, F> {
    rows: Rows<'a>,
    number: &'a F,
    spreads: Spreads,
}

impl<F: Fn(i64) -> i64> Sink for Spreading<'_, F> {
    fn acquired(&mut self, hold: &Hold) {
        self.rows.acquired(hold);
    }

    fn hold(&mut self, hold: &Hold) {
        if self.rows.wants(hold) && is_credited(hold) {
            self.spreads.push((self.number)(self.rows.number(hold)), hold);
        }
    }

    fn wait(&mut self, _: &Wait) {}
}
