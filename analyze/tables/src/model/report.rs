//! The report of the model: for every row all holds are visited, and all times are sorted for a percentile.

use std::collections::{BTreeMap, BTreeSet};

use trace_format::{LockId, Mode, StackId, TaskId};

use super::{Key, Seen, keys::key};
use crate::key::By;
use intervals::{
    engine::{Hold, HoldState, Outcome, Rules, histories},
    items::Polling,
};

/// Abandoned waits and their ns, failed attempts, open holds and their ns, open waits and their ns, ns of
/// polling; and how many of these attempts and open holds are of locks and modes whose holds are recorded.
type Unfinished = [i64; 9];

/// The columns of a row by name.
pub(crate) type Numbers = BTreeMap<&'static str, Option<i64>>;

impl Seen {
    /// Returns the report by key: the columns, and the intervals cut by loss.
    pub(super) fn report(&self, by: By) -> BTreeMap<Key, (Numbers, u64)> {
        let mut rows: BTreeMap<Key, (Vec<&Hold>, Unfinished)> = BTreeMap::new();
        for hold in self.credited() {
            rows.entry(key(by, hold.lock, hold.task, hold.stack)).or_default().0.push(hold);
        }
        self.unfinished(|lock, task, stack, one| {
            let row = &mut rows.entry(key(by, lock, task, stack)).or_default().1;
            row.iter_mut().zip(one).for_each(|(sum, one)| *sum += one);
        });
        // Its tries may be before the window.
        self.polled(|polling, ns| {
            let key = key(by, polling.lock, polling.task, polling.stack);
            if ns > 0 {
                rows.entry(key).or_default().1[7] += ns;
            }
        });
        let cut = self.cut(by);
        let row = |(key, (holds, unfinished)): (Key, (Vec<&Hold>, Unfinished))| {
            let cut = cut.get(&key).copied().unwrap_or(0);
            (key, (columns(&holds, unfinished), cut))
        };
        rows.into_iter().map(row).collect()
    }

    /// Calls `add` for each selected attempt that led to no acquisition, and for each interval that was open
    /// at the end.
    fn unfinished(&self, mut add: impl FnMut(LockId, TaskId, Option<StackId>, Unfinished)) {
        for wait in self.selected_waits() {
            let measured = is_measured(wait.lock, wait.mode);
            let one = match wait.outcome {
                Outcome::Abandoned(_) => [1, wait.wait_ns, 0, 0, 0, 0, 0, 0, measured],
                Outcome::OpenAtEnd => [0, 0, 0, 0, 0, 1, wait.wait_ns, 0, measured],
                _ => continue,
            };
            add(wait.lock, wait.task, wait.stack, one);
        }
        for hold in self.selected_holds().filter(|hold| hold.state == HoldState::OpenAtEnd) {
            let one = [0, 0, 0, 1, hold.end_ns - hold.start_ns, 0, 0, 0, 1];
            add(hold.lock, hold.task, hold.stack, one);
        }
        for event in &self.try_failures {
            let (lock, task) = (event.lock.unwrap(), event.task.unwrap());
            let mode = event.mode.unwrap_or(Mode::Exclusive);
            if self.selects(task, mode, None) && self.ended_in_window(event.ts_ns) {
                add(lock, task, event.stack, [0, 0, 1, 0, 0, 0, 0, 0, is_measured(lock, mode)]);
            }
        }
    }

    /// Calls `add` for each selected time of polling.
    fn polled(&self, mut add: impl FnMut(&Polling, i64)) {
        for polling in &self.pollings {
            let Polling { task, mode, end_ns, start_ns, .. } = *polling;
            if self.selects(task, mode, None) && self.ended_in_window(end_ns) {
                add(polling, end_ns - start_ns);
            }
        }
    }

    pub(super) fn totals(&self) -> Numbers {
        let mut unfinished = Unfinished::default();
        self.unfinished(|_, _, _, one| unfinished.iter_mut().zip(one).for_each(|(sum, one)| *sum += one));
        self.polled(|_, ns| unfinished[7] += ns);
        columns(&self.credited().collect::<Vec<_>>(), unfinished)
    }

    /// Returns the holds and waits that a loss cut, by key.
    fn cut(&self, by: By) -> BTreeMap<Key, u64> {
        let mut cut = BTreeMap::new();
        for hold in self.selected_holds().filter(|hold| hold.state == HoldState::CutByLoss) {
            *cut.entry(key(by, hold.lock, hold.task, hold.stack)).or_default() += 1;
        }
        for wait in self.selected_waits().filter(|wait| wait.outcome == Outcome::CutByLoss) {
            *cut.entry(key(by, wait.lock, wait.task, wait.stack)).or_default() += 1;
        }
        cut
    }
}

/// Returns 1 if the lengths of holds of a lock and mode are recorded.
fn is_measured(lock: LockId, mode: Mode) -> i64 {
    let (info, locks) = histories::context();
    i64::from(Rules::new(&info, &locks).measures(lock, mode))
}

