//! The keys of rows: an interval of lock 3 leads with `--by site` to [`Single::Site`] in the ids of its
//! trace, and that to a [`Key`] with the columns `file`, `line` and so on.

use output::{Cell, Column, Kind};

mod dimension;
mod part;
mod row;

pub use dimension::{Ids, Single, Subject, stack_label, syscall_label};
pub(crate) use part::folded;
pub use part::{Key, Part};
pub use row::{By, RowKey};

/// Returns the columns of a key, their names with this prefix. A column that a row's key does not have is
/// empty there.
pub fn key_columns<R>(
    by: By,
    prefix: &str,
    key: impl for<'r> Fn(&'r R) -> Option<&'r Key> + Clone + 'static,
) -> impl Iterator<Item = Column<R>> {
    by.columns().into_iter().map(move |part| {
        let key = key.clone();
        let column = Column::text(
            format!("{prefix}{part}"),
            move |row| key(row).map_or(Cell::Null, |key| key.get(part).cell()),
            "",
        );
        let is_number = matches!(part, "lock_id" | "pid" | "tid" | "task_id" | "line");
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
