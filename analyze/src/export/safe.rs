//! Text of a trace in formats that have no quoting of their own, or whose readers do more with text than show it.
//!
//! Names come from recorded programs and may hold anything; what leaves here can't end a row, forge a frame, move a terminal's
//! cursor or be taken for a formula.

use std::borrow::Cow;

use crate::names::printable;

/// A frame, or the name of a task, in a stack whose elements stand between semicolons.
pub(crate) fn folded(name: &str) -> Cow<'_, str> {
    match printable(name) {
        safe if safe.contains(';') => Cow::Owned(safe.replace(';', ":")),
        safe => safe,
    }
}

/// A cell of a table that people open as a spreadsheet: what would be a formula there becomes text.
pub(crate) fn cell(text: &str) -> Cow<'_, str> {
    match printable(text) {
        safe if safe.starts_with(['=', '+', '-', '@']) => Cow::Owned(format!("'{safe}")),
        safe => safe,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_forges_a_frame_a_row_or_a_formula() {
        assert_eq!(folded("a;b\nc\u{1b}"), "a:b\\u{a}c\\u{1b}");
        assert_eq!(folded("operator()(int, char)"), "operator()(int, char)");
        assert_eq!([cell("=cmd|x"), cell("@x"), cell("-1"), cell("+1")], ["'=cmd|x", "'@x", "'-1", "'+1"]);
        assert_eq!(cell("a=b"), "a=b");
    }
}
