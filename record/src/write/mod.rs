//! The outputs of a recording: rows to files and observers, and records that wait to be composed to a
//! backlog.

pub(crate) mod backlog;
pub(crate) mod sink;
