//! Text that is safe to print: text from recorded programs, and numbers with what they count.

use std::{borrow::Cow, fmt::Write as _};

/// Escapes characters that could move a terminal's cursor, change its state, or disguise text: control
/// characters, bidirectional marks, characters without width.
pub fn printable(text: &str) -> Cow<'_, str> {
    // Most text is ASCII, and bytes are compared many at a time.
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~');
    if text.bytes().all(is_plain) || !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_unsafe(c) {
            // Writing to a String cannot fail.
            let _ = write!(safe, "\\u{{{:x}}}", u32::from(c));
        } else {
            safe.push(c);
        }
    }
    Cow::Owned(safe)
}

/// Whether [`printable`] escapes a character.
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// Returns a number, and the words for one or for more: `1 process was`, `3 processes were`.
pub fn counted(n: u64, one: &str, more: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { more })
}

/// Quotes a word for a shell, if it needs it. Safe to print.
pub fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+=:,@".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", printable(word).replace('\'', "'\\''"))
}

/// Splits a text at its blanks, except in what must stay on one line: a command in backquotes, and a number
/// with its unit.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    const UNITS: [&str; 7] = ["%", "ns", "µs", "ms", "s", "kB", "MB"];
    let (mut is_command, mut before) = (false, ' ');
    text.match_indices(|_: char| true)
        .filter(move |(at, c)| {
            is_command ^= *c == "`";
            let follows_digit =
                std::mem::replace(&mut before, c.chars().next().unwrap_or(' ')).is_ascii_digit();
            let next = text[at + c.len()..].split(|c: char| !c.is_alphabetic() && c != '%').next();
            let is_unit = follows_digit && next.is_some_and(|next| UNITS.contains(&next));
            *c == " " && !is_command && !is_unit
        })
        .map(|(at, _)| at)
        .chain([text.len()])
        .scan(0, |begin, end| {
            let word = &text[*begin..end];
            *begin = end + 1;
            Some(word)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_numbers_with_units_are_single_words() {
        let split = |text| words(text).collect::<Vec<&str>>();
        assert_eq!(
            split("see `klock why t`, 5 ms, +3 % for 2 threads "),
            ["see", "`klock why t`,", "5 ms,", "+3 %", "for", "2", "threads", ""]
        );
        assert_eq!(split("  a `b c"), ["", "", "a", "`b c"]);
        assert_eq!(split(""), [""]);
    }

    #[test]
    fn unsafe_characters_are_escaped_and_the_rest_is_kept() {
        assert_eq!(printable("\u{1b}[2Jlock\u{7f}\u{9b}31m"), "\\u{1b}[2Jlock\\u{7f}\\u{9b}31m");
        assert_eq!(printable("a\u{202e}b\u{200b}c\nd\te"), "a\\u{202e}b\\u{200b}c\\u{a}d\\u{9}e");
        assert!(matches!(printable("Schloß 鎖 é"), Cow::Borrowed("Schloß 鎖 é")));
    }

    #[test]
    fn every_ascii_character_is_escaped_if_it_is_unsafe() {
        for c in '\0'..='\u{7f}' {
            let (text, is_kept) = (c.to_string(), !is_unsafe(c));
            assert_eq!(matches!(printable(&text), Cow::Borrowed(_)), is_kept, "{c:?}");
        }
    }
}
