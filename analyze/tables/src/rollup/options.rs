//! The options of a rollup, the labels of its traces, and the clock of its periods.

use std::str::FromStr;

use trace_format::run_info::Clocks;

use crate::spans::Periods;
use intervals::Filter;
use output::error::AnalyzeError;

/// Options of a rollup.
#[derive(Clone, Debug)]
pub struct Options {
    /// The length of a period of `facts`, in ns.
    pub period_ns: i64,
    /// The length of a period of `buckets` and `blame`, in ns.
    pub long_period_ns: i64,
    /// The number of keys in each period of each table; the rest of the period is one row. `None` is all.
    pub keys: Option<usize>,
    /// Labels of the trace.
    pub labels: Vec<Label>,
    /// The part of the trace to read.
    pub filter: Filter,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            period_ns: 60_000_000_000,
            long_period_ns: 3_600_000_000_000,
            keys: Some(1000),
            labels: Vec::new(),
            filter: Filter::default(),
        }
    }
}

/// A label of a trace, by which an engine tells groups of machines apart: `version=2.1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The name.
    pub name: String,
    /// The value, which may be empty.
    pub value: String,
}

impl FromStr for Label {
    type Err = AnalyzeError;

    fn from_str(text: &str) -> Result<Self, AnalyzeError> {
        match text.split_once('=') {
            Some((name, value)) if !name.is_empty() => {
                Ok(Self { name: name.to_owned(), value: value.to_owned() })
            }
            _ => Err(AnalyzeError::BadLabel { text: text.to_owned() }),
        }
    }
}

/// Converts times of a trace to the wall clock, as both clocks were when the recording began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// The wall clock less the clock of the trace.
    offset_ns: i64,
}

impl Clock {
    /// A trace without a wall clock has its own.
    pub(super) fn of(start: &Clocks) -> Self {
        let is_known = start.realtime_ns > 0;
        Self { offset_ns: if is_known { start.realtime_ns.saturating_sub(start.monotonic_ns) } else { 0 } }
    }

    /// Returns the time since 1970.
    pub(super) const fn wall_ns(self, ns: i64) -> i64 {
        ns.saturating_add(self.offset_ns)
    }

    /// Returns periods that begin at multiples of their length on the wall clock.
    pub(super) fn periods(self, length_ns: i64) -> Periods {
        Periods { origin_ns: self.offset_ns.saturating_neg(), length_ns: length_ns.max(1) }
    }
}
