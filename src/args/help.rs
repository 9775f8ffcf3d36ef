//! Help texts for the width of a terminal.
//!
//! `-h` shows the options that a command is used with most, `--help` shows all options and the columns. clap
//! breaks the lines of options; this file breaks the lines of the texts below the options.

use clap::{Arg, Command};

use crate::terminal::wrapped;

/// The greatest width of help.
const MOST: usize = 100;
/// The headings of options that only `--help` shows.
const DETAILS: [&str; 10] = [
    "Control",
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

/// The number of examples of a table that `-h` shows.
const EXAMPLES: usize = 5;

/// The commands as `klock --help` groups them.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Start", &["record", "why", "report", "blame", "html", "diff"]),
    ("More", &["timeline", "hist", "order", "offcpu", "whatif", "critical", "plot"]),
    ("Data", &["waits", "holds", "events", "export", "rollup"]),
    (
        "Machine and files",
        &["check", "control", "info", "verify", "recover", "demo", "completions", "man", "help"],
    ),
];

/// Returns klock's own command with the help of all commands for a terminal of `width` columns.
pub(super) fn of_klock(klock: Command, width: usize) -> Command {
    let examples = klock.get_after_help().map(ToString::to_string).unwrap_or_default();
    let (short, long) = (groups(&klock, false, width.min(MOST)), groups(&klock, true, width.min(MOST)));
    let long = format!("{long}{}", lay_out(&examples, width.min(MOST)));
    let short =
        format!("{short}\nklock COMMAND -h shows the options of a command, klock --help all of them.");
    for_width(klock, width)
        .help_template("{about-with-newline}\n{usage-heading} {usage}{after-help}\n\nOptions:\n{options}")
        .after_help(short)
        .after_long_help(long)
}

/// Returns the commands by group, with what they do: the first group's or all.
fn groups(klock: &Command, is_long: bool, width: usize) -> String {
    let mut text = String::new();
    for (at, (heading, names)) in GROUPS.iter().enumerate() {
        let commands = names.iter().filter_map(|name| klock.find_subcommand(name));
        if is_long || at == 0 {
            let line = |command: &Command| {
                let about = command.get_about().map(ToString::to_string).unwrap_or_default();
                wrapped(&format!("  {:<12} {about}", command.get_name()), width, 15) + "\n"
            };
            text += &format!("{heading}:\n{}\n", commands.map(line).collect::<String>());
        } else {
            let names: Vec<&str> = commands.map(Command::get_name).collect();
            text += &(wrapped(&format!("{heading}: {}", names.join(", ")), width, 6) + "\n");
        }
    }
    text
}

/// Returns the command, and those below it, with its help for a terminal of `width` columns.
fn for_width(command: Command, width: usize) -> Command {
    let width = width.min(MOST);
    let text = command.get_after_help().map(|text| lay_out(&text.to_string(), width));
    let is_detail = |arg: &Arg| arg.get_help_heading().is_some_and(|heading| DETAILS.contains(&heading));
    let has_filters = command.get_arguments().any(|arg| arg.get_id() == "lock" && is_detail(arg));
    let command = command.term_width(width).mut_subcommands(|sub| for_width(sub, width)).mut_args(|arg| {
        let is_rare = has_filters && ["all", "force", "allow_loss"].contains(&arg.get_id().as_str());
        let is_hidden = is_rare || is_detail(&arg);
        arg.hide_short_help(is_hidden)
    });
    match text {
        Some(text) => {
            let mut short = text.find("Examples:").map_or(text.as_str(), |at| &text[at..]).to_owned();
            if has_filters {
                let examples: Vec<&str> = short.lines().take(1 + EXAMPLES).collect();
                let examples = examples.join("\n");
                short = format!("More options, such as --lock, and more examples: --help\n\n{examples}");
            }
            command.after_help(short).after_long_help(text)
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
        let mut command = of_klock(Args::command(), width);
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
    fn klock_help_has_every_command_in_one_group() {
        let grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        for command in Args::command().get_subcommands() {
            assert_eq!(grouped.iter().filter(|name| **name == command.get_name()).count(), 1, "{command}");
        }
    }

    #[test]
    fn the_short_help_of_klock_fits_a_screen() {
        let help = of_klock(Args::command(), 80).render_help().to_string();
        assert!(help.lines().count() <= 24, "{help}");
    }

    #[test]
    fn the_short_help_of_a_command_fits_fifty_lines() {
        for (name, [short, _]) in all(200) {
            assert!(short.lines().count() <= 50, "{name}: {}", short.lines().count());
        }
    }

    #[test]
    fn no_option_is_explained_by_what_it_means_to_another_command() {
        let names: Vec<String> =
            Args::command().get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
        for (command, [_, long]) in all(100) {
            let text = long.split_whitespace().collect::<Vec<_>>().join(" ");
            for name in names.iter().filter(|name| !command.ends_with(name.as_str())) {
                for word in [format!("In {name},"), format!("In {name}:"), format!("in {name},")] {
                    assert!(!text.contains(&word), "{command}: {word}");
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
