//! Numbers for texts, for formats that refer to a text by its index in a table.

use rustc_hash::FxHashMap;

/// Texts by index, each once.
#[derive(Debug, Default)]
pub(crate) struct Strings {
    all: Vec<String>,
    known: FxHashMap<String, i64>,
}

impl Strings {
    /// Returns the index of a text, and adds it if it is new.
    pub(crate) fn number(&mut self, text: &str) -> i64 {
        if let Some(number) = self.known.get(text) {
            return *number;
        }
        // Memory ends before this number does.
        let number = i64::try_from(self.all.len()).unwrap_or(0);
        self.all.push(text.to_owned());
        self.known.insert(text.to_owned(), number);
        number
    }

    /// Returns the text at an index.
    pub(crate) fn text(&self, number: i64) -> &str {
        usize::try_from(number).ok().and_then(|at| self.all.get(at)).map_or("", String::as_str)
    }

    pub(crate) fn table(self) -> Vec<String> {
        self.all
    }
}
