//! Limits of loss: whether a trace lost too many events to be ranked.
//!
//! Losses are not spread evenly: they hit the busiest CPU or thread at its busiest time, which is what a
//! ranking is about. So above [`WARN_PPM`] a warning precedes every table, and above [`REFUSE_PPM`] tables
//! are refused without `--allow-loss`.

use trace_format::Trace;

use super::{RING_FULL, Trust};
use output::error::AnalyzeError;

/// The share of lost events, in millionths, above which a warning precedes every table.
const WARN_PPM: u64 = 1_000;

/// The share of lost events, in millionths, above which tables are refused.
const REFUSE_PPM: u64 = 50_000;

/// Refuses a trace that lost too much.
///
/// # Errors
///
/// [`AnalyzeError::TooMuchLost`], unless `allowed`.
pub(in crate::input) fn check(trace: &Trace, trust: &Trust, allowed: bool) -> Result<(), AnalyzeError> {
    if allowed || trust.can_be_ranked() {
        return Ok(());
    }
    Err(AnalyzeError::TooMuchLost {
        path: trace.paths().events.clone(),
        share: share(trust.lost_ppm()),
        detail: detail(trust),
        advice: if trust.lost_by_cause.iter().any(|of| of.cause == RING_FULL) {
            "record again with a larger --ring or fewer locks"
        } else {
            "record again with fewer locks"
        },
    })
}

/// Formats millionths as `48.4 %`.
fn share(ppm: u64) -> String {
    let percent = ppm as f64 / 1e4;
    if percent < 1.0 { format!("{percent:.2} %") } else { format!("{percent:.1} %") }
}

fn detail(trust: &Trust) -> String {
    let mut parts: Vec<String> = trust.lost_by_cause.iter().map(|cause| cause.cause.to_owned()).collect();
    if parts.len() > 2 {
        parts.truncate(1);
    }
    if !trust.lost_where.is_empty() {
        parts.push(trust.lost_where.clone());
    }
    parts.join(", ")
}

impl Trust {
    /// Returns the share of lost events, in millionths of all events, lost and recorded.
    pub fn lost_ppm(&self) -> u64 {
        let recorded = self.recorded;
        let all = u128::from(self.lost) + u128::from(recorded);
        u64::try_from(u128::from(self.lost) * 1_000_000 / all.max(1)).unwrap_or(u64::MAX)
    }

    /// Whether few enough events were lost for an order of rows to mean something.
    pub fn can_be_ranked(&self) -> bool {
        self.lost_ppm() <= REFUSE_PPM
    }

    /// Returns the warning that precedes a table, if the trace lost enough events for one.
    pub fn warning(&self) -> Option<String> {
        (self.lost_ppm() > WARN_PPM).then(|| {
            format!(
                "warning: {} of the events are missing ({}); rows with ! lost holds or waits by that",
                share(self.lost_ppm()),
                detail(self)
            )
        })
    }
}
