//! Text for pictures: makes names from a trace safe for XML 1.0 and cuts them to the available width.
//!
//! No font is read: widths are generous estimates for a common sans-serif typeface.

use intervals::input::names::printable;

/// Width of an average character, in parts of the font size.
const CHARACTER: f64 = 0.56;

/// Escapes characters that XML forbids or that are invisible, leaves out the directories of source files, and
/// cuts the text to `limit` characters.
pub(super) fn clean(text: &str, limit: usize) -> String {
    cut(&without_directories(&safe(text, limit)), limit)
}

/// Returns `main.c:12 (work)` of `/src/main.c:12 (work)`.
fn without_directories(text: &str) -> String {
    let is_line = |word: &str| {
        word.rsplit_once(':').is_some_and(|(_, line)| line.bytes().next().is_some_and(|c| c.is_ascii_digit()))
    };
    let file = |word| match word {
        word if is_line(word) => word.rsplit_once('/').map_or(word, |(_, file)| file),
        word => word,
    };
    text.split(' ').map(file).collect::<Vec<_>>().join(" ")
}

/// Escapes characters that XML forbids or that are invisible.
fn safe(text: &str, limit: usize) -> String {
    // Limits the work on very long texts.
    let text: String = text.chars().take(4 * limit).collect();
    printable(&text).chars().map(|c| if is_forbidden(c) { '\u{fffd}' } else { c }).collect()
}

/// Cuts the text to `limit` characters, with an ellipsis.
fn cut(text: &str, limit: usize) -> String {
    if text.chars().count() <= limit {
        return text.to_owned();
    }
    text.chars().take(limit.saturating_sub(1)).chain(['…']).collect()
}

/// Returns the names as [`clean`] does. Where different names would look the same, the middle is left out
/// instead of the end; directories stay only if nothing else differs.
pub(super) fn distinct(names: &[&str], limit: usize) -> Vec<String> {
    let whole = |name: &str| safe(name, name.chars().count().max(1));
    let short: Vec<String> = names.iter().map(|name| without_directories(&whole(name))).collect();
    let cut: Vec<String> = names.iter().map(|name| clean(name, limit)).collect();
    let is_alone = |all: &[String], at: usize| {
        let same = all.iter().zip(names).filter(|(other, name)| **other == all[at] && **name != names[at]);
        same.count() == 0
    };
    let without_middle = |name: &str| {
        let whole: Vec<char> = name.chars().collect();
        let (head, tail) = ((limit.saturating_sub(1)) / 2, limit.saturating_sub(1).div_ceil(2));
        if whole.len() <= limit {
            return whole.into_iter().collect();
        }
        let tail = &whole[whole.len() - tail..];
        whole[..head].iter().chain(&['…']).chain(tail).collect()
    };
    (0..names.len())
        .map(|at| match () {
            () if is_alone(&cut, at) => cut[at].clone(),
            () if is_alone(&short, at) => without_middle(&short[at]),
            () => without_middle(&whole(names[at])),
        })
        .collect()
}

/// Whether XML 1.0, section 2.2, excludes it, apart from control characters, which [`printable`] escapes.
fn is_forbidden(c: char) -> bool {
    matches!(c, '\u{fffe}' | '\u{ffff}')
}

/// Returns the width of a text of this font size, in pixels.
pub(super) fn width(text: &str, size: f64) -> i32 {
    (text.chars().count() as f64 * size * CHARACTER).ceil() as i32
}

/// Returns the number of characters of this font size that fit into `pixels`.
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

/// Places entries of these widths beside each other, in lines from `left` to `right`. Returns each with its
/// position.
pub(super) fn in_lines<T>(
    entries: impl Iterator<Item = (T, i32)>,
    (left, right): (i32, i32),
    gap: i32,
) -> Vec<Vec<(i32, T)>> {
    let (mut lines, mut line, mut x) = (Vec::new(), Vec::new(), left);
    for (entry, width) in entries {
        if x > left && x + width > right {
            lines.push(std::mem::take(&mut line));
            x = left;
        }
        line.push((x, entry));
        x += width + gap;
    }
    lines.push(line);
    lines
}

/// Returns the lines above the charts; a sentence that is too long is broken between its parts.
pub(super) fn notes(notes: &[String], room: usize) -> Vec<String> {
    let lines = |note: &String| {
        let parts: Vec<String> = note.split("; ").map(|part| clean(part, room)).collect();
        wrap(&parts, room)
    };
    notes.iter().flat_map(lines).collect()
}

/// Returns a mean number of threads; one that is not 0 does not look like 0.
pub(super) fn mean(mean: f64) -> String {
    if mean > 0.0 && mean < 0.005 { "< 0.01".to_owned() } else { format!("{mean:.2}") }
}

/// Escapes text for the content of an element.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_holds_no_character_that_xml_forbids() {
        let clean = clean("\u{0}\u{1b}[31m<evil>\u{fffe}\u{ffff}\u{7f}\r\n\u{202e}", 200);
        assert!(clean.chars().all(|c| !c.is_control() && !is_forbidden(c) && c != '\u{202e}'), "{clean}");
        assert!(escape(&clean).contains("&lt;evil&gt;"));
    }

    #[test]
    fn a_source_file_has_no_directories_unless_two_names_would_look_the_same() {
        assert_eq!(clean("/very/long/path/main.c:12 (work)", 16), "main.c:12 (work)");
        assert_eq!(clean("/sys/devices (a/b)", 40), "/sys/devices (a/b)");
        assert_eq!(distinct(&["/a/x.c:1 (f)", "/b/x.c:1 (f)"], 40), ["/a/x.c:1 (f)", "/b/x.c:1 (f)"]);
    }

    #[test]
    fn a_long_text_is_cut_at_a_character() {
        assert_eq!(clean("Schlösser überall", 8), "Schlöss…");
        assert_eq!(clean(&"x".repeat(1 << 20), 4), "xxx…");
    }

    #[test]
    fn names_that_differ_only_at_their_ends_keep_them() {
        let names = ["hand-off of lock in main.c:10", "hand-off of lock in main.c:20", "other"];
        assert_eq!(distinct(&names, 15), ["hand-of…in.c:10", "hand-of…in.c:20", "other"]);
        let names = ["/a/long/x.c:1 (f) (mutex:one)", "/a/long/x.c:1 (f) (mutex:two)"];
        assert_eq!(distinct(&names, 15), ["x.c:1 (…ex:one)", "x.c:1 (…ex:two)"]);
        assert_eq!(distinct(&["same name here", "same name here"], 6), ["same …", "same …"]);
        assert_eq!(distinct(&["abc", "abd"], 1), ["…", "…"]);
    }

    #[test]
    fn parts_are_joined_until_a_line_is_full() {
        let parts = ["one".to_owned(), "two".to_owned(), "three".to_owned()];
        assert_eq!(wrap(&parts, 12), ["one  ·  two", "three"]);
    }
}
