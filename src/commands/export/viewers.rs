//! Converts the options of the formats of viewers.

use analyze::export::{firefox, folded};

use crate::args::{Firefox, Folded};

pub(super) fn folded(args: &Folded) -> folded::Options {
    folded::Options { of: args.of.unwrap_or_default(), unit: args.unit.unwrap_or_default() }
}

pub(super) fn firefox(args: &Firefox) -> firefox::Options {
    args.markers.map_or_else(firefox::Options::default, |markers| firefox::Options { markers })
}
