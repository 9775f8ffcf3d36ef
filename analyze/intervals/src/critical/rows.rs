//! The order of rows: one clock, and an order of rows of equal time that does not depend on the order in
//! which they were written.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    ops::ControlFlow,
};

use rustc_hash::FxHashMap;
use trace_format::{Batch, Event, EventKind, TaskId};

use super::forward::Forward;

/// Passes batches on to the forward pass, up to a time, row by row in their order.
pub(super) struct InOrder {
    until_ns: i64,
    /// The time of the last row.
    pub(super) now_ns: i64,
    /// Rows of that time, if more of them may follow.
    now: Vec<Event>,
}

impl InOrder {
    pub(super) fn until(until_ns: i64) -> Self {
        Self { until_ns, now_ns: i64::MIN, now: Vec::new() }
    }

    /// Adds the next batch. Breaks once the time is over.
    pub(super) fn batch(&mut self, batch: &Batch, forward: &mut Forward<'_>) -> ControlFlow<()> {
        let times = batch.times();
        for (index, ns) in times.iter().enumerate() {
            if *ns > self.now_ns {
                self.settle(forward);
                self.now_ns = *ns;
                if *ns > self.until_ns {
                    return ControlFlow::Break(());
                }
                // Mostly it is alone in its nanosecond.
                if times.get(index + 1).is_some_and(|next_ns| next_ns > ns) {
                    forward.push(*ns, &batch.row(index));
                    continue;
                }
            }
            self.now.push(batch.event(index));
        }
        ControlFlow::Continue(())
    }

    /// Passes on the rows of the last nanosecond.
    pub(super) fn settle(&mut self, forward: &mut Forward<'_>) {
        if self.now.is_empty() {
            return;
        }
        let mut before_ns = self.now_ns;
        settle(&mut self.now, &mut before_ns);
        self.now.drain(..).for_each(|row| forward.push(row.ts_ns, &row));
    }
}

/// Puts rows in order across the ends of row groups: the rows of the last nanosecond of a group are kept
/// until the next group is read.
#[derive(Debug)]
pub struct GroupsInOrder {
    now_ns: i64,
    held: Vec<Event>,
}

impl Default for GroupsInOrder {
    fn default() -> Self {
        Self { now_ns: i64::MIN, held: Vec::new() }
    }
}

impl GroupsInOrder {
    /// Passes on the rows that are known to be in order, with the next group, until `each` breaks.
    pub fn add(
        &mut self,
        rows: &mut [Event],
        each: &mut impl FnMut(&Event) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let held_ns = self.now_ns;
        settle(rows, &mut self.now_ns);
        let same = rows.partition_point(|row| row.ts_ns <= held_ns);
        self.held.extend_from_slice(&rows[..same]);
        if same < rows.len() {
            self.finish(each)?;
            let last = rows.partition_point(|row| row.ts_ns < self.now_ns);
            rows[same..last].iter().try_for_each(&mut *each)?;
            self.held.extend_from_slice(&rows[last..]);
        }
        ControlFlow::Continue(())
    }

    /// Passes on the rows of the last nanosecond.
    pub fn finish(&mut self, each: &mut impl FnMut(&Event) -> ControlFlow<()>) -> ControlFlow<()> {
        let mut rows = std::mem::take(&mut self.held);
        let mut now_ns = i64::MIN;
        settle(&mut rows, &mut now_ns);
        rows.iter().try_for_each(each)
    }
}

/// Gives late rows the time of the row before them, and orders rows of equal time. `now_ns` is the time of
/// the last row before these, and becomes the time of the last of them.
pub(crate) fn settle(rows: &mut [Event], now_ns: &mut i64) {
    for row in rows.iter_mut() {
        *now_ns = row.ts_ns.max(*now_ns);
        row.ts_ns = *now_ns;
    }
    for equal in rows.chunk_by_mut(|a, b| a.ts_ns == b.ts_ns).filter(|rows| rows.len() > 1) {
        // Nothing is moved across a loss.
        let rows = equal.split_mut(|row| row.task.is_none());
        rows.filter(|rows| rows.iter().any(|row| row.task != rows[0].task)).for_each(order);
    }
}

/// Orders rows of equal time. Those of one task keep their order; of the tasks' next rows, the one that frees
/// comes first.
fn order(rows: &mut [Event]) {
    let mut queues: FxHashMap<TaskId, VecDeque<Event>> = FxHashMap::default();
    for row in rows.iter() {
        queues.entry(row.task.unwrap_or(TaskId(-1))).or_default().push_back(*row);
    }
    let next = |task: TaskId, queue: &VecDeque<Event>| Some(Reverse((rank(queue.front()?.kind), task)));
    let mut nexts: BinaryHeap<_> = queues.iter().filter_map(|(task, queue)| next(*task, queue)).collect();
    for to in rows {
        let Some(Reverse((_, task))) = nexts.pop() else { return };
        let Some(queue) = queues.get_mut(&task) else { return };
        let Some(row) = queue.pop_front() else { return };
        *to = row;
        nexts.extend(next(task, queue));
    }
}

const fn rank(kind: EventKind) -> u8 {
    match kind {
        EventKind::Release | EventKind::Wake => 0,
        EventKind::Wait => 1,
        EventKind::Acquire | EventKind::Abandon => 2,
        EventKind::OffCpu => 3,
        _ => 4,
    }
}
