//! Why an analysis gives no answer. Each error names the thing and the place, and ends with the next step.

use std::{io, path::PathBuf};

use trace_format::FormatError;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnalyzeError {
    /// The trace can't be read. In the words of its source, which stays in the chain for whoever looks for it.
    #[error("{0}")]
    Format(#[from] FormatError),
    /// The trace holds no events.
    #[error("{}: the trace holds no events; record for longer, or record other tasks or locks (`klock info` says what was recorded)", path.display())]
    Empty {
        /// Its events' file.
        path: PathBuf,
    },
    /// No lock of the trace is meant.
    #[error("no lock '{wanted}' in the trace; {}", suggestions(busiest))]
    LockNotFound {
        /// What was asked for.
        wanted: String,
        /// The locks with the most waiting, in words that find them.
        busiest: Vec<String>,
    },
    /// Several locks are meant where one is needed.
    #[error("'{wanted}' means {count} locks; give one of {}", candidates.join(", "))]
    AmbiguousLock {
        /// What was asked for.
        wanted: String,
        /// How many there are.
        count: usize,
        /// Some of them, the busiest first, in words that find them.
        candidates: Vec<String>,
    },
    /// No task of the trace is meant.
    #[error(
        "no task '{wanted}' in the trace; give a thread id, a process id or a command name (`--by task` lists them)"
    )]
    TaskNotFound {
        /// What was asked for.
        wanted: String,
    },
    /// No function of the trace is meant.
    #[error(
        "no function whose name contains '{wanted}' in the trace's {stacks} stacks; give a part of a name that `--by stack` shows"
    )]
    SymbolNotFound {
        /// What was asked for.
        wanted: String,
        /// Where it was looked for.
        stacks: usize,
    },
    /// Too much is missing to rank what is left.
    #[error("{}: {share} of the events are missing ({detail}), too much to rank what is left; {advice}, or see what is left with --allow-loss", path.display())]
    TooMuchLost {
        /// Its events' file.
        path: PathBuf,
        /// Which part of all events is missing.
        share: String,
        /// Why, where and when they were lost.
        detail: String,
        /// What to do about it.
        advice: &'static str,
    },
    /// A period of a timeline is too short.
    #[error(
        "{periods} periods are too many, {most} the most; give a longer --period, or less of the trace with --from and --to"
    )]
    TooManyPeriods {
        /// How many there would be.
        periods: i64,
        /// How many there may be.
        most: i64,
    },
    /// A condition on a comparison that is none.
    #[error("'{text}' is no condition; write a metric, > or <, and percents: wait_total > +20%")]
    BadCondition {
        /// What was given.
        text: String,
    },
    /// A word that an option does not know.
    #[error("unknown {what} '{word}'; give one of {known}")]
    UnknownWord {
        /// What the word should be.
        what: &'static str,
        /// What was given.
        word: String,
        /// What would have been understood.
        known: String,
    },
    /// The trace lacks what the format is about.
    #[error("{}: {what}; {advice}", path.display())]
    Lacks {
        /// Its events' file.
        path: PathBuf,
        /// What is missing.
        what: String,
        /// What to do about it.
        advice: &'static str,
    },
    /// The output can't be written.
    #[error("the output can't be written")]
    Write(#[source] io::Error),
    /// A table could not be computed.
    #[error("the table can't be computed; please report this with the trace's `klock info`")]
    Compute(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A picture could not be drawn.
    #[error("the picture can't be drawn: {detail}")]
    Draw {
        /// What the drawing library said.
        detail: String,
    },
}

impl AnalyzeError {
    /// Whether the trace is fine and just has nothing to show: exit code 1, not 2.
    pub fn nothing_found(&self) -> bool {
        matches!(
            self,
            Self::Empty { .. }
                | Self::LockNotFound { .. }
                | Self::TaskNotFound { .. }
                | Self::SymbolNotFound { .. }
        )
    }

    /// Whether the trace lost too much: exit code 4.
    pub fn too_much_lost(&self) -> bool {
        matches!(self, Self::TooMuchLost { .. })
    }
}

fn suggestions(busiest: &[String]) -> String {
    if busiest.is_empty() {
        "`klock analyze report` lists those that there are".to_owned()
    } else {
        format!("the busiest are {}", busiest.join(", "))
    }
}
