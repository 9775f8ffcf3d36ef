//! Finds the busiest windows of a trace by its rows alone.
//!
//! Each acquisition counts, and each wait by its end and the length that was recorded with it. Times off-CPU
//! count too, and weigh where no thread waited for a lock. That takes no engine and hardly any columns, so a
//! page reads its trace once more for this alone.

use trace_format::{Batch, EventKind, EventRow};

use super::{data::Window, slices::Slices};
use crate::plot::lanes::busiest_run;
use intervals::{input::Input, items::Columns};
use output::error::AnalyzeError;

/// Slices of the trace between which a window can begin.
const SLICES: usize = 1 << 15;

/// The waiting and the intervals of all locks by slice of time.
pub(super) struct Activity {
    slices: Slices,
    waited_ns: Vec<i64>,
    off_ns: Vec<i64>,
    /// Holds, waits and times off-CPU that begin in the slice.
    begun: Vec<u64>,
}

impl Activity {
    /// Reads the rows of a trace.
    pub(super) fn of(input: &Input<'_>, span: (i64, i64)) -> Result<Self, AnalyzeError> {
        let mut activity = Self::new(span);
        let selection = &input.selection;
        if selection.is_of_everything() {
            input.batches(Columns::Lengths, |batch, used| activity.add_all(batch, used))?;
        } else {
            input.rows(Columns::Times, |row| activity.add(row, |row| selection.selects_row(row)))?;
        }
        Ok(activity)
    }

    fn new((from_ns, to_ns): (i64, i64)) -> Self {
        let slices = Slices::new(from_ns, to_ns, SLICES);
        Self { slices, waited_ns: vec![0; SLICES], off_ns: vec![0; SLICES], begun: vec![0; SLICES] }
    }

    /// Adds a row, if it is selected.
    fn add<R: EventRow>(&mut self, row: &R, is_selected: impl FnOnce(&R) -> bool) {
        let kind = row.kind();
        if !is_counted(kind) || !is_selected(row) {
            return;
        }
        let ts_ns = row.ts_ns();
        if kind == EventKind::Acquire {
            self.begun[self.slices.at(ts_ns)] += 1;
        }
        if let Some(wait_ns) = row.wait_ns().filter(|ns| *ns > 0) {
            self.add_wait(kind, ts_ns, wait_ns);
        }
    }

    /// Adds the first `used` rows of a batch, as [`add`](Self::add) does. Many rows are in one slice, and few
    /// of them waited.
    fn add_all(&mut self, batch: &Batch, used: usize) {
        let (times, kinds) = (&batch.times()[..used], &batch.kinds()[..used]);
        let mut first = 0;
        while let Some(ns) = times.get(first) {
            let slice = self.slices.at(*ns);
            let others = times[first + 1..].iter().take_while(|ns| self.slices.is_in_last(**ns)).count();
            let next = first + 1 + others;
            let acquired = kinds[first..next].iter().filter(|kind| **kind == EventKind::Acquire).count();
            self.begun[slice] += acquired as u64;
            first = next;
        }
        for (row, wait_ns) in batch.waits().take_while(|(row, _)| *row < used) {
            if is_counted(kinds[row]) {
                self.add_wait(kinds[row], times[row], wait_ns);
            }
        }
    }

    fn add_wait(&mut self, kind: EventKind, end_ns: i64, wait_ns: i64) {
        let start_ns = end_ns.saturating_sub(wait_ns);
        let sums = if kind == EventKind::OffCpu { &mut self.off_ns } else { &mut self.waited_ns };
        self.slices.spread(start_ns, end_ns, |slice, ns| sums[slice] += ns);
        self.begun[self.slices.at(start_ns)] += 1;
    }

