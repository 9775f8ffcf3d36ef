//! A slow model of [`Group`](super::Group): every count from the list of all rows.

use std::collections::{BTreeMap, BTreeSet};

use trace_format::TaskId;

use super::{BATCH_NS, Evidence, VAIN_NS};

/// A row of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Row {
    Begin(TaskId),
    /// A task called a wake; how long the call took.
    Wake(TaskId, i64),
    End(TaskId, Option<TaskId>),
    Lose,
}

/// A wait, with the indexes of its first and last row.
#[derive(Clone, Copy, Debug)]
struct ModelWait {
    task: TaskId,
    from: usize,
    to: usize,
    waker: Option<TaskId>,
    /// Whether it ended with an `End`.
    ended: bool,
}

/// Returns the evidence of rows, whose last one is a `Lose`.
pub(super) fn evidence(rows: &[(i64, Row)]) -> Evidence {
    let raw = raw_waits(rows);
    let tasks: BTreeSet<TaskId> = raw.iter().map(|wait| wait.task).collect();
    let (mut some_ns, mut all_ns) = (0, 0);
    for at in 1..rows.len() {
        let open = raw.iter().filter(|wait| wait.from < at && at <= wait.to).count();
        let ns = rows[at].0 - rows[at - 1].0;
        some_ns += if open > 0 { ns } else { 0 };
        all_ns += if open > 0 && open == tasks.len() { ns } else { 0 };
    }
    let joined = joined(rows, &raw);
    let mut ended: Vec<ModelWait> = joined.iter().filter(|wait| wait.ended).copied().collect();
    ended.sort_by_key(|wait| wait.to);
    let (runs, counted) = runs(rows, &ended);
    let woken = raw.iter().filter(|wait| wait.waker.is_some());
    let calls: Vec<_> =
        woken.filter_map(|wait| next_call(rows, &raw, &joined, wait).map(|task| task == wait.task)).collect();
    let (mut waits, mut wakes) = (BTreeMap::<_, u64>::new(), BTreeMap::<_, u64>::new());
    for wait in &counted {
        *waits.entry(wait.task).or_default() += 1;
        *wakes.entry(wait.waker.unwrap_or(wait.task)).or_default() += 1;
    }
    let both = waits.iter().map(|(task, waits)| waits.min(wakes.get(task).unwrap_or(&0))).sum();
    let mut found = Evidence {
        waits: counted.len() as u64,
        tasks: tasks.len() as u64,
        both,
        entered: calls.len() as u64,
        left: calls.iter().filter(|own| **own).count() as u64,
        some_ns,
        all_ns,
        ..Evidence::default()
    };
    for run in runs {
        for (at, batch) in run.iter().enumerate() {
            found.batches += 1;
            found.batched += if batch.len() > 1 { batch.len() as u64 } else { 0 };
            let Some(before) = at.checked_sub(1).map(|at| &run[at]) else { continue };
            let was_woken = |task: Option<TaskId>| before.iter().any(|wait| Some(wait.task) == task);
            for wait in batch.iter().filter(|wait| rows[wait.from].0 < rows[before[0].to].0) {
                if !was_woken(Some(wait.task)) {
                    found.queued += 1;
                    found.relayed += u64::from(was_woken(wait.waker));
                }
            }
        }
    }
    found
}

fn raw_waits(rows: &[(i64, Row)]) -> Vec<ModelWait> {
    let (mut open, mut waits) = (BTreeMap::new(), Vec::new());
    for (at, (_, row)) in rows.iter().enumerate() {
        match *row {
            Row::Begin(task) => {
                open.entry(task).or_insert(at);
            }
            Row::End(task, waker) => {
                let waker = waker.filter(|waker| *waker != task);
                let wait = |from| ModelWait { task, from, to: at, waker, ended: true };
                waits.extend(open.remove(&task).map(wait));
            }
            Row::Lose => {
                let cut = |(task, from)| ModelWait { task, from, to: at, waker: None, ended: false };
                waits.extend(std::mem::take(&mut open).into_iter().map(cut));
            }
            Row::Wake(..) => {}
        }
    }
    waits
}

