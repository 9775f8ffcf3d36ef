//! Predictions: what the change that a verdict asks for would gain, or the reason why nobody knows.

use std::fmt;

use serde::Serialize;

use crate::whatif::{Change, WhatIfRow, predict_each};
use intervals::input::Input;
use output::{error::AnalyzeError, units};

/// The number of events that are replayed.
const EVENTS: u64 = 50_000;

/// The gain of a change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
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
    /// The events that were replayed, and all events of the trace.
    pub events: u64,
    /// All events of the trace.
    pub all_events: u64,
    /// What the change does.
    #[serde(skip)]
    pub(super) does: &'static str,
}

/// Predicts what these changes would gain, each by itself. A change comes with the words for what it does.
pub(super) fn predict(
    input: &Input<'_>,
    changes: &[&(Change, &'static str)],
) -> Result<Vec<Prediction>, AnalyzeError> {
    if changes.is_empty() {
        return Ok(Vec::new());
    }
    let (events, rows) = predict_each(input, EVENTS, changes.iter().map(|(change, _)| change))?;
    let part = (events, input.trace.event_count());
    Ok(changes
        .iter()
        .zip(rows)
        .map(|((change, does), row)| Prediction::of(change, does, row, part))
        .collect())
}

impl Prediction {
    fn of(
        change: &Change,
        does: &'static str,
        row: Result<WhatIfRow, AnalyzeError>,
        (events, all_events): (u64, u64),
    ) -> Self {
        let mut reason = row.as_ref().err().map(AnalyzeError::to_string);
        let row = row.as_ref().ok();
        if row.is_some_and(|row| row.waited_ns == 0) {
            reason = Some(
                "no wait for it ends in the part that is replayed; klock whatif replays more".to_owned(),
            );
        }
        let row = row.filter(|_| reason.is_none());
        let waits = row.and_then(|row| units::ppm(row.waits_ns?, row.waited_ns));
        Self {
            change: change.to_string(),
            change_ppm: row.and_then(|row| row.change_ppm),
            low_ppm: row.and_then(|row| row.low_ppm),
            high_ppm: row.and_then(|row| row.high_ppm),
            waits_ppm: waits.map(|ppm| ppm - 1_000_000),
            reason: reason.or_else(|| row?.reason.clone()),
            events,
            all_events,
            does,
        }
    }
}

impl Prediction {
    /// Whether there is a prediction.
    pub(super) fn is_made(&self) -> bool {
        self.change_ppm.is_some()
    }
}

impl fmt::Display for Prediction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [change, low, high] = [self.change_ppm, self.low_ppm, self.high_ppm].map(|ppm| ppm.unwrap_or(0));
        // What is left is said: -99.5 % is not all.
        let digits = |ppm: i64| usize::from(ppm > -1_000_000 && ppm < -990_000);
        let percent = |ppm: i64| format!("{:+.*} %", digits(ppm), ppm as f64 / 1e4).replace("-0 %", "0 %");
        let gain = match (low, high) {
            (_, ..0) => "",
            (1.., _) => "a loss: ",
            _ => "no certain gain: ",
        };
        let [change, low, high] = [change, low, high].map(percent);
        write!(f, "{}: {gain}length of the run {change} ({low} .. {high})", self.does)?;
        if let Some(waits) = self.waits_ppm {
            write!(f, ", waits for it {}", percent(waits))?;
        }
        if self.events < self.all_events {
            let [events, all] = [self.events, self.all_events].map(units::exact);
            write!(f, "; by {events} of {all} events")?;
        }
        Ok(())
    }
}
