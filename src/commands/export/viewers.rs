//! Options of the formats of viewers, as they were typed, to those that the analyzer takes.

use analyze::export::folded;

use crate::args::Folded;

pub(super) fn folded(args: &Folded) -> folded::Options {
    folded::Options { of: args.of.unwrap_or_default(), unit: args.unit.unwrap_or_default() }
}
