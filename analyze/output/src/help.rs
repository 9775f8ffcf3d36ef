//! The list of a table's columns for `--help`, made from their declarations.

use super::{Column, Role, Visibility};

/// Lists the columns by word, unit and sentence, one a line, those that text shows by default first.
/// `has_choice` is whether the table has `-F`.
pub fn help<R>(columns: &[Column<R>], has_choice: bool) -> String {
    let groups = [
        (Visibility::Always, "Columns:"),
        (Visibility::Programs, if has_choice { "With -F in text:" } else { "In the other formats:" }),
        (Visibility::OnRequest, "With -F or -k in every format, by reading the trace twice:"),
    ];
    let listed = || columns.iter().filter(|column| column.role != Role::Identity);
    let width = listed().map(|column| column.word().len()).max().unwrap_or(0);
    let mut text = String::new();
    for (visibility, heading) in groups {
        let mut lines = listed().filter(|column| column.visibility == visibility).peekable();
        if lines.peek().is_some() {
            text += &format!("{heading}\n");
        }
        for column in lines {
            let doc = column.doc.replace('`', "");
            let [_, unit, _] = column.field.kind.words();
            text += &format!("  {:<width$}  {unit:<7}  {}\n", column.word(), doc.trim());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_listed_with_their_units_and_sentences() {
        let columns: Vec<Column<()>> = vec![
            Column::duration("wait", |()| 0, "A sentence."),
            Column::count("n", |()| 0, "A `count`.").programs(),
            Column::text("key", |()| super::super::Cell::Null, "").identity(),
        ];
        assert_eq!(
            help(&columns, true),
            "Columns:
  wait  time     A sentence.
With -F in text:
  n     count    A count.
"
        );
    }
}
