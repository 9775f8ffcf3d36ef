//! Makes names safe for formats without quoting, and for readers that interpret text.
//!
//! Names come from recorded programs and may hold anything. A safe name cannot end a row, forge a frame, move
//! the cursor of a terminal or be taken for a formula.

use std::borrow::Cow;

use trace_format::text::printable;

/// Returns a name as an element of a stack that semicolons separate.
pub fn folded(name: &str) -> Cow<'_, str> {
    match printable(name) {
        safe if safe.contains(';') => Cow::Owned(safe.replace(';', ":")),
        safe => safe,
    }
}

/// Returns a text as a cell of a table that people open as a spreadsheet, where a formula would run.
pub fn cell(text: &str) -> Cow<'_, str> {
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
