//! The cells of one reader: intervals enter, each adds its parts to the periods of its key; the sums of each key leave.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use trace_format::LockId;

use crate::{
    engine::{Hold, HoldState, Outcome, Rules, Sink, Wait},
    input::{Input, trust::TrustCounter},
    tables::{
        by_row::ByRow,
        frame::{Sums as _, sums},
        key::{self, By, RowKey},
        spans::{LastPeriod, Periods},
    },
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
    /// The period of the last interval, with its sums that are not in `cells` yet: most intervals find their cell without hashing.
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
pub(crate) struct Filling<'a> {
    input: &'a Input<'a>,
    rules: Arc<Rules>,
    by: By,
    /// The start and the end of this trace.
    window: (i64, i64),
    periods: LastPeriod,
    last_period: i64,
    pub(super) keys: ByRow<KeyCells>,
    pub(super) trust: TrustCounter,
}

impl<'a> Filling<'a> {
    /// Fills periods of this length, the last of which has this number. `window` is the start and the end of the trace.
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
            keys: ByRow::new(input.names.locks().len()),
            trust: TrustCounter::default(),
        }
    }
}

impl Filling<'_> {
    fn key(&self, subject: key::Subject) -> RowKey {
        RowKey::of(subject, self.by, &self.input.names)
    }

    /// Adds the parts of an interval to the periods of `key`, and `one` to the period of its start.
    fn add(
        &mut self,
        (lock, key): (LockId, RowKey),
        (start_ns, end_ns): (i64, i64),
        of_time: impl Fn(i64) -> CellSums,
        one: CellSums,
    ) {
        let measured = i64::from(self.rules.measures_holds(lock));
        let (from_ns, to_ns) = self.window;
        let gathered = self.keys.of(key);
        let periods = &mut self.periods;
        let (part_start_ns, part_end_ns) = (start_ns.max(from_ns), end_ns.min(to_ns));
        if (from_ns..=to_ns).contains(&start_ns) {
            // An interval that starts with the last nanosecond belongs to the last period.
            let number = periods.number(start_ns).min(self.last_period);
            gathered.sums.measured |= measured;
            let cell = gathered.cell(number);
            cell.merge(&one);
            if let Some(ns) = periods.inside(part_start_ns, part_end_ns) {
                return cell.merge(&of_time(ns));
            }
        }
        for (number, ns) in periods.parts(part_start_ns, part_end_ns) {
            gathered.cell(number).merge(&of_time(ns));
            gathered.sums.measured |= measured;
        }
    }
}

impl Sink for Filling<'_> {
    fn hold(&mut self, hold: &Hold) {
        if !self.input.selection.selects_hold_any_time(hold) || hold.end_ns < self.window.0 {
            return;
        }
        self.trust.hold(hold);
        let key = self.key(hold.into());
        match hold.state {
            HoldState::Complete | HoldState::AcquisitionOnly | HoldState::OpenAtEnd => {
                let of_time = |hold_ns| CellSums { hold_ns, ..CellSums::default() };
                let one = CellSums { holds: 1, ..CellSums::default() };
                self.add((hold.lock, key), (hold.start_ns, hold.end_ns), of_time, one);
            }
            HoldState::CutByLoss => self.keys.of(key).sums.cut_by_loss += 1,
            HoldState::ReleaseUnseen | HoldState::Backwards => {}
        }
    }

    fn wait(&mut self, wait: &Wait) {
        if !self.input.selection.selects_wait_any_time(wait) || wait.end_ns < self.window.0 {
            return;
        }
        self.trust.wait(wait);
        let key = self.key(wait.into());
        if wait.outcome == Outcome::CutByLoss {
            self.keys.of(key).sums.cut_by_loss += 1;
        } else {
            let of_time = |wait_ns| CellSums { wait_ns, ..CellSums::default() };
            let one = CellSums { waits: 1, ..CellSums::default() };
            let times = (wait.start_ns, wait.start_ns.saturating_add(wait.wait_ns));
            self.add((wait.lock, key), times, of_time, one);
        }
    }
}
