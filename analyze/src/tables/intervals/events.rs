//! The columns of `klock analyze events`.

use trace_format::Event;

use super::row::{Row, Rows, site_column, task_and_lock_columns};
use crate::output::Column;

/// Declares the columns.
pub(super) fn columns() -> Vec<Column<Row<Event>>> {
    type Of = Column<Row<Event>>;
    let mut columns = vec![
        Of::timestamp("time", |row| row.since_start(row.item.ts_ns), "Time since the start of the trace.")
            .ascending()
            .width(12, 12),
        Of::text("event", |row| row.item.kind.as_str().into(), "Kind of the event.").width(8, 8),
        Of::text("mode", |row| row.item.mode.map(|mode| mode.as_str()).into(), "Mode of the lock.")
            .programs(),
        Of::duration("wait", |row| row.item.wait_ns, "Length of the wait that the event ends.").width(7, 7),
    ];
    columns.extend(task_and_lock_columns());
    columns.extend([
        Of::count("cpu", |row| row.item.cpu, "CPU.").programs(),
        Of::count("stack_id", |row| row.item.stack.map(|stack| stack.0), "Id of the stack.").programs(),
        Of::duration("blocked", |row| row.item.blocked_ns, "Part of the wait spent asleep.").programs(),
        Of::duration("runq", |row| row.item.runq_ns, "Part of the wait spent in the run queue.").programs(),
        Of::count("peer_task_id", |row| row.item.peer_task.map(|task| task.0), "Id of the other task.")
            .programs(),
        Of::text("peer", |row| row.peer(0), "The other task: a waker, or the owner by the lock word.")
            .programs(),
        Of::count("peer_stack_id", |row| row.item.peer_stack.map(|stack| stack.0), "Id of its stack.")
            .programs(),
        Of::count("errno", |row| row.item.errno, "Error of the call.").programs(),
        Of::count("count", |row| row.item.count, "Number of lost events.").programs(),
        Of::text(
            "state",
            |row| row.item.state.map(|state| state.as_str()).into(),
            "State of a task that is off-CPU.",
        )
        .programs(),
        Of::text(
            "call",
            |row| row.item.call.map(|call| call.as_str()).into(),
            "Kind of the call: `try` does not wait, `timed` gives up at some time.",
        )
        .programs(),
        Of::text(
            "syscall",
            |row| row.item.syscall.map(|call| call.to_string()).into(),
            "System call in which a task left the CPU; `-` if in none.",
        )
        .programs(),
        site_column("Site of the call."),
    ]);
    columns
}

pub(super) fn row(event: &Event, rows: &mut Rows<'_>) -> Row<Event> {
    rows.row(*event, event.lock, event.task, [event.peer_task, None, None], event.stack)
}
