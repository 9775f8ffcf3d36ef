//! The scenarios, one file for each subject.

pub(super) mod contended;
pub(super) mod counts;
pub(super) mod facts;
pub(super) mod klockstat;
pub(super) mod off_cpu;
pub(super) mod refusals;
pub(super) mod soak;
