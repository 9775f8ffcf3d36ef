//! The string table of a profile: each text once, the empty one first.

use rustc_hash::FxHashMap;

/// The table so far.
#[derive(Debug)]
pub(super) struct Strings {
    all: Vec<String>,
    known: FxHashMap<String, i64>,
}

impl Default for Strings {
    fn default() -> Self {
        Self { all: vec![String::new()], known: FxHashMap::from_iter([(String::new(), 0)]) }
    }
}

impl Strings {
    /// Returns the index of a text, and adds it if it is new.
    pub(super) fn number(&mut self, text: &str) -> i64 {
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
    pub(super) fn text(&self, number: i64) -> &str {
        usize::try_from(number).ok().and_then(|at| self.all.get(at)).map_or("", String::as_str)
    }

    pub(super) fn table(self) -> Vec<String> {
        self.all
    }
}
