//! The waits that a selection leaves out because they are idle: their number and their time.
//!
//! A trace is read in parts on several threads. A wait may begin in one part and end in a later one, so each
//! part keeps the first rows of each task and lock, whose meaning depends on the parts before. A merge
//! settles them.

use rustc_hash::{FxHashMap, FxHashSet};
use trace_format::{EventKind, EventRow, LockId, TaskId};

use crate::input::{names::purposes::Purpose, selection::Selection};

/// The number and the time of the waits for each lock and purpose.
type Sums = FxHashMap<(LockId, Purpose), (u64, i64)>;

/// The waits that a selection leaves out in a part of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    sums: Sums,
    /// The start of each open wait, and its purpose.
    open: FxHashMap<(LockId, TaskId), (i64, Purpose)>,
    /// The rows whose meaning depends on the part before.
    first: Vec<IdleRow>,
    /// Each lock and task of which the pass knows whether the task waits for the lock.
    known: FxHashSet<(LockId, TaskId)>,
    /// The time of the last loss, across which no wait is known.
    lost_ns: Option<i64>,
    /// The time of the first row.
    from_ns: Option<i64>,
    /// The tasks that wait at the end of the trace.
    waiting: FxHashSet<TaskId>,
}

/// A row that begins or ends such a wait, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IdleRow {
    Begin {
        of: (LockId, TaskId),
        ts_ns: i64,
        purpose: Purpose,
    },
    /// The wait has this purpose if its begin was not seen; `None` if such a wait is not left out.
    End {
        of: (LockId, TaskId),
        ts_ns: i64,
        wait_ns: Option<i64>,
        purpose: Option<Purpose>,
        acquired: bool,
    },
    Lost {
        ts_ns: i64,
    },
}

impl LeftOut {
    /// Adds the next row, which matters only if it is a wait that is left out, its end, or a loss.
    pub fn add(&mut self, row: &impl EventRow, selection: &Selection) {
        let ts_ns = row.ts_ns();
        self.from_ns.get_or_insert(ts_ns);
        if row.kind() == EventKind::Lost {
            return self.add_row(IdleRow::Lost { ts_ns });
        }
        let (Some(lock), Some(task)) = (row.lock(), row.task()) else { return };
        let (of, purpose) = ((lock, task), || selection.left_out(row).map(|(_, purpose)| purpose));
        match row.kind() {
            EventKind::Wait => {
                if let Some(purpose) = purpose() {
                    self.add_row(IdleRow::Begin { of, ts_ns, purpose });
                }
            }
            kind @ (EventKind::Acquire | EventKind::Abandon) => {
                let (wait_ns, purpose) = (row.wait_ns(), purpose());
                // Most acquisitions of other locks end no wait.
                if purpose.is_some() || wait_ns != Some(0) {
                    let acquired = kind == EventKind::Acquire;
                    self.add_row(IdleRow::End { of, ts_ns, wait_ns, purpose, acquired });
                }
            }
            _ => {}
        }
    }

    fn add_row(&mut self, row: IdleRow) {
        match row {
            IdleRow::Lost { ts_ns } => {
                if self.lost_ns.is_none() {
                    self.first.push(row);
                }
                self.end(ts_ns);
                self.lost_ns = Some(ts_ns);
            }
            IdleRow::Begin { of, .. } | IdleRow::End { of, .. }
                if self.lost_ns.is_none() && !self.known.contains(&of) =>
            {
                self.first.push(row);
                if matches!(row, IdleRow::End { .. }) {
                    self.known.insert(of);
                }
            }
            // Further begins of a wait change nothing.
            IdleRow::Begin { of, ts_ns, purpose } => {
                self.open.entry(of).or_insert((ts_ns, purpose));
            }
            IdleRow::End { of, ts_ns, wait_ns, purpose, acquired } => {
                if let Some((start_ns, purpose)) = self.open.remove(&of) {
                    return self.count((of.0, purpose), ts_ns.saturating_sub(start_ns).max(0));
                }
                let (Some(ns), Some(purpose)) = (wait_ns.map(|ns| ns.max(0)), purpose) else { return };
                let begin_ns = ts_ns.saturating_sub(ns);
                if self.lost_ns.is_none() && self.from_ns.is_none_or(|from_ns| begin_ns <= from_ns) {
                    // Rows may be lost in the part before, up to the time of the first row of this one.
                    return self.first.push(row);
                }
                if self.lost_ns.is_none_or(|lost_ns| begin_ns > lost_ns) && (ns > 0 || !acquired) {
                    self.count((of.0, purpose), ns);
                }
            }
        }
    }

    fn count(&mut self, of: (LockId, Purpose), ns: i64) {
        let (waits, wait_ns) = self.sums.entry(of).or_default();
        (*waits, *wait_ns) = (*waits + 1, wait_ns.saturating_add(ns));
    }

