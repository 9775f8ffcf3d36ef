//! The reading of traces for a report: intervals are added to the sums of their rows, in one sink per
//! processor.

use super::{
    hold_sums::{HoldSums, PlainSums, Rows},
    percentiles::{FirstPass, Percentiles},
    states::{self, HeldByRow, HoldStates, StatesByRow},
};
use crate::{
    cells::Cells,
    frame::Lines,
    gather::Gather,
    held,
    key::{By, RowKey, Subject},
    options::TableOptions,
    row_ids::RowIds,
};
use intervals::{
    engine::{Rules, deadlock::OpenWait},
    input::trust::{Trust, TrustCounter},
    input::{Input, ReadOutcome},
    items::{Columns, Hold, HoldState, Item, Needs, Outcome, Sink},
};
use output::error::AnalyzeError;

/// The way in which every trace is read.
#[derive(Clone, Copy)]
pub(super) struct Reading {
    pub(super) by: By,
    /// Whether the parts of waits are read, for the columns `spin`, `blocked` and `runq`.
    pub(super) has_parts: bool,
    pub(super) has_percentiles: bool,
    pub(super) allow_loss: bool,
}

impl Reading {
    pub(super) fn new(options: &TableOptions<By>, has_percentiles: bool) -> Self {
        let (by, allow_loss) = (options.by, options.allow_loss);
        Self { by, has_parts: has_percentiles, has_percentiles, allow_loss }
    }
}

/// Gathers the rows of all traces.
pub struct Found<'a> {
    pub(super) reading: Reading,
    pub(super) inputs: &'a [Input<'a>],
    pub(super) ids: RowIds,
    pub(super) sums: Lines<HoldSums, 1>,
    pub(super) percentiles: Percentiles,
    trusts: Vec<Trust>,
}

impl<'a> Found<'a> {
    pub(super) fn new(reading: Reading, inputs: &'a [Input<'a>]) -> Self {
        let (ids, sums) = (RowIds::new(inputs.len()), Lines::new(["row"]));
        Self { reading, inputs, ids, sums, percentiles: Percentiles::default(), trusts: Vec::new() }
    }

    pub(super) fn trust(&self) -> Trust {
        Trust::merged(self.trusts.clone())
    }

    /// Returns a receiver of the states of the holders in the input with this index, for a reading that
    /// follows the causes of waits anyway.
    pub fn states(&self, at: usize) -> HoldStates<'a, RowKey> {
        let rows = Rows::new(&self.inputs[at], self.reading.by);
        HoldStates::new(move |hold: &Hold| rows.of_credited(hold))
    }

    /// Reads every trace again for the states of the holders.
    pub(super) fn states_by_row(&self) -> Result<Vec<StatesByRow>, AnalyzeError> {
        self.inputs.iter().enumerate().map(|(at, input)| states::read(input, self.states(at))).collect()
    }

    /// Reads every trace again for the states of tasks in their own holds.
    pub(super) fn read_held(&self) -> Result<Vec<HeldByRow>, AnalyzeError> {
        let read = |input| held::read(input, |hold| Rows::new(input, self.reading.by).of_credited(hold));
        self.inputs.iter().map(read).collect()
    }
}

impl<'a> Gather for Found<'a> {
    type Sink = Summing<'a>;

