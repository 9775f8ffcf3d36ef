//! The options of a rollup.

use std::str::FromStr;

use crate::{Filter, error::AnalyzeError};

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
