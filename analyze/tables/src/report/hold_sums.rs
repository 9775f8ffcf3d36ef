//! The rows of the report, and the sums of a row, to which holds are added one by one.

use polars::prelude::{DataType, Expr, col, lit};

use crate::{
    frame::sums,
    key::{By, RowKey, Subject},
};
use intervals::{
    input::{Input, names::Names, selection::Selection},
    items::{Hold, HoldState, Outcome, Wait},
};

/// The rows of one trace, and the holds that count in them.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub(super) names: &'a Names,
    pub(super) selection: &'a Selection,
    by: By,
}

impl<'a> Rows<'a> {
    pub(super) fn new(input: &'a Input<'_>, by: By) -> Self {
        Self { names: &input.names, selection: &input.selection, by }
    }

    #[inline]
    pub(super) fn key(&self, subject: impl Into<Subject>) -> RowKey {
        RowKey::of(subject, self.by, self.names)
    }

    /// Returns the row that a hold is credited to, if it is selected.
    pub(super) fn of_credited(&self, hold: &Hold) -> Option<RowKey> {
        (self.selection.selects_hold(hold) && hold.is_credited()).then(|| self.key(hold))
    }
}

/// Returns an expression that is 1 in a row without an acquisition.
pub(super) fn empty() -> Expr {
    col("count").eq(lit(0)).cast(DataType::Int64)
}

/// Returns an expression that is more than 0 in a row whose holds are measured. A row without an acquisition
/// has none, if they would be.
pub(super) fn held() -> Expr {
    col("measured") + empty() * col("measurable")
}

sums! {
    /// The sums of one row.
    pub struct HoldSums {
        max_ns: Max,
        total_ns: Sum,
        wait_max_ns: Max,
        wait_total_ns: Sum,
        /// Acquisitions.
        count: Sum,
        /// Acquisitions in holds whose end was seen.
        measured: Sum,
        /// Holds whose wait is known, even if it is 0.
        waits_known: Sum,
        cnt_hold: Sum,
        cnt_lock: Sum,
        wait_caused_ns: Sum,
        holds_contended: Sum,
        gap_ns: Sum,
        /// Holds with a known gap, the part of the wait that is charged to no hold, even if it is 0.
        gaps_known: Sum,
        owner_changes: Sum,
        max_waiters: Max,
        /// Waits that ended without the lock.
        abandoned: Sum,
        abandoned_wait_ns: Sum,
        /// Attempts that found the lock taken and did not wait.
        try_failed: Sum,
        /// Time in which tasks tried again and again.
        polled_ns: Sum,
        /// Holds and waits that were open at the end, and their times until then.
        open_holds: Sum,
        open_hold_ns: Sum,
        open_waits: Sum,
        open_wait_ns: Sum,
        /// 1 if one of these waits is part of a deadlock.
        deadlocked: Max,
        /// Attempts and open holds without an acquisition in the row, if the lengths of such holds are
        /// recorded.
        measurable: Sum,
        /// Holds and waits that events lost in their course keep out of all other sums.
        cut_by_loss: Sum,
        /// Waits that the source divides into spinning, sleep and run queue, and their length.
        parted: Sum,
        parted_wait_ns: Sum,
        parted_blocked_ns: Sum,
        parted_runq_ns: Sum,
    }
}

impl HoldSums {
    /// Adds a hold whose end was not seen.
    pub(super) fn add_unfinished(&mut self, hold: &Hold) {
        match hold.state {
            HoldState::OpenAtEnd => {
                self.open_holds += 1;
                self.measurable += 1;
                let ns = hold.end_ns.saturating_sub(hold.start_ns);
                self.open_hold_ns = self.open_hold_ns.saturating_add(ns);
            }
            HoldState::CutByLoss => self.cut_by_loss += 1,
            _ => {}
        }
    }

    /// Adds a wait that did not end with the lock. All others are in the sums of the hold that they led to.
    pub fn add_wait(&mut self, wait: &Wait) {
        match wait.outcome {
            Outcome::Acquired => {}
            Outcome::Abandoned(_) => {
                self.abandoned += 1;
                self.abandoned_wait_ns = self.abandoned_wait_ns.saturating_add(wait.wait_ns);
            }
            Outcome::OpenAtEnd => {
                self.open_waits += 1;
                self.open_wait_ns = self.open_wait_ns.saturating_add(wait.wait_ns);
            }
            Outcome::CutByLoss => self.cut_by_loss += 1,
        }
    }

    /// Adds plain holds.
    pub fn add_plain(&mut self, plain: &PlainSums) {
        self.max_ns = self.max_ns.max(plain.max_ns);
        self.total_ns = self.total_ns.saturating_add(plain.total_ns);
        self.owner_changes += plain.owner_changes;
        // They count in all of these, most with 0.
        for counted in [&mut self.count, &mut self.measured, &mut self.waits_known, &mut self.gaps_known] {
            *counted += plain.count;
        }
    }

