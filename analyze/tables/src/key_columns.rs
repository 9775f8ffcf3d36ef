//! The columns that identify the key of a row.

use trace_format::LockKind;

use crate::key::{By, Key};
use intervals::input::names::printable;
use output::{Cell, Column, Kind};

/// Returns the columns of a key, their names with this prefix. A column that a row's key does not have is empty there.
pub fn key_columns<R>(
    by: By,
    prefix: &str,
    key: impl for<'r> Fn(&'r R) -> Option<&'r Key> + Clone + 'static,
) -> impl Iterator<Item = Column<R>> {
    Key::column_names(by).iter().map(move |part| {
        let key = key.clone();
        let column = Column::text(
            format!("{prefix}{part}"),
            move |row| key(row).map_or(Cell::Null, |key| cell(key, part)),
            "",
        );
        let is_number = matches!(*part, "lock_id" | "pid" | "tid" | "task_id" | "line");
        let column = if is_number { column.kind(Kind::Count) } else { column };
        column.identity()
    })
}

/// The name of the column that [`cut_column`] declares.
pub(crate) const CUT_BY_LOSS: &str = "cut_by_loss";

/// Declares the column of what loss kept out of a row. Text marks the rows in which it is not 0.
pub fn cut_column<R>(cut: impl Fn(&R) -> u64 + 'static) -> Column<R> {
    let doc = "Holds and waits in no column, because events were lost while they lasted.";
    Column::count(CUT_BY_LOSS, cut, doc).identity()
}

/// Declares the column of the trace that a row belongs to, which only rows of several traces have.
pub fn trace_column<R>(
    several: bool,
    trace: impl for<'r> Fn(&'r R) -> Option<&'r str> + 'static,
) -> Option<Column<R>> {
    let doc = "The trace of a row that belongs to one.";
    several.then(|| Column::text("trace", move |row| trace(row).into(), doc).identity())
}

/// Returns a part of the key, by the name of its column.
fn cell<'k>(key: &'k Key, part: &str) -> Cell<'k> {
    use Key::{Cgroup, Class, Comm, Host, Lock, Process, Site, Stack, Task, TaskLock};
    match (part, key) {
        ("lock_id", Lock { lock_id, .. } | TaskLock { lock_id, .. }) => (*lock_id).into(),
        ("task_id", Task { task_id, .. } | TaskLock { task_id, .. }) => (*task_id).into(),
        ("pid", Lock { pid, .. } | Task { pid, .. } | TaskLock { pid, .. } | Process { pid, .. }) => {
            (*pid).into()
        }
        ("tid", Task { tid, .. } | TaskLock { tid, .. }) => (*tid).into(),
        ("line", Site { line, .. }) => (*line).into(),
        ("place", Site { place, .. }) => place.into(),
        ("address", Lock { address, .. } | TaskLock { address, .. }) => text(address),
        ("file", Site { file, .. }) => text(file),
        ("function", Site { function, .. }) => text(function),
        (
            "kind",
            Lock { kind, .. }
            | Site { kind, .. }
            | Class { kind, .. }
            | Key::Kind { kind }
            | TaskLock { kind, .. }
            | Stack { kind, .. },
        ) => kind.map(LockKind::as_str).into(),
        (
            "lock_name",
            Site { lock_name, .. }
            | Class { lock_name, .. }
            | TaskLock { lock_name, .. }
            | Stack { lock_name, .. },
        ) => text(lock_name),
        ("comm", Task { comm, .. } | TaskLock { comm, .. } | Process { comm, .. } | Comm { comm }) => {
            text(comm)
        }
        ("stack", Stack { stack, .. }) | ("init_stack", TaskLock { init_stack: stack, .. }) => folded(stack),
        ("purpose", Key::Purpose { purpose }) => purpose.as_str().into(),
        ("cgroup", Cgroup { cgroup: name }) | ("host", Host { host: name }) => text(name),
        _ => Cell::Null,
    }
}

fn text(text: &Option<String>) -> Cell<'_> {
    match text.as_deref() {
        None | Some("") => Cell::Null,
        Some(text) => Cell::Text(printable(text)),
    }
}

/// Returns a stack in one cell, frames separated by semicolons. A semicolon in a symbol would be another frame.
pub(crate) fn folded(stack: &[String]) -> Cell<'static> {
    if stack.is_empty() {
        return Cell::Null;
    }
    let frames: Vec<String> = stack.iter().map(|frame| frame.replace(';', ":")).collect();
    printable(&frames.join(";")).into_owned().into()
}
