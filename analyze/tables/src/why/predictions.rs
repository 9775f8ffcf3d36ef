//! Predictions: what the change that a verdict asks for would gain, or the reason why there is none.

use std::fmt;

use serde::Serialize;

use crate::whatif::{Change, WhatIfRow, predict_each};
use intervals::input::Input;
use output::{error::AnalyzeError, units};

/// In millionths.
const HALF_A_PERCENT: i64 = 5_000;

/// The number of events that are replayed.
const EVENTS: u64 = 50_000;

/// The gain of a change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Prediction {
    /// The change, as options of `klock whatif`.
    pub change: String,
    /// The change of the length of the run, in millionths: negative if it becomes shorter. `None` if there is
    /// no prediction.
    pub change_ppm: Option<i64>,
    /// The end of its interval with the shorter run.
    pub low_ppm: Option<i64>,
    /// The end with the longer run.
    pub high_ppm: Option<i64>,
    /// The change of the time that the same acquisitions of the lock take, in millionths: a program that runs
    /// for a fixed time does more in it.
    pub work_ppm: Option<i64>,
    /// The ends of its interval.
    pub work_low_ppm: Option<i64>,
    /// The end with the longer time.
    pub work_high_ppm: Option<i64>,
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
        let work = row.and_then(|row| row.work_ppm);
        let waits = row.and_then(|row| units::ppm(row.waits_ns?, row.waited_ns));
        Self {
            change: change.to_string(),
            change_ppm: row.and_then(|row| row.change_ppm),
            low_ppm: row.and_then(|row| row.low_ppm),
            high_ppm: row.and_then(|row| row.high_ppm),
            work_ppm: work.map(|[ppm, ..]| ppm),
            work_low_ppm: work.map(|[_, low, _]| low),
            work_high_ppm: work.map(|[.., high]| high),
            waits_ppm: waits.map(|ppm| ppm - 1_000_000),
            reason: reason.or_else(|| row?.reason.clone()),
            events,
            all_events,
            does,
        }
    }
}

impl fmt::Display for Prediction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.change_ppm.is_none() {
            return write!(
                f,
                "{}: no prediction: {}",
                self.does,
                self.reason.as_deref().unwrap_or("not known")
            );
        }
        // What is left is said: -99.5 % is not all.
        let digits = |ppm: i64| usize::from(ppm > -1_000_000 && ppm < -990_000);
        let percent = |ppm: i64| {
            let text = format!("{:+.*} %", digits(ppm), ppm as f64 / 1e4);
            text.replace("-0 %", "0 %").replace("+0 %", "0 %")
        };
        let change = |what: &str, all: [Option<i64>; 3]| {
            let [change, low, high] = all.map(|ppm| percent(ppm.unwrap_or(0)));
            format!("{what} {change} ({low} .. {high})")
        };
        // An end that is printed as 0 is no certain change.
        let is_gain = |high: Option<i64>| high.is_some_and(|high| high < -HALF_A_PERCENT);
        let is_part = self.events < self.all_events;
        let length = if is_part { "length of the replayed part" } else { "length of the run" };
        let length = change(length, [self.change_ppm, self.low_ppm, self.high_ppm]);
        let work = [self.work_ppm, self.work_low_ppm, self.work_high_ppm];
        let does = self.does;
        match self.low_ppm.unwrap_or(0) {
            // The end of a part is not the end of the program.
            _ if is_gain(self.high_ppm) && !(is_part && is_gain(self.work_high_ppm)) => {
                write!(f, "{does}: {length}")?;
            }
            _ if is_gain(self.work_high_ppm) => {
                write!(f, "{does}: {}, {length}", change("time for the same acquisitions", work))?;
            }
            low if low > HALF_A_PERCENT => write!(f, "{does}: a loss: {length}")?,
            _ => write!(f, "{does}: no certain gain: {length}")?,
        }
        if let Some(waits) = self.waits_ppm {
            write!(f, ", waits for it {}", percent(waits))?;
        }
        if is_part {
            let [events, all] = [self.events, self.all_events].map(units::exact);
            write!(f, "; by {events} of {all} events")?;
        }
        Ok(())
    }
}
