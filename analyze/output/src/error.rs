//! Errors of an analysis. Each message names what failed, why, and the next step.

use std::{io, path::PathBuf};

use trace_format::FormatError;

use crate::units;

/// An error of an analysis.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnalyzeError {
    /// The trace cannot be read. The source has the message, and stays in the chain.
    #[error("{0}")]
    Format(#[from] FormatError),
    /// The trace holds no events.
    #[error("cannot analyze {}: the trace holds no events; record for longer, other tasks or locks, or as root what else they sleep for (`--off-cpu`); `klock info` shows what was recorded", path.display())]
    Empty { path: PathBuf },
    /// A selector matches no lock of the trace.
    #[error("cannot find lock '{wanted}': the trace has no such lock; {}{}", meant(near.as_deref()), suggestions(busiest))]
    LockNotFound { wanted: String, near: Option<String>, busiest: Vec<String> },
    /// The trace has no lock of the selected kinds.
    #[error("cannot find kind '{wanted}': the kinds of the trace's locks are {known}")]
    KindNotFound { wanted: String, known: String },
    /// A selector matches several locks where one is needed.
    #[error("cannot choose a lock: '{wanted}' matches {count} locks; use one of {}", candidates.join(", "))]
    AmbiguousLock { wanted: String, count: usize, candidates: Vec<String> },
    /// A selector matches no task of the trace.
    #[error(
        "cannot find task '{wanted}': the trace has no such task; {}use a thread id, a process id or a command name (`--by task` lists them)",
        meant(near.as_deref())
    )]
    TaskNotFound { wanted: String, near: Option<String> },
    /// The window begins after the trace ended.
    #[error(
        "cannot select from {} on: the trace lasted {}; choose an earlier start with --from, or with --window of klock html",
        units::duration(*from_ns),
        units::duration(*lasted_ns)
    )]
    WindowAfterEnd { from_ns: i64, lasted_ns: i64 },
    /// A name matches no function of the trace.
    #[error(
        "cannot find function '{wanted}': no name in the trace's {stacks} stacks contains it; use a part of a name that `--by stack` shows"
    )]
    SymbolNotFound { wanted: String, stacks: usize },
    /// The trace lost too many events to be ranked.
    #[error("cannot rank {}: {share} of the events are missing ({detail}); {advice}, or use --allow-loss to see the rest", path.display())]
    TooMuchLost { path: PathBuf, share: String, detail: String, advice: &'static str },
    /// The periods of a timeline are too short.
    #[error(
        "cannot make {periods} periods: at most {most} are possible; use a longer --period, or a part of the trace with --from and --to"
    )]
    TooManyPeriods { periods: i64, most: i64 },
    /// A condition on a comparison is invalid.
    #[error("invalid condition '{text}': use a metric, > or <, and percents, as in wait_total > +20%")]
    BadCondition { text: String },
    /// A file does not have the sums of the hosts of a fleet.
    #[error("cannot compare the hosts in {}: {why}; write the file with fleet.py --cohort NAME=VALUE -o FILE.parquet ROLLUPS cohorts", path.display())]
    BadHosts { path: PathBuf, why: String },
    /// A condition on rows is invalid.
    #[error(
        "invalid condition '{text}': use a column, <, <=, =, !=, >= or >, and a value, as in 'wait_total > 5ms'"
    )]
    BadHaving { text: String },
    /// A list of keys is too long, or has one twice.
    #[error("invalid keys '{text}': use at most {most}, each once")]
    BadKeys { text: String, most: usize },
    /// The value of a condition on rows does not fit its column.
    #[error("invalid value '{word}' of {column}: use {expected}")]
    BadHavingValue { word: String, column: String, expected: &'static str },
    /// A line of the spans of a critical path is invalid.
    #[error(
        "invalid line {line} of the spans '{text}': use tid,begin_ns,end_ns or tid,begin_ns,end_ns,name, with an end after the begin"
    )]
    BadSpan { line: u64, text: String },
    /// A label of a rollup is invalid.
    #[error("invalid label '{text}': use NAME=VALUE, as in version=2.1")]
    BadLabel { text: String },
    /// The value of an option is invalid.
    #[error("invalid {what} '{word}': {}", right_word(word, known))]
    UnknownWord { what: &'static str, word: String, known: String },
    /// The releases of the selected locks were not recorded.
    #[error(
        "cannot find lock orders in {}: no releases of these locks were recorded; record with --locks kernel or --locks pthread", path.display()
    )]
    NoReleases { path: PathBuf },
    /// The holds of a lock that is to be changed were not recorded.
    #[error("cannot replay {lock}: {why}; {advice}")]
    CannotReplay { lock: String, why: &'static str, advice: &'static str },
    /// A lock was not acquired at a site.
    #[error("cannot find site '{wanted}': {} was acquired at {}", lock, sites.join(", "))]
    SiteNotFound { wanted: String, lock: String, sites: Vec<String> },
    /// A change for a replay is invalid.
    #[error("invalid value '{text}' of --{option}: use {expected}")]
    BadChange { option: &'static str, text: String, expected: &'static str },
    /// Events were lost in the window of a replay.
    #[error("cannot replay {}: events were lost in the window; choose another one with --from and --to, or none for the longest part without loss", path.display())]
    LossInWindow { path: PathBuf },
    /// The trace lacks data that the export needs.
    #[error("cannot export {}: {what}; {advice}", path.display())]
    Lacks { path: PathBuf, what: String, advice: &'static str },
    /// The format takes one trace only.
    #[error("cannot export {count} traces as {format}: {why}; export them one by one")]
    OneTraceOnly { format: &'static str, count: usize, why: &'static str },
    /// The output cannot be written.
    #[error("cannot write the output")]
    Write(#[source] io::Error),
    /// A table could not be computed.
    #[error("cannot compute the table; please report this with the output of `klock info`")]
    Compute(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A picture could not be drawn.
    #[error("cannot draw the picture: {detail}")]
    Draw { detail: String },
}

impl AnalyzeError {
    /// Returns the error for a word that is none of the known ones.
    pub fn not_among(what: &'static str, word: &str, known: &[&str]) -> Self {
        Self::UnknownWord { what, word: word.to_owned(), known: known.join(", ") }
    }

    /// Whether the trace is valid and has nothing to show: exit code 1, not 2.
    pub fn nothing_found(&self) -> bool {
        matches!(
            self,
            Self::Empty { .. }
                | Self::LockNotFound { .. }
                | Self::KindNotFound { .. }
                | Self::TaskNotFound { .. }
                | Self::WindowAfterEnd { .. }
                | Self::SymbolNotFound { .. }
                | Self::SiteNotFound { .. }
        )
    }

    /// Whether what is needed was not recorded: exit code 3.
    pub fn not_recorded(&self) -> bool {
        matches!(self, Self::NoReleases { .. } | Self::CannotReplay { .. })
    }

    /// Whether the trace lost too many events: exit code 4.
    pub fn too_much_lost(&self) -> bool {
        matches!(self, Self::TooMuchLost { .. } | Self::LossInWindow { .. })
    }
}

/// Words of other tools, and klock's word for each.
const ALIASES: [(&str, &str); 8] = [
    ("line", "site"),
    ("function", "site"),
    ("caller", "site"),
    ("thread", "task"),
    ("tid", "task"),
    ("pid", "process"),
    ("address", "lock"),
    ("wait", "wait_total"),
];
/// The most known words that an error lists.
const MOST: usize = 14;

/// Returns the known word that was probably meant, or the first known words.
fn right_word(word: &str, known: &str) -> String {
    let all = || known.split(", ");
    let alias = ALIASES.iter().find(|(alias, meant)| *alias == word && all().any(|known| known == *meant));
    match alias.map(|(_, meant)| *meant).or_else(|| near(word, all())) {
        Some(near) => format!("did you mean {near}? --help lists all"),
        None if all().count() > MOST => {
            let first: Vec<&str> = all().take(MOST).collect();
            format!("use one of {}, ...; --help lists all", first.join(", "))
        }
        None => format!("use one of {known}"),
    }
}

fn meant(near: Option<&str>) -> String {
    near.map_or_else(String::new, |near| format!("did you mean {near}? "))
}

/// Returns the known word that was probably meant, if there is one.
pub fn near<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |word: &str| word.replace(['_', '-', ' '], "").to_lowercase();
    let wanted = plain(word);
    let nearest = known.map(|known| (strsim::osa_distance(&wanted, &plain(known)), known)).min();
    nearest.filter(|(errors, _)| *errors <= wanted.len() / 4).map(|(_, known)| known)
}

fn suggestions(busiest: &[String]) -> String {
    if busiest.is_empty() {
        "`klock report` lists its locks".to_owned()
    } else {
        format!("the busiest are {}", busiest.join(", "))
    }
}
