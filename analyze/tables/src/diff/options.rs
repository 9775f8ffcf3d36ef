//! The options of a comparison: the key that its sides share, the metrics, and the condition of `--fail-if`,
//! `wait_total > +20%`.

use std::{fmt, str::FromStr};

use intervals::{input::filter::Filter, input::names::printable};
use output::{choices, error::AnalyzeError};
use trace_format::{Trace, run_info::COMMAND_ENDED};

/// Options of the table.
#[derive(Clone, Debug, Default)]
pub struct DiffOptions {
    /// The key that is matched.
    pub by: Align,
    /// The metric by whose difference rows are sorted.
    pub metric: Metric,
    /// The number of rows; `None` is all.
    pub limit: Option<usize>,
    /// The part of both traces to read.
    pub filter: Filter,
    /// Whether to compare traces that lost too many events.
    pub allow_loss: bool,
}

choices! {
    /// The key that is matched in both traces.
    Align, "key" {
        /// Locks of one kind and name; without a name, those that were initialised, otherwise acquired, in
        /// one function.
        #[default]
        Lock = "lock",
        /// Locks that were initialised in one function; where that was not seen, acquired.
        Init = "init",
        /// One function that acquires, and class of locks: lines differ from build to build.
        Site = "site",
        /// One stack and class of locks.
        Stack = "stack",
        /// All locks of one kind.
        Kind = "kind",
        /// Threads of one name.
        Comm = "comm",
    }
}

choices! {
    /// What sums are divided by.
    Per, "unit" {
        /// The number of recordings: each is a whole run of a command.
        #[default]
        Run = "run",
        /// The seconds of all recordings, because programs ran on.
        Second = "second",
    }
}

choices! {
    /// The recordings that are compared.
    Units, "units" {
        /// Recordings of a program.
        #[default]
        Recordings = "recordings",
        /// Hosts of a fleet.
        Hosts = "hosts",
    }
}

choices! {
    /// The metric that is compared.
    Metric, "metric" {
        /// Waiting, in ns per run.
        #[default]
        WaitTotal = "wait_total",
        /// Holding, in ns per run.
        Total = "total",
        /// Acquisitions per run.
        Count = "count",
        /// Contended acquisitions per run.
        CntLock = "cnt_lock",
        /// Time that others waited for its holds, in ns per run.
        WaitCaused = "wait_caused",
        /// Waiting per acquisition, in ns.
        WaitAvg = "wait_avg",
        /// Holding per acquisition, in ns.
        Avg = "avg",
        /// Median of the waits, in ns.
        WaitP50 = "wait_p50",
        /// 99 % of the waits are no longer, in ns.
        WaitP99 = "wait_p99",
        /// Median of the holds, in ns.
        P50 = "p50",
        /// 99 % of the holds are no longer, in ns.
        P99 = "p99",
    }
}

impl Per {
    /// Returns the unit in which sums of all these recordings can be compared: only whole runs are alike.
    pub(super) fn of<'t>(mut traces: impl Iterator<Item = &'t Trace>) -> Self {
        let is_run = |trace: &Trace| trace.info().stop_reason == COMMAND_ENDED;
        if traces.all(is_run) { Self::Run } else { Self::Second }
    }

    /// Returns what sums of a recording of this length are divided by.
    pub(super) fn divisor(self, span_ns: i64) -> f64 {
        match self {
            Self::Run => 1.0,
            Self::Second => span_ns.max(1) as f64 / 1e9,
        }
    }
}

impl Metric {
    /// Returns whether it is a sum, per run or second.
    pub const fn is_sum(self) -> bool {
        matches!(self, Self::WaitTotal | Self::Total | Self::Count | Self::CntLock | Self::WaitCaused)
    }

    /// Returns whether it is a quantile, of which buckets of times decide.
    pub(super) const fn is_quantile(self) -> bool {
        matches!(self, Self::WaitP50 | Self::WaitP99 | Self::P50 | Self::P99)
    }

    /// Returns whether its values are times, not numbers of things.
    pub const fn is_time(self) -> bool {
        !matches!(self, Self::Count | Self::CntLock)
    }

    /// Returns whether it is known only where holds were recorded.
    pub(super) const fn is_of_holds(self) -> bool {
        matches!(self, Self::Total | Self::WaitCaused | Self::Avg)
    }
}

/// A change of all selected locks together that fails a comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Condition {
    /// The metric.
    pub metric: Metric,
    /// Whether the change must be above the limit, or below.
    pub above: bool,
    /// The limit: 0.2 is a fifth more.
    pub limit: f64,
}

impl FromStr for Condition {
    type Err = AnalyzeError;

    fn from_str(text: &str) -> Result<Self, AnalyzeError> {
        let bad = || AnalyzeError::BadCondition { text: printable(text).into_owned() };
        let at = text.find(['<', '>']).ok_or_else(bad)?;
        let metric = text[..at].trim().parse()?;
        let percent = text[at + 1..].trim().strip_suffix('%').ok_or_else(bad)?;
        let percent: f64 = percent.trim().parse().ok().filter(|n: &f64| n.is_finite()).ok_or_else(bad)?;
        Ok(Self { metric, above: text[at..].starts_with('>'), limit: percent / 100.0 })
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.above { '>' } else { '<' };
        write!(f, "{} {sign} {:+}%", self.metric, self.limit * 100.0)
    }
}
