//! The passes over one trace that a report needs: intervals enter sinks, one per processor; frames of sums leave.

use super::{
    columns::Group,
    hold_sums::{HoldSums, PlainSums},
    options::Options,
    percentiles::{FirstPass, Percentiles, Places, SecondPass, wanted_of},
};
use crate::{
    by_pair::ByPair,
    by_row::ByRow,
    frame::Lines,
    gather::Gather,
    key::{By, RowKey, Subject},
    row_ids::RowIds,
};
use intervals::{
    input::names::Names,
    input::selection::Selection,
    input::trust::{Trust, TrustCounter},
    input::{Input, ReadOutcome},
    items::{Columns, Hold, HoldState, Item, Needs, Outcome, Sink},
};
use output::error::AnalyzeError;

/// The columns on request that are gathered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extra {
    /// The parts of waits by what they were spent with: the columns `spin`, `blocked` and `runq`.
    Spent,
    /// All of them.
    All,
}

/// The way in which every trace is read.
#[derive(Clone, Copy)]
pub(super) struct Reading {
    by: By,
    /// The columns on request of holds and waits.
    extra: Option<Extra>,
    pub(super) readers: usize,
    allow_loss: bool,
}

/// Gathers the lines of all traces.
pub struct Found<'a> {
    pub(super) reading: Reading,
    pub(super) inputs: &'a [Input<'a>],
    pub(super) ids: RowIds,
    pub(super) sums: Lines<HoldSums, 1>,
    pub(super) percentiles: Option<Percentiles>,
    trusts: Vec<Trust>,
}

impl<'a> Found<'a> {
    pub(super) fn new(reading: Reading, inputs: &'a [Input<'a>]) -> Self {
        let (ids, sums) = (RowIds::new(inputs.len()), Lines::new(["row"]));
        let percentiles = reading.extra.map(|_| Percentiles::default());
        Self { reading, inputs, ids, sums, percentiles, trusts: Vec::new() }
    }

    pub(super) fn trust(&self) -> Trust {
        Trust::merged(self.trusts.clone())
    }

    /// Rows by lock are found by the id of the lock alone.
    fn by_pair(by: By, names: &Names) -> Option<ByPair> {
        (by != By::Lock && by.is_of_lock_and_stack()).then(|| ByPair::new(names))
    }
}

impl<'a> Gather for Found<'a> {
    type Sink = Summing<'a>;

    fn sink(&self, at: usize) -> Summing<'a> {
        let rows = Rows::new(&self.inputs[at], self.reading);
        let takes_all = rows.selection.selects_all_holds() && self.reading.extra.is_none();
        Summing {
            rows,
            trace: at,
            found: ByRow::new(self.inputs[at].names.locks().len()),
            by_pair: Self::by_pair(self.reading.by, &self.inputs[at].names),
            extra: self.reading.extra,
            takes_all,
            trust: TrustCounter::default(),
        }
    }

    fn add(&mut self, at: usize, sinks: Vec<Summing<'a>>, outcome: &ReadOutcome) -> Result<(), AnalyzeError> {
        let mut counter = TrustCounter::default();
        for Summing { found, trust, .. } in sinks {
            for (key, OfRow { plain, mut sums, times }) in found.into_values() {
                let row = self.ids.id(at, key, self.inputs);
                sums.add_plain(&plain);
                self.sums.push([row], &sums);
                if let (Some(all), Some(times)) = (&mut self.percentiles, times) {
                    all.add_first(row, *times);
                }
            }
            counter.merge(trust);
        }
        self.trusts.push(self.inputs[at].trust(counter, outcome, self.reading.allow_loss)?);
        Ok(())
    }
}

impl Reading {
    pub(super) fn new(options: &Options, readers: usize) -> Self {
        let Options { by, allow_loss, .. } = *options;
        let extra = options.asks_for(Group::Extra).then_some(Extra::All);
        Self { by, extra, readers, allow_loss }
    }

    /// Adds up what waits were spent with, which takes no second pass, and no other columns on request.
    pub(super) fn with_spent(self) -> Self {
        Self { extra: Some(Extra::Spent), ..self }
    }

    /// Reads every trace again, for the times around each percentile.
    pub(super) fn second_pass(
        self,
        inputs: &[Input<'_>],
        ids: &RowIds,
        all: &mut Percentiles,
        places: &Places,
    ) -> Result<(), AnalyzeError> {
        for (trace, input) in inputs.iter().enumerate() {
            let ids = ids.of_trace(trace);
            let wanted = wanted_of(places, ids);
            let sink = || Again { rows: Rows::new(input, self), times: SecondPass::new(&wanted) };
            let (sinks, ..) = input.run_apart(self.readers, sink)?;
            sinks.into_iter().for_each(|sink| all.add_second(sink.times, ids));
        }
        Ok(())
    }
}

/// The rows of one trace, and the holds that count in them.
pub struct Rows<'a> {
    names: &'a Names,
    selection: &'a Selection,
    by: By,
}

