//! Help texts for the width of a terminal.
//!
//! `-h` shows the options that a command is used with most, `--help` shows all options and the columns. clap breaks the lines of
//! options; this file breaks the lines of the texts below the options.

use clap::Command;

use crate::terminal::wrapped;

/// The greatest width of help.
const MOST: usize = 100;
/// The headings of options that only `--help` shows.
const DETAILS: [&str; 9] = [
    "Filters",
    "Kernel locks",
    "Metrics",
    "Off-CPU time",
    "Output",
    "Pthread calls",
    "Single formats",
    "Sizes",
    "Terminal",
];

/// Returns the command, and those below it, with its help for a terminal of `width` columns.
pub(super) fn for_width(command: Command, width: usize) -> Command {
    let width = width.min(MOST);
    let text = command.get_after_help().map(|text| lay_out(&text.to_string(), width));
    let command = command.term_width(width).mut_subcommands(|sub| for_width(sub, width)).mut_args(|arg| {
        let is_detail = arg.get_help_heading().is_some_and(|heading| DETAILS.contains(&heading));
        arg.hide_short_help(is_detail)
    });
    match text {
        Some(text) => {
            let examples = text.find("Examples:").map_or(text.as_str(), |at| &text[at..]).to_owned();
            command.after_help(examples).after_long_help(text)
        }
        None => command,
    }
}

/// Breaks the lines that are too long. The last column of a row keeps its place, if there is room for it.
fn lay_out(text: &str, width: usize) -> String {
    let line = |line: &str| {
        let column = line.trim_end().rfind("  ").map_or(0, |at| line[..at + 2].chars().count());
        wrapped(line, width, if column + 28 > width { 6 } else { column })
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::args::Args;

    /// Returns the short and the long help of every command and table, with its name.
    fn all(width: usize) -> Vec<(String, [String; 2])> {
        fn add(command: &Command, path: &str, found: &mut Vec<(String, [String; 2])>) {
            let mut own = command.clone();
            let texts = [own.render_help(), own.render_long_help()].map(|text| text.to_string());
            found.push((path.to_owned(), texts));
            for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
                add(sub, &format!("{path} {}", sub.get_name()), found);
            }
        }
        let mut found = Vec::new();
        let mut command = for_width(Args::command(), width);
        command.build();
        add(&command, "klock", &mut found);
        found
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        for width in [60, 80, 100, 200] {
            for (name, texts) in all(width) {
                for line in texts.iter().flat_map(|text| text.lines()) {
                    assert!(line.trim_end().chars().count() <= width.min(MOST), "{name} at {width}: {line}");
                }
            }
        }
    }

    #[test]
    fn the_short_help_of_a_table_leaves_out_the_options_that_all_tables_share() {
        for (name, [short, long]) in all(80) {
            assert!(!short.contains("--task <"), "{name}");
            assert_eq!(
                long.contains("--task <"),
                long.contains("--min-wait <TIME>\n          Select"),
                "{name}"
            );
        }
    }

    #[test]
    fn the_last_column_of_a_row_keeps_its_place_where_it_fits() {
        assert_eq!(
            lay_out("Examples:\n  klock a  one two three four five six seven\n", 40),
            "Examples:\n  klock a  one two three four five six\n           seven"
        );
        assert_eq!(lay_out("  left-side-that-is-long  right", 30), "  left-side-that-is-long\n      right");
    }
}
