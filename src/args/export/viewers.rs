//! Options of the formats of viewers.

use std::str::FromStr as _;

use analyze::export::folded::{Of, Unit};
use clap::Args as ClapArgs;

/// `--format folded`.
#[derive(Debug, ClapArgs)]
pub(crate) struct Folded {
    /// What the weight of a stack is: wait, hold, wait_caused (how long others waited for what was acquired there), or combined (the
    /// stack of who waited, --, the stack of who held the lock meanwhile) [default: wait].
    #[arg(long, value_name = "WHAT", value_parser = Of::from_str, help_heading = "folded")]
    pub(crate) of: Option<Of>,
    /// The unit of the weights: us or ns [default: us].
    #[arg(long, value_name = "UNIT", value_parser = Unit::from_str, help_heading = "folded")]
    pub(crate) unit: Option<Unit>,
}

impl Folded {
    /// An option that was given, if one was.
    pub(super) fn given(&self) -> Option<&'static str> {
        super::first_given(&[("--of", self.of.is_some()), ("--unit", self.unit.is_some())])
    }
}

/// `--format firefox`.
#[derive(Debug, ClapArgs)]
pub(crate) struct Firefox {
    /// At most so many waits and as many holds, the longest [default: 50000].
    #[arg(long, value_name = "N", help_heading = "firefox")]
    pub(crate) markers: Option<usize>,
}

impl Firefox {
    /// An option that was given, if one was.
    pub(super) fn given(&self) -> Option<&'static str> {
        super::first_given(&[("--markers", self.markers.is_some())])
    }
}
