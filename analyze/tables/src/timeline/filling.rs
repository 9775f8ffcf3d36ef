//! The cells of one reader: each interval adds its parts to the periods of its key.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use trace_format::LockId;

use crate::{
    cells::Cells,
    frame::{Sums as _, sums},
    key::{self, By, RowKey},
    spans::{LastPeriod, Periods},
};
use intervals::{
    engine::Rules,
    input::Input,
    input::trust::TrustCounter,
    items::{Columns, Hold, HoldState, Needs, Outcome, Sink, Wait},
};

sums! {
    /// The sums of a key in one period.
    #[derive(PartialEq, Eq)]
    pub(super) struct CellSums {
        wait_ns: Sum,
        hold_ns: Sum,
        waits: Sum,
        holds: Sum,
    }
}

sums! {
    /// The sums of a key that are in no cell.
    pub(super) struct KeySums {
        cut_by_loss: Sum,
        /// 1 if holds of any of the locks in its cells are recorded.
        measured: Max,
    }
}

#[derive(Debug, Default)]
pub(super) struct KeyCells {
    /// The period of the last interval, with its sums that are not in `cells` yet: most intervals find their
    /// cell without hashing.
    last: (i64, CellSums),
    /// By period.
    cells: FxHashMap<i64, CellSums>,
    pub(super) sums: KeySums,
}

impl KeyCells {
    /// Returns sums that count in the cell of a period.
    #[inline]
    fn cell(&mut self, period: i64) -> &mut CellSums {
        if self.last.0 != period {
            self.end_last(period);
        }
        &mut self.last.1
    }

    /// Adds the sums of the last period to its cell, and goes on with another period.
    fn end_last(&mut self, next: i64) {
        let (period, sums) = std::mem::replace(&mut self.last, (next, CellSums::default()));
        if sums != CellSums::default() {
            self.cells.entry(period).or_default().merge(&sums);
        }
    }

    /// Returns the sums by period.
    pub(super) fn finish(mut self) -> FxHashMap<i64, CellSums> {
        self.end_last(0);
        self.cells
    }
}

/// Adds intervals to the cells that they span.
pub struct Filling<'a> {
    input: &'a Input<'a>,
    rules: Arc<Rules>,
    by: By,
    /// The start and the end of this trace.
    window: (i64, i64),
    periods: LastPeriod,
    last_period: i64,
    pub(super) keys: Cells<KeyCells>,
    pub(super) trust: TrustCounter,
}

impl<'a> Filling<'a> {
    /// Fills periods of this length, the last of which has this number. `window` is the start and the end of
    /// the trace.
    pub(super) fn new(
        input: &'a Input<'_>,
        rules: Arc<Rules>,
        by: By,
        window: (i64, i64),
        (period_ns, last_period): (i64, i64),
    ) -> Self {
        Self {
            input,
            rules,
            by,
            window,
            last_period,
            periods: LastPeriod::new(Periods { origin_ns: window.0, length_ns: period_ns }),
            keys: Cells::new(by.ids(), &input.names),
            trust: TrustCounter::default(),
        }
    }
}

impl Filling<'_> {
    /// Returns the index of the row of an interval.
    #[inline]
    fn row(&mut self, subject: impl Into<key::Subject>) -> u32 {
        let (by, names) = (self.by, &self.input.names);
        self.keys.index(subject, |subject| RowKey::of(subject, by, names))
    }

    /// Adds the parts of an interval to the periods of a row, and `one` to the period of its start.
    fn add(
        &mut self,
        (lock, row): (LockId, u32),
        (start_ns, end_ns): (i64, i64),
        add_time: impl Fn(&mut CellSums, i64),
        add_one: impl Fn(&mut CellSums),
    ) {
        let (from_ns, to_ns) = self.window;
        let gathered = self.keys.at(row);
        let (periods, rules) = (&mut self.periods, &self.rules);
        let measure = |sums: &mut KeySums| {
            if sums.measured == 0 {
                sums.measured = i64::from(rules.measures_holds(lock));
            }
        };
        let (part_start_ns, part_end_ns) = (start_ns.max(from_ns), end_ns.min(to_ns));
        if (from_ns..=to_ns).contains(&start_ns) {
            // An interval that starts with the last nanosecond belongs to the last period.
            let number = periods.number(start_ns).min(self.last_period);
            measure(&mut gathered.sums);
            let cell = gathered.cell(number);
            add_one(cell);
            if let Some(ns) = periods.inside(part_start_ns, part_end_ns) {
                return add_time(cell, ns);
            }
        }
        for (number, ns) in periods.parts(part_start_ns, part_end_ns) {
            add_time(gathered.cell(number), ns);
            measure(&mut gathered.sums);
        }
    }

    #[inline]
    fn add_hold(&mut self, row: u32, hold: &Hold) {
        let add_time = |cell: &mut CellSums, ns| cell.hold_ns = cell.hold_ns.saturating_add(ns);
        let add_one = |cell: &mut CellSums| cell.holds += 1;
        self.add((hold.lock, row), (hold.start_ns, hold.end_ns), add_time, add_one);
    }
}

impl Sink for Filling<'_> {
    fn needs(&self) -> Needs {
        Needs::columns(Columns::Times)
    }

    fn hold(&mut self, hold: &Hold) {
        if !self.input.selection.selects_hold_any_time(hold) || hold.end_ns < self.window.0 {
            return;
        }
        self.trust.hold(hold);
        match hold.state {
            HoldState::Complete | HoldState::AcquisitionOnly | HoldState::OpenAtEnd => {
                let row = self.row(hold);
                self.add_hold(row, hold);
            }
            HoldState::CutByLoss => {
                let row = self.row(hold);
                self.keys.at(row).sums.cut_by_loss += 1;
            }
            HoldState::ReleaseUnseen | HoldState::Backwards => {}
        }
    }

    fn wait(&mut self, wait: &Wait) {
        if !self.input.selection.selects_wait_any_time(wait) || wait.end_ns < self.window.0 {
            return;
        }
        self.trust.wait(wait);
        let row = self.row(wait);
        if wait.outcome == Outcome::CutByLoss {
            self.keys.at(row).sums.cut_by_loss += 1;
        } else {
            let add_time = |cell: &mut CellSums, ns| cell.wait_ns = cell.wait_ns.saturating_add(ns);
            let add_one = |cell: &mut CellSums| cell.waits += 1;
            let times = (wait.start_ns, wait.start_ns.saturating_add(wait.wait_ns));
            self.add((wait.lock, row), times, add_time, add_one);
        }
    }
}
