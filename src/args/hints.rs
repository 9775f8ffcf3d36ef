//! Answers to a mistyped command line: the option of klock that does what a user of perf or bcc has in mind.
//!
//! A hint is one line below clap's error. An error that klock does not know has none.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use trace_format::LockKind;

/// Options of perf and bcc that klock does not have, by command, and what to use instead.
const OPTIONS: &[(&[&str], &[&str], &str)] = &[
    (
        &["record"],
        &["-g", "--call-graph", "-U", "-K"],
        "call stacks are always recorded; --max-stack sets their depth",
    ),
    (
        &["record"],
        &["-F", "--freq", "-c", "--count"],
        "klock records every event, without sampling; --sample N records one acquisition in N",
    ),
    (
        &["record"],
        &["-e", "--event"],
        "choose what is recorded with --locks kernel,futex,pthread,rust,go or --off-cpu",
    ),
    (&["record"], &["-G", "--for-each-cgroup"], "record a cgroup with --cgroup PATH"),
    (
        &["record"],
        &["-u", "--uid", "-C", "--cpu"],
        "choose tasks with -p PID, -t TID, --cgroup PATH or --comm NAME",
    ),
    (&["record"], &["--all-cpus"], "record all tasks with -a"),
    (&["record"], &["-s", "--stat"], "each thread is recorded apart; `klock report --by task` shows them"),
    (
        &["record"],
        &["-i", "--no-inherit"],
        "processes that the target starts are always recorded; -t TID records one thread",
    ),
    (&["record"], &["-m", "--mmap-pages"], "set the size of the ring buffers with --ring 8M"),
    (&["record"], &["-Y", "--type-filter"], "choose kinds of kernel locks with --kind mutex,rwsem"),
    (&["record"], &["-L", "--lock-filter"], "choose locks with --lock ADDR|SYMBOL"),
    (
        &["record"],
        &["-n", "-k", "--by"],
        "this is an option of `klock report`, which reads the trace afterwards",
    ),
    (
        &[],
        &["-g", "--call-graph", "-G"],
        "group by call stack with --by stack, or by acquisition site with --by site; `klock plot --flame` draws stacks",
    ),
    (
        &["events", "waits", "holds"],
        &["--by"],
        "each row is one event, wait or hold; `klock report --by KEY` groups them",
    ),
    (&["hist"], &["--holds", "--hold"], "use --of hold"),
    (&["export"], &["-U", "--user-stacks-only"], "use --stacks user"),
    (&["export"], &["-K", "--kernel-stacks-only"], "use --stacks kernel"),
    (&["export"], &["-u", "--user-threads-only"], "use --threads user"),
    (&["export"], &["-k", "--kernel-threads-only"], "use --threads kernel"),
    (&["export"], &["-m", "--min-block-time"], "use --min-wait 1ms"),
    (&["export"], &["-M", "--max-block-time"], "use --max-wait 9ms"),
    (&["export"], &["--aggr"], "use --by caller, task, lock or owner"),
    (&[], &["--comm"], "select tasks by name with --task NAME"),
    (&[], &["-i", "--input"], "give the trace without an option: `klock report trace.parquet`"),
    (&[], &["-s"], "sort with -k COLUMN, and group with --by KEY"),
    (
        &[],
        &["-t", "--threads", "--tid", "-T"],
        "group by thread with --by task, or select threads with --task TID",
    ),
    (&[], &["-p", "--pid"], "select a process with --task PID, or group with --by process"),
    (&[], &["-l", "--lock-addr"], "group by lock with --by lock, or select one with --lock ADDR"),
    (&[], &["-E", "--entries"], "set the number of rows with -n N"),
    (&[], &["-x", "--field-separator"], "use --format csv"),
    (&[], &["-F", "--fields", "--field"], "choose columns with -F LIST (--columns)"),
    (&[], &["--stdio"], "klock always prints text; --no-pager leaves the pager out"),
    (&[], &["-Y", "--type-filter"], "select kinds of locks with --kind LIST"),
    (&[], &["-L", "--lock-filter"], "select a lock with --lock ADDR|#ID|NAME"),
    (&[], &["-S", "--callstack-filter"], "select stacks with --symbol NAME"),
    (&[], &["-v", "--verbose"], "--notes shows all notes, and --full whole names"),
    (&[], &["-a", "--all-cpus", "-d", "--duration"], "this is an option of `klock record`"),
    (&[], &["--owner", "--lock-owner"], "`klock blame` shows the holders that others waited for"),
    (&[], &["--json"], "use --format json"),
    (&[], &["--csv"], "use --format csv"),
];

