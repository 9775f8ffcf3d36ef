//! Breaks texts into lines for a terminal. A text and a width go in, lines come out.

/// Wraps a text; further lines are indented. The last line has two words, if the one before can spare one.
pub(crate) fn wrap(text: &str, width: usize, indent: usize) -> String {
    let before = text.len() - text.trim_start().len();
    let length =
        |words: &[&str]| words.iter().map(|word| word.chars().count() + 1).sum::<usize>().saturating_sub(1);
    let mut lines: Vec<Vec<&str>> = vec![Vec::new()];
    for word in text.split_whitespace() {
        let start = if lines.len() == 1 { before } else { indent };
        let line = lines.last_mut().expect("there is always a line");
        if !line.is_empty() && start + length(line) + 1 + word.chars().count() > width {
            lines.push(vec![word]);
        } else {
            line.push(word);
        }
    }
    if let [.., before, last] = lines.as_mut_slice()
        && last.len() == 1
        && before.len() > 2
        && indent + length(&[before[before.len() - 1], last[0]]) <= width
        && let Some(word) = before.pop()
    {
        last.insert(0, word);
    }
    let starts = std::iter::once(before).chain(std::iter::repeat(indent));
    let lines: Vec<String> =
        lines.iter().zip(starts).map(|(words, start)| format!("{:start$}{}", "", words.join(" "))).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_last_line_has_two_words_if_the_one_before_can_spare_one() {
        assert_eq!(wrap("aaa bbb ccc ddd", 11, 0), "aaa bbb\nccc ddd");
    }
}
