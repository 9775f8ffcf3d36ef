//! The command line from outside: the built binary, files in a fresh folder, what comes out and how it ends.

#![allow(clippy::unwrap_used, reason = "a test that can't go on stops")]

#[path = "cli/bad_input.rs"]
mod bad_input;
#[path = "cli/exports.rs"]
mod exports;
#[path = "cli/recording.rs"]
mod recording;
#[path = "cli/recovery.rs"]
mod recovery;
#[path = "cli/reports.rs"]
mod reports;
#[path = "cli/support.rs"]
mod support;