/// Commands that klock does not have, of perf, of bcc and those that became options, and what to use instead.
const COMMANDS: &[(&str, &str)] = &[
    ("chains", "`klock blame --chains` charges waits to the ends of their chains"),
    ("periods", "`klock timeline --worst` shows the acquisitions of each period, the worst first"),
    ("processes", "`klock report --by process` has a row per process, with idle waits apart"),
    ("lock", "klock records with `klock record COMMAND`, and shows sums with `klock report`"),
    ("contention", "`klock record COMMAND` records, and `klock report` shows the sums"),
    ("stat", "`klock record COMMAND` records, and `klock report` shows the sums"),
    ("top", "`klock record COMMAND` records, and `klock report` shows the locks with most waiting"),
    ("script", "`klock events` shows each event, and `klock export` writes other formats"),
    ("trace", "`klock record COMMAND` records a trace, and `klock events` shows its rows"),
    ("attach", "`klock record -p PID` records a running process"),
    ("run", "`klock record COMMAND` runs a command and records it"),
    ("view", "`klock html` writes a page for the browser"),
    ("open", "`klock html` writes a page for the browser"),
    ("explain", "`klock why` says why threads wait, and what would help"),
    ("flamegraph", "`klock plot --flame` draws stacks by the time they wait"),
    ("annotate", "`klock report --by site` shows lines of code"),
    ("timehist", "`klock waits` shows each wait"),
];

/// Commands that take fewer traces than they were given, with the reason and the next step.
const FEWER_TRACES: &[(&str, &str)] = &[
    (
        "html",
        "cannot put several traces on one page: its timeline has one clock; write a page for each trace",
    ),
    (
        "plot",
        "cannot draw more than one trace; `klock diff` compares two, and `klock html` shows several locks of one",
    ),
    ("recover", "cannot recover several traces at once; recover them one by one"),
];

/// The error of the standard library for a word that should be a number, such as `x`.
const NO_NUMBER: &str = "invalid digit found in string";

/// Returns the answer to an error, if there is a better one than clap's. In `klock -q record`, `command` is
/// `record` and `before` is `-q`. `names` are the names of all commands and tables.
pub(super) fn hint(error: &clap::Error, command: &str, before: &[&str], names: &[String]) -> Option<String> {
    match error.kind() {
        ErrorKind::UnknownArgument if !before.is_empty() => {
            let option = text(error, ContextKind::InvalidArg).filter(|option| before.contains(option))?;
            Some(format!("cannot use {option} before the command: klock {command} {option} ..."))
        }
        ErrorKind::UnknownArgument => unknown_argument(error, command),
        ErrorKind::InvalidSubcommand => {
            let word = text(error, ContextKind::InvalidSubcommand)?;
            let expected = match COMMANDS.iter().find(|(name, _)| *name == word) {
                Some((_, advice)) => (*advice).to_owned(),
                None if word.ends_with(".parquet") => format!("did you mean klock report {word}?"),
                None if word.contains(['/', ' ']) => format!("`klock record {word}` records a program"),
                None => match near(word, names) {
                    Some(name) => format!("did you mean klock {name}?"),
                    None => "klock --help lists all commands".to_owned(),
                },
            };
            Some(format!("invalid command '{word}': {expected}"))
        }
        // The parsers of klock name the value and the valid form.
        ErrorKind::ValueValidation => {
            let words = std::error::Error::source(error)?.to_string();
            let numbers = match words.split_once(" is not in ") {
                Some((_, range)) => format!("number from {}", range.replace("..=", " to ")),
                None if words == NO_NUMBER => "number".to_owned(),
                None => return words.starts_with("invalid ").then_some(words),
            };
            let (option, value) =
                (text(error, ContextKind::InvalidArg)?, text(error, ContextKind::InvalidValue)?);
            let option = option.split(' ').next().unwrap_or(option);
            Some(format!("invalid {option} '{value}': use a {numbers}; {}", see_help(command)))
        }
        ErrorKind::InvalidValue => invalid_value(error, command),
        ErrorKind::MissingRequiredArgument => {
            let ContextValue::Strings(missing) = error.get(ContextKind::InvalidArg)? else { return None };
            let are = if missing.len() == 1 { "is" } else { "are" };
            let missing = missing.join(" and ");
            Some(format!("cannot run klock {command}: {missing} {are} missing; {}", see_help(command)))
        }
        ErrorKind::ArgumentConflict => conflict(error, command),
        _ => None,
    }
}

/// Returns a text of the error's context.
fn text(error: &clap::Error, kind: ContextKind) -> Option<&str> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.as_str()),
        _ => None,
    }
}

/// Returns the next step if no better one is known.
fn see_help(command: &str) -> String {
    let space = if command.is_empty() { "" } else { " " };
    format!("klock {command}{space}--help shows its options")
}

