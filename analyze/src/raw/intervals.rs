//! Holds and waits as rows. Times are since the begin of the trace; what they mean is told at the fields of
//! [`Hold`] and [`Wait`], whose names the columns have.

use super::labels::{Labels, lock_fields, task_fields};
use crate::{
    error::AnalyzeError,
    intervals::{Charge, Hold, HoldState, Outcome, Wait},
    rows::{Cell, Field, Rows, Value},
};

pub(super) fn wait_fields() -> Vec<Field> {
    let mut fields = vec![
        Field::number("start_ns").shown("begin", Value::Moment, (12, 12)),
        Field::number("end_ns"),
        Field::number("wait_ns").shown("wait", Value::Duration, (7, 7)),
        Field::text("outcome").shown("outcome", Value::Text, (9, 9)),
        Field::number("errno"),
        Field::text("mode"),
        Field::number("gap_ns"),
        Field::number("blocked_ns"),
        Field::number("runq_ns"),
    ];
    fields.extend(task_fields());
    fields.extend(lock_fields());
    fields.extend([
        Field::text("began_in"),
        Field::number("holder_task_id"),
        Field::text("holder"),
        Field::number("hold_start_ns"),
        Field::number("owner_task_id"),
        Field::text("owner"),
        Field::number("waker_task_id"),
        Field::text("waker"),
        Field::number("waker_stack_id"),
        Field::number("stack_id"),
        Field::text("site").shown("at", Value::Place, (8, 8)),
    ]);
    fields
}

pub(super) fn push_wait(
    wait: &Wait,
    labels: &mut Labels<'_>,
    rows: &mut dyn Rows,
) -> Result<(), AnalyzeError> {
    let (began_in, holder, hold_start_ns) = match wait.charge {
        Charge::Hold { task, start_ns } => ("hold", Some(task), Some(start_ns)),
        Charge::Gap => ("gap", None, None),
        Charge::Unknown => ("unknown", None, None),
    };
    let (outcome, errno) = match wait.outcome {
        Outcome::Acquired => ("acquired", None),
        Outcome::Abandoned(errno) => ("abandoned", errno),
        Outcome::OpenAtEnd => ("open", None),
        Outcome::CutByLoss => ("cut", None),
    };
    labels.make(Some(wait.lock), &[Some(wait.task), holder, wait.owner, wait.waker], wait.stack);
    let [lock_id, lock, kind] = labels.lock(Some(wait.lock));
    let [task_id, pid, tid, comm, task] = labels.task(Some(wait.task));
    rows.push(&[
        labels.moment(wait.start_ns),
        labels.moment(wait.end_ns),
        wait.wait_ns.into(),
        outcome.into(),
        errno.into(),
        wait.mode.as_str().into(),
        wait.gap_ns.into(),
        wait.blocked_ns.into(),
        wait.runq_ns.into(),
        task_id,
        pid,
        tid,
        comm,
        task,
        lock_id,
        lock,
        kind,
        began_in.into(),
        holder.map(|task| task.0).into(),
        labels.peer(holder),
        hold_start_ns.map_or(Cell::Null, |ns| labels.moment(ns)),
        wait.owner.map(|task| task.0).into(),
        labels.peer(wait.owner),
        wait.waker.map(|task| task.0).into(),
        labels.peer(wait.waker),
        wait.waker_stack.map(|stack| stack.0).into(),
        wait.stack.map(|stack| stack.0).into(),
        labels.place(Some(wait.lock), wait.stack),
    ])
}

pub(super) fn hold_fields() -> Vec<Field> {
    let mut fields = vec![
        Field::number("start_ns").shown("begin", Value::Moment, (12, 12)),
        Field::number("end_ns"),
        Field::number("hold_ns").shown("hold", Value::Duration, (7, 7)),
        Field::number("wait_ns").shown("wait", Value::Duration, (7, 7)),
        Field::text("state"),
        Field::text("mode"),
        Field::number("contended"),
        Field::number("gap_ns"),
        Field::number("blocked_ns"),
        Field::number("runq_ns"),
        Field::number("waits_begun"),
        Field::number("wait_caused_ns").shown("caused", Value::Duration, (7, 7)),
        Field::number("max_waiters"),
        Field::number("owner_changed"),
        Field::number("acquisitions"),
        Field::number("recursions"),
    ];
    fields.extend(task_fields());
    fields.extend(lock_fields());
    fields.extend([
        Field::number("released_by_task_id"),
        Field::text("released_by"),
        Field::number("stack_id"),
        Field::text("site").shown("at", Value::Place, (8, 8)),
    ]);
    fields
}

pub(super) fn push_hold(
    hold: &Hold,
    labels: &mut Labels<'_>,
    rows: &mut dyn Rows,
) -> Result<(), AnalyzeError> {
    let state = match hold.state {
        HoldState::Complete => "complete",
        HoldState::AcquisitionOnly => "acquisition",
        HoldState::OpenAtEnd => "open",
        HoldState::CutByLoss => "cut",
        HoldState::ReleaseUnseen => "release_unseen",
        HoldState::Backwards => "backwards",
    };
    labels.make(Some(hold.lock), &[Some(hold.task), hold.released_by], hold.stack);
    let [lock_id, lock, kind] = labels.lock(Some(hold.lock));
    let [task_id, pid, tid, comm, task] = labels.task(Some(hold.task));
    // An acquisition without a recorded hold has no length and caused nothing that is known.
    let measured = hold.state != HoldState::AcquisitionOnly;
    let known = |ns: i64| measured.then_some(ns);
    rows.push(&[
        labels.moment(hold.start_ns),
        known(hold.end_ns).map_or(Cell::Null, |ns| labels.moment(ns)),
        known(hold.end_ns.saturating_sub(hold.start_ns)).into(),
        hold.wait_ns.into(),
        state.into(),
        hold.mode.as_str().into(),
        i64::from(hold.contended).into(),
        hold.gap_ns.into(),
        hold.blocked_ns.into(),
        hold.runq_ns.into(),
        known(hold.waits_begun).into(),
        known(hold.wait_caused_ns).into(),
        known(hold.max_waiters).into(),
        known(i64::from(hold.owner_changed)).into(),
        hold.acquisitions.into(),
        hold.recursions.into(),
        task_id,
        pid,
        tid,
        comm,
        task,
        lock_id,
        lock,
        kind,
        hold.released_by.map(|task| task.0).into(),
        labels.peer(hold.released_by),
        hold.stack.map(|stack| stack.0).into(),
        labels.place(Some(hold.lock), hold.stack),
    ])
}
