//! The columns of each kind of rows, with the names of the fields of events, waits and holds.

use super::row::{Row, RowKind};
use crate::held::HELD;
use intervals::{input::names::purposes::Purpose, items::Charge};
use output::{
    Column, Field, Kind,
    column::{Visibility, select, sort_key},
    error::AnalyzeError,
    layout::TextStyle,
};

/// The least width of a terminal that shows when each of the longest intervals began.
const WIDE: usize = 100;

type Of = Column<Row>;

/// Returns the default columns as the formats see them. Rows of several traces start with their trace.
pub fn fields(what: RowKind, several: bool) -> Vec<Field> {
    let shown = all(what, several).into_iter().filter(|column| column.visibility != Visibility::OnRequest);
    shown.map(|column| column.field).collect()
}

/// Returns the columns as the formats see them: the `chosen` ones, or the default ones. Rows of several
/// traces start with their trace. The heading of the column that rows are sorted by has a mark on a terminal.
///
/// # Errors
///
/// A chosen word is not a column, or rows cannot be sorted by `sort`.
pub fn chosen_fields(
    what: RowKind,
    several: bool,
    chosen: &[String],
    sort: Option<&str>,
    style: TextStyle,
) -> Result<Vec<Field>, AnalyzeError> {
    let all = all(what, several);
    let key = sort.map(|word| sort_key(&all, word)).transpose()?;
    // On a narrow terminal, names need the room more than the times of rows that are not in the order of
    // time.
    let is_narrow = style.is_terminal && !style.full && style.width.is_some_and(|width| width < WIDE);
    let leaves_out_times = is_narrow && chosen.is_empty();
    let field = |column: Of| {
        let key = key.map(|key| (key, key.field.name == column.field.name));
        let order = key.filter(|(_, is_it)| *is_it).and_then(|(key, _)| key.order);
        let is_other_time =
            key.is_some_and(|(_, is_it)| !is_it) && column.field.kind == Kind::Timestamp && leaves_out_times;
        let heading = style.heading(&column.field.heading, order).into();
        Field { heading, is_shown: column.field.is_shown && !is_other_time, ..column.field }
    };
    Ok(self::chosen(all.clone(), chosen)?.into_iter().map(field).collect())
}

/// Returns the columns to write, in their order: all, or the chosen ones.
pub(super) fn chosen(all: Vec<Of>, chosen: &[String]) -> Result<Vec<Of>, AnalyzeError> {
    if chosen.is_empty() {
        return select(all, chosen);
    }
    let with_width = |column: Of| match (column.field.width, column.field.kind.is_text()) {
        ((0, 0), true) => column.width(8, 24),
        ((0, 0), false) => column.width(8, 12),
        _ => column,
    };
    Ok(select(all, chosen)?.into_iter().map(with_width).collect())
}

/// Returns the list of columns for `--help`.
pub fn help(what: RowKind) -> String {
    output::help(&all(what, false), true)
}

/// Declares the columns of a kind of rows; rows of several traces start with their trace.
pub(super) fn all(what: RowKind, several: bool) -> Vec<Of> {
    let mut columns = Vec::new();
    if several {
        columns.push(Of::text("trace", |row| (&row.trace.label).into(), "The trace.").width(8, 12));
        let host = Of::text("host", |row| row.trace.host.as_deref().into(), "The machine of the trace.");
        columns.push(host.programs());
    }
    match what {
        RowKind::Events => add_events(&mut columns),
        RowKind::Waits => add_waits(&mut columns),
        RowKind::Holds => add_holds(&mut columns),
    }
    columns
}

