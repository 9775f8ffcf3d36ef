//! The order of rows: the rows of a row group enter as they were written, and leave with one clock and in an order that does not depend on
//! how rows of equal time were written.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

use rustc_hash::FxHashMap;
use trace_format::{Event, EventKind, TaskId};

/// Gives late rows the time of the row before them, and orders rows of equal time. `now_ns` is the time of the last row before these, and
/// becomes that of the last of them.
pub(crate) fn settle(rows: &mut [Event], now_ns: &mut i64) {
    for row in rows.iter_mut() {
        *now_ns = row.ts_ns.max(*now_ns);
        row.ts_ns = *now_ns;
    }
    for equal in rows.chunk_by_mut(|a, b| a.ts_ns == b.ts_ns).filter(|rows| rows.len() > 1) {
        // Nothing is moved across a loss.
        equal.split_mut(|row| row.task.is_none()).filter(|rows| rows.len() > 1).for_each(order);
    }
}

/// Orders rows of equal time. Those of one task keep their order; of the tasks' next rows, the one that frees comes first.
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
