//! When a comparison has failed: `wait_total > +20%`, typed where a machine decides.

use std::{fmt, str::FromStr};

use super::{Change, Diff, Metric};
use crate::error::AnalyzeError;

/// A change that is not accepted: of all locks that are looked at, together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Condition {
    /// Of what.
    pub metric: Metric,
    /// Whether more than the limit is meant, or less.
    pub above: bool,
    /// The limit: 0.2 is a fifth more.
    pub limit: f64,
}

impl Condition {
    /// What became of the metric, if it is beyond the limit and that is more than chance. What was nothing before is beyond
    /// every limit.
    pub fn met<'a>(&self, diff: &'a Diff) -> Option<&'a Change> {
        let change = diff.all.change(self.metric);
        // What was not measured is not nothing.
        let was_nothing = change.base == Some(0.0) || diff.all.change(Metric::Count).base == Some(0.0);
        let has_come = was_nothing && change.new.unwrap_or(0.0) > 0.0;
        let beyond = |by: f64| if self.above { by > self.limit } else { by < self.limit };
        let is_met = match change.change {
            Some(by) => beyond(by) && change.is_certain(),
            None => has_come && self.above,
        };
        is_met.then_some(change)
    }
}

impl FromStr for Condition {
    type Err = AnalyzeError;

    fn from_str(text: &str) -> Result<Self, AnalyzeError> {
        let bad = || AnalyzeError::BadCondition { text: crate::names::printable(text).into_owned() };
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
