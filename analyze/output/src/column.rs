//! The declaration of a table's columns.
//!
//! A table lists its columns once. Every format, `-F`, `-k`, the list of columns in `--help` and the table in
//! the docs are made from that list. A new column is one more entry.

use std::{borrow::Cow, cmp::Ordering, rc::Rc};

use super::{Cell, Kind};
use crate::error::AnalyzeError;

/// A column as the formats see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name for programs, with its unit.
    pub name: Cow<'static, str>,
    /// The heading for people.
    pub heading: Cow<'static, str>,
    /// The kind of its values.
    pub kind: Kind,
    /// Whether people see it.
    pub is_shown: bool,
    /// The least and the greatest width in text that is written as it is read.
    pub width: (usize, usize),
}

/// The part that a column plays in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A value, which `-F` chooses.
    Value,
    /// The name of the row: the last column of text.
    Name,
    /// A part of the row's identity, or a mark. Programs always get it, people do not see it.
    Identity,
}

/// The readers that see a value without asking for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// People and programs.
    Always,
    /// Programs; people with `-F`.
    Programs,
    /// No reader without `-F` or `-k`: such a column costs a second pass over the trace.
    OnRequest,
}

/// The way the values of two rows become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// Their sum. Only such columns have a part of all rows.
    Sum,
    /// The greatest.
    Max,
    /// The smallest.
    Min,
}

impl Merge {
    /// Merges two values.
    pub fn of(self, one: i64, other: i64) -> i64 {
        match self {
            Self::Sum => one.saturating_add(other),
            Self::Max => one.max(other),
            Self::Min => one.min(other),
        }
    }
}

/// The order in which rows are sorted by a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The greatest first, rows without a value last.
    Descending,
    /// The smallest first.
    Ascending,
}

impl Order {
    /// Compares two values; unknown ones come last.
    pub fn compare(self, one: &Cell<'_>, other: &Cell<'_>) -> Ordering {
        let ascending = match (one, other) {
            (Cell::Int(one), Cell::Int(other)) => one.cmp(other),
            (Cell::Text(one), Cell::Text(other)) => one.cmp(other),
            (one, other) => return (*one == Cell::Null).cmp(&(*other == Cell::Null)),
        };
        if self == Self::Ascending { ascending } else { ascending.reverse() }
    }
}

type Getter<R> = Rc<dyn for<'r> Fn(&'r R) -> Cell<'r>>;

/// A column of a table whose rows are `R`.
pub struct Column<R> {
    /// The column as the formats see it.
    pub field: Field,
    /// The part it plays.
    pub role: Role,
    /// The readers that see it by default.
    pub visibility: Visibility,
    /// The way two rows become one; `None` if the value is computed from others.
    pub merge: Option<Merge>,
    /// The order of rows that are sorted by it; `None` if `-k` does not take it.
    pub order: Option<Order>,
    /// A sentence for `--help` and the docs.
    pub doc: &'static str,
    get: Getter<R>,
}

impl<R> Clone for Column<R> {
    fn clone(&self) -> Self {
        let Self { field, role, visibility, merge, order, doc, get } = self;
        let (field, get) = (field.clone(), Rc::clone(get));
        Self { field, role: *role, visibility: *visibility, merge: *merge, order: *order, doc, get }
    }
}

impl<R> std::fmt::Debug for Column<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Column").field("field", &self.field).field("doc", &self.doc).finish_non_exhaustive()
    }
}

