//! The string table of a profile: each text once, by its place; the first is the empty one.

use rustc_hash::FxHashMap;

/// The table while it grows.
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
    /// The place of the text.
    pub(super) fn number(&mut self, text: &str) -> i64 {
        if let Some(number) = self.known.get(text) {
            return *number;
        }
        // There is no memory for more texts than that.
        let number = i64::try_from(self.all.len()).unwrap_or(0);
        self.all.push(text.to_owned());
        self.known.insert(text.to_owned(), number);
        number
    }

    /// The text at a place.
    pub(super) fn text(&self, number: i64) -> &str {
        usize::try_from(number).ok().and_then(|at| self.all.get(at)).map_or("", String::as_str)
    }

    pub(super) fn table(self) -> Vec<String> {
        self.all
    }
}
