//! Circles of imports that still exist, by root file and modules. The list only shrinks: a circle is removed when it is
//! untied, and a new one is a failure.

/// The known circles.
pub(super) const KNOWN_CIRCLES: &[(&str, &[&str])] = &[];