impl<'a> Rows<'a> {
    pub(super) fn new(input: &'a Input<'_>, reading: Reading) -> Self {
        Self { names: &input.names, selection: &input.selection, by: reading.by }
    }

    #[inline]
    pub(super) fn selects(&self, hold: &Hold) -> bool {
        self.selection.selects_hold(hold)
    }

    #[inline]
    pub(super) fn key(&self, subject: impl Into<Subject>) -> RowKey {
        RowKey::of(subject, self.by, self.names)
    }
}

/// Adds credited holds to the sums of their rows, and the others to the trust counter.
pub struct Summing<'a> {
    rows: Rows<'a>,
    /// Its index.
    trace: usize,
    found: ByRow<OfRow>,
    /// Indices of rows, if lock and stack decide which row an interval has.
    by_pair: Option<ByPair>,
    extra: Option<Extra>,
    /// Whether all holds are selected, and nothing else is made of a plain hold than the sums of its row.
    takes_all: bool,
    trust: TrustCounter,
}

/// The sums of one row.
#[derive(Default)]
struct OfRow {
    /// The plain holds, which are not in `sums`.
    plain: PlainSums,
    sums: HoldSums,
    times: Option<Box<FirstPass>>,
}

impl Summing<'_> {
    fn hold(&mut self, hold: &Hold) {
        if !self.rows.selects(hold) {
            return;
        }
        self.trust.hold(hold);
        let is_credited = hold.is_credited();
        if !is_credited && !matches!(hold.state, HoldState::CutByLoss | HoldState::OpenAtEnd) {
            return;
        }
        let (extra, trace) = (self.extra, self.trace);
        let OfRow { plain, sums, times } = self.row(hold);
        if hold.is_plain() {
            plain.add(hold);
            if extra != Some(Extra::All) {
                return;
            }
        } else if is_credited {
            sums.add(hold);
        } else {
            return sums.add_unfinished(hold);
        }
        match extra {
            None => {}
            Some(Extra::Spent) => times.get_or_insert_default().add_spent(hold),
            Some(Extra::All) => times.get_or_insert_default().add(trace, hold),
        }
    }

    /// Returns the row of an interval.
    #[inline]
    fn row(&mut self, subject: impl Into<Subject>) -> &mut OfRow {
        if self.rows.by == By::Lock {
            return self.found.of(RowKey::Lock(subject.into().lock));
        }
        let subject = subject.into();
        let known = self.by_pair.as_ref().and_then(|by_pair| by_pair.get(subject.lock, subject.stack));
        let at = known.unwrap_or_else(|| self.index(subject));
        self.found.at(at)
    }

    fn index(&mut self, subject: Subject) -> u32 {
        let at = self.found.index(self.rows.key(subject));
        if let Some(by_pair) = &mut self.by_pair {
            by_pair.set(subject.lock, subject.stack, at);
        }
        at
    }
}

impl Sink for Summing<'_> {
    #[inline]
    fn needs(&self) -> Needs {
        Needs::columns(if self.extra.is_some() { Columns::States } else { Columns::Times })
    }

    #[inline]
    fn push(&mut self, item: Item<'_>) {
        match item {
            Item::Hold(hold) if self.takes_all && hold.is_plain() => self.row(hold).plain.add(hold),
            Item::Hold(hold) => self.hold(hold),
            Item::Wait(wait) if self.rows.selection.selects_wait(wait) => {
                self.trust.wait(wait);
                if wait.outcome != Outcome::Acquired {
                    self.row(wait).sums.add_wait(wait);
                }
            }
            Item::TryFailed(failure) if self.rows.selection.selects_try_failure(failure) => {
                self.row(failure).sums.try_failed += 1;
            }
            _ => {}
        }
    }
}

/// Counts the times of the same holds once more.
struct Again<'a> {
    rows: Rows<'a>,
    times: SecondPass<'a>,
}

impl Sink for Again<'_> {
    fn needs(&self) -> Needs {
        Needs::columns(Columns::States)
    }

    fn push(&mut self, item: Item<'_>) {
        if let Item::Hold(hold) = item
            && self.rows.selects(hold)
            && hold.is_credited()
        {
            self.times.add(self.rows.key(hold), hold);
        }
    }
}
