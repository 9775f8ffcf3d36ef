//! Tables in Markdown, with columns as wide as their widest cell, and the parts of a document between
//! markers.

use anyhow::{Result, anyhow};

/// Rows as a Markdown table; columns of numbers stand right.
pub(crate) fn markdown(head: &[&str], rows: &[Vec<String>]) -> String {
    let cells = |at: usize| rows.iter().filter_map(move |row| row.get(at));
    let columns: Vec<(usize, bool)> = (0..head.len())
        .map(|at| {
            let width = cells(at).map(|cell| cell.chars().count()).chain([head[at].chars().count(), 3]).max();
            let is_number = |cell: &String| {
                cell.is_empty() || cell.starts_with(|c: char| c.is_ascii_digit() || "+-".contains(c))
            };
            (width.unwrap_or(3), cells(at).all(is_number))
        })
        .collect();
    let line = |cells: Vec<&str>| {
        let padded = cells.iter().zip(&columns).map(|(cell, (width, right))| {
            if *right { format!(" {cell:>width$} |") } else { format!(" {cell:<width$} |") }
        });
        format!("|{}\n", padded.collect::<String>())
    };
    let rule = columns.iter().map(|(width, right)| {
        if *right { format!("{}:|", "-".repeat(width + 1)) } else { format!("{}|", "-".repeat(width + 2)) }
    });
    let mut text = line(head.to_vec());
    text.push_str(&format!("|{}\n", rule.collect::<String>()));
    for row in rows {
        text.push_str(&line(row.iter().map(String::as_str).collect()));
    }
    text
}

/// `document` with what is between `<!-- name -->` and `<!-- /name -->` replaced by `part`.
pub(crate) fn with_part(document: &str, name: &str, part: &str) -> Result<String> {
    let (open, close) = (format!("<!-- {name} -->"), format!("<!-- /{name} -->"));
    let missing = || anyhow!("no {open} .. {close} in the document");
    let (before, rest) = document.split_once(&open).ok_or_else(missing)?;
    let (_, after) = rest.split_once(&close).ok_or_else(missing)?;
    Ok(format!("{before}{open}\n\n{}\n\n{close}{after}", part.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_replaced_and_its_surroundings_are_kept() {
        let document = "a\n<!-- x -->\nold\n<!-- /x -->\nb\n";
        assert_eq!(with_part(document, "x", "new\n").unwrap(), "a\n<!-- x -->\n\nnew\n\n<!-- /x -->\nb\n");
        assert!(with_part(document, "y", "new").is_err());
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [vec!["mutex".to_owned(), "12".to_owned()], vec!["rw".to_owned(), "3456".to_owned()]];
        let expected = "| kind  |    n |\n|-------|-----:|\n| mutex |   12 |\n| rw    | 3456 |\n";
        assert_eq!(markdown(&["kind", "n"], &rows), expected);
    }
}
