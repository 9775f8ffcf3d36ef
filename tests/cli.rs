//! Checks the command line of the built binary: its output, its files and its exit codes.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

#[path = "cli/bad_input.rs"]
mod bad_input;
#[path = "cli/chains.rs"]
mod chains;
#[path = "support/mod.rs"]
mod common;
#[path = "cli/critical.rs"]
mod critical;
#[path = "cli/exports.rs"]
mod exports;
#[path = "cli/guide.rs"]
mod guide;
#[path = "cli/older_tools.rs"]
mod older_tools;
#[path = "cli/order.rs"]
mod order;
#[path = "cli/outputs.rs"]
mod outputs;
#[path = "cli/pictures.rs"]
mod pictures;
#[path = "cli/recording.rs"]
mod recording;
#[path = "cli/recovery.rs"]
mod recovery;
#[path = "cli/reports.rs"]
mod reports;
#[path = "cli/several.rs"]
mod several;
#[path = "support/shown_commands.rs"]
mod shown_commands;
#[path = "cli/support.rs"]
mod support;
#[path = "cli/whatif.rs"]
mod whatif;
#[path = "cli/wrong_input.rs"]
mod wrong_input;
