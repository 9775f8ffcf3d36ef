//! The key of a row with names, and its parts.

use serde::{Serialize, Serializer};
use trace_format::LockKind;

use intervals::{input::names::printable, input::names::purposes::Purpose};
use output::Cell;

/// A part of a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(untagged)]
pub enum Part {
    Null,
    Int(i32),
    Text(String),
    Kind(LockKind),
    Purpose(Purpose),
    /// The functions of a stack, the acquisition site's first.
    Stack(Vec<String>),
}

impl<T: Into<Self>> From<Option<T>> for Part {
    fn from(part: Option<T>) -> Self {
        part.map_or(Self::Null, Into::into)
    }
}

impl From<i32> for Part {
    fn from(number: i32) -> Self {
        Self::Int(number)
    }
}

impl From<String> for Part {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<LockKind> for Part {
    fn from(kind: LockKind) -> Self {
        Self::Kind(kind)
    }
}

/// The key of a row, with names: its parts under the names of their columns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(pub(super) Vec<(&'static str, Part)>);

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.parts().iter().map(|(name, part)| (name, part)))
    }
}

impl Key {
    /// Returns all parts, with the names of their columns.
    pub(crate) fn parts(&self) -> &[(&'static str, Part)] {
        &self.0
    }

    /// Returns the part in a column; null if the key has no such part.
    pub fn get(&self, column: &str) -> &Part {
        self.0.iter().find(|(name, _)| *name == column).map_or(&Part::Null, |(_, part)| part)
    }

    /// Returns the text in a column.
    pub fn text(&self, column: &str) -> Option<&str> {
        if let Part::Text(text) = self.get(column) { Some(text) } else { None }
    }

    /// Returns the number in a column.
    pub fn number(&self, column: &str) -> Option<i32> {
        if let Part::Int(number) = self.get(column) { Some(*number) } else { None }
    }

    /// Returns the kind of the locks.
    pub fn kind(&self) -> Option<LockKind> {
        if let Part::Kind(kind) = self.get("kind") { Some(*kind) } else { None }
    }
}

impl Part {
    /// Returns the part as programs see it. Frames of a stack are separated by semicolons.
    pub(crate) fn cell(&self) -> Cell<'_> {
        match self {
            Self::Null => Cell::Null,
            Self::Int(number) => (*number).into(),
            Self::Text(text) if text.is_empty() => Cell::Null,
            Self::Text(text) => Cell::Text(printable(text)),
            Self::Kind(kind) => kind.as_str().into(),
            Self::Purpose(purpose) => purpose.as_str().into(),
            Self::Stack(frames) => folded(frames),
        }
    }
}

/// Returns a stack in one cell, frames separated by semicolons. A semicolon in a symbol would be another
/// frame.
pub(crate) fn folded(stack: &[String]) -> Cell<'static> {
    if stack.is_empty() {
        return Cell::Null;
    }
    let frames: Vec<String> = stack.iter().map(|frame| frame.replace(';', ":")).collect();
    printable(&frames.join(";")).into_owned().into()
}