/// Returns the answer to an option or argument that the command does not have.
fn unknown_argument(error: &clap::Error, command: &str) -> Option<String> {
    let option = text(error, ContextKind::InvalidArg)?;
    if !option.starts_with('-') {
        let fewer = FEWER_TRACES.iter().find(|(name, _)| *name == command);
        let own = || format!("cannot use '{option}' with klock {command}: {}", see_help(command));
        return Some(fewer.map_or_else(own, |(_, answer)| (*answer).to_owned()));
    }
    let option = option.split('=').next().unwrap_or(option);
    let known = OPTIONS.iter().find(|(commands, options, _)| {
        (commands.contains(&command) || commands.is_empty() && command != "record")
            && options.contains(&option)
    });
    let similar =
        text(error, ContextKind::SuggestedArg).filter(|similar| distance(option, similar).is_some());
    let advice = match (known, similar) {
        (Some((.., advice)), _) => (*advice).to_owned(),
        (None, Some(similar)) => format!("did you mean {similar}?"),
        (None, None) => see_help(command),
    };
    let of = format!("klock {command}");
    Some(format!("cannot use {option} with {}: there is no such option; {advice}", of.trim_end()))
}

/// Returns the answer to a value that an option or argument does not have, or to an option without its value.
fn invalid_value(error: &clap::Error, command: &str) -> Option<String> {
    let (option, value) = (text(error, ContextKind::InvalidArg)?, text(error, ContextKind::InvalidValue)?);
    if value.is_empty() {
        return Some(format!(
            "cannot use {} without a value: give {option}; {}",
            name_of(option),
            see_help(command)
        ));
    }
    if option.starts_with("--locks") {
        return Some(format!("invalid locks '{value}': {}", locks(value)));
    }
    let ContextValue::Strings(known) = error.get(ContextKind::ValidValue)? else { return None };
    let name = name_of(option);
    (!known.is_empty()).then(|| format!("invalid {name} '{value}': use one of {}", known.join(", ")))
}

/// Returns the answer to two options that exclude each other.
fn conflict(error: &clap::Error, command: &str) -> Option<String> {
    let other = match error.get(ContextKind::PriorArg)? {
        ContextValue::Strings(others) => others.first()?,
        ContextValue::String(other) => other,
        _ => return None,
    };
    let one = text(error, ContextKind::InvalidArg)?;
    if command == "record"
        && let Some(answer) = two_targets(one, other)
    {
        return Some(answer);
    }
    let [one, other] = [one, other].map(name_of);
    if one == other {
        let list = if one == "--by" { ", with commas: --by lock,task" } else { "" };
        return Some(format!("cannot use {one} twice: give it once{list}"));
    }
    let verb = if command == "plot" { "draw" } else { "use" };
    Some(format!("cannot {verb} {one} together with {other}: leave one of them out"))
}

/// Returns the name of an option or argument as clap shows it: `--width` of `--width <PIXELS>`.
fn name_of(shown: &str) -> &str {
    let is_bracket = |c| matches!(c, '<' | '>' | '[' | ']' | '.');
    shown
        .split(' ')
        .next()
        .unwrap_or(shown)
        .split('[')
        .find(|part| !part.is_empty())
        .unwrap_or(shown)
        .trim_matches(is_bracket)
}

/// Returns the known word that was probably meant, if there is one.
fn near<'a>(word: &str, known: &'a [String]) -> Option<&'a str> {
    let near = known.iter().filter_map(|known| Some((distance(word, known)?, known)));
    near.min().map(|(_, known)| known.as_str())
}

/// Returns the number of differences between a word and a known one, if it was probably meant.
fn distance(word: &str, known: &str) -> Option<usize> {
    Some(strsim::osa_distance(word, known)).filter(|distance| *distance <= word.len() / 3)
}

/// Returns what to use for a word that `--locks` does not know.
fn locks(word: &str) -> String {
    let sources = "use kernel, futex, pthread, rust or go";
    match word.parse::<LockKind>() {
        Ok(kind) if kind.is_kernel() => {
            format!(
                "{sources}; for one kind of kernel locks --locks kernel --kind {word}, for mutexes of programs --locks pthread"
            )
        }
        Ok(_) => format!("{sources}; locks of this kind are recorded by --locks pthread"),
        Err(_) => sources.to_owned(),
    }
}

/// Returns the answer to a command line with two targets.
fn two_targets(one: &str, other: &str) -> Option<String> {
    let is_target =
        |word: &str| ["--all", "--pid", "--tid", "--cgroup", "[COMMAND]"].iter().any(|t| word.starts_with(t));
    if !is_target(one) || !is_target(other) {
        return None;
    }
    let advice = if [one, other].iter().any(|word| word.starts_with("[COMMAND]")) {
        "; to record running tasks for some time, use -d 10s instead of a command"
    } else {
        ""
    };
    let name = |word: &str| {
        if word.starts_with("[COMMAND]") { "COMMAND" } else { word.split(' ').next().unwrap_or(word) }
            .to_owned()
    };
    Some(format!("cannot record {} and {}: give one target{advice}", name(one), name(other)))
}
