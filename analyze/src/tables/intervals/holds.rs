//! The columns of `klock analyze holds`, with the names of the fields of [`Hold`].

use super::row::{Row, Rows, site_column, task_and_lock_columns};
use crate::{
    engine::{Hold, HoldState},
    output::Column,
};

/// Declares the columns.
pub(super) fn columns() -> Vec<Column<Row<Hold>>> {
    type Of = Column<Row<Hold>>;
    let mut columns = vec![
        Of::timestamp(
            "start",
            |row| row.since_start(row.item.start_ns),
            "Start since the start of the trace.",
        )
        .heading("begin")
        .ascending()
        .width(12, 12),
        Of::timestamp(
            "end",
            |row| known(&row.item, row.since_start(row.item.end_ns)),
            "End since the start of the trace.",
        )
        .programs(),
        Of::duration(
            "hold",
            |row| known(&row.item, row.item.end_ns.saturating_sub(row.item.start_ns)),
            "Length.",
        )
        .width(7, 7),
        Of::duration("wait", |row| row.item.wait_ns, "Length of the wait before it.").width(7, 7),
        Of::text("state", |row| row.item.state.as_str().into(), "Which of its ends were seen.").programs(),
        Of::text("mode", |row| row.item.mode.as_str().into(), "Mode in which the lock was held.").programs(),
        Of::count("contended", |row| i64::from(row.item.contended), "1 if its task had to wait.").programs(),
        Of::duration(
            "gap",
            |row| row.item.gap_ns,
            "Part of the wait during which no other task's hold was open.",
        )
        .programs(),
        Of::duration("blocked", |row| row.item.blocked_ns, "Part of the wait spent asleep.").programs(),
        Of::duration("runq", |row| row.item.runq_ns, "Part of the wait spent in the run queue.").programs(),
        Of::count(
            "waits_begun",
            |row| known(&row.item, row.item.waits_begun),
            "Waits of others that began in it.",
        )
        .programs(),
        Of::duration(
            "wait_caused",
            |row| known(&row.item, row.item.wait_caused_ns),
            "Time that others waited for it.",
        )
        .heading("caused")
        .width(7, 7),
        Of::count(
            "max_waiters",
            |row| known(&row.item, row.item.max_waiters),
            "The most tasks that waited at one time.",
        )
        .programs(),
        Of::count(
            "owner_changed",
            |row| known(&row.item, i64::from(row.item.owner_changed)),
            "1 if another task held the lock before.",
        )
        .programs(),
        Of::count("acquisitions", |row| row.item.acquisitions, "Acquisitions in it.").programs(),
        Of::count("recursions", |row| row.item.recursions, "Acquisitions by its own task.").programs(),
    ];
    columns.extend(task_and_lock_columns());
    columns.extend([
        Of::count(
            "released_by_task_id",
            |row| row.item.released_by.map(|task| task.0),
            "Id of the task that released it.",
        )
        .programs(),
        Of::text("released_by", |row| row.peer(0), "The task that released it, if it was another one.")
            .programs(),
        Of::count("stack_id", |row| row.item.stack.map(|stack| stack.0), "Id of the stack.").programs(),
        site_column("Site of the acquisition."),
    ]);
    columns
}

/// Returns the value, or none for an acquisition without a recorded hold, of which neither length nor effect is known.
fn known(hold: &Hold, value: i64) -> Option<i64> {
    (hold.state != HoldState::AcquisitionOnly).then_some(value)
}

pub(super) fn row(hold: &Hold, rows: &mut Rows<'_>) -> Row<Hold> {
    rows.row(*hold, Some(hold.lock), Some(hold.task), [hold.released_by, None, None], hold.stack)
}
