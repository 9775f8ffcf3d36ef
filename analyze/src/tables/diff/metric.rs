//! The metrics that two sides are compared by: a word of the command line enters, and what it measures leaves.

use crate::choices::choices;

choices! {
    /// The metric that is compared.
    Metric, "metric" {
        /// Waiting, in ns per second.
        #[default]
        WaitTotal = "wait_total",
        /// Holding, in ns per second.
        Total = "total",
        /// Acquisitions per second.
        Count = "count",
        /// Contended acquisitions per second.
        CntLock = "cnt_lock",
        /// Time that others waited for its holds, in ns per second.
        WaitCaused = "wait_caused",
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

impl Metric {
    /// Returns whether it is per second.
    pub const fn is_rate(self) -> bool {
        !self.is_quantile()
    }

    /// Returns whether its values are times, not numbers of things.
    pub const fn is_time(self) -> bool {
        !matches!(self, Self::Count | Self::CntLock)
    }

    pub(super) const fn is_of_waits(self) -> bool {
        matches!(self, Self::WaitP50 | Self::WaitP99)
    }

    /// Returns whether it is a sum of what is known only where holds were recorded.
    pub(super) const fn is_of_holds(self) -> bool {
        matches!(self, Self::Total | Self::WaitCaused)
    }

    /// Returns whether it is a quantile of the lengths of holds.
    pub(super) const fn is_of_hold_times(self) -> bool {
        self.is_quantile() && !self.is_of_waits()
    }

    pub(super) const fn is_quantile(self) -> bool {
        matches!(self, Self::WaitP50 | Self::WaitP99 | Self::P50 | Self::P99)
    }
}
