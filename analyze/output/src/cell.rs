//! A value of a table, the kinds of values, and how people see them.

use std::borrow::Cow;

use super::units;

use crate::error::AnalyzeError;

/// The kind of a column's values. It decides the unit in text and Markdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Text,
    /// A location in the code, shown without the directories of its file.
    Site,
    /// Nanoseconds since a start, shown as seconds with every digit.
    Timestamp,
    /// The start of a period in nanoseconds, shown as seconds with whole microseconds: `0.050000 s`.
    PeriodStart,
    /// Nanoseconds, shown in a unit that fits.
    Duration,
    /// A number of things.
    Count,
    /// Millionths, shown as percent: `12.3 %`.
    Ppm,
    /// Millionths below a heading that has the percent sign: `12.3`.
    Percent,
}

impl Kind {
    /// Returns whether the values are text, not whole numbers.
    pub const fn is_text(self) -> bool {
        matches!(self, Self::Text | Self::Site)
    }

    /// Returns the unit at the end of a column's name.
    pub const fn suffix(self) -> &'static str {
        self.words()[0]
    }

    /// Returns the unit at the end of a column's name, the word for its values in help texts, and the values
    /// that a condition takes.
    pub(super) const fn words(self) -> [&'static str; 3] {
        match self {
            Self::Text | Self::Site => ["", "text", "a text"],
            Self::Timestamp | Self::PeriodStart | Self::Duration => {
                ["_ns", "time", "a time such as 500us, 5ms or 2s"]
            }
            Self::Count => ["", "count", "a number such as 100 or 5k"],
            Self::Ppm | Self::Percent => ["_ppm", "percent", "a share such as 12.5%"],
        }
    }
}

/// One value. Text must be safe to print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell<'a> {
    /// Not measured, or not applicable.
    Null,
    /// A whole number.
    Int(i64),
    Text(Cow<'a, str>),
}

impl Cell<'_> {
    /// Returns the value as people see it.
    pub(super) fn show(&self, kind: Kind) -> String {
        match (self, kind) {
            (Cell::Null, kind) if kind.is_text() => String::new(),
            (Cell::Null, _) => "-".to_owned(),
            (Cell::Text(text), Kind::Site) => without_directories(text).to_owned(),
            (Cell::Text(text), _) => text.clone().into_owned(),
            (Cell::Int(n), Kind::Timestamp) => units::timestamp(*n),
            (Cell::Int(n), Kind::PeriodStart) => {
                format!("{} s", units::timestamp(n / 1000 * 1000).trim_end_matches("000"))
            }
            (Cell::Int(n), Kind::Duration) => units::duration(*n),
            (Cell::Int(n), Kind::Ppm) => format!("{:.1} %", *n as f64 / 1e4),
            (Cell::Int(n), Kind::Percent) => format!("{:.1}", *n as f64 / 1e4),
            (Cell::Int(n), Kind::Count | Kind::Text | Kind::Site) => units::count(*n),
        }
    }
}

impl<'a> From<&'a str> for Cell<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl<'a> From<&'a String> for Cell<'a> {
    fn from(text: &'a String) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl From<String> for Cell<'_> {
    fn from(text: String) -> Self {
        Self::Text(Cow::Owned(text))
    }
}

impl From<i64> for Cell<'_> {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<i32> for Cell<'_> {
    fn from(number: i32) -> Self {
        Self::Int(i64::from(number))
    }
}

impl From<u64> for Cell<'_> {
    fn from(number: u64) -> Self {
        Self::Int(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<bool> for Cell<'_> {
    fn from(flag: bool) -> Self {
        Self::Int(i64::from(flag))
    }
}

impl<T: Into<Self>> From<Option<T>> for Cell<'_> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Cell::Null, Into::into)
    }
}

/// Returns `/home/me/app/src/main.rs:7 (run)` from `main.rs` on.
pub fn without_directories(site: &str) -> &str {
    let file = site.split(' ').next().unwrap_or(site);
    // Only a file with a line, `7` or the near line `7?`, has directories: a function's name may hold any
    // sign.
    let is_line = |line: &str| line.strip_suffix('?').unwrap_or(line).parse::<u32>().is_ok();
    let has_line = file.rsplit_once(':').is_some_and(|(_, line)| is_line(line));
    match file.rfind('/').filter(|_| has_line) {
        Some(at) => &site[at + 1..],
        None => site,
    }
}

/// Takes the rows of a table.
pub trait Rows {
    /// Adds a row: a cell for each field.
    ///
    /// # Errors
    ///
    /// [`AnalyzeError::Write`] with the error of the output.
    fn push(&mut self, cells: &[Cell<'_>]) -> Result<(), AnalyzeError>;

    /// Writes the end of the table.
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push).
    fn finish(&mut self) -> Result<(), AnalyzeError>;
}