    fn sink(&self, at: usize) -> Summing<'a> {
        let Reading { by, has_parts, has_percentiles, .. } = self.reading;
        let rows = Rows::new(&self.inputs[at], by);
        Summing {
            rows,
            rules: self.inputs[at].rules(),
            found: Cells::new(by.ids(), rows.names),
            columns: if has_parts { Columns::States } else { Columns::Times },
            takes_all: rows.selection.selects_all_holds() && !has_percentiles,
            times: has_percentiles.then(FirstPass::default),
            trust: TrustCounter::default(),
        }
    }

    fn add(&mut self, at: usize, sinks: Vec<Summing<'a>>, outcome: &ReadOutcome) -> Result<(), AnalyzeError> {
        let mut counter = TrustCounter::default();
        for Summing { found, times, trust, .. } in sinks {
            let mut rows = Vec::new();
            for (key, RowSums { plain, mut sums }) in found.into_values() {
                let row = self.ids.id(at, key, self.inputs);
                sums.add_plain(&plain);
                self.sums.push([row], &sums);
                rows.push(row);
            }
            times.into_iter().for_each(|times| self.percentiles.add(at, &rows, times));
            counter.merge(trust);
        }
        let wants =
            outcome.deadlocks.iter().flat_map(|deadlock| &deadlock.members).map(|member| member.wants);
        for OpenWait { lock, task, stack, .. } in wants {
            let key = RowKey::of((lock, task, stack), self.reading.by, &self.inputs[at].names);
            let row = self.ids.id(at, key, self.inputs);
            self.sums.push([row], &HoldSums { deadlocked: 1, ..HoldSums::default() });
        }
        self.trusts.push(self.inputs[at].trust(counter, outcome, self.reading.allow_loss)?);
        Ok(())
    }
}

/// Adds credited holds to the sums of their rows, and the others to the trust counter.
pub struct Summing<'a> {
    rows: Rows<'a>,
    /// Which holds are recorded.
    rules: Rules,
    found: Cells<RowSums>,
    columns: Columns,
    /// Whether all holds are selected, and nothing else is made of a plain hold than the sums of its row.
    takes_all: bool,
    times: Option<FirstPass>,
    trust: TrustCounter,
}

#[derive(Default)]
struct RowSums {
    /// The plain holds, which are not in `sums`.
    plain: PlainSums,
    sums: HoldSums,
}

impl Summing<'_> {
    fn hold(&mut self, hold: &Hold) {
        if !self.rows.selection.selects_hold(hold) {
            return;
        }
        self.trust.hold(hold);
        let is_credited = hold.is_credited();
        if !is_credited && !matches!(hold.state, HoldState::CutByLoss | HoldState::OpenAtEnd) {
            return;
        }
        let row = self.row(hold);
        let RowSums { plain, sums } = self.found.at(row);
        match is_credited {
            true if hold.is_plain() => plain.add(hold),
            true => sums.add(hold),
            false => return sums.add_unfinished(hold),
        }
        self.times.iter_mut().for_each(|times| times.add(row, hold));
    }

    /// Returns the index of the row of an interval.
    #[inline]
    fn row(&mut self, subject: impl Into<Subject>) -> u32 {
        let rows = self.rows;
        self.found.index(subject, |subject| rows.key(subject))
    }

    #[inline]
    fn sums(&mut self, subject: impl Into<Subject>) -> &mut RowSums {
        let at = self.row(subject);
        self.found.at(at)
    }
}

impl Sink for Summing<'_> {
    #[inline]
    fn needs(&self) -> Needs {
        Needs::columns(self.columns)
    }

    #[inline]
    fn push(&mut self, item: Item<'_>) {
        match item {
            Item::Hold(hold) if self.takes_all && hold.is_plain() => self.sums(hold).plain.add(hold),
            Item::Hold(hold) => self.hold(hold),
            Item::Wait(wait) if self.rows.selection.selects_wait(wait) => {
                self.trust.wait(wait);
                if wait.outcome != Outcome::Acquired {
                    let measured = self.rules.measures(wait.lock, wait.mode);
                    let sums = &mut self.sums(wait).sums;
                    sums.add_wait(wait);
                    sums.measurable += i64::from(measured && wait.outcome != Outcome::CutByLoss);
                }
            }
            Item::Polled(polling) if self.rows.selection.selects_polling(polling) => {
                let sums = &mut self.sums(polling).sums;
                let ns = polling.end_ns.saturating_sub(polling.start_ns);
                sums.polled_ns = sums.polled_ns.saturating_add(ns);
            }
            Item::TryFailed(failure) if self.rows.selection.selects_try_failure(failure) => {
                let measured = self.rules.measures(failure.lock, failure.mode);
                let sums = &mut self.sums(failure).sums;
                sums.try_failed += 1;
                sums.measurable += i64::from(measured);
            }
            _ => {}
        }
    }
}
