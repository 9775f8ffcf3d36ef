//! Events as rows.

use trace_format::Event;

use super::labels::{Labels, lock_fields, task_fields};
use crate::{
    error::AnalyzeError,
    rows::{Cell, Field, Rows, Value},
};

pub(super) fn fields() -> Vec<Field> {
    let mut fields = vec![
        Field::number("time_ns").shown("time", Value::Moment, (12, 12)),
        Field::text("event").shown("event", Value::Text, (8, 8)),
        Field::text("mode"),
        Field::number("wait_ns").shown("wait", Value::Duration, (7, 7)),
    ];
    fields.extend(task_fields());
    fields.extend(lock_fields());
    fields.extend([
        Field::number("cpu"),
        Field::number("stack_id"),
        Field::number("blocked_ns"),
        Field::number("runq_ns"),
        Field::number("peer_task_id"),
        Field::text("peer"),
        Field::number("peer_stack_id"),
        Field::number("errno"),
        Field::number("count"),
        Field::text("state"),
        Field::text("site").shown("at", Value::Place, (8, 8)),
    ]);
    fields
}

pub(super) fn push(event: &Event, labels: &mut Labels<'_>, rows: &mut dyn Rows) -> Result<(), AnalyzeError> {
    labels.make(event.lock, &[event.task, event.peer_task], event.stack);
    let [lock_id, lock, kind] = labels.lock(event.lock);
    let [task_id, pid, tid, comm, task] = labels.task(event.task);
    rows.push(&[
        labels.moment(event.ts_ns),
        event.kind.as_str().into(),
        event.mode.map(|mode| mode.as_str()).into(),
        event.wait_ns.into(),
        task_id,
        pid,
        tid,
        comm,
        task,
        lock_id,
        lock,
        kind,
        event.cpu.into(),
        event.stack.map(|stack| stack.0).into(),
        event.blocked_ns.into(),
        event.runq_ns.into(),
        event.peer_task.map(|task| task.0).into(),
        labels.peer(event.peer_task),
        event.peer_stack.map(|stack| stack.0).into(),
        event.errno.into(),
        event.count.map_or(Cell::Null, Cell::Int),
        event.state.map(|state| state.as_str()).into(),
        labels.place(event.lock, event.stack),
    ])
}