/// Declares the columns of `klock events`.
fn add_events(columns: &mut Vec<Of>) {
    let time = |row: &Row| row.event(|event| row.since_start(event.ts_ns));
    columns.extend([
        Of::timestamp("time", time, "Time since the start of the trace.").ascending().width(12, 12),
        Of::text("event", |row| row.event(|e| e.kind.as_str()), "Kind of the event.").width(8, 8),
        Of::text("mode", |row| row.event(|e| Some(e.mode?.as_str())), "Mode of the lock.").programs(),
        Of::duration("wait", |row| row.event(|e| e.wait_ns), "Length of the wait that the event ends.")
            .width(7, 7),
    ]);
    add_task_and_lock(columns);
    let of_programs = [
        Of::count("cpu", |row| row.event(|e| e.cpu), "CPU."),
        Of::count("stack_id", |row| row.event(|e| Some(e.stack?.0)), "Id of the stack."),
        Of::duration("blocked", |row| row.event(|e| e.blocked_ns), "Part of the wait spent asleep."),
        Of::duration("runq", |row| row.event(|e| e.runq_ns), "Part of the wait spent in the run queue."),
        Of::count("peer_task_id", |row| row.event(|e| Some(e.peer_task?.0)), "Id of the other task."),
        Of::text("peer", |row| row.peer(0), "The other task: a waker, or the owner by the lock word."),
        Of::count("peer_stack_id", |row| row.event(|e| Some(e.peer_stack?.0)), "Id of its stack."),
        Of::count("errno", |row| row.event(|e| e.errno), "Error of the call."),
        Of::count("count", |row| row.event(|e| e.count), "Number of lost events."),
        Of::text("state", |row| row.event(|e| Some(e.state?.as_str())), "State of a task that is off-CPU."),
        Of::text(
            "call",
            |row| row.event(|e| Some(e.call?.as_str())),
            "Kind of the call: `try` does not wait, `timed` gives up at some time.",
        ),
        Of::text(
            "syscall",
            |row| row.event(|e| Some(e.syscall?.to_string())),
            "System call in which a task left the CPU; `-` if in none.",
        ),
    ];
    columns.extend(of_programs.map(Of::programs));
    columns.push(site("Site of the call."));
}

/// Declares the columns of `klock waits`.
fn add_waits(columns: &mut Vec<Of>) {
    let start = |row: &Row| row.wait(|wait| row.since_start(wait.start_ns));
    let end = |row: &Row| row.wait(|wait| row.since_start(wait.end_ns));
    columns.extend([
        Of::timestamp("start", start, "Start since the start of the trace.")
            .heading("begin")
            .ascending()
            .width(12, 12),
        Of::timestamp("end", end, "End since the start of the trace.").programs(),
        Of::duration("wait", |row| row.wait(|w| w.wait_ns), "Length.").width(7, 7),
    ]);
    let of_programs = [
        Of::text(
            "outcome",
            |row| row.wait(|w| w.outcome.as_str()),
            "acquired, abandoned, open (at the end) or cut (by loss).",
        ),
        Of::count(
            "errno",
            |row| row.wait(|w| w.outcome.errno()),
            "Error of a wait that ended without the lock.",
        ),
        Of::text("mode", |row| row.wait(|w| w.mode.as_str()), "Mode in which the lock was waited for."),
        Of::duration("gap", |row| row.wait(|w| w.gap_ns), "Part during which no other task's hold was open."),
        Of::duration("blocked", |row| row.wait(|w| w.blocked_ns), "Part spent asleep."),
        Of::duration("runq", |row| row.wait(|w| w.runq_ns), "Part spent in the run queue."),
    ];
    columns.extend(of_programs.map(Of::programs));
    add_task_and_lock(columns);
    let began_in = |charge| match charge {
        Charge::Hold { .. } => "hold",
        Charge::Gap => "gap",
        Charge::Unknown => "unknown",
    };
    let hold_start = |row: &Row| row.wait(|wait| Some(row.since_start(wait.holder()?.1)));
    columns.extend([
        Of::text(
            "began_in",
            move |row| row.wait(|wait| began_in(wait.charge)),
            "hold, gap (nobody had the lock), or unknown (holds are not recorded).",
        )
        .programs(),
        Of::count(
            "holder_task_id",
            |row| row.wait(|w| Some(w.holder()?.0.0)),
            "Id of the holder at the start.",
        )
        .programs(),
        Of::text(
            "holder",
            Row::holder_or_owner,
            "The holder at the start. With ?, the owner by the lock word.",
        )
        .width(10, 20),
    ]);
    let of_programs = [
        Of::timestamp("hold_start", hold_start, "Start of its hold."),
        Of::count("owner_task_id", |row| row.wait(|w| Some(w.owner?.0)), "Id of the owner by the lock word."),
        Of::text("owner", |row| row.peer(1), "The owner by the lock word."),
        Of::count("waker_task_id", |row| row.wait(|w| Some(w.waker?.0)), "Id of the waker."),
        Of::text("waker", |row| row.peer(2), "The task that ended the sleep."),
        Of::count("waker_stack_id", |row| row.wait(|w| Some(w.waker_stack?.0)), "Id of its stack."),
        Of::count("stack_id", |row| row.wait(|w| Some(w.stack?.0)), "Id of the stack."),
    ];
    columns.extend(of_programs.map(Of::programs));
    columns.push(site("Site of the wait.").heading("waited at").width(9, 9));
    let purpose = Of::text("purpose", |row| row.purpose.map(Purpose::as_str).into(), "Purpose of the wait.");
    columns.push(purpose.programs());
}