    /// Adds a hold. Most holds keep no task waiting, so the common path is short.
    #[inline]
    pub fn add(&mut self, hold: &Hold) {
        let hold_ns = hold.end_ns.saturating_sub(hold.start_ns);
        self.max_ns = self.max_ns.max(hold_ns);
        self.total_ns = self.total_ns.saturating_add(hold_ns);
        self.count += hold.acquisitions;
        if hold.state == HoldState::Complete {
            self.measured += hold.acquisitions;
        }
        if let Some(wait_ns) = hold.wait_ns {
            self.waits_known += 1;
            self.wait_max_ns = self.wait_max_ns.max(wait_ns);
            self.wait_total_ns = self.wait_total_ns.saturating_add(wait_ns);
        }
        if let Some(gap_ns) = hold.gap_ns {
            self.gaps_known += 1;
            self.gap_ns = self.gap_ns.saturating_add(gap_ns);
        }
        self.cnt_lock += i64::from(hold.contended);
        if let (true, Some(wait_ns), Some(blocked_ns), Some(runq_ns)) =
            (hold.contended, hold.wait_ns, hold.blocked_ns, hold.runq_ns)
        {
            self.parted += 1;
            self.parted_wait_ns = self.parted_wait_ns.saturating_add(wait_ns);
            self.parted_blocked_ns = self.parted_blocked_ns.saturating_add(blocked_ns);
            self.parted_runq_ns = self.parted_runq_ns.saturating_add(runq_ns);
        }
        self.owner_changes += i64::from(hold.owner_changed);
        // A hold that no task waited for is charged nothing.
        if hold.waits_begun > 0 || hold.max_waiters > 0 || hold.wait_caused_ns != 0 {
            self.cnt_hold += hold.waits_begun;
            self.holds_contended += i64::from(hold.waits_begun > 0);
            self.wait_caused_ns = self.wait_caused_ns.saturating_add(hold.wait_caused_ns);
            self.max_waiters = self.max_waiters.max(hold.max_waiters);
        }
    }
}

/// The sums of [plain](Hold::is_plain) holds, from which their part of [`HoldSums`] follows. These sums
/// are small: the sums of many rows stay in a processor's cache.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlainSums {
    /// Holds, of one acquisition each.
    pub count: i64,
    pub total_ns: i64,
    max_ns: i64,
    owner_changes: i64,
}

impl PlainSums {
    /// Adds a plain hold.
    #[inline]
    pub fn add(&mut self, hold: &Hold) {
        let ns = hold.end_ns.saturating_sub(hold.start_ns);
        self.count += 1;
        self.total_ns = self.total_ns.saturating_add(ns);
        self.max_ns = self.max_ns.max(ns);
        self.owner_changes += i64::from(hold.owner_changed);
    }
}

#[cfg(test)]
mod tests {
    use proptest::{prelude::*, test_runner::Config};
    use trace_format::{Event, EventKind, LockId, TaskId};

    use super::*;
    use crate::{frame::Sums as _, testing};
    use intervals::{
        engine::{Engine, Rules, histories},
        testing::Intervals,
    };

    fn run(events: &[Event]) -> Intervals {
        let (info, locks) = histories::context();
        let (mut engine, mut found) = (Engine::new(Rules::new(&info, &locks)), Intervals::default());
        events.iter().for_each(|event| engine.push(event, &mut found));
        engine.finish(1000, &mut found);
        found
    }

    /// Adds credited holds, the plain ones apart.
    fn sums_of(found: &Intervals) -> HoldSums {
        let (mut sums, mut plain) = (HoldSums::default(), PlainSums::default());
        for hold in found.holds.iter().filter(|hold| hold.is_credited()) {
            if hold.is_plain() {
                plain.add(hold);
            } else {
                sums.add(hold);
            }
        }
        sums.add_plain(&plain);
        sums
    }

    /// A barging owner, as in most traces of contended mutexes: it takes the lock again and again while
    /// others wait.
    #[test]
    fn holds_of_a_barging_owner_pay_for_all_who_wait() {
        let event = |ts_ns, kind, task, wait_ns| Event {
            lock: Some(LockId(0)),
            task: Some(TaskId(task)),
            wait_ns,
            ..Event::new(ts_ns, kind, 0)
        };
        let mut events = vec![
            event(10, EventKind::Acquire, 1, Some(0)),
            event(20, EventKind::Wait, 2, None),
            event(30, EventKind::Wait, 3, None),
            event(40, EventKind::Release, 1, None),
        ];
        for start_ns in [50, 60, 70] {
            events.push(event(start_ns, EventKind::Acquire, 1, Some(0)));
            events.push(event(start_ns + 4, EventKind::Release, 1, None));
        }
        events.push(event(80, EventKind::Acquire, 2, Some(60)));
        let sums = sums_of(&run(&events));
        assert_eq!((sums.count, sums.total_ns, sums.max_ns), (4, 42, 30));
        // From 20 to 40 by the first hold, and 4 ns of two tasks by each of the others.
        assert_eq!((sums.wait_caused_ns, sums.max_waiters, sums.cnt_hold), (20 + 10 + 3 * 8, 2, 2));
    }

    proptest! {
        #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(testing::cases(2000)) })]

        #[test]
        fn the_sums_of_holds_follow_from_those_of_plain_ones_and_the_rest(
            events in prop_oneof![histories::history(), histories::orderly_history()],
        ) {
            let found = run(&events);
            let mut all = HoldSums::default();
            found.holds.iter().filter(|hold| hold.is_credited()).for_each(|hold| all.add(hold));
            let sums = sums_of(&found);
            for (field, (name, _)) in HoldSums::FIELDS.iter().enumerate() {
                prop_assert_eq!(sums.get(field), all.get(field), "{}", name);
            }
        }
    }
}