    /// Returns up to `count` windows with much waiting that do not overlap and have about `most` intervals
    /// together, in the order of time; a single one if there are no more intervals in all.
    pub(super) fn busiest(&self, count: usize, most: usize, end_ns: i64) -> Vec<Window> {
        let most = u64::try_from(most).unwrap_or(u64::MAX);
        let all = Window { from_ns: self.slices.from_ns, to_ns: end_ns };
        if self.begun.iter().sum::<u64>() <= most {
            return vec![all];
        }
        let waited = self.waited_ns.iter().any(|ns| *ns > 0);
        let mut weights = if waited { self.waited_ns.clone() } else { self.off_ns.clone() };
        let mut begun = self.begun.clone();
        let mut windows: Vec<Window> = Vec::new();
        for _ in 0..count {
            let share = (most / count as u64).max(1);
            let Some(run) = busiest_run(&weights, &begun, share) else { break };
            let from_ns = self.slices.begin(run.first);
            let to_ns = match run.count {
                // One slice has more than fits: as much of it as likely fits.
                count if count > share => {
                    let part = i128::from(self.slices.length_ns) * i128::from(share) / i128::from(count);
                    from_ns.saturating_add(i64::try_from(part).unwrap_or(1).max(1))
                }
                _ => self.slices.begin(run.first + run.length).min(end_ns),
            };
            if weights[run.first..run.first + run.length].iter().all(|ns| *ns == 0) {
                break;
            }
            windows.push(Window { from_ns, to_ns });
            weights[run.first..run.first + run.length].fill(0);
            begun[run.first..run.first + run.length].fill(most.saturating_add(1));
        }
        windows.sort_by_key(|window| window.from_ns);
        if windows.is_empty() { vec![Window { to_ns: self.slices.begin(1), ..all }] } else { windows }
    }
}

fn is_counted(kind: EventKind) -> bool {
    matches!(kind, EventKind::Acquire | EventKind::Abandon | EventKind::OffCpu)
}

#[cfg(test)]
mod tests {
    use proptest::{prelude::*, test_runner::Config};

    use super::*;
    use crate::testing;
    use intervals::{Filter, engine::histories};
    use tables::timeline::window;

    /// Returns the intervals that begin, and the time of waits, of a trace.
    fn of(text: &str) -> (u64, i64) {
        let test = testing::trace(text);
        let input = Input::open(&test.trace, 0, &Filter::default()).unwrap();
        let Activity { waited_ns, begun, .. } = Activity::of(&input, window(&input).unwrap()).unwrap();
        (begun.iter().sum(), waited_ns.iter().sum())
    }

    #[test]
    fn acquisitions_and_waits_count_and_idle_waits_do_not() {
        let text = "lock c condvar\n1_000 A acquire m a.c:1\n1_200 B wait m b.c:1\n2_000 A release m\n2_003 B acquire m b.c:1 wait=803
            2_100 A wait m a.c:1\n2_150 A abandon m a.c:1 wait=50\n2_200 B release m";
        // Two holds and two waits.
        assert_eq!(of(text), (4, 853));
        let idle = format!("{text}\n3_000 A wait c a.c:2\n9_000 A acquire c a.c:2 wait=6_000");
        assert_eq!(of(&idle), (4, 853));
    }

    proptest! {
        #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(testing::cases(200)) })]

        #[test]
        fn rows_count_the_same_one_by_one_and_in_batches(
            mut events in histories::history(), span in 1_i64..2000, used in 0_usize..80, swapped in 0_usize..80,
        ) {
            // Times that go back, and a wait without a length.
            if swapped + 1 < events.len() {
                events.swap(swapped, swapped + 1);
                events[swapped].wait_ns = None;
            }
            let (mut one_by_one, mut in_batches) = (Activity::new((0, span)), Activity::new((0, span)));
            let batch: Batch = events.iter().copied().collect();
            let used = used.min(batch.len());
            (0..used).for_each(|row| one_by_one.add(&batch.row(row), |_| true));
            in_batches.add_all(&batch, used);
            prop_assert_eq!(one_by_one.begun, in_batches.begun);
            prop_assert_eq!(one_by_one.waited_ns, in_batches.waited_ns);
        }
    }

    #[test]
    fn the_busiest_slices_become_windows_that_do_not_overlap() {
        let mut activity = Activity::new((0, SLICES as i64 * 10));
        for slice in 0..100 {
            activity.begun[slice * 100] = 10;
            activity.waited_ns[slice * 100] = if slice % 40 == 20 { 9 } else { 1 };
        }
        let windows = activity.busiest(2, 40, SLICES as i64 * 10);
        assert_eq!(windows.len(), 2);
        assert!(windows[0].to_ns <= windows[1].from_ns, "{windows:?}");
        for (window, slice) in windows.iter().zip([2_000, 6_000]) {
            assert!((window.from_ns..window.to_ns).contains(&(slice * 10)), "{windows:?}");
        }
        let all = activity.busiest(2, 1_000, 77);
        assert_eq!(all, [Window { from_ns: 0, to_ns: 77 }]);
    }
}
