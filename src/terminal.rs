//! Decides how results look, from facts about the terminal and the environment.
//!
//! Facts are gathered once; [`plan`] turns them and the options into a [`Plan`] without side effects;
//! `output` and `pager` carry it out. Into a pipe or a file goes the data alone.

use std::{
    env,
    io::{self, IsTerminal as _},
    path::Path,
    sync::OnceLock,
};

use clap::{Args as ClapArgs, ValueEnum};
use trace_format::text::words;

/// The most rows of a table on a terminal, if no number is given, and the fewest.
#[cfg(feature = "analyze")]
const ROWS: std::ops::RangeInclusive<usize> = 10..=20;

/// Lines around the rows of a table: headings, hidden rows and columns, totals, the trust block and the
/// prompt of the shell.
#[cfg(feature = "analyze")]
const AROUND: usize = 8;

/// Options for output on a terminal, which every command takes.
#[derive(Clone, Copy, Debug, ClapArgs)]
pub(crate) struct Terminal {
    /// Use colours: auto (on a terminal, unless NO_COLOR is set), always or never.
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        help_heading = "Terminal",
        hide_short_help = true
    )]
    pub(crate) color: ColorWhen,
    /// Do not show long output in a pager.
    #[arg(long, global = true, help_heading = "Terminal", hide_short_help = true)]
    pub(crate) no_pager: bool,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorWhen {
    /// On a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    Always,
    Never,
}

/// The size of a terminal in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) columns: usize,
    pub(crate) rows: usize,
}

/// The environment of this process, as far as it decides how output looks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Facts {
    /// The size of the terminal behind the standard output; `None` if it is a pipe or a file.
    stdout: Option<Size>,
    /// Whether NO_COLOR is set, or the terminal cannot do more than print characters.
    is_plain: bool,
    /// The pager that the user has chosen, or one that this machine has.
    pager: Option<String>,
}

/// The look of results on the standard output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The size of the terminal; `None` for a pipe or a file.
    pub(crate) size: Option<Size>,
    /// Whether text has colours.
    pub(crate) color: bool,
    /// The command for output that is longer than the screen.
    pub(crate) pager: Option<String>,
}

static PLAN: OnceLock<Plan> = OnceLock::new();

/// Makes the plan of this process.
pub(crate) fn init(options: &Terminal) {
    let _ = PLAN.set(plan(facts(), options));
}

/// Returns the plan of this process.
pub(crate) fn current() -> &'static Plan {
    PLAN.get_or_init(|| plan(facts(), &Terminal { color: ColorWhen::Auto, no_pager: false }))
}

/// Returns the number of rows of a table, if none is given: as many as the screen has room for.
#[cfg(feature = "analyze")]
pub(crate) fn rows() -> usize {
    current()
        .size
        .map_or(*ROWS.end(), |size| size.rows.saturating_sub(AROUND).clamp(*ROWS.start(), *ROWS.end()))
}

/// Returns the size of the terminal behind the standard output or, for messages and help, behind the standard
/// error.
pub(crate) fn any_size() -> Option<Size> {
    size_of(io::stdout()).or_else(|| size_of(io::stderr()))
}

/// Returns the size of the terminal behind a stream.
pub(crate) fn size_of(stream: impl std::os::fd::AsFd) -> Option<Size> {
    let (columns, rows) = terminal_size::terminal_size_of(stream)?;
    Some(Size { columns: usize::from(columns.0).max(1), rows: usize::from(rows.0) })
}

/// Breaks a line between words, and never a command in backquotes, where it is wider than `width`. Further
/// lines are indented.
pub(crate) fn wrapped(line: &str, width: usize, indent: usize) -> String {
    let (mut text, mut used) = (String::new(), 0);
    for word in words(line) {
        let length = word.chars().count();
        if used > indent && used + length > width {
            text.truncate(text.trim_end().len());
            text.push_str(&format!("\n{:indent$}", ""));
            used = indent;
        }
        text.push_str(word);
        text.push(' ');
        used += length + 1;
    }
    text.pop();
    text
}

fn facts() -> Facts {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty());
    let chosen = env::var("KLOCK_PAGER").or_else(|_| env::var("PAGER")).ok();
    Facts {
        stdout: size_of(io::stdout()).filter(|_| io::stdout().is_terminal()),
        is_plain: set("NO_COLOR").is_some() || set("TERM").is_none_or(|term| term == "dumb"),
        pager: chosen.or_else(|| has_program("less").then(|| "less".to_owned())),
    }
}

fn has_program(name: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|directory| Path::new(&directory).join(name).is_file())
}

fn plan(facts: Facts, options: &Terminal) -> Plan {
    let Facts { stdout, is_plain, pager } = facts;
    let color = match options.color {
        ColorWhen::Auto => stdout.is_some() && !is_plain,
        ColorWhen::Always => true,
        ColorWhen::Never => false,
    };
    let is_pager = |command: &String| !matches!(command.trim(), "" | "cat");
    let pager = pager.filter(|command| stdout.is_some() && !options.no_pager && is_pager(command));
    Plan { size: stdout, color, pager }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AUTO: Terminal = Terminal { color: ColorWhen::Auto, no_pager: false };
    const SIZE: Size = Size { columns: 80, rows: 24 };

    fn facts(stdout: Option<Size>, pager: Option<&str>) -> Facts {
        Facts { stdout, is_plain: false, pager: pager.map(str::to_owned) }
    }

    #[test]
    fn a_pipe_gets_neither_colours_nor_a_pager() {
        assert_eq!(plan(facts(None, Some("less")), &AUTO), Plan::default());
        let always = Terminal { color: ColorWhen::Always, ..AUTO };
        assert!(plan(facts(None, None), &always).color);
    }

    #[test]
    fn no_color_and_a_dumb_terminal_are_respected_unless_colours_are_asked_for() {
        let plain = Facts { is_plain: true, ..facts(Some(SIZE), None) };
        assert!(!plan(plain.clone(), &AUTO).color && plan(facts(Some(SIZE), None), &AUTO).color);
        assert!(plan(plain, &Terminal { color: ColorWhen::Always, ..AUTO }).color);
        assert!(!plan(facts(Some(SIZE), None), &Terminal { color: ColorWhen::Never, ..AUTO }).color);
    }

    #[test]
    fn a_pager_is_left_out_by_option_or_as_cat() {
        let pager = |command, options: &Terminal| plan(facts(Some(SIZE), command), options).pager;
        assert_eq!(pager(Some("more"), &AUTO).as_deref(), Some("more"));
        for command in [Some("cat"), Some(""), None] {
            assert_eq!(pager(command, &AUTO), None);
        }
        assert_eq!(pager(Some("less"), &Terminal { no_pager: true, ..AUTO }), None);
    }
}