/// Returns the columns of a report of these holds.
pub(super) fn columns(holds: &[&Hold], unfinished: Unfinished) -> Numbers {
    let sum = |value: fn(&Hold) -> i64| -> i64 { holds.iter().map(|hold| value(hold)).sum() };
    let complete: Vec<&&Hold> = holds.iter().filter(|hold| hold.state == HoldState::Complete).collect();
    let times: Vec<i64> = complete.iter().map(|hold| hold.end_ns - hold.start_ns).collect();
    let [
        abandoned,
        abandoned_wait_ns,
        try_failed,
        open_holds,
        open_hold_ns,
        open_waits,
        open_wait_ns,
        polled_ns,
        recorded,
    ] = unfinished;
    let is_measured = !complete.is_empty() || holds.is_empty() && recorded > 0;
    let total: i64 = times.iter().sum();
    let known: Vec<i64> = holds.iter().filter_map(|hold| hold.wait_ns).collect();
    let gaps: Vec<i64> = holds.iter().filter_map(|hold| hold.gap_ns).collect();
    let contended = || holds.iter().filter(|hold| hold.contended);
    let waited: Vec<i64> = contended().filter_map(|hold| hold.wait_ns).collect();
    let count = sum(|hold| hold.acquisitions);
    let waits_known = !known.is_empty() || count == 0;
    let wait_total: i64 = known.iter().sum();
    let measured = |value: i64| is_measured.then_some(value);
    // Waits of which all three parts are known.
    let states: Vec<(i64, i64, i64)> =
        contended().filter_map(|hold| Some((hold.wait_ns?, hold.blocked_ns?, hold.runq_ns?))).collect();
    let state = |value: fn(&(i64, i64, i64)) -> i64| {
        (!states.is_empty()).then(|| states.iter().map(value).sum::<i64>())
    };
    Numbers::from([
        ("max_ns", measured(times.iter().max().copied().unwrap_or(0))),
        ("wait_max_ns", waits_known.then(|| known.iter().max().copied().unwrap_or(0))),
        ("total_ns", measured(total)),
        ("wait_total_ns", waits_known.then_some(wait_total)),
        ("count", Some(count)),
        (
            "avg_ns",
            measured(total.checked_div(complete.iter().map(|hold| hold.acquisitions).sum()).unwrap_or(0)),
        ),
        ("wait_avg_ns", waits_known.then(|| if count == 0 { 0 } else { wait_total / count })),
        ("cnt_hold", measured(sum(|hold| hold.waits_begun))),
        ("cnt_lock", Some(contended().count() as i64)),
        ("wait_caused_ns", measured(sum(|hold| hold.wait_caused_ns))),
        ("holds_contended", measured(holds.iter().filter(|hold| hold.waits_begun > 0).count() as i64)),
        ("gap_ns", (!gaps.is_empty() || count == 0).then(|| gaps.iter().sum())),
        (
            "contention_ppm",
            measured(0).filter(|_| count > 0).map(|_| contended().count() as i64 * 1_000_000 / count),
        ),
        ("owner_changes", measured(holds.iter().filter(|hold| hold.owner_changed).count() as i64)),
        ("max_waiters", measured(holds.iter().map(|hold| hold.max_waiters).max().unwrap_or(0))),
        ("attempts", Some(count + abandoned + try_failed + open_waits)),
        ("abandoned", Some(abandoned)),
        ("abandoned_wait_ns", Some(abandoned_wait_ns)),
        ("try_failed", Some(try_failed)),
        ("polled_ns", Some(polled_ns)),
        ("open_holds", Some(open_holds)),
        ("open_hold_ns", Some(open_hold_ns)),
        ("open_waits", Some(open_waits)),
        ("open_wait_ns", Some(open_wait_ns)),
        ("min_ns", times.iter().min().copied()),
        ("p50_ns", percentile(&times, 500)),
        ("p90_ns", percentile(&times, 900)),
        ("p99_ns", percentile(&times, 990)),
        ("p999_ns", percentile(&times, 999)),
        ("wait_min_ns", waited.iter().min().copied()),
        ("wait_p50_ns", percentile(&waited, 500)),
        ("wait_p90_ns", percentile(&waited, 900)),
        ("wait_p99_ns", percentile(&waited, 990)),
        ("wait_p999_ns", percentile(&waited, 999)),
        ("spin_ns", state(|(wait, blocked, runq)| wait - blocked - runq)),
        ("blocked_ns", state(|(_, blocked, _)| *blocked)),
        ("runq_ns", state(|(_, _, runq)| *runq)),
        ("threads", Some(holds.iter().map(|hold| hold.task).collect::<BTreeSet<_>>().len() as i64)),
    ])
}

/// Returns the smallest time that `rank` thousandths of all times do not exceed.
pub(crate) fn percentile(times: &[i64], rank: usize) -> Option<i64> {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted.get(((sorted.len() * rank).div_ceil(1000)).checked_sub(1)?).copied()
}
