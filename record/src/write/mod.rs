//! What leaves the recording: rows to files and observers, and records that wait to be composed to a backlog.

pub mod backlog;
pub mod observer;
pub mod sink;