impl<R> Column<R> {
    /// A column of any kind. Its heading is `word`; its name is the same with the kind's unit.
    pub fn new(
        word: impl Into<Cow<'static, str>>,
        kind: Kind,
        get: impl for<'r> Fn(&'r R) -> Cell<'r> + 'static,
        doc: &'static str,
    ) -> Self {
        let heading = word.into();
        let name = match kind.suffix() {
            "" => heading.clone(),
            suffix => Cow::Owned(format!("{heading}{suffix}")),
        };
        Self {
            field: Field { name, heading, kind, is_shown: true, width: (0, 0) },
            role: Role::Value,
            visibility: Visibility::Always,
            merge: None,
            order: (!kind.is_text()).then_some(Order::Descending),
            doc,
            get: Rc::new(get),
        }
    }

    fn number<N: Into<Cell<'static>>>(
        word: &'static str,
        kind: Kind,
        get: impl Fn(&R) -> N + 'static,
        doc: &'static str,
    ) -> Self {
        Self::new(word, kind, move |row| get(row).into(), doc)
    }

    /// A time in ns, shown in a unit that fits.
    pub fn duration<N: Into<Cell<'static>>>(
        word: &'static str,
        get: impl Fn(&R) -> N + 'static,
        doc: &'static str,
    ) -> Self {
        Self::number(word, Kind::Duration, get, doc)
    }

    /// A point in time, in ns since a start.
    pub fn timestamp<N: Into<Cell<'static>>>(
        word: &'static str,
        get: impl Fn(&R) -> N + 'static,
        doc: &'static str,
    ) -> Self {
        Self::number(word, Kind::Timestamp, get, doc)
    }

    /// A number of things.
    pub fn count<N: Into<Cell<'static>>>(
        word: &'static str,
        get: impl Fn(&R) -> N + 'static,
        doc: &'static str,
    ) -> Self {
        Self::number(word, Kind::Count, get, doc)
    }

    /// A part in millionths, shown as percent.
    pub fn ppm<N: Into<Cell<'static>>>(
        word: &'static str,
        get: impl Fn(&R) -> N + 'static,
        doc: &'static str,
    ) -> Self {
        Self::number(word, Kind::Ppm, get, doc)
    }

    /// A text.
    pub fn text(
        word: impl Into<Cow<'static, str>>,
        get: impl for<'r> Fn(&'r R) -> Cell<'r> + 'static,
        doc: &'static str,
    ) -> Self {
        Self::new(word, Kind::Text, get, doc)
    }

    /// The name of the row, below a heading that depends on the table.
    pub fn name(
        heading: impl Into<Cow<'static, str>>,
        get: impl for<'r> Fn(&'r R) -> Cell<'r> + 'static,
    ) -> Self {
        Self::text("name", get, "The name of the row.").row_name().heading(heading)
    }

    /// Makes the column the name of the row.
    #[must_use]
    pub fn row_name(self) -> Self {
        Self { role: Role::Name, order: Some(Order::Ascending), ..self }
    }

    /// Sets the kind; the name keeps its unit.
    #[must_use]
    pub fn kind(mut self, kind: Kind) -> Self {
        self.field.kind = kind;
        self
    }

    /// Sets the heading for people.
    #[must_use]
    pub fn heading(mut self, heading: impl Into<Cow<'static, str>>) -> Self {
        self.field.heading = heading.into();
        self
    }

    /// Sets the width in text that is written as it is read.
    #[must_use]
    pub fn width(mut self, least: usize, greatest: usize) -> Self {
        self.field.width = (least, greatest);
        self
    }

    /// Shows the column to people only if they ask for it.
    #[must_use]
    pub fn programs(mut self) -> Self {
        self.field.is_shown = false;
        Self { visibility: Visibility::Programs, ..self }
    }

    /// Computes and shows the column only on request.
    #[must_use]
    pub fn on_request(mut self) -> Self {
        self.field.is_shown = false;
        Self { visibility: Visibility::OnRequest, ..self }
    }

    /// Makes the column a part of the row's identity.
    #[must_use]
    pub fn identity(self) -> Self {
        Self { role: Role::Identity, order: None, ..self.programs() }
    }

    /// Sorts rows by this column upwards.
    #[must_use]
    pub fn ascending(self) -> Self {
        Self { order: Some(Order::Ascending), ..self }
    }

    /// Excludes the column from the sort keys.
    #[must_use]
    pub fn not_sortable(self) -> Self {
        Self { order: None, ..self }
    }

    /// Sets how two rows become one.
    #[must_use]
    pub fn merge(self, merge: Merge) -> Self {
        Self { merge: Some(merge), ..self }
    }

    /// Adds the values of two rows.
    #[must_use]
    pub fn sum(self) -> Self {
        self.merge(Merge::Sum)
    }

    /// Returns the row's value.
    pub fn cell<'r>(&self, row: &'r R) -> Cell<'r> {
        (self.get)(row)
    }

    /// Returns the row's value as people see it.
    pub fn show(&self, row: &R) -> String {
        self.cell(row).show(self.field.kind)
    }

    /// Compares two rows in the order of this column.
    pub fn compare(&self, a: &R, b: &R) -> Ordering {
        self.order.unwrap_or(Order::Descending).compare(&self.cell(a), &self.cell(b))
    }

    /// Returns the word by which the column is chosen: its heading, or for the row's name `name`.
    pub fn word(&self) -> &str {
        if self.role == Role::Name { &self.field.name } else { &self.field.heading }
    }

    /// Returns whether `word` is the column's heading or name.
    pub fn is_called(&self, word: &str) -> bool {
        self.field.heading == word || self.field.name == word
    }
}

/// Returns the columns to write: the default ones, or the `chosen` ones in their order, each followed by the
/// row's name and identity.
///
/// # Errors
///
/// A word is not a column.
pub fn select<R>(columns: Vec<Column<R>>, chosen: &[String]) -> Result<Vec<Column<R>>, AnalyzeError> {
    if chosen.is_empty() {
        return Ok(columns.into_iter().filter(|column| column.visibility != Visibility::OnRequest).collect());
    }
    let mut selected = Vec::new();
    for word in chosen {
        let column = find(&columns, word)?;
        if column.role == Role::Value {
            let mut column = column.clone();
            column.field.is_shown = true;
            selected.push(column);
        }
    }
    selected.extend(columns.into_iter().filter(|column| column.role != Role::Value));
    Ok(selected)
}

/// Returns the column that is called `word`.
///
/// # Errors
///
/// There is none; the error lists the columns.
pub fn find<'c, R>(columns: &'c [Column<R>], word: &str) -> Result<&'c Column<R>, AnalyzeError> {
    let known = || columns.iter().filter(|column| column.role != Role::Identity);
    let unknown = || AnalyzeError::not_among("column", word, &known().map(Column::word).collect::<Vec<_>>());
    columns.iter().find(|column| column.is_called(word)).ok_or_else(unknown)
}

/// Returns the column that rows are sorted by, if `word` is one of the sort keys.
///
/// # Errors
///
/// It is not; the error lists the sort keys.
pub fn sort_key<'c, R>(columns: &'c [Column<R>], word: &str) -> Result<&'c Column<R>, AnalyzeError> {
    let keys = || columns.iter().filter(|column| column.order.is_some());
    let unknown = || AnalyzeError::not_among("sort key", word, &keys().map(Column::word).collect::<Vec<_>>());
    keys().find(|column| column.is_called(word)).ok_or_else(unknown)
}
