//! Charts of a lock for tests, of holds and waits that are made by hand.

use trace_format::{LockId, LockKind, LockRow, Mode, TaskId, TaskRow};

use super::{
    chart::{Chart, LockContext},
    compute::{Query, compute},
    replay::{Replay, Replayed},
};
use intervals::items::{Charge, Hold, HoldId, HoldState, Item, Outcome, Share, Sink, Wait, started};
use output::AnalyzeError;

/// The history of a lock.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    holds: Vec<Hold>,
    waits: Vec<Wait>,
    losses: Vec<(i64, i64)>,
}

impl History {
    pub(crate) fn hold(mut self, task: i32, start_ns: i64, end_ns: i64) -> Self {
        self.holds.push(hold(task, start_ns, end_ns));
        self
    }

    pub(crate) fn unreleased(mut self, task: i32, start_ns: i64, end_ns: i64) -> Self {
        self.holds.push(Hold { state: HoldState::OpenAtEnd, ..hold(task, start_ns, end_ns) });
        self
    }

    pub(crate) fn shared(mut self, task: i32, start_ns: i64, end_ns: i64) -> Self {
        self.holds.push(Hold { mode: Mode::Shared, ..hold(task, start_ns, end_ns) });
        self
    }

    pub(crate) fn wait(self, task: i32, start_ns: i64, end_ns: i64) -> Self {
        self.wait_with(task, start_ns, end_ns, Outcome::Acquired, None)
    }

    pub(crate) fn wait_with(
        mut self,
        task: i32,
        start_ns: i64,
        end_ns: i64,
        outcome: Outcome,
        owner: Option<i32>,
    ) -> Self {
        self.waits.push(Wait { outcome, owner: owner.map(TaskId), ..wait(task, start_ns, end_ns) });
        self
    }

    pub(crate) fn lost(mut self, ts_ns: i64, count: i64) -> Self {
        self.losses.push((ts_ns, count));
        self
    }

    pub(crate) fn without_holds(mut self) -> Self {
        self.holds.clear();
        self
    }

    pub(crate) fn chart(&self, columns: usize) -> Chart {
        self.chart_of(lock(LockKind::PthreadMutex), true, None, columns)
    }

    pub(crate) fn chart_of(
        &self,
        mut lock: LockRow,
        holds_recorded: bool,
        window: Option<(i64, i64)>,
        columns: usize,
    ) -> Chart {
        let holds = self.holds.iter().map(|hold| (hold.start_ns, hold.end_ns));
        let times = holds.chain(self.waits.iter().map(|wait| (wait.start_ns, wait.end_ns)));
        lock.first_ns = times.clone().map(|(start, _)| start).min().unwrap_or(lock.first_ns);
        lock.last_ns = times.map(|(_, end)| end).max().unwrap_or(lock.last_ns);
        let tasks: Vec<TaskRow> = (0..1_000).map(|id| task(id, "worker")).collect();
        let context =
            LockContext { origin_ns: 1_000_000_000, holds_recorded, lock, tasks: &tasks, names: None };
        let query = Query { lock: LockId(3), window, columns };
        compute(&context, &query, self).unwrap()
    }

    /// Charges each wait to the holds of other tasks while it lasts.
    fn shares(&self, holds: &[Hold], sink: &mut impl Sink) {
        for wait in &self.waits {
            let first = holds.partition_point(|hold| hold.end_ns <= wait.start_ns);
            let mut at_ns = wait.start_ns;
            for hold in holds[first..].iter().take_while(|hold| hold.start_ns < wait.end_ns) {
                let (from_ns, to_ns) = (hold.start_ns.max(at_ns), hold.end_ns.min(wait.end_ns));
                if from_ns < to_ns && hold.task != wait.task {
                    let payer = HoldId { stack: None, ..hold.id() };
                    let ns = to_ns.saturating_sub(from_ns);
                    let share = Share { payer: Some(payer), free: false, start_ns: from_ns, ns };
                    sink.push(Item::Share(wait, &share));
                    at_ns = to_ns;
                }
            }
        }
    }
}

impl Replay for History {
    fn replay(&self, _: Option<i64>, sink: &mut impl Sink) -> Result<Replayed, AnalyzeError> {
        let (mut holds, mut waits) = (self.holds.clone(), self.waits.clone());
        holds.sort_by_key(|hold| hold.end_ns);
        waits.sort_by_key(|wait| wait.end_ns);
        holds.iter().for_each(|hold| sink.push(Item::Hold(hold)));
        waits.iter().for_each(|wait| sink.push(Item::Wait(wait)));
        self.shares(&holds, sink);
        self.losses.iter().for_each(|&(ts_ns, count)| sink.push(Item::Lost { ts_ns, count }));
        let ends = holds.iter().map(|hold| hold.end_ns).chain(waits.iter().map(|wait| wait.end_ns));
        Ok(Replayed { end_ns: ends.max().unwrap_or(0), cut_short: false })
    }
}

pub(crate) fn lock(kind: LockKind) -> LockRow {
    LockRow {
        address: Some(0x7f3a_1c00_4520),
        pid: (!kind.is_kernel()).then_some(4_000),
        name: Some("queue_lock".to_owned()),
        first_ns: 1_001_000_000,
        last_ns: 1_002_500_000,
        ..LockRow::new(LockId(3), kind)
    }
}

pub(crate) fn task(id: i32, comm: &str) -> TaskRow {
    TaskRow { comm: Some(comm.to_owned()), ..TaskRow::new(TaskId(id), 4_000, 4_001 + id) }
}

pub(super) fn hold(task: i32, start_ns: i64, end_ns: i64) -> Hold {
    let hold = started(LockId(3), TaskId(task), start_ns, None);
    Hold { end_ns, state: HoldState::Complete, ..hold }
}

pub(super) fn wait(task: i32, start_ns: i64, end_ns: i64) -> Wait {
    Wait {
        lock: LockId(3),
        task: TaskId(task),
        mode: Mode::Exclusive,
        start_ns,
        start_seen: true,
        end_ns,
        stack: None,
        outcome: Outcome::Acquired,
        wait_ns: end_ns.saturating_sub(start_ns),
        gap_ns: None,
        blocked_ns: None,
        runq_ns: None,
        owner: None,
        waker: None,
        waker_stack: None,
        charge: Charge::Unknown,
    }
}

/// The worked example of LOCK_PROFILING: A holds, B and C wait and get the lock one after the other, E gives
/// up.
pub(crate) fn worked_example() -> History {
    let at = |ns: i64| 1_000_000_000 + ns;
    History::default()
        .hold(0, at(1_000_000), at(2_000_500))
        .hold(1, at(2_003_000), at(2_503_999))
        .hold(2, at(2_505_000), at(2_505_900))
        .wait(1, at(1_200_000), at(2_003_000))
        .wait(2, at(1_300_000), at(2_505_000))
        .wait_with(3, at(1_600_000), at(1_700_000), Outcome::Abandoned(Some(110)), None)
}

/// `threads` tasks take turns: each waits from its last release until its next turn. `holds` holds of
/// `hold_ns` with a hand-off of `gap_ns` between them.
pub(crate) fn taking_turns(threads: i32, holds: i32, hold_ns: i64, gap_ns: i64) -> History {
    let mut history = History::default();
    let period = hold_ns + gap_ns;
    for turn in 0..holds {
        let start = 1_000_500_000 + i64::from(turn) * period;
        let last = start - i64::from(threads) * period + hold_ns;
        history = history.hold(turn % threads, start, start + hold_ns);
        if turn >= threads {
            history = history.wait(turn % threads, last + gap_ns, start);
        }
    }
    history
}
