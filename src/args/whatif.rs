//! Arguments of `klock whatif`. The order of changes counts: `--also` begins another alternative.

use analyze::tables::whatif::{self, Change, ChangeKind};
use clap::{ArgAction, ArgMatches, Args as ClapArgs, Command, FromArgMatches};

use super::common::{Table, Traces};

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = after_help())]
pub(crate) struct WhatIf {
    #[command(flatten)]
    pub(crate) changes: Changes,
    /// Predict the rate of acquisitions at the sites whose name contains SITE, too.
    #[arg(long, value_name = "SITE")]
    pub(crate) progress: Option<String>,
    /// Replay at most N events, 5 million at most: the middle of the longest part without loss.
    #[arg(long, value_name = "N", default_value_t = whatif::EVENTS, value_parser = events)]
    pub(crate) events: u64,
    /// Sleep outside of locks: kept (as long as it was), or open (until the time at which it ended, as for
    /// requests from outside).
    #[arg(long = "sleep", value_name = "HOW", default_value = "kept", value_parser = is_open, action = ArgAction::Set)]
    pub(crate) sleep_open: bool,
    /// Show predictions of replays that do not fit the recording.
    #[arg(long)]
    pub(crate) anyway: bool,
    #[command(flatten)]
    pub(crate) traces: Traces,
    #[command(flatten)]
    pub(crate) table: Table,
}

/// The changes of each alternative.
#[derive(Clone, Debug)]
pub(crate) struct Changes(pub(crate) Vec<Vec<Change>>);

const ALSO: &str = "also";

/// The option, the name of its value, and its help.
const OPTIONS: [(ChangeKind, &str, &str); 9] = [
    (
        ChangeKind::Hold,
        "LOCK[@SITE]=FACTOR",
        "Scale the work of holds of LOCK, or of those that were acquired at SITE: 0.5 halves it",
    ),
    (
        ChangeKind::NoSleep,
        "LOCK[=later]",
        "Leave out sleep of holders of LOCK, or let them sleep after its release (if recorded)",
    ),
    (
        ChangeKind::NoPreempt,
        "LOCK",
        "Leave out time without a CPU of tasks that hold LOCK (record with --off-cpu)",
    ),
    (
        ChangeKind::Shard,
        "LOCK=N[:task]",
        "Split LOCK into N: each acquisition takes one at random, or each task has one",
    ),
    (
        ChangeKind::Readers,
        "LOCK=SITE,...|PERCENT",
        "Share the acquisitions of LOCK at these sites, or so many of 100: 70%",
    ),
    (
        ChangeKind::Handoff,
        "LOCK=TIME",
        "Set the time from a release of LOCK to the acquisition of the next waiter: 0, 5us",
    ),
    (ChangeKind::Fifo, "LOCK", "Let no task overtake waiters for LOCK"),
    (ChangeKind::Remove, "LOCK", "Let LOCK never block: no change of it gains more"),
    (ChangeKind::Cpus, "N", "Use N processors"),
];

fn after_help() -> String {
    let columns = analyze::output::help(&whatif::columns(false, true), true);
    format!("{columns}\n{EXAMPLES}")
}

const EXAMPLES: &str = "\
The recording is replayed: what each task does is kept, who waits for whom is
decided anew, without the changes and with them. LOCK is an address, #ID or a name.
Several changes are made together; each --also begins another alternative. A replay
that does not fit the recording makes no prediction, and the exit code is 4. --from
and --to choose the part that is replayed; the other filters are refused.

Examples:
  klock whatif --hold cache_lock=0.5
  klock whatif --hold cache_lock@lookup=0.5 --also --shard cache_lock=4 --also --remove cache_lock
  klock whatif --readers cache_lock=70% --progress handle_request
  klock whatif --handoff '#3=0' --cpus 16 server.parquet";

/// Parses a number of events.
fn events(text: &str) -> Result<u64, String> {
    let events =
        text.replace('_', "").parse().ok().filter(|events| (1..=whatif::MOST_EVENTS).contains(events));
    events.ok_or_else(|| format!("invalid number of events '{text}': use 1 to {}", whatif::MOST_EVENTS))
}

/// Parses what becomes of sleep outside of locks.
fn is_open(text: &str) -> Result<bool, String> {
    match text {
        "kept" => Ok(false),
        "open" => Ok(true),
        _ => Err(format!("invalid value '{text}' of --sleep: use kept or open")),
    }
}

impl ClapArgs for Changes {
    fn augment_args(command: Command) -> Command {
        let option = |(kind, value, help): &(ChangeKind, &'static str, &'static str)| {
            let kind = *kind;
            clap::Arg::new(kind.as_str())
                .long(kind.as_str())
                .value_name(*value)
                .help(*help)
                .help_heading("Changes")
                .action(ArgAction::Append)
                .value_parser(move |text: &str| kind.parse(text))
        };
        let also = clap::Arg::new(ALSO)
            .long(ALSO)
            .help("Begin another alternative, which has none of the changes before")
            .help_heading("Changes")
            .num_args(0)
            .default_missing_value("")
            .action(ArgAction::Append);
        command.args(OPTIONS.iter().map(option)).arg(also)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Changes {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut all: Vec<(usize, Option<Change>)> = Vec::new();
        for (kind, ..) in OPTIONS {
            let values = matches.get_many::<Change>(kind.as_str()).into_iter().flatten().cloned().map(Some);
            all.extend(matches.indices_of(kind.as_str()).into_iter().flatten().zip(values));
        }
        all.extend(matches.indices_of(ALSO).into_iter().flatten().map(|at| (at, None)));
        all.sort_by_key(|(at, _)| *at);
        let mut alternatives = vec![Vec::new()];
        for (_, change) in all {
            match (change, alternatives.last_mut()) {
                (Some(change), Some(last)) => last.push(change),
                _ => alternatives.push(Vec::new()),
            }
        }
        Ok(Self(alternatives))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alternatives(words: &[&str]) -> Vec<Vec<String>> {
        let command = Changes::augment_args(Command::new("whatif")).no_binary_name(true);
        let matches = command.try_get_matches_from(words).unwrap();
        let changes = Changes::from_arg_matches(&matches).unwrap();
        changes.0.iter().map(|all| all.iter().map(Change::to_string).collect()).collect()
    }

    #[test]
    fn the_order_of_changes_is_that_of_the_command_line() {
        let words = [
            "--shard", "a=2", "--hold", "a=0.5", "--also", "--remove", "a", "--also", "--hold", "b=2",
            "--cpus", "4",
        ];
        let expected: [&[&str]; 3] =
            [&["--shard a=2", "--hold a=0.5"], &["--remove a"], &["--hold b=2", "--cpus 4"]];
        assert_eq!(alternatives(&words), expected);
        assert_eq!(alternatives(&[]), [[""; 0]]);
    }
}
