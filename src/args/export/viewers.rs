//! Options of the formats of viewers.

use std::str::FromStr as _;

use analyze::export::folded::{Of, Unit};
use clap::Args as ClapArgs;

/// Options of `--format folded`.
#[derive(Debug, ClapArgs)]
pub(crate) struct Folded {
    /// Weight stacks by wait, hold, wait_caused (the time that others waited for a hold), combined (the waiter's stack, --, the holder's
    /// stack), blocked (sleep in waits), sys (time in futex calls that was not sleep), or by a number of calls: count (acquisitions),
    /// wakes or errors [default: wait].
    #[arg(long, value_name = "WHAT", value_parser = Of::from_str, help_heading = "folded")]
    pub(crate) of: Option<Of>,
    /// Set the unit of the weights: us or ns [default: us].
    #[arg(long, value_name = "UNIT", value_parser = Unit::from_str, help_heading = "folded")]
    pub(crate) unit: Option<Unit>,
}

/// Options of `--format firefox`.
#[derive(Debug, ClapArgs)]
pub(crate) struct Firefox {
    /// Write only the longest N waits and the longest N holds [default: 50000].
    #[arg(long, value_name = "N", help_heading = "firefox")]
    pub(crate) markers: Option<usize>,
}
