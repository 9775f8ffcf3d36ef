//! The wall clock of a trace: times of the trace enter, times since 1970 leave.

use trace_format::run_info::Clocks;

use crate::tables::spans::Periods;

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