/// Joins vain wake-ups with the wait that follows.
fn joined(rows: &[(i64, Row)], raw: &[ModelWait]) -> Vec<ModelWait> {
    let mut waits: Vec<ModelWait> = Vec::new();
    let mut raw = raw.to_vec();
    raw.sort_by_key(|wait| wait.from);
    for wait in &raw {
        let woke = |at: usize| {
            let by_end =
                raw.iter().any(|other| other.ended && other.to == at && other.waker == Some(wait.task));
            matches!(rows[at].1, Row::Wake(task, _) if task == wait.task) || by_end
        };
        let is_vain = |before: &ModelWait| {
            let between = before.to + 1..wait.from;
            before.task == wait.task
                && before.ended
                && rows[wait.from].0 - rows[before.to].0 <= VAIN_NS
                && between.clone().all(|at| rows[at].1 != Row::Lose && !woke(at))
        };
        let last = waits.iter().rposition(|before| before.task == wait.task);
        match last.filter(|at| is_vain(&waits[*at])) {
            Some(at) => waits[at] = ModelWait { from: waits[at].from, ..*wait },
            None => waits.push(*wait),
        }
    }
    waits
}

/// Returns the task that calls a wake first after a wait of `raw`, if the wait entered.
fn next_call(
    rows: &[(i64, Row)],
    raw: &[ModelWait],
    joined: &[ModelWait],
    wait: &ModelWait,
) -> Option<TaskId> {
    let is_open = |other: &ModelWait, at: usize| other.from < at && at <= other.to;
    let end_ns = rows[wait.to].0;
    let mut others =
        raw.iter().filter(|other| other.task != wait.task && is_open(other, wait.to) && other.to != wait.to);
    others.next()?;
    for at in wait.to + 1..rows.len() {
        match rows[at].1 {
            Row::Begin(task) if task == wait.task => return None,
            Row::Lose => return None,
            Row::Wake(task, length_ns) if rows[at].0 - length_ns >= end_ns => {
                let begin_ns = |open: &ModelWait| {
                    let whole = |whole: &&ModelWait| {
                        whole.task == open.task && whole.from <= open.from && open.from <= whole.to
                    };
                    joined.iter().find(whole).map_or(i64::MAX, |whole| rows[whole.from].0)
                };
                let is_behind = |open: &ModelWait| is_open(open, at) && begin_ns(open) < end_ns;
                return raw.iter().any(is_behind).then_some(task);
            }
            _ => {}
        }
    }
    None
}

/// Returns the batches, in runs that nothing unknown interrupts, and all waits in them.
fn runs(rows: &[(i64, Row)], waits: &[ModelWait]) -> (Vec<Vec<Vec<ModelWait>>>, Vec<ModelWait>) {
    let mut runs: Vec<Vec<Vec<ModelWait>>> = vec![Vec::new()];
    let mut last = 0;
    for wait in waits {
        if rows[last..wait.to].iter().any(|(_, row)| *row == Row::Lose) || wait.waker.is_none() {
            runs.push(Vec::new());
        }
        last = wait.to;
        if wait.waker.is_none() {
            continue;
        }
        let Some(run) = runs.last_mut() else { continue };
        // When the waker entered its last call that returned before the end of the wait.
        let called_ns = rows[..wait.to].iter().rev().find_map(|(ts_ns, row)| match row {
            Row::Wake(task, length_ns) if Some(*task) == wait.waker => Some(ts_ns - length_ns),
            _ => None,
        });
        let joins = |batch: &&mut Vec<ModelWait>| {
            let (first, last) = (batch[0], batch[batch.len() - 1]);
            let is_one_call = called_ns.is_some_and(|called_ns| called_ns <= rows[first.to].0);
            let is_soon = rows[wait.to].0 - rows[last.to].0 <= BATCH_NS;
            last.waker == wait.waker
                && batch.iter().all(|other| other.task != wait.task)
                && (is_one_call || is_soon)
        };
        match run.last_mut().filter(joins) {
            Some(batch) => batch.push(*wait),
            None => run.push(vec![*wait]),
        }
    }
    let counted = runs.iter().flatten().flatten().copied().collect();
    (runs, counted)
}
