//! Predictions: the change that a verdict asks for enters, what it would gain leaves, or the reason why nobody knows.

use std::fmt;

use serde::Serialize;

use super::{
    rules::{Facts, Verdict},
    words::Words,
};
use crate::whatif::{Change, ChangeKind, Row, predict_each};
use intervals::input::Input;
use output::{error::AnalyzeError, units};

/// The number of events that are replayed.
const EVENTS: u64 = 50_000;

/// The gain of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Prediction {
    /// The change, as options of `klock whatif`.
    pub change: String,
    /// The change of the length of the run, in millionths: negative if it becomes shorter. `None` if there is no prediction.
    pub change_ppm: Option<i64>,
    /// The end of its interval with the shorter run.
    pub low_ppm: Option<i64>,
    /// The end with the longer run.
    pub high_ppm: Option<i64>,
    /// The change of the waits for the changed lock, in millionths.
    pub waits_ppm: Option<i64>,
    /// The reason why there is no prediction.
    pub reason: Option<String>,
    #[serde(skip)]
    kind: ChangeKind,
}

/// Returns the change that a verdict asks for.
pub(super) fn change(verdict: Verdict, facts: &Facts, words: &Words) -> Option<Change> {
    let lock = words.id;
    let (kind, text) = match verdict {
        Verdict::Nested => (ChangeKind::Hold, format!("{}=0.5", words.nested.as_ref()?.0)),
        Verdict::HolderAsleep => (ChangeKind::NoSleep, lock.to_string()),
        Verdict::HolderPreempted => (ChangeKind::NoPreempt, lock.to_string()),
        Verdict::LongSite => {
            let site = words.sites.get(facts.worst_site()?)?;
            let site = site.split(' ').next().filter(|site| !site.contains('='))?;
            (ChangeKind::Hold, format!("{lock}@{site}=0.5"))
        }
        Verdict::TooOften => (ChangeKind::Shard, format!("{lock}=4")),
        Verdict::Convoy | Verdict::Handoff => (ChangeKind::Handoff, format!("{lock}=0")),
        Verdict::Hog => (ChangeKind::Fifo, lock.to_string()),
        _ => return None,
    };
    kind.parse(&text).ok()
}

/// Predicts what these changes would gain, each by itself.
pub(super) fn predict(input: &Input<'_>, changes: &[Change]) -> Result<Vec<Prediction>, AnalyzeError> {
    if changes.is_empty() {
        return Ok(Vec::new());
    }
    let rows = predict_each(input, EVENTS, changes)?;
    Ok(changes.iter().zip(rows).map(|(change, row)| Prediction::of(change, row)).collect())
}

impl Prediction {
    fn of(change: &Change, row: Result<Row, AnalyzeError>) -> Self {
        let (row, reason) = match row {
            Ok(row) => (Some(row), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let row = row.as_ref();
        let waits = row.and_then(|row| units::ppm(row.waits_ns?, row.waited_ns));
        Self {
            change: change.to_string(),
            change_ppm: row.and_then(|row| row.change_ppm),
            low_ppm: row.and_then(|row| row.low_ppm),
            high_ppm: row.and_then(|row| row.high_ppm),
            waits_ppm: waits.map(|ppm| ppm - 1_000_000),
            reason: reason.or_else(|| row?.reason.clone()),
            kind: change.kind(),
        }
    }
}

impl fmt::Display for Prediction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(change), Some(low), Some(high)) = (self.change_ppm, self.low_ppm, self.high_ppm) else {
            return write!(f, "no prediction: {}", self.reason.as_deref().unwrap_or("nothing to replay"));
        };
        let what = match self.kind {
            ChangeKind::Hold => "half as long",
            ChangeKind::NoSleep => "without that sleep",
            ChangeKind::NoPreempt => "always with a CPU",
            ChangeKind::Shard => "four locks instead",
            ChangeKind::Handoff => "with hand-offs that take no time",
            ChangeKind::Fifo => "first come, first served",
            _ => "with the change",
        };
        let percent = |ppm: i64| format!("{:+.0} %", ppm as f64 / 1e4);
        write!(f, "{what}: length of the run {} ({} .. {})", percent(change), percent(low), percent(high))?;
        match self.waits_ppm {
            Some(waits) => write!(f, ", waits for it {}", percent(waits)),
            None => Ok(()),
        }
    }
}
