//! The columns of `klock analyze waits`, with the names of the fields of [`Wait`].

use super::row::{Row, Rows, site_column, task_and_lock_columns};
use crate::{
    engine::{Charge, Wait},
    input::names::purposes::Purpose,
    output::{Cell, Column},
};

/// Declares the columns.
pub(super) fn columns() -> Vec<Column<Row<Wait>>> {
    type Of = Column<Row<Wait>>;
    let mut columns = vec![
        Of::timestamp(
            "start",
            |row| row.since_start(row.item.start_ns),
            "Start since the start of the trace.",
        )
        .heading("begin")
        .ascending()
        .width(12, 12),
        Of::timestamp("end", |row| row.since_start(row.item.end_ns), "End since the start of the trace.")
            .programs(),
        Of::duration("wait", |row| row.item.wait_ns, "Length.").width(7, 7),
        Of::text("outcome", |row| row.item.outcome.as_str().into(), "Outcome.").programs(),
        Of::count("errno", |row| row.item.outcome.errno(), "Error of a wait that ended without the lock.")
            .programs(),
        Of::text("mode", |row| row.item.mode.as_str().into(), "Mode in which the lock was waited for.")
            .programs(),
        Of::duration("gap", |row| row.item.gap_ns, "Part during which no other task's hold was open.")
            .programs(),
        Of::duration("blocked", |row| row.item.blocked_ns, "Part spent asleep.").programs(),
        Of::duration("runq", |row| row.item.runq_ns, "Part spent in the run queue.").programs(),
    ];
    columns.extend(task_and_lock_columns());
    columns.extend([
        Of::text("began_in", |row| charge(&row.item).into(), "Whether the wait began in a hold or in a gap.")
            .programs(),
        Of::count(
            "holder_task_id",
            |row| holder(&row.item).map(|(task, _)| task),
            "Id of the holder at the start.",
        )
        .programs(),
        Of::text("holder", holder_or_owner, "The holder at the start. With ?, the owner by the lock word.")
            .width(10, 20),
        Of::timestamp(
            "hold_start",
            |row| holder(&row.item).map(|(_, ns)| row.since_start(ns)),
            "Start of its hold.",
        )
        .programs(),
        Of::count(
            "owner_task_id",
            |row| row.item.owner.map(|task| task.0),
            "Id of the owner by the lock word.",
        )
        .programs(),
        Of::text("owner", |row| row.peer(1), "The owner by the lock word.").programs(),
        Of::count("waker_task_id", |row| row.item.waker.map(|task| task.0), "Id of the waker.").programs(),
        Of::text("waker", |row| row.peer(2), "The task that ended the sleep.").programs(),
        Of::count("waker_stack_id", |row| row.item.waker_stack.map(|stack| stack.0), "Id of its stack.")
            .programs(),
        Of::count("stack_id", |row| row.item.stack.map(|stack| stack.0), "Id of the stack.").programs(),
        site_column("Site of the wait."),
        Of::text("purpose", |row| row.purpose.map(Purpose::as_str).into(), "Purpose of the wait.").programs(),
    ]);
    columns
}

/// Returns the name of the holder, or that of the owner with a mark where no hold was recorded.
fn holder_or_owner(row: &Row<Wait>) -> Cell<'_> {
    match (row.peer(0), row.peer(1), row.item.charge) {
        (Cell::Null, Cell::Text(owner), Charge::Unknown) => Cell::Text(format!("{owner}?").into()),
        (holder, ..) => holder,
    }
}

/// Returns the task and the start of the hold that the wait began in.
const fn holder(wait: &Wait) -> Option<(i32, i64)> {
    match wait.charge {
        Charge::Hold { task, start_ns } => Some((task.0, start_ns)),
        Charge::Gap | Charge::Unknown => None,
    }
}

const fn charge(wait: &Wait) -> &'static str {
    match wait.charge {
        Charge::Hold { .. } => "hold",
        Charge::Gap => "gap",
        Charge::Unknown => "unknown",
    }
}

pub(super) fn row(wait: &Wait, rows: &mut Rows<'_>) -> Row<Wait> {
    let holder = match wait.charge {
        Charge::Hold { task, .. } => Some(task),
        Charge::Gap | Charge::Unknown => None,
    };
    let peers = [holder, wait.owner, wait.waker];
    let mut row = rows.row(*wait, Some(wait.lock), Some(wait.task), peers, wait.stack);
    row.purpose = Some(rows.purpose(wait.lock, wait.stack));
    row
}
