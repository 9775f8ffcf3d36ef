//! Help texts for the width of a terminal.
//!
//! The texts below the options are written as paragraphs and as rows (`  left  right`), and laid out here: nothing is wider than the
//! terminal, and no wrapped line has a single word. Options that all tables share are listed once, in `klock analyze
//! --help`.

use clap::{Arg, Command};

use crate::wrap::wrap;

/// The greatest width of help.
const MOST: usize = 100;
/// Spaces between two columns of a row.
const GAP: usize = 2;
/// Before the second column of a row, where it does not fit beside the first.
const BELOW: usize = 6;
/// The least width of a second column beside the first.
const LEAST: usize = 28;

/// The headings of options that all tables share.
const SHARED: [&str; 2] = ["Filters", "Output"];
/// The heading of options that all commands share.
const TERMINAL: &str = "Terminal";

/// Returns the command with its help laid out for a terminal of `width` columns.
pub(super) fn for_width(command: Command, width: usize) -> Command {
    let width = width.min(MOST);
    let shared = command
        .find_subcommand("analyze")
        .and_then(|analyze| analyze.get_subcommands().next())
        .map(|table| shared_options(table, width));
    let mut command = laid_out(command, width);
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    for name in names {
        let shared = shared.clone();
        command = command.mut_subcommand(name, |sub| {
            let sub = hide(laid_out(sub, width), &[TERMINAL]);
            match (sub.get_name(), shared) {
                ("analyze", Some(shared)) => with_tables(sub, &shared, width),
                ("export" | "rollup", _) => {
                    let sub = hide(sub, &SHARED[..1]);
                    let text = sub.get_after_help().map(ToString::to_string).unwrap_or_default();
                    let more =
                        wrap("The filters of `klock analyze --help` select a part of the trace.", width, 0);
                    sub.after_help(format!("{text}\n\n{more}"))
                }
                _ => sub,
            }
        });
    }
    command
}

/// Lays out the help of the tables, and lists the options that they share once.
fn with_tables(mut analyze: Command, shared: &str, width: usize) -> Command {
    let names: Vec<String> = analyze.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    for name in names {
        analyze = analyze.mut_subcommand(name, |table| {
            let table = laid_out(table, width);
            let options: Vec<String> =
                shared_arguments(&table).filter_map(|arg| Some(format!("--{}", arg.get_long()?))).collect();
            let text = table.get_after_help().map(ToString::to_string).unwrap_or_default();
            let more =
                format!("Filters and output, explained by klock analyze --help: {}", options.join(", "));
            hide(table, &[SHARED[0], SHARED[1], TERMINAL])
                .after_help(format!("{text}\n\n{}", wrap(&more, width, 0)))
        });
    }
    let heading = wrap("Options of every table, after its name:", width, 0);
    analyze.after_help(format!("{heading}\n\n{shared}"))
}

/// Returns the arguments that all tables share.
fn shared_arguments(table: &Command) -> impl Iterator<Item = &Arg> {
    table
        .get_arguments()
        .filter(|arg| arg.get_help_heading().is_some_and(|heading| SHARED.contains(&heading)))
}

/// Returns the help of the options that all tables share.
fn shared_options(table: &Command, width: usize) -> String {
    let mut listed = Command::new("tables")
        .disable_help_flag(true)
        .help_template("{all-args}")
        .term_width(width)
        .args(shared_arguments(table).cloned());
    listed.render_help().to_string().trim_end().to_owned()
}

fn hide(command: Command, headings: &[&str]) -> Command {
    command.mut_args(|arg| {
        let is_hidden = arg.get_help_heading().is_some_and(|heading| headings.contains(&heading));
        if is_hidden { arg.hide(true) } else { arg }
    })
}

fn laid_out(command: Command, width: usize) -> Command {
    let text = command.get_after_help().map(|text| lay_out(&text.to_string(), width));
    let command = command.term_width(width);
    match text {
        Some(text) => command.after_help(text),
        None => command,
    }
}

/// Lays out paragraphs and rows.
fn lay_out(text: &str, width: usize) -> String {
    let mut blocks: Vec<String> = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let mut block = vec![line];
        let kind = Line::of(line);
        while let Some(next) = lines.next_if(|next| kind.continues(Line::of(next))) {
            block.push(next);
        }
        blocks.push(match kind {
            Line::Empty | Line::Heading => line.trim_end().to_owned(),
            Line::Row => rows(&block, width),
            Line::Paragraph => wrap(&block.join(" "), width, 0),
        });
    }
    blocks.join("\n")
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Line {
    Empty,
    /// A line that ends with a colon.
    Heading,
    /// An indented line.
    Row,
    Paragraph,
}

impl Line {
    fn of(line: &str) -> Self {
        match line {
            _ if line.trim().is_empty() => Self::Empty,
            _ if line.starts_with(' ') => Self::Row,
            _ if line.ends_with(':') => Self::Heading,
            _ => Self::Paragraph,
        }
    }

    fn continues(self, next: Self) -> bool {
        self == next && matches!(self, Self::Row | Self::Paragraph)
    }
}

