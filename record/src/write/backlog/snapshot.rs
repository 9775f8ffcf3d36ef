//! The state of a recording at the moment when everything that was drained is composed, or in the merger.

use serde::{Deserialize, Serialize};

use crate::{compose::Composer, preload::merge::Merger, sources::switches::records::Switch};

/// The state, to be written.
#[derive(Debug, Serialize)]
pub(crate) struct Snapshot<'a> {
    /// Number of rows of the trace until now.
    pub(crate) rows: u64,
    pub(crate) composer: &'a Composer,
    pub(crate) merger: &'a Merger,
    /// Switches that are not composed.
    pub(crate) switches: Vec<Switch>,
}

/// The state, as it was read.
#[derive(Debug, Deserialize)]
pub(crate) struct Restored {
    pub(crate) rows: u64,
    pub(crate) composer: Composer,
    pub(crate) merger: Merger,
    pub(crate) switches: Vec<Switch>,
}
