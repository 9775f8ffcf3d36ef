//! Text for pictures: what a trace calls things, made safe and short.
//!
//! Any text enters; text leaves that XML 1.0 allows and that fits. There is no font here: widths are estimates for a
//! common sans-serif face, on the wide side.

use crate::names::printable;

/// Width of an average character, in parts of the font size.
const CHARACTER: f64 = 0.56;

/// The text with everything escaped that XML forbids or that hides on a screen, cut to `limit` characters.
pub(super) fn clean(text: &str, limit: usize) -> String {
    // Far more than any limit, so that a text of megabytes costs nothing.
    let text: String = text.chars().take(4 * limit).collect();
    let text: String =
        printable(&text).chars().map(|c| if is_forbidden(c) { '\u{fffd}' } else { c }).collect();
    cut(&text, limit)
}

/// The text, or its begin and an ellipsis.
fn cut(text: &str, limit: usize) -> String {
    if text.chars().count() <= limit {
        return text.to_owned();
    }
    text.chars().take(limit.saturating_sub(1)).chain(['…']).collect()
}

/// Not characters in XML 1.0, section 2.2, and no control characters, which [`printable`] takes.
fn is_forbidden(c: char) -> bool {
    matches!(c, '\u{fffe}' | '\u{ffff}')
}

/// How wide a text of this font size is, in pixels.
pub(super) fn width(text: &str, size: f64) -> i32 {
    (text.chars().count() as f64 * size * CHARACTER).ceil() as i32
}

/// How many characters of this font size fit into `pixels`.
pub(super) fn fitting(pixels: i32, size: f64) -> usize {
    (f64::from(pixels.max(0)) / (size * CHARACTER)) as usize
}

/// Joins parts by a middle dot into lines of at most `limit` characters.
pub(super) fn wrap(parts: &[String], limit: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        match lines.last_mut() {
            Some(line) if line.chars().count() + part.chars().count() + 5 <= limit => {
                line.push_str("  ·  ");
                line.push_str(part);
            }
            _ => lines.push(cut(part, limit)),
        }
    }
    lines
}

/// Escapes text for the content of an element.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_xml_forbids_survives() {
        let clean = clean("\u{0}\u{1b}[31m<evil>\u{fffe}\u{ffff}\u{7f}\r\n\u{202e}", 200);
        assert!(clean.chars().all(|c| !c.is_control() && !is_forbidden(c) && c != '\u{202e}'), "{clean}");
        assert!(escape(&clean).contains("&lt;evil&gt;"));
    }

    #[test]
    fn a_long_text_is_cut_at_a_character() {
        assert_eq!(clean("Schlösser überall", 8), "Schlöss…");
        assert_eq!(clean(&"x".repeat(1 << 20), 4), "xxx…");
    }

    #[test]
    fn parts_are_joined_until_a_line_is_full() {
        let parts = ["one".to_owned(), "two".to_owned(), "three".to_owned()];
        assert_eq!(wrap(&parts, 12), ["one  ·  two", "three"]);
    }
}