/// Lays out rows of two columns; the last run of several spaces separates them.
fn rows(lines: &[&str], width: usize) -> String {
    let split = |line: &str| {
        let line = line.trim();
        match line.rmatch_indices("  ").next() {
            Some((at, _)) => (line[..at].trim_end().to_owned(), line[at..].trim_start().to_owned()),
            None => (line.to_owned(), String::new()),
        }
    };
    let rows: Vec<(String, String)> = lines.iter().map(|line| split(line)).collect();
    let with_right = rows.iter().filter(|(_, right)| !right.is_empty());
    let left_width = with_right.map(|(left, _)| left.chars().count()).max().unwrap_or(0);
    let column = GAP + left_width + GAP;
    let is_beside = column + LEAST <= width;
    let mut text = Vec::new();
    for (left, right) in rows {
        let start = format!("{:GAP$}{left}", "");
        match right.as_str() {
            "" => text.push(wrap(&start, width, BELOW)),
            right if is_beside => {
                let right = wrap(right, width - column, 0);
                let indent = " ".repeat(column);
                let right = right.replace('\n', &format!("\n{indent}"));
                text.push(format!("{start:<column$}{right}"));
            }
            right => {
                text.push(wrap(&start, width, BELOW));
                let indent = " ".repeat(BELOW);
                text.push(format!(
                    "{indent}{}",
                    wrap(right, width - BELOW, 0).replace('\n', &format!("\n{indent}"))
                ));
            }
        }
    }
    text.join("\n")
}

/// Moves the last word of a line down to a single word that clap has wrapped.
pub(super) fn rejoin(text: &str, width: usize) -> String {
    let width = width.min(MOST);
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for at in 1..lines.len() {
        let (before, line) = (plain(&lines[at - 1]), plain(&lines[at]));
        let word = line.trim();
        let indent = line.len() - line.trim_start().len();
        let is_last = lines.get(at + 1).is_none_or(|next| {
            let next = plain(next);
            next.trim().is_empty() || next.len() - next.trim_start().len() != indent
        });
        let is_alone = !word.is_empty() && !word.contains(' ') && is_last && !lines[at].contains('\x1b');
        let was_wrapped = before.chars().count() + 1 + word.chars().count() > width;
        let starts_there =
            before.get(indent..).is_some_and(|text| !text.starts_with(' ') && text.split(' ').count() > 2);
        if !is_alone || !was_wrapped || !starts_there {
            continue;
        }
        if let Some((rest, moved)) = lines[at - 1].clone().rsplit_once(' ')
            && !moved.contains('\x1b')
            && indent + moved.chars().count() + 1 + word.chars().count() <= width
        {
            lines[at] = format!("{:indent$}{moved} {word}", "");
            lines[at - 1] = rest.to_owned();
        }
    }
    lines.join("\n") + "\n"
}

/// Returns the text without colours.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut in_escape = false;
    for c in text.chars() {
        match c {
            '\x1b' => in_escape = true,
            'm' if in_escape => in_escape = false,
            _ if in_escape => {}
            c => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::args::Args;

    /// Returns the help of every command and table, with its name.
    fn all(width: usize) -> Vec<(String, String)> {
        fn add(command: &Command, path: &str, width: usize, found: &mut Vec<(String, String)>) {
            let mut own = command.clone();
            for text in [own.render_help(), own.render_long_help()] {
                found.push((path.to_owned(), rejoin(&text.to_string(), width)));
            }
            for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
                add(sub, &format!("{path} {}", sub.get_name()), width, found);
            }
        }
        let mut found = Vec::new();
        let mut command = for_width(Args::command(), width);
        command.build();
        add(&command, "klock", width, &mut found);
        found
    }

    #[test]
    fn no_line_is_wider_than_the_terminal_and_no_word_stands_alone() {
        for width in 60..=200 {
            for (name, help) in all(width) {
                let lines: Vec<&str> = help.lines().collect();
                for (at, line) in lines.iter().enumerate() {
                    assert!(line.chars().count() <= width.min(MOST), "{name} at {width}: {line}");
                    let indent = line.len() - line.trim_start().len();
                    let Some(before) = at.checked_sub(1).map(|before| lines[before]) else { continue };
                    let word = line.trim();
                    let continues = before
                        .get(indent..)
                        .is_some_and(|text| text.split(' ').count() > 2 && !text.starts_with(' '));
                    let was_wrapped = before.chars().count() + 1 + word.chars().count() > width.min(MOST);
                    let next_begins_there = lines.get(at + 1).is_some_and(|next| {
                        !next.trim().is_empty() && next.len() - next.trim_start().len() == indent
                    });
                    let is_alone = !word.is_empty()
                        && !word.contains(' ')
                        && continues
                        && was_wrapped
                        && !next_begins_there;
                    assert!(!is_alone, "{name} at {width}: '{before}' / '{line}'");
                }
            }
        }
    }

    #[test]
    fn the_shared_options_are_explained_once() {
        let help = all(80);
        let explaining: Vec<&str> = help
            .iter()
            .filter(|(_, text)| text.contains("Select tasks: a thread id"))
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!(explaining, ["klock analyze", "klock analyze"]);
        let naming =
            help.iter().filter(|(name, text)| name.starts_with("klock analyze ") && text.contains("--task"));
        assert!(naming.count() >= 20);
    }

    #[test]
    fn rows_are_aligned_and_go_below_where_they_do_not_fit() {
        let text =
            "Examples:\n  klock a      one\n  klock long-command  another one\n\nA paragraph\nof two lines.";
        assert_eq!(
            lay_out(text, 60),
            "Examples:\n  klock a             one\n  klock long-command  another one\n\nA paragraph of two lines."
        );
        assert_eq!(
            lay_out("  left-side-that-is-long  right side", 40),
            "  left-side-that-is-long\n      right side"
        );
    }
}
