//! The tables of the matrix: one for each subject, with a row for each kernel and a column for each figure, in the order
//! of discovery.

use super::scenario::Finding;
use crate::table;

/// The findings in one kernel.
#[derive(Debug)]
pub(super) struct Row {
    /// Its name in the matrix.
    pub(super) kernel: String,
    /// Findings of all its scenarios.
    pub(super) finding: Finding,
}

/// Returns all tables as Markdown.
pub(super) fn markdown(rows: &[Row]) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for (part, ..) in rows.iter().flat_map(|row| &row.finding.figures) {
        if !parts.contains(part) {
            parts.push(part);
        }
    }
    let mut text = String::new();
    for part in parts {
        text += &format!("\n### {}\n\n{}", capital(part), table_of(rows, part));
    }
    text
}

/// Returns the table of a subject.
fn table_of(rows: &[Row], part: &str) -> String {
    let mut columns: Vec<&str> = Vec::new();
    for (of, column, _) in rows.iter().flat_map(|row| &row.finding.figures) {
        if *of == part && !columns.contains(column) {
            columns.push(column);
        }
    }
    let cells = |row: &Row| {
        let value = |column: &str| {
            let found = row.finding.figures.iter().find(|(of, name, _)| *of == part && *name == column);
            found.map_or_else(String::new, |(.., value)| value.replace('|', "\\|").replace('\n', " "))
        };
        let values: Vec<String> = columns.iter().map(|column| value(column)).collect();
        values.iter().any(|value| !value.is_empty()).then(|| [vec![row.kernel.clone()], values].concat())
    };
    let rows: Vec<Vec<String>> = rows.iter().filter_map(cells).collect();
    table::markdown(&[&["kernel"], columns.as_slice()].concat(), &rows)
}

fn capital(text: &str) -> String {
    let mut characters = text.chars();
    characters
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().collect::<String>() + characters.as_str())
}

/// Returns the lines of a kernel's log that report an error of the kernel, whatever caused it.
pub(super) fn complaints(dmesg: &str) -> Vec<&str> {
    const WORDS: [&str; 12] = [
        "WARNING:",
        "BUG:",
        "Oops",
        "INFO: task ",
        "blocked for more than",
        "rcu: INFO",
        "self-detected stall",
        "detected stalls",
        "possible recursive locking",
        "circular locking",
        "general protection fault",
        "Kernel panic",
    ];
    dmesg.lines().filter(|line| WORDS.iter().any(|word| line.contains(word))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_subject_is_a_table_of_its_own() {
        let mut new = Finding::default();
        new.figure("facts", "release", "6.1");
        new.figure("soak", "events", "7");
        let mut old = Finding::default();
        old.figure("facts", "release", "5.10");
        let rows =
            [Row { kernel: "old".to_owned(), finding: old }, Row { kernel: "new".to_owned(), finding: new }];
        let text = markdown(&rows);
        assert!(text.contains("### Facts\n\n| kernel | release |"), "{text}");
        assert!(text.contains("| new    |      7 |"), "{text}");
        assert_eq!(text.matches("| old").count(), 1, "{text}");
    }

    #[test]
    fn a_warning_of_the_kernel_is_a_complaint() {
        let log = "[ 1.0] Linux version\n[ 9.1] WARNING: CPU: 1 PID: 9 at kernel/x.c:1\n";
        assert_eq!(complaints(log).len(), 1);
    }
}
