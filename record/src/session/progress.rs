//! Reports the progress of a recording a few times per second.

use std::time::{Duration, Instant};

use crate::options::{Progress, RecordPhase};

/// Time between two reports.
const INTERVAL: Duration = Duration::from_millis(200);

/// Measures the time since the start, and the events since the last report.
#[derive(Debug)]
pub(super) struct ProgressReporter {
    started: Instant,
    reported: Instant,
    reported_events: u64,
    lost: u64,
}

impl ProgressReporter {
    pub(super) fn new(now: Instant) -> Self {
        Self { started: now, reported: now, reported_events: 0, lost: 0 }
    }

    /// Returns the time since the start of the recording.
    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    pub(super) fn is_due(&self) -> bool {
        self.reported.elapsed() >= INTERVAL
    }

    /// Returns a report. `events` is the number of rows, and of records that wait, of which some become no row. `lost` is `None` if the number of lost events is unknown; the report then repeats the last one.
    pub(super) fn report(&mut self, events: u64, lost: Option<u64>, bytes: u64) -> Progress {
        let since = self.reported.elapsed();
        let new = events.saturating_sub(self.reported_events);
        self.lost = lost.unwrap_or(self.lost);
        (self.reported, self.reported_events) = (Instant::now(), events);
        Progress {
            phase: RecordPhase::Recording,
            events,
            events_per_s: (new as f64 / since.as_secs_f64()) as u64,
            lost: self.lost,
            bytes,
            elapsed: self.elapsed(),
        }
    }
}