/// Declares the columns of `klock holds`.
fn add_holds(columns: &mut Vec<Of>) {
    let start = |row: &Row| row.hold(|hold| row.since_start(hold.start_ns));
    let end = |row: &Row| row.held(|hold| row.since_start(hold.end_ns));
    let length = |row: &Row| row.held(|h| h.end_ns.saturating_sub(h.start_ns));
    columns.extend([
        Of::timestamp("start", start, "Start since the start of the trace.")
            .heading("begin")
            .ascending()
            .width(12, 12),
        Of::timestamp("end", end, "End since the start of the trace.").programs(),
        Of::duration("hold", length, "Length.").width(7, 7),
        Of::duration("wait", |row| row.hold(|h| h.wait_ns), "Length of the wait before it.").width(7, 7),
    ]);
    let of_programs = [
        Of::text(
            "state",
            |row| row.hold(|h| h.state.as_str()),
            "complete, acquisition (holds are not recorded), open (at the end), cut (by loss), release_unseen or backwards.",
        ),
        Of::text("mode", |row| row.hold(|h| h.mode.as_str()), "Mode in which the lock was held."),
        Of::count("contended", |row| row.hold(|h| h.contended), "1 if its task had to wait."),
        Of::duration(
            "gap",
            |row| row.hold(|h| h.gap_ns),
            "Part of the wait during which no other task's hold was open.",
        ),
        Of::duration("blocked", |row| row.hold(|h| h.blocked_ns), "Part of the wait spent asleep."),
        Of::duration("runq", |row| row.hold(|h| h.runq_ns), "Part of the wait spent in the run queue."),
        Of::count("waits_begun", |row| row.held(|h| h.waits_begun), "Waits of others that began in it."),
    ];
    columns.extend(of_programs.map(Of::programs));
    columns.push(
        Of::duration("wait_caused", |row| row.held(|h| h.wait_caused_ns), "Time that others waited for it.")
            .heading("caused")
            .width(7, 7),
    );
    let of_programs = [
        Of::count(
            "max_waiters",
            |row| row.held(|h| h.max_waiters),
            "The most tasks that waited at one time.",
        ),
        Of::count(
            "owner_changed",
            |row| row.held(|h| h.owner_changed),
            "1 if another task held the lock before.",
        ),
        Of::count("acquisitions", |row| row.hold(|h| h.acquisitions), "Acquisitions in it."),
        Of::count("recursions", |row| row.hold(|h| h.recursions), "Acquisitions by its own task."),
    ];
    columns.extend(of_programs.map(Of::programs));
    let state = |(at, (word, doc))| Of::duration(word, move |row: &Row| row.state(at), doc).on_request();
    columns.extend(HELD.into_iter().enumerate().map(state));
    add_task_and_lock(columns);
    let of_programs = [
        Of::count(
            "released_by_task_id",
            |row| row.hold(|h| Some(h.released_by?.0)),
            "Id of the task that released it.",
        ),
        Of::text("released_by", |row| row.peer(0), "The task that released it, if it was another one."),
        Of::count("stack_id", |row| row.hold(|h| Some(h.stack?.0)), "Id of the stack."),
    ];
    columns.extend(of_programs.map(Of::programs));
    columns.push(site("Site of the acquisition."));
}

fn add_task_and_lock(columns: &mut Vec<Of>) {
    columns.extend([
        Of::count("task_id", |row| Some(row.task.as_ref()?.id), "Id of the task.").programs(),
        Of::count("pid", |row| Some(row.task.as_ref()?.pid), "Process id.").programs(),
        Of::count("tid", |row| Some(row.task.as_ref()?.tid), "Thread id.").programs(),
        Of::text(
            "comm",
            |row| row.task.as_ref().and_then(|task| task.comm.as_deref()).into(),
            "Name of the thread.",
        )
        .programs(),
        Of::text(
            "task",
            |row| row.task.as_ref().map(|task| task.label.as_str()).into(),
            "Name and id of the thread.",
        )
        .width(12, 20),
        Of::count("lock_id", |row| Some(row.lock.as_ref()?.id), "Id of the lock.").programs(),
        Of::text(
            "lock",
            |row| row.lock.as_ref().map(|lock| lock.label.as_str()).into(),
            "Name or address of the lock.",
        )
        .width(12, 28),
        Of::text("lock_kind", |row| row.lock.as_ref().and_then(|lock| lock.kind).into(), "Kind of the lock.")
            .programs(),
    ]);
}

/// Declares the column of the site, the last one of text.
fn site(doc: &'static str) -> Of {
    let site = Of::text("site", |row| row.site.as_deref().into(), doc);
    site.kind(Kind::Site).heading("at").width(8, 8)
}