    /// Adds the waits of the part that follows.
    pub(super) fn merge(&mut self, later: Self) {
        later.first.into_iter().for_each(|row| self.add_row(row));
        for (of, (waits, wait_ns)) in later.sums {
            let sums = self.sums.entry(of).or_default();
            *sums = (sums.0 + waits, sums.1.saturating_add(wait_ns));
        }
        self.open.extend(later.open);
        self.known.extend(later.known);
        self.lost_ns = later.lost_ns.or(self.lost_ns);
        self.from_ns = self.from_ns.or(later.from_ns);
    }

    /// Ends the waits that are open.
    fn end(&mut self, end_ns: i64) {
        for ((lock, _), (start_ns, purpose)) in std::mem::take(&mut self.open) {
            self.count((lock, purpose), end_ns.saturating_sub(start_ns).max(0));
        }
    }

    /// Ends the waits that are open at the end of a trace that has no other parts.
    pub(super) fn finish(&mut self, end_ns: i64) {
        let mut whole = Self { lost_ns: Some(i64::MIN), ..Self::default() };
        whole.merge(std::mem::take(self));
        self.waiting = whole.open.keys().map(|(_, task)| *task).collect();
        whole.end(end_ns);
        self.sums = whole.sums;
    }

    /// Returns whether a task waits at the end of the trace, once no more rows follow.
    pub fn waits_at_end(&self, task: TaskId) -> bool {
        self.waiting.contains(&task)
    }

    /// Returns the number and the time of the waits for each lock and purpose, once no more follow.
    pub fn sums(&self) -> &Sums {
        &self.sums
    }
}

#[cfg(test)]
mod tests {
    use proptest::{prelude::*, sample::Index, test_runner::Config};
    use trace_format::Event;

    use super::*;
    use crate::{
        Filter,
        engine::{
            histories::{end_of, history},
            model::Model,
        },
        input::Input,
        testing::{cases, trace_of},
    };

    #[test]
    fn a_wait_from_before_a_loss_is_not_known_if_the_loss_is_in_the_part_before() {
        let of = (LockId(0), TaskId(1));
        let end = |ts_ns, wait_ns| {
            let purpose = Some(Purpose::CondVar);
            IdleRow::End { of, ts_ns, wait_ns: Some(wait_ns), purpose, acquired: true }
        };
        let rows = [IdleRow::Lost { ts_ns: 100 }, end(120, 10), end(140, 50), end(150, 50)];
        let part = |rows: &[IdleRow], from_ns| {
            let mut part = LeftOut { from_ns: Some(from_ns), ..LeftOut::default() };
            rows.iter().for_each(|row| part.add_row(*row));
            part
        };
        let mut whole = part(&rows, 100);
        whole.finish(200);
        // The first row of the second part has the time of the loss, or a later one.
        for from_ns in [100, 120] {
            let mut cut = part(&rows[..1], 100);
            cut.merge(part(&rows[1..], from_ns));
            cut.finish(200);
            assert_eq!(whole.sums(), cut.sums());
            assert_eq!(cut.sums()[&(of.0, Purpose::CondVar)], (1, 10));
        }
    }

    proptest! {
        #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(cases(2000)) })]

        #[test]
        fn idle_waits_are_those_of_the_model_wherever_a_trace_is_cut_into_parts(
            events in history(),
            cuts in any::<[Index; 2]>(),
        ) {
            // The condition variable is used as often as the first lock otherwise.
            let swap = |lock: LockId| LockId(match lock.0 { 0 => 5, 5 => 0, other => other });
            let mut now_ns = i64::MIN;
            let event = |event: Event| {
                now_ns = event.ts_ns.max(now_ns);
                Event { lock: event.lock.map(swap), ts_ns: now_ns, ..event }
            };
            let events: Vec<Event> = events.into_iter().map(event).collect();
            prop_assume!(!events.is_empty());
            let test = trace_of(events.clone(), usize::MAX);
            let input = Input::open(&test.trace, 0, &Filter::default()).unwrap();
            let mut cuts = cuts.map(|cut| cut.index(events.len() + 1));
            cuts.sort_unstable();
            let mut found = LeftOut::default();
            for part in [&events[..cuts[0]], &events[cuts[0]..cuts[1]], &events[cuts[1]..]] {
                let mut of_part = LeftOut::default();
                part.iter().for_each(|event| of_part.add(event, &input.selection));
                found.merge(of_part);
            }
            found.finish(end_of(&events));
            let (intervals, _) = Model::of(&events, end_of(&events)).intervals();
            let purposes = input.names.purposes();
            let idle = intervals.waits.iter().filter(|wait| purposes.of(wait.lock, wait.stack).is_idle());
            let expected = idle.fold((0, 0), |(waits, ns), wait| (waits + 1, ns + wait.wait_ns));
            let found = found.sums().values().fold((0, 0), |sums, of| (sums.0 + of.0, sums.1 + of.1));
            prop_assert_eq!(found, expected);
        }
    }
}
